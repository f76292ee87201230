//! Every view that the page's router knows: with content that its writers made hostile, and as somebody from another organization.

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::{drive_chromium, eventually};

use super::environment::{HOSTILE, PRODUCTION, hostile_environment};
use super::{HOSTILE as HOSTILE_IMAGE, given, script};
use crate::index::Stage;
use crate::receiver::receiver_with;
use crate::scene::{AGENT, LIMIT, PROJECT};

const SHARED: &str = include_str!("every_view.mjs");
const TEXT: &str = include_str!("hostile.mjs");
const STRANGER: &str = include_str!("stranger.mjs");
/// The page's router: a view that is added there is visited here.
const ROUTER: &str = include_str!("../../../../console/web/src/app.tsx");

/// What would be more than text in a page that is careless, with a word by which it is found.
fn hostile(word: &str) -> String {
    format!("<img src=x onerror=document.title=name>{word}")
}

/// Words of [`hostile`] texts that somebody must see, or nothing would be tested.
const SEEN: [&str; 13] = [
    "h-annotation",
    "h-answer",
    "h-condition",
    "h-environment",
    "h-event",
    "h-file",
    "h-label",
    "h-manager",
    "h-message",
    "h-reason",
    "h-role",
    "h-token",
    "h-value",
];

/// Everything that has a page of its own.
fn ids(stage: &Stage, environment: &str) -> Value {
    json!({
        "environment": environment,
        "source": stage.scene.source().unwrap()["id"],
        "agent": stage.scene.agent_id(AGENT),
        "namespace": stage.namespace(),
    })
}

/// Objects whose writers make everything hostile that they can choose; gives the UIDs of those to be opened.
async fn hostile_objects(stage: &Stage) -> Vec<String> {
    let namespace = stage.namespace();
    let api = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [],
        "metadata": {"name": hostile("h-role")},
    });
    stage.cluster().create_object(&roles, &role).await.unwrap();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "hostile-map",
            "annotations": {"note": hostile("h-annotation"), "example.com/label": hostile("h-label")},
        },
        "data": {"value": hostile("h-value")},
    });
    let apply =
        ["apply", "-n", namespace, "--server-side", "--field-manager", &hostile("h-manager"), "-f", "-"];
    stage.cluster().kubectl_with_input(apply, &map.to_string()).await.unwrap();
    stage.push_deployment(HOSTILE_IMAGE, "nodeSelector: {kubernetes.io/hostname: no-such-node}");
    let waiting = json!({"reason": hostile("h-reason"), "message": hostile("h-message")});
    let pod =
        stage.say_of_pod(HOSTILE_IMAGE, json!({"restartCount": 1, "state": {"waiting": waiting}})).await;
    let conditions = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "Hostile", "message": hostile("h-condition")},
    ]}});
    let (named, patch) = (format!("pod/{pod}"), conditions.to_string());
    let patched =
        ["patch", &named, "-n", namespace, "--subresource=status", "--type=strategic", "-p", &patch];
    stage.cluster().kubectl(patched).await.unwrap();
    let uid = |object: Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let pod_uid = uid(stage.cluster().get(&format!("{}/{pod}", api("pods"))).await.unwrap());
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": hostile("h-cause"), "message": hostile("h-event"),
        "metadata": {"name": format!("{pod}.hostile")},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": pod_uid},
    });
    stage.cluster().create_object(&api("events"), &event).await.unwrap();
    let map = uid(stage.cluster().get(&format!("{}/hostile-map", api("configmaps"))).await.unwrap());
    vec![pod_uid, map]
}

/// Hostile words of people and programs that reach Kasbah without the cluster or Git.
fn hostile_words(stage: &Stage) {
    stage.cli(&["token", "issue", "--name", &hostile("h-token"), "--token-only"]).unwrap();
    let of = ["--env", "review/one", "--project", PROJECT, "--agent", AGENT, "--namespace", "default"];
    let commit = ["--ref", &hostile("h-ref"), "--sha", &"5a".repeat(20), "--id-only"];
    let id = stage.cli(&[&["deployment", "start"], &of[..], &commit[..]].concat()).unwrap();
    stage.cli(&["deployment", "fail", id.trim(), "--reason", &hostile("h-environment")]).unwrap();
    let url = refusing_webhook(&hostile("h-answer"));
    stage.cli(&["subscription", "create", "hostile-answers", "--webhook", &url]).unwrap();
}

/// A webhook whose receiver refuses everything in these words.
fn refusing_webhook(words: &str) -> String {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{words}",
        words.len()
    );
    format!("{}/hook", receiver_with(move |_, _| answer.clone()))
}

/// Waits until the receiver has refused an event; gives the subscription's id.
async fn refused(stage: &Stage) -> Value {
    eventually(LIMIT, || async {
        let shown = stage.scene.kasbah.json(["subscription", "show", "hostile-answers"])?;
        ensure!(shown.to_string().contains("h-answer"), "nothing was refused: {shown:#}");
        Ok(shown["id"].clone())
    })
    .await
}

/// Waits until a push is rejected whose file has a hostile name.
async fn rejected(stage: &Stage) {
    let name = hostile("h-file");
    stage.scene.tree.write(&format!("manifests/{name}.yaml"), "kind: [\n").unwrap();
    stage.scene.tree.commit_and_push(&hostile("h-commit")).unwrap();
    eventually(LIMIT, || async {
        let source = stage.scene.source()?;
        ensure!(source.to_string().contains("h-file"), "not rejected: {source:#}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_others_write_is_text_in_every_view() {
    let stage = Stage::start_with(PRODUCTION).await;
    let environment = hostile_environment(&stage).await;
    let objects = hostile_objects(&stage).await;
    hostile_words(&stage);
    rejected(&stage).await;
    let mut ids = ids(&stage, &environment);
    ids["subscription"] = refused(&stage).await;
    let more = json!({ "router": ROUTER, "ids": ids, "objects": objects, "expected": SEEN });
    let given = given(&stage.scene.kasbah, &more);
    let driven = script(&format!("{SHARED}\n{TEXT}"));
    let mut seen = drive_chromium(&driven, &given).await.unwrap();
    let visited = seen.as_object_mut().unwrap().remove("visited").unwrap();
    println!("{visited:#}");
    assert_eq!(seen, json!({ "unseen": [], "wrong": [], "problems": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_sees_nothing_in_any_view() {
    let stage = Stage::start_with(PRODUCTION).await;
    let environment = hostile_environment(&stage).await;
    let kasbah = &stage.scene.kasbah;
    let elsewhere = kasbah.json(["organization", "create", "elsewhere", "--owner", "eve"]).unwrap();
    let commit = stage.scene.source().unwrap()["synced_commit"].as_str().unwrap().to_owned();
    let uid = stage.cluster().get(&stage.scene.path("hostile")).await.unwrap()["metadata"]["uid"].clone();
    let more = json!({
        "router": ROUTER,
        "ids": ids(&stage, &environment),
        "objects": [uid],
        "stranger": elsewhere["owner_token"]["secret"],
        "secrets": [&commit[..8], HOSTILE],
    });
    let given = given(kasbah, &more);
    let seen = drive_chromium(&script(&format!("{SHARED}\n{STRANGER}")), &given).await;
    let expected = json!({ "ownerSees": true, "told": [], "answered": [], "visited": true, "problems": [] });
    assert_eq!(seen.unwrap(), expected);
}
