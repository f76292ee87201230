//! Kasbah as the demo drives it: two programs and a command line, nothing that a person could not type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Process, Webhook, WebhookStyle, free_port};
use tokio::time::Instant;

use super::shop::Shop;
use crate::report;

const ORGANIZATION: &str = "demo";
const PROJECT: &str = "souk/shop";
const AGENT: &str = "demo";
const START_LIMIT: Duration = Duration::from_secs(60);
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
    api: u16,
    admin: u16,
    tunnel: u16,
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
            });
        }
        let ports = Self { git: free_port()?, api: free_port()?, admin: free_port()?, tunnel: free_port()? };
        let text = json!({"git": ports.git, "api": ports.api, "admin": ports.admin, "tunnel": ports.tunnel});
        fs::write(&path, text.to_string()).context("cannot write ports.json")?;
        Ok(ports)
    }
}

/// The server and the agent.
pub struct Kasbah {
    agent: Option<Process>,
    server: Process,
    data: PathBuf,
    tunnel: u16,
}

impl Kasbah {
    /// Starts the server and waits until its command line gets an answer.
    pub async fn start(state: &Path, ports: &Ports) -> Result<Self> {
        let data = state.join("kasbah");
        let mut command = Command::new(testkit::program("kasbah")?);
        command.arg("up").arg("--data").arg(&data).args(["--organization", ORGANIZATION]);
        for (option, port) in
            [("--api-listen", ports.api), ("--admin-listen", ports.admin), ("--tunnel-listen", ports.tunnel)]
        {
            command.arg(option).arg(format!("127.0.0.1:{port}"));
        }
        let server = Process::spawn("kasbah up", command, &state.join("kasbah.log"))?;
        let mut kasbah = Self { agent: None, server, data, tunnel: ports.tunnel };
        kasbah.wait_until_it_answers().await?;
        Ok(kasbah)
    }

    async fn wait_until_it_answers(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let end = Instant::now() + START_LIMIT;
        loop {
            ticks.tick().await;
            self.server.must_run()?;
            match self.call(&["project", "list"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The shop's project, made at the first start, and the webhook of its repository.
    pub fn introduce(&self, shop: &Shop) -> Result<()> {
        if self.call(&["project", "show", PROJECT]).is_err() {
            self.call(&["project", "create", PROJECT, "--repository", &shop.url()])?;
        }
        let webhook: Value =
            serde_json::from_str(&self.call(&["project", "webhook", PROJECT, "-o", "json"])?)?;
        let text = |name: &str| {
            let text = webhook.get(name).and_then(Value::as_str).map(str::to_owned);
            text.with_context(|| format!("the webhook has no {name}"))
        };
        shop.tell(Webhook {
            url: text("url")?,
            style: WebhookStyle::Plain,
            secret: text("secret")?,
            authority: fs::read_to_string(self.authority())
                .context("cannot read the certificate authority")?,
        })
    }

    /// Registers the agent at the first start, keeps its token in a file that only this user may read, and starts it.
    pub fn start_agent(&mut self, state: &Path, kubeconfig: &Path) -> Result<()> {
        let token = state.join("agent.token");
        if !token.exists() {
            let secret = self.call(&["agent", "register", AGENT, "--project", PROJECT, "--token-only"])?;
            testkit::write_private(&token, secret.trim())?;
        }
        let mut command = Command::new(testkit::program("kasbah-agent")?);
        command.arg("--server").arg(format!("127.0.0.1:{}", self.tunnel));
        command.arg("--ca-file").arg(self.authority()).arg("--token-file").arg(&token);
        command.arg("--kubeconfig").arg(kubeconfig);
        self.agent = Some(Process::spawn("kasbah-agent", command, &state.join("agent.log"))?);
        Ok(())
    }

    fn call(&self, arguments: &[&str]) -> Result<String> {
        report::output(self.cli().args(arguments))
    }

    fn authority(&self) -> PathBuf {
        self.data.join("ca.crt")
    }

    /// The command line, which finds server, authority and token in the data folder.
    pub fn cli(&self) -> Command {
        let mut command = Command::new(testkit::program("kasbah").unwrap_or_else(|_| "kasbah".into()));
        command.env("KASBAH_DATA", &self.data);
        command
    }

    /// The program, server and command line alike.
    pub fn program(&self) -> Result<PathBuf> {
        testkit::program("kasbah")
    }

    /// The server's data folder.
    pub fn data(&self) -> &Path {
        &self.data
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
        self.server.terminate(GRACE)?;
        agent.map_or(Ok(()), |mut agent| agent.terminate(GRACE).map(|_| ()))
    }
}
