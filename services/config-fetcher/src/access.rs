//! What this service may do on NATS.

use events::access::Access;
use events::requests::authz::{Decide, DecideFetch, FindMissing, ShowProject};
use events::requests::repository::{ReadFile, RepositoryAdvanced};
use events::{AggregateKind, Notice as _, Request as _};
use store::Projection as _;

use crate::model::State;

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[Decide::NAME, DecideFetch::NAME, FindMissing::NAME, ShowProject::NAME, ReadFile::NAME],
    hears: &[RepositoryAdvanced::NAME],
    shares_work: true,
    decides: &[AggregateKind::Configuration],
    projections: &[State::NAME],
    ..Access::of("config-fetcher")
};
