//! An agent against a real API server, driven through its HTTP service as a gateway would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::Agent;
use agent::kubernetes::{Connections, KubeOptions};
use agent::link::AgentService;
use agent::metrics::Counts;
use agent::outbox::Outbox;
use bytes::Bytes;
use chassis::ShutdownTrigger;
use events::bundle::{BundleEntry, BundlePage, page_of, pages_for};
use events::configuration::{
    HealthSettings, Mode, ObservePattern, ObserveRules, ResourceRules, ServiceAccount, SyncPolicies,
};
use events::delivery::{PruneEntry, SyncCounts, SyncOutcome, WantedObject};
use events::desired::{Applier, DesiredReply, DesiredSource, DesiredState, FinishedManifest, SourceHead};
use events::digest::Sha256;
use events::object::ObjectKey;
use events::observation::{Observed, OwnedObject};
use events::requests::diff::SourceDiff;
use events::{AgentId, CorrelationId, InstanceId, ObjectIdentity, OrganizationId, SourceId, SyncId};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};
use tokio::runtime::Runtime;
use tunnel::wire::{Acknowledged, Batch, EventFrame, FrameDecoder, Objects};
use world::World;
use world::spawn::TaskHandle;

pub const DEADLINE: Duration = Duration::from_secs(30);

/// The control plane that the tests share, with a client of this test's own runtime.
pub async fn cluster() -> Cluster {
    // Shown with a test that fails.
    let _set_before =
        tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_test_writer().try_init();
    let shared = testkit::shared_control_plane().await.unwrap();
    Cluster::open(shared.kubeconfig()).unwrap()
}

/// One source as the server would send it.
#[derive(Clone)]
pub struct Source {
    pub id: SourceId,
    pub name: String,
    pub sync: SyncId,
    pub check_all: bool,
    pub manifests: Option<Vec<(String, Value)>>,
    pub prune: Vec<PruneEntry>,
    pub wanted: Vec<WantedObject>,
    pub policies: SyncPolicies,
    pub finished: Vec<FinishedManifest>,
    pub namespace: String,
    pub account: Option<ServiceAccount>,
    pub suspended: bool,
    pub removed: bool,
}

impl Source {
    pub fn new(rig: &Rig, name: &str, namespace: &str) -> Self {
        Self {
            id: SourceId::derive(rig.agent, name),
            name: name.to_owned(),
            sync: SyncId(uuid()),
            check_all: false,
            manifests: Some(Vec::new()),
            prune: Vec::new(),
            wanted: Vec::new(),
            policies: SyncPolicies::default(),
            finished: Vec::new(),
            namespace: namespace.to_owned(),
            account: None,
            suspended: false,
            removed: false,
        }
    }

    /// A new commit with these manifests, in files `0.yaml`, `1.yaml`, ….
    pub fn with(&mut self, manifests: impl IntoIterator<Item = Value>) -> &mut Self {
        let files =
            manifests.into_iter().enumerate().map(|(number, manifest)| (format!("{number}.yaml"), manifest));
        self.manifests = Some(files.collect());
        self.sync = SyncId(uuid());
        self.prune.clear();
        self.wanted.clear();
        self
    }

    /// ConfigMaps of this source that another one holds.
    pub fn wanting(&mut self, names: &[&str], holder: &Self) -> &mut Self {
        let wanted = names.iter().map(|name| {
            let [group, kind, namespace, name] = ["", "ConfigMap", "", *name].map(str::to_owned);
            let object = ObjectKey { group, kind, namespace, name };
            WantedObject { object, holder: holder.id, holder_name: holder.name.clone() }
        });
        self.wanted = wanted.collect();
        self
    }

    pub fn pruning(&mut self, entries: impl IntoIterator<Item = PruneEntry>) -> &mut Self {
        self.prune = entries.into_iter().collect();
        self
    }
}

/// The control plane is shared: who does not test what is observed observes nothing.
pub fn nothing() -> ObserveRules {
    let any = || "*".to_owned();
    let everything = ObservePattern { group: any(), kind: any(), namespace: any() };
    ObserveRules { include: Vec::new(), exclude: vec![everything] }
}

pub fn uuid() -> uuid::Uuid {
    World::real().new_uuid()
}

pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// A process of an agent, on a runtime of its own so that it can be killed.
pub struct Process {
    pub service: AgentService,
    pub outbox: Arc<Outbox>,
    pub counts: Counts,
    world: World,
    trigger: ShutdownTrigger,
    runtime: Option<Runtime>,
    applying: Option<TaskHandle>,
    reading: TaskHandle,
    reader: Reader,
}

impl Process {
    async fn start(kubeconfig: &Path, namespace: &str, agent: AgentId, world: World) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let options = KubeOptions { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let (trigger, shutdown) = ShutdownTrigger::new();
        let counts = Counts::default();
        let (service, applying) = {
            let _inside = runtime.enter();
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let (inner, namespace, counts) = (world.clone(), namespace.to_owned(), counts.clone());
            let task = async move {
                let connections = Connections::open(&World::real(), &options).await.unwrap();
                let instance = InstanceId(inner.new_uuid());
                let process = Agent::new(inner, connections, Some(namespace), counts, instance);
                let started = (process.service(), process.outbox());
                sender.send(started).unwrap_or_else(|_| panic!("the test is gone"));
                process.apply(shutdown).await;
            };
            (receiver, world.spawner.spawn("agent", Box::pin(task)))
        };
        let (service, outbox) = service.await.unwrap();
        service.is_agent(agent);
        let reader = Reader::of(service.clone());
        let reading = reader.start(&world);
        Self {
            service,
            outbox,
            counts,
            world,
            trigger,
            runtime: Some(runtime),
            applying: Some(applying),
            reading,
            reader,
        }
    }

    /// As when the server goes away.
    pub async fn stop_reading(&mut self) {
        self.reading.abort();
        while !self.reading.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// As when it comes back.
    pub fn read_on(&mut self) {
        self.reading = self.reader.start(&self.world);
    }

    pub async fn holds_lease(&self) {
        eventually(DEADLINE, || async { if *self.reader.holds.lock() { Ok(()) } else { Err("no lease") } })
            .await;
    }

    pub async fn lost_lease(&self) {
        eventually(DEADLINE, || async { if *self.reader.holds.lock() { Err("still held") } else { Ok(()) } })
            .await;
    }

    pub fn observed(&self) -> Vec<Observed> {
        self.reader.observed.lock().iter().map(|(_, observed)| observed.clone()).collect()
    }

    /// Waits for an observation after the first `from`; gives it and where the next would be.
    pub async fn wait<T>(
        &self,
        from: usize,
        what: &str,
        find: impl Fn(&Observed) -> Option<T>,
    ) -> (T, usize) {
        eventually(DEADLINE, || async {
            let all = self.reader.observed.lock();
            let found =
                all.iter().enumerate().skip(from).find_map(|(place, (_, one))| Some((find(one)?, place + 1)));
            found.ok_or_else(|| format!("no {what} among {:#?}", all.iter().skip(from).collect::<Vec<_>>()))
        })
        .await
    }

    pub async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
        let request = Request::builder().method(method).uri(path).body(Full::new(Bytes::from(body))).unwrap();
        let response = self.service.clone().answer(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, body.collect().await.unwrap().to_bytes())
    }

    pub async fn stop(mut self) {
        self.trigger.request();
        self.applying.take().unwrap().join().await.unwrap();
    }

    /// As kill -9: nothing is said, nothing is finished.
    pub fn die(&mut self) {
        self.reading.abort();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.die();
    }
}

/// Who reads the events, as a gateway would.
#[derive(Clone)]
struct Reader {
    service: AgentService,
    observed: Arc<Mutex<Vec<(u64, Observed)>>>,
    holds: Arc<Mutex<bool>>,
    seen: Arc<Mutex<Acknowledged>>,
}

impl Reader {
    fn of(service: AgentService) -> Self {
        let seen = Arc::new(Mutex::new(Acknowledged { epoch: 0, sequence: 0 }));
        Self { service, observed: Arc::default(), holds: Arc::default(), seen }
    }

    fn start(&self, world: &World) -> TaskHandle {
        world.spawner.spawn("events", Box::pin(self.clone().read()))
    }

    async fn read(self) {
        let Acknowledged { epoch, sequence } = *self.seen.lock();
        let request = Request::get(format!("/v1/events?after={epoch},{sequence}"))
            .body(Full::new(Bytes::new()))
            .unwrap();
        let mut body = self.service.clone().answer(request).await.unwrap().into_body();
        let mut decoder = FrameDecoder::default();
        while let Some(frame) = body.frame().await {
            decoder.push(&frame.unwrap().into_data().unwrap());
            while let Some(frame) = decoder.next_frame().unwrap() {
                match frame {
                    EventFrame::Lease { held } => *self.holds.lock() = held,
                    EventFrame::Idle => {}
                    EventFrame::Batch(batch) => self.take(batch).await,
                }
            }
        }
    }

    async fn take(&self, batch: Batch) {
        let before = *self.seen.lock();
        let expected = if before.epoch == batch.epoch { before.sequence + 1 } else { 1 };
        assert_eq!(batch.first, expected, "observations of epoch {} follow without a gap", batch.epoch);
        let cursor = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        let observed = batch.observations.into_iter().map(|one| (cursor.epoch, one.what));
        self.observed.lock().extend(observed);
        *self.seen.lock() = cursor;
        let body = Full::new(Bytes::from(events::encode(&cursor).unwrap()));
        let request = Request::put("/v1/acknowledged").body(body).unwrap();
        self.service.clone().answer(request).await.unwrap();
    }
}

/// One agent with one process, its applier.
pub struct Rig {
    pub agent: AgentId,
    pub organization: OrganizationId,
    pub process: Process,
    pub kubeconfig: PathBuf,
    pub namespace: String,
    pub mode: Mode,
    pub resources: ResourceRules,
    pub observe: ObserveRules,
    pub health: HealthSettings,
    pub lockdown: bool,
    pub replaces: Vec<AgentId>,
    revision: u64,
    pub epoch: u64,
}

/// How a sync ended.
#[derive(Debug)]
pub struct Finished {
    pub outcome: SyncOutcome,
    pub counts: SyncCounts,
    pub failures: Vec<events::delivery::ObjectFailure>,
}

impl Rig {
    pub async fn start(cluster: &Cluster, namespace: &str) -> Self {
        Self::start_as(cluster.kubeconfig(), namespace).await
    }

    pub async fn start_as(kubeconfig: &Path, namespace: &str) -> Self {
        Self::start_in(World::real(), kubeconfig, namespace).await
    }

    pub async fn start_in(world: World, kubeconfig: &Path, namespace: &str) -> Self {
        let agent = AgentId(uuid());
        let process = Process::start(kubeconfig, namespace, agent, world).await;
        process.holds_lease().await;
        Self {
            agent,
            organization: OrganizationId(uuid()),
            process,
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: nothing(),
            health: HealthSettings::default(),
            lockdown: false,
            replaces: Vec::new(),
            revision: 0,
            epoch: 1,
        }
    }

    /// Another process of the same agent.
    pub async fn another(&self) -> Process {
        Process::start(&self.kubeconfig, &self.namespace, self.agent, World::real()).await
    }

    /// The process dies; another one takes its place, as the next epoch.
    pub async fn restart(&mut self) {
        let new = self.another().await;
        let old = std::mem::replace(&mut self.process, new);
        old.stop().await;
        self.process.holds_lease().await;
        self.epoch += 1;
    }

    /// Sends the desired state, contents as they are asked for.
    pub async fn put(&mut self, sources: &[&Source]) {
        self.revision += 1;
        let (state, contents) = self.state(sources);
        put_to(&self.process, &state, &contents).await;
    }

    pub fn state(&self, sources: &[&Source]) -> (DesiredState, BTreeMap<Sha256, Vec<u8>>) {
        let mut contents = BTreeMap::new();
        let sources = sources.iter().map(|source| desired(source, &mut contents)).collect();
        let state = DesiredState {
            revision: self.revision,
            organization: self.organization,
            agent: self.agent,
            applier: Some(Applier { instance: self.process.service.instance(), epoch: self.epoch }),
            mode: self.mode,
            resources: self.resources.clone(),
            observe: self.observe.clone(),
            health: self.health.clone(),
            lockdown: self.lockdown,
            replaces: self.replaces.clone(),
            rejected: None,
            sources,
        };
        (state, contents)
    }

    /// Sends the state and waits until the first source's sync ended.
    pub async fn sync(&mut self, sources: &[&Source]) -> Finished {
        let from = self.process.observed().len();
        self.put(sources).await;
        self.finished(from, sources[0]).await
    }

    /// What the source would change, contents as they are asked for.
    pub async fn diff(&self, source: &Source) -> SourceDiff {
        let (state, contents) = self.state(&[source]);
        let path = format!("/v1/sources/{}/diff", source.id);
        loop {
            let body = events::encode(&state.sources[0]).unwrap();
            let (status, body) = self.process.ask(Method::POST, &path, body).await;
            if status != StatusCode::CONFLICT {
                assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
                return events::decode(&body).unwrap();
            }
            put_contents(&self.process, &body, &contents).await;
        }
    }

    pub async fn finished(&self, from: usize, of: &Source) -> Finished {
        let find = |one: &Observed| match one {
            Observed::SyncFinished { sync, outcome, counts, failures, .. } if *sync == of.sync => {
                Some(Finished { outcome: *outcome, counts: *counts, failures: failures.clone() })
            }
            _ => None,
        };
        self.process.wait(from, "end of the sync", find).await.0
    }

    /// What the agent said that it owns, by object name; the last word counts.
    pub fn owned(&self) -> BTreeMap<String, OwnedObject> {
        let mut owned = BTreeMap::new();
        // The next part of a statement is its first.
        let mut stated = true;
        for one in self.process.observed() {
            match one {
                Observed::ObjectApplied { object, .. } => {
                    owned.insert(object.identity.name.clone(), object);
                }
                Observed::ObjectPruned { identity, .. } => {
                    owned.remove(&identity.name);
                }
                Observed::InventoryStated { objects, last, .. } => {
                    if std::mem::replace(&mut stated, last) {
                        owned.clear();
                    }
                    owned.extend(objects.into_iter().map(|object| (object.identity.name.clone(), object)));
                }
                _ => {}
            }
        }
        owned
    }

    pub fn prune_entry(&self, name: &str) -> PruneEntry {
        let owned = self.owned();
        let object = &owned[name];
        PruneEntry { identity: object.identity.clone(), uid: object.uid.clone() }
    }
}

pub async fn put_to(process: &Process, state: &DesiredState, contents: &BTreeMap<Sha256, Vec<u8>>) {
    loop {
        let (status, body) = process.ask(Method::PUT, "/v1/desired", events::encode(state).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        if put_contents(process, &body, contents).await == 0 {
            return;
        }
    }
}

/// Sends what the agent says that it lacks; gives how many that were.
async fn put_contents(process: &Process, reply: &[u8], contents: &BTreeMap<Sha256, Vec<u8>>) -> usize {
    let DesiredReply { missing } = events::decode(reply).unwrap();
    let contents = missing.iter().map(|digest| Bytes::from(contents[digest].clone())).collect();
    let body = events::encode(&Objects { contents, desired: None }).unwrap();
    let (status, _) = process.ask(Method::PUT, "/v1/objects", body).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    missing.len()
}

fn desired(source: &Source, contents: &mut BTreeMap<Sha256, Vec<u8>>) -> DesiredSource {
    let pages = source.manifests.as_ref().map(|manifests| {
        let count = pages_for(manifests.len());
        let mut pages: Vec<Vec<BundleEntry>> = vec![Vec::new(); count];
        for (file, manifest) in manifests {
            let bytes = objects::digest::canonical_bytes(manifest);
            let identity: ObjectIdentity = objects::identity::identity_of(manifest).unwrap();
            let digest = Sha256::of(&bytes);
            contents.insert(digest, bytes);
            pages[page_of(&identity, count)].push(BundleEntry {
                identity,
                digest,
                file: file.clone(),
                line: 7,
            });
        }
        pages
            .into_iter()
            .map(|entries| {
                let bytes = events::encode(&BundlePage { entries }).unwrap();
                let digest = Sha256::of(&bytes);
                contents.insert(digest, bytes);
                digest
            })
            .collect()
    });
    DesiredSource {
        pages,
        prune: source.prune.clone(),
        refused: None,
        wanted: source.wanted.clone(),
        head: SourceHead {
            source: source.id,
            name: source.name.clone(),
            sync: source.sync,
            check_all: source.check_all,
            commit: "0123456789abcdef".into(),
            correlation_id: CorrelationId(uuid::Uuid::nil()),
            traceparent: None,
            suspended: source.suspended,
            removed: source.removed,
            default_namespace: source.namespace.clone(),
            service_account: source.account.clone(),
            policies: source.policies.clone(),
            finished: source.finished.clone(),
        },
    }
}

/// The path of a ConfigMap.
pub fn map_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// The resource version of an object.
pub async fn version(cluster: &Cluster, path: &str) -> String {
    cluster.get(path).await.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// The objects of a case's file, in a namespace of this test's own; none, and that is said, where the cases are not there.
pub async fn case(cluster: &Cluster, path: &str, name: &str, namespace: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases").join(path);
    let Ok(text) = std::fs::read_to_string(&file) else {
        eprintln!("skipped: {} is not there", file.display());
        return Vec::new();
    };
    let text = text
        .replace(&format!("namespace: {name}"), &format!("namespace: {namespace}"))
        .replace(&format!("name: {name}\n"), &format!("name: {namespace}\n"));
    let arguments = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let printed = cluster.kubectl_with_input(arguments, &text).await.unwrap();
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    objects
        .map(|object| {
            let mut object = object.unwrap();
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("creationTimestamp");
            // kubectl says `default` where the file says nothing.
            metadata.retain(|key, value| key != "namespace" || value != "default");
            object
        })
        .collect()
}
