//! What objects take in memory, and how long they take to be loaded. It prints and compares nothing:
//! `KASBAH_LONG_TESTS=1 cargo test -p resource-indexer --test weight -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeSet;

use events::observation::{FieldWriter, ObjectBody, Observation, ObservationBatch, Observed, SeenObject};
use events::{AgentId, ObjectIdentity, OrganizationId, Sha256, Timestamp};
use resource_indexer::model::{Bodies, Directory, Fold, RecordedAt, Tunnels};
use resource_indexer::store::{Batch, Memory, Standing, Store};
use serde_json::{Value, json};
use uuid::Uuid;
use world::World;

/// The allocator of what is shipped: its sizes count.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Objects of each agent, ten to an application.
const OF_AGENT: usize = 20_000;
const AGENTS: usize = 20;
/// Applications of each namespace.
const OF_NAMESPACE: usize = 10;
/// Applications of one batch.
const OF_BATCH: usize = 10;

const RECORDED: Timestamp = Timestamp(1_777_889_475_000);

/// An application, as `cargo xtask bench index` makes it.
struct App {
    agent: usize,
    namespace: String,
    name: String,
}

impl App {
    fn uid(&self, kind: &str, name: &str) -> String {
        let parts = [&self.agent.to_be_bytes(), kind.as_bytes(), self.namespace.as_bytes(), name.as_bytes()];
        events::id::derived_uuid(&parts).to_string()
    }

    fn object(
        &self,
        (version, kind, name): (&str, &str, &str),
        owner: Option<[&str; 3]>,
        rest: Value,
    ) -> Observed {
        let owners: Vec<Value> = owner
            .into_iter()
            .map(|[version, kind, name]| {
                json!({"apiVersion": version, "controller": true, "kind": kind, "name": name,
                    "uid": self.uid(kind, name)})
            })
            .collect();
        let mut body = json!({"apiVersion": version, "kind": kind, "metadata": {
            "creationTimestamp": "2026-05-04T10:11:12Z", "generation": 1, "name": name,
            "labels": {"app.kubernetes.io/instance": self.name, "app.kubernetes.io/name": self.name,
                "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/version": "1.14.2"},
            "namespace": self.namespace, "ownerReferences": owners, "uid": self.uid(kind, name)}});
        for (key, value) in rest.as_object().unwrap() {
            body[key] = value.clone();
        }
        seen(&body)
    }

    fn objects(&self) -> Vec<Observed> {
        let (name, set) = (self.name.as_str(), format!("{}-6bb7c8fd5d", self.name));
        let pods: Vec<String> = (0..4).map(|pod| format!("{set}-{pod:05x}")).collect();
        let workload = json!({"spec": {"replicas": 4, "selector": {"matchLabels": {"app.kubernetes.io/instance": name}}},
            "status": {"availableReplicas": 4, "observedGeneration": 1, "readyReplicas": 4, "replicas": 4, "updatedReplicas": 4}});
        let endpoints: Vec<Value> = pods
            .iter()
            .map(|pod| {
                json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": pod,
                "namespace": self.namespace, "uid": self.uid("Pod", pod)}})
            })
            .collect();
        let owner = Some(["apps/v1", "Deployment", name]);
        let mut all = vec![
            self.object(("apps/v1", "Deployment", name), None, workload.clone()),
            self.object(("apps/v1", "ReplicaSet", &set), owner, workload),
            self.object(
                ("v1", "Service", name),
                None,
                json!({"spec": {"selector": {"app.kubernetes.io/instance": name}}}),
            ),
            self.object(
                ("discovery.k8s.io/v1", "EndpointSlice", &format!("{name}-x7k2p")),
                Some(["v1", "Service", name]),
                json!({"endpoints": endpoints}),
            ),
            self.object(("v1", "ConfigMap", name), None, json!({})),
            self.object(("v1", "ServiceAccount", name), None, json!({})),
        ];
        all.extend(pods.iter().map(|pod| {
            self.object(
                ("v1", "Pod", pod),
                Some(["apps/v1", "ReplicaSet", &set]),
                json!({
                "spec": {"nodeName": "node-1", "serviceAccountName": name, "containers": [{"name": "main"}],
                    "volumes": [{"configMap": {"name": name}, "name": "config"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running",
                    "containerStatuses": [{"name": "main", "ready": true, "state": {"running": {}}}]}}),
            )
        }));
        all
    }
}

fn seen(body: &Value) -> Observed {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let identity = ObjectIdentity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    };
    let writer = FieldWriter {
        manager: "kubelet".to_owned(),
        operation: "Update".to_owned(),
        subresource: "status".to_owned(),
        at: Some(Timestamp(1_777_889_472_000)),
    };
    let (uid, body) = (text("/metadata/uid"), body.to_string());
    Observed::ObjectSeen {
        object: Box::new(SeenObject {
            identity,
            uid,
            resource_version: "1".to_owned(),
            digest: Sha256::of(body.as_bytes()),
            body: ObjectBody::Json(body),
            writers: vec![writer],
        }),
    }
}

fn id(agent: usize) -> AgentId {
    AgentId(Uuid::from_u128(agent as u128 + 1))
}

/// The batches of an agent, one after the other.
fn batches(agent: usize) -> impl Iterator<Item = ObservationBatch> {
    (0..OF_AGENT / 10 / OF_BATCH).map(move |number| {
        let first = number * OF_BATCH;
        let apps = (first..first + OF_BATCH).map(|number| App {
            agent,
            namespace: format!("shop-{:03}", number / OF_NAMESPACE),
            name: format!("app-{number:05}"),
        });
        let observations =
            apps.flat_map(|app| app.objects()).map(|what| Observation { at: Timestamp(0), what });
        ObservationBatch {
            organization: OrganizationId(Uuid::from_u128(1)),
            writer: ObservationBatch::agent_writer(id(agent)),
            epoch: 1,
            first: (first * 10) as u64 + 1,
            observations: observations.collect(),
        }
    })
}

/// The resident memory of the process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1_024
}

/// Writes all objects, without their history.
fn write(store: &Store, fold: &Fold) {
    let records = fold.index.slots().filter_map(|slot| fold.index.get(slot));
    let records: BTreeSet<_> = records.map(|record| (record.agent, record.uid.clone())).collect();
    let agents = fold.observed.keys().copied().collect();
    let memory = Memory {
        index: &fold.index,
        observed: &fold.observed,
        directory: &Directory::default(),
        tunnels: &Tunnels::default(),
        standing: &Standing::default(),
    };
    let batch = Batch { stated: records.clone(), records, agents, ..Batch::default() };
    store.write(&batch, &memory).unwrap();
    store.sync().unwrap();
}

#[test]
fn objects_by_what_they_take() {
    if !testkit::tests_are_long() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Uuid::nil(), 1).unwrap();
    let clock = World::real().clock;
    let (mut fold, before, begun) = (Fold::default(), resident(), clock.monotonic());
    let mut at = RecordedAt { sequence: 0, recorded_at: RECORDED, now: RECORDED, misses_beginning: false };
    for agent in 0..AGENTS {
        for batch in batches(agent) {
            at.sequence += 1;
            fold.apply(at, id(agent), batch, &mut Bodies::default());
        }
    }
    fold.index.sweep();
    let (objects, resident) = (fold.index.len(), resident().saturating_sub(before));
    let took = clock.monotonic().saturating_sub(begun);
    println!("{objects} objects: {} bytes each, folded in {took:.1?}", resident / objects);
    write(&store, &fold);
    drop(fold);
    let begun = clock.monotonic();
    let loaded = store.reader().unwrap().load().unwrap();
    let took = clock.monotonic().saturating_sub(begun);
    println!("loaded {} objects in {took:.1?}", loaded.fold.index.len());
}
