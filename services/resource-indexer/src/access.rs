//! What this service may do on NATS.

use events::access::{Access, Keys, Use};
use events::requests::authz::{ListAllowedProjects, ListUsableAgents, SignReview};
use events::requests::environments::ListResourceGroups;
use events::requests::rights::ReviewRights;
use events::{Request as _, Stream};

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[
        ListAllowedProjects::NAME,
        ListUsableAgents::NAME,
        SignReview::NAME,
        ListResourceGroups::NAME,
        ReviewRights::NAME,
    ],
    knows: &["tunnel-gateway"],
    reads: &[Stream::Observations, Stream::Objects],
    blobs: Use::Reads,
    keys: &[Keys::Organizations],
    ..Access::of("resource-indexer")
};
