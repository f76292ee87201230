//! Two processes of each service on one NATS server, a repository, and as many registered agents as are wanted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use events::AgentId;
use futures::{StreamExt as _, TryStreamExt as _};
use rustls::ClientConfig;
use serde_json::{Value, json};
use testkit::{GitServer, Installation, InstallationOptions, NatsServer, WorkTree};
use tunnel::agent::{Target, Transport};
use tunnel::handshake::Token;

use super::{bare, usage};

const PROJECT: &str = "bench/fleet";
/// Processes of each service.
const EACH: usize = 2;
const GATEWAYS: [&str; EACH] = ["tunnel-gateway-1", "tunnel-gateway-2"];
/// Requests of the API under way while agents are registered.
const REGISTERED_AT_ONCE: usize = 32;

pub struct Stage {
    kasbah: Installation,
    tree: WorkTree,
    tokens: Vec<Token>,
    /// How agents speak to gateways. One for all their lives: tickets are for whom it trusts.
    client: Arc<ClientConfig>,
    pushes: usize,
    _git: GitServer,
    _nats: NatsServer,
}

fn name(number: usize) -> String {
    format!("agent-{number:05}")
}

impl Stage {
    pub async fn start(agents: usize) -> anyhow::Result<Self> {
        let nats = NatsServer::start_as_shipped().await?;
        let git = GitServer::start()?;
        let url = git.create("fleet")?;
        let tree = WorkTree::clone(&url)?;
        let configuration = "sources:\n  - name: shop\n    include: [\"objects/**\"]\n    namespace: shop\n    interval: 10m\n";
        for number in 0..agents {
            tree.write(&format!(".kasbah/agents/{}/config.yaml", name(number)), configuration)?;
        }
        write_object(&tree, 0)?;
        tree.commit_and_push("configure all agents")?;
        let kasbah = Installation::start(InstallationOptions {
            each_service: Some((EACH, vec![nats.shipped_url("{service}")])),
            ..crate::push::options()
        });
        let kasbah = kasbah.await?;
        kasbah.cli(["project", "create", PROJECT, "--repository", &url])?;
        git.add_webhook("fleet", kasbah.webhook(PROJECT)?)?;
        let begun = Instant::now();
        let client = client_of(&kasbah)?;
        let mut stage = Self { kasbah, tree, tokens: Vec::new(), client, pushes: 0, _git: git, _nats: nats };
        let names: Vec<String> = (0..agents).map(name).collect();
        let registered =
            register(&mut stage.kasbah, PROJECT, &names).await.context("agents are registered")?;
        stage.tokens = registered.into_iter().map(|(_, token)| token).collect();
        println!("    {agents} agents registered in {:.1?}", begun.elapsed());
        Ok(stage)
    }

    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The gateways, as agents reach them.
    pub fn targets(&mut self) -> anyhow::Result<Vec<Target>> {
        targets(&mut self.kasbah, &self.client)
    }

    pub fn gateways(&mut self) -> anyhow::Result<Vec<u32>> {
        let replicas = self.kasbah.replicas()?;
        let pids: Vec<u32> =
            GATEWAYS.iter().filter_map(|name| replicas.process(name)).map(testkit::Process::pid).collect();
        ensure!(pids.len() == GATEWAYS.len(), "a gateway has ended");
        Ok(pids)
    }

    pub fn resident(&mut self) -> anyhow::Result<u64> {
        usage::resident(&self.gateways()?)
    }

    pub fn processor_time(&mut self) -> anyhow::Result<Duration> {
        usage::processor_time(&self.gateways()?)
    }

    /// Changes the one object that all agents want; the commit, and when the push had ended.
    pub fn push(&mut self) -> anyhow::Result<(String, Instant)> {
        self.pushes += 1;
        write_object(&self.tree, self.pushes)?;
        let commit = self.tree.commit_and_push("change")?;
        Ok((commit, Instant::now()))
    }

    /// The commit that is there.
    pub fn commit(&self) -> anyhow::Result<String> {
        Ok(self.tree.git(&["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// `kill -9` on the first gateway.
    pub fn kill_gateway(&mut self) -> anyhow::Result<()> {
        self.kasbah.replicas()?.kill(GATEWAYS[0])
    }

    /// Both gateways anew.
    pub async fn restart_gateways(&mut self) -> anyhow::Result<()> {
        let replicas = self.kasbah.replicas()?;
        for name in GATEWAYS {
            replicas.stop(name)?;
        }
        for name in GATEWAYS {
            replicas.start_again(name).await?;
        }
        Ok(())
    }
}

/// Registers agents of a project; their ids and tokens.
pub async fn register(
    kasbah: &mut Installation,
    project: &str,
    names: &[String],
) -> anyhow::Result<Vec<(AgentId, Token)>> {
    let token = std::fs::read_to_string(kasbah.replicas()?.owner_token()?)?;
    let client = testkit::client_trusting(&std::fs::read(kasbah.authority())?)?;
    let url = format!("{}/api/v1/agents", kasbah.api());
    let register = |name: &String| {
        let body = json!({ "name": name, "project": project });
        let request = client.post(&url).bearer_auth(token.trim()).json(&body);
        async move {
            let answer = request.send().await?;
            let status = answer.status();
            let registered: Value = answer.json().await?;
            let text = |pointer: &str| registered.pointer(pointer).and_then(Value::as_str);
            let secret = text("/token/secret").with_context(|| format!("{status}: {registered}"))?;
            Ok((text("/agent/id").context("no agent id")?.parse()?, Token::new(secret)))
        }
    };
    futures::stream::iter(names).map(register).buffered(REGISTERED_AT_ONCE).try_collect().await
}

/// The gateways themselves: a balancer would need three more descriptors for each agent.
pub fn targets(kasbah: &mut Installation, client: &Arc<ClientConfig>) -> anyhow::Result<Vec<Target>> {
    let gateways = kasbah.replicas()?.gateways();
    let target = |gateway: std::net::SocketAddr| Target {
        host: gateway.ip().to_string(),
        port: gateway.port(),
        transport: Transport::Tls(Arc::clone(client)),
    };
    Ok(gateways.into_iter().map(target).collect())
}

/// How agents speak to an installation's gateways.
pub fn client_of(kasbah: &Installation) -> anyhow::Result<Arc<ClientConfig>> {
    bare::client(&std::fs::read_to_string(kasbah.authority())?, &[tunnel::settings::ALPN])
}

fn write_object(tree: &WorkTree, value: usize) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop"}, "data": {"value": value.to_string()},
    });
    tree.write("objects/shop.yaml", object.to_string())
}
