//! Putting the parts together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, Heard, Presence};
use chassis::tls::SharedTickets;
use chassis::{Metrics, Readiness, ReadyHandle, Shutdown, Supervisor};
use events::InstanceId;
use events::Notice;
use events::requests::delivery::DesiredChanged;
use events::subject::Subject;
use futures::FutureExt as _;
use parking_lot::Mutex;
use store::{Blobs, EventLog, Following, KeyName, KeyRing, KeyRingError, Projection, Snapshots};
use tokio::sync::oneshot;
use tunnel::gateway::Door;
use tunnel::wire::{Again, Farewell};
use world::World;
use world::network::Listener;

use crate::answers;
use crate::args::Args;
use crate::cluster_api::{
    self, AuditWriter, ClusterListener, OpenRequests, Passes, Places, RecordingsWriter, Tickets,
};
use crate::door;
use crate::gateway::{Gateway, SERVICE};
use crate::journal::journal;
use crate::metrics::Counts;
use crate::model::{Cursors, Refusals, Standing, looks};
use crate::registry::Registry;
use crate::resolve::Shelf;
use crate::together::together;
use crate::turns::Turns;

/// Beyond the tunnels' own time to finish.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What the gateway works with.
pub struct Deps {
    /// Clock, randomness, tasks.
    pub world: World,
    /// Decisions are followed, observations appended.
    pub log: Arc<dyn EventLog>,
    /// Bundles are read from here.
    pub blobs: Arc<dyn Blobs>,
    /// What recordings are sealed with.
    pub keys: Arc<dyn KeyRing>,
    /// Of the two projections.
    pub snapshots: Arc<dyn Snapshots>,
    /// The way to authz and delivery.
    pub bus: Arc<dyn Bus>,
    /// Where tunnels come in.
    pub listener: Box<dyn Listener>,
    /// Where people and jobs reach clusters' APIs, if they do.
    pub clusters: Option<ClusterListener>,
    /// What agents see; should offer [`tunnel::settings::ALPN`]. `None` only with the flag that wants plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Ready once both projections have caught up.
    pub readiness: Readiness,
    /// The process's metrics.
    pub metrics: Metrics,
}

/// Runs the gateway until shutdown is asked for and the tunnels have ended.
///
/// # Errors
/// When a part ends unexpectedly, or plain text is given without being wanted.
pub async fn run(args: Args, deps: Deps, shutdown: Shutdown) -> anyhow::Result<()> {
    check_encryption(&args, &deps)?;
    let Deps { world, log, blobs, keys, snapshots, bus, listener, clusters, tls, readiness, metrics } = deps;
    let ready = readiness.register(SERVICE);
    let tls = match tls {
        Some(config) => Some(with_tickets(&world, &*keys, config).await.context("the key of TLS tickets")?),
        None => None,
    };
    let instance = InstanceId(world.new_uuid());
    let (journal, journal_writer) = journal(&world, Arc::clone(&log), instance);
    let (audit, audit_writer) = cluster_api::audit(&world, Arc::clone(&log), instance);
    let (recordings, recordings_writer) = cluster_api::recordings(&world, Arc::clone(&log), keys, instance);
    let standing =
        store::follow_projection::<Standing>(Arc::clone(&log), Arc::clone(&snapshots), world.clone());
    let cursors = store::follow_projection::<Cursors>(Arc::clone(&log), snapshots, world.clone());
    let ((admissions, shown), (plans, wanted)) = (together(), together());
    let drain = args.tunnel_drain;
    let gateway = Arc::new(Gateway {
        registry: Registry::new(args.tunnel_per_agent, args.tunnel_bulk_per_agent),
        places: Places::new(world.clone(), args.cluster_limits.clone()),
        admissions,
        plans,
        args,
        world: world.clone(),
        log,
        shelf: Shelf::new(Arc::clone(&blobs)),
        bus,
        standing: standing.clone(),
        cursors: cursors.clone(),
        looks: Turns::default(),
        journal,
        audit,
        recordings,
        passes: Passes::default(),
        tickets: Tickets::new(&world),
        open_requests: Arc::<OpenRequests>::default(),
        refusals: Mutex::new(Refusals::default()),
        counts: Counts::register(&metrics),
    });

    show_agents(&gateway, &metrics);
    let supervisor = Supervisor::new(Arc::clone(&world.spawner), shutdown.clone());
    follow(&supervisor, standing, &shutdown);
    follow(&supervisor, cursors, &shutdown);
    hear(&supervisor, &gateway, &shutdown);
    supervisor.spawn("admissions", shown.run(Arc::clone(&gateway), shutdown.clone()));
    supervisor.spawn("plans", wanted.run(Arc::clone(&gateway), shutdown.clone()));
    if let Some(clusters) = clusters {
        serve_clusters(&supervisor, &gateway, clusters, (audit_writer, recordings_writer), &shutdown);
    }
    let (drained, all_said) = oneshot::channel::<()>();
    supervisor.spawn("journal", journal_writer.run(async move { drop(all_said.await) }));
    let stop = shutdown.clone();
    supervisor.spawn("door", async move {
        // Who knows that this gateway lives knows that what it said of its tunnels is so.
        let _lives = Presence::join_as(&gateway.bus, &gateway.world, SERVICE, instance.0).await?;
        take_tunnels(gateway, listener, tls, &ready, stop).await?;
        drop(drained);
        Ok(())
    });
    supervisor.join_within(&*world.clock, drain.saturating_add(LAST_WORDS)).await
}

/// Opens the door once both projections have caught up, until shutdown is asked for and the tunnels have ended.
async fn take_tunnels(
    gateway: Arc<Gateway>,
    listener: Box<dyn Listener>,
    tls: Option<Arc<rustls::ServerConfig>>,
    ready: &ReadyHandle,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    if !has_caught_up(&gateway, &shutdown).await? {
        return Ok(());
    }
    let _serving = (answers::serve(&gateway).await?, cluster_api::serve_tickets(&gateway).await?);
    ready.set(true);
    let door = Door { tls, ..Door::default() };
    door::run(gateway, listener, door, shutdown).await?;
    ready.set(false);
    Ok(())
}

/// Waits for both projections; not if shutdown is asked for before.
async fn has_caught_up(gateway: &Gateway, shutdown: &Shutdown) -> anyhow::Result<bool> {
    let both = async { gateway.standing.caught_up().await.and(gateway.cursors.caught_up().await) };
    tokio::select! {
        biased;
        () = shutdown.requested() => Ok(false),
        caught_up = both => Ok(caught_up.map(|()| true)?),
    }
}

/// Hears what changes for agents that are connected.
fn hear(supervisor: &Supervisor, gateway: &Arc<Gateway>, shutdown: &Shutdown) {
    supervisor.spawn("notices", notices(Arc::clone(gateway), shutdown.clone()));
    supervisor.spawn("revocations", revocations(Arc::clone(gateway), shutdown.clone()));
}

/// Whoever comes back finds another gateway, whose tickets are the same.
async fn with_tickets(
    world: &World,
    keys: &dyn KeyRing,
    config: Arc<rustls::ServerConfig>,
) -> Result<Arc<rustls::ServerConfig>, KeyRingError> {
    let secret = keys.get_or_create(KeyName::TunnelTickets).await?;
    Ok(SharedTickets::new(world, &secret).given_out_by(config))
}

/// Keeps a projection up to date until shutdown is asked for.
fn follow<P: Projection>(supervisor: &Supervisor, following: Following<P>, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    supervisor
        .spawn(P::NAME, async move { Ok(following.drive(async move { stop.requested().await }).await?) });
}

fn check_encryption(args: &Args, deps: &Deps) -> anyhow::Result<()> {
    anyhow::ensure!(
        deps.tls.is_some() || args.tunnel_insecure_plain_text,
        "tunnels need TLS, or --tunnel-insecure-plain-text"
    );
    if deps.tls.is_none() {
        tracing::warn!("tunnels are plain text: tokens and manifests can be read on the way");
    }
    Ok(())
}

/// Serves clusters' APIs, and watches over what lets requests to them through.
fn serve_clusters(
    supervisor: &Supervisor,
    gateway: &Arc<Gateway>,
    clusters: ClusterListener,
    (audit, recordings): (AuditWriter, RecordingsWriter),
    shutdown: &Shutdown,
) {
    let (served, all_said) = oneshot::channel::<()>();
    let all_said = all_said.map(drop).shared();
    supervisor.spawn("audit", audit.run(all_said.clone()));
    supervisor.spawn("recordings", recordings.run(all_said));
    let serving = cluster_api::serve(Arc::clone(gateway), clusters, shutdown.clone());
    let watching = cluster_api::watch_withdrawals(Arc::clone(gateway));
    supervisor.spawn("cluster-api", async move {
        let ended = tokio::select! {
            biased;
            failed = watching => failed,
            ended = serving => ended,
        };
        drop(served);
        ended
    });
}

/// Shows how many agents are connected, and how many requests to their clusters are open.
fn show_agents(gateway: &Arc<Gateway>, metrics: &Metrics) {
    let shown = Arc::downgrade(gateway);
    metrics.before_shown(move || {
        if let Some(gateway) = shown.upgrade() {
            let agents = gateway.registry.agents();
            gateway.counts.agents.set(i64::try_from(agents).unwrap_or(i64::MAX));
            let open = gateway.open_requests.count();
            gateway.counts.cluster_requests_open.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
    });
}

/// Hears that desired states changed; also looks from time to time.
async fn notices(gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut subscription = gateway.bus.subscribe(&Subject::notice(DesiredChanged::NAME)).await?;
    let mut round = 0;
    let mut look = gateway.world.clock.sleep(looks::EVERY);
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            heard = subscription.receiver.recv() => match heard {
                Some(Heard::Message(body)) => match events::decode::<DesiredChanged>(&body) {
                    Ok(DesiredChanged { agents }) => gateway.registry.announced(&agents),
                    Err(error) => {
                        tracing::warn!(%error, "notice is not readable here, asking for all agents");
                        gateway.registry.changed(None);
                    }
                },
                Some(Heard::Lost(count)) => {
                    tracing::info!(count, "notices were lost, asking for all agents");
                    gateway.registry.changed(None);
                }
                None => anyhow::bail!("the bus ended the subscription"),
            },
            () = &mut look => {
                look = gateway.world.clock.sleep(looks::EVERY);
                gateway.registry.changed_where(|agent| looks::is_due(agent, round));
                round += 1;
            }
        }
    }
}

/// Ends the tunnels of tokens that were revoked and of agents that were deleted.
async fn revocations(gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut changes = gateway.standing.changes();
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            // The sender lives in the projection.
            _held = changes.changed() => {}
        }
        let withdrawals = gateway.standing.read(Standing::withdrawals);
        if withdrawals == seen {
            continue;
        }
        seen = withdrawals;
        for session in gateway.registry.connections() {
            let (agent, token) = (session.agent, session.token);
            if let Some(reason) = gateway.standing.read(|standing| standing.objection(agent, token)) {
                session.dismiss(Farewell { reason: reason.to_owned(), again: Again::Slowly });
            }
        }
    }
}
