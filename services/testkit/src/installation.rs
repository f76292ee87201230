//! A whole Kasbah from outside: the server, its agents and the command line, as a person starts them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{Folder, Process, Replicas, ReplicasOptions, Webhook, WebhookStyle, free_port, program};

/// What lets a server read Git servers of this machine that have no TLS, as those of tests and of the demo, and send webhooks to it. Variables of the
/// environment, as programs of before do not know them as options.
pub const ALLOWED_ON_THIS_MACHINE: [(&str, &str); 4] = [
    ("KASBAH_ALLOW_PRIVATE_ADDRESSES", "true"),
    ("KASBAH_ALLOW_PLAIN_HTTP", "true"),
    ("KASBAH_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES", "true"),
    ("KASBAH_WEBHOOKS_ALLOW_PLAIN_HTTP", "true"),
];

/// How long a start may take before something is wrong.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(25);

/// What an [`Installation`] is started with.
#[derive(Debug, Clone, Default)]
pub struct InstallationOptions {
    /// Where everything is kept; a temporary folder if not given.
    pub directory: Option<PathBuf>,
    /// A further address under which agents reach the gateway, which then listens on all of this machine's.
    pub reachable_at: Option<IpAddr>,
    /// Where the gateway listens; a free port if not given.
    pub tunnel_port: Option<u16>,
    /// Where agents dial, when not at the gateway itself.
    pub agents_dial: Option<String>,
    /// Further options of `kasbah up`.
    pub server: Vec<String>,
    /// Instead of `kasbah up`: so many processes of each service, on these NATS servers.
    pub each_service: Option<(usize, Vec<String>)>,
    /// Settings of each of these services, as variables of the environment.
    pub variables: Vec<(String, String)>,
    /// The server's program, when it is not the one beside this program.
    pub server_program: Option<PathBuf>,
    /// The agent's program, when it is not the one beside this program.
    pub agent_program: Option<PathBuf>,
}

/// `kasbah up`, or each service by itself, and the agents that were started against it. All end with this handle.
#[derive(Debug)]
pub struct Installation {
    agents: BTreeMap<String, Process>,
    server: Option<Process>,
    replicas: Option<Replicas>,
    options: InstallationOptions,
    ports: Ports,
    folder: Folder,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    api: u16,
    tunnel: u16,
    clusters: u16,
    admin: u16,
}

impl Installation {
    /// Starts the server and waits until it is ready.
    pub async fn start(options: InstallationOptions) -> Result<Self> {
        let folder = Folder::at(options.directory.as_deref())?;
        if options.each_service.is_some() {
            return Self::start_each_service(options, folder).await;
        }
        let tunnel = options.tunnel_port.map_or_else(free_port, Ok)?;
        let ports = Ports { api: free_port()?, tunnel, clusters: free_port()?, admin: free_port()? };
        let (server, replicas) = (None, None);
        let mut installation = Self { agents: BTreeMap::new(), server, replicas, options, ports, folder };
        installation.start_server().await?;
        Ok(installation)
    }

    async fn start_each_service(options: InstallationOptions, folder: Folder) -> Result<Self> {
        let (each, nats) = options.each_service.clone().context("how many of each service?")?;
        let ports = Ports { api: free_port()?, tunnel: free_port()?, clusters: free_port()?, admin: 0 };
        let replicas = Replicas::start(ReplicasOptions {
            each,
            nats,
            program: options.server_program.clone().map_or_else(|| program("kasbah"), Ok)?,
            folder: folder.path().join("data"),
            api_port: Some(ports.api),
            tunnel_port: Some(ports.tunnel),
            clusters_port: Some(ports.clusters),
            variables: options.variables.clone(),
        });
        let replicas = Some(replicas.await?);
        Ok(Self { agents: BTreeMap::new(), server: None, replicas, options, ports, folder })
    }

    /// The processes of each service, where they were wished for.
    ///
    /// # Errors
    /// When everything runs in one process.
    pub fn replicas(&mut self) -> Result<&mut Replicas> {
        self.replicas.as_mut().context("everything runs in one process")
    }

    /// Starts the server again with other further options.
    pub async fn start_server_with(&mut self, options: Vec<String>) -> Result<()> {
        self.options.server = options;
        self.start_server().await
    }

    /// Starts the server again, on the same folder and ports.
    pub async fn start_server(&mut self) -> Result<()> {
        let mut command = Command::new(self.server_program()?);
        command.arg("up").arg("--data").arg(self.data());
        command.envs(ALLOWED_ON_THIS_MACHINE);
        let tunnels = self.options.reachable_at.map_or(Ipv4Addr::LOCALHOST, |_| Ipv4Addr::UNSPECIFIED);
        for (option, address, port) in [
            ("--api-listen", Ipv4Addr::LOCALHOST, self.ports.api),
            ("--tunnel-listen", tunnels, self.ports.tunnel),
            ("--clusters-listen", Ipv4Addr::LOCALHOST, self.ports.clusters),
            ("--admin-listen", Ipv4Addr::LOCALHOST, self.ports.admin),
        ] {
            command.arg(option).arg(format!("{address}:{port}"));
        }
        command.args(self.options.reachable_at.map(|address| format!("--tls-name={address}")));
        command.args(&self.options.server);
        let mut server = Process::spawn("kasbah up", command, &self.folder.path().join("server.log"))?;
        let ready = format!("http://127.0.0.1:{}/readyz", self.ports.admin);
        let end = tokio::time::Instant::now() + START_LIMIT;
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let client = crate::cluster::client_trusting(b"")?;
        loop {
            ticks.tick().await;
            server.must_run()?;
            let answer = client.get(&ready).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                break;
            }
            if tokio::time::Instant::now() > end {
                bail!("kasbah up is not ready within {START_LIMIT:?}: {}", server.log_tail(20));
            }
        }
        self.server = Some(server);
        Ok(())
    }

    /// The server's process.
    pub fn server(&mut self) -> Result<&mut Process> {
        self.server.as_mut().context("the server is not running")
    }

    /// `kill -9` on the server.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// SIGTERM to the server, and waits for its end.
    pub fn stop_server(&mut self) -> Result<()> {
        match self.server.take() {
            Some(mut server) => server.terminate(GRACE).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Registers an agent and keeps its token in a file; answers the agent's id.
    pub fn register_agent(&self, name: &str, project: &str) -> Result<String> {
        let registered = self.json(["agent", "register", name, "--project", project])?;
        let text = |pointer: &str| registered.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let secret = text("/token/secret").with_context(|| format!("no token in {registered}"))?;
        std::fs::write(self.token_file(name), secret)?;
        std::fs::write(self.root_key_file(name), text("/root_key").context("no root key")?)?;
        text("/agent/id").with_context(|| format!("no agent id in {registered}"))
    }

    /// The file with an agent's token.
    #[must_use]
    pub fn token_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.token"))
    }

    fn root_key_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.root-key"))
    }

    /// Starts an instance of an agent against a cluster. `instance` names the process.
    pub fn start_agent(
        &mut self,
        instance: &str,
        agent: &str,
        kubeconfig: &Path,
        namespace: &str,
    ) -> Result<()> {
        let command = self.agent_command(agent, kubeconfig, namespace)?;
        self.start_agent_by(instance, command)
    }

    /// Starts an instance by a command that [`Installation::agent_command`] began.
    pub fn start_agent_by(&mut self, instance: &str, command: Command) -> Result<()> {
        let log = self.folder.path().join(format!("{instance}.log"));
        let process = Process::spawn("kasbah-agent", command, &log)?;
        self.agents.insert(instance.to_owned(), process);
        Ok(())
    }

    /// Agents that are started from now on dial here.
    pub fn let_agents_dial(&mut self, gateway: String) {
        self.options.agents_dial = Some(gateway);
    }

    /// The command that starts an agent, to be changed before it runs.
    pub fn agent_command(&self, agent: &str, kubeconfig: &Path, namespace: &str) -> Result<Command> {
        let program = self.options.agent_program.clone().map_or_else(|| program("kasbah-agent"), Ok)?;
        let mut command = Command::new(program);
        let gateway = || format!("127.0.0.1:{}", self.ports.tunnel);
        command.arg("--server").arg(self.options.agents_dial.clone().unwrap_or_else(gateway));
        command.env("KASBAH_CA_FILE", self.authority());
        command.arg("--token-file").arg(self.token_file(agent));
        if self.root_key_file(agent).exists() {
            command.arg("--root-key-file").arg(self.root_key_file(agent));
        }
        command.arg("--kubeconfig").arg(kubeconfig).arg("--namespace").arg(namespace);
        Ok(command)
    }

    /// An agent's process by the name of its instance.
    pub fn agent(&mut self, instance: &str) -> Result<&mut Process> {
        self.agents.get_mut(instance).with_context(|| format!("no agent {instance}"))
    }

    /// `kill -9` on an agent.
    pub fn kill_agent(&mut self, instance: &str) {
        self.agents.remove(instance);
    }

    /// SIGTERM to an agent, and waits for its end.
    pub fn stop_agent(&mut self, instance: &str) -> Result<()> {
        match self.agents.remove(instance) {
            Some(mut agent) => agent.terminate(GRACE).map(|_| ()),
            None => Ok(()),
        }
    }

    /// What the command line prints; an error with its message when it fails.
    pub fn cli<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        let output = self.cli_command()?.args(arguments).output().context("cannot start kasbah")?;
        if !output.status.success() {
            bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same as JSON.
    pub fn json<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Value> {
        let mut command = self.cli_command()?;
        let output = command.args(arguments).args(["-o", "json"]).output().context("cannot start kasbah")?;
        if !output.status.success() {
            bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("not JSON: {}", String::from_utf8_lossy(&output.stdout)))
    }

    /// The command line as the owner.
    pub fn cli_command(&self) -> Result<Command> {
        let mut command = Command::new(self.server_program()?);
        command.env("KASBAH_DATA", self.data()).env_remove("KASBAH_TOKEN");
        if let Some(replicas) = &self.replicas {
            command.envs(replicas.client_variables()?);
        }
        Ok(command)
    }

    /// The webhook of a project, for [`crate::GitServer::add_webhook`].
    pub fn webhook(&self, project: &str) -> Result<Webhook> {
        let webhook = self.json(["project", "webhook", project])?;
        let text = |name: &str| webhook.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = text("url");
        let url = if path.starts_with('/') { format!("{}{path}", self.api()) } else { path };
        let authority = std::fs::read_to_string(self.authority()).context("no certificate authority")?;
        Ok(Webhook { url, style: WebhookStyle::Plain, secret: text("secret"), authority })
    }

    /// URL of the API.
    #[must_use]
    pub fn api(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// URL of clusters' APIs.
    #[must_use]
    pub fn clusters(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.clusters)
    }

    /// Port that agents dial.
    #[must_use]
    pub fn tunnel_port(&self) -> u16 {
        self.ports.tunnel
    }

    /// URL of health and metrics.
    #[must_use]
    pub fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.admin)
    }

    /// The data folder of `kasbah up`.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The certificate authority's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.replicas.as_ref().map_or_else(|| self.data().join("ca.crt"), Replicas::authority)
    }

    fn server_program(&self) -> Result<PathBuf> {
        self.options.server_program.clone().map_or_else(|| program("kasbah"), Ok)
    }
}
