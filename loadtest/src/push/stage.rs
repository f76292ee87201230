//! One installation with one agent and one source, on which a run is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::{
    Cluster, ControlPlane, GitServer, Installation, InstallationOptions, WorkTree, eventually, free_port,
};

use super::bare::remove;
use super::watch::Watch;
use super::{LIMIT, since};

const PROJECT: &str = "bench/deploy";
/// The agent of the run; also its instance's name.
pub const AGENT: &str = "bench";
/// The source of the run.
pub const SOURCE: &str = "bench/objects";

/// For as long nothing is written before the disk counts as settled: longer than between two checkpoints.
const QUIET: Duration = Duration::from_secs(4);

/// Settings of an agent: those who have a role in a project see what runs in the cluster.
pub fn access(project: &str) -> String {
    format!(
        "allow_agent_identity: true\nuser_access:\n  access_as: {{agent: {{}}}}\n  projects:\n    - id: {project}\n"
    )
}

/// What the objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ConfigMap,
    Deployment,
    /// A custom resource that nothing but the benchmark looks after.
    Thing,
}

impl Kind {
    pub fn api(self) -> &'static str {
        match self {
            Self::ConfigMap => "/api/v1",
            Self::Deployment => "/apis/apps/v1",
            Self::Thing => "/apis/loadtest.kasbah.dev/v1",
        }
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Deployment => "deployments",
            Self::Thing => "things",
        }
    }

    pub fn name(self, number: usize) -> String {
        format!("object-{number:04}")
    }

    /// What the watch looks for: an annotation that Git has, or what a thing's controller said last.
    pub fn value(self, object: &Value) -> Option<&str> {
        let said = object.pointer("/status/conditions/0/message").filter(|_| matches!(self, Self::Thing));
        said.or_else(|| object.pointer("/metadata/annotations/loadtest~1value")).and_then(Value::as_str)
    }

    /// The object with a number.
    pub fn object(self, number: usize, value: &str) -> Value {
        let name = self.name(number);
        let metadata = json!({"name": name, "annotations": {"loadtest/value": value}});
        match self {
            Self::ConfigMap => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"value": value, "padding": "x".repeat(600)},
            }),
            Self::Deployment => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "main", "image": "example.com/nothing:1"}]},
                    },
                },
            }),
            Self::Thing => {
                json!({"apiVersion": "loadtest.kasbah.dev/v1", "kind": "Thing", "metadata": metadata})
            }
        }
    }
}

pub struct Stage {
    pub kasbah: Installation,
    agent_admin: String,
    pub cluster: Cluster,
    git: GitServer,
    tree: WorkTree,
    namespace: String,
    kind: Kind,
    pushes: usize,
}

impl Stage {
    /// A server, a repository and a connected agent whose source has no objects yet.
    pub async fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        Self::start_as(options(), plane).await
    }

    /// The same with another server.
    pub async fn start_as(options: InstallationOptions, plane: &ControlPlane) -> anyhow::Result<Self> {
        let namespace = plane.namespace("bench", false).await?;
        let git = GitServer::start()?;
        let url = git.create("deploy")?;
        let tree = WorkTree::clone(&url)?;
        let configuration = format!(
            "sources:\n  - name: objects\n    include: [\"objects/**\"]\n    namespace: {namespace}\n    interval: 10m\n{}",
            access(PROJECT)
        );
        tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration)?;
        tree.commit_and_push("configure")?;
        let mut kasbah = Installation::start(options).await?;
        kasbah.cli(["project", "create", PROJECT, "--repository", &url])?;
        git.add_webhook("deploy", kasbah.webhook(PROJECT)?)?;
        kasbah.register_agent(AGENT, PROJECT)?;
        let mut agent = kasbah.agent_command(AGENT, plane.kubeconfig(), &namespace)?;
        let agent_admin = format!("127.0.0.1:{}", free_port()?);
        agent.args(["--admin-listen", &agent_admin]);
        kasbah.start_agent_by(AGENT, agent)?;
        let stage = Self {
            kasbah,
            agent_admin,
            cluster: Cluster::clone(plane),
            git,
            tree,
            namespace,
            kind: Kind::ConfigMap,
            pushes: 1,
        };
        stage.wait_for("is configured", |source| source.get("id").is_some()).await;
        Ok(stage)
    }

    /// Ends everything and leaves nothing in the cluster for the next run's agent to see.
    pub async fn end(self) -> anyhow::Result<()> {
        let Self { kasbah, cluster, namespace, .. } = self;
        drop(kasbah);
        remove(&cluster, &[namespace]).await
    }

    /// Pushes so many objects at once; answers the time from the hook to the last one visible.
    pub async fn first_sync(&mut self, kind: Kind, count: usize) -> anyhow::Result<Duration> {
        self.kind = kind;
        for number in 0..count {
            self.write(number, "first")?;
        }
        let watch = Watch::start(&self.cluster, &self.namespace, kind).await?;
        let (start, commit) = self.push("first").await?;
        let seen = watch.sees_many(count, "first").await?;
        self.synced(&commit).await;
        Ok(seen.duration_since(start).unwrap_or_default())
    }

    /// Changes one object after the other; answers the times from the hook to visible.
    pub async fn changes(&mut self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let watch = Watch::start(&self.cluster, &self.namespace, self.kind).await?;
        let mut times = Vec::new();
        for number in 0..count {
            // Other than in any call before: what is as it was is not written.
            let value = format!("change-{}", self.pushes);
            self.write(0, &value)?;
            let (start, commit) = self.push(&value).await?;
            let seen = watch.sees(&self.kind.name(0), &value).await?;
            times.push(seen.duration_since(start).unwrap_or_default());
            if number % 10 == 9 {
                self.synced(&commit).await;
            }
        }
        Ok(times)
    }

    /// Pushes a commit that changes no object; answers how many writes the API server saw because of it.
    pub async fn writes_of_an_unchanged_push(&mut self) -> anyhow::Result<f64> {
        self.tree.write("README.md", format!("{:?}", SystemTime::now()))?;
        let before = self.writes().await?;
        let (_, commit) = self.push("nothing").await?;
        self.synced(&commit).await;
        Ok(self.writes().await? - before)
    }

    /// Writes of ConfigMaps that the API server has counted.
    async fn writes(&self) -> anyhow::Result<f64> {
        let requests = self.requests().await?;
        let writes = requests.iter().filter(|request| {
            request.resource == "configmaps" && !matches!(request.verb.as_str(), "GET" | "LIST" | "WATCH")
        });
        Ok(writes.map(|request| request.count).sum())
    }

    /// Every request that the API server has counted.
    pub async fn requests(&self) -> anyhow::Result<Vec<Counted>> {
        let metrics = self.cluster.send(http::Method::GET, "/metrics", None).await?;
        let text = metrics.body.as_str().context("metrics are text")?;
        Ok(text.lines().filter_map(Counted::parse).collect())
    }

    /// The agent's metrics.
    pub fn agent_page(&self) -> anyhow::Result<String> {
        testkit::admin_page(&self.agent_admin, "/metrics")
    }

    /// Requests that the agent counted, watches and its Lease aside.
    pub fn agent_requests(&self) -> anyhow::Result<f64> {
        let text = self.agent_page()?;
        let attempts = |kind: &str| -> anyhow::Result<f64> {
            let series = format!("kasbah_agent_api_requests_total{{kind=\"{kind}\",");
            let lines = text.lines().filter(|line| line.starts_with(&series));
            let values = lines.filter_map(|line| line.rsplit_once(' '));
            values.map(|(_, value)| Ok(value.parse::<f64>()?)).sum()
        };
        let asked = attempts("read")? + attempts("dry_run")? + attempts("write")?;
        anyhow::ensure!(asked > 0.0, "the agent shows no requests: {text}");
        Ok(asked)
    }

    /// Bytes in the server's data folder.
    pub fn disk_bytes(&self) -> anyhow::Result<u64> {
        folder_bytes(&self.kasbah.data())
    }

    /// The same once nothing has been written for a while: what exports and the index write comes later than the sync that it is about.
    pub async fn settled_disk_bytes(&self) -> anyhow::Result<u64> {
        let end = Instant::now() + LIMIT;
        let (mut bytes, mut since) = (self.disk_bytes()?, Instant::now());
        while since.elapsed() < QUIET {
            ensure!(Instant::now() < end, "the server does not stop writing");
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = self.disk_bytes()?;
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
        }
        Ok(bytes)
    }

    fn write(&self, number: usize, value: &str) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.kind.object(number, value))?;
        self.tree.write(&format!("objects/{}.json", self.kind.name(number)), text)
    }

    /// Writes a file of the source, without a push.
    pub fn write_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.tree.write(&format!("objects/{name}"), text)
    }

    /// Removes a file of the source, without a push.
    pub fn remove_file(&self, name: &str) -> anyhow::Result<()> {
        self.tree.remove(&format!("objects/{name}"))
    }

    /// The namespace of the source's objects.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Pushes; answers when the hook started, and the commit.
    pub async fn push(&mut self, message: &str) -> anyhow::Result<(SystemTime, String)> {
        let commit = self.tree.commit_and_push(message)?;
        self.pushes += 1;
        let hook = eventually(LIMIT, || async {
            let found = self.git.pushes().into_iter().find(|push| push.after == commit);
            found.map(|push| push.hook_started).context("the hook has not told of the push")
        });
        Ok((hook.await, commit))
    }

    /// Waits until a commit is synced.
    pub async fn synced(&self, commit: &str) {
        self.wait_for("is synced", |source| {
            source.get("synced_commit").and_then(Value::as_str) == Some(commit)
        })
        .await;
    }

    async fn wait_for(&self, what: &str, is: impl Fn(&Value) -> bool) {
        let start = SystemTime::now();
        eventually(LIMIT, || async {
            let source = self.kasbah.json(["source", "show", SOURCE])?;
            ensure!(is(&source), "the source never {what} after {:?}: {source:#}", since(start));
            Ok(())
        })
        .await;
    }
}

/// One line of `apiserver_request_total`.
pub struct Counted {
    pub verb: String,
    pub resource: String,
    pub count: f64,
}

impl Counted {
    fn parse(line: &str) -> Option<Self> {
        let (labels, count) = line.strip_prefix("apiserver_request_total{")?.split_once("} ")?;
        let label = |name: &str| {
            let rest = labels.split_once(&format!("{name}=\""))?.1;
            Some(rest.split('"').next()?.to_owned())
        };
        Some(Self { verb: label("verb")?, resource: label("resource")?, count: count.parse().ok()? })
    }
}

/// The programs as they ship, the server's release build and the agent's own profile; for a first look, those that were built with
/// this one.
pub fn options() -> InstallationOptions {
    InstallationOptions {
        agent_program: built("agent", "kasbah-agent"),
        server_program: built("release", "kasbah"),
        ..InstallationOptions::default()
    }
}

/// A program that ships with this profile, if it is built.
pub fn built(profile: &str, name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let folder = if folder.ends_with("quick") { folder.to_owned() } else { folder.parent()?.join(profile) };
    Some(folder.join(name)).filter(|path| path.is_file())
}

/// Bytes of all files below a folder.
pub fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        bytes += if metadata.is_dir() { folder_bytes(&entry.path())? } else { allocated(&metadata) };
    }
    Ok(bytes)
}

/// What a file takes on the disk: sparse and preallocated tails count as the disk counts them.
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    metadata.blocks() * 512
}
