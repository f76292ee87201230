//! Real nats-servers on ports of their own: one, or a cluster of three.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{Authority, Folder, Process, Proxy, Tools, admin_page, eventually, free_port};

const START_LIMIT: Duration = Duration::from_secs(60);
const LOG_LINES_SHOWN: usize = 60;
/// Of every user of a server as shipped.
const PASSWORD: &str = "shipped";

/// Accounts of each server. What one keeps, the others do not see: as good as a fresh server, and sooner there.
const ACCOUNTS: usize = 64;

/// One server with JetStream that syncs before it acknowledges. It keeps port and data when it is started again, and ends
/// with this handle.
#[derive(Debug)]
pub struct NatsServer {
    process: Option<Process>,
    folder: Folder,
    ports: Ports,
    settings: String,
    /// Variables that the settings take passwords from.
    passwords: Vec<String>,
}

/// Where a server listens.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ports {
    clients: u16,
    monitoring: u16,
    routes: u16,
}

impl Ports {
    fn free() -> Result<Self> {
        Ok(Self { clients: free_port()?, monitoring: free_port()?, routes: free_port()? })
    }
}

impl NatsServer {
    /// A server that has begun to answer.
    ///
    /// # Errors
    /// When the program is not built, or does not start.
    pub async fn start() -> Result<Self> {
        let mut server = Self::prepared("nats", "always", "", Folder::temporary()?, Ports::free()?)?;
        server.start_again().await?;
        Ok(server)
    }

    /// A server as it is without settings: it syncs every two minutes.
    ///
    /// # Errors
    /// As of [`NatsServer::start`].
    pub async fn start_that_syncs_later() -> Result<Self> {
        let mut server = Self::prepared("nats", "\"2m\"", "", Folder::temporary()?, Ports::free()?)?;
        server.start_again().await?;
        Ok(server)
    }

    /// A server with the settings that are shipped, on ports and in a folder of its own. Every user's password is `shipped`.
    ///
    /// # Errors
    /// As of [`NatsServer::start`], or when the settings are not what this expects.
    pub async fn start_as_shipped() -> Result<Self> {
        let accounts = std::fs::read_to_string(shipped("accounts.conf"))?;
        Self::start_with_accounts(&accounts).await
    }

    /// The same over TLS, with a certificate of this authority for 127.0.0.1.
    ///
    /// # Errors
    /// As of [`NatsServer::start_as_shipped`].
    pub async fn start_with_tls(authority: &Authority) -> Result<Self> {
        let accounts = std::fs::read_to_string(shipped("accounts.conf"))?;
        let mut server = Self::as_shipped(&accounts)?;
        let certified = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let (certificate, key) = certified.write(server.folder.path(), "nats")?;
        write!(server.settings, "\ntls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n")?;
        server.start_again().await?;
        Ok(server)
    }

    /// The same with other accounts than those that are shipped.
    ///
    /// # Errors
    /// As of [`NatsServer::start_as_shipped`].
    pub async fn start_with_accounts(accounts: &str) -> Result<Self> {
        let mut server = Self::as_shipped(accounts)?;
        server.start_again().await?;
        Ok(server)
    }

    fn as_shipped(accounts: &str) -> Result<Self> {
        Self::prepared_as_shipped("nats-0", accounts, "", Folder::temporary()?, Ports::free()?)
    }

    fn prepared_as_shipped(
        name: &str,
        accounts: &str,
        cluster: &str,
        folder: Folder,
        ports: Ports,
    ) -> Result<Self> {
        let shipped = shipped("nats-server.conf");
        let mut settings = std::fs::read_to_string(&shipped)?;
        let here = |port: u16| format!("\"127.0.0.1:{port}\"");
        for (from, to) in [
            ("server_name: nats-0", format!("server_name: {name}\n{cluster}")),
            ("\"0.0.0.0:4222\"", here(ports.clients)),
            ("\"127.0.0.1:8222\"", here(ports.monitoring)),
            ("\"/var/lib/nats\"", format!("{:?}", folder.path().join("data"))),
        ] {
            ensure!(settings.contains(from), "{} has no {from}", shipped.display());
            settings = settings.replace(from, &to);
        }
        std::fs::write(folder.path().join("accounts.conf"), accounts)?;
        Ok(Self { process: None, folder, ports, settings, passwords: passwords(accounts) })
    }

    /// Where a user of [`NatsServer::start_as_shipped`] connects, such as `kasbah`, who may do all that the services may.
    #[must_use]
    pub fn shipped_url(&self, user: &str) -> String {
        format!("nats://{user}:{PASSWORD}@{}", self.address())
    }

    /// What it has logged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("nats-server.log"))?)
    }

    fn prepared(
        name: &str,
        sync_interval: &str,
        cluster: &str,
        folder: Folder,
        ports: Ports,
    ) -> Result<Self> {
        let Ports { clients: port, monitoring, .. } = ports;
        let data = folder.path().join("data");
        let mut settings = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitoring}\"\n\
             jetstream {{ store_dir: {data:?}, sync_interval: {sync_interval} }}\n{cluster}\n{}",
            accounts()?,
        );
        settings.push_str("no_auth_user: \"account-0\"\n");
        Ok(Self { process: None, folder, ports, settings, passwords: Vec::new() })
    }

    /// Where clients connect, into the first account.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Where clients connect, into one of 64 accounts that share nothing.
    #[must_use]
    pub fn account_url(&self, account: usize) -> String {
        format!("nats://account-{account}:account-{account}@{}", self.address())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.clients))
    }

    /// What its monitoring answers to a path.
    fn status(&self, path: &str) -> Result<serde_json::Value> {
        let page = admin_page(&format!("127.0.0.1:{}", self.ports.monitoring), path)?;
        let body = page.split_once("\r\n\r\n").map_or(page.as_str(), |(_, body)| body);
        serde_json::from_str(body).with_context(|| format!("{path} is no JSON: {body}"))
    }

    /// Its process, while it runs.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops it without ending it, as a machine that hangs: connections stay open and nothing is answered.
    pub fn freeze(&mut self) {
        self.process.iter_mut().for_each(|process| process.signal(Signal::STOP));
    }

    /// Lets a frozen one go on.
    pub fn thaw(&mut self) {
        self.process.iter_mut().for_each(|process| process.signal(Signal::CONT));
    }

    /// Starts it where it ended, with the same port and data.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self) -> Result<()> {
        self.spawn()?;
        self.answers().await
    }

    fn spawn(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "nats-server runs already");
        let settings = self.folder.path().join("nats.conf");
        std::fs::write(&settings, &self.settings)?;
        let mut command = Command::new(Tools::find()?.path("nats-server")?);
        command.arg("-c").arg(settings);
        command.envs(self.passwords.iter().map(|variable| (variable, PASSWORD)));
        let log = self.folder.path().join("nats-server.log");
        self.process = Some(Process::spawn("nats-server", command, &log)?);
        Ok(())
    }

    async fn answers(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("nats-server does not run")?;
        let monitoring = format!("127.0.0.1:{}", self.ports.monitoring);
        eventually(START_LIMIT, || async {
            let health = admin_page(&monitoring, "/healthz?js-server-only=true")?;
            ensure!(health.contains("\"ok\""), "{health}: {}", process.log_tail(5));
            anyhow::Ok(())
        })
        .await;
        process.must_run()
    }
}

/// A file of the configuration that is shipped.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats").join(name)
}

/// The variables that accounts take passwords from.
fn passwords(accounts: &str) -> Vec<String> {
    let behind = accounts.split("password: $").skip(1);
    let is_in_name = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
    behind.filter_map(|text| text.split(|symbol| !is_in_name(symbol)).next()).map(str::to_owned).collect()
}

/// Accounts that may ask how the servers sync.
fn accounts() -> Result<String> {
    let mut text = String::from(
        "system_account: SYS\naccounts {\n  SYS {\n    users: [{ user: system, password: system }]\n    \
         exports: [{ service: \"$SYS.REQ.SERVER.PING.JSZ\", response_type: stream }]\n  }\n",
    );
    for account in 0..ACCOUNTS {
        writeln!(
            text,
            "  A{account} {{\n    jetstream: enabled\n    users: [{{ user: \"account-{account}\", password: \"account-{account}\" }}]\n    \
             imports: [{{ service: {{ account: SYS, subject: \"$SYS.REQ.SERVER.PING.JSZ\" }} }}]\n  }}"
        )?;
    }
    text.push_str("}\n");
    Ok(text)
}

/// Three servers that keep everything three times. The routes between them lead through proxies.
#[derive(Debug)]
pub struct NatsCluster {
    /// The servers, by number.
    pub servers: Vec<NatsServer>,
    /// From each server to each other one.
    routes: Vec<((usize, usize), Proxy)>,
    _directory: Folder,
}

/// The ports of three servers: those of before, or free ones.
fn kept_ports(path: &Path) -> Result<[Ports; 3]> {
    if let Ok(text) = std::fs::read(path) {
        return serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged; remove it", path.display()));
    }
    let ports = [Ports::free()?, Ports::free()?, Ports::free()?];
    std::fs::write(path, serde_json::to_vec(&ports)?)?;
    Ok(ports)
}

impl NatsCluster {
    /// A cluster that has begun to answer.
    ///
    /// # Errors
    /// When the program is not built, or one does not start.
    pub async fn start() -> Result<Self> {
        Self::start_of(Folder::temporary()?, |name, cluster, folder, ports| {
            NatsServer::prepared(name, "always", cluster, folder, ports)
        })
        .await
    }

    /// The same with the settings that are shipped, and everything in a folder that is kept: the next start goes on there, with the same
    /// ports.
    ///
    /// # Errors
    /// As of [`NatsCluster::start`], or when the settings are not what this expects.
    pub async fn start_as_shipped_in(directory: &Path) -> Result<Self> {
        let accounts = std::fs::read_to_string(shipped("accounts.conf"))?;
        Self::start_of(Folder::kept(directory)?, |name, cluster, folder, ports| {
            NatsServer::prepared_as_shipped(name, &accounts, cluster, folder, ports)
        })
        .await
    }

    async fn start_of(
        directory: Folder,
        prepared: impl Fn(&str, &str, Folder, Ports) -> Result<NatsServer>,
    ) -> Result<Self> {
        let ports = kept_ports(&directory.path().join("ports.json"))?;
        let mut routes = Vec::new();
        for from in 0..ports.len() {
            for (to, ports) in ports.iter().enumerate().filter(|(to, _)| *to != from) {
                let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, ports.routes)))?;
                routes.push(((from, to), proxy));
            }
        }
        let mut servers = Vec::new();
        for (number, ports) in ports.iter().enumerate() {
            let dialled = routes.iter().filter(|((from, _), _)| *from == number);
            let dialled: Vec<String> =
                dialled.map(|(_, proxy)| format!("\"nats-route://{}\"", proxy.address())).collect();
            let cluster = format!(
                "cluster {{ name: kasbah, listen: \"127.0.0.1:{}\", no_advertise: true, pool_size: -1, routes: [{}] }}",
                ports.routes,
                dialled.join(", ")
            );
            let name = format!("nats-{number}");
            servers.push(prepared(&name, &cluster, Folder::kept(&directory.path().join(&name))?, *ports)?);
        }
        for server in &mut servers {
            server.spawn()?;
        }
        for server in &mut servers {
            server.answers().await?;
        }
        let cluster = Self { servers, routes, _directory: directory };
        cluster.has_a_leader().await;
        Ok(cluster)
    }

    async fn has_a_leader(&self) {
        eventually(START_LIMIT, || async {
            for server in &self.servers {
                let page = server.status("/jsz")?;
                let leader = page.pointer("/meta_cluster/leader").and_then(|leader| leader.as_str());
                ensure!(leader.is_some_and(|leader| !leader.is_empty()), "nobody leads the cluster: {page}");
                let size = page.pointer("/meta_cluster/cluster_size").and_then(serde_json::Value::as_u64);
                ensure!(size == Some(3), "not all servers are in the cluster: {page}");
            }
            anyhow::Ok(())
        })
        .await;
    }

    /// Where clients connect, into one of 64 accounts: all servers.
    #[must_use]
    pub fn account_urls(&self, account: usize) -> Vec<String> {
        self.servers.iter().map(|server| server.account_url(account)).collect()
    }

    /// Where a user of [`NatsCluster::start_as_shipped_in`] connects: all servers.
    #[must_use]
    pub fn shipped_urls(&self, user: &str) -> Vec<String> {
        self.servers.iter().map(|server| server.shipped_url(user)).collect()
    }

    /// What clients said or wanted to hear and may not, as the servers have logged it.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn violations(&self) -> Result<Vec<String>> {
        let logs = self.servers.iter().map(NatsServer::log).collect::<Result<Vec<String>>>()?;
        let lines = logs.iter().flat_map(|log| log.lines());
        Ok(lines.filter(|line| line.contains("Violation")).map(str::to_owned).collect())
    }

    /// Cuts a server off from the other two, or lets it in again. Clients still reach it.
    pub fn isolate(&self, server: usize, isolated: bool) {
        for ((one, other), proxy) in &self.routes {
            if *one == server || *other == server {
                proxy.shut(isolated);
                if isolated {
                    proxy.cut();
                }
            }
        }
    }

    /// Fails while a server lacks something that the others have, or nobody leads it.
    ///
    /// # Errors
    /// Which server, and what it says.
    pub fn is_current(&self) -> Result<()> {
        for server in &self.servers {
            let health = admin_page(&format!("127.0.0.1:{}", server.ports.monitoring), "/healthz")?;
            ensure!(health.contains("\"ok\""), "{}: {health}", server.address());
        }
        Ok(())
    }

    /// Which server leads a stream of an account, as one of those that run says.
    ///
    /// # Errors
    /// When none says.
    pub fn leader(&self, account: usize, stream: &str) -> Result<usize> {
        let path = format!("/jsz?acc=A{account}&streams=true");
        for server in self.servers.iter().filter(|server| server.process.is_some()) {
            let Ok(page) = server.status(&path) else { continue };
            let streams = page.pointer("/account_details/0/stream_detail").and_then(|list| list.as_array());
            let found = streams.into_iter().flatten().find(|found| found["name"] == stream);
            let leader = found.and_then(|found| found.pointer("/cluster/leader")?.as_str());
            if let Some(number) = leader.and_then(|name| name.strip_prefix("nats-")?.parse().ok()) {
                return Ok(number);
            }
        }
        bail!("nobody says who leads {stream}")
    }
}

impl Drop for NatsServer {
    /// A test that fails shows what the server had to say.
    fn drop(&mut self) {
        if let Some(process) = self.process.as_ref().filter(|_| std::thread::panicking()) {
            println!("{}: {}", self.address(), process.log_tail(LOG_LINES_SHOWN));
        }
    }
}
