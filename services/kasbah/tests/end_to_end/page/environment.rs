//! The page of an environment: its objects as they change, at another moment, and what is done with them through the gateway.

use std::io::Write as _;

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::{Folder, drive_chromium, eventually};

use super::{ENOUGH, given, place, script, seen_enough};
use crate::cluster_api::Person;
use crate::index::{ACCESS, Stage};
use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

const ENVIRONMENT: &str = include_str!("environment.mjs");
const LOGS: &str = include_str!("logs.mjs");
/// What the source says: it deploys into production, of which all objects of the namespace are.
pub const PRODUCTION: &str = "    environment: {name: production}\n";
/// Values that would be more than text in a page that is careless.
pub const HOSTILE: &str = "<img src=x onerror=document.title=name><script>document.title=1</script>";

/// What the browser has to tell.
fn all_was_seen() -> Value {
    json!({
        "tree": ["web", "hostile"],
        "keyboard": "ReplicaSet",
        "wholeTrees": 1,
        "board": { "squares": 2, "ready": "100 % ready" },
        "lane": true,
        "drawer": "made-by-hand",
        "values": true,
        "yaml": true,
        "past": { "isThere": false, "says": true },
        "back": true,
        "missing": true,
        "images": 0,
        "problems": [],
        "violations": [],
    })
}

/// Lets people use the agent's own namespace, which only an entry that names it does, within some bounds; waits until they may where there are none.
pub(super) async fn let_in(stage: &Stage, more: &str, bounds: &str) {
    let namespaces = format!("      namespaces: [{}]\n", stage.namespace());
    let configuration =
        Scene::configuration(stage.namespace(), &format!("{more}{ACCESS}{namespaces}{bounds}"));
    stage.scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    stage.scene.tree.commit_and_push("let people in").unwrap();
    if bounds.is_empty() {
        let person = Person::owner(&stage.scene.kasbah, AGENT);
        let arguments = ["get", "pods", "-n", stage.namespace()];
        eventually(LIMIT, || async { person.kubectl(&arguments).await }).await;
    }
}

/// An environment of two pods and a hostile ConfigMap; gives its id.
pub async fn hostile_environment(stage: &Stage) -> String {
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let_in(stage, PRODUCTION, "").await;
    stage.cli(&["env", "set", "production", "--project", PROJECT, "--group-by", "namespace"]).unwrap();
    stage.config_map("hostile", HOSTILE).await;
    eventually(LIMIT, || async {
        let found = stage.get(&["configmap/hostile", "--env", "production"])?;
        ensure!(!found.is_empty(), "not of the environment");
        Ok(())
    })
    .await;
    let shown = stage.json(&["env", "show", "production", "--project", PROJECT]).unwrap();
    shown["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_seen_as_it_changes_at_another_moment_and_acted_upon() {
    let stage = Stage::start_with(PRODUCTION).await;
    let kasbah = &stage.scene.kasbah;
    let environment = hostile_environment(&stage).await;
    let given = given(kasbah, &json!({ "environment": environment, "hostile": HOSTILE }));
    let changes = async {
        seen_enough(kasbah, "tree seen").await;
        stage.config_map("made-by-hand", "1").await;
        seen_enough(kasbah, "change seen").await;
        stage.config_map("made-by-hand", "2").await;
        seen_enough(kasbah, "restarted").await;
        let_in(&stage, PRODUCTION, "      verbs: [get, list, watch]\n").await;
    };
    let driven = script(ENVIRONMENT);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), changes);
    assert_eq!(seen.unwrap(), all_was_seen());
    let deployment = format!("/apis/apps/v1/namespaces/{}/deployments/web", stage.namespace());
    let restarted = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
    eventually(LIMIT, || async {
        let found = stage.cluster().get(&deployment).await?;
        ensure!(found.pointer(restarted).is_some_and(Value::is_string), "not restarted: {found:#}");
        Ok(())
    })
    .await;
}

/// What each pod has written: the second line steers a terminal.
const WRITTEN: &str = "2026-01-31T12:00:00.000000001Z stdout F begun\n";
const LATER: &str = "2026-01-31T12:00:02.000000001Z stdout F written later\n";

/// A title and colours for a terminal with a hostile text, a link that a terminal would open, and a line of a megabyte.
fn hostile_lines() -> String {
    let line = |second: usize, text: &str| format!("2026-01-31T12:00:01.{second:09}Z stderr F {text}\n");
    [
        line(1, &format!("\u{1b}]0;stolen\u{7}\u{1b}[31m{HOSTILE}\u{1b}[0m")),
        line(2, "\u{1b}]8;;https://evil.example/\u{1b}\\linked\u{1b}]8;;\u{1b}\\ by a terminal"),
        line(3, &format!("long{}", "x".repeat(1_000_000))),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_straight_from_the_cluster_and_are_text() {
    let folder = Folder::temporary().unwrap();
    let (log, nodes) = (folder.path().join("pod.log"), folder.path().join("nodes.yaml"));
    std::fs::write(&log, format!("{WRITTEN}{}", hostile_lines())).unwrap();
    let spec = json!({"logs": [{"logsFile": log, "follow": true}]});
    let all = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", "metadata": {"name": "all"}, "spec": spec});
    std::fs::write(&nodes, all.to_string()).unwrap();
    let stage = Stage::start_on_nodes(&[nodes.as_path()], "").await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let_in(&stage, "", "").await;
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "path": place(&stage.scene), "hostile": HOSTILE, "enough": ENOUGH }));
    let writes = async {
        seen_enough(kasbah, ENOUGH).await;
        let mut log = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        log.write_all(LATER.as_bytes()).unwrap();
    };
    let driven = script(LOGS);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), writes);
    let expected = json!({
        "begun": 2,
        "escapes": 0,
        "linked": ["linked by a terminal"],
        "links": 0,
        "isCut": true,
        "pods": 2,
        "filtered": true,
        "times": true,
        "isStraight": true,
        "images": 0,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
}
