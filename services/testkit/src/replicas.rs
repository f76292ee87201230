//! Several processes of each service on one NATS, behind balancers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use rustix::process::Signal;

use crate::{ALLOWED_ON_THIS_MACHINE, Balancer, Process, admin_page, free_port};

/// How long a start may take before something is wrong.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(25);
/// What each process says once it is ready.
const READY: &str = " is ready.\n";
/// The gateways' second edge.
const CLUSTERS: &str = "clusters";
const SERVICES: [&str; 8] = [
    "authz",
    "config-fetcher",
    "repo-poller",
    "delivery",
    "resource-indexer",
    "event-relay",
    "tunnel-gateway",
    "console",
];

/// What [`Replicas`] are started with.
#[derive(Debug, Clone)]
pub struct ReplicasOptions {
    /// How many processes of each service.
    pub each: usize,
    /// The NATS servers' addresses, with name and password; `{service}` in one becomes the name of each process' service.
    pub nats: Vec<String>,
    /// The `kasbah` program.
    pub program: PathBuf,
    /// Where the processes keep and log what they do.
    pub folder: PathBuf,
    /// Where the balancer of the API listens; a free port if not given.
    pub api_port: Option<u16>,
    /// Where the balancer of the gateways listens; a free port if not given.
    pub tunnel_port: Option<u16>,
    /// Where the balancer of clusters' APIs listens; a free port if not given.
    pub clusters_port: Option<u16>,
    /// Further variables of all processes.
    pub variables: Vec<(String, String)>,
}

/// The processes, each under a name such as `delivery-1`. All end with this handle.
#[derive(Debug)]
pub struct Replicas {
    replicas: BTreeMap<String, Replica>,
    api: Balancer,
    gateway: Balancer,
    clusters: Balancer,
    folder: PathBuf,
}

#[derive(Debug)]
struct Replica {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    log: PathBuf,
    admin: u16,
    process: Option<Process>,
    /// Where in the log the process begins.
    begins: usize,
}

impl Replicas {
    /// Starts all of them at once, and waits until each is ready.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start(options: ReplicasOptions) -> Result<Self> {
        let mut edges = BTreeMap::new();
        for service in ["console", "tunnel-gateway", CLUSTERS] {
            let ports = (0..options.each).map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
            edges.insert(service, ports);
        }
        let balance = |service: &str, port: Option<u16>| {
            let ports = edges.get(service).into_iter().flatten();
            Balancer::start_at(port, ports.map(|port| here(*port)).collect())
        };
        let mut all = Self {
            api: balance("console", options.api_port)?,
            gateway: balance("tunnel-gateway", options.tunnel_port)?,
            clusters: balance(CLUSTERS, options.clusters_port)?,
            replicas: BTreeMap::new(),
            folder: options.folder.clone(),
        };
        std::fs::create_dir_all(&options.folder)?;
        if !all.master_key().exists() {
            crate::write_private(&all.master_key(), &master_key()?)?;
        }
        for service in SERVICES {
            for number in 0..options.each {
                let port = |edge: &str| edges.get(edge).and_then(|ports| ports.get(number)).copied();
                let name = format!("{service}-{}", number + 1);
                let replica = all.replica(&options, service, &name, (port(service), port(CLUSTERS)))?;
                all.replicas.insert(name, replica);
            }
        }
        for (name, replica) in &mut all.replicas {
            replica.spawn(name)?;
        }
        for name in all.names() {
            all.ready(&name).await?;
        }
        Ok(all)
    }

    fn replica(
        &self,
        options: &ReplicasOptions,
        service: &str,
        name: &str,
        (port, clusters): (Option<u16>, Option<u16>),
    ) -> Result<Replica> {
        let admin = free_port()?;
        let mut arguments: Vec<OsString> = vec![service.into()];
        let mut add = |option: &str, value: &dyn AsRef<OsStr>| {
            arguments.extend([option.into(), value.as_ref().to_owned()]);
        };
        add("--admin-listen", &here(admin).to_string());
        add("--master-key-file", &self.master_key());
        let folder = options.folder.join(name);
        match (service, port) {
            ("console", Some(port)) => {
                add("--data", &folder);
                add("--api-listen", &here(port).to_string());
                add("--api-url", &self.api_url());
                add("--agents-dial", &self.gateway());
                add("--clusters-url", &self.clusters_url());
            }
            ("tunnel-gateway", Some(port)) => {
                add("--tunnel-listen", &here(port).to_string());
                add("--clusters-listen", &here(clusters.unwrap_or_default()).to_string());
            }
            ("authz", _) => add("--data", &folder),
            ("repo-poller", _) => {
                add("--repositories", &folder);
            }
            ("resource-indexer", _) => {
                add("--index", &folder);
            }
            _ => {}
        }
        let git = ALLOWED_ON_THIS_MACHINE.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut variables = git.to_vec();
        variables.extend(options.variables.iter().cloned());
        let nats = options.nats.iter().map(|address| address.replace("{service}", service));
        variables.push(("KASBAH_NATS".to_owned(), nats.collect::<Vec<_>>().join(",")));
        let log = options.folder.join(format!("{name}.log"));
        let program = options.program.clone();
        Ok(Replica { program, arguments, variables, log, admin, process: None, begins: 0 })
    }

    /// The file with the master key of all of them.
    #[must_use]
    pub fn master_key(&self) -> PathBuf {
        self.folder.join("master.key")
    }

    /// All names, whether they run or not.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.replicas.keys().cloned().collect()
    }

    /// Starts one that ended, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self, name: &str) -> Result<()> {
        self.spawn_again(name)?;
        self.ready(name).await
    }

    /// Starts one that ended, and does not wait for it.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn_again(&mut self, name: &str) -> Result<()> {
        self.named(name)?.spawn(name)
    }

    /// Sets a variable of one process from its next start on.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn set_variable(&mut self, name: &str, variable: &str, value: &str) -> Result<()> {
        let variables = &mut self.named(name)?.variables;
        variables.retain(|(known, _)| known != variable);
        variables.push((variable.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Starts those again that gave up before they were ready, as whoever runs them would; which, and how each ended.
    ///
    /// # Errors
    /// When one ended by itself after it was ready, or the program cannot be started.
    pub fn supervise(&mut self) -> Result<Vec<String>> {
        let mut gave_up = Vec::new();
        for (name, replica) in &mut self.replicas {
            let Some(process) = &mut replica.process else { continue };
            let Some(status) = process.exited() else { continue };
            let (said, last) = (process.log_tail(15), process.log_tail(1));
            ensure!(!replica.was_ready()?, "{name} was ready and ended by itself, {status}: {said}");
            gave_up.push(format!("{name}, {status}: {last}"));
            replica.spawn(name)?;
        }
        Ok(gave_up)
    }

    /// Waits until one is ready.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn ready(&mut self, name: &str) -> Result<()> {
        let replica = self.named(name)?;
        let end = tokio::time::Instant::now() + START_LIMIT;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            let process = replica.process.as_mut().with_context(|| format!("{name} does not run"))?;
            process.must_run()?;
            let page = admin_page(&here(replica.admin).to_string(), "/readyz");
            match page.as_deref().unwrap_or_default() {
                page if page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200") => return Ok(()),
                page if tokio::time::Instant::now() > end => {
                    bail!("{name} is not ready within {START_LIMIT:?}: {page}\n{}", process.log_tail(20))
                }
                _ => {}
            }
        }
    }

    fn named(&mut self, name: &str) -> Result<&mut Replica> {
        self.replicas.get_mut(name).with_context(|| format!("there is no {name}"))
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.named(name)?.process = None;
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        match self.named(name)?.process.take() {
            Some(mut process) => process.terminate(GRACE).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Sends a signal to one.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn signal(&mut self, name: &str, signal: Signal) -> Result<()> {
        if let Some(process) = &mut self.named(name)?.process {
            process.signal(signal);
        }
        Ok(())
    }

    /// Fails when one that was not killed or stopped has ended.
    ///
    /// # Errors
    /// Which, and the end of its log.
    pub fn must_run(&mut self) -> Result<()> {
        let mut running = self.replicas.values_mut().filter_map(|replica| replica.process.as_mut());
        running.try_for_each(Process::must_run)
    }

    /// SIGTERM to all at once, and waits for their ends.
    ///
    /// # Errors
    /// When one does not end.
    pub fn stop_all(&mut self) -> Result<()> {
        for name in self.names() {
            self.signal(&name, Signal::TERM)?;
        }
        self.names().iter().try_for_each(|name| self.stop(name))
    }

    /// A process, while it runs.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.replicas.get(name)?.process.as_ref()
    }

    /// Where one tells its health and metrics.
    #[must_use]
    pub fn admin(&self, name: &str) -> Option<SocketAddr> {
        self.replicas.get(name).map(|replica| here(replica.admin))
    }

    /// URL of the API, at the balancer.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("https://{}", self.api.address())
    }

    /// URL of clusters' APIs, at the balancer.
    #[must_use]
    pub fn clusters_url(&self) -> String {
        format!("https://{}", self.clusters.address())
    }

    /// Where the gateways themselves take requests to clusters' APIs, in order.
    #[must_use]
    pub fn cluster_gateways(&self) -> Vec<SocketAddr> {
        self.clusters.behind().to_vec()
    }

    /// Where the gateways themselves listen, in order.
    #[must_use]
    pub fn gateways(&self) -> Vec<SocketAddr> {
        self.gateway.behind().to_vec()
    }

    /// Where agents dial: the balancer of the gateways.
    #[must_use]
    pub fn gateway(&self) -> String {
        self.gateway.address().to_string()
    }

    /// The certificate authority's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("console-1/ca.crt")
    }

    /// The file with the owner's token: with whichever authz was there first.
    ///
    /// # Errors
    /// When none has it.
    pub fn owner_token(&self) -> Result<PathBuf> {
        let files = self.names().into_iter().map(|name| self.folder.join(name).join("owner-token"));
        files.into_iter().find(|file| file.exists()).context("nobody has the owner's token")
    }

    /// What the command line needs to know: server, clusters' APIs, authority and token.
    ///
    /// # Errors
    /// When nobody has the owner's token.
    pub fn client_variables(&self) -> Result<Vec<(String, PathBuf)>> {
        Ok(vec![
            ("KASBAH_SERVER".to_owned(), self.api_url().into()),
            ("KASBAH_CLUSTERS".to_owned(), self.clusters_url().into()),
            ("KASBAH_CA_FILE".to_owned(), self.authority()),
            ("KASBAH_TOKEN_FILE".to_owned(), self.owner_token()?),
            ("KASBAH_DATA".to_owned(), self.folder.join("console-1")),
        ])
    }

    /// Where everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Replica {
    fn spawn(&mut self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        self.begins = std::fs::metadata(&self.log).map_or(Ok(0), |log| usize::try_from(log.len()))?;
        self.process = Some(Process::spawn(name, command, &self.log)?);
        Ok(())
    }

    /// Whether the process said so since it was started.
    fn was_ready(&self) -> Result<bool> {
        let log = std::fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(log.get(self.begins..).unwrap_or_default()).contains(READY))
    }
}

/// 32 bytes that nobody guesses, in base64.
fn master_key() -> Result<String> {
    let key: [u8; 32] =
        ring::rand::generate(&SystemRandom::new()).map_err(|_| anyhow!("no random numbers"))?.expose();
    Ok(STANDARD.encode(key))
}

fn here(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    #[test]
    fn ready_is_who_said_so_since_it_was_started() {
        let folder = Folder::temporary().unwrap();
        let saying = |what: &str| vec!["-c".into(), format!("echo \"{what}\"").into()];
        let mut replica = Replica {
            program: "sh".into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            log: folder.path().join("log"),
            admin: 0,
            process: None,
            begins: 0,
        };
        for (says, ready) in [("Kasbah's delivery is ready.", true), ("nobody answers", false)] {
            replica.arguments = saying(says);
            replica.spawn("delivery-1").unwrap();
            replica.process.as_mut().unwrap().wait(GRACE).unwrap().unwrap();
            assert_eq!(replica.was_ready().unwrap(), ready, "{says}");
        }
    }
}
