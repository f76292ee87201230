//! What this service may do on NATS.

use events::access::{Access, Keys, Use};
use events::requests::authz::{Decide, DecideFetch};
use events::requests::repository::{BundleAt, ReadFile, RepositoryAdvanced, RepositoryPushed, ShowFetch};
use events::{AggregateKind, Notice as _, Request as _};
use store::Projection as _;

use crate::model::State;

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[Decide::NAME, DecideFetch::NAME, ReadFile::NAME, BundleAt::NAME, ShowFetch::NAME],
    announces: &[RepositoryAdvanced::NAME],
    hears: &[RepositoryPushed::NAME],
    shares_work: true,
    decides: &[AggregateKind::Ref],
    blobs: Use::Writes,
    keys: &[Keys::Organizations],
    projections: &[State::NAME],
    ..Access::of("repo-poller")
};
