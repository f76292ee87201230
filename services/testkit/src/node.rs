//! A real node: containerd and kubelet in namespaces of their own, joined to a [`ControlPlane`].
//!
//! Needs root. The node is linked to this machine by a pair of virtual interfaces: pods reach programs of this machine
//! under [`cluster_node::HOST`], and this machine reaches pods under their own addresses. All of it goes with the
//! namespaces.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::cluster_node::{ADDRESS, HOST, NAME, PAUSE_IMAGE, POD_RANGE};
use crate::{ControlPlane, Image, Process, Skipped, Tools};

const INIT: &str = include_str!("../../../deploy/testbed/node-init.sh");
const LINK: &str = "kasbah-node";
/// With one hierarchy of control groups (version 2), the node's root must be a group without other processes.
const ENTER_GROUP: &str = r#"
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control || true
  done
  mkdir -p /sys/fs/cgroup/kasbah-node
  echo $$ > /sys/fs/cgroup/kasbah-node/cgroup.procs
fi
exec "$@"
"#;
const READY_LIMIT: Duration = Duration::from_secs(90);

/// A running node; everything of it ends with this handle or with this process. One a machine at a time: a second one
/// waits for the first to end.
#[derive(Debug)]
pub struct Node {
    process: Process,
    init: u32,
    folder: PathBuf,
    _turn: File,
}

impl Node {
    /// Whether this machine can run one, and if not, why.
    pub fn possible() -> Result<(), Skipped> {
        let refuse = |reason: &str| Err(Skipped(format!("a real node {reason}")));
        if !cfg!(target_os = "linux") {
            return refuse("needs Linux");
        }
        if !rustix::process::geteuid().is_root() {
            return refuse("needs root");
        }
        let Ok(parts) = Tools::find().and_then(|tools| tools.node_parts()) else {
            return refuse(
                "needs containerd and runc, which `cargo xtask testbed build` gets where apt-get works",
            );
        };
        if hidden_by_own_mounts(&parts) {
            return refuse("cannot use a cache below /var/lib, /var/log or /run: set KASBAH_CACHE");
        }
        let mut probe = Command::new("unshare");
        probe.args(["-m", "-C", "-n", "-u", "-i", "-p", "-f", "sh", "-c"]);
        probe.arg("mount --make-rprivate / && mount -t tmpfs none /mnt");
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            return refuse("needs the right to create namespaces and mounts");
        }
        Ok(())
    }

    /// Starts one with these images and waits until it is ready. The control plane must have been started with
    /// `reachable_at: Some(cluster_node::HOST.into())`.
    pub async fn start(plane: &ControlPlane, images: &[Image]) -> Result<Self> {
        Self::possible().map_err(|skipped| anyhow::anyhow!("{skipped}"))?;
        let turn = tokio::task::spawn_blocking(wait_for_turn).await.context("the waiting thread ended")??;
        let folder = plane.folder().join("node");
        ensure!(!hidden_by_own_mounts(&folder), "a node cannot run below /var/lib, /var/log or /run");
        let tools = Tools::find()?;
        let parts = tools.node_parts()?;
        write_run_folder(plane, &folder, &parts, images)?;
        let programs = tools.path("kubelet")?;
        remove_control_groups();
        let mut command = Command::new("sh");
        command.args(["-c", ENTER_GROUP, "sh", "unshare", "-m", "-C", "-n", "-u", "-i", "-p", "-f"]);
        command.args(["--kill-child=SIGKILL", "bash"]);
        command.arg(folder.join("init.sh")).arg(&folder).arg(&parts);
        command.arg(programs.parent().context("a program without a folder")?);
        let process = Process::spawn("the node", command, &folder.join("init.log"))?;
        let mut node = Self { process, init: 0, folder, _turn: turn };
        node.init = node.wait_for_init().await?;
        node.link(&parts)?;
        node.wait_until_ready(plane).await?;
        Ok(node)
    }

    /// A command that runs inside all of the node's namespaces, with the node's programs at hand.
    pub fn command(&self, program: &str) -> Result<Command> {
        let parts = Tools::find()?.node_parts()?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init.to_string(), "-m", "-C", "-n", "-u", "-i", "-p", "--", program]);
        let path = std::env::var("PATH").unwrap_or_default();
        let (sbin, bin) = (parts.join("usr/sbin"), parts.join("usr/bin"));
        command.env("PATH", format!("{}:{}:{path}", sbin.display(), bin.display()));
        Ok(command)
    }

    /// Imports one more image.
    pub fn import(&self, image: &Image) -> Result<()> {
        let path = self.folder.join("images").join("late.tar");
        image.write(&path)?;
        let mut command = self.command("ctr")?;
        command.args(["-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs"]).arg(&path);
        let output = command.output().context("cannot start ctr")?;
        ensure!(output.status.success(), "ctr: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Its folder with the logs of containerd, kubelet and kube-proxy.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    async fn wait_for_init(&mut self) -> Result<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.process.pid());
        let end = Instant::now() + READY_LIMIT;
        let mut ticks = interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            self.process.must_run()?;
            let text = fs::read_to_string(&children).unwrap_or_default();
            if let Some(Ok(pid)) = text.split_whitespace().next().map(str::parse) {
                return Ok(pid);
            }
            ensure!(Instant::now() < end, "the node's first process did not start");
        }
    }

    /// Puts one end of a virtual cable into the node's network, and sets up the other here.
    fn link(&self, parts: &Path) -> Result<()> {
        let init = self.init.to_string();
        let ip = |arguments: &[&str]| run_ip(parts, arguments);
        // The kernel takes a cable away some time after its node has ended. It is our turn, so this one is nobody's.
        let _gone_already = ip(&["link", "delete", LINK]);
        ip(&["link", "add", LINK, "type", "veth", "peer", "name", "node0", "netns", &init])?;
        ip(&["addr", "add", &format!("{HOST}/24"), "dev", LINK])?;
        ip(&["link", "set", LINK, "up"])?;
        ip(&["route", "replace", POD_RANGE, "via", &ADDRESS.to_string(), "onlink", "dev", LINK])
    }

    async fn wait_until_ready(&mut self, plane: &ControlPlane) -> Result<()> {
        let end = Instant::now() + READY_LIMIT;
        let mut ticks = interval(Duration::from_millis(50));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.process.must_run()?;
            let node = plane.get(&format!("/api/v1/nodes/{NAME}")).await;
            if node.is_ok_and(|node| is_ready(&node)) {
                return Ok(());
            }
            if Instant::now() >= end {
                let kubelet = fs::read_to_string(self.folder.join("kubelet.log")).unwrap_or_default();
                let tail: Vec<&str> = kubelet.lines().rev().take(15).collect();
                bail!(
                    "the node is not ready within {READY_LIMIT:?}:\n{}\n{}",
                    self.process.log_tail(15),
                    tail.join("\n")
                );
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill();
        remove_control_groups();
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// The node mounts its own folders over these.
fn hidden_by_own_mounts(path: &Path) -> bool {
    ["/var/lib", "/var/log", "/run", "/var/run", "/proc", "/sys"]
        .iter()
        .any(|hidden| path.starts_with(hidden))
}

/// Two nodes on one machine would share control groups and addresses.
fn wait_for_turn() -> Result<File> {
    let path = std::env::temp_dir().join("kasbah-testkit-node.lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    file.lock().context("cannot wait for the other node to end")?;
    Ok(file)
}

fn write_run_folder(plane: &ControlPlane, folder: &Path, parts: &Path, images: &[Image]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("images")).context("cannot create the node's folder")?;
    plane.write_node_files(folder)?;
    let environment = format!(
        "NODE_NAME={NAME}\nNODE_ADDRESS={ADDRESS}\nHOST_ADDRESS={HOST}\nPOD_RANGE={POD_RANGE}\nPAUSE_IMAGE={PAUSE_IMAGE}\n"
    );
    fs::write(folder.join("node.env"), environment)?;
    fs::write(folder.join("init.sh"), INIT)?;
    Image::of_program(PAUSE_IMAGE, &parts.join("pause")).write(&folder.join("images/pause.tar"))?;
    for (number, image) in images.iter().enumerate() {
        image.write(&folder.join(format!("images/{number}.tar")))?;
    }
    Ok(())
}

/// The machine's own `ip`, or the one from the node's parts.
fn run_ip(parts: &Path, arguments: &[&str]) -> Result<()> {
    let own = parts.join("sbin/ip");
    let libraries: Vec<String> = ["usr/lib", "lib"]
        .iter()
        .filter_map(|folder| fs::read_dir(parts.join(folder)).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path().display().to_string()))
        .filter(|path| path.ends_with("-linux-gnu"))
        .collect();
    let system =
        ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].into_iter().map(PathBuf::from).find(|path| path.exists());
    let mut command = match system {
        Some(path) => Command::new(path),
        None => {
            let mut command = Command::new(own);
            command.env("LD_LIBRARY_PATH", libraries.join(":"));
            command
        }
    };
    let output = command.args(arguments).output().context("cannot start ip")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Control groups outlive their processes. Only the node's own are removed, below the group of this process.
fn remove_control_groups() {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let hierarchy = controllers.strip_prefix("name=").unwrap_or(controllers);
        let own = Path::new("/sys/fs/cgroup").join(hierarchy).join(path.trim_start_matches('/'));
        for name in ["kubepods", "k8s.io"] {
            remove_group(&own.join(name));
        }
    }
    remove_group(Path::new("/sys/fs/cgroup/kasbah-node"));
}

/// A group can be removed once its last process is gone, which takes the kernel a moment after a kill.
fn remove_group(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        remove_group(&entry.path());
    }
    for _ in 0..50 {
        if fs::remove_dir(group).is_ok() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
