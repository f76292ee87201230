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
use crate::cluster_api::{Audit, OpenRequests, Passes, Places, Recordings, Tickets};
use crate::journal::Journal;
use crate::metrics::Counts;
use crate::model::{Cursors, Refusals, Standing};
use crate::registry::Registry;
use crate::resolve::Shelf;
use crate::together::Together;
use crate::turns::Turns;

pub(crate) const SERVICE: &str = "tunnel-gateway";

/// How long the gateway waits for another service.
pub(crate) const ASK_TIME: Duration = Duration::from_secs(5);

pub(crate) struct Gateway {
    pub(crate) args: Args,
    pub(crate) world: World,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) registry: Registry,
    pub(crate) admissions: Together<Admit>,
    pub(crate) plans: Together<ShowDesired>,
    pub(crate) standing: Following<Standing>,
    pub(crate) cursors: Following<Cursors>,
    /// Of those who look where the log of observations ends.
    pub(crate) looks: Turns,
    pub(crate) shelf: Shelf,
    pub(crate) journal: Journal,
    pub(crate) audit: Audit,
    /// What goes through sessions, on its way into the log.
    pub(crate) recordings: Recordings,
    pub(crate) passes: Passes,
    pub(crate) places: Arc<Places>,
    pub(crate) tickets: Tickets,
    pub(crate) open_requests: Arc<OpenRequests>,
    pub(crate) refusals: Mutex<Refusals>,
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
