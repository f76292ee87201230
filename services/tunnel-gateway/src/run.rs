//! Start and stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, Presence};
use chassis::tls::SharedTickets;
use chassis::{Metrics, Readiness, ReadyHandle, Shutdown, Supervisor};
use events::InstanceId;
use futures::FutureExt as _;
use parking_lot::Mutex;
use store::{Blobs, EventLog, Following, KeyName, KeyRing, KeyRingError, Projection, Snapshots};
use tokio::sync::oneshot;
use tunnel::gateway::Acceptor;
use world::World;
use world::network::Listener;

use crate::args::Args;
use crate::batching::batcher;
use crate::cluster_api::{
    self, AuditWriter, ClusterListener, OpenRequests, Passes, RecordingsWriter, RequestSlots, Tickets,
};
use crate::delivery::{BundleCache, notices};
use crate::gateway::{Gateway, SERVICE};
use crate::metrics::Counts;
use crate::requests;
use crate::tunnels::{
    ObjectCursors, ObjectIntake, ObservationCursors, RefusalThrottle, Registry, Standing, Throttle, accept,
    journal, revocations,
};

/// Beyond the tunnels' own time to finish.
const EXTRA_DRAIN: Duration = Duration::from_secs(5);

/// What the gateway works with.
pub struct Deps {
    /// Clock, randomness, tasks.
    pub world: World,
    /// Decisions are followed, observations appended.
    pub log: Arc<dyn EventLog>,
    /// Bundles are read from here, large bodies of objects are stored.
    pub blobs: Arc<dyn Blobs>,
    /// What recordings are sealed with.
    pub keys: Arc<dyn KeyRing>,
    /// Of the projections.
    pub snapshots: Arc<dyn Snapshots>,
    /// The way to authz and delivery.
    pub bus: Arc<dyn Bus>,
    /// Where tunnels come in.
    pub listener: Box<dyn Listener>,
    /// Where people and jobs reach clusters' APIs, if they do.
    pub clusters: Option<ClusterListener>,
    /// What agents see; should offer [`tunnel::settings::ALPN`]. `None` only with the flag that wants plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Ready once the projections have caught up.
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
    let (standing, cursors, object_cursors) = projections(&world, &log, &snapshots);
    let ((admissions, admission_worker), (plans, plan_worker)) = (batcher(), batcher());
    let drain = args.tunnel_drain;
    let gateway = Arc::new(Gateway {
        registry: Registry::new(args.tunnel_per_agent, args.tunnel_bulk_per_agent),
        request_slots: RequestSlots::new(world.clone(), args.cluster_limits.clone()),
        admissions,
        plans,
        object_changes: ObjectIntake::new(object_cursors, blobs.clone(), args.organization_object_rate),
        args,
        world: world.clone(),
        log,
        bundles: BundleCache::new(blobs),
        bus,
        standing,
        cursors,
        catch_up_throttle: Throttle::default(),
        journal,
        audit,
        recordings,
        passes: Passes::default(),
        tickets: Tickets::new(&world),
        open_requests: Arc::<OpenRequests>::default(),
        refusals: Mutex::new(RefusalThrottle::default()),
        counts: Counts::register(&metrics),
    });

    show_agents(&gateway, &metrics);
    let supervisor = Supervisor::new(Arc::clone(&world.spawner), shutdown.clone());
    follow(&supervisor, &gateway.standing, &shutdown);
    follow(&supervisor, &gateway.cursors, &shutdown);
    follow(&supervisor, &gateway.object_changes.cursors, &shutdown);
    watch_changes(&supervisor, &gateway, &shutdown);
    supervisor.spawn("admissions", admission_worker.run(Arc::clone(&gateway), shutdown.clone()));
    supervisor.spawn("plans", plan_worker.run(Arc::clone(&gateway), shutdown.clone()));
    if let Some(clusters) = clusters {
        serve_clusters(&supervisor, &gateway, clusters, (audit_writer, recordings_writer), &shutdown);
    }
    let (drained, closed) = oneshot::channel::<()>();
    supervisor.spawn("journal", journal_writer.run(async move { drop(closed.await) }));
    let stop = shutdown.clone();
    supervisor.spawn("tunnels", async move {
        // While this gateway is listed as present, its records of open tunnels are current.
        let _lives = Presence::join_as(&gateway.bus, &gateway.world, SERVICE, instance.0).await?;
        accept_tunnels(gateway, listener, tls, &ready, stop).await?;
        drop(drained);
        Ok(())
    });
    supervisor.join_within(&*world.clock, drain.saturating_add(EXTRA_DRAIN)).await
}

/// Accepts tunnels once the projections have caught up, until shutdown is asked for and the tunnels have ended.
async fn accept_tunnels(
    gateway: Arc<Gateway>,
    listener: Box<dyn Listener>,
    tls: Option<Arc<rustls::ServerConfig>>,
    ready: &ReadyHandle,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    if !has_caught_up(&gateway, &shutdown).await? {
        return Ok(());
    }
    let _serving = (requests::serve(&gateway).await?, cluster_api::serve_tickets(&gateway).await?);
    ready.set(true);
    let acceptor = Acceptor { tls, ..Acceptor::default() };
    accept::run(gateway, listener, acceptor, shutdown).await?;
    ready.set(false);
    Ok(())
}

/// Waits for the projections; not if shutdown is asked for before.
async fn has_caught_up(gateway: &Gateway, shutdown: &Shutdown) -> anyhow::Result<bool> {
    let all = async {
        gateway.standing.caught_up().await?;
        gateway.cursors.caught_up().await?;
        gateway.object_changes.cursors.caught_up().await
    };
    tokio::select! {
        biased;
        () = shutdown.requested() => Ok(false),
        caught_up = all => Ok(caught_up.map(|()| true)?),
    }
}

/// Watches for what changes for connected agents.
fn watch_changes(supervisor: &Supervisor, gateway: &Arc<Gateway>, shutdown: &Shutdown) {
    supervisor.spawn("notices", notices::run(Arc::clone(gateway), shutdown.clone()));
    supervisor.spawn("revocations", revocations::run(Arc::clone(gateway), shutdown.clone()));
}

/// An agent that reconnects may reach another gateway, so all gateways share the keys of TLS tickets.
async fn with_tickets(
    world: &World,
    keys: &dyn KeyRing,
    config: Arc<rustls::ServerConfig>,
) -> Result<Arc<rustls::ServerConfig>, KeyRingError> {
    let secret = keys.get_or_create(KeyName::TunnelTickets).await?;
    Ok(SharedTickets::new(world, &secret).given_out_by(config))
}

type Projections = (Following<Standing>, Following<ObservationCursors>, Following<ObjectCursors>);

fn projections(world: &World, log: &Arc<dyn EventLog>, snapshots: &Arc<dyn Snapshots>) -> Projections {
    fn of<P: Projection>(
        world: &World,
        log: &Arc<dyn EventLog>,
        snapshots: &Arc<dyn Snapshots>,
    ) -> Following<P> {
        store::follow_projection(Arc::clone(log), Arc::clone(snapshots), world.clone())
    }
    (of(world, log, snapshots), of(world, log, snapshots), of(world, log, snapshots))
}

/// Keeps a projection up to date until shutdown is asked for.
fn follow<P: Projection>(supervisor: &Supervisor, following: &Following<P>, shutdown: &Shutdown) {
    let (following, stop) = (following.clone(), shutdown.clone());
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
    let (served, closed) = oneshot::channel::<()>();
    let closed = closed.map(drop).shared();
    supervisor.spawn("audit", audit.run(closed.clone()));
    supervisor.spawn("recordings", recordings.run(closed));
    let serving = cluster_api::serve(Arc::clone(gateway), clusters, shutdown.clone());
    let watching = cluster_api::watch_revocations(Arc::clone(gateway));
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
