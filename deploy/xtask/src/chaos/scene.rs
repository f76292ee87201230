//! What is struck, and what is worked with.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{
    Cluster, Folder, GitServer, NatsCluster, Process, Proxy, Replicas, ReplicasOptions, Webhook,
    WebhookStyle, WorkTree, write_private,
};
use tokio::time::{Instant, sleep};

use crate::client::Client;

/// Agents, each with a namespace of its own in the one cluster.
pub const AGENTS: usize = 4;
pub const PROJECT: &str = "chaos/deploy";
const EACH: usize = 2;
/// How long anything may take until it works.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Fields drop in this order.
pub struct Scene {
    pub agents: BTreeMap<String, Agent>,
    /// Between the agents and the gateways.
    pub tunnels: Proxy,
    pub replicas: Replicas,
    /// Between the services and each NATS server.
    pub ways: Vec<Proxy>,
    pub nats: NatsCluster,
    pub git: GitServer,
    pub tree: Arc<WorkTree>,
    pub cluster: Cluster,
    pub client: Client,
    pub folder: Folder,
}

/// One agent of the fleet.
pub struct Agent {
    pub namespace: String,
    pub token_file: PathBuf,
    pub token_id: String,
    pub admin: SocketAddr,
    pub process: Option<Process>,
}

impl Scene {
    /// Everything up to synced agents.
    pub async fn start(state: Option<&Path>) -> Result<Self> {
        let folder = Folder::at(state)?;
        let cluster = testkit::shared_control_plane().await?;
        let git = GitServer::start()?;
        let url = git.create("deploy")?;
        let nats = NatsCluster::start_as_shipped_in(&folder.path().join("nats")).await?;
        let mut ways = Vec::new();
        let mut addresses = Vec::new();
        for server in &nats.servers {
            let way = Proxy::start(server.address())?;
            let url = server.shipped_url("{service}");
            addresses.push(url.replace(&server.address().to_string(), &way.address().to_string()));
            ways.push(way);
        }
        let replicas = Replicas::start(ReplicasOptions {
            each: EACH,
            nats: addresses,
            program: testkit::program("kasbah")?,
            folder: folder.path().join("kasbah"),
            api_port: None,
            tunnel_port: None,
            clusters_port: None,
            variables: Vec::new(),
        })
        .await?;
        let client = Client { program: testkit::program("kasbah")?, variables: replicas.client_variables()? };
        let tunnels = Proxy::start(replicas.gateway().parse().context("the gateways' address")?)?;
        let tree = Arc::new(WorkTree::clone_kept(&url, &folder.path().join("tree"))?);
        let agents = BTreeMap::new();
        let mut scene = Self { agents, tunnels, replicas, ways, nats, git, tree, cluster, client, folder };
        scene.introduce(&url).await?;
        Ok(scene)
    }

    async fn introduce(&mut self, url: &str) -> Result<()> {
        let tree = Arc::clone(&self.tree);
        self.client.call(&["project", "create", PROJECT, "--repository", url])?;
        let webhook = self.client.json(&["project", "webhook", PROJECT])?;
        let text = |name: &str| {
            webhook
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .context("no such field of the webhook")
        };
        let authority = std::fs::read_to_string(self.replicas.authority())?;
        let (url, secret) = (text("url")?, text("secret")?);
        self.git.add_webhook("deploy", Webhook { url, style: WebhookStyle::Plain, secret, authority })?;
        for number in 0..AGENTS {
            let name = format!("agent-{number}");
            let namespace = self.cluster.namespace(&name, false).await?;
            tree.write(&configuration_file(&name), configuration(&name, &namespace, 30))?;
            tree.write(&manifest(&name, "first"), config_map("first", "0"))?;
            let registered = self.client.json(&["agent", "register", &name, "--project", PROJECT])?;
            let (token_id, secret) = issued(registered.get("token").context("no token")?)?;
            let token_file = self.folder.path().join(format!("{name}.token"));
            write_private(&token_file, &secret)?;
            let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, testkit::free_port()?));
            self.agents.insert(name, Agent { namespace, token_file, token_id, admin, process: None });
        }
        let commit = tree.commit_and_push("the fleet begins")?;
        for name in self.agents.keys().cloned().collect::<Vec<_>>() {
            self.start_agent(&name)?;
        }
        self.all_stand_at(&commit).await
    }

    /// Starts an agent's process.
    pub fn start_agent(&mut self, name: &str) -> Result<()> {
        let agent = self.agents.get_mut(name).context("no such agent")?;
        let mut command = Command::new(testkit::program("kasbah-agent")?);
        command.arg("--server").arg(self.tunnels.address().to_string());
        command.arg("--ca-file").arg(self.replicas.authority()).arg("--token-file").arg(&agent.token_file);
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig()).arg("--namespace").arg(&agent.namespace);
        command.arg("--admin-listen").arg(agent.admin.to_string());
        agent.process = Some(Process::spawn(name, command, &self.folder.path().join(format!("{name}.log")))?);
        Ok(())
    }

    /// Waits until each agent's source stands at a commit.
    pub async fn all_stand_at(&self, commit: &str) -> Result<()> {
        let end = Instant::now() + LIMIT;
        for name in self.agents.keys() {
            while let Err(behind) = self.stands_at(name, commit) {
                ensure!(Instant::now() < end, "not so within {LIMIT:?}: {behind:#}");
                sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(())
    }

    fn stands_at(&self, agent: &str, commit: &str) -> Result<()> {
        let source = self.client.json(&["source", "show", &format!("{agent}/shop")])?;
        let synced = source.get("synced_commit").and_then(Value::as_str);
        ensure!(synced == Some(commit), "{agent} is not at {commit}: {source:#}");
        Ok(())
    }
}

/// Id and secret of a token that was just issued.
pub fn issued(token: &Value) -> Result<(String, String)> {
    let text = |pointer: &str| token.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    text("/view/id").zip(text("/secret")).context("no token was issued")
}

pub fn configuration_file(agent: &str) -> String {
    format!(".kasbah/agents/{agent}/config.yaml")
}

pub fn configuration(agent: &str, namespace: &str, interval: u64) -> String {
    format!(
        "sources:\n  - name: shop\n    include: [\"{agent}/**\"]\n    namespace: {namespace}\n    interval: {interval}s\n"
    )
}

pub fn manifest(agent: &str, name: &str) -> String {
    format!("{agent}/{name}.yaml")
}

pub fn config_map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{chaos: \"yes\"}}\ndata:\n  value: \"{value}\"\n"
    )
}
