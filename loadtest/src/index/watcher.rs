//! The baseline of an observer, a child of this process: a list in pages and a watch, each object decoded and dropped.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::Cluster;

/// The argument that makes this program one, with its kubeconfig and the path of the list behind it.
pub const ARGUMENT: &str = "--bare-watcher";
/// Objects of a page.
const PAGE: usize = 500;

/// One that runs, and has listed everything.
pub struct Watcher {
    child: Child,
}

impl Watcher {
    pub fn start(kubeconfig: &Path, path: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).arg(kubeconfig).arg(path).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a bare watcher")?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let watcher = Self { child };
        lines.into_iter().next().context("a bare watcher says nothing")??;
        Ok(watcher)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Is one, until it is killed.
pub async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [kubeconfig, path] = arguments else { anyhow::bail!("a bare watcher takes a kubeconfig and a path") };
    let cluster = Cluster::open(Path::new(kubeconfig))?;
    let mut from = String::new();
    let version = loop {
        let list = cluster.get(&format!("{path}?limit={PAGE}&continue={from}")).await?;
        let text =
            |pointer: &str| list.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        from = text("/metadata/continue");
        if from.is_empty() {
            break text("/metadata/resourceVersion");
        }
    };
    let mut answer = cluster.stream(&format!("{path}?watch=true&resourceVersion={version}")).await?;
    ensure!(answer.status().is_success(), "watch: {}", answer.status());
    println!("listed");
    let mut rest: Vec<u8> = Vec::new();
    while let Some(bytes) = answer.chunk().await? {
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            std::hint::black_box(serde_json::from_slice::<Value>(&line)?);
        }
    }
    anyhow::bail!("the watch ended")
}
