//! Accepting agents' connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::Shutdown;
use events::observation::Observed;
use events::requests::authz::{Admission, Principal};
use events::{AgentId, OrganizationId, Refusal, RefusalKind, Sha256, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tunnel::gateway::{AcceptError, Accepted, Acceptor, Presented, Rejection, Secured};
use tunnel::handshake::{Hello, Role};
use tunnel::wire::{Again, Farewell};
use world::network::{Connection, Listener};

use super::metered::Metered;
use super::model::RefusalKey;
use super::session::{self, Identity, Session};
use crate::gateway::Gateway;

/// Handshakes at once; more wait in the listener's queue.
const MAXIMUM_HANDSHAKES: usize = 256;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Accepts connections until shutdown is requested, then lets those that are open end.
pub(crate) async fn run(
    gateway: Arc<Gateway>,
    listener: Box<dyn Listener>,
    acceptor: Acceptor,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let handshakes = Arc::new(Semaphore::new(MAXIMUM_HANDSHAKES));
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.requested() => break,
            accepted = async {
                let permit = Arc::clone(&handshakes).acquire_owned().await;
                (permit, listener.accept().await)
            } => accepted,
        };
        match accepted {
            (Ok(permit), Ok((socket, peer))) => {
                let (gateway, acceptor, shutdown) =
                    (Arc::clone(&gateway), acceptor.clone(), shutdown.clone());
                let spawner = Arc::clone(&gateway.world.spawner);
                spawner.spawn(
                    "tunnel",
                    Box::pin(async move {
                        // Boxed, here and in all that a tunnel does only now and then: an idle one holds what its task is made of.
                        let entered =
                            Box::pin(accept_connection(&gateway, &acceptor, socket, peer, &shutdown)).await;
                        drop(permit);
                        if let Some(session) = entered {
                            session::run(gateway, session).await;
                        }
                    }),
                );
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "connection cannot be accepted");
                gateway.world.clock.sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    drain(&gateway).await;
    Ok(())
}

async fn drain(gateway: &Gateway) {
    gateway.registry.dismiss_all("this gateway is stopping", Again::AtOnce);
    let mut open = gateway.registry.open();
    tokio::select! {
        biased;
        _none = open.wait_for(|open| *open == 0) => {}
        () = gateway.world.clock.sleep(gateway.args.tunnel_drain) => {
            tracing::warn!(open = *gateway.registry.open().borrow(), "open tunnels are closed");
        }
    }
}

/// Accepts one connection; gives its session, entered in the registry.
async fn accept_connection(
    gateway: &Arc<Gateway>,
    acceptor: &Acceptor,
    socket: Box<dyn Connection>,
    peer: SocketAddr,
    shutdown: &Shutdown,
) -> Option<Arc<Session>> {
    let identified = Arc::new(Mutex::new(None));
    let (judging, found, draining) = (Arc::clone(gateway), Arc::clone(&identified), shutdown.is_requested());
    let admit = move |presented: Presented| async move { admit(&judging, presented, &found, draining).await };
    let socket = Box::new(Metered::new(socket, &gateway.counts));
    let accepted = match acceptor.accept(&gateway.world, socket, admit).await {
        Ok(accepted) => accepted,
        Err(error) => {
            let identified = identified.lock().take();
            report_refusal(gateway, peer, identified, &error);
            return None;
        }
    };
    let Accepted { hello, admitted, connection, secured } = accepted;
    let tls = match secured {
        Secured::Full => "full",
        Secured::Resumed => "resumed",
        Secured::Not => "none",
    };
    gateway.counts.connections.with([tls]).inc();
    let identity = Identity {
        role: hello.role,
        agent: admitted.agent,
        instance: hello.instance,
        organization: admitted.principal.organization,
        token: admitted.principal.token,
        expires_at: admitted.principal.expires_at,
        version: hello.version,
        desired: hello.desired,
    };
    let session = Session::new(identity, connection, Timestamp(gateway.world.clock.now_millis()));
    if let Some(former) = gateway.registry.enter(&session) {
        former.dismiss(Farewell {
            reason: "replaced by a newer tunnel of this instance".to_owned(),
            again: Again::Later,
        });
    }
    // Only now: a revocation that came before is seen here, one that comes later finds the session in the registry.
    let (agent, token) = (session.agent, session.token);
    if let Some(reason) = gateway.standing.read(|standing| standing.rejection_reason(agent, token)) {
        session.dismiss(Farewell { reason: reason.to_owned(), again: Again::Slowly });
    }
    if shutdown.is_requested() {
        session.dismiss(Farewell { reason: "this gateway is stopping".to_owned(), again: Again::AtOnce });
    }
    Some(session)
}

struct Admitted {
    agent: AgentId,
    principal: Principal,
}

type Identified = Mutex<Option<(AgentId, OrganizationId)>>;

async fn admit(
    gateway: &Gateway,
    presented: Presented,
    identified: &Identified,
    draining: bool,
) -> Result<(AgentId, Admitted), Rejection> {
    if draining {
        return Err(Rejection::unavailable("this gateway is stopping", RETRY_AFTER));
    }
    let hash = Sha256::of(presented.token.secret().as_bytes());
    let (principal, agent, refusal) = match gateway.admissions.ask(hash).await {
        Admission::Admitted { holder, agent } => (holder, agent, None),
        Admission::Denied { holder, agent, refusal } => (holder, agent, Some(refusal)),
        Admission::Refused(refusal) => return Err(reject(refusal)),
    };
    *identified.lock() = Some((agent, principal.organization));
    if let Some(refusal) = refusal {
        return Err(reject(refusal));
    }
    if let Some(reason) = gateway.standing.read(|standing| standing.rejection_reason(agent, principal.token))
    {
        return Err(Rejection::unauthenticated(reason));
    }
    check_capacity(gateway, agent, &presented.hello)?;
    Ok((agent, Admitted { agent, principal }))
}

fn check_capacity(gateway: &Gateway, agent: AgentId, hello: &Hello) -> Result<(), Rejection> {
    let (has_capacity, maximum, what) = match hello.role {
        Role::Control => {
            let has_capacity = gateway.registry.has_capacity(agent, hello.instance);
            (has_capacity, gateway.args.tunnel_per_agent, "tunnels")
        }
        Role::Bulk => {
            let has_capacity = gateway.registry.has_bulk_capacity(agent);
            (has_capacity, gateway.args.tunnel_bulk_per_agent, "connections beside its tunnels")
        }
    };
    if has_capacity {
        return Ok(());
    }
    let message = format!("this agent has {maximum} {what} open, the maximum");
    Err(Rejection::unavailable(message, RETRY_AFTER))
}

fn reject(refusal: Refusal) -> Rejection {
    match refusal.kind {
        RefusalKind::Unauthenticated | RefusalKind::NotFound => Rejection::unauthenticated(refusal.message),
        RefusalKind::Denied | RefusalKind::Invalid | RefusalKind::Conflict => {
            Rejection::denied(refusal.message)
        }
        RefusalKind::Unavailable | RefusalKind::Internal => {
            tracing::warn!(%refusal, "the authz service does not answer");
            Rejection::unavailable("tokens cannot be checked now", RETRY_AFTER)
        }
    }
}

fn report_refusal(
    gateway: &Gateway,
    peer: SocketAddr,
    identified: Option<(AgentId, OrganizationId)>,
    error: &AcceptError,
) {
    let AcceptError::Rejected(rejection) = error else {
        let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        tracing::debug!(%peer, %error, source, "no tunnel");
        return;
    };
    gateway.counts.refusals.inc();
    if rejection.refusal.kind == RefusalKind::Unavailable {
        return;
    }
    let agent = identified.map(|(agent, _)| agent);
    let refused = RefusalKey { agent, reason: rejection.refusal.message.clone() };
    let reason = gateway.refusals.lock().record(&refused, gateway.world.clock.monotonic());
    if let Some(reason) = reason {
        let agent_id = agent.map_or_else(|| "unknown".to_owned(), |agent| agent.to_string());
        tracing::warn!(%peer, agent = agent_id, reason, "tunnel refused");
        let organization = identified.map_or(OrganizationId::SYSTEM, |(_, organization)| organization);
        gateway.journal.note(organization, Observed::TunnelRefused { agent, reason });
    }
}
