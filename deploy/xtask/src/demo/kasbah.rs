//! Kasbah as the demo drives it: its programs and a command line, nothing that a person could not type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{
    ALLOWED_ON_THIS_MACHINE, NatsCluster, Process, Replicas, ReplicasOptions, Webhook, WebhookStyle,
    free_port,
};
use tokio::time::Instant;

use super::shop::Shop;
use crate::client::Client;

const ORGANIZATION: &str = "demo";
const PROJECT: &str = "souk/shop";
const AGENT: &str = "demo";
const START_LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(20);

/// The same ports at each start, so that URLs in the log stay true.
pub struct Ports {
    pub git: u16,
    api: u16,
    admin: u16,
    tunnel: u16,
    clusters: u16,
}

impl Ports {
    pub fn kept(state: &Path) -> Result<Self> {
        let path = state.join("ports.json");
        if let Ok(text) = fs::read_to_string(&path) {
            let kept: Value = serde_json::from_str(&text).context("ports.json is damaged; remove it")?;
            let port = |name: &str| {
                let kept = kept.get(name).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
                kept.with_context(|| format!("{} lacks {name}; remove it", path.display()))
            };
            return Ok(Self {
                git: port("git")?,
                api: port("api")?,
                admin: port("admin")?,
                tunnel: port("tunnel")?,
                clusters: port("clusters")?,
            });
        }
        let ports = Self {
            git: free_port()?,
            api: free_port()?,
            admin: free_port()?,
            tunnel: free_port()?,
            clusters: free_port()?,
        };
        let text = json!({
            "git": ports.git, "api": ports.api, "admin": ports.admin, "tunnel": ports.tunnel, "clusters": ports.clusters,
        });
        fs::write(&path, text.to_string()).context("cannot write ports.json")?;
        Ok(ports)
    }
}

/// The server and the agent.
pub struct Kasbah {
    agent: Option<Process>,
    server: Server,
    client: Client,
    authority: PathBuf,
    tunnel: u16,
    api: u16,
}

/// What the agent dials.
enum Server {
    /// `kasbah up`.
    One(Process),
    /// Several processes of each service on three NATS servers.
    Many(Box<Many>),
}

/// Fields drop in this order.
pub struct Many {
    pub replicas: Replicas,
    pub nats: NatsCluster,
}

/// Which servers are started.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// So many processes of each service; `kasbah up` if not given.
    pub replicas: Option<usize>,
    /// Another build of the program.
    pub program: Option<PathBuf>,
}

impl Kasbah {
    /// Starts the server and waits until its command line gets an answer.
    pub async fn start(state: &Path, ports: &Ports, shape: &Shape) -> Result<Self> {
        let data = state.join("kasbah");
        let program = shape.program.clone().map_or_else(|| testkit::program("kasbah"), Ok)?;
        let mut kasbah = match shape.replicas {
            Some(each) => Self::start_many(program, each, data, ports).await?,
            None => Self::start_one(program, state, data, ports)?,
        };
        kasbah.wait_until_it_answers().await?;
        Ok(kasbah)
    }

    fn start_one(program: PathBuf, state: &Path, data: PathBuf, ports: &Ports) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("up").arg("--data").arg(&data).args(["--organization", ORGANIZATION]);
        command.envs(ALLOWED_ON_THIS_MACHINE);
        for (option, port) in [
            ("--api-listen", ports.api),
            ("--admin-listen", ports.admin),
            ("--tunnel-listen", ports.tunnel),
            ("--clusters-listen", ports.clusters),
        ] {
            command.arg(option).arg(format!("127.0.0.1:{port}"));
        }
        let server = Process::spawn("kasbah up", command, &state.join("kasbah.log"))?;
        Ok(Self {
            agent: None,
            server: Server::One(server),
            authority: data.join("ca.crt"),
            client: client(vec![("KASBAH_DATA".to_owned(), data)])?,
            tunnel: ports.tunnel,
            api: ports.api,
        })
    }

    async fn start_many(program: PathBuf, each: usize, folder: PathBuf, ports: &Ports) -> Result<Self> {
        let nats = NatsCluster::start_as_shipped_in(&folder.join("nats")).await?;
        let options = ReplicasOptions {
            each,
            nats: nats.shipped_urls("{service}"),
            program,
            folder,
            api_port: Some(ports.api),
            tunnel_port: Some(ports.tunnel),
            clusters_port: Some(ports.clusters),
            variables: vec![("KASBAH_ORGANIZATION".to_owned(), ORGANIZATION.to_owned())],
        };
        let replicas = Replicas::start(options).await?;
        Ok(Self {
            agent: None,
            authority: replicas.authority(),
            client: client(replicas.client_variables()?)?,
            tunnel: ports.tunnel,
            api: ports.api,
            server: Server::Many(Box::new(Many { replicas, nats })),
        })
    }

    /// Where the API is, on this machine.
    pub fn api(&self) -> String {
        format!("127.0.0.1:{}", self.api)
    }

    /// The many processes, where there are many.
    pub fn many(&mut self) -> Option<&mut Many> {
        match &mut self.server {
            Server::One(_) => None,
            Server::Many(many) => Some(many),
        }
    }

    async fn wait_until_it_answers(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let end = Instant::now() + START_LIMIT;
        loop {
            ticks.tick().await;
            self.server.must_run()?;
            match self.client.call(&["project", "list"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The shop's project, made at the first start, and the webhook of its repository.
    pub fn introduce(&self, shop: &Shop) -> Result<()> {
        if self.client.call(&["project", "show", PROJECT]).is_err() {
            self.client.call(&["project", "create", PROJECT, "--repository", &shop.url()])?;
        }
        let webhook = self.client.json(&["project", "webhook", PROJECT])?;
        let text = |name: &str| {
            let text = webhook.get(name).and_then(Value::as_str).map(str::to_owned);
            text.with_context(|| format!("the webhook has no {name}"))
        };
        shop.tell(Webhook {
            url: text("url")?,
            style: WebhookStyle::Plain,
            secret: text("secret")?,
            authority: fs::read_to_string(&self.authority)
                .context("cannot read the certificate authority")?,
        })
    }

    /// Registers the agent at the first start, keeps its token in a file that only this user may read beside the root key that it
    /// pins, and starts it.
    pub fn start_agent(&mut self, state: &Path, kubeconfig: &Path) -> Result<()> {
        let (token, root_key) = (state.join("agent.token"), state.join("root-key"));
        if !token.exists() {
            let registered =
                self.client.call(&["agent", "register", AGENT, "--project", PROJECT, "-o", "json"])?;
            let registered: Value =
                serde_json::from_str(&registered).context("what was registered is no JSON")?;
            let text = |pointer: &str| {
                registered.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
            };
            fs::write(&root_key, text("/root_key")?).context("cannot write root-key")?;
            testkit::write_private(&token, text("/token/secret")?)?;
        }
        let mut command = Command::new(testkit::program("kasbah-agent")?);
        command.arg("--server").arg(format!("127.0.0.1:{}", self.tunnel));
        command.arg("--ca-file").arg(&self.authority).arg("--token-file").arg(&token);
        command.arg("--root-key-file").arg(&root_key).arg("--kubeconfig").arg(kubeconfig);
        self.agent = Some(Process::spawn("kasbah-agent", command, &state.join("agent.log"))?);
        Ok(())
    }

    /// The command line, which knows server, authority and token.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    pub fn must_run(&mut self) -> Result<()> {
        self.server.must_run()?;
        self.agent.as_mut().map_or(Ok(()), Process::must_run)
    }

    /// Both are asked at once: what the agent still has to say, it says while the server drains.
    pub fn stop(mut self) -> Result<()> {
        let agent = self.agent.take().map(|mut agent| {
            agent.signal(Signal::TERM);
            agent
        });
        self.server.stop()?;
        agent.map_or(Ok(()), |mut agent| agent.terminate(GRACE).map(|_| ()))
    }
}

fn client(variables: Vec<(String, PathBuf)>) -> Result<Client> {
    Ok(Client { program: testkit::program("kasbah")?, variables })
}

impl Server {
    fn must_run(&mut self) -> Result<()> {
        match self {
            Self::One(server) => server.must_run(),
            Self::Many(many) => many.replicas.must_run(),
        }
    }

    fn stop(&mut self) -> Result<()> {
        match self {
            Self::One(server) => server.terminate(GRACE).map(|_| ()),
            Self::Many(many) => many.replicas.stop_all(),
        }
    }
}
