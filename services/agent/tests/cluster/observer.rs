//! What an agent tells of objects, against what the API server has.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::link::AgentService;
use bytes::Bytes;
use events::configuration::{Mode, ObservePattern, ObserveRules};
use events::observation::{Gone, ObjectBody, Observed, SeenObject};
use events::{ObjectIdentity, Sha256};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::json;
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, Proxy, eventually};
use tunnel::wire::{Acknowledged, Batch, EventFrame, FrameDecoder, path};
use world::World;
use world::spawn::TaskHandle;

use crate::kubeconfig;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};
use crate::rights::agent_with;

/// What a server makes of it.
#[derive(Default)]
struct Index {
    seen: Acknowledged,
    objects: BTreeMap<String, (u64, ObjectIdentity, Sha256)>,
    heard: Vec<Observed>,
}

impl Index {
    fn take(&mut self, batch: Batch) {
        let expected = if self.seen.epoch == batch.epoch { self.seen.sequence + 1 } else { 1 };
        assert_eq!(batch.first, expected, "object changes of epoch {} follow without a gap", batch.epoch);
        if self.seen.epoch != batch.epoch {
            self.objects.values_mut().for_each(|(stated, ..)| *stated = 0);
        }
        self.seen = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        for (sequence, observation) in (batch.first..).zip(batch.observations) {
            self.apply(sequence, &observation.what);
            self.heard.push(observation.what);
        }
    }

    fn apply(&mut self, sequence: u64, what: &Observed) {
        match what {
            Observed::ObjectSeen { object } => {
                let SeenObject { identity, uid, digest, .. } = object.as_ref();
                self.objects.insert(uid.clone(), (sequence, identity.clone(), *digest));
            }
            Observed::ObjectKept { identity, uid, digest } => {
                self.objects.insert(uid.clone(), (sequence, identity.clone(), *digest));
            }
            Observed::ObjectGone { uid, .. } => drop(self.objects.remove(uid)),
            Observed::KindListed { of, since, .. } => self.objects.retain(|_, (stated, identity, _)| {
                let is_of = identity.kind == of.kind
                    && identity.group == of.group
                    && (of.namespace.is_empty() || of.namespace == identity.namespace);
                !is_of || *stated >= *since
            }),
            Observed::KindDropped { of, .. } => {
                self.objects
                    .retain(|_, (_, identity, _)| identity.kind != of.kind || identity.group != of.group);
            }
            _ => {}
        }
    }
}

/// Reads object changes, as a gateway would.
pub struct Follower {
    index: Arc<Mutex<Index>>,
    service: AgentService,
    task: TaskHandle,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub fn start(rig: &Rig) -> Self {
        Self::go_on(rig, Arc::default())
    }

    fn go_on(rig: &Rig, index: Arc<Mutex<Index>>) -> Self {
        let service = rig.process.service.clone();
        let reading = read(service.clone(), Arc::clone(&index));
        let task = World::real().spawner.spawn("object changes", Box::pin(reading));
        Self { index, service, task }
    }

    /// Waits until what was reported of these kinds is what the API server has.
    async fn equals(&self, cluster: &Cluster, lists: &[(&str, &str, String)]) {
        eventually(DEADLINE, || async {
            let mut is = BTreeMap::new();
            for (api_version, kind, path) in lists {
                is.extend(listed(cluster, api_version, kind, path).await?);
            }
            let told = self.objects(lists);
            anyhow::ensure!(told == is, "told {told:#?}, is {is:#?}");
            Ok(())
        })
        .await;
    }

    fn objects(&self, of: &[(&str, &str, String)]) -> BTreeMap<String, Sha256> {
        let index = self.index.lock();
        let kinds = |identity: &ObjectIdentity| of.iter().any(|(_, kind, _)| *kind == identity.kind);
        let objects = index.objects.iter().filter(|(_, (_, identity, _))| kinds(identity));
        objects.map(|(uid, (_, _, digest))| (uid.clone(), *digest)).collect()
    }

    pub async fn hears<T>(&self, from: usize, what: &str, find: impl Fn(&Observed) -> Option<T>) -> T {
        eventually(DEADLINE, || {
            let index = self.index.lock();
            let heard = index.heard.get(from..).unwrap_or_default();
            std::future::ready(heard.iter().find_map(&find).ok_or_else(|| format!("no {what} in {heard:#?}")))
        })
        .await
    }

    pub fn heard(&self) -> usize {
        self.index.lock().heard.len()
    }

    async fn body(&self, digest: &Sha256) -> (StatusCode, Bytes) {
        let request = Request::get(format!("{}{digest}", path::OBJECT_BODIES)).body(Full::default()).unwrap();
        let (parts, body) = self.service.clone().answer::<Full<Bytes>>(request).await.unwrap().into_parts();
        (parts.status, body.collect().await.unwrap().to_bytes())
    }
}

async fn read(service: AgentService, index: Arc<Mutex<Index>>) {
    let seen = index.lock().seen;
    let request = Request::get(format!("{}?after={seen}", path::OBJECT_CHANGES))
        .body(Full::<Bytes>::default())
        .unwrap();
    let mut body = service.clone().answer(request).await.unwrap().into_body();
    let mut decoder = FrameDecoder::default();
    while let Some(frame) = body.frame().await {
        decoder.push(&frame.unwrap().into_data().unwrap());
        while let Some(frame) = decoder.next_frame().unwrap() {
            let EventFrame::Batch(batch) = frame else { continue };
            index.lock().take(batch);
            let seen = index.lock().seen;
            let body = Full::new(Bytes::from(events::encode(&seen).unwrap()));
            let request = Request::builder()
                .method(Method::PUT)
                .uri(path::OBJECT_CHANGES_ACKNOWLEDGED)
                .body(body)
                .unwrap();
            service.clone().answer(request).await.unwrap();
        }
    }
}

/// Digests by UID of what the API server has.
async fn listed(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
    path: &str,
) -> anyhow::Result<BTreeMap<String, Sha256>> {
    let list = cluster.get(path).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let digests = items.into_iter().map(|mut object| {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        (uid, objects::observed::observe(object).digest)
    });
    Ok(digests.collect())
}

pub fn pattern(group: &str, kind: &str, namespace: &str) -> ObservePattern {
    let [group, kind, namespace] = [group, kind, namespace].map(str::to_owned);
    ObservePattern { group, kind, namespace }
}

pub fn only(include: impl IntoIterator<Item = ObservePattern>) -> ObserveRules {
    ObserveRules { include: include.into_iter().collect(), exclude: Vec::new() }
}

fn maps(namespace: &str) -> (&'static str, &'static str, String) {
    ("v1", "ConfigMap", format!("/api/v1/namespaces/{namespace}/configmaps"))
}

pub fn is_gone(name: &str) -> impl Fn(&Observed) -> Option<(String, Gone)> {
    move |one| match one {
        Observed::ObjectGone { identity, uid, why, .. } if identity.name == name => Some((uid.clone(), *why)),
        _ => None,
    }
}

fn is_seen(name: &str) -> impl Fn(&Observed) -> Option<SeenObject> {
    move |one| match one {
        Observed::ObjectSeen { object } if object.identity.name == name => Some(object.as_ref().clone()),
        _ => None,
    }
}

#[tokio::test]
async fn what_is_created_changed_and_deleted_is_told_as_it_is() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("observed", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.observe = only([pattern("*", "*", &namespace)]);
    rig.put(&[]).await;
    let follower = Follower::start(&rig);
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    for number in 0..60 {
        cluster.create_object(&collection, &config_map(&format!("m{number}"), "v")).await.unwrap();
    }
    let secrets = ("v1", "Secret", format!("/api/v1/namespaces/{namespace}/secrets"));
    let all = [maps(&namespace), secrets];
    follower.equals(&cluster, &all).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    cluster.create_object(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret).await.unwrap();
    cluster
        .kubectl(["patch", "configmap", "m1", "-n", &namespace, "-p", r#"{"data":{"key":"w"}}"#])
        .await
        .unwrap();
    cluster.kubectl(["delete", "configmap", "m2", "m3", "-n", &namespace]).await.unwrap();
    follower.equals(&cluster, &all).await;
    let (_, why) = follower.hears(0, "end of m2", is_gone("m2")).await;
    assert_eq!(why, Gone::Deleted);
    let changed = |one: &Observed| is_seen("m1")(one).filter(|seen| body(seen).contains(r#""key":"w""#));
    follower.hears(0, "change of m1", changed).await;
    // The API server counts in seconds: only a write in a later one than the object's creation is surely the newest.
    let mut value = 0;
    eventually(DEADLINE, || {
        value += 1;
        let patch = json!({"data": {"key": value.to_string()}}).to_string();
        let (cluster, follower, namespace) = (&cluster, &follower, &namespace);
        async move {
            cluster.kubectl(["patch", "configmap", "m1", "-n", namespace, "-p", &patch]).await?;
            let by_kubectl = |one: &Observed| {
                is_seen("m1")(one)?.writers.into_iter().next().filter(|by| by.manager == "kubectl-patch")
            };
            let index = follower.index.lock();
            let writer = index.heard.iter().find_map(by_kubectl);
            anyhow::ensure!(writer.is_some_and(|by| by.operation == "Update"), "not told as kubectl's");
            Ok(())
        }
    })
    .await;
    let secret = follower.hears(0, "secret", is_seen("s")).await;
    assert!(
        body(&secret).contains("password") && !format!("{secret:?}").contains("aHVudGVyMg"),
        "{secret:?}"
    );

    // The same name is another object.
    let from = follower.heard();
    let before = cluster.get(&map_path(&namespace, "m4")).await.unwrap();
    cluster.kubectl(["delete", "configmap", "m4", "-n", &namespace]).await.unwrap();
    cluster.create_object(&collection, &config_map("m4", "v")).await.unwrap();
    let (gone, _) = follower.hears(from, "end of m4", is_gone("m4")).await;
    assert_eq!(before["metadata"]["uid"], gone);
    assert_ne!(follower.hears(from, "new m4", is_seen("m4")).await.uid, gone);
    follower.equals(&cluster, &all).await;
}

fn body(seen: &SeenObject) -> &str {
    match &seen.body {
        ObjectBody::Json(body) => body,
        ObjectBody::Blob { .. } => "",
    }
}

#[tokio::test]
async fn kinds_that_come_and_go_are_followed() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("comes-and-goes", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let group = format!("g{}.example.com", rig.agent.0.simple());
    rig.observe =
        only([pattern(&group, "*", "*"), pattern("apiextensions.k8s.io", "CustomResourceDefinition", "*")]);
    rig.put(&[]).await;
    let follower = Follower::start(&rig);
    let definition = json!({"metadata": {"name": format!("baskets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "baskets", "singular": "basket",
            "kind": "Basket", "listKind": "BasketList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.create_object(definitions, &definition).await.unwrap();
    let collection = format!("/apis/{group}/v1/namespaces/{namespace}/baskets");
    let api_version = format!("{group}/v1");
    let object =
        json!({"apiVersion": api_version, "kind": "Basket", "metadata": {"name": "a"}, "spec": {"size": 3}});
    eventually(DEADLINE, || async { cluster.create_object(&collection, &object).await.map(drop) }).await;
    follower.hears(0, "basket", is_seen("a")).await;
    follower.equals(&cluster, &[(&api_version, "Basket", collection)]).await;
    cluster.kubectl(["delete", "crd", &format!("baskets.{group}")]).await.unwrap();
    let dropped = |one: &Observed| match one {
        Observed::KindDropped { of, why } if of.plural == "baskets" => Some(*why),
        _ => None,
    };
    assert_eq!(follower.hears(0, "end of the kind", dropped).await, Gone::KindGone);
    assert_eq!(follower.objects(&[("", "Basket", String::new())]).len(), 0);
}

#[tokio::test]
async fn who_may_not_see_everything_sees_its_namespaces_and_says_what_is_missing() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("blind", false).await.unwrap();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}]);
    let (mut rig, _folder) = agent_with(&cluster, &namespace, rules).await;
    rig.mode = Mode::Cluster;
    rig.observe = only([pattern("", "ConfigMap", "*"), pattern("", "Pod", "*")]);
    let source = Source::new(&rig, "shop", &namespace);
    rig.put(&[&source]).await;
    let follower = Follower::start(&rig);
    cluster.create_object(&maps(&namespace).2, &config_map("a", "v")).await.unwrap();
    follower.equals(&cluster, &[maps(&namespace)]).await;
    let blind = |plural: &'static str, namespace: String| {
        move |one: &Observed| match one {
            Observed::KindBlind { of, missing: Some(missing), .. }
                if of.plural == plural && of.namespace == namespace =>
            {
                Some((missing.verb.clone(), missing.resource.clone(), missing.namespace.clone()))
            }
            _ => None,
        }
    };
    let everywhere = follower.hears(0, "blindness", blind("configmaps", String::new())).await;
    assert_eq!(everywhere, ("list".to_owned(), "configmaps".to_owned(), String::new()));
    let pods = follower.hears(0, "blindness", blind("pods", namespace.clone())).await;
    assert_eq!(pods, ("list".to_owned(), "pods".to_owned(), namespace.clone()));
}

#[tokio::test]
async fn what_happened_while_nobody_watched_is_looked_for() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let mut plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("unwatched", false).await.unwrap();
    let proxy = Proxy::start((std::net::Ipv4Addr::LOCALHOST, plane.port()).into()).unwrap();
    let kubeconfig = plane.folder().join("through-the-proxy.kubeconfig");
    kubeconfig::at(&plane, &format!("https://{}", proxy.address()), &kubeconfig);
    let mut rig = Rig::start_as(&kubeconfig, &namespace).await;
    rig.observe = ObserveRules::default();
    rig.put(&[]).await;
    let follower = Follower::start(&rig);
    let collection = maps(&namespace).2;
    for name in ["stays", "goes"] {
        cluster_create(&plane, &collection, name).await;
    }
    follower.equals(&plane, &[maps(&namespace)].map(everywhere)).await;
    let from = follower.heard();
    proxy.shut(true);
    proxy.cut();
    plane.kubectl(["delete", "configmap", "goes", "-n", &namespace]).await.unwrap();
    cluster_create(&plane, &collection, "comes").await;
    // It forgets its history.
    plane.kill_api_server();
    plane.start_api_server().await.unwrap();
    proxy.shut(false);
    follower.hears(from, "end", is_gone("goes")).await;
    follower.hears(from, "beginning", is_seen("comes")).await;
    follower.equals(&plane, &[maps(&namespace)].map(everywhere)).await;
    let gap = |one: &Observed| match one {
        Observed::ObjectsGap { of, from, to, .. } if of.plural == "configmaps" => {
            Some((from.clone(), to.clone()))
        }
        _ => None,
    };
    let (before, behind) = follower.hears(from, "gap", gap).await;
    assert!(before.parse::<u64>().unwrap() < behind.parse().unwrap(), "{before} {behind}");
}

/// The same kind in all namespaces.
fn everywhere(
    (version, kind, _): (&'static str, &'static str, String),
) -> (&'static str, &'static str, String) {
    (version, kind, "/api/v1/configmaps".to_owned())
}

async fn cluster_create(cluster: &Cluster, collection: &str, name: &str) {
    cluster.create_object(collection, &config_map(name, "v")).await.unwrap();
}

#[tokio::test]
async fn a_large_body_is_fetched_by_its_digest() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("large", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.observe = only([pattern("", "ConfigMap", &namespace)]);
    rig.put(&[]).await;
    // Who reads and acknowledges nothing yet.
    let collection = maps(&namespace).2;
    cluster.create_object(&collection, &config_map("big", &"x".repeat(1_000_000))).await.unwrap();
    let service = rig.process.service.clone();
    let request = Request::get(path::OBJECT_CHANGES).body(Full::<Bytes>::default()).unwrap();
    let mut frames = service.answer(request).await.unwrap().into_body();
    let mut decoder = FrameDecoder::default();
    let seen = loop {
        let frame = frames.frame().await.unwrap().unwrap();
        decoder.push(&frame.into_data().unwrap());
        let mut found = None;
        while let Some(frame) = decoder.next_frame().unwrap() {
            if let EventFrame::Batch(batch) = frame {
                found = batch.observations.iter().find_map(|one| is_seen("big")(&one.what)).or(found);
            }
        }
        if let Some(found) = found {
            break found;
        }
    };
    assert!(matches!(seen.body, ObjectBody::Blob { blob: None, bytes } if bytes > 1_000_000), "{seen:?}");
    let follower = Follower { index: Arc::default(), service: rig.process.service.clone(), task: idle() };
    let (status, body) = follower.body(&seen.digest).await;
    assert_eq!((status, Sha256::of(&body)), (StatusCode::OK, seen.digest));
    assert_eq!(follower.body(&Sha256::of(b"nothing")).await.0, StatusCode::NOT_FOUND);
    let patch = r#"{"data":{"key":"small"}}"#;
    cluster.kubectl(["patch", "configmap", "big", "-n", &namespace, "-p", patch]).await.unwrap();
    assert_eq!(follower.body(&seen.digest).await.0, StatusCode::NOT_FOUND, "it is another one by now");
}

fn idle() -> TaskHandle {
    World::real().spawner.spawn("nobody", Box::pin(std::future::pending::<()>()))
}

#[tokio::test]
async fn a_new_process_states_everything_anew() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("anew", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.observe = only([pattern("", "ConfigMap", &namespace)]);
    rig.put(&[]).await;
    let collection = maps(&namespace).2;
    for name in ["stays", "goes"] {
        cluster_create(&cluster, &collection, name).await;
    }
    let follower = Follower::start(&rig);
    follower.equals(&cluster, &[maps(&namespace)]).await;
    let index = Arc::clone(&follower.index);
    drop(follower);
    rig.process.die();
    cluster.kubectl(["delete", "configmap", "goes", "-n", &namespace]).await.unwrap();
    let new = rig.another().await;
    rig.process = new;
    rig.process.holds_lease().await;
    rig.epoch += 1;
    rig.put(&[]).await;
    let follower = Follower::go_on(&rig, index);
    follower.equals(&cluster, &[maps(&namespace)]).await;
    assert_eq!(follower.index.lock().seen.epoch, 2);
}
