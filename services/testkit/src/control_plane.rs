//! A real control plane of a test's own: etcd, API server, controller manager, scheduler.

mod launch;
mod options;

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{Authority, Cluster, Folder, Process, Tools, free_port};
use launch::Launch;
pub use options::{Audit, ControlPlaneOptions, User};

const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a part of the control plane may take to end by itself.
const GRACE: Duration = Duration::from_secs(15);

/// A running control plane; everything of it ends with this handle or with this process.
///
/// It is the [`Cluster`] of its administrator; [`ControlPlane::user`] gives the other users.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields drop in this order: who asks before who answers.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Process,
    etcd: Process,
    administrator: Cluster,
    authority: Authority,
    launch: Launch,
    users: Vec<User>,
}

impl Deref for ControlPlane {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.administrator
    }
}

impl ControlPlane {
    /// Starts one and waits until it is ready (about three seconds on two cores).
    pub async fn start(options: ControlPlaneOptions) -> Result<Self> {
        let folder = Folder::at(options.directory.as_deref())?;
        let (etcd_port, peer_port) = (free_port()?, free_port()?);
        let port = match options.port {
            Some(port) => port,
            None => free_port()?,
        };
        let authority = Authority::new("kasbah-testbed")?;
        let users = options.users.clone();
        let launch = Launch { tools: Tools::find()?, folder, options, etcd_port, peer_port, port };
        let tokens = launch.write_files(&authority)?;
        let etcd = launch.etcd()?;
        let api_server = launch.api_server()?;
        let create = |user: &str, token: &str| {
            let path = launch.path(&format!("{user}.kubeconfig").replace(':', "-"));
            Cluster::create(&path, &launch.server(), authority.certificate(), user, token)
        };
        let administrator = create("admin", &tokens.administrator)?;
        let controllers = create("system:kube-controller-manager", &tokens.controller_manager)?;
        let scheduling = create("system:kube-scheduler", &tokens.scheduler)?;
        for user in &users {
            create(&user.name, &user.token)?;
        }
        let mut plane = Self {
            scheduler: None,
            controller_manager: None,
            api_server,
            etcd,
            administrator,
            authority,
            launch,
            users,
        };
        plane.wait_until("/readyz").await?;
        if plane.launch.options.workloads {
            plane.controller_manager = Some(plane.launch.controller_manager(controllers.kubeconfig())?);
            plane.scheduler = Some(plane.launch.scheduler(scheduling.kubeconfig())?);
            plane.wait_until("/api/v1/namespaces/default/serviceaccounts/default").await?;
        }
        Ok(plane)
    }

    /// Its folder: logs (`<program>.log`), the audit log, kubeconfigs and keys.
    pub fn folder(&self) -> &Path {
        self.launch.folder.path()
    }

    /// The port that the API server listens on.
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// The certificate authority of the API server, PEM.
    pub fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// The cluster as one of the users of the options sees it.
    pub fn user(&self, name: &str) -> Result<Cluster> {
        ensure!(self.users.iter().any(|user| user.name == name), "no user {name} was asked for");
        Cluster::open(&self.launch.path(&format!("{name}.kubeconfig").replace(':', "-")))
    }

    /// `kill -9` of the API server.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Starts the API server again on the same port with the same data, and waits until it is ready.
    pub async fn start_api_server(&mut self) -> Result<()> {
        self.api_server.kill();
        self.api_server = self.launch.api_server()?;
        self.wait_until("/readyz").await
    }

    /// Stops the API server without ending it, as a machine that hangs: connections stay open and nothing is answered.
    pub fn freeze_api_server(&mut self) {
        self.api_server.signal(Signal::STOP);
    }

    /// Lets a frozen API server go on.
    pub fn thaw_api_server(&mut self) {
        self.api_server.signal(Signal::CONT);
    }

    /// The API server's audit log so far, in its order. Needs an [`Audit`] other than `Off`.
    pub fn audit_log(&self) -> Result<Vec<Value>> {
        let path = self.audit_log_path();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The last line may be half written; it has no end yet.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).context("a broken line in the audit log")).collect()
    }

    /// Where the audit log is written.
    pub fn audit_log_path(&self) -> PathBuf {
        self.launch.audit_log()
    }

    /// Resident memory of each part, in bytes.
    pub fn resident_memory(&self) -> Vec<(&'static str, u64)> {
        let mut parts = vec![("etcd", &self.etcd), ("kube-apiserver", &self.api_server)];
        parts.extend(self.controller_manager.as_ref().map(|process| ("kube-controller-manager", process)));
        parts.extend(self.scheduler.as_ref().map(|process| ("kube-scheduler", process)));
        parts.into_iter().filter_map(|(name, process)| Some((name, process.resident_memory()?))).collect()
    }

    /// Ends all parts in order and in their own way, so that a kept folder can be started again without loss.
    pub fn stop(mut self) -> Result<()> {
        for part in [&mut self.scheduler, &mut self.controller_manager].into_iter().flatten() {
            part.terminate(GRACE)?;
        }
        // The API server drains for as long as watches are open; what it has acknowledged is in etcd.
        self.api_server.kill();
        self.etcd.terminate(GRACE)?;
        Ok(())
    }

    pub(crate) fn write_node_files(&self, folder: &Path) -> Result<()> {
        ensure!(
            self.launch.options.reachable_at.is_some(),
            "the control plane was not started for a real node"
        );
        self.launch.write_node_files(&self.authority, folder)
    }

    async fn wait_until(&mut self, path: &str) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        let mut ticks = interval(Duration::from_millis(25));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.etcd.must_run()?;
            self.api_server.must_run()?;
            for part in [&mut self.controller_manager, &mut self.scheduler].into_iter().flatten() {
                part.must_run()?;
            }
            let answer = self.administrator.send(http::Method::GET, path, None).await;
            if answer.is_ok_and(|answer| answer.status == StatusCode::OK) {
                return Ok(());
            }
            let log = || self.api_server.log_tail(15);
            ensure!(Instant::now() < end, "{path} not there within {START_LIMIT:?}:\n{}", log());
        }
    }
}
