//! All processes of a run, and what they share.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::cluster_api::RootKey;
use anyhow::Context as _;
use bus::{Bus, NatsBus};
use chassis::{Metrics, Readiness, Shutdown, ShutdownTrigger};
use parking_lot::Mutex;
use store::Parts;
use store::jetstream::Options;
use store::jetstream::simulated::open;
use tunnel_gateway::ClusterListener;
use world::World;
use zeroize::Zeroizing;

use crate::access::Access;
use crate::agent::{PORT, SharedSecret};
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{Executor, Life, NodeId};
use crate::forge::Forge;
use crate::log::LogServers;
use crate::nats::Nats;
use crate::network::Internet;
use crate::people::KnownAgent;
use crate::process::world_of;
use crate::receivers::{RECEIVERS, Receivers};
use crate::run::{Flaw, Setting};

/// Partitions of each stream.
const PARTITIONS: u16 = 2;
const DRAIN: Duration = Duration::from_secs(2);
/// The port at which gateways take requests to clusters.
pub(crate) const CLUSTERS_PORT: u16 = 8443;
/// The port of the first API server.
pub(crate) const FIRST_API_SERVER_PORT: u16 = 6442;
/// The process of the first API server.
const FIRST_API_SERVER: usize = usize::MAX / 2;
/// The process of the first receiver of webhooks.
const FIRST_RECEIVER: usize = usize::MAX / 4;

/// A service that ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Directory, tokens, grants.
    Authz,
    /// Configurations.
    ConfigFetcher,
    /// Repositories and bundles.
    RepoPoller,
    /// What each agent is to have.
    Delivery,
    /// Tunnels.
    TunnelGateway,
    /// Exports and webhooks.
    EventRelay,
}

impl Service {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Authz,
        Self::ConfigFetcher,
        Self::RepoPoller,
        Self::Delivery,
        Self::TunnelGateway,
        Self::EventRelay,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Authz => "authz",
            Self::ConfigFetcher => "config-fetcher",
            Self::RepoPoller => "repo-poller",
            Self::Delivery => "delivery",
            Self::TunnelGateway => "tunnel-gateway",
            Self::EventRelay => "event-relay",
        }
    }
}

/// What runs in a process.
#[derive(Clone)]
enum Program {
    Service(Service),
    Agent(Box<Cluster>, SharedSecret, RootKey),
    People,
}

/// A process that runs or does not.
struct Process {
    program: Program,
    life: Option<Life>,
    readiness: Readiness,
    stop: Option<ShutdownTrigger>,
    disk: MemoryDisk,
}

/// Ends of services, as they come.
type Ends = Arc<Mutex<Vec<(Life, Result<(), String>)>>>;

/// All processes of a run.
pub struct Scene {
    /// Time and tasks.
    pub executor: Executor,
    /// The bus's server.
    pub nats: Nats,
    /// The log's servers.
    pub log: LogServers,
    /// Byte streams.
    pub internet: Internet,
    /// Repositories.
    pub forge: Forge,
    /// The cluster of each agent.
    pub clusters: Vec<Cluster>,
    /// Who may use them, and who does.
    pub(crate) access: Access,
    /// Those who are sent events.
    pub(crate) receivers: Receivers,
    processes: BTreeMap<NodeId, Process>,
    ends: Ends,
    flaw: Option<Flaw>,
}

/// What a process is given.
pub struct Given {
    /// Its world.
    pub world: World,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    life: Life,
}

impl Scene {
    /// Servers without processes.
    #[must_use]
    pub fn new(setting: &Setting) -> Self {
        let mut dice = Dice::new(setting.seed);
        let executor = Executor::new(dice.split());
        let log = LogServers::new(&executor, PARTITIONS, setting.flaw);
        let forge = Forge::new(&executor);
        let access = Access::new(&executor);
        log.audit(|audit| audit.know(forge.clone(), access.clone()));
        Self {
            nats: Nats::new(&executor),
            internet: Internet::new(&executor),
            forge,
            log,
            clusters: Vec::new(),
            access,
            receivers: Receivers::new(&executor, setting.flaw),
            processes: BTreeMap::new(),
            ends: Ends::default(),
            flaw: setting.flaw,
            executor,
        }
    }

    fn add(&mut self, program: Program) -> NodeId {
        let node = NodeId(self.processes.len());
        let readiness = Readiness::new();
        let disk = match &program {
            Program::Agent(_, secret, _) => secret.disk(),
            Program::Service(_) | Program::People => MemoryDisk::default(),
        };
        let process = Process { program, life: None, readiness, stop: None, disk };
        self.processes.insert(node, process);
        node
    }

    /// Adds replicas of every service, and starts them.
    pub fn add_services(&mut self, replicas: usize) {
        for service in Service::ALL {
            for _ in 0..replicas {
                let node = self.add(Program::Service(service));
                self.start(node);
            }
        }
    }

    /// Adds the receivers of webhooks, each a process that never dies.
    pub(crate) fn add_receivers(&self) {
        for number in 0..RECEIVERS.len() {
            let life = self.executor.start(NodeId(FIRST_RECEIVER + number));
            let world = world_of(&self.executor, &self.internet, life, &MemoryDisk::default());
            self.receivers.listen(number, &world);
        }
    }

    /// Adds the process of those who work with it.
    pub fn add_people(&mut self) -> Given {
        let node = self.add(Program::People);
        let life = self.executor.start(node);
        if let Some(process) = self.processes.get_mut(&node) {
            process.life = Some(life);
        }
        self.give(life, &MemoryDisk::default())
    }

    /// Adds a cluster, and instances of its agent.
    pub(crate) fn add_agent(&mut self, agent: &KnownAgent, instances: usize) {
        let number = self.clusters.len();
        let port = FIRST_API_SERVER_PORT.saturating_add(u16::try_from(number).unwrap_or(u16::MAX));
        let life = self.executor.start(NodeId(FIRST_API_SERVER + number));
        let world = world_of(&self.executor, &self.internet, life, &MemoryDisk::default());
        let known = (&self.log, &self.forge, &self.access);
        let cluster = Cluster::new(&self.executor, known, (agent.id, &agent.pushes), (world, port));
        self.clusters.push(cluster.clone());
        let forged = (self.flaw == Some(Flaw::SignsForAnybody)).then(crate::forger::root_key).flatten();
        let root_key = forged.unwrap_or(agent.root_key);
        for _ in 0..instances {
            let node = self.add(Program::Agent(Box::new(cluster.clone()), agent.secret.clone(), root_key));
            self.start(node);
        }
    }

    fn give(&self, life: Life, disk: &MemoryDisk) -> Given {
        let world = world_of(&self.executor, &self.internet, life, disk);
        let bus: Arc<dyn Bus> = Arc::new(NatsBus::over(world.clone(), self.nats.connect(life)));
        Given { world, bus, life }
    }

    /// Starts a process that does not run.
    pub fn start(&mut self, node: NodeId) {
        let Some(process) = self.processes.get(&node) else { return };
        if process.life.is_some() {
            return;
        }
        let (program, disk) = (process.program.clone(), process.disk.clone());
        let life = self.executor.start(node);
        let given = self.give(life, &disk);
        let readiness = Readiness::new();
        let (trigger, shutdown) = ShutdownTrigger::new();
        match program {
            Program::Service(service) => self.start_service(service, given, readiness.clone(), shutdown),
            Program::Agent(cluster, _, root_key) => {
                self.start_agent(&cluster, root_key, given, readiness.clone(), shutdown);
            }
            Program::People => {}
        }
        if let Some(process) = self.processes.get_mut(&node) {
            (process.life, process.readiness, process.stop) = (Some(life), readiness, Some(trigger));
        }
    }

    fn start_service(&self, service: Service, given: Given, readiness: Readiness, shutdown: Shutdown) {
        let (server, ends, life) = (self.log.connect(given.life), Arc::clone(&self.ends), given.life);
        let (forge, world) = (self.forge.clone(), given.world.clone());
        // What the service itself registers comes when it runs.
        let open_store = readiness.register("store");
        let running = async move {
            let ran = match open(&given.world, server, &options(service.name())).await {
                Ok(parts) => {
                    open_store.set(true);
                    run(service, given, parts, forge, readiness, shutdown).await
                }
                Err(error) => Err(error).context("the store does not open"),
            };
            ends.lock().push((life, ran.map_err(|error| format!("{}: {error:#}", service.name()))));
        };
        world.spawner.spawn(service.name(), Box::pin(running));
    }

    fn start_agent(
        &self,
        cluster: &Cluster,
        root_key: RootKey,
        given: Given,
        readiness: Readiness,
        shutdown: Shutdown,
    ) {
        let Given { world, life, .. } = given;
        let (ends, spawner) = (Arc::clone(&self.ends), Arc::clone(&world.spawner));
        let always_holds = self.flaw == Some(Flaw::IgnoresEpochs);
        let running = crate::agent::start(world, life, cluster, root_key, always_holds, readiness, shutdown);
        let ended = async move {
            let ran = running.await;
            ends.lock().push((life, ran.map_err(|error| format!("agent: {error:#}"))));
        };
        spawner.spawn("agent", Box::pin(ended));
    }

    /// The store, opened by a process that has nothing.
    pub fn newcomer(
        &self,
        given: &Given,
    ) -> impl Future<Output = Result<Parts, store::jetstream::OpenError>> + Send + 'static {
        let (server, world) = (self.log.connect(given.life), given.world.clone());
        async move { open(&world, server, &options("newcomer")).await }
    }

    /// Nodes of processes that run or not, as `wanted` says.
    pub fn nodes(&self, wanted: impl Fn(Option<Service>, bool) -> bool) -> Vec<NodeId> {
        let known = self.processes.iter().filter(|(_, process)| match &process.program {
            Program::Service(service) => wanted(Some(*service), process.life.is_some()),
            Program::Agent(..) => wanted(None, process.life.is_some()),
            Program::People => false,
        });
        known.map(|(node, _)| *node).collect()
    }

    /// The start of a process that runs now.
    #[must_use]
    pub fn life(&self, node: NodeId) -> Option<Life> {
        self.processes.get(&node)?.life
    }

    /// Ends a process at once.
    pub fn kill(&mut self, node: NodeId) -> bool {
        let Some(life) = self.processes.get_mut(&node).and_then(|process| process.life.take()) else {
            return false;
        };
        let process = self.processes.get(&node);
        if process.is_some_and(|process| matches!(process.program, Program::Service(Service::TunnelGateway)))
        {
            self.access.gateway_died();
        }
        self.executor.kill(node);
        self.nats.died(life);
        self.log.died(life);
        self.internet.died(life);
        true
    }

    /// A process's machine is gone.
    pub fn lose_disk(&self, node: NodeId) {
        if let Some(process) = self.processes.get(&node) {
            process.disk.lose();
        }
    }

    /// Asks a process to stop; says whether it runs.
    pub fn stop(&self, node: NodeId) -> bool {
        let process = self.processes.get(&node).filter(|process| process.life.is_some());
        let trigger = process.and_then(|process| process.stop.as_ref());
        trigger.map(ShutdownTrigger::request).is_some()
    }

    /// Processes that ended by themselves since the last look.
    #[must_use]
    pub fn take_ended(&mut self) -> Vec<NodeId> {
        let ended = std::mem::take(&mut *self.ends.lock());
        let mut nodes = Vec::new();
        for (life, how) in ended {
            if self.life(life.node) != Some(life) {
                continue;
            }
            if let Err(error) = how {
                tracing::warn!(node = life.node.0, error, "process ended");
            }
            self.kill(life.node);
            nodes.push(life.node);
        }
        nodes
    }

    /// Whether every service runs and is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let services =
            self.processes.values().filter(|process| matches!(process.program, Program::Service(_)));
        services.into_iter().all(|process| process.life.is_some() && process.readiness.is_ready())
    }
}

fn options(name: &str) -> Options {
    Options {
        servers: Vec::new(),
        name: name.to_owned(),
        process: name.to_owned(),
        ca_file: None,
        makes_log: true,
        master_key: Zeroizing::new([7; 32]),
        partitions: Some(PARTITIONS),
        accept_weak_durability: false,
        created_by: "simulation".to_owned(),
    }
}

fn gateway_args(address: SocketAddr, clusters: SocketAddr) -> tunnel_gateway::Args {
    tunnel_gateway::Args {
        tunnel_listen: address,
        clusters_listen: clusters,
        clusters_domain: None,
        tunnel_insecure_plain_text: true,
        tunnel_drain: DRAIN,
        clusters_audit: tunnel_gateway::Audited::All,
        clusters_origins: Vec::new(),
        tunnel_per_agent: 16,
        tunnel_bulk_per_agent: 16,
        tunnel_observation_rate: 64 * 1024 * 1024,
        tunnel_object_rate: 8 * 1024 * 1024,
        organization_object_rate: 32 * 1024 * 1024,
        cluster_limits: tunnel_gateway::ClusterLimits::default(),
    }
}

fn relay_args() -> event_relay::Args {
    event_relay::Args {
        webhooks_allow_private_addresses: true,
        webhooks_allow_plain_http: true,
        ..event_relay::Args::default()
    }
}

async fn run(
    service: Service,
    given: Given,
    parts: Parts,
    forge: Forge,
    readiness: Readiness,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Given { world, bus, life } = given;
    let Parts { log, blobs, keys, snapshots, consumers } = parts;
    match service {
        Service::Authz => {
            let deps = authz::Deps { world, log, keys, snapshots, bus, readiness };
            authz::run(authz::Args::default(), deps, shutdown).await
        }
        Service::ConfigFetcher => {
            let deps = config_fetcher::Deps { world, log, snapshots, bus, readiness };
            config_fetcher::run(config_fetcher::Args::default(), deps, shutdown).await
        }
        Service::RepoPoller => {
            let (repositories, metrics) = (Arc::new(forge), Metrics::new());
            let deps = repo_poller::Deps {
                world,
                log,
                blobs,
                keys,
                snapshots,
                repositories,
                bus,
                readiness,
                metrics,
            };
            let args = repo_poller::Args::with_folder(PathBuf::from("/repositories"));
            repo_poller::run(args, deps, shutdown).await
        }
        Service::Delivery => {
            let metrics = Metrics::new();
            let deps = delivery::Deps { world, log, blobs, snapshots, bus, readiness, metrics };
            delivery::run(delivery::Args::default(), deps, shutdown).await
        }
        Service::TunnelGateway => {
            let parts = Parts { log, blobs, keys, snapshots, consumers };
            run_gateway(Given { world, bus, life }, parts, readiness, shutdown).await
        }
        Service::EventRelay => {
            // The simulated servers have none.
            let (consumers, metrics) = (None, Metrics::new());
            let deps = event_relay::Deps { world, log, keys, snapshots, consumers, bus, readiness, metrics };
            event_relay::run(relay_args(), deps, shutdown).await
        }
    }
}

async fn run_gateway(
    given: Given,
    parts: Parts,
    readiness: Readiness,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Given { world, bus, life } = given;
    let Parts { log, blobs, keys, snapshots, consumers: _ } = parts;
    let last = u8::try_from(life.node.0 % 250).unwrap_or(0) + 1;
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), PORT);
    let listener = world.network.listen(address).await?;
    let for_people = SocketAddr::new(address.ip(), CLUSTERS_PORT);
    let clusters = ClusterListener { listener: world.network.listen(for_people).await?, tls: None };
    let metrics = Metrics::new();
    let deps = tunnel_gateway::Deps {
        world,
        log,
        blobs,
        keys,
        snapshots,
        bus,
        listener,
        clusters: Some(clusters),
        tls: None,
        readiness,
        metrics,
    };
    tunnel_gateway::run(gateway_args(address, for_people), deps, shutdown).await
}
