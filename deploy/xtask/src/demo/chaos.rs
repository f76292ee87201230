//! `--chaos`: one process after another is killed while pushes and commands go on; then what was lost is said.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use testkit::WorkTree;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

use super::Running;
use super::kasbah::Many;
use crate::client::Client;
use crate::record::Record;
use crate::report::spent;

/// How long a process stays away, after others took over.
const AWAY: Duration = Duration::from_millis(1500);
/// How long anything may take until it works again.
const LIMIT: Duration = Duration::from_secs(120);
const SOURCES: [&str; 2] = ["demo/staging", "demo/production"];
const FILE: &str = "staging/chaos.yaml";

/// Kills each process once, then looks for what was acknowledged.
pub async fn run(running: &mut Running, state: &Path) -> Result<()> {
    let client = running.kasbah.client().clone();
    println!("==> chaos begins when the shop stands; after it, it is said what was lost");
    settled(&client, None).await?;
    let work = Work::start(&client, &running.shop.url(), &state.join("chaos"))?;
    let many = running.kasbah.many().context("one process has nobody to take over")?;
    for name in many.replicas.names() {
        many.replicas.kill(&name)?;
        work.goes_on(&name).await?;
        many.replicas.start_again(&name).await?;
        many.replicas.must_run()?;
    }
    for number in 0..many.nats.servers.len() {
        kill_nats(many, number, &work).await?;
    }
    let record = work.stop().await?;
    report(&client, &record).await
}

async fn kill_nats(many: &mut Many, number: usize, work: &Work) -> Result<()> {
    let server = many.nats.servers.get_mut(number).context("no such NATS server")?;
    server.kill();
    work.goes_on(&format!("nats-{number}")).await?;
    server.start_again().await?;
    // The next one is killed when this one has what was written without it.
    let end = Instant::now() + LIMIT;
    while let Err(behind) = many.nats.is_current() {
        ensure!(Instant::now() < end, "nats-{number} does not catch up: {behind:#}");
        sleep(Duration::from_millis(100)).await;
    }
    many.replicas.must_run()
}

/// Says what was acknowledged and what of it was lost; fails when something was.
async fn report(client: &Client, record: &Record) -> Result<()> {
    let last = record.last_push().context("no push was acknowledged")?;
    let settled = settled(client, Some(last)).await;
    client.call(&["log", "verify"]).context("the log does not verify")?;
    let lost = record.lost(client)?;
    let (pushes, commands) = record.acknowledged();
    println!(
        "==> {pushes} pushes and {commands} commands were acknowledged, {} others were not",
        record.unacknowledged
    );
    settled.with_context(|| format!("LOST: the push of {last}"))?;
    if lost.is_empty() {
        println!("    nothing was lost; the cluster is at the last push, and the log verifies");
        return Ok(());
    }
    for lost in &lost {
        println!("    LOST: {lost}");
    }
    bail!("{} acknowledged commands were lost", lost.len())
}

/// Waits until both sources stand, at a commit if one is given.
async fn settled(client: &Client, commit: Option<&str>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    loop {
        let missing = SOURCES.iter().map(|source| stands(client, source, commit));
        let missing = missing.collect::<Result<Vec<()>>>();
        match missing {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

fn stands(client: &Client, source: &str, commit: Option<&str>) -> Result<()> {
    let shown = client.json(&["source", "show", source])?;
    let synced = shown.get("synced_commit").and_then(Value::as_str);
    ensure!(
        synced.is_some() && (commit.is_none() || synced == commit),
        "{source} is at {synced:?}: {shown:#}"
    );
    Ok(())
}

/// Pushes and commands, one after another, until it is stopped.
struct Work {
    record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl Work {
    fn start(client: &Client, repository: &str, clone: &Path) -> Result<Self> {
        let (record, stop): (Arc<Mutex<Record>>, Arc<AtomicBool>) = Default::default();
        if clone.exists() {
            std::fs::remove_dir_all(clone)?;
        }
        let tree = WorkTree::clone_kept(repository, clone)?;
        let (noted, stopped) = (Arc::clone(&record), Arc::clone(&stop));
        let pushes = spawn_blocking(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                tree.write(FILE, config_map(number))?;
                let pushed = tree.commit_and_push(&format!("chaos {number}"));
                noted.lock().push(pushed);
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        });
        let (noted, stopped, client) = (Arc::clone(&record), Arc::clone(&stop), client.clone());
        let commands = spawn_blocking(move || {
            let run = std::process::id();
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                let name = format!("chaos-{run}-{number}");
                let answer = client.json(&["group", "create", &name]);
                noted.lock().create_group(answer, &name);
            }
            Ok(())
        });
        Ok(Self { record, stop, tasks: vec![pushes, commands] })
    }

    /// Waits until a push and a command were acknowledged that were asked for after now, and says when that was.
    async fn goes_on(&self, without: &str) -> Result<()> {
        let (pushes, commands) = self.record.lock().acknowledged();
        let begin = Instant::now();
        loop {
            let now = self.record.lock().acknowledged();
            // The first one may have been under way already.
            if now.0 > pushes + 1 && now.1 > commands + 1 {
                break;
            }
            ensure!(
                begin.elapsed() < LIMIT,
                "{without} is killed, and nothing was acknowledged for {LIMIT:?}"
            );
            sleep(Duration::from_millis(20)).await;
        }
        let after = spent(begin.elapsed());
        println!("    {without:<18} killed; pushes and commands were acknowledged again after {after}");
        sleep(AWAY).await;
        Ok(())
    }

    async fn stop(mut self) -> Result<Record> {
        self.stop.store(true, Ordering::Relaxed);
        for task in std::mem::take(&mut self.tasks) {
            task.await??;
        }
        Ok(std::mem::take(&mut *self.record.lock()))
    }
}

impl Drop for Work {
    /// Who interrupts the demo is not kept waiting by it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn config_map(number: u32) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: chaos\n  namespace: shop-staging\ndata:\n  push: \"{number}\"\n"
    )
}
