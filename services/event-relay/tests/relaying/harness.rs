//! A relay that runs, and what stands around it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, LocalBus, Serving};
use chassis::{Metrics, Readiness, ShutdownTrigger};
use event_relay::{Args, Deps};
use events::configuration::{ConfigurationChanged, ConfigurationEvent, SyncPolicies};
use events::directory::{AgentRegistered, DirectoryEvent};
use events::environment::{EnvironmentCreated, EnvironmentEvent, EnvironmentSettings, Tier};
use events::export::{Counted, ExportLane};
use events::observation::{Observation, ObservationBatch, Observed};
use events::requests::authz::{Decide, Decision};
use events::requests::subscriptions::{CreateSubscription, ShowSubscription, SubscriptionView};
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, CloudEvent, CommitId, CorrelationId, EnvironmentId, Event,
    ObjectIdentity, OrganizationId, Position, ProjectId, Refusal, Request, SourceId, Stream, Timestamp,
    UserId,
};
use futures::FutureExt as _;
use store::embedded::{EmbeddedStore, Options};
use store::{NewBatch, NewCommit, Parts, ReadFilter};
use testkit::{NatsServer, eventually};
use tokio::sync::watch;
use world::World;
use world::network::{Connection, Listener};
use world::spawn::TaskHandle;

const DEADLINE: Duration = Duration::from_secs(60);
/// How much shorter pauses are.
const FASTER: u32 = 50;

/// A clock whose pauses are short.
struct HastyClock(Arc<dyn world::Clock>);

#[async_trait]
impl world::Clock for HastyClock {
    fn now_millis(&self) -> i64 {
        self.0.now_millis()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration / FASTER).await;
    }
}

/// A clock that stands still until it is put forward.
pub struct StillClock {
    millis: watch::Sender<i64>,
    began: i64,
}

impl StillClock {
    /// At this moment.
    pub fn start() -> Arc<Self> {
        let began = World::real().clock.now_millis();
        Arc::new(Self { millis: watch::Sender::new(began), began })
    }

    pub fn now(&self) -> Timestamp {
        Timestamp(*self.millis.borrow())
    }

    pub fn put_forward_to(&self, time: Timestamp) {
        assert!(time >= self.now());
        self.millis.send_replace(time.0);
    }

    fn since_began(&self, millis: i64) -> Duration {
        Duration::from_millis(u64::try_from(millis - self.began).unwrap())
    }
}

#[async_trait]
impl world::Clock for StillClock {
    fn now_millis(&self) -> i64 {
        self.now().0
    }

    fn monotonic(&self) -> Duration {
        self.since_began(self.now_millis())
    }

    async fn sleep(&self, duration: Duration) {
        let until = self.monotonic() + duration;
        let mut moves = self.millis.subscribe();
        moves.wait_for(|millis| self.since_began(*millis) >= until).await.unwrap();
    }
}

/// A network in which every name is this machine.
struct LyingNames(Arc<dyn world::Network>);

#[async_trait]
impl world::Network for LyingNames {
    async fn listen(&self, address: SocketAddr) -> std::io::Result<Box<dyn Listener>> {
        self.0.listen(address).await
    }

    async fn resolve(&self, _: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }

    async fn dial(&self, host: &str, port: u16) -> std::io::Result<Box<dyn Connection>> {
        self.0.dial(host, port).await
    }
}

pub struct Harness {
    pub store: Parts,
    pub world: World,
    pub bus: Arc<LocalBus>,
    /// What relays count, all of them together.
    pub metrics: Metrics,
    clock: Arc<dyn world::Clock>,
    args: Args,
    pub organization: OrganizationId,
    _embedded: Option<EmbeddedStore>,
    folder: tempfile::TempDir,
    first: Option<Running>,
    _serving: Serving,
}

/// A relay. It ends with this.
pub struct Running {
    trigger: ShutdownTrigger,
    task: Option<TaskHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Pauses are short by it.
fn hasty(world: &World) -> Arc<dyn world::Clock> {
    Arc::new(HastyClock(Arc::clone(&world.clock)))
}

/// A subscription with these types.
pub fn webhook(name: &str, url: &str, types: &[&str]) -> CreateSubscription {
    CreateSubscription {
        name: name.to_owned(),
        url: Some(url.to_owned()),
        nats: false,
        format: None,
        types: types.iter().map(|one| one.parse().unwrap()).collect(),
        project: None,
        environment: None,
        from: None,
    }
}

impl Harness {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Args)) -> Self {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        let embedded = store::embedded::open(&world, folder.path(), Options::default()).unwrap();
        let parts = embedded.parts();
        let clock = hasty(&world);
        Self::start_on(world, parts, (Some(embedded), folder), clock, change).await
    }

    /// The relays go by this clock.
    pub async fn start_by(clock: Arc<StillClock>) -> Self {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        let embedded = store::embedded::open(&world, folder.path(), Options::default()).unwrap();
        let parts = embedded.parts();
        Self::start_on(world, parts, (Some(embedded), folder), clock, |_| {}).await
    }

    /// On a log that can let single records leave.
    pub async fn start_on_small_segments() -> Self {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        let options = Options { segment_bytes: 1, ..Options::default() };
        let embedded = store::embedded::open(&world, folder.path(), options).unwrap();
        let (parts, clock) = (embedded.parts(), hasty(&world));
        Self::start_on(world, parts, (Some(embedded), folder), clock, |_| {}).await
    }

    /// On a log of NATS.
    pub async fn start_on_nats(server: &NatsServer) -> Self {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        let options = store::jetstream::Options {
            servers: vec![server.account_url(0)],
            name: "test".to_owned(),
            process: "kasbah".to_owned(),
            ca_file: None,
            makes_log: true,
            master_key: [7; 32].into(),
            partitions: Some(2),
            accept_weak_durability: false,
            created_by: "test".to_owned(),
        };
        let parts = store::jetstream::open(&world, options).await.unwrap().parts;
        let clock = hasty(&world);
        Self::start_on(world, parts, (None, folder), clock, |_| {}).await
    }

    async fn start_on(
        world: World,
        store: Parts,
        (embedded, folder): (Option<EmbeddedStore>, tempfile::TempDir),
        clock: Arc<dyn world::Clock>,
        change: impl FnOnce(&mut Args),
    ) -> Self {
        let bus = Arc::new(LocalBus::new(world.clone()));
        let serving = bus::answer::<Decide, _>(&*bus, |_, _| {
            let decision = Decision { allowed: true, visible: true, reason: String::new() };
            async move { Ok(decision) }.boxed()
        });
        let serving = serving.await.unwrap();
        let mut args = Args {
            webhooks_allow_private_addresses: true,
            webhooks_allow_plain_http: true,
            ..Args::default()
        };
        change(&mut args);
        let organization = OrganizationId(world.new_uuid());
        let (first, _embedded, _serving, metrics) = (None, embedded, serving, Metrics::new());
        let mut harness = Self {
            store,
            world,
            bus,
            metrics,
            clock,
            args,
            organization,
            _embedded,
            folder,
            first,
            _serving,
        };
        harness.restart().await;
        harness
    }

    /// One more relay.
    pub fn run(&self) -> Running {
        self.run_with(&Readiness::new())
    }

    fn run_with(&self, readiness: &Readiness) -> Running {
        let mut world = self.world.clone();
        world.clock = Arc::clone(&self.clock);
        world.network = Arc::new(LyingNames(world.network));
        let (trigger, shutdown) = ShutdownTrigger::new();
        let deps = Deps {
            world,
            log: Arc::clone(&self.store.log),
            keys: Arc::clone(&self.store.keys),
            snapshots: Arc::clone(&self.store.snapshots),
            consumers: self.store.consumers.clone(),
            bus: Arc::clone(&self.bus) as Arc<dyn Bus>,
            readiness: readiness.clone(),
            metrics: self.metrics.clone(),
        };
        let args = self.args.clone();
        let running = async move { event_relay::run(args, deps, shutdown).await.unwrap() };
        let task = Some(self.world.spawner.spawn("event-relay", Box::pin(running)));
        Running { trigger, task }
    }

    /// Starts the first relay, and waits until it serves.
    pub async fn restart(&mut self) {
        let readiness = Readiness::new();
        self.first = Some(self.run_with(&readiness));
        readiness.wait_for(&["event-relay"]).await;
    }

    pub async fn stop_first(&mut self) {
        let mut first = self.first.take().unwrap();
        first.trigger.request();
        first.task.take().unwrap().join().await.unwrap();
    }

    /// What is kept beside the log is gone.
    pub fn forget_checkpoints(&self) {
        let folder = self.folder.path().join("snapshots");
        for entry in std::fs::read_dir(folder).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    pub async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, Refusal> {
        let mut context = bus::context_for_service(&self.world, "test", self.organization);
        context.actor = Actor::User(UserId(self.organization.0));
        bus::ask(&*self.bus, &context, request).await
    }

    pub async fn show(&self, name: &str) -> Result<SubscriptionView, Refusal> {
        self.ask(&ShowSubscription { subscription: name.to_owned() }).await
    }

    /// Registers an agent in a project.
    pub async fn register(&self, name: &str) -> (AgentId, ProjectId) {
        let (agent, project) = (AgentId(self.world.new_uuid()), ProjectId(self.world.new_uuid()));
        let registered =
            AgentRegistered { agent, name: name.to_owned(), project, group: None, replaces: Vec::new() };
        let event = Event::from(DirectoryEvent::AgentRegistered(registered));
        self.append(AggregateRef::new(AggregateKind::Agent, agent), 0, event).await;
        (agent, project)
    }

    async fn append(&self, aggregate: AggregateRef, expected: u64, event: Event) {
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: self.organization,
            aggregate,
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(0),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, [event]).unwrap(),
        };
        self.store.log.append(commit).await.unwrap();
    }

    /// The agent gets a source that deploys into production.
    pub async fn configure(&self, agent: AgentId, project: ProjectId) -> SourceId {
        let source = SourceId::derive(agent, "shop");
        let configuration = serde_json::json!({
            "mode": "cluster",
            "resources": { "include": [], "exclude": [] },
            "sources": [{
                "id": source, "name": "shop", "project": project, "reference": "default", "include": ["**"],
                "interval_seconds": 60, "default_namespace": "shop", "policies": SyncPolicies::default(),
                "environment": { "name": "production" }, "line": 1,
            }],
        });
        let configuration = serde_json::from_value(configuration).unwrap();
        let (commit, warnings) = ("c1".to_owned(), Vec::new());
        let changed = ConfigurationChanged { agent, commit, configuration, warnings };
        let event = ConfigurationEvent::ConfigurationChanged(changed);
        self.append(AggregateRef::new(AggregateKind::Configuration, agent), 0, event.into()).await;
        let environment = EnvironmentId::derive(project, "production");
        let created = EnvironmentCreated {
            environment,
            project,
            name: "production".to_owned(),
            slug: "production".to_owned(),
            settings: EnvironmentSettings::of(Tier::Production),
            auto_stop_at: None,
        };
        let event = EnvironmentEvent::EnvironmentCreated(created);
        self.append(AggregateRef::new(AggregateKind::Environment, environment), 0, event.into()).await;
        source
    }

    /// The health of the source's only object changes.
    pub async fn health(&self, agent: AgentId, source: SourceId, sequence: u64, status: &str) {
        let identity = ObjectIdentity {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let (status, message) = (status.to_owned(), "0 of 1 available".to_owned());
        let what = Observed::HealthChanged { source, sync: None, identity, status, message, optional: false };
        self.batch(agent, sequence, vec![Observation { at: Timestamp(1), what }]).await;
    }

    /// An agent sees so many things, from this sequence on.
    pub async fn observe(&self, agent: AgentId, first: u64, count: u64) {
        let seen = |_| Observation { at: Timestamp(1), what: Observed::Gap { dropped: 1 } };
        self.batch(agent, first, (0..count).map(seen).collect()).await;
    }

    async fn batch(&self, agent: AgentId, first: u64, observations: Vec<Observation>) {
        let writer = ObservationBatch::agent_writer(agent);
        let organization = self.organization;
        let batch: ObservationBatch =
            ObservationBatch { organization, writer: writer.clone(), epoch: 1, first, observations };
        let data = events::encode(&batch).unwrap();
        let batch = NewBatch { stream: Stream::Observations, organization, writer, data };
        self.store.log.append_batch(batch).await.unwrap();
    }

    /// The exports that count, once there are so many.
    pub async fn exported(&self, count: usize) -> Vec<CloudEvent> {
        eventually(DEADLINE, || async {
            let filter = ReadFilter::streams(&[Stream::Exports]);
            let mut records = self.store.log.read(&Position::start(), &filter).await.unwrap();
            let (mut lane, mut events) = (ExportLane::default(), Vec::new());
            while let Some(record) = records.recv().await {
                let event = CloudEvent::from_json(&record.unwrap().bytes).unwrap();
                if lane.take(&event) == Counted::Event {
                    events.push(event);
                }
            }
            if events.len() >= count { Ok(events) } else { Err(format!("{events:#?}")) }
        })
        .await
    }
}
