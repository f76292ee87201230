//! An installation of one process, and the resource indexer in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, LocalBus, Presence, Serving};
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, HealthSettings, Mode, ObserveRules,
    ResourceRules,
};
use events::digest::Sha256;
use events::directory::{
    AgentDeleted, AgentRegistered, DirectoryEvent, GroupCreated, ProjectCreated, ProjectSettings,
};
use events::environment::{Association, DeploymentFinished, EnvironmentEvent, Grouping, Tier};
use events::grants::{Grants, UserAccessAs};
use events::object::ObjectIdentity;
use events::observation::{
    FieldWriter, Gone, ObjectBody, Observation, ObservationBatch, Observed, ObservedKind, SeenObject,
};
use events::pass::Narrowing;
use events::position::Stream;
use events::request::RequestContext;
use events::requests::authz::{Action, ListAllowedProjects, ListUsableAgents, UsableAgent};
use events::requests::environments::{EnvironmentState, ListResourceGroups, ResourceGroup, ResourcePlace};
use events::requests::index::FindObjects;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, CommitId, CorrelationId, DeploymentId,
    EnvironmentId, Event, GroupId, InstanceId, OrganizationId, Position, ProjectId, Refusal, Request,
    Timestamp, UserId,
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use resource_indexer::{Args, Deps};
use serde_json::{Value, json};
use store::embedded::{EmbeddedStore, Options};
use store::{Addresses, BlobError, Blobs, NewBatch, NewCommit};
use world::World;
use world::spawn::TaskHandle;

pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Installation {
    pub world: World,
    pub store: EmbeddedStore,
    pub bus: Arc<dyn Bus>,
    pub organization: OrganizationId,
    pub agent: AgentId,
    pub usable: Arc<Mutex<Vec<UsableAgent>>>,
    /// What delivery and authz answer of environments.
    pub groups: Arc<Mutex<Vec<ResourceGroup>>>,
    pub project: ProjectId,
    next: u64,
    gateway: InstanceId,
    version: u64,
    _folder: tempfile::TempDir,
}

impl Installation {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::real();
        let store = store::embedded::open(&world, folder.path(), options).unwrap();
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new(world.clone()));
        let agent = AgentId(world.new_uuid());
        let grants = vec![Narrowing::default()];
        let all = UsableAgent { agent, access_as: UserAccessAs::Agent, grants, identity: None };
        Self {
            organization: OrganizationId(world.new_uuid()),
            agent,
            usable: Arc::new(Mutex::new(vec![all])),
            groups: Arc::default(),
            project: ProjectId(world.new_uuid()),
            next: 1,
            gateway: InstanceId(world.new_uuid()),
            version: 0,
            store,
            bus,
            world,
            _folder: folder,
        }
    }

    /// The agent says this next, as one record.
    pub async fn says(&mut self, words: Vec<Observed>) -> Position {
        let at = Timestamp(self.world.clock.now_millis());
        let count = words.len() as u64;
        let batch = ObservationBatch {
            organization: self.organization,
            writer: ObservationBatch::agent_writer(self.agent),
            epoch: 1,
            first: self.next,
            observations: words.into_iter().map(|what| Observation { at, what }).collect(),
        };
        self.next += count;
        self.append(Stream::Objects, &batch).await
    }

    async fn append(&self, stream: Stream, batch: &ObservationBatch) -> Position {
        let (organization, writer) = (batch.organization, batch.writer.clone());
        let data = events::encode(batch).unwrap();
        self.store.log.append_batch(NewBatch { stream, organization, writer, data }).await.unwrap()
    }

    /// A gateway says that the agent connected.
    pub async fn connects(&self) -> Position {
        let (agent, instance) = (self.agent, InstanceId(self.world.new_uuid()));
        let what = Observed::TunnelOpened { agent, instance, version: "1".to_owned() };
        let batch = ObservationBatch {
            organization: self.organization,
            writer: ObservationBatch::gateway_writer(self.gateway),
            epoch: 0,
            first: 1,
            observations: vec![Observation { at: Timestamp(0), what }],
        };
        self.append(Stream::Observations, &batch).await
    }

    /// A moment behind everything that was recorded, and before what comes.
    pub async fn now_later(&self) -> Timestamp {
        let now = self.next_millisecond().await;
        self.next_millisecond().await;
        now
    }

    async fn next_millisecond(&self) -> Timestamp {
        let clock = &self.world.clock;
        let began = clock.now_millis();
        testkit::eventually(Duration::from_secs(10), || async {
            let now = clock.now_millis();
            if now > began { Ok(Timestamp(now)) } else { Err("the clock stands still") }
        })
        .await
    }

    /// Something was deployed into an environment: all objects of these namespaces belong to it.
    pub async fn deploys(&self, name: &str, namespaces: &[&str]) -> Position {
        let environment = EnvironmentId::derive(self.project, name);
        let places = namespaces.iter().map(|namespace| ResourcePlace {
            association: Association { agent: self.agent, namespace: (*namespace).to_owned() },
            deployment: DeploymentId(self.world.new_uuid()),
            commit: String::new(),
            sync: None,
            recent: Vec::new(),
        });
        let group = ResourceGroup {
            environment,
            project: self.project,
            name: name.to_owned(),
            slug: name.to_owned(),
            tier: Tier::guess(name),
            state: EnvironmentState::Available,
            grouping: Grouping::Namespace,
            places: places.collect(),
        };
        {
            let mut groups = self.groups.lock();
            groups.retain(|known| known.environment != environment);
            groups.push(group);
        }
        let deployment = DeploymentId(self.world.new_uuid());
        let aggregate = AggregateRef::new(AggregateKind::Deployment, deployment);
        let finished = DeploymentFinished { deployment, environment };
        self.decide(aggregate, 0, vec![EnvironmentEvent::DeploymentFinished(finished)]).await
    }

    async fn decide<E>(&self, aggregate: AggregateRef, expected: u64, events: Vec<E>) -> Position
    where
        Event: From<E>,
    {
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
            events: store::new_events(&self.world, events.into_iter().map(Into::into)).unwrap(),
        };
        self.store.log.append(commit).await.unwrap().position
    }

    async fn registers_the_agent(&self) {
        let (group, project) = (GroupId(self.world.new_uuid()), self.project);
        let created = GroupCreated { group, name: "shop".to_owned() };
        let aggregate = AggregateRef::new(AggregateKind::Group, group);
        self.decide(aggregate, 0, vec![DirectoryEvent::GroupCreated(created)]).await;
        let settings = ProjectSettings {
            repository: "https://git.example".to_owned(),
            default_branch: "main".to_owned(),
            credential: None,
            external_id: None,
        };
        let created = ProjectCreated { project, group, name: "front".to_owned(), settings };
        let aggregate = AggregateRef::new(AggregateKind::Project, project);
        self.decide(aggregate, 0, vec![DirectoryEvent::ProjectCreated(created)]).await;
        let (agent, name, replaces) = (self.agent, "edge".to_owned(), Vec::new());
        let registered = AgentRegistered { agent, name, project, group: None, replaces };
        let aggregate = AggregateRef::new(AggregateKind::Agent, agent);
        self.decide(aggregate, 0, vec![DirectoryEvent::AgentRegistered(registered)]).await;
    }

    /// A configuration of the agent with these health rules comes into force, as its version `expected + 1`.
    pub async fn configures(&self, expected: u64, health: HealthSettings) -> Position {
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health,
            relations: Vec::new(),
            actions: Vec::new(),
            sources: Vec::new(),
            lockdown: false,
            grants: Grants::default(),
            implicit_rights: false,
        };
        let changed = ConfigurationEvent::ConfigurationChanged(ConfigurationChanged {
            agent: self.agent,
            commit: "c".to_owned(),
            configuration,
            warnings: Vec::new(),
        });
        self.decide(AggregateRef::new(AggregateKind::Configuration, self.agent), expected, vec![changed])
            .await
    }

    pub async fn deletes_the_agent(&self) -> Position {
        let aggregate = AggregateRef::new(AggregateKind::Agent, self.agent);
        let deleted = DirectoryEvent::AgentDeleted(AgentDeleted { agent: self.agent });
        self.decide(aggregate, 1, vec![deleted]).await
    }

    /// Something that may touch rights.
    pub async fn decides_something(&mut self) -> Position {
        let group = GroupId(self.world.new_uuid());
        self.version += 1;
        let created = GroupCreated { group, name: format!("group-{}", self.version) };
        let aggregate = AggregateRef::new(AggregateKind::Group, group);
        self.decide(aggregate, 0, vec![DirectoryEvent::GroupCreated(created)]).await
    }
}

/// A running resource indexer, with the services that it asks.
#[derive(Clone)]
pub struct Indexer {
    bus: Arc<dyn Bus>,
    user: RequestContext,
    service: RequestContext,
    running: Arc<Mutex<Option<TaskHandle>>>,
    trigger: Arc<chassis::ShutdownTrigger>,
    metrics: chassis::Metrics,
    _around: Arc<(Vec<Serving>, Presence)>,
}

impl Indexer {
    pub async fn start(installation: &Installation, folder: Option<&Path>) -> Self {
        let Installation { world, bus, organization, usable, store, gateway, .. } = installation;
        let end = store.log.position(&[Stream::Decisions]).await.unwrap();
        if end == Position::start() {
            installation.registers_the_agent().await;
        }
        let usable = Arc::clone(usable);
        let authz = bus::answer::<ListUsableAgents, _>(&**bus, move |context, request| {
            assert!(matches!((&context.actor, &request.actor), (Actor::Service(_), Actor::User(_))));
            let items = usable.lock().clone();
            async move { Ok(events::requests::page::Page { items, next: None }) }.boxed()
        });
        let projects = installation.project;
        let allowed = bus::answer::<ListAllowedProjects, _>(&**bus, move |_, request| {
            assert_eq!(request.action, Action::ReadEnvironment);
            async move { Ok(vec![projects]) }.boxed()
        });
        let groups = Arc::clone(&installation.groups);
        let delivery = bus::answer::<ListResourceGroups, _>(&**bus, move |context, _| {
            assert!(matches!(context.actor, Actor::Service(_)));
            let items = groups.lock().clone();
            async move { Ok(events::requests::page::Page { items, next: None }) }.boxed()
        });
        let around = vec![authz.await.unwrap(), allowed.await.unwrap(), delivery.await.unwrap()];
        let presence = Presence::join_as(bus, world, "tunnel-gateway", gateway.0).await.unwrap();
        let (trigger, shutdown) = chassis::ShutdownTrigger::new();
        let metrics = chassis::Metrics::new();
        let deps = Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            blobs: Arc::clone(&store.blobs),
            bus: Arc::clone(bus),
            readiness: chassis::Readiness::new(),
            metrics: metrics.clone(),
        };
        let args = Args { index: folder.map(Path::to_owned) };
        let running = async move { resource_indexer::run(args, deps, shutdown).await.unwrap() };
        let running = world.spawner.spawn("resource-indexer", Box::pin(running));
        let service = bus::context_for_service(world, "test", *organization);
        let user = RequestContext { actor: Actor::User(UserId(world.new_uuid())), ..service.clone() };
        let indexer = Self {
            bus: Arc::clone(bus),
            user,
            service,
            running: Arc::new(Mutex::new(Some(running))),
            trigger: Arc::new(trigger),
            metrics,
            _around: Arc::new((around, presence)),
        };
        testkit::eventually(DEADLINE, || async {
            indexer.ask(&FindObjects::default()).await.map(|_| ()).map_err(|refusal| refusal.message)
        })
        .await;
        indexer
    }

    pub async fn stop(self) {
        self.trigger.request();
        let running = self.running.lock().take();
        running.unwrap().join().await.unwrap();
    }

    /// All metrics, as text.
    pub fn metrics(&self) -> String {
        self.metrics.encode()
    }

    pub async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, Refusal> {
        bus::ask(&*self.bus, &self.user, request).await
    }

    pub async fn ask_as_service<R: Request>(&self, request: &R) -> Result<R::Reply, Refusal> {
        bus::ask(&*self.bus, &self.service, request).await
    }

    /// Returns once a position is folded.
    pub async fn covers(&self, position: &Position) {
        let request = FindObjects { at_least: Some(position.clone()), ..FindObjects::default() };
        testkit::eventually(DEADLINE, || async {
            self.ask(&request).await.map(|_| ()).map_err(|refusal| refusal.message)
        })
        .await;
    }
}

/// A ReplicaSet of one pod, and its pod, whose container waits for this reason or runs.
pub fn workload(waits_for: Option<&str>) -> [Value; 2] {
    let metadata = |name: &str| {
        json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
        "generation": 1, "labels": {"app": "web"}})
    };
    let ready = u8::from(waits_for.is_none());
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata("web"),
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "replicas": 1, "fullyLabeledReplicas": 1,
            "readyReplicas": ready, "availableReplicas": ready}});
    let status = match waits_for {
        Some(reason) => json!({"phase": "Pending",
            "containerStatuses": [{"name": "web", "state": {"waiting": {"reason": reason}}}]}),
        None => json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("web-1"), "status": status});
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": true}]);
    [set, pod]
}

/// A ConfigMap in the namespace `shop`.
pub fn map(name: &str, rest: Value) -> Value {
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")}});
    for (key, value) in rest.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn identity(body: &Value) -> ObjectIdentity {
    let text = |pointer: &str| body.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    ObjectIdentity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}

fn uid(body: &Value) -> String {
    body["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub fn seen(body: &Value) -> Observed {
    let writer = FieldWriter {
        manager: "kubectl".to_owned(),
        operation: "Apply".to_owned(),
        subresource: String::new(),
        at: None,
    };
    Observed::ObjectSeen {
        object: Box::new(SeenObject {
            identity: identity(body),
            uid: uid(body),
            resource_version: "1".to_owned(),
            digest: Sha256::of(body.to_string().as_bytes()),
            body: ObjectBody::Json(body.to_string()),
            writers: vec![writer],
        }),
    }
}

pub fn gone(body: &Value) -> Observed {
    let (identity, uid) = (identity(body), uid(body));
    Observed::ObjectGone { identity, uid, resource_version: String::new(), why: Gone::Deleted }
}

/// All ConfigMaps were listed: those that were stated since are there.
pub fn listed(since: u64) -> Observed {
    let of = ObservedKind {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        namespaced: true,
        namespace: String::new(),
    };
    Observed::KindListed { of, resource_version: "9".to_owned(), since, objects: 0 }
}

/// Blobs that fail at first.
pub struct Failing {
    inner: Arc<dyn Blobs>,
    left: std::sync::atomic::AtomicU32,
}

impl Failing {
    pub fn times(inner: &Arc<dyn Blobs>, times: u32) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), left: times.into() })
    }

    pub fn left(&self) -> u32 {
        self.left.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Blobs for Failing {
    async fn put(
        &self,
        organization: OrganizationId,
        contents: Vec<bytes::Bytes>,
    ) -> Result<Vec<BlobDigest>, BlobError> {
        self.inner.put(organization, contents).await
    }

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bytes::Bytes, BlobError> {
        let less = |left: u32| left.checked_sub(1);
        let order = std::sync::atomic::Ordering::SeqCst;
        if self.left.fetch_update(order, order, less).is_ok() {
            return Err(BlobError::Failed { detail: "not now".to_owned() });
        }
        self.inner.get(organization, digest).await
    }

    async fn addresses(&self, organization: OrganizationId) -> Result<Addresses, BlobError> {
        self.inner.addresses(organization).await
    }

    async fn contains(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError> {
        self.inner.contains(organization, digest).await
    }
}
