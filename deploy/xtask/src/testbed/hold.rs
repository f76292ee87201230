//! A control plane that outlives the command that started it, until `down`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use testkit::{Audit, ControlPlane, ControlPlaneOptions, FakeNodes, Image, Node, Tools, cluster_node};

use super::{Part, kubeconfig_in};
use crate::report::spent;

/// The image that the demo shop and other samples run on, imported under its public name.
pub const BUSYBOX: &str = "docker.io/library/busybox:1.36";
const START_LIMIT: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);

/// A control plane with nodes.
pub struct Testbed {
    /// The real node, or why there is none. Dropped before the control plane.
    pub node: Result<Node, String>,
    _fake_nodes: Option<FakeNodes>,
    /// The control plane.
    pub plane: ControlPlane,
}

impl Testbed {
    /// Starts both; the data in `directory` is used again.
    pub async fn start(directory: &Path, fake_nodes: bool, audit: Audit) -> Result<Self> {
        let possible = match (fake_nodes, Node::possible()) {
            (true, _) => Err("fake nodes were asked for".to_owned()),
            (false, Err(skipped)) => Err(skipped.0),
            (false, Ok(())) => Ok(()),
        };
        let options = ControlPlaneOptions {
            directory: Some(directory.to_owned()),
            audit,
            reachable_at: possible.is_ok().then(|| cluster_node::HOST.into()),
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start(options).await?;
        let node = match possible {
            Ok(()) => {
                real_node(&plane).await.map_err(|error| format!("the real one did not start: {error:#}"))
            }
            Err(reason) => Err(reason),
        };
        let real = node.is_ok();
        let fake_nodes = match real {
            true => None,
            false => {
                // Known only now where a real node was possible and did not start.
                Part::FakeNodes.build()?;
                Some(FakeNodes::start(&plane, 3, &[]).await?)
            }
        };
        remove_other_nodes(&plane, |name| (name == cluster_node::NAME) == real).await?;
        Ok(Self { plane, node, _fake_nodes: fake_nodes })
    }

    /// One line on what the nodes are.
    pub fn nodes(&self) -> String {
        match &self.node {
            Ok(_) => format!("one real node, {}, whose containers really run", cluster_node::NAME),
            Err(reason) => format!("three fake nodes, on which pods only seem to run ({reason})"),
        }
    }

    /// Ends it so that its data can be used again.
    pub fn stop(self) -> Result<()> {
        drop(self.node);
        self.plane.stop()
    }
}

async fn real_node(plane: &ControlPlane) -> Result<Node> {
    let busybox = Tools::find()?.node_parts()?.join("busybox");
    Node::start(plane, &[Image::of_busybox(BUSYBOX, &busybox)?]).await
}

/// The last start in this folder may have had nodes of the other kind.
async fn remove_other_nodes(plane: &ControlPlane, keep: impl Fn(&str) -> bool) -> Result<()> {
    let nodes = plane.get("/api/v1/nodes").await?;
    let items = nodes.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in
        items.iter().filter_map(|node| node.pointer("/metadata/name")?.as_str()).filter(|name| !keep(name))
    {
        plane.kubectl(["delete", "node", name]).await?;
    }
    Ok(())
}

pub fn up(directory: &Path, fake_nodes: bool) -> Result<()> {
    if let Some(pid) = running(directory) {
        println!("already up (process {})", pid.as_raw_nonzero());
        return kubeconfig(directory);
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let _ = fs::remove_file(ready_file(directory));
    let log_path = directory.join("testbed.log");
    let log = File::create(&log_path).context("cannot create the log")?;
    let mut command = Command::new("setsid");
    command.arg(std::env::current_exe()?).args(["testbed", "hold", "--directory"]).arg(directory);
    command.args(fake_nodes.then_some("--fake-nodes"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = command.spawn().context("cannot start the testbed")?;
    let start = Instant::now();
    while !ready_file(directory).exists() {
        if let Some(status) = child.try_wait()? {
            bail!("the testbed ended: {status}\n{}", fs::read_to_string(&log_path).unwrap_or_default());
        }
        ensure!(start.elapsed() < START_LIMIT, "the testbed is not ready within {}", spent(START_LIMIT));
        std::thread::park_timeout(POLL);
    }
    println!("{}", fs::read_to_string(ready_file(directory))?.trim());
    println!("ready in {}; its kubeconfig:", spent(start.elapsed()));
    kubeconfig(directory)
}

pub fn hold(directory: &Path, fake_nodes: bool) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        fs::write(pid_file(directory), std::process::id().to_string())?;
        let testbed = Testbed::start(directory, fake_nodes, Audit::Requests).await?;
        fs::write(ready_file(directory), testbed.nodes())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        testbed.stop()?;
        fs::remove_file(ready_file(directory))?;
        fs::remove_file(pid_file(directory)).context("cannot remove the process id")
    })
}

pub fn down(directory: &Path) -> Result<()> {
    let Some(pid) = running(directory) else {
        println!("not up");
        return Ok(());
    };
    kill_process(pid, Signal::TERM).context("cannot stop the testbed")?;
    let start = Instant::now();
    while pid_file(directory).exists() && test_kill_process(pid).is_ok() {
        ensure!(start.elapsed() < START_LIMIT, "the testbed did not end within {}", spent(START_LIMIT));
        std::thread::park_timeout(POLL);
    }
    println!("down after {}; its data stays in {}", spent(start.elapsed()), directory.display());
    Ok(())
}

pub fn kubeconfig(directory: &Path) -> Result<()> {
    ensure!(running(directory).is_some(), "no testbed is up: `cargo xtask testbed up` starts one");
    println!("{}", kubeconfig_in(directory).display());
    Ok(())
}

/// The process that holds the testbed, if it lives and is one of ours.
fn running(directory: &Path) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(pid_file(directory)).ok()?.trim().parse().ok()?;
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    line.contains("testbed\0hold").then(|| Pid::from_raw(pid)).flatten()
}

fn pid_file(directory: &Path) -> PathBuf {
    directory.join("testbed.pid")
}

fn ready_file(directory: &Path) -> PathBuf {
    directory.join("testbed.ready")
}
