//! How long trees of the past take. It prints and compares nothing:
//! `KASBAH_LONG_TESTS=1 cargo test -p resource-indexer --test service trees_of_the_past -- --nocapture`.

use std::time::Duration;

use events::observation::Observed;
use events::requests::index::{EnvironmentTree, Moment, ShowEnvironmentTree};
use events::{EnvironmentId, Position};
use serde_json::{Value, json};
use world::World;

use super::running::{Indexer, Installation, seen};

/// Objects of one record.
const OF_RECORD: usize = 100;
/// Questions of each kind.
const ASKED: usize = 8;

pub struct App {
    /// Equal names in another cluster are other objects.
    pub cluster: usize,
    pub namespace: &'static str,
    pub name: String,
}

impl App {
    fn metadata(&self, kind: &str, name: &str, owner: Option<(&str, &str, &str)>) -> Value {
        let uid = |kind: &str, name: &str| {
            let cluster = self.cluster.to_be_bytes();
            let parts = [&cluster, kind.as_bytes(), self.namespace.as_bytes(), name.as_bytes()];
            events::id::derived_uuid(&parts).to_string()
        };
        let owners: Vec<Value> = owner
            .map(|(version, kind, name)| {
                json!({"apiVersion": version, "controller": true, "kind": kind, "name": name, "uid": uid(kind, name)})
            })
            .into_iter()
            .collect();
        json!({
            "creationTimestamp": "2026-05-04T10:11:12Z", "generation": 1, "name": name, "namespace": self.namespace,
            "labels": {"app.kubernetes.io/instance": self.name, "app.kubernetes.io/name": self.name,
                "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/version": "1.14.2"},
            "ownerReferences": owners, "uid": uid(kind, name),
        })
    }

    /// All objects of the application after so many changes. Its workloads never say that they are well.
    pub fn objects(&self, changes: usize) -> Vec<Value> {
        let (name, set) = (self.name.as_str(), format!("{}-6bb7c8fd5d", self.name));
        let spec = json!({"replicas": 4, "selector": {"matchLabels": {"app.kubernetes.io/instance": name}},
            "template": {"metadata": {"labels": {"app.kubernetes.io/instance": name}}, "spec": containers(name)}});
        let status = json!({"availableReplicas": 4, "observedGeneration": 1 + changes, "readyReplicas": 4, "replicas": 4, "updatedReplicas": 4});
        let object = |version: &str, kind: &str, metadata: Value, rest: Value| {
            let mut body = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
            body["metadata"]["annotations"] = json!({"changes": changes.to_string()});
            for (key, value) in rest.as_object().unwrap() {
                body[key] = value.clone();
            }
            body
        };
        let workload = json!({"spec": spec, "status": status});
        let service = json!({"spec": {"clusterIP": "10.96.12.7", "selector": {"app.kubernetes.io/instance": name}, "type": "ClusterIP"}});
        let slice = format!("{name}-x7k2p");
        let mut all = vec![
            object("apps/v1", "Deployment", self.metadata("Deployment", name, None), workload.clone()),
            object(
                "apps/v1",
                "ReplicaSet",
                self.metadata("ReplicaSet", &set, Some(("apps/v1", "Deployment", name))),
                workload,
            ),
            object("v1", "Service", self.metadata("Service", name, None), service),
            object(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                self.metadata("EndpointSlice", &slice, Some(("v1", "Service", name))),
                json!({"addressType": "IPv4", "endpoints": (0..4).map(|pod| json!({"addresses": ["10.0.0.1"],
                    "targetRef": {"kind": "Pod", "name": format!("{set}-{pod:05x}"), "namespace": self.namespace}})).collect::<Vec<_>>()}),
            ),
            object(
                "v1",
                "ConfigMap",
                self.metadata("ConfigMap", name, None),
                json!({"data": {"config.yaml": "log: info\n"}}),
            ),
            object("v1", "ServiceAccount", self.metadata("ServiceAccount", name, None), json!({})),
        ];
        all.extend((0..4).map(|pod| {
            let pod = self.metadata("Pod", &format!("{set}-{pod:05x}"), Some(("apps/v1", "ReplicaSet", &set)));
            object("v1", "Pod", pod, json!({"spec": containers(name), "status": {
                "conditions": [{"type": "Ready", "status": "True"}], "phase": "Running", "podIP": "10.244.1.2",
                "containerStatuses": [{"name": "main", "ready": true, "restartCount": changes, "state": {"running": {"startedAt": "2026-05-04T10:11:13Z"}}}],
            }}))
        }));
        all
    }
}

fn containers(name: &str) -> Value {
    json!({"containers": [{
            "env": [{"name": "CONFIG", "value": "/etc/shop/config.yaml"}, {"name": "REGION", "value": "north"}],
            "image": "registry.example/shop/web:1.14.2", "imagePullPolicy": "IfNotPresent", "name": "main",
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{"mountPath": "/etc/shop", "name": "config", "readOnly": true}],
        }],
        "dnsPolicy": "ClusterFirst", "nodeName": "node-1", "restartPolicy": "Always", "serviceAccountName": name,
        "volumes": [{"configMap": {"defaultMode": 420, "name": name}, "name": "config"}]})
}

/// All applications say how they are after so many changes.
async fn all_say(installation: &mut Installation, apps: &[App], changes: usize) -> Position {
    let mut end = Position::start();
    for some in apps.chunks(OF_RECORD / 10) {
        let words: Vec<Observed> =
            some.iter().flat_map(|app| app.objects(changes)).map(|body| seen(&body)).collect();
        end = installation.says(words).await;
    }
    end
}

async fn tree(indexer: &Indexer, environment: EnvironmentId, at: Option<Moment>) -> EnvironmentTree {
    indexer.ask(&ShowEnvironmentTree { environment, at, todays_rules: false }).await.unwrap()
}

/// Prints how long the slowest and the middle question took.
async fn print_times(
    what: &str,
    (world, indexer): (&World, &Indexer),
    environment: EnvironmentId,
    moments: Vec<Option<Moment>>,
) {
    let mut times: Vec<Duration> = Vec::new();
    let mut objects = 0;
    for at in moments {
        let begun = world.clock.monotonic();
        objects = tree(indexer, environment, at).await.health.objects;
        times.push(world.clock.monotonic().saturating_sub(begun));
    }
    let first = times.first().copied().unwrap_or_default();
    times.sort();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    println!(
        "{objects} objects, {what}: first {first:.1?}, middle {middle:.1?}, slowest {:.1?}",
        times.last().unwrap()
    );
}

/// Prints how long questions about the past take, where tests may take long.
#[tokio::test(flavor = "multi_thread")]
async fn trees_of_the_past_by_their_size() {
    if !testkit::tests_are_long() {
        return;
    }
    let mut installation = Installation::new();
    let world = installation.world.clone();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    for (namespace, objects) in [("small", 1_000), ("large", 20_000)] {
        let apps: Vec<App> = (0..objects / 10)
            .map(|number| App { cluster: 0, namespace, name: format!("app-{number:05}") })
            .collect();
        let position = all_say(&mut installation, &apps, 0).await;
        indexer.covers(&position).await;
        let decided = installation.deploys(namespace, &[namespace]).await;
        indexer.covers(&decided).await;
        let environment = EnvironmentId::derive(installation.project, namespace);
        testkit::eventually(super::running::DEADLINE, || async {
            let tree = indexer.ask(&ShowEnvironmentTree { environment, at: None, todays_rules: false }).await;
            tree.map(|_| ()).map_err(|refusal| refusal.message)
        })
        .await;
        let then = installation.now_later().await;
        let time = |after: i64| Some(Moment::Time(then.plus_millis(after)));
        print_times("now", (&world, &indexer), environment, vec![None; ASKED]).await;
        let mut moments = Vec::new();
        for _ in 0..ASKED {
            moments.push(Some(Moment::Time(installation.now_later().await)));
        }
        print_times("unchanged since, another moment each time", (&world, &indexer), environment, moments)
            .await;
        print_times(
            "unchanged since, the same moment",
            (&world, &indexer),
            environment,
            vec![time(0); ASKED],
        )
        .await;
        let end = all_say(&mut installation, &apps, 1).await;
        indexer.covers(&end).await;
        let moments = (0..ASKED).map(|number| time(-(number as i64))).collect();
        print_times("all changed since, another moment each time", (&world, &indexer), environment, moments)
            .await;
        let same = vec![Some(Moment::Position(position)); ASKED];
        print_times("all changed since, the same position", (&world, &indexer), environment, same).await;
    }
    indexer.stop().await;
}
