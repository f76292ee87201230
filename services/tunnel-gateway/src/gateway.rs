//! What all parts of the gateway share.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, Admit, Decide, Decision};
use events::requests::delivery::ShowDesired;
use events::{Actor, OrganizationId, Refusal, RefusalKind};
use parking_lot::Mutex;
use store::{EventLog, Following};
use world::World;

use crate::args::Args;
use crate::batching::Batcher;
use crate::cluster_api::{Audit, OpenRequests, Passes, Recordings, RequestSlots, Tickets};
use crate::delivery::BundleCache;
use crate::metrics::Counts;
use crate::tunnels::{
    Journal, ObjectIntake, ObservationCursors, RefusalThrottle, Registry, Standing, Throttle,
};

pub(crate) const SERVICE: &str = "tunnel-gateway";

/// How long the gateway waits for another service.
pub(crate) const ASK_TIME: Duration = Duration::from_secs(5);

pub(crate) struct Gateway {
    pub(crate) args: Args,
    pub(crate) world: World,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) registry: Registry,
    pub(crate) admissions: Batcher<Admit>,
    pub(crate) plans: Batcher<ShowDesired>,
    pub(crate) standing: Following<Standing>,
    pub(crate) cursors: Following<ObservationCursors>,
    /// For reading the end of the observations.
    pub(crate) catch_up_throttle: Throttle,
    pub(crate) object_changes: ObjectIntake,
    pub(crate) bundles: BundleCache,
    pub(crate) journal: Journal,
    pub(crate) audit: Audit,
    /// Recorded container sessions on their way into the log.
    pub(crate) recordings: Recordings,
    pub(crate) passes: Passes,
    pub(crate) request_slots: Arc<RequestSlots>,
    pub(crate) tickets: Tickets,
    pub(crate) open_requests: Arc<OpenRequests>,
    pub(crate) refusals: Mutex<RefusalThrottle>,
    pub(crate) counts: Counts,
}

impl Gateway {
    /// The gateway asks by itself.
    pub(crate) fn context(&self, organization: OrganizationId) -> RequestContext {
        bus::within(bus::context_for_service(&self.world, SERVICE, organization), ASK_TIME)
    }

    /// What authz says of an actor's wish.
    pub(crate) async fn decide(
        &self,
        actor: Actor,
        organization: OrganizationId,
        action: Action,
        scope: Scope,
    ) -> Result<Decision, Refusal> {
        let request = Decide { actor, organization, action, scope };
        bus::ask(&*self.bus, &self.context(organization), &request).await
    }

    /// Nothing when the one who asks may do it; else the refusal, which does not tell what must not be seen. Services may.
    pub(crate) async fn permit(
        &self,
        context: &RequestContext,
        action: Action,
        scope: Scope,
        what: &str,
    ) -> Result<(), Refusal> {
        if matches!(context.actor, Actor::Service(_)) {
            return Ok(());
        }
        let decision = self.decide(context.actor.clone(), context.organization, action, scope).await?;
        match decision {
            Decision { allowed: true, .. } => Ok(()),
            Decision { visible: false, .. } => Err(Refusal::not_found(what)),
            Decision { reason, .. } => Err(Refusal::new(RefusalKind::Denied, reason)),
        }
    }
}
