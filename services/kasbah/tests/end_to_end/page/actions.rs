//! Actions that an agent's configuration declares, and built-in ones: offered on the page and on the command line, done through the gateway, as
//! far as the cluster lets somebody.

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::{drive_chromium, eventually};

use super::environment::let_in;
use super::{given, place, script, seen_enough};
use crate::index::{Stage, create, definition};
use crate::scene::LIMIT;

const ACTIONS: &str = include_str!("actions.mjs");
const DECLARED: &str = "actions:
  - name: close
    group: harbour.example
    kind: Dock
    text: Closes the dock until somebody opens it.
    when: \"!(has(spec.closed) && spec.closed)\"
    merge: {spec: {closed: true, note: {$cel: \"metadata.name + ' is closed'\"}}}
  - name: open
    group: harbour.example
    kind: Dock
    text: Opens the dock.
    when: has(spec.closed) && spec.closed
    json: [{op: replace, path: /spec/closed, value: false}, {op: remove, path: /spec/note}]
";

/// An object of the test's namespace, as the cluster has it.
async fn spec_of(stage: &Stage, path: &str) -> anyhow::Result<Value> {
    let (group, rest) = path.split_once(' ').unwrap();
    let found =
        stage.cluster().get(&format!("/apis/{group}/namespaces/{}/{rest}", stage.namespace())).await?;
    Ok(found["spec"].clone())
}

async fn cron_job(stage: &Stage) {
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}}}});
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": template});
    let metadata = json!({"name": "nightly", "namespace": stage.namespace()});
    let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec});
    stage.cluster().kubectl_with_input(["apply", "-f", "-"], &object.to_string()).await.unwrap();
}

/// The same on the command line, and a built-in action.
async fn command_line_does_it(stage: &Stage) {
    let dock = || spec_of(stage, "harbour.example/v1 docks/low");
    let offered = stage.json(&["act", "dock/low", "-n", stage.namespace()]).unwrap();
    assert_eq!(offered["actions"][0]["name"], "open", "{offered:#}");
    assert_eq!(offered["actions"][0]["declared"], true, "{offered:#}");
    let ns = stage.namespace();
    let tried = stage.cli(&["act", "dock/low", "open", "-n", ns, "--dry-run"]).unwrap();
    assert!(tried.contains("Nothing was changed") && tried.contains("kubectl -n"), "{tried}");
    assert_eq!(dock().await.unwrap()["closed"], true);
    stage.cli(&["act", "dock/low", "open", "-n", ns]).unwrap();
    let spec = dock().await.unwrap();
    assert_eq!((&spec["closed"], &spec["note"]), (&json!(false), &Value::Null), "{spec}");
    let unknown = stage.cli(&["act", "dock/low", "sink", "-n", ns]).unwrap_err().to_string();
    assert!(unknown.contains("is not offered"), "{unknown}");
    cron_job(stage).await;
    eventually(LIMIT, || async {
        let offered = stage.json(&["act", "cronjob/nightly", "-n", ns])?;
        ensure!(offered["actions"][0]["name"] == "suspend", "{offered:#}");
        Ok(())
    })
    .await;
    stage.cli(&["act", "cronjob/nightly", "suspend", "-n", ns]).unwrap();
    assert_eq!(spec_of(stage, "batch/v1 cronjobs/nightly").await.unwrap()["suspend"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_of_the_configuration_are_offered_and_done_where_the_cluster_lets_somebody() {
    let stage = Stage::start_with(DECLARED).await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.cluster().kubectl_with_input(["create", "-f", "-"], &definition("Dock")).await.unwrap();
    create(&stage, "Dock", "low", &json!({"metres": 3}), &json!({"level": "low"})).await;
    stage.health_becomes("dock/low", "none").await;
    let_in(&stage, DECLARED, "").await;
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "path": place(&stage.scene) }));
    let changes = async {
        seen_enough(kasbah, "closed").await;
        command_line_does_it(&stage).await;
        let_in(&stage, DECLARED, "      verbs: [get, list, watch]\n").await;
        stage.cli(&["token", "issue", "--name", "bounded"]).unwrap();
    };
    let driven = script(ACTIONS);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), changes);
    let expected = json!({
        "offered": ["Close"],
        "says": true,
        "command": true,
        "then": ["Open"],
        "missing": true,
        "noShell": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
    let refused = eventually(LIMIT, || async {
        let tried = stage.cli(&["act", "dock/low", "close", "-n", stage.namespace()]);
        Ok::<_, anyhow::Error>(tried.err().ok_or_else(|| anyhow::anyhow!("not refused"))?.to_string())
    })
    .await;
    assert!(refused.contains("limited to the verbs get, list, watch, and this is patch"), "{refused}");
}
