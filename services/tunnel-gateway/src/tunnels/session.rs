//! One tunnel, from its opening to its end.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bus::Serving;
use events::desired::Applier;
use events::observation::Observed;
use events::{AgentId, InstanceId, OrganizationId, Sha256, Timestamp, TokenId};
use futures::FutureExt;
use tokio::sync::{SetOnce, oneshot, watch};
use tunnel::gateway::AgentConnection;
use tunnel::handshake::Role;
use tunnel::wire::{Again, Farewell};
use world::spawn::TaskHandle;

use super::capacity::Capacity;
use super::{bulk, intake};
use crate::delivery::push;
use crate::gateway::Gateway;
use crate::requests;

/// A sleep is never longer than this, so that a clock that jumps ends no token late.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Requests to the cluster's API that one tunnel carries at once: of its streams a fifth is left for its own.
const CLUSTER_REQUESTS: u32 = tunnel::settings::MAXIMUM_STREAMS / 5 * 4;
/// The same of a connection beside it, whose streams are for nothing else but a last word.
const CLUSTER_REQUESTS_OF_BULK: u32 = tunnel::settings::MAXIMUM_STREAMS - 8;
/// An agent that stops brings what is open to its end within this time, and then breaks it off itself.
pub(crate) const DRAIN_OF_AGENT: Duration = Duration::from_secs(15);

/// One open tunnel, or a connection beside one.
pub(crate) struct Session {
    pub(crate) role: Role,
    pub(crate) agent: AgentId,
    pub(crate) instance: InstanceId,
    pub(crate) organization: OrganizationId,
    pub(crate) token: TokenId,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) version: String,
    pub(crate) since: Timestamp,
    /// The digest of the desired state that its agent came with.
    pub(crate) desired: Option<Sha256>,
    pub(crate) connection: AgentConnection,
    /// For requests to the cluster's API.
    pub(crate) capacity: Capacity,
    /// Counts the times that the desired state may have changed.
    pub(crate) changed: watch::Sender<u64>,
    /// The newest revision of it that was heard of.
    pub(crate) announced: AtomicU64,
    farewell: watch::Sender<Option<Farewell>>,
    applier: watch::Sender<Appliers>,
    /// Set once delivery said who applies, or that nobody does.
    applier_known: SetOnce<()>,
}

#[derive(Default)]
struct Appliers {
    /// The last epoch that this instance was named for.
    own_epoch: Option<u64>,
    /// The agent's applier, as heard last.
    current: Option<Applier>,
}

impl Appliers {
    /// Whether an instance applies, as heard last.
    fn names(&self, instance: InstanceId) -> bool {
        self.current.is_some_and(|applier| applier.instance == instance)
    }
}

/// What a session is made of besides its connection.
pub(crate) struct Identity {
    pub(crate) role: Role,
    pub(crate) agent: AgentId,
    pub(crate) instance: InstanceId,
    pub(crate) organization: OrganizationId,
    pub(crate) token: TokenId,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) version: String,
    pub(crate) desired: Option<Sha256>,
}

impl Session {
    pub(crate) fn new(identity: Identity, connection: AgentConnection, since: Timestamp) -> Arc<Self> {
        let Identity { role, agent, instance, organization, token, expires_at, version, desired } = identity;
        let requests = match role {
            Role::Control => CLUSTER_REQUESTS,
            Role::Bulk => CLUSTER_REQUESTS_OF_BULK,
        };
        Arc::new(Self {
            role,
            agent,
            instance,
            organization,
            token,
            expires_at,
            version,
            since,
            desired,
            connection,
            capacity: Capacity::new(requests),
            changed: watch::Sender::new(0),
            announced: AtomicU64::new(0),
            farewell: watch::Sender::new(None),
            applier: watch::Sender::default(),
            applier_known: SetOnce::new(),
        })
    }

    /// The desired state may have changed.
    pub(crate) fn mark_changed(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Tells the tunnel to end. The first word counts, but for a token that is no longer good, which ends it at once.
    pub(crate) fn dismiss(&self, farewell: Farewell) {
        self.farewell.send_if_modified(|said| {
            let counts = said.is_none() || farewell.again == Again::Slowly;
            if counts {
                *said = Some(farewell);
            }
            counts
        });
    }

    /// Returns once the tunnel was told to end.
    pub(crate) async fn dismissed(&self) -> Farewell {
        self.dismissed_if(|_| true).await
    }

    /// Returns once the tunnel was told to end, in a way of which this holds.
    async fn dismissed_if(&self, counts: impl Fn(&Farewell) -> bool) -> Farewell {
        let mut farewell = self.farewell.subscribe();
        let said = farewell.wait_for(|said| said.as_ref().is_some_and(&counts)).await;
        let said = said.ok().and_then(|said| said.clone());
        said.unwrap_or_else(|| Farewell { reason: "closed".to_owned(), again: Again::Later })
    }

    /// Delivery said who applies.
    pub(crate) fn set_applier(&self, applier: Option<Applier>) {
        // Only the first time is news to those who wait for it.
        let _set_before = self.applier_known.set(());
        let Some(applier) = applier else { return };
        self.applier.send_modify(|appliers| {
            if appliers.current.is_none_or(|current| current.epoch <= applier.epoch) {
                appliers.current = Some(applier);
            }
            if applier.instance == self.instance {
                appliers.own_epoch = appliers.own_epoch.max(Some(applier.epoch));
            }
        });
    }

    /// Returns once delivery has said who applies.
    pub(crate) async fn applier_known(&self) {
        self.applier_known.wait().await;
    }

    /// This instance and the last epoch that it was named for.
    pub(crate) fn named_applier(&self) -> Option<Applier> {
        let epoch = self.applier.borrow().own_epoch?;
        Some(Applier { instance: self.instance, epoch })
    }

    /// Whether this instance applies, as heard last.
    pub(crate) fn is_applier(&self) -> bool {
        self.applier.borrow().names(self.instance)
    }

    /// Returns once this instance applies, or once it does not.
    pub(crate) async fn applies(&self, whether: bool) {
        let mut appliers = self.applier.subscribe();
        // The sender lives in the session.
        drop(appliers.wait_for(|appliers| appliers.names(self.instance) == whether).await);
    }
}

/// Runs what was entered in the registry until it ends; then it has left the registry.
pub(crate) async fn run(gateway: Arc<Gateway>, session: Arc<Session>) {
    match session.role {
        Role::Control => run_tunnel(gateway, session).await,
        Role::Bulk => Box::pin(bulk::run(&gateway, &session)).await,
    }
}

async fn run_tunnel(gateway: Arc<Gateway>, session: Arc<Session>) {
    let (agent, instance, version) = (session.agent, session.instance, session.version.clone());
    tracing::info!(%agent, %instance, version, "tunnel opened");
    gateway.counts.tunnels.inc();
    gateway.journal.note(session.organization, Observed::TunnelOpened { agent, instance, version });
    let Farewell { reason, again } =
        match AssertUnwindSafe(run_until_closed(&gateway, &session)).catch_unwind().await {
            Ok(farewell) => farewell,
            Err(_panic) => {
                tracing::error!(%agent, %instance, "an internal fault ended a tunnel");
                let farewell = Farewell { reason: "a fault of the gateway".to_owned(), again: Again::Later };
                Box::pin(session.connection.close(&farewell)).await;
                farewell
            }
        };
    gateway.registry.leave(&session, again, gateway.world.clock.monotonic());
    gateway.counts.tunnels.dec();
    tracing::info!(%agent, %instance, reason, "tunnel closed");
    gateway.journal.note(session.organization, Observed::TunnelClosed { agent, instance, reason });
}

async fn run_until_closed(gateway: &Arc<Gateway>, session: &Arc<Session>) -> Farewell {
    let serving = match Box::pin(requests::serve_agent(gateway, session)).await {
        Ok(serving) => Some(serving),
        Err(error) => {
            tracing::warn!(agent = %session.agent, %error, "requests for this agent cannot be served");
            None
        }
    };
    let mut push = pin!(push::run(gateway, session));
    let mut intake = pin!(intake::read_observations(gateway, session));
    let mut object_changes = ObjectChangesReader::start(gateway, session);
    let mut expiry = pin!(token_expired(gateway, session));
    let mut read_to_the_end = false;
    let farewell = tokio::select! {
        biased;
        farewell = session.dismissed() => farewell,
        () = &mut expiry => expired_farewell(),
        reason = session.connection.closed() => {
            drop(serving);
            let farewell = Farewell { reason, again: Again::Later };
            gateway.registry.stop_offering(session, farewell.again, gateway.world.clock.monotonic());
            Box::pin(drain(gateway, session, Some(DRAIN_OF_AGENT))).await;
            Box::pin(session.connection.close(&farewell)).await;
            return farewell;
        }
        () = &mut push => Farewell { reason: "the push ended".to_owned(), again: Again::Later },
        () = &mut intake => {
            read_to_the_end = true;
            session.dismissed().await
        }
        farewell = object_changes.broken(session) => farewell,
    };
    let farewell = if farewell.again == Again::AtOnce {
        let intake = (!read_to_the_end).then_some(intake);
        let intake = read_rest(intake, object_changes);
        Box::pin(wind_down(gateway, session, farewell, intake, serving)).await
    } else {
        // Other gateways find no way to a tunnel that is being closed.
        drop(serving);
        farewell
    };
    Box::pin(session.connection.close(&farewell)).await;
    farewell
}

/// Reads the changes of objects that an agent saw in a task of its own, which ends with the tunnel at the latest.
struct ObjectChangesReader {
    task: TaskHandle,
    ended: oneshot::Receiver<()>,
}

impl ObjectChangesReader {
    fn start(gateway: &Arc<Gateway>, session: &Arc<Session>) -> Self {
        let (running, ended) = oneshot::channel::<()>();
        let (gateway, session) = (Arc::clone(gateway), Arc::clone(session));
        let spawner = Arc::clone(&gateway.world.spawner);
        let read = async move {
            intake::read_object_changes(&gateway, &session).await;
            drop(running);
        };
        Self { task: spawner.spawn("object-changes", Box::pin(read)), ended }
    }

    /// As long as nobody dismisses the session, it only ends by a fault of its own, and nothing would read what the agent saw.
    async fn broken(&mut self, session: &Session) -> Farewell {
        drop((&mut self.ended).await);
        let (agent, instance) = (session.agent, session.instance);
        tracing::error!(%agent, %instance, "an internal fault ended the reading of changes of objects");
        Farewell { reason: "a fault of the gateway".to_owned(), again: Again::Later }
    }
}

impl Drop for ObjectChangesReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Brings to its end, and acknowledges, what is on its way into the log on a tunnel that was dismissed.
async fn read_rest(observations: Option<impl Future<Output = ()>>, mut objects: ObjectChangesReader) {
    if let Some(observations) = observations {
        observations.await;
    }
    // It says nothing, it just ends.
    drop((&mut objects.ended).await);
}

/// Brings to its end what is under way on a tunnel that has to go, for a while; gives what is said to the agent then.
async fn wind_down(
    gateway: &Gateway,
    session: &Session,
    farewell: Farewell,
    intake: impl Future<Output = ()>,
    serving: Option<Serving>,
) -> Farewell {
    let ending = async {
        intake.await;
        drop(serving);
        gateway.registry.stop_offering(session, Again::AtOnce, gateway.world.clock.monotonic());
        session.capacity.drained().await;
    };
    tokio::select! {
        biased;
        token_ended = token_ended(gateway, session) => return token_ended,
        () = ending => {}
        _reason = session.connection.closed() => {}
        () = gateway.world.clock.sleep(gateway.args.tunnel_drain / 2) => {}
    }
    farewell
}

/// Waits until what is open on a connection has ended, at most for this time; if this gateway is going, for most of what it has itself,
/// and no longer than its token is good.
pub(crate) async fn drain(gateway: &Gateway, session: &Session, time: Option<Duration>) {
    let clock = &gateway.world.clock;
    let over = async {
        match time {
            Some(time) => clock.sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let gone = async {
        session.dismissed().await;
        // The rest is for the last word.
        clock.sleep(gateway.args.tunnel_drain / 5 * 4).await;
    };
    tokio::select! {
        biased;
        _farewell = token_ended(gateway, session) => {}
        () = session.capacity.drained() => {}
        () = over => {}
        () = gone => {}
    }
}

/// Returns once a connection's token is no longer good.
pub(crate) async fn token_ended(gateway: &Gateway, session: &Session) -> Farewell {
    tokio::select! {
        biased;
        farewell = session.dismissed_if(|farewell| farewell.again == Again::Slowly) => farewell,
        () = token_expired(gateway, session) => expired_farewell(),
    }
}

fn expired_farewell() -> Farewell {
    Farewell { reason: "the token has expired".to_owned(), again: Again::Slowly }
}

async fn token_expired(gateway: &Gateway, session: &Session) {
    let Some(end) = session.expires_at else { return std::future::pending().await };
    loop {
        let left = end.millis_since(Timestamp(gateway.world.clock.now_millis()));
        let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else { return };
        gateway.world.clock.sleep(Duration::from_millis(left).min(CLOCK_CHECK_INTERVAL)).await;
    }
}
