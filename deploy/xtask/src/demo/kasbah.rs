//! Kasbah as the demo drives it: two programs and a command line, nothing that a person could not type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::{Process, Webhook, WebhookStyle, free_port};

use super::shop::Shop;
use crate::report;

const ORGANIZATION: &str = "demo";
const GROUP: &str = "demo/souk";
const PROJECT: &str = "demo/souk/shop";
const AGENT: &str = "demo";
const START_LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(20);

pub fn build() -> Result<()> {
    let mut command = Command::new("cargo");
    command.current_dir(report::root()?).args([
        "build",
        "--locked",
        "--package",
        "kasbah",
        "--package",
        "agent",
    ]);
    report::run(&mut command)
}

/// The same ports at each start, so that URLs in the log stay true.
pub struct Ports {
    pub git: u16,
    console: u16,
    gateway: u16,
}

impl Ports {
    pub fn kept(state: &Path) -> Result<Self> {
        let path = state.join("ports.json");
        if let Ok(text) = fs::read_to_string(&path) {
            let kept: Value = serde_json::from_str(&text).context("ports.json is damaged; remove it")?;
            let port =
                |name: &str| kept.get(name).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
            if let (Some(git), Some(console), Some(gateway)) = (port("git"), port("console"), port("gateway"))
            {
                return Ok(Self { git, console, gateway });
            }
        }
        let ports = Self { git: free_port()?, console: free_port()?, gateway: free_port()? };
        let text = json!({"git": ports.git, "console": ports.console, "gateway": ports.gateway});
        fs::write(&path, text.to_string()).context("cannot write ports.json")?;
        Ok(ports)
    }
}

pub struct Kasbah {
    agent: Option<Process>,
    server: Process,
    data: PathBuf,
    ports: (u16, u16),
}

impl Kasbah {
    /// Starts the server and waits until its command line gets an answer.
    pub async fn start(state: &Path, ports: &Ports) -> Result<Self> {
        let data = state.join("kasbah");
        let mut command = Command::new(testkit::program("kasbah")?);
        command.arg("up").arg("--data").arg(&data);
        command.arg("--console-listen").arg(format!("127.0.0.1:{}", ports.console));
        command.arg("--gateway-listen").arg(format!("127.0.0.1:{}", ports.gateway));
        let server = Process::spawn("kasbah up", command, &state.join("kasbah.log"))?;
        let mut kasbah = Self { agent: None, server, data, ports: (ports.console, ports.gateway) };
        kasbah.wait_until_it_answers().await?;
        Ok(kasbah)
    }

    async fn wait_until_it_answers(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let end = tokio::time::Instant::now() + START_LIMIT;
        loop {
            ticks.tick().await;
            self.server.must_run()?;
            match self.call(&["organization", "list"]) {
                Ok(_) => return Ok(()),
                Err(error) if tokio::time::Instant::now() > end => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The directory that the demo needs; what exists already is left.
    pub fn introduce(&self, shop: &Shop) -> Result<()> {
        self.ensure(&["organization", "show", ORGANIZATION], &["organization", "create", ORGANIZATION])?;
        self.ensure(&["group", "show", GROUP], &["group", "create", GROUP])?;
        let url = shop.url();
        self.ensure(&["project", "show", PROJECT], &["project", "create", PROJECT, "--repository", &url])?;
        let secret = self.call(&["project", "webhook", PROJECT])?;
        let webhook: Value = serde_json::from_str(&secret).context("no webhook in the answer")?;
        let field = |name: &str| webhook.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        shop.tell(Webhook {
            url: field("url"),
            style: WebhookStyle::Plain,
            secret: field("secret"),
            authority: fs::read_to_string(self.authority())?,
        })
    }

    /// Registers the agent at the first start, keeps its token in a file of its own, and starts it.
    pub async fn start_agent(&mut self, state: &Path, kubeconfig: &Path) -> Result<()> {
        let token = state.join("agent.token");
        if !token.exists() {
            let registered = self.call(&["agent", "register", AGENT, "--project", PROJECT, "-o", "json"])?;
            let registered: Value = serde_json::from_str(&registered).context("no token in the answer")?;
            fs::write(&token, registered.get("token").and_then(Value::as_str).unwrap_or_default())?;
        }
        let mut command = Command::new(testkit::program("kasbah-agent")?);
        command.arg("--gateway").arg(format!("https://127.0.0.1:{}", self.ports.1));
        command.arg("--ca-file").arg(self.authority()).arg("--token-file").arg(&token);
        command.arg("--kubeconfig").arg(kubeconfig);
        self.agent = Some(Process::spawn("kasbah-agent", command, &state.join("agent.log"))?);
        Ok(())
    }

    fn ensure(&self, show: &[&str], create: &[&str]) -> Result<()> {
        match self.call(show) {
            Ok(_) => Ok(()),
            Err(_) => self.call(create).map(|_| ()),
        }
    }

    fn call(&self, arguments: &[&str]) -> Result<String> {
        report::output(self.cli().args(arguments))
    }

    fn authority(&self) -> PathBuf {
        self.data.join("ca.pem")
    }

    /// The command line with server and token set.
    pub fn cli(&self) -> Command {
        let mut command = Command::new(testkit::program("kasbah").unwrap_or_else(|_| "kasbah".into()));
        command.envs(self.environment());
        command
    }

    fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("KASBAH_SERVER", format!("https://127.0.0.1:{}", self.ports.0)),
            ("KASBAH_CA_FILE", self.authority().display().to_string()),
            ("KASBAH_TOKEN_FILE", self.data.join("owner.token").display().to_string()),
        ]
    }

    /// How a person calls it.
    pub fn command_line(&self) -> String {
        let variables: Vec<String> =
            self.environment().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", variables.join(" "), self.cli().get_program().to_string_lossy())
    }

    pub fn must_run(&mut self) -> Result<()> {
        self.server.must_run()?;
        self.agent.as_mut().map_or(Ok(()), Process::must_run)
    }

    /// The agent first, so that its last words still reach the server.
    pub fn stop(mut self) -> Result<()> {
        if let Some(mut agent) = self.agent.take() {
            agent.terminate(GRACE)?;
        }
        self.server.terminate(GRACE).map(|_| ())
    }
}
