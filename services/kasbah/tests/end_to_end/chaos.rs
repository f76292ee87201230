//! kill -9 of the server, the agent and the API server while pushes go on. The oracle is the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use testkit::{Audit, ControlPlane, ControlPlaneOptions, User, eventually};

use crate::scene::{AGENT, LIMIT, Scene};

const PUSHES: usize = 50;
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
        audit: Audit::Requests,
        users: vec![User::new(AGENT_USER, &["system:masters"])],
        workloads: false,
        ..ControlPlaneOptions::default()
    })
    .await
    .unwrap();
    let mut scene = Scene::start_on(plane.user(AGENT_USER).unwrap(), "").await;
    let mut history = History::default();
    let mut commit = String::new();
    for number in 0..PUSHES {
        commit = push(&scene, &mut history, &mut dice, number);
        tokio::time::sleep(Duration::from_millis(dice.roll(120))).await;
        strike(&mut plane, &mut scene, &mut dice).await;
    }
    scene.kasbah.cli(["source", "sync", &format!("{AGENT}/shop")]).unwrap_or_default();
    eventually(LIMIT * 2, || async {
        let source = scene.source()?;
        anyhow::ensure!(source["synced_commit"] == commit.as_str(), "seed {seed}: {source:#}");
        anyhow::ensure!(
            in_cluster(&scene).await? == history.now,
            "seed {seed}: the cluster is not at {commit}"
        );
        Ok(())
    })
    .await;
    scene.kasbah.cli(["log", "verify"]).unwrap();
    let audit = plane.audit_log().unwrap();
    check_writes(&audit, &history, seed);
}

/// Changes, adds or removes one ConfigMap.
fn push(scene: &Scene, history: &mut History, dice: &mut Dice, number: usize) -> String {
    let name = format!("c{}", dice.roll(NAMES));
    if history.now.len() > 3 && history.now.contains_key(&name) && dice.roll(3) == 0 {
        scene.tree.remove(&format!("manifests/{name}.yaml")).unwrap();
        history.now.remove(&name);
        history.removed.insert(name);
    } else {
        let value = format!("v{number}");
        scene.write_config_map(&name, &value);
        history.now.insert(name.clone(), value.clone());
        history.values.entry(name).or_default().insert(value);
    }
    scene.tree.commit_and_push(&format!("push {number}")).unwrap()
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
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Ok(items
        .iter()
        .map(|item| (text(item, "/metadata/name"), text(item, "/data/value")))
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect())
}

/// Each write of the agent matches what was pushed, each delete an object that it applied, by its UID.
fn check_writes(audit: &[Value], history: &History, seed: u64) {
    let text = |entry: &Value, pointer: &str| {
        entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (mut applied, mut applies, mut deletes) = (BTreeMap::<String, BTreeSet<String>>::new(), 0, 0);
    for entry in audit {
        let of_agent =
            text(entry, "/user/username") == AGENT_USER && text(entry, "/objectRef/resource") == "configmaps";
        if !of_agent
            || text(entry, "/requestURI").contains("dryRun")
            || text(entry, "/stage") != "ResponseComplete"
        {
            continue;
        }
        let name = text(entry, "/objectRef/name");
        match text(entry, "/verb").as_str() {
            "patch" => {
                let value = text(entry, "/requestObject/data/value");
                let pushed = history.values.get(&name).is_some_and(|values| values.contains(&value));
                assert!(pushed, "seed {seed}: {name}={value} was never pushed: {entry:#}");
                applied.entry(name).or_default().insert(text(entry, "/responseObject/metadata/uid"));
                applies += 1;
            }
            "delete" => {
                let uid = text(entry, "/requestObject/preconditions/uid");
                assert!(history.removed.contains(&name), "seed {seed}: {name} never left Git: {entry:#}");
                assert!(applied.get(&name).is_some_and(|uids| uids.contains(&uid)), "seed {seed}: {entry:#}");
                deletes += 1;
            }
            "get" | "list" | "watch" => {}
            verb => panic!("seed {seed}: {verb} by the agent: {entry:#}"),
        }
    }
    assert!(
        applies >= 10 && deletes >= 1,
        "seed {seed}: the oracle saw {applies} applies and {deletes} deletes"
    );
}
