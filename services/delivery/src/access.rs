//! What this service may do on NATS.

use events::access::{Access, Keys, Use};
use events::requests::authz::{Decide, ListAllowedAgents};
use events::requests::delivery::DesiredChanged;
use events::requests::repository::{BundleAt, RepositoryPushed, ShowFetch};
use events::{AggregateKind, Notice as _, Request as _, Stream};
use store::Projection as _;

use crate::model::DeliveryState;

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[Decide::NAME, ListAllowedAgents::NAME, BundleAt::NAME, ShowFetch::NAME],
    announces: &[DesiredChanged::NAME, RepositoryPushed::NAME],
    shares_work: true,
    knows: &["tunnel-gateway"],
    decides: &[AggregateKind::Source, AggregateKind::Applier],
    reads: &[Stream::Observations],
    blobs: Use::Writes,
    keys: &[Keys::Organizations],
    projections: &[DeliveryState::NAME],
    ..Access::of("delivery")
};
