//! What most tests begin with: a server, a repository, a project, an agent with one source.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::{Cluster, GitServer, Installation, InstallationOptions, WorkTree, eventually};

/// How long anything may take on a slow machine before it is wrong.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The project of most tests.
pub const PROJECT: &str = "shop/deploy";
/// The agent of most tests.
pub const AGENT: &str = "production";

/// One installation with one repository and one agent.
pub struct Scene {
    pub kasbah: Installation,
    pub git: GitServer,
    pub tree: WorkTree,
    pub cluster: Cluster,
    pub namespace: String,
}

impl Scene {
    /// Everything up to a connected agent, with one source `shop` over `manifests/**` into a namespace of its own.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with further lines in the source's entry, indented as in [`Scene::configuration`].
    pub async fn start_with(more: &str) -> Self {
        let cluster = testkit::shared_control_plane().await.unwrap();
        Self::start_on(cluster, more).await
    }

    /// The same on a control plane of the test's own.
    pub async fn start_on(cluster: Cluster, more: &str) -> Self {
        Self::start_as(InstallationOptions::default(), cluster, more).await
    }

    /// The same with a server of the test's own kind.
    pub async fn start_as(options: InstallationOptions, cluster: Cluster, more: &str) -> Self {
        let namespace = cluster.namespace("e2e", false).await.unwrap();
        let git = GitServer::start().unwrap();
        let url = git.create("deploy").unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), Self::configuration(&namespace, more))
            .unwrap();
        tree.commit_and_push("configure the agent").unwrap();
        let mut kasbah = Installation::start(options).await.unwrap();
        kasbah.cli(["project", "create", PROJECT, "--repository", &url]).unwrap();
        git.add_webhook("deploy", kasbah.webhook(PROJECT).unwrap()).unwrap();
        kasbah.register_agent(AGENT, PROJECT).unwrap();
        kasbah.start_agent("agent", AGENT, cluster.kubeconfig(), &namespace).unwrap();
        Self { kasbah, git, tree, cluster, namespace }
    }

    /// The agent's configuration with one source.
    pub fn configuration(namespace: &str, more: &str) -> String {
        format!(
            "sources:\n  - name: shop\n    include: [\"manifests/**\"]\n    namespace: {namespace}\n    interval: 30s\n{more}"
        )
    }

    /// A ConfigMap's manifest.
    pub fn config_map(name: &str, value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
    }

    /// Writes a ConfigMap's manifest into the work tree.
    pub fn write_config_map(&self, name: &str, value: &str) {
        self.tree.write(&format!("manifests/{name}.yaml"), Self::config_map(name, value)).unwrap();
    }

    /// The id of an agent.
    pub fn agent_id(&self, agent: &str) -> String {
        let shown = self.kasbah.json(["agent", "show", agent]).unwrap();
        let id = ["/id", "/agent/id"].iter().find_map(|place| shown.pointer(place)?.as_str());
        id.expect("an id").to_owned()
    }

    /// Path of a ConfigMap in the cluster.
    pub fn path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace)
    }

    /// Waits until a ConfigMap has a value.
    pub async fn value_becomes(&self, name: &str, value: &str) {
        let path = self.path(name);
        eventually(LIMIT, || async {
            let found = self.cluster.get(&path).await.with_context(|| self.why())?;
            let now = found.pointer("/data/value").and_then(Value::as_str).unwrap_or_default().to_owned();
            ensure!(now == value, "{name} is {now:?}, not {value:?}; {}", self.why());
            Ok(())
        })
        .await;
    }

    /// Waits until a ConfigMap is gone.
    pub async fn is_gone(&self, name: &str) {
        let path = self.path(name);
        eventually(LIMIT, || async {
            ensure!(!self.cluster.exists(&path).await?, "{name} is still there; {}", self.why());
            Ok(())
        })
        .await;
    }

    /// What the next sync of a source would do, and the exit code of the command that says so.
    pub fn diff(&self, source: &str) -> (Option<i32>, Value) {
        let arguments = ["source", "diff", source, "-o", "json"];
        let output = self.kasbah.cli_command().unwrap().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let diff = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        (output.status.code(), diff)
    }

    /// The source as the command line shows it.
    pub fn source(&self) -> Result<Value> {
        self.kasbah.json(["source", "show", &format!("{AGENT}/shop")])
    }

    /// Waits until the source answers what `is` looks for.
    pub async fn source_becomes(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(LIMIT, || async {
            let source = self.source()?;
            ensure!(is(&source), "the source is not {what}: {source:#}");
            Ok(source)
        })
        .await
    }

    /// Says of one pod with that image what a kubelet says of an image that does not exist. Gives the pod's name.
    pub async fn fail_to_pull(&self, image: &str) -> String {
        let waiting = json!({"reason": "ErrImagePull", "message": format!("{image}: not found")});
        self.say_of_pod(image, json!({"restartCount": 0, "state": {"waiting": waiting}})).await
    }

    /// Says of the container of one pod with that image what a kubelet would say: none is here. Gives the pod's name.
    pub async fn say_of_pod(&self, image: &str, container: Value) -> String {
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let pod = eventually(LIMIT, || async {
            let list = self.cluster.get(&pods).await?;
            let items = list["items"].as_array().context("no pods")?;
            let new = items.iter().find(|pod| pod["spec"]["containers"][0]["image"] == image);
            let name =
                new.and_then(|pod| pod["metadata"]["name"].as_str()).context("no pod of the new image")?;
            Ok::<_, anyhow::Error>(name.to_owned())
        })
        .await;
        let mut said = json!({"name": "web", "image": image, "imageID": "", "ready": false});
        said.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let patch = json!({"status": {"containerStatuses": [said]}}).to_string();
        let named = format!("pod/{pod}");
        let arguments =
            ["patch", &named, "-n", &self.namespace, "--subresource=status", "--type=merge", "-p", &patch];
        self.cluster.kubectl(arguments).await.unwrap();
        pod
    }

    /// Waits until the cluster is at a commit, healthy.
    pub async fn synced(&self, commit: &str) -> Value {
        self.source_becomes(&format!("at {commit}"), |source| {
            source["synced_commit"] == commit && source["why"].is_null()
        })
        .await
    }

    /// Why the cluster is not where it should be, for messages.
    pub fn why(&self) -> String {
        self.source().map_or_else(
            |error| format!("{error:#}"),
            |source| format!("source says {}", source.get("why").cloned().unwrap_or_default()),
        )
    }
}
