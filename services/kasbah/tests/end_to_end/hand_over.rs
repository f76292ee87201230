//! A source that gets another name, is split or joined, and an agent that is registered again: nothing is deleted
//! (`../shared/cases/12-source-renamed`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::eventually;

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

fn case() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/12-source-renamed");
    if !path.is_dir() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// UIDs by kind and name.
async fn uids(scene: &Scene) -> BTreeMap<String, String> {
    let mut uids = BTreeMap::new();
    for kind in ["configmaps", "persistentvolumeclaims", "services"] {
        let list = scene.cluster.get(&format!("/api/v1/namespaces/case12/{kind}")).await.unwrap();
        for item in list["items"].as_array().unwrap() {
            let text = |key: &str| item["metadata"][key].as_str().unwrap().to_owned();
            if text("name") != "kube-root-ca.crt" {
                uids.insert(format!("{kind}/{}", text("name")), text("uid"));
            }
        }
    }
    uids
}

/// Waits until a source has so many objects, and its last sync is over.
async fn has(scene: &Scene, source: &str, objects: u64) {
    eventually(LIMIT, || async {
        let shown = scene.kasbah.json(["source", "show", &format!("{AGENT}/{source}")])?;
        let is_over =
            !shown["sync"]["finished_at"].is_null() && shown["sync"]["commit"] == shown["newest_commit"];
        ensure!(shown["inventory"] == objects && is_over, "{source}: {shown:#}");
        Ok(())
    })
    .await;
}

fn configure(scene: &Scene, file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)?;
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), text)?;
    scene.tree.commit_and_push(&file.display().to_string())
}

fn no_prunes(scene: &Scene) {
    let log = scene.kasbah.cli(["log", "tail", "--since", "1h"]).unwrap_or_default();
    assert!(!log.contains("object-pruned"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_another_name_and_an_agent_registered_again_delete_nothing() {
    let Some(case) = case() else { return };
    let mut scene = Scene::start().await;
    scene.tree.copy_from(&case.join("commits/1"), "case12").unwrap();
    let configuration = |name: &str| case.join("configuration").join(name);
    configure(&scene, &configuration("1-before.yaml")).unwrap();
    has(&scene, "case12-old", 5).await;
    let before = uids(&scene).await;
    assert_eq!(before.len(), 4, "{before:?}");

    for _ in 0..2 {
        configure(&scene, &configuration("2-renamed.yaml")).unwrap();
        has(&scene, "case12-new", 5).await;
        assert_eq!(uids(&scene).await, before);
        configure(&scene, &configuration("1-before.yaml")).unwrap();
        has(&scene, "case12-old", 5).await;
        assert_eq!(uids(&scene).await, before);
    }
    configure(&scene, &configuration("2-renamed.yaml")).unwrap();
    has(&scene, "case12-new", 5).await;
    configure(&scene, &configuration("3-split.yaml")).unwrap();
    has(&scene, "case12-more", 1).await;
    has(&scene, "case12-new", 4).await;
    assert_eq!(uids(&scene).await, before, "split");
    configure(&scene, &configuration("4-joined.yaml")).unwrap();
    has(&scene, "case12-new", 5).await;
    assert_eq!(uids(&scene).await, before, "joined");
    scene.tree.git(&["push", "origin", "HEAD:refs/heads/case12-branch"]).unwrap();
    configure(&scene, &configuration("5-other-ref.yaml")).unwrap();
    has(&scene, "case12-branch", 5).await;
    assert_eq!(uids(&scene).await, before, "another name and another ref");

    scene.kasbah.kill_agent("agent");
    scene.kasbah.cli(["agent", "delete", AGENT]).unwrap();
    scene.kasbah.register_agent(AGENT, PROJECT).unwrap();
    let (kubeconfig, namespace) = (scene.cluster.kubeconfig().to_owned(), scene.namespace.clone());
    scene.kasbah.start_agent("again", AGENT, &kubeconfig, &namespace).unwrap();
    has(&scene, "case12-branch", 5).await;
    assert_eq!(uids(&scene).await, before, "the agent is another");
    let marks: Value =
        scene.cluster.get("/api/v1/namespaces/case12/configmaps/manifest-of-cargo").await.unwrap();
    let agent = scene.agent_id(AGENT);
    let mark = marks["metadata"]["annotations"]["kasbah.dev/owner"].as_str().unwrap();
    assert!(mark.contains(&agent), "{mark} is not of {agent}");
    no_prunes(&scene);
}
