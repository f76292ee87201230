//! A real nats-server on a port of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{Process, Tools, admin_page, eventually, free_port};

const START_LIMIT: Duration = Duration::from_secs(30);

/// One server with JetStream. It keeps port and data when it is started again, and ends with this handle.
#[derive(Debug)]
pub struct NatsServer {
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    monitoring: u16,
}

impl NatsServer {
    /// A server that has begun to answer.
    ///
    /// # Errors
    /// When the program is not built, or does not start.
    pub async fn start() -> Result<Self> {
        let mut server = Self {
            process: None,
            folder: TempDir::new().context("no folder for nats-server")?,
            port: free_port()?,
            monitoring: free_port()?,
        };
        server.start_again().await?;
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it where it ended, with the same port and data.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "nats-server runs already");
        let mut command = Command::new(Tools::find()?.path("nats-server")?);
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(["-m", &self.monitoring.to_string(), "-js", "-sd"]).arg(self.folder.path().join("data"));
        let log = self.folder.path().join("nats-server.log");
        let process = self.process.insert(Process::spawn("nats-server", command, &log)?);
        let monitoring = format!("127.0.0.1:{}", self.monitoring);
        eventually(START_LIMIT, || async {
            let health = admin_page(&monitoring, "/healthz?js-enabled-only=true")?;
            ensure!(health.contains("\"ok\""), "{health}: {}", process.log_tail(5));
            anyhow::Ok(())
        })
        .await;
        process.must_run()
    }
}
