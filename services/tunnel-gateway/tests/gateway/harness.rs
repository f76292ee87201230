//! A gateway over the real store, bus and TLS; answerers in place of authz and delivery; agents on the agent's end of the link.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, LocalBus, Serving};
use bytes::Bytes;
use chassis::tls::{Authority, ServerCertificate, client_config_trusting};
use chassis::{Metrics, Readiness, Shutdown, ShutdownTrigger};
use events::Notice as _;
use events::bundle::{BundleEntry, BundlePage, BundleRoot};
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::delivery::PruneEntry;
use events::desired::{Applier, DesiredPlan, PlannedSource, SourceHead};
use events::directory::{DirectoryEvent, TokenHolder, TokenRevoked};
use events::observation::{Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::requests::authz::{Admission, Principal};
use events::requests::delivery::{ChangedAgent, DesiredChanged, NextSync};
use events::subject::Subject;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, InstanceId, ObjectIdentity,
    OrganizationId, Position, ProjectId, Refusal, RefusalKind, Sha256, SourceId, SyncId, Timestamp, TokenId,
    UserId,
};
use parking_lot::Mutex;
use store::embedded::{EmbeddedStore, Options};
use store::{KeyName, NewCommit, ReadFilter};
use tempfile::TempDir;
use testkit::eventually;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tunnel::agent::{DialError, Target, Transport, dial};
use tunnel::handshake::{Hello, Token};
use tunnel_gateway::{Args, ClusterListener, Deps};
use uuid::Uuid;
use world::World;

use super::agent::TestAgent;

mod fakes;

pub const LIMIT: Duration = Duration::from_secs(30);

#[allow(clippy::disallowed_methods, reason = "tests have no supervisor")]
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task)
}

pub fn organization() -> OrganizationId {
    OrganizationId(Uuid::from_u128(0x0f))
}

pub fn agent_id(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(0xa000 + number))
}

pub fn token_id(number: u128) -> TokenId {
    TokenId(Uuid::from_u128(0x7000 + number))
}

pub fn instance(number: u128) -> InstanceId {
    InstanceId(Uuid::from_u128(0x1000 + number))
}

/// The secret of an agent's token.
pub fn secret(number: u128) -> String {
    format!("kasbah_a_{number}")
}

pub fn source(agent: u128) -> SourceId {
    SourceId::derive(agent_id(agent), "shop")
}

/// What the stand-in for authz knows and says.
#[derive(Default)]
pub struct Directory {
    pub principals: BTreeMap<Sha256, Principal>,
    /// Actors that may do nothing, and see nothing.
    pub strangers: Vec<Actor>,
    pub away: bool,
}

impl Directory {
    fn admit(&self, hash: &Sha256) -> Admission {
        let refused = |kind, message: &str| Admission::Refused(Refusal::new(kind, message));
        let Some(holder) = self.principals.get(hash).cloned() else {
            return refused(RefusalKind::Unauthenticated, "this token is not known: issue a new one");
        };
        match holder.actor {
            Actor::Agent(agent) => Admission::Admitted { holder, agent },
            _ => refused(RefusalKind::Denied, "by the test"),
        }
    }
}

/// What the stand-in for delivery knows and says.
#[derive(Default)]
pub struct Delivery {
    pub plans: BTreeMap<AgentId, DesiredPlan>,
    pub next: BTreeMap<SourceId, NextSync>,
    pub appliers: BTreeMap<AgentId, Applier>,
    pub namings: usize,
    /// How often a desired state was asked for.
    pub asked: usize,
    /// While it is held it answers no question about desired states.
    pub held: watch::Sender<bool>,
    /// Of how many agents it answers in one go, if not of all that were asked about.
    pub answers_at_most: Option<usize>,
    /// Of how many it was asked in one go.
    pub asked_at_once: usize,
}

pub struct Gateway {
    pub world: World,
    pub store: EmbeddedStore,
    pub bus: LocalBus,
    pub directory: Arc<Mutex<Directory>>,
    pub delivery: Arc<Mutex<Delivery>>,
    pub address: SocketAddr,
    /// Where people reach clusters' APIs, in plain text.
    pub clusters: SocketAddr,
    pub stop: ShutdownTrigger,
    pub running: JoinHandle<anyhow::Result<()>>,
    /// What its certificate comes from.
    pub authority: Authority,
    client: Arc<rustls::ClientConfig>,
    _answers: Vec<Serving>,
    _folder: TempDir,
}

pub fn args() -> Args {
    Args {
        tunnel_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clusters_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clusters_domain: None,
        tunnel_insecure_plain_text: false,
        tunnel_drain: Duration::from_secs(10),
        clusters_audit: tunnel_gateway::Audited::All,
        clusters_origins: Vec::new(),
        tunnel_per_agent: 4,
        tunnel_bulk_per_agent: 16,
        tunnel_observation_rate: 1 << 30,
        tunnel_object_rate: 1 << 30,
        organization_object_rate: 1 << 30,
        cluster_limits: tunnel_gateway::ClusterLimits::default(),
    }
}

/// What a server's certificate comes from.
pub fn authority(world: &World) -> Authority {
    Authority::generate(Timestamp(world.clock.now_millis())).unwrap()
}

/// A server's configuration, and that of clients that trust it.
pub fn tls(world: &World, authority: &Authority) -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let certificate = ServerCertificate::issued(world, authority, &["127.0.0.1".to_owned()]).unwrap();
    let server = certificate.config(world, &[tunnel::settings::ALPN]).unwrap();
    let client =
        client_config_trusting(world, authority.certificate().as_bytes(), &[tunnel::settings::ALPN]).unwrap();
    (server, client)
}

/// An agent's batch as it lies in the log.
#[allow(dead_code, reason = "for the benchmark")]
pub fn record(agent: u128, batch: &tunnel::wire::Batch) -> Vec<u8> {
    let record = ObservationBatch {
        organization: organization(),
        writer: ObservationBatch::agent_writer(agent_id(agent)),
        epoch: batch.epoch,
        first: batch.first,
        observations: batch.observations.clone(),
    };
    events::encode(&record).unwrap()
}

impl Gateway {
    pub async fn start() -> Self {
        Self::start_with(args()).await
    }

    pub async fn start_with(args: Args) -> Self {
        let world = World::real();
        let folder = tempfile::tempdir().unwrap();
        let store = store::embedded::open(&world, folder.path(), Options::default()).unwrap();
        store.keys.get_or_create(KeyName::Organization(organization())).await.unwrap();
        let bus = LocalBus::new(world.clone());
        let (directory, delivery) =
            (Arc::new(Mutex::new(Directory::default())), Arc::new(Mutex::new(Delivery::default())));
        let mut answers = fakes::authz(&bus, &directory).await;
        answers.extend(fakes::delivery(&bus, &delivery).await);

        let authority = authority(&world);
        let (tls, client) = tls(&world, &authority);
        let listener = world.network.listen(args.tunnel_listen).await.unwrap();
        let address = listener.local_address().unwrap();
        let clients = world.network.listen(args.clusters_listen).await.unwrap();
        let clusters = clients.local_address().unwrap();
        let readiness = Readiness::new();
        let deps = Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            blobs: Arc::clone(&store.blobs),
            keys: Arc::clone(&store.keys),
            snapshots: Arc::clone(&store.snapshots),
            bus: Arc::new(bus.clone()),
            listener,
            clusters: Some(ClusterListener { listener: clients, tls: None }),
            tls: Some(tls),
            readiness: readiness.clone(),
            metrics: Metrics::new(),
        };
        let (stop, shutdown): (ShutdownTrigger, Shutdown) = ShutdownTrigger::new();
        let running = spawn(tunnel_gateway::run(args, deps, shutdown));
        let gateway = Self {
            world,
            store,
            bus,
            directory,
            delivery,
            address,
            clusters,
            stop,
            running,
            authority,
            client,
            _answers: answers,
            _folder: folder,
        };
        eventually(LIMIT, || async { ready(&readiness) }).await;
        gateway
    }

    /// What a second gateway without certificates would run on.
    pub async fn plain_text_deps(&self) -> Deps {
        Deps {
            world: self.world.clone(),
            log: Arc::clone(&self.store.log),
            blobs: Arc::clone(&self.store.blobs),
            keys: Arc::clone(&self.store.keys),
            snapshots: Arc::clone(&self.store.snapshots),
            bus: Arc::new(self.bus.clone()),
            listener: self.world.network.listen(args().tunnel_listen).await.unwrap(),
            clusters: None,
            tls: None,
            readiness: Readiness::new(),
            metrics: Metrics::new(),
        }
    }

    /// Registers an agent: a live token, and a configuration with one source.
    pub async fn register(&self, number: u128) {
        let principal = Principal {
            actor: Actor::Agent(agent_id(number)),
            organization: organization(),
            token: token_id(number),
            expires_at: None,
        };
        self.directory.lock().principals.insert(Sha256::of(secret(number).as_bytes()), principal);
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources: vec![source_configuration(number)],
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        let changed = ConfigurationChanged {
            agent: agent_id(number),
            commit: "c".to_owned(),
            configuration,
            warnings: Vec::new(),
        };
        let event = Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed));
        self.append(AggregateRef::new(AggregateKind::Configuration, agent_id(number)), 0, event).await;
    }

    pub async fn revoke(&self, number: u128) {
        let revoked = TokenRevoked { token: token_id(number), holder: TokenHolder::Agent(agent_id(number)) };
        let event = Event::Directory(DirectoryEvent::TokenRevoked(revoked));
        self.append(AggregateRef::new(AggregateKind::Agent, agent_id(number)), 0, event).await;
    }

    /// A person's token is revoked, as far as the log says.
    pub async fn revoke_of_user(&self, number: u128) {
        let user = UserId(Uuid::from_u128(number));
        let revoked = TokenRevoked { token: token_id(number), holder: TokenHolder::User(user) };
        let event = Event::Directory(DirectoryEvent::TokenRevoked(revoked));
        self.append(AggregateRef::new(AggregateKind::User, user), 0, event).await;
    }

    pub async fn append(&self, aggregate: AggregateRef, expected: u64, event: Event) {
        let events = vec![events::NewEvent {
            id: events::EventId(self.world.new_uuid()),
            body: event.encode().unwrap(),
        }];
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: organization(),
            aggregate,
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(self.world.clock.now_millis()),
            command: None,
            grounds: None,
            events,
        };
        self.store.log.append(commit).await.unwrap();
    }

    pub fn target(&self) -> Target {
        self.target_through(self.address)
    }

    pub fn target_through(&self, address: SocketAddr) -> Target {
        Target {
            host: address.ip().to_string(),
            port: address.port(),
            transport: Transport::Tls(Arc::clone(&self.client)),
        }
    }

    pub async fn refusal(&self, token: &str) -> DialError {
        let hello = Hello::control(instance(99), 0, "0.1.0");
        dial(&self.world, &self.target(), &Token::new(token), &hello).await.map(|_| ()).unwrap_err()
    }

    /// Connects an instance of an agent.
    pub async fn connect(&self, agent: u128, instance_number: u128) -> TestAgent {
        TestAgent::connect(&self.world, &self.target(), &secret(agent), instance(instance_number)).await
    }

    /// Gives an agent these objects, and says that something changed.
    pub async fn desire(&self, agent: u128, revision: u64, objects: &[Bytes], prune: &[PruneEntry]) {
        self.desire_silently(agent, revision, objects, prune).await;
        self.announce(agent, revision).await;
    }

    /// How often a desired state was asked for so far.
    pub fn asked_for_desired(&self) -> usize {
        self.delivery.lock().asked
    }

    /// Waits until one was asked for once more.
    pub async fn is_asked_for_desired_after(&self, asked: usize) {
        eventually(LIMIT, || async {
            let now = self.asked_for_desired();
            if now > asked { Ok(()) } else { Err(format!("asked {now} times")) }
        })
        .await;
    }

    /// The same without a word to the gateways.
    pub async fn desire_silently(&self, agent: u128, revision: u64, objects: &[Bytes], prune: &[PruneEntry]) {
        let plan = self.plan(agent, revision, objects, prune).await;
        self.delivery.lock().plans.insert(agent_id(agent), plan);
    }

    /// What a source of an agent is to have next, with these objects, and why it waits.
    pub async fn next(&self, agent: u128, objects: &[Bytes], pending: &str) {
        let planned = self.plan(agent, 0, objects, &[]).await.sources.remove(0);
        let source = planned.head.source;
        let next = NextSync {
            planned,
            pending: Some(pending.to_owned()),
            rejected: None,
            fetch_failure: None,
            kept: Vec::new(),
            more_kept: 0,
        };
        self.delivery.lock().next.insert(source, next);
    }

    pub async fn notify(&self, agent: u128) {
        self.announce(agent, 0).await;
    }

    /// As delivery does when a state of this revision is there.
    pub async fn announce(&self, agent: u128, revision: u64) {
        let agents = vec![ChangedAgent { agent: agent_id(agent), revision }];
        let notice = events::encode(&DesiredChanged { agents }).unwrap();
        self.bus.publish(&Subject::notice(DesiredChanged::NAME), notice.into()).await.unwrap();
    }

    pub async fn plan(
        &self,
        agent: u128,
        revision: u64,
        objects: &[Bytes],
        prune: &[PruneEntry],
    ) -> DesiredPlan {
        let count = events::bundle::pages_for(objects.len());
        let mut pages = vec![BundlePage { entries: Vec::new() }; count];
        for (number, object) in objects.iter().enumerate() {
            let identity = identity(&format!("object-{number}"));
            let page = events::bundle::page_of(&identity, count);
            let line = u32::try_from(number).unwrap();
            pages[page].entries.push(BundleEntry {
                identity,
                digest: Sha256::of(object),
                file: "all.yaml".to_owned(),
                line,
            });
        }
        let pages: Vec<Bytes> = pages.iter().map(|page| events::encode(page).unwrap().into()).collect();
        let root = BundleRoot {
            pages: pages.iter().map(|page| Sha256::of(page)).collect(),
            objects: u32::try_from(objects.len()).unwrap(),
        };
        let root: Bytes = events::encode(&root).unwrap().into();
        let mut contents = vec![root];
        contents.extend(pages);
        contents.extend(objects.iter().cloned());
        let addresses = self.store.blobs.put(organization(), contents).await.unwrap();
        let prune = if prune.is_empty() {
            None
        } else {
            let list: Bytes = events::encode(&prune.to_vec()).unwrap().into();
            Some(self.store.blobs.put(organization(), vec![list]).await.unwrap()[0])
        };
        let applier = self.delivery.lock().appliers.get(&agent_id(agent)).copied();
        DesiredPlan {
            revision,
            organization: organization(),
            agent: agent_id(agent),
            applier,
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            lockdown: false,
            replaces: Vec::new(),
            rejected: None,
            sources: vec![PlannedSource {
                bundle: Some(addresses[0]),
                prune,
                wanted: None,
                head: head(agent),
            }],
        }
    }

    /// Everything in the observations stream.
    pub async fn batches(&self) -> Vec<ObservationBatch> {
        self.batches_of(Stream::Observations).await
    }

    /// Everything in the stream of observations or of objects.
    pub async fn batches_of(&self, stream: Stream) -> Vec<ObservationBatch> {
        let filter = ReadFilter::streams(&[stream]);
        let mut records = self.store.log.read(&Position::start(), &filter).await.unwrap();
        let mut batches = Vec::new();
        while let Some(record) = records.recv().await {
            batches.push(events::decode(&record.unwrap().bytes).unwrap());
        }
        batches
    }

    /// What gateways observed.
    pub async fn journal(&self) -> Vec<Observed> {
        let batches = self.batches().await.into_iter().filter(|batch| batch.writer.starts_with("gateway-"));
        batches.flat_map(|batch| batch.observations).map(|observation| observation.what).collect()
    }

    /// Epoch and sequence of each of an agent's observations, in the order of the log.
    pub async fn sequences(&self, agent: u128) -> Vec<(u64, u64)> {
        let writer = ObservationBatch::agent_writer(agent_id(agent));
        let batches = self.batches().await.into_iter().filter(|batch| batch.writer == writer);
        batches
            .flat_map(|batch| {
                (0..batch.observations.len() as u64).map(move |n| (batch.epoch, batch.first + n))
            })
            .collect()
    }
}

pub fn ready(readiness: &Readiness) -> Result<(), &'static str> {
    if readiness.is_ready() { Ok(()) } else { Err("the gateway is not ready") }
}

pub fn identity(name: &str) -> ObjectIdentity {
    ObjectIdentity {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

pub fn objects(count: usize, flavour: &str) -> Vec<Bytes> {
    (0..count)
        .map(|number| Bytes::from(format!("{{\"kind\":\"ConfigMap\",\"data\":\"{number} {flavour}\"}}")))
        .collect()
}

pub fn observation(number: u64, what: Observed) -> Observation {
    Observation { at: Timestamp(i64::try_from(number).unwrap()), what }
}

pub fn health(agent: u128, number: u64) -> Observation {
    let (identity, status) = (identity(&format!("object-{number}")), "healthy".to_owned());
    let (source, sync, message, optional) = (source(agent), None, String::new(), false);
    observation(number, Observed::HealthChanged { source, sync, identity, status, message, optional })
}

fn head(agent: u128) -> SourceHead {
    SourceHead {
        source: source(agent),
        name: "shop".to_owned(),
        sync: SyncId(Uuid::from_u128(5)),
        check_all: false,
        commit: "c".to_owned(),
        correlation_id: CorrelationId(Uuid::from_u128(6)),
        traceparent: None,
        suspended: false,
        removed: false,
        default_namespace: "shop".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        finished: Vec::new(),
    }
}

fn source_configuration(agent: u128) -> SourceConfiguration {
    SourceConfiguration {
        id: source(agent),
        name: "shop".to_owned(),
        project: ProjectId(Uuid::from_u128(8)),
        reference: GitReference::Default,
        include: vec!["**".to_owned()],
        exclude: Vec::new(),
        interval_seconds: 60,
        default_namespace: "shop".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 1,
    }
}

pub fn user(number: u128) -> Actor {
    Actor::User(UserId(Uuid::from_u128(number)))
}
