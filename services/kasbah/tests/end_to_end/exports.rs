//! Exported events of a real installation: by webhook, over HTTP, and in a copy of its log on NATS.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use testkit::{NatsServer, client_trusting, eventually, program};

use crate::receiver::receiver_with;
use crate::scene::{LIMIT, PROJECT, Scene};

/// What the source says that deploys into production.
const PRODUCTION: &str = "    environment: {name: production}\n";

/// What a receiver of webhooks got.
type Got = Arc<Mutex<Vec<Value>>>;

/// A receiver that takes everything.
fn receiver() -> (String, Got) {
    let got = Got::default();
    let sink = Arc::clone(&got);
    let url = receiver_with(move |_, body| {
        sink.lock().unwrap().push(serde_json::from_slice(body).unwrap());
        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned()
    });
    (format!("{url}/hook"), got)
}

/// The installation's exported events behind a position.
async fn exported(scene: &Scene, token: &str, from: &str) -> Result<Vec<Value>> {
    let url = format!("{}/api/events?from={from}", scene.kasbah.api().replace("https://", "http://"));
    let answer = client_trusting(b"")?.get(url).bearer_auth(token).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{status}: {text}");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Validates the data of events by the schemas that the same server serves.
async fn as_the_schemas_say(scene: &Scene, events: &[Value]) -> Result<()> {
    let client = client_trusting(b"")?;
    let server = scene.kasbah.api().replace("https://", "http://");
    let mut validators: BTreeMap<&str, jsonschema::Validator> = BTreeMap::new();
    for event in events {
        let name = event["type"].as_str().context("a type")?;
        if !validators.contains_key(name) {
            let answer = client.get(format!("{server}/docs/events/schemas/{name}.json")).send().await?;
            let schema: Value = answer.error_for_status()?.json().await?;
            // Here, all data can be given.
            let schema = json!({ "$defs": schema["$defs"], "allOf": [schema["anyOf"][0]] });
            validators.insert(name, jsonschema::validator_for(&schema).map_err(|error| anyhow!("{error}"))?);
        }
        let errors: Vec<String> =
            validators[name].iter_errors(&event["data"]).map(|error| error.to_string()).collect();
        ensure!(errors.is_empty(), "{errors:?}: {event:#}");
    }
    ensure!(validators.len() >= 10, "a run has events of many types: {:?}", validators.keys());
    Ok(())
}

fn number(event: &Value) -> u64 {
    event["exportsequence"].as_u64().unwrap()
}

/// Waits until a receiver has an event of a sync that ended after so many events.
async fn finished(got: &Got, after: usize) {
    eventually(LIMIT, || {
        let events = got.lock().unwrap().clone();
        let is_there = events.iter().skip(after).any(|event| event["type"] == "kasbah.sync.finished");
        std::future::ready(if is_there { Ok(()) } else { Err(format!("{events:#?}")) })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_reaches_a_webhook_and_positions_survive_a_move_to_nats() {
    let mut scene = Scene::start_with(PRODUCTION).await;
    scene.write_config_map("web", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    let (url, got) = receiver();
    let create = ["subscription", "create", "alerts", "--webhook", &url, "--types", "kasbah.sync.*"];
    let of = ["--project", PROJECT, "--environment", "production"];
    let created = scene.kasbah.cli(create.iter().chain(&of)).unwrap();
    assert!(created.contains("whsec_") && !created.contains("/hook"), "{created}");
    scene.write_config_map("web", "2");
    let second = scene.tree.commit_and_push("second").unwrap();
    scene.synced(&second).await;
    finished(&got, 0).await;
    let events = got.lock().unwrap().clone();
    let environment = scene.kasbah.json(["env", "show", "production", "--project", PROJECT]).unwrap();
    assert!(events.iter().all(|event| event["environment"] == environment["id"]), "{events:#?}");
    let listed = scene.kasbah.cli(["subscription", "ls"]).unwrap();
    assert!(listed.contains("active") && listed.contains("BEHIND") && listed.contains("LAG"), "{listed}");
    let paused = scene.kasbah.json(["subscription", "pause", "alerts"]).unwrap();
    assert_eq!(paused["state"], "paused", "{paused:#}");
    let shown = scene.kasbah.cli(["subscription", "show", "alerts"]).unwrap();
    assert!(shown.contains("paused by user:"), "{shown}");
    let resumed = scene.kasbah.json(["subscription", "resume", "alerts"]).unwrap();
    assert_eq!(resumed["state"], "active", "{resumed:#}");

    let token = scene.kasbah.cli(["token", "issue", "--name", "reader", "--token-only"]).unwrap();
    let token = token.trim().to_owned();
    let before = exported(&scene, &token, "start").await.unwrap();
    as_the_schemas_say(&scene, &before).await.unwrap();
    let position = before[before.len() / 2]["position"].as_str().unwrap().to_owned();
    scene.kasbah.stop_server().unwrap();
    let sent = got.lock().unwrap().len();
    let (nats, work) = (NatsServer::start_as_shipped().await.unwrap(), tempfile::tempdir().unwrap());
    let key = work.path().join("master.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let to = nats.shipped_url("kasbah");
    let mut copy = Command::new(program("kasbah").unwrap());
    copy.env("KASBAH_MASTER_KEY_FILE", &key).args(["log", "copy", "--from"]).arg(scene.kasbah.data());
    let copied = copy.args(["--to", &to]).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let on_nats = ["--nats", &to, "--master-key-file", key.to_str().unwrap()];
    let options = on_nats.map(str::to_owned).to_vec();
    scene.kasbah.start_server_with(options).await.unwrap();
    scene.write_config_map("web", "3");
    let third = scene.tree.commit_and_push("third").unwrap();
    scene.synced(&third).await;
    // In the copy the cursor is lost: what was sent is sent again, and then what is new.
    finished(&got, sent * 2).await;
    let all = exported(&scene, &token, "start").await.unwrap();
    let numbers: Vec<u64> = all.iter().map(number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gap and no double");
    assert_ne!(all[0]["exportlog"], all[all.len() - 1]["exportlog"]);
    let behind = exported(&scene, &token, &position).await.unwrap();
    assert_eq!(behind.first().map(number), Some(number(&before[before.len() / 2]) + 1));
    assert!(behind.iter().all(|event| event["type"] != "kasbah.export.gap"));
    scene.kasbah.stop_server().unwrap();
}
