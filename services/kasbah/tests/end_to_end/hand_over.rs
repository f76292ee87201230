//! A source that gets another name, is split or joined, and an agent that is registered again: nothing is deleted
//! (`../shared/cases/12-source-renamed`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::{InstallationOptions, NatsServer, eventually, tests_are_long};

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// The case in a scene: its own name is that of the scene's namespace, as tests share a cluster.
struct Case {
    scene: Scene,
    on_removal: &'static str,
}

impl Case {
    fn folder() -> Option<PathBuf> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/12-source-renamed");
        if !path.is_dir() {
            eprintln!("skipped: {} is not there", path.display());
            return None;
        }
        Some(path)
    }

    /// Its manifests, not pushed yet.
    fn begin(scene: Scene, on_removal: &'static str) -> Self {
        let case = Self { scene, on_removal };
        for file in ["all.yaml", "more/extra.yaml"] {
            case.write(file, &case.text(&format!("commits/1/{file}")));
        }
        case
    }

    /// A file of the case.
    fn text(&self, file: &str) -> String {
        let text = std::fs::read_to_string(Self::folder().unwrap().join(file)).unwrap();
        text.replace("case12", &self.scene.namespace)
    }

    /// Writes a manifest.
    fn write(&self, file: &str, text: &str) {
        self.scene.tree.write(&format!("{}/{file}", self.scene.namespace), text).unwrap();
    }

    /// Pushes one of the configurations, with what becomes of objects whose source leaves.
    fn configure(&self, name: &str) {
        let text = self.text(&format!("configuration/{name}"));
        let policy = |of: &str| format!("on_removal: {of}");
        assert!(text.contains(&policy("prune")), "{text}");
        let text = text.replace(&policy("prune"), &policy(self.on_removal));
        self.scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), text).unwrap();
        self.scene.tree.commit_and_push(name).unwrap();
    }

    /// Pushes the last commit to the branch of the last configuration as well.
    fn push_branch(&self) {
        let to = format!("HEAD:refs/heads/{}-branch", self.scene.namespace);
        self.scene.tree.git(&["push", "origin", &to]).unwrap();
    }

    fn path(&self, kind: &str) -> String {
        format!("/api/v1/namespaces/{}/{kind}", self.scene.namespace)
    }

    /// UIDs by kind and name.
    async fn uids(&self) -> BTreeMap<String, String> {
        let mut uids = BTreeMap::new();
        for kind in ["configmaps", "persistentvolumeclaims", "services"] {
            let list = self.scene.cluster.get(&self.path(kind)).await.unwrap();
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
    async fn has(&self, source: &str, objects: u64) {
        let source = format!("{AGENT}/{}-{source}", self.scene.namespace);
        eventually(2 * LIMIT, || async {
            let shown = self.scene.kasbah.json(["source", "show", &source])?;
            let is_over =
                !shown["sync"]["finished_at"].is_null() && shown["sync"]["commit"] == shown["newest_commit"];
            ensure!(shown["inventory"] == objects && is_over, "{source}: {shown:#}");
            Ok(())
        })
        .await;
    }

    async fn manifest_of_cargo(&self) -> Result<Value> {
        self.scene.cluster.get(&self.path("configmaps/manifest-of-cargo")).await
    }

    /// Configurations 1 to 5 one after the other, the first two so many times; gives the UIDs, which stay.
    async fn is_renamed_split_and_joined(&self, times: usize) -> BTreeMap<String, String> {
        self.configure("1-before.yaml");
        self.has("old", 5).await;
        let before = self.uids().await;
        assert_eq!(before.len(), 4, "{before:?}");
        for _ in 0..times {
            for (file, source) in [("2-renamed.yaml", "new"), ("1-before.yaml", "old")] {
                self.configure(file);
                self.has(source, 5).await;
                assert_eq!(self.uids().await, before);
            }
        }
        self.configure("2-renamed.yaml");
        self.has("new", 5).await;
        self.configure("3-split.yaml");
        self.has("more", 1).await;
        self.has("new", 4).await;
        assert_eq!(self.uids().await, before, "split");
        self.configure("4-joined.yaml");
        self.has("new", 5).await;
        assert_eq!(self.uids().await, before, "joined");
        self.push_branch();
        self.configure("5-other-ref.yaml");
        self.has("branch", 5).await;
        assert_eq!(self.uids().await, before, "another name and another ref");
        before
    }

    fn no_prunes(&self) {
        let log = self.scene.kasbah.cli(["log", "tail", "--since", "1h"]).unwrap_or_default();
        assert!(!log.contains("object-pruned"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_another_name_and_an_agent_registered_again_delete_nothing() {
    if Case::folder().is_none() {
        return;
    }
    let mut case = Case::begin(Scene::start().await, "prune");
    let before = case.is_renamed_split_and_joined(2).await;

    let scene = &mut case.scene;
    scene.kasbah.kill_agent("agent");
    scene.kasbah.cli(["agent", "delete", AGENT]).unwrap();
    scene.kasbah.register_agent(AGENT, PROJECT).unwrap();
    let (kubeconfig, namespace) = (scene.cluster.kubeconfig().to_owned(), scene.namespace.clone());
    scene.kasbah.start_agent("again", AGENT, &kubeconfig, &namespace).unwrap();
    case.has("branch", 5).await;
    assert_eq!(case.uids().await, before, "the agent is another");
    let marks = case.manifest_of_cargo().await.unwrap();
    let agent = case.scene.agent_id(AGENT);
    let mark = marks["metadata"]["annotations"]["kasbah.dev/owner"].as_str().unwrap();
    assert!(mark.contains(&agent), "{mark} is not of {agent}");
    case.no_prunes();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_keeps_on_its_removal_belongs_to_the_next_one() {
    if Case::folder().is_none() {
        return;
    }
    let case = Case::begin(Scene::start().await, "keep");
    let before = case.is_renamed_split_and_joined(1).await;

    // The last one follows another branch.
    case.write("all.yaml", &case.text("commits/1/all.yaml").replace("hold: \"3\"", "hold: \"4\""));
    case.scene.tree.commit_and_push("another hold").unwrap();
    case.push_branch();
    eventually(LIMIT, || async {
        let map = case.manifest_of_cargo().await?;
        ensure!(map["data"]["hold"] == "4", "{map}");
        Ok(())
    })
    .await;
    assert_eq!(case.uids().await, before, "it arrives in the same object");
    case.no_prunes();
}

/// Each rename is a race between the service that reads the configuration and the one that reads the repository.
#[tokio::test(flavor = "multi_thread")]
async fn renames_delete_nothing_while_processes_of_each_service_are_killed() {
    if Case::folder().is_none() {
        return;
    }
    let (each, times) = if tests_are_long() { (3, 10) } else { (2, 3) };
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let each_service = Some((each, vec![nats.shipped_url("{service}")]));
    let options = InstallationOptions { each_service, ..InstallationOptions::default() };
    let cluster = testkit::shared_control_plane().await.unwrap();
    let mut case = Case::begin(Scene::start_as(options, cluster, "").await, "prune");
    case.configure("1-before.yaml");
    case.has("old", 5).await;
    let before = case.uids().await;
    for round in 0..times {
        let killed = ["delivery", "repo-poller", "config-fetcher", "tunnel-gateway"]
            .map(|service| format!("{service}-{}", round % each + 1));
        for (file, source) in [("2-renamed.yaml", "new"), ("1-before.yaml", "old")] {
            case.configure(file);
            let replicas = case.scene.kasbah.replicas().unwrap();
            for name in &killed {
                replicas.kill(name).unwrap();
                replicas.spawn_again(name).unwrap();
            }
            for name in &killed {
                replicas.ready(name).await.unwrap();
            }
            case.has(source, 5).await;
            assert_eq!(case.uids().await, before, "round {round}");
        }
    }
    case.no_prunes();
}
