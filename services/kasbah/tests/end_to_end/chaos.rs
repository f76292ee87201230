//! kill -9 of the server, the agent and the API server while pushes go on. The oracle is the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testkit::{Audit, ControlPlane, ControlPlaneOptions, User, eventually};

use crate::scene::{AGENT, LIMIT, Scene};

const PUSHES: usize = 50;
/// Between these the pushes do not wait for the cluster.
const SETTLES_EVERY: usize = 10;
const NAMES: u64 = 8;
const AGENT_USER: &str = "kasbah-agent-user";

/// A small seeded generator, so that a failing run can be had again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What Git said over time.
#[derive(Default)]
struct History {
    now: BTreeMap<String, String>,
    values: BTreeMap<String, BTreeSet<String>>,
    removed: BTreeSet<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_random_points_the_cluster_still_ends_at_the_last_commit() {
    let seed = std::env::var("KASBAH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        u64::try_from(
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() & 0xffff_ffff,
        )
        .unwrap()
            | 1
    });
    println!("seed: KASBAH_SEED={seed}");
    let mut dice = Dice(seed);
    let mut plane = ControlPlane::start(ControlPlaneOptions {
        audit: Audit::Policy(audit_policy()),
        users: vec![User::new(AGENT_USER, &["system:masters"])],
        workloads: false,
        ..ControlPlaneOptions::default()
    })
    .await
    .unwrap();
    let mut scene = Scene::start_on(plane.user(AGENT_USER).unwrap(), "").await;
    let mut history = History::default();
    for number in 0..PUSHES {
        let commit = push(&scene, &mut history, &mut dice, number);
        tokio::time::sleep(Duration::from_millis(dice.roll(120))).await;
        strike(&mut plane, &mut scene, &mut dice).await;
        if number % SETTLES_EVERY == SETTLES_EVERY - 1 {
            settled(&scene, &history, &commit, seed).await;
        }
    }
    let commit = empty(&scene, &mut history);
    settled(&scene, &history, &commit, seed).await;
    scene.kasbah.cli(["log", "verify"]).unwrap();
    let audit = plane.audit_log().unwrap();
    check_writes(&audit, &history, seed);
}

/// Changes, adds or removes one ConfigMap.
fn push(scene: &Scene, history: &mut History, dice: &mut Dice, number: usize) -> String {
    let name = format!("c{}", dice.roll(NAMES));
    if history.now.len() > 3 && history.now.contains_key(&name) && dice.roll(3) == 0 {
        remove(scene, history, name);
    } else {
        let value = format!("v{number}");
        scene.write_config_map(&name, &value);
        history.now.insert(name.clone(), value.clone());
        history.values.entry(name).or_default().insert(value);
    }
    scene.tree.commit_and_push(&format!("push {number}")).unwrap()
}

fn remove(scene: &Scene, history: &mut History, name: String) {
    scene.tree.remove(&format!("manifests/{name}.yaml")).unwrap();
    history.now.remove(&name);
    history.removed.insert(name);
}

/// Removes every object but one, so that there is something to prune whatever the dice said.
fn empty(scene: &Scene, history: &mut History) -> String {
    let names: Vec<_> = history.now.keys().skip(1).cloned().collect();
    for name in names {
        remove(scene, history, name);
    }
    scene.tree.commit_and_push("all but one go").unwrap()
}

/// Waits until the source stands at this commit, and the cluster with it.
async fn settled(scene: &Scene, history: &History, commit: &str, seed: u64) {
    eventually(LIMIT * 2, || async {
        let source = scene.source()?;
        anyhow::ensure!(source["synced_commit"] == commit, "seed {seed}: {source:#}");
        anyhow::ensure!(
            in_cluster(scene).await? == history.now,
            "seed {seed}: the cluster is not at {commit}"
        );
        Ok(())
    })
    .await;
}

async fn strike(plane: &mut ControlPlane, scene: &mut Scene, dice: &mut Dice) {
    match dice.roll(8) {
        0 => {
            scene.kasbah.kill_server();
            scene.kasbah.start_server().await.unwrap();
        }
        1 => {
            scene.kasbah.kill_agent("agent");
            let kubeconfig = scene.cluster.kubeconfig().to_owned();
            scene.kasbah.start_agent("agent", AGENT, &kubeconfig, &scene.namespace.clone()).unwrap();
        }
        2 => {
            plane.kill_api_server();
            plane.start_api_server().await.unwrap();
        }
        _ => {}
    }
}

async fn in_cluster(scene: &Scene) -> anyhow::Result<BTreeMap<String, String>> {
    let list = scene.cluster.get(&format!("/api/v1/namespaces/{}/configmaps", scene.namespace)).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items
        .iter()
        .map(|item| (text(item, "/metadata/name"), text(item, "/data/value")))
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect())
}

/// What the agent writes, whatever it is, with both bodies; only its Lease and questions about its own rights are left out.
/// Requests stand there before they are answered, too: a killed API server has done what it never said.
fn audit_policy() -> Value {
    let left_out = json!([
        {"group": "coordination.k8s.io", "resources": ["leases"]},
        {"group": "authorization.k8s.io"},
    ]);
    let writes = ["create", "update", "patch", "delete", "deletecollection"];
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["ResponseStarted"],
        "rules": [
            {"level": "None", "resources": left_out},
            {"level": "RequestResponse", "users": [AGENT_USER], "verbs": writes},
            {"level": "None"},
        ],
    })
}

/// Each write of the agent matches what was pushed, each delete an object that it applied, by its UID.
fn check_writes(audit: &[Value], history: &History, seed: u64) {
    let (asked, answered): (Vec<&Value>, Vec<&Value>) = audit
        .iter()
        .filter(|entry| !text(entry, "/requestURI").contains("dryRun"))
        // The user's other requests are this test's own.
        .filter(|entry| text(entry, "/userAgent").starts_with("kasbah-agent/"))
        .partition(|entry| entry["stage"] == "RequestReceived");
    let answers: BTreeSet<String> = answered
        .iter()
        .filter(|entry| tells_what_was_done(entry))
        .map(|entry| text(entry, "/auditID"))
        .collect();
    let unanswered: BTreeSet<String> = asked
        .iter()
        .filter(|entry| entry["verb"] == "patch" && !answers.contains(&text(entry, "/auditID")))
        .map(|entry| text(entry, "/objectRef/name"))
        .collect();
    let (mut applied, mut deletes) = (BTreeMap::<String, BTreeSet<String>>::new(), 0);
    for entry in answered {
        assert_eq!(text(entry, "/objectRef/resource"), "configmaps", "seed {seed}: {entry:#}");
        let name = text(entry, "/objectRef/name");
        match text(entry, "/verb").as_str() {
            // The agent was killed before the API server had read what it asked for.
            "patch" if entry["requestObject"].is_null() && !tells_what_was_done(entry) => {}
            "patch" => {
                let value = text(entry, "/requestObject/data/value");
                let pushed = history.values.get(&name).is_some_and(|values| values.contains(&value));
                assert!(pushed, "seed {seed}: {name}={value} was never pushed: {entry:#}");
                applied.entry(name).or_default().insert(text(entry, "/responseObject/metadata/uid"));
            }
            "delete" => {
                let uid = text(entry, "/requestObject/preconditions/uid");
                assert!(!uid.is_empty(), "seed {seed}: a delete without a UID: {entry:#}");
                assert!(history.removed.contains(&name), "seed {seed}: {name} never left Git: {entry:#}");
                let ours = applied.get(&name).is_some_and(|uids| uids.contains(&uid));
                assert!(
                    ours || unanswered.contains(&name),
                    "seed {seed}: {name} was deleted, and the agent never applied what has the UID {uid}: {}",
                    told(audit, &name)
                );
                deletes += 1;
            }
            verb => panic!("seed {seed}: {verb} by the agent: {entry:#}"),
        }
    }
    for name in history.now.keys() {
        let known = applied.contains_key(name) || unanswered.contains(name);
        assert!(known, "seed {seed}: {name} is there, and the agent never applied it");
    }
    assert!(deletes >= 1, "seed {seed}: the oracle saw no delete among {} entries", audit.len());
}

/// A request whose sender was killed ends as a fault of the server (5xx, or a panic without any code), whether etcd has written or not.
fn tells_what_was_done(answer: &Value) -> bool {
    answer["stage"] == "ResponseComplete"
        && answer.pointer("/responseStatus/code").and_then(Value::as_u64).is_some_and(|code| code < 500)
}

/// What the audit log has about an object, a line each.
fn told(audit: &[Value], name: &str) -> String {
    let about = audit.iter().filter(|entry| text(entry, "/objectRef/name") == name);
    let lines = about.map(|entry| {
        let parts =
            ["/stageTimestamp", "/stage", "/verb", "/requestURI", "/responseObject/metadata/uid", "/auditID"];
        format!("\n  {} {}", parts.map(|part| text(entry, part)).join(" "), entry["responseStatus"])
    });
    lines.collect()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
