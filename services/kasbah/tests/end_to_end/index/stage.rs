//! A cluster of the test's own with an agent whose owner may use it, and questions to the index.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, FakeNodes, eventually};

use crate::scene::{AGENT, LIMIT, Scene};

/// Those who have a role in the project use the cluster's API, and so see what runs there.
pub const ACCESS: &str = "allow_agent_identity: true\nuser_access:\n  access_as: {agent: {}}\n  projects:\n    - id: shop/deploy\n";

pub struct Stage {
    pub scene: Scene,
    _nodes: FakeNodes,
    plane: ControlPlane,
}

impl Stage {
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with further lines after the source's entry: of it, or keys beside `gitops`.
    pub async fn start_with(more: &str) -> Self {
        Self::start_on_nodes(&[], more).await
    }

    /// The same with files that say what the nodes do.
    pub async fn start_on_nodes(said: &[&Path], more: &str) -> Self {
        let plane = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
        let nodes = FakeNodes::start(&plane, 2, said).await.unwrap();
        let scene = Scene::start_on(Cluster::clone(&plane), &format!("{more}{ACCESS}")).await;
        Self { scene, _nodes: nodes, plane }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.plane
    }

    pub fn namespace(&self) -> &str {
        &self.scene.namespace
    }

    pub fn start_agent(&mut self) {
        let (cluster, namespace) = (self.plane.kubeconfig().to_owned(), self.scene.namespace.clone());
        self.scene.kasbah.start_agent("agent", AGENT, &cluster, &namespace).unwrap();
    }

    pub fn cli(&self, arguments: &[&str]) -> Result<String> {
        self.scene.kasbah.cli(arguments)
    }

    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        self.scene.kasbah.json(arguments)
    }

    /// What `kasbah get` finds.
    pub fn get(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let found = self.json(&[&["get"], arguments].concat())?;
        Ok(found.as_array().context("no list")?.clone())
    }

    /// Waits until an object of the namespace has that health, and gives it.
    pub async fn health_becomes(&self, object: &str, state: &str) -> Value {
        eventually(LIMIT, || async {
            let found = self.get(&[object, "-n", self.namespace()])?;
            let one = found.first().context("not found")?.clone();
            ensure!(
                one["health"]["state"] == state,
                "{object} is not {state}: {one:#}; {}",
                self.scene.why()
            );
            Ok(one)
        })
        .await
    }

    /// Pushes a Deployment `web` of two pods, and waits until it is there.
    pub async fn deploy(&self, image: &str, more: &str) {
        let commit = self.push_deployment(image, more);
        self.scene.synced(&commit).await;
    }

    /// Pushes it, with a ConfigMap: a source without any file would be held.
    pub fn push_deployment(&self, image: &str, more: &str) -> String {
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {{app: web}}\n  template:\n    metadata:\n      labels: {{app: web}}\n    spec:\n      {more}\n      containers:\n        - {{name: web, image: \"{image}\"}}\n"
        );
        self.scene.tree.write("manifests/web.yaml", text).unwrap();
        self.scene.tree.write("manifests/settings.yaml", Scene::config_map("settings", "1")).unwrap();
        self.scene.tree.commit_and_push(image).unwrap()
    }

    /// See [`Scene::fail_to_pull`].
    pub async fn fail_to_pull(&self, image: &str) -> String {
        self.scene.fail_to_pull(image).await
    }

    /// See [`Scene::say_of_pod`].
    pub async fn say_of_pod(&self, image: &str, container: Value) -> String {
        self.scene.say_of_pod(image, container).await
    }

    /// Makes or changes a ConfigMap by hand.
    pub async fn config_map(&self, name: &str, value: &str) {
        let manifest = Scene::config_map(name, value);
        let arguments = ["apply", "-n", self.namespace(), "-f", "-"];
        self.cluster().kubectl_with_input(arguments, &manifest).await.unwrap();
    }

    pub async fn delete(&self, object: &str) {
        self.cluster().kubectl(["delete", object, "-n", self.namespace()]).await.unwrap();
    }

    /// What a stopped server's index lies in is gone.
    pub fn lose_the_index(&self) {
        let folder = self.scene.kasbah.data().join("resource-index");
        assert!(folder.is_dir(), "no {}", folder.display());
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// What the index answers of the namespace's history: the same for as long as nothing happens there.
    pub fn answers(&self) -> Vec<Value> {
        let ns = self.namespace();
        let questions: [&[&str]; 3] =
            [&["history", "-n", ns], &["get", "-n", ns], &["show", "configmap/stays", "-n", ns]];
        questions
            .iter()
            .map(|question| {
                let mut answer = self.json(question).unwrap();
                // Of when it is, not of what.
                if let Some(answer) = answer.as_object_mut() {
                    answer.remove("as_of");
                }
                answer
            })
            .collect()
    }
}

/// What stands at a place in each item of a list.
pub fn names<'a>(list: &'a Value, place: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item.pointer(place).unwrap().as_str().unwrap()).collect()
}
