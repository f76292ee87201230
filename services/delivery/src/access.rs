//! What this service may do on NATS.

use events::access::{Access, Keys, Use};
use events::requests::authz::{
    Decide, DecideAssociation, FindProject, ListAllowedAgents, ListAllowedProjects,
};
use events::requests::delivery::DesiredChanged;
use events::requests::repository::{BundleAt, RepositoryPushed, ShowFetch};
use events::{AggregateKind, Notice as _, Request as _, Stream};
use store::Projection as _;

use crate::environments::Environments;
use crate::model::DeliveryState;

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[
        Decide::NAME,
        DecideAssociation::NAME,
        FindProject::NAME,
        ListAllowedAgents::NAME,
        ListAllowedProjects::NAME,
        BundleAt::NAME,
        ShowFetch::NAME,
    ],
    announces: &[DesiredChanged::NAME, RepositoryPushed::NAME],
    shares_work: true,
    knows: &["tunnel-gateway"],
    decides: &[
        AggregateKind::Source,
        AggregateKind::Applier,
        AggregateKind::Environment,
        AggregateKind::Deployment,
    ],
    reads: &[Stream::Observations],
    blobs: Use::Writes,
    keys: &[Keys::Organizations],
    projections: &[DeliveryState::NAME, Environments::NAME],
    ..Access::of("delivery")
};
