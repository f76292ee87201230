//! Puts the parts together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::{Metrics, Readiness, Shutdown, Supervisor};
use events::{AgentId, InstanceId};
use tokio::sync::watch;
use world::World;

use crate::applier::{self, Shared};
use crate::args::Args;
use crate::cluster_api::{ClusterApi, RootKey};
use crate::desired::Desired;
use crate::kubernetes::{Connections, Kube};
use crate::lease::{Holding, LeaseKeeper};
use crate::link::{Access, AgentService, LinkKeeper};
use crate::metrics::Counts;
use crate::object_outbox::ObjectOutbox;
use crate::observer::{self, Observer};
use crate::outbox::Outbox;

/// Time for everything to end in order once this process is asked to.
const DRAIN: Duration = Duration::from_secs(20);

/// What the agent needs besides its settings.
pub struct Deps {
    /// Clock, randomness, tasks, network, files.
    pub world: World,
    /// Leads to the cluster's API server.
    pub connections: Connections,
    /// Whether it is ready.
    pub readiness: Readiness,
    /// Where its metrics stand.
    pub metrics: Metrics,
    /// Which process this is.
    pub instance: InstanceId,
}

/// An agent without a link: its service can be driven by whoever speaks HTTP.
pub struct Agent {
    world: World,
    shared: Arc<Shared>,
    observer: Arc<Observer>,
    kube: Kube,
    cluster_api: ClusterApi,
    namespace: String,
    agent: Arc<watch::Sender<Option<AgentId>>>,
}

impl Agent {
    /// An agent of one cluster, through which nobody uses the cluster's API yet.
    #[must_use]
    pub fn new(
        world: World,
        connections: Connections,
        namespace: Option<String>,
        counts: Counts,
        instance: InstanceId,
    ) -> Self {
        let kube = Kube::new(connections, world.clone(), counts.clone());
        let namespace = namespace.unwrap_or_else(|| kube.namespace().to_owned());
        let cluster_api = ClusterApi::new(world.clone(), kube.api_server(), &namespace, counts.clone());
        let outbox = Arc::new(Outbox::new(world.clone(), counts.dropped_observations.clone()));
        let holding = Holding::new(Arc::clone(&world.clock));
        let desired = Arc::new(Desired::default());
        let shared =
            Shared::new(world.clone(), kube.clone(), outbox, holding, desired, instance, counts.clone());
        let shared = Arc::new(shared);
        Self {
            world,
            observer: Arc::new(Observer::new(Arc::clone(&shared), counts)),
            shared,
            kube,
            cluster_api,
            namespace,
            agent: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Lets those use the cluster's API whose passes this root key signed; nobody without one.
    #[must_use]
    pub fn pinning(self, root: Option<RootKey>) -> Self {
        self.pinning_from(root, None)
    }

    /// The same, of a root key in a file, which is looked at again.
    #[must_use]
    pub fn pinning_from(mut self, root: Option<RootKey>, file: Option<PathBuf>) -> Self {
        self.cluster_api = self.cluster_api.pinning(root, file);
        self
    }

    /// What answers the server.
    #[must_use]
    pub fn service(&self) -> AgentService {
        AgentService::new(
            Arc::clone(&self.shared),
            Arc::clone(&self.observer),
            self.cluster_api.clone(),
            Arc::clone(&self.agent),
            env!("CARGO_PKG_VERSION"),
        )
    }

    /// Adds what it checks of itself to the readiness of its process.
    pub fn add_checks(&self, readiness: &Readiness) {
        self.shared.add_checks(readiness);
    }

    /// What it has to tell the server.
    #[must_use]
    pub fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.shared.outbox)
    }

    /// What it has to tell the server of objects.
    #[must_use]
    pub fn object_outbox(&self) -> Arc<ObjectOutbox> {
        self.observer.outbox()
    }

    /// Applies what the server wants, observes, and keeps the Lease once it is known who this agent is. Until shutdown is asked for; then the
    /// Lease is given up when the last write ended.
    pub async fn apply(&self, shutdown: Shutdown) {
        let (applied, lease_shutdown) = chassis::ShutdownTrigger::new();
        let applying = async {
            applier::run(Arc::clone(&self.shared), shutdown.clone()).await;
            applied.request();
        };
        let observing = observer::run(Arc::clone(&self.observer), shutdown.clone());
        tokio::join!(applying, observing, self.keep_lease(lease_shutdown));
    }

    async fn keep_lease(&self, shutdown: Shutdown) {
        let mut agent = self.agent.subscribe();
        let agent = tokio::select! {
            biased;
            () = shutdown.requested() => return,
            known = agent.wait_for(Option::is_some) => known.ok().and_then(|known| *known),
        };
        let Some(agent) = agent else { return };
        let keeper = LeaseKeeper::new(
            self.kube.clone(),
            self.world.clone(),
            self.shared.holding.clone(),
            self.namespace.clone(),
            agent,
            self.shared.instance,
            Arc::clone(&self.shared.note),
        );
        keeper.telling(Arc::clone(&self.shared.reach)).keep(shutdown).await;
    }
}

/// Shows what waits.
fn watch_queues(metrics: &Metrics, agent: &Agent, counts: Counts) {
    let (outbox, kube, observer) = (agent.outbox(), agent.kube.clone(), Arc::clone(&agent.observer));
    metrics.before_shown(move || {
        observer.count();
        counts.queued_observations.set(i64::try_from(outbox.pending()).unwrap_or(i64::MAX));
        counts.api_requests_in_flight.set(i64::try_from(kube.in_flight()).unwrap_or(i64::MAX));
    });
}

/// Runs the agent until shutdown is asked for.
///
/// # Errors
/// When its settings cannot be used, or a part of it ends unexpectedly.
pub async fn run(args: Args, deps: Deps, shutdown: Shutdown) -> anyhow::Result<()> {
    let Deps { world, connections, readiness, metrics, instance } = deps;
    let access = Access::read(&args, &world)?;
    let root = RootKey::read(&args, &world)?;
    let counts = Counts::register(&metrics);
    let agent = Agent::new(world.clone(), connections, args.namespace.clone(), counts.clone(), instance);
    let agent = Arc::new(agent.pinning_from(root, args.root_key_file.clone()));
    chassis::metrics::watch_process(&metrics, &world);
    chassis::metrics::show_version(&metrics, env!("CARGO_PKG_VERSION"));
    watch_queues(&metrics, &agent, counts.clone());
    let supervisor = Supervisor::new(Arc::clone(&world.spawner), shutdown.clone());
    if let Some(address) = args.admin_listen {
        let listener =
            world.network.listen(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let serving =
            chassis::admin::serve(world.clone(), listener, readiness.clone(), metrics, shutdown.clone());
        supervisor.spawn("admin listener", serving);
    }
    let ready = readiness.register("tunnel");
    agent.add_checks(&readiness);
    let link = LinkKeeper::new(world.clone(), access, agent.service(), ready, counts);
    let until = shutdown.clone();
    supervisor.spawn("tunnel", async move {
        link.keep(until).await;
        Ok(())
    });
    let applying = Arc::clone(&agent);
    supervisor.spawn("applier", async move {
        applying.apply(shutdown).await;
        Ok(())
    });
    supervisor.join_within(world.clock.as_ref(), DRAIN).await
}
