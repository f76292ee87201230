//! What agents rely on of an API server. The simulated one and the real one keep the same laws, asked through the agent's own client.

use agent::kubernetes::call::ApplyMode;
use agent::kubernetes::{
    Accept, Answer, AnswerBody, ApiError, ApiStatus, Call, Connections, Discovery, Kube, KubeOptions,
};
use agent::lease::{Holding, LeaseKeeper, Note};
use agent::metrics::Counts;
use agent::model::managed::{covers, lost_fields, touch_mark};
use agent::model::takeover::{Whose, migrated};
use agent::model::verdict::{Verdict, judge};
use bytes::{Bytes, BytesMut};
use chassis::ShutdownTrigger;
use events::{AgentId, InstanceId, ObjectIdentity};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use world::World;

mod deployments;

use self::deployments::{
    a_generation_counts_what_the_spec_was, who_follows_sees_what_a_status_says,
    who_writes_a_status_writes_nothing_else,
};
use super::ApiServer;
use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{Executor, NodeId, Step, is_ended};
use crate::network::Internet;
use crate::process::world_of;

const TRY: ApplyMode = ApplyMode { dry_run: true, force: false };
const DO: ApplyMode = ApplyMode { dry_run: false, force: false };
const FORCE: ApplyMode = ApplyMode { dry_run: false, force: true };
const MERGE: &str = "application/merge-patch+json";

/// Whoever asks, in a namespace of its own.
struct Asking {
    kube: Kube,
    namespace: String,
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"laws": "yes"}}, "data": data})
}

fn bytes(body: &Value) -> Bytes {
    Bytes::from(body.to_string())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

fn refusal(answer: Result<Answer, ApiError>) -> ApiStatus {
    answer.unwrap_err().status().unwrap().clone()
}

impl Asking {
    async fn begin(kube: Kube, namespace: &str) -> Self {
        let body = bytes(&json!({"metadata": {"name": namespace}}));
        let call = Call::write(Method::POST, "/api/v1/namespaces".to_owned(), "application/json", body);
        assert_eq!(kube.for_lease(call).await.unwrap().status, StatusCode::CREATED);
        Self { kube, namespace: namespace.to_owned() }
    }

    fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    fn map(&self, name: &str) -> String {
        format!("{}/{name}", self.maps())
    }

    fn deployment(&self, name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace)
    }

    async fn send(&self, call: Call) -> Result<Answer, ApiError> {
        self.kube.for_lease(call).await
    }

    async fn get(&self, path: &str) -> Value {
        self.send(Call::get(path.to_owned())).await.unwrap().json().unwrap()
    }

    async fn apply(&self, object: &Value, mode: ApplyMode) -> Result<Answer, ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = if object["kind"] == json!("Deployment") { self.deployment(name) } else { self.map(name) };
        self.send(Call::apply(&path, bytes(object), mode).accept(Accept::Whole)).await
    }

    async fn applied(&self, object: &Value) -> Value {
        self.apply(object, DO).await.unwrap().json().unwrap()
    }

    /// Somebody else changes an object.
    async fn edit(&self, name: &str, patch: Value) -> Result<Answer, ApiError> {
        let path = format!("{}?fieldManager=kubectl-edit", self.map(name));
        self.send(Call::write(Method::PATCH, path, MERGE, bytes(&patch))).await
    }

    async fn follow(&self, query: &str, accept: Accept) -> Following {
        self.watch(Call::get(format!("{}?watch=1&{query}", self.maps())).accept(accept)).await
    }

    async fn watch(&self, call: Call) -> Following {
        let body = self.kube.watch(&call, 0).await.unwrap().into_body();
        Following { body, text: BytesMut::new() }
    }
}

/// A watch, as it is read.
struct Following {
    body: AnswerBody,
    /// What came of events that have not ended yet: frames end where they like.
    text: BytesMut,
}

impl Following {
    async fn event(&mut self) -> Value {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                return serde_json::from_slice(&self.text.split_to(end + 1)).unwrap();
            }
            self.text.extend_from_slice(&self.body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    }

    async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(self.event().await);
        }
        found
    }
}

async fn kinds_are_discovered(asking: &Asking) {
    let kinds = Discovery::default().refresh(&asking.kube).await.unwrap();
    let rows = [
        ("", "Namespace", "namespaces", false),
        ("", "ConfigMap", "configmaps", true),
        ("", "Secret", "secrets", true),
        ("coordination.k8s.io", "Lease", "leases", true),
        ("apps", "Deployment", "deployments", true),
    ];
    for (group, kind, plural, namespaced) in rows {
        let identity = ObjectIdentity {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        let found = kinds.find(&identity).unwrap();
        assert_eq!((found.plural.as_str(), found.namespaced), (plural, namespaced));
        assert!(found.listable && found.watchable, "{kind}");
    }
    let unknown = refusal(asking.send(Call::get("/apis/none.example/v1/things".to_owned())).await);
    assert_eq!(unknown.code, 404);
}

async fn what_is_applied_is_there_and_a_dry_run_changes_nothing(asking: &Asking) {
    let first = config_map("applied", &json!({"a": "1", "b": "2"}));
    assert_eq!(asking.apply(&first, TRY).await.unwrap().status, StatusCode::CREATED);
    let path = asking.map("applied");
    let missing = refusal(asking.send(Call::get(path.clone())).await);
    assert_eq!(
        (missing.code, missing.reason.as_str(), missing.message.as_str()),
        (404, "NotFound", "configmaps \"applied\" not found")
    );
    let answer = asking.apply(&first, DO).await.unwrap();
    assert_eq!(answer.status, StatusCode::CREATED);
    let made: Value = answer.json().unwrap();
    assert!(covers(&made, &first) && touch_mark(&made).is_some());
    let again = asking.apply(&first, DO).await.unwrap();
    assert_eq!((again.status, again.json::<Value>().unwrap()), (StatusCode::OK, made.clone()));
    let second = config_map("applied", &json!({"a": "3"}));
    let tried: Value = asking.apply(&second, TRY).await.unwrap().json().unwrap();
    assert_eq!((version(&tried), &tried["data"]), (version(&made), &json!({"a": "3"})));
    assert_eq!(asking.get(&path).await, made);
    let changed = asking.applied(&second).await;
    assert_eq!((uid(&changed), &changed["data"]), (uid(&made), &json!({"a": "3"})));
    assert!(version(&changed) > version(&made));
    assert!(covers(&changed, &second) && !covers(&changed, &first));
    let metadata = asking.send(Call::get(path).accept(Accept::Metadata)).await.unwrap();
    let metadata: Value = metadata.json().unwrap();
    assert_eq!((&metadata["kind"], &metadata["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
    assert_eq!(metadata["metadata"], changed["metadata"]);
}

async fn fields_of_others_are_conflicts(asking: &Asking) {
    let mine = config_map("shared", &json!({"key": "mine", "other": "mine"}));
    let made = asking.applied(&mine).await;
    let edited: Value = asking
        .edit("shared", json!({"data": {"key": "theirs", "more": "theirs"}}))
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_ne!(touch_mark(&edited), touch_mark(&made));
    let lost = lost_fields(&edited, &mine);
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].path.as_str(), lost[0].manager.as_str()), ("data.key", "kubectl-edit"));
    for mode in [TRY, DO] {
        let error = asking.apply(&mine, mode).await.unwrap_err();
        let status = error.status().unwrap();
        let words = "conflict with \"kubectl-edit\" using v1";
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        assert_eq!(status.message, format!("Apply failed with 1 conflict: {words}: .data.key"));
        let cause = &status.causes()[0];
        assert_eq!((cause.reason.as_str(), cause.message.as_str()), ("FieldManagerConflict", words));
        let Verdict::Conflict(taken) = judge(&error) else { panic!("{error:?}") };
        assert_eq!((taken[0].path.as_str(), taken[0].manager.as_str()), ("data.key", "kubectl-edit"));
    }
    let forced: Value = asking.apply(&mine, FORCE).await.unwrap().json().unwrap();
    assert_eq!(forced["data"], json!({"key": "mine", "other": "mine", "more": "theirs"}));
    assert!(covers(&forced, &mine) && lost_fields(&forced, &mine).is_empty());
    // What is the same is shared, and what its manager gives up stays where it is another's as well.
    asking.edit("shared", json!({"data": {"other": null}})).await.unwrap();
    let live = asking.get(&asking.map("shared")).await;
    assert_eq!(lost_fields(&live, &mine)[0].path, "data.other");
}

async fn what_kubectl_made_is_handed_over(asking: &Asking) {
    let theirs = config_map("handed", &json!({"a": "1", "gone": "1"}));
    let path = format!("{}?fieldManager=kubectl-create", asking.maps());
    let call = Call::write(Method::POST, path, "application/json", bytes(&theirs));
    let made: Value = asking.send(call).await.unwrap().json().unwrap();
    let fields = migrated(&made, "v1", Whose::Tools).unwrap();
    let patch = |version: &str| {
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ]);
        let path = format!("{}?fieldManager=kasbah", asking.map("handed"));
        Call::write(Method::PATCH, path, "application/json-patch+json", bytes(&patch))
    };
    let stale = refusal(asking.send(patch("1")).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    let handed = asking.send(patch(&version(&made).to_string())).await.unwrap();
    assert_eq!(migrated(&handed.json().unwrap(), "v1", Whose::Tools), None);
    let applied = asking.applied(&config_map("handed", &json!({"a": "1"}))).await;
    assert_eq!(applied["data"], json!({"a": "1"}));
}

async fn what_cannot_be_is_refused(asking: &Asking) {
    let nowhere = Call::apply(
        "/api/v1/namespaces/nowhere/configmaps/x",
        bytes(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nowhere"}}),
        ),
        DO,
    );
    let nowhere = refusal(asking.send(nowhere).await);
    assert_eq!((nowhere.code, nowhere.message.as_str()), (404, "namespaces \"nowhere\" not found"));
    let name = refusal(asking.apply(&config_map("X_Y", &json!({})), DO).await);
    assert_eq!((name.code, name.reason.as_str()), (422, "Invalid"));
    assert_eq!(name.causes()[0].field, "metadata.name");
    let typed = asking.apply(&config_map("typed", &json!({"key": 5})), TRY).await.unwrap_err();
    assert!(typed.to_string().starts_with("failed to create typed patch object"), "{typed}");
    assert_eq!((typed.code(), typed.is_transient()), (500, false));
    let mut fixed = config_map("fixed", &json!({"key": "a"}));
    fixed["immutable"] = json!(true);
    asking.applied(&fixed).await;
    fixed["data"] = json!({"key": "b"});
    for mode in [TRY, DO] {
        let error = asking.apply(&fixed, mode).await.unwrap_err();
        assert_eq!(judge(&error), Verdict::Immutable(vec!["data".to_owned()]), "{error:?}");
    }
}

async fn what_is_deleted_is_the_one_that_was_meant(asking: &Asking) {
    let made = asking.applied(&config_map("doomed", &json!({}))).await;
    let path = asking.map("doomed");
    let other = refusal(asking.send(Call::delete(path.clone(), "another")).await);
    assert_eq!((other.code, other.reason.as_str()), (409, "Conflict"));
    assert!(other.message.contains("UID"), "{}", other.message);
    asking.edit("doomed", json!({"metadata": {"finalizers": ["kasbah.dev/laws"]}})).await.unwrap();
    assert_eq!(asking.send(Call::delete(path.clone(), uid(&made))).await.unwrap().status, StatusCode::OK);
    let waiting = asking.get(&path).await;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    asking.edit("doomed", json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(refusal(asking.send(Call::get(path.clone())).await).code, 404);
    assert_eq!(refusal(asking.send(Call::delete(path, uid(&made))).await).code, 404);
    let made = asking.applied(&config_map("doomed", &json!({}))).await;
    let deleted = asking.send(Call::delete(asking.map("doomed"), uid(&made))).await.unwrap();
    assert_eq!(deleted.json::<Value>().unwrap()["status"], json!("Success"));
    let again = asking.applied(&config_map("doomed", &json!({}))).await;
    assert_ne!(uid(&again), uid(&made));
}

async fn lists_come_in_pages_and_by_labels(asking: &Asking) {
    for (name, label) in [("l1", "a"), ("l2", "b"), ("l3", "a"), ("l4", "c"), ("l5", "a")] {
        let mut object = config_map(name, &json!({"key": name}));
        object["metadata"]["labels"] = json!({"lists": label});
        asking.applied(&object).await;
    }
    let rows = [("lists", 5), ("lists%20in%20(a,b)", 4), ("lists%20in%20(c)", 1), ("none", 0)];
    for (selector, count) in rows {
        for accept in [Accept::Whole, Accept::MetadataList] {
            let (mut names, mut next, mut versions) = (Vec::new(), String::new(), Vec::new());
            loop {
                let query = format!("{}?limit=2&labelSelector={selector}&continue={next}", asking.maps());
                let page =
                    asking.send(Call::get(query).accept(accept)).await.unwrap().json::<Value>().unwrap();
                versions.push(version(&page));
                for item in page["items"].as_array().into_iter().flatten() {
                    assert_eq!(item["data"].is_object(), accept == Accept::Whole);
                    assert!(version(item) > 0);
                    names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
                }
                match page["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
                    Some(token) => next = agent::kubernetes::path::escape(token),
                    None => break,
                }
            }
            assert_eq!(names.len(), count, "{selector}");
            assert!(names.is_sorted() && versions.windows(2).all(|pair| pair[0] == pair[1]), "{versions:?}");
        }
    }
}

async fn who_follows_sees_each_change_in_order(asking: &Asking) {
    let query = format!("{}?labelSelector=laws&limit=500", asking.maps());
    let from = version(&asking.get(&query).await);
    let mut following = Vec::new();
    for accept in [Accept::Whole, Accept::Metadata] {
        let query =
            format!("resourceVersion={from}&labelSelector=laws&allowWatchBookmarks=true&timeoutSeconds=60");
        following.push((accept, asking.follow(&query, accept).await));
    }
    let made = asking.applied(&config_map("seen", &json!({"key": "a"}))).await;
    let changed = asking.applied(&config_map("seen", &json!({"key": "b"}))).await;
    let hidden = asking.edit("seen", json!({"metadata": {"labels": {"laws": null}}})).await.unwrap();
    asking.edit("seen", json!({"data": {"key": "unseen"}})).await.unwrap();
    let shown = asking.edit("seen", json!({"metadata": {"labels": {"laws": "no"}}})).await.unwrap();
    asking.send(Call::delete(asking.map("seen"), uid(&made))).await.unwrap();
    let (hidden, shown): (Value, Value) = (hidden.json().unwrap(), shown.json().unwrap());
    for (accept, mut following) in following {
        let seen = following.events(5).await;
        let types: Vec<&str> = seen.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
        let versions: Vec<u64> = seen.iter().map(|event| version(&event["object"])).collect();
        assert_eq!(versions[..4], [&made, &changed, &hidden, &shown].map(version));
        assert!(versions[4] > versions[3]);
        let kind = if accept == Accept::Whole { "ConfigMap" } else { "PartialObjectMetadata" };
        assert!(seen.iter().all(|event| event["object"]["kind"] == json!(kind)), "{seen:?}");
    }
    // Whoever comes later sees what was in between.
    let query = format!("resourceVersion={}&labelSelector=laws", version(&changed));
    let mut late = asking.follow(&query, Accept::Whole).await;
    assert_eq!(late.event().await["type"], json!("DELETED"));
}

async fn a_lease_is_had_by_one(asking: &Asking) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", asking.namespace);
    let lease = |holder: &str, version: Option<u64>| {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "one", "namespace": asking.namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 12, "renewTime": "2023-11-14T22:13:20.123000Z"},
        });
        if let Some(version) = version {
            lease["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        bytes(&lease)
    };
    let create = |holder| Call::write(Method::POST, path.clone(), "application/json", lease(holder, None));
    let put = |holder, version| {
        Call::write(Method::PUT, format!("{path}/one"), "application/json", lease(holder, Some(version)))
    };
    let missing = refusal(asking.send(Call::get(format!("{path}/one"))).await);
    assert_eq!(missing.message, "leases.coordination.k8s.io \"one\" not found");
    let made = asking.send(create("first")).await.unwrap();
    assert_eq!(made.status, StatusCode::CREATED);
    let exists = refusal(asking.send(create("second")).await);
    assert_eq!((exists.code, exists.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(exists.message, "leases.coordination.k8s.io \"one\" already exists");
    let made = version(&made.json().unwrap());
    let query =
        format!("{path}?watch=1&fieldSelector=metadata.name%3Done&timeoutSeconds=60&resourceVersion={made}");
    let mut following = asking.watch(Call::get(query)).await;
    let renewed: Value = asking.send(put("first", made)).await.unwrap().json().unwrap();
    // A renewal in the same words changes nothing.
    let taken: Value = asking.send(put("third", version(&renewed))).await.unwrap().json().unwrap();
    let stale = refusal(asking.send(put("second", made)).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    assert!(stale.message.ends_with("please apply your changes to the latest version and try again"));
    assert_eq!(asking.get(&format!("{path}/one")).await["spec"]["holderIdentity"], json!("third"));
    let seen = following.event().await;
    assert_eq!((&seen["type"], version(&seen["object"])), (&json!("MODIFIED"), version(&taken)));
}

/// All laws, each in a namespace of its own.
async fn every_law(kube: Kube, prefix: String) {
    let mut number = 0;
    macro_rules! laws {
        ($($law:ident),* $(,)?) => {$(
            number += 1;
            $law(&Asking::begin(kube.clone(), &format!("{prefix}-{number}")).await).await;
        )*};
    }
    laws![
        kinds_are_discovered,
        what_is_applied_is_there_and_a_dry_run_changes_nothing,
        fields_of_others_are_conflicts,
        what_kubectl_made_is_handed_over,
        what_cannot_be_is_refused,
        what_is_deleted_is_the_one_that_was_meant,
        lists_come_in_pages_and_by_labels,
        who_follows_sees_each_change_in_order,
        a_lease_is_had_by_one,
        a_generation_counts_what_the_spec_was,
        who_writes_a_status_writes_nothing_else,
        who_follows_sees_what_a_status_says,
    ];
}

/// Runs something that asks a simulated API server, by several seeds.
fn simulated<W: Future<Output = ()> + Send + 'static>(work: impl Fn(Kube, ApiServer, World) -> W) {
    for seed in 1..=3 {
        let executor = Executor::new(Dice::new(seed));
        let life = executor.start(NodeId(0));
        let world = world_of(&executor, &Internet::new(&executor), life, &MemoryDisk::default());
        let server = ApiServer::new(&executor, Box::new(|_, _| {}));
        let connections = Connections::over(&server.door(life, false), "default");
        let kube = Kube::new(connections, world.clone(), Counts::default());
        let working = work(kube, server.clone(), world);
        let (outcome, _) = executor.spawn(life, "laws", Box::pin(working));
        while !is_ended(&outcome) {
            assert_ne!(executor.step(), Step::Idle, "nothing happens any more");
        }
        assert_eq!((executor.panics(), server.lacking()), (Vec::new(), None));
    }
}

#[test]
fn the_simulated_api_server_keeps_every_law() {
    simulated(|kube, _, _| every_law(kube, "laws".to_owned()));
}

#[tokio::test]
async fn a_real_api_server_keeps_every_law() {
    let cluster = testkit::shared_control_plane().await.unwrap();
    let options = KubeOptions { kubeconfig: Some(cluster.kubeconfig().to_owned()), context: None };
    let connections = Connections::open(&World::real(), &options).await.unwrap();
    let kube = Kube::new(connections, World::real(), Counts::default());
    let namespace = cluster.namespace("laws", false).await.unwrap();
    every_law(kube, namespace).await;
}

#[test]
fn what_goes_wrong_is_said_as_a_real_one_says_it() {
    simulated(|kube, server, _| async move {
        let asking = Asking::begin(kube, "wrong").await;
        let first = asking.applied(&config_map("old", &json!({"key": "a"}))).await;
        let page = asking.get("/api/v1/namespaces?limit=1").await;
        server.forget_versions();
        asking.applied(&config_map("old", &json!({"key": "b"}))).await;
        let query = format!("resourceVersion={}", version(&first) - 1);
        let mut following = asking.follow(&query, Accept::Whole).await;
        let seen = following.event().await;
        assert_eq!((&seen["type"], &seen["object"]["code"]), (&json!("ERROR"), &json!(410)));
        let token = page["metadata"]["continue"].as_str().unwrap();
        let call = Call::get(format!("/api/v1/namespaces?limit=1&continue={token}"));
        let expired = refusal(asking.send(call).await);
        assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
        server.lose_answers(1);
        let lost = asking.apply(&config_map("lost", &json!({})), DO).await.unwrap_err();
        assert!(matches!(lost, ApiError::Unreachable { .. }), "{lost:?}");
        asking.get(&asking.map("lost")).await;
        server.fail(std::time::Duration::from_secs(3));
        // An agent's client tries again until it is over.
        asking.kube.read(Call::get(asking.map("lost"))).await.unwrap();
    });
}

#[test]
fn who_waits_for_a_lease_asks_seldom_while_versions_are_too_old() {
    simulated(|kube, server, world| async move {
        let agent = AgentId(world.new_uuid());
        let keeper = || {
            let (clock, instance) = (std::sync::Arc::clone(&world.clock), InstanceId(world.new_uuid()));
            let holding = Holding::new(clock);
            let namespace = "default".to_owned();
            LeaseKeeper::new(
                kube.clone(),
                world.clone(),
                holding,
                namespace,
                agent,
                instance,
                std::sync::Arc::new(Note::default()),
            )
        };
        let mut stops = Vec::new();
        for keeper in [keeper(), keeper()] {
            let (trigger, shutdown) = ShutdownTrigger::new();
            world.spawner.spawn("lease", Box::pin(keeper.keep(shutdown)));
            stops.push(trigger);
            world.clock.sleep(std::time::Duration::from_secs(1)).await;
        }
        // Something else happens, so that the Lease's version is older than what is forgotten.
        Asking::begin(kube, "later").await;
        server.forget_versions();
        world.clock.sleep(std::time::Duration::from_secs(60)).await;
        let told = server.fired().get(&crate::faults::Kind::VersionsForgotten).copied().unwrap_or(0);
        assert!((1..=6).contains(&told), "told {told} times");
    });
}
