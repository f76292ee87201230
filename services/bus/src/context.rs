//! Contexts of requests: who asks, why, and for how long.

use std::time::Duration;

use events::request::RequestContext;
use events::{Actor, CommitId, CorrelationId, Envelope, OrganizationId};
use world::World;

/// How long a request waits where nobody says otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// The beginning of a chain: `actor` asks, in its organization.
#[must_use]
pub fn context_for(world: &World, actor: Actor, organization: OrganizationId) -> RequestContext {
    RequestContext {
        actor,
        organization,
        correlation_id: CorrelationId(world.new_uuid()),
        causation_id: None,
        traceparent: None,
        idempotency_key: CommitId(world.new_uuid()),
        deadline_millis: millis(DEFAULT_DEADLINE),
    }
}

/// The beginning of a chain: the service `name` asks by itself.
#[must_use]
pub fn context_for_service(world: &World, name: &str, organization: OrganizationId) -> RequestContext {
    context_for(world, Actor::service(name), organization)
}

/// The service `name` asks because of an event: the event's chain goes on.
#[must_use]
pub fn caused_by(world: &World, name: &str, event: &Envelope) -> RequestContext {
    RequestContext {
        correlation_id: event.correlation_id,
        causation_id: Some(event.id),
        traceparent: event.traceparent.clone(),
        ..context_for_service(world, name, event.organization)
    }
}

/// The same context with another deadline.
#[must_use]
pub fn within(mut context: RequestContext, deadline: Duration) -> RequestContext {
    context.deadline_millis = millis(deadline);
    context
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
