//! Afterwards, everything must be as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::Value;
use testkit::Process;
use tokio::time::{Instant, sleep};

use super::scene::{LIMIT, Scene};
use super::work::Done;

/// More than this, beside twice of what it was, is a leak: a process that has worked keeps caches and connections.
const SPARE_MEMORY: u64 = 64 * 1024 * 1024;
const SPARE_FILES: usize = 48;
const SPARE_THREADS: usize = 16;
const SPARE_TASKS: usize = 64;

pub async fn all(scene: &mut Scene, done: &Done, begin: &Usage) -> Result<()> {
    let last = done.record.last_push().context("no push was acknowledged")?;
    scene.all_stand_at(last).await.context("a cluster is not at the last commit")?;
    clusters(scene, &done.wanted).await?;
    verified(scene)?;
    let told = Told::of(&scene.client.call(&["log", "tail", "--from", "start", "-o", "json"])?)?;
    dead_tokens(scene, &done.revoked).await?;
    let lost = done.record.lost(&scene.client)?;
    ensure!(lost.is_empty(), "acknowledged and lost: {}", lost.join("; "));
    let logs = panics(scene)?;
    ensure!(logs.is_empty(), "panics: {}", logs.join("; "));
    let violations = scene.nats.violations()?;
    ensure!(violations.is_empty(), "a service lacks permissions: {}", violations.join("; "));
    let usage = begin.compared(scene).await?;
    let (pushes, commands) = done.record.acknowledged();
    println!(
        "    {pushes} pushes, {commands} commands and {} token rotations were acknowledged, {} others were not",
        done.rotations, done.record.unacknowledged
    );
    let seen: usize = told.seen.values().map(BTreeSet::len).sum();
    println!("    nothing lost; clusters at the last commit; the log verifies");
    println!(
        "    {} events of decisions, none doubled; of {seen} things that agents saw none missing in between",
        told.decisions.len()
    );
    println!("    none of {} dead tokens lives; {usage}", done.revoked.len());
    Ok(())
}

/// All of the log that the servers keep: chains, versions and checkpoints of each organization and partition.
fn verified(scene: &Scene) -> Result<()> {
    let server = scene.nats.servers.first().context("no server")?;
    let mut command = scene.client.command();
    command.args(["log", "verify", "--from", &server.shipped_url("kasbah"), "-o", "json"]);
    command.arg("--master-key-file").arg(scene.replicas.master_key());
    let said = crate::report::output(&mut command).context("the log does not verify")?;
    let said: Value = serde_json::from_str(&said)?;
    let streams = said.pointer("/streams").and_then(Value::as_array).context("no streams")?;
    let of_decisions = streams.iter().find(|stream| stream.get("stream") == Some(&"decisions".into()));
    let records = of_decisions.and_then(|stream| stream.get("records")).and_then(Value::as_u64);
    ensure!(records > Some(0), "no decisions were verified: {said}");
    Ok(())
}

/// Each namespace holds what Git said last.
async fn clusters(scene: &Scene, wanted: &BTreeMap<String, BTreeMap<String, String>>) -> Result<()> {
    for (name, agent) in &scene.agents {
        let path = format!("/api/v1/namespaces/{}/configmaps?labelSelector=chaos%3Dyes", agent.namespace);
        let wanted = wanted.get(name).context("no such agent")?;
        let end = Instant::now() + LIMIT;
        loop {
            let list = scene.cluster.get(&path).await?;
            let items = list.pointer("/items").and_then(Value::as_array).context("no list")?;
            let text = |item: &Value, pointer: &str| {
                item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let found: BTreeMap<String, String> =
                items.iter().map(|item| (text(item, "/metadata/name"), text(item, "/data/value"))).collect();
            if found == *wanted {
                break;
            }
            ensure!(Instant::now() < end, "{name} has {found:?}, not {wanted:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// What the log tells by the console, counted.
#[derive(Default)]
struct Told {
    decisions: BTreeSet<String>,
    versions: BTreeMap<String, u64>,
    desired: BTreeMap<String, (String, String)>,
    /// Sequences of each agent's epochs.
    seen: BTreeMap<String, BTreeSet<u64>>,
}

impl Told {
    /// No decision is there twice or was made twice, and nothing is missing between what an agent saw first and last in an epoch. What was
    /// seen may be stored twice, and the console tells it once: whether it is cannot be seen here.
    fn of(text: &str) -> Result<Self> {
        let mut told = Self::default();
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).with_context(|| format!("no event: {line}"))?;
            told.add(&event).with_context(|| line.to_owned())?;
        }
        for (epoch, sequences) in &told.seen {
            let missing = (1..).zip(sequences).find(|(wanted, found)| wanted != *found);
            ensure!(missing.is_none(), "{epoch} has a hole, number wanted and found: {missing:?}");
        }
        ensure!(!told.decisions.is_empty() && !told.seen.is_empty(), "nothing was decided or seen: {text}");
        Ok(told)
    }

    fn add(&mut self, event: &Value) -> Result<()> {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (id, subject) = (text("id"), text("subject"));
        if subject.starts_with("agent-") {
            let (epoch, sequence) = id.rsplit_once('/').context("an observation without a sequence")?;
            self.seen.entry(epoch.to_owned()).or_default().insert(sequence.parse()?);
        }
        // What has no version is no decision: a command that is sent again may be refused again, under its own id.
        let Some(version) = event.get("aggregateversion").and_then(Value::as_u64) else { return Ok(()) };
        ensure!(self.decisions.insert(id), "twice in the log");
        let before = self.versions.insert(subject.clone(), version).unwrap_or(0);
        ensure!(version == before || version == before + 1, "version {before} is before it");
        if text("type") == "kasbah.bundle.desired" {
            let part = |name: &str| event.pointer(name).map(Value::to_string).unwrap_or_default();
            let bundle = ["/data/commit", "/data/bundle", "/data/prune"].map(part).join(" ");
            let before = self.desired.insert(subject, (bundle.clone(), event.to_string()));
            let twice = before.filter(|(before, _)| *before == bundle);
            ensure!(twice.is_none(), "decided twice in a row, before it: {twice:?}");
        }
        Ok(())
    }
}

/// No gateway takes a token that was revoked or whose agent is deleted.
async fn dead_tokens(scene: &Scene, revoked: &[(String, String)]) -> Result<()> {
    let authority = fs::read(scene.replicas.authority())?;
    let client = testkit::client_trusting(&authority)?;
    for (name, secret) in revoked {
        let url = format!("https://{}/v1/tunnel", scene.replicas.gateway());
        let asked = client
            .get(url)
            .bearer_auth(secret)
            .header("connection", "Upgrade")
            .header("upgrade", "kasbah-tunnel")
            .header("kasbah-protocol", "1")
            .header("kasbah-role", "control")
            .header("kasbah-instance", "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55")
            .header("kasbah-epoch", "0")
            .header("kasbah-version", "chaos")
            .header("kasbah-capabilities", "");
        let status = asked.send().await.context("the gateways do not answer")?.status();
        ensure!(status == StatusCode::UNAUTHORIZED, "a dead token of {name} is answered {status}");
    }
    Ok(())
}

fn panics(scene: &Scene) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let names = scene.replicas.names().into_iter();
    let logs = names.map(|name| scene.replicas.folder().join(format!("{name}.log")));
    let agents = scene.agents.keys().map(|name| scene.folder.path().join(format!("{name}.log")));
    for log in logs.chain(agents) {
        let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        found.extend(text.lines().filter(|line| line.contains("panicked at")).map(str::to_owned));
    }
    Ok(found)
}

/// What processes hold.
pub struct Usage(BTreeMap<String, Held>);

#[derive(Clone, Copy)]
struct Held {
    memory: u64,
    files: usize,
    threads: usize,
    tasks: usize,
}

impl Held {
    fn of(process: &Process, admin: SocketAddr) -> Option<Self> {
        let count = |what: &str| Some(fs::read_dir(format!("/proc/{}/{what}", process.pid())).ok()?.count());
        let metrics = testkit::admin_page(&admin.to_string(), "/metrics").ok()?;
        let tasks = metrics.lines().find_map(|line| line.strip_prefix("kasbah_tasks "))?.parse().ok()?;
        let (memory, files, threads) = (process.resident_memory()?, count("fd")?, count("task")?);
        Some(Self { memory, files, threads, tasks })
    }

    const fn leaks_since(self, begin: Self) -> bool {
        self.memory > 2 * begin.memory + SPARE_MEMORY
            || self.files > begin.files + SPARE_FILES
            || self.threads > begin.threads + SPARE_THREADS
            || self.tasks > 2 * begin.tasks + SPARE_TASKS
    }
}

impl Usage {
    /// Waits until each process has told what it holds.
    pub async fn of(scene: &Scene) -> Result<Self> {
        let end = Instant::now() + LIMIT;
        loop {
            let (usage, silent) = Self::now(scene);
            if silent.is_empty() {
                return Ok(usage);
            }
            ensure!(Instant::now() < end, "do not tell what they hold: {}", silent.join(", "));
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// What each process holds, and who does not tell.
    fn now(scene: &Scene) -> (Self, Vec<String>) {
        let replicas = scene.replicas.names().into_iter().map(|name| {
            let (process, admin) = (scene.replicas.process(&name), scene.replicas.admin(&name));
            (name, process.zip(admin))
        });
        let agents = scene.agents.iter();
        let agents =
            agents.map(|(name, agent)| (name.clone(), agent.process.as_ref().zip(Some(agent.admin))));
        let (mut held, mut silent) = (BTreeMap::new(), Vec::new());
        for (name, process) in replicas.chain(agents) {
            match process.and_then(|(process, admin)| Held::of(process, admin)) {
                Some(what) => drop(held.insert(name, what)),
                None => silent.push(name),
            }
        }
        (Self(held), silent)
    }

    /// Waits until nobody holds much more than in the beginning.
    async fn compared(&self, scene: &Scene) -> Result<String> {
        let end = Instant::now() + LIMIT;
        loop {
            let (now, silent) = Self::now(scene);
            let leaking = now.0.iter().filter_map(|(name, held)| {
                let begin = self.0.get(name)?;
                held.leaks_since(*begin).then(|| {
                    format!(
                        "{name}: {} of {} MiB, {} of {} files, {} of {} threads, {} of {} tasks",
                        held.memory >> 20,
                        begin.memory >> 20,
                        held.files,
                        begin.files,
                        held.threads,
                        begin.threads,
                        held.tasks,
                        begin.tasks
                    )
                })
            });
            let leaking: Vec<String> = leaking.collect();
            if leaking.is_empty() && silent.is_empty() {
                let memory = now.0.values().map(|held| held.memory >> 20).max().unwrap_or(0);
                return Ok(format!("no leak, the largest process has {memory} MiB"));
            }
            let leaking = leaking.join("; ");
            ensure!(
                Instant::now() < end,
                "do not tell what they hold: {silent:?}; more is held than in the beginning: {leaking}"
            );
            sleep(Duration::from_secs(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(id: &str, version: u64, bundle: &str) -> String {
        let data = serde_json::json!({"commit": "c", "bundle": bundle, "prune": []});
        let decided = serde_json::json!({
            "id": id, "subject": "source/s", "type": "kasbah.bundle.desired", "aggregateversion": version, "data": data,
        });
        format!("{decided}\n")
    }

    fn seen(sequence: u64) -> String {
        let id = format!("agent-a/1/{sequence}");
        format!("{}\n", serde_json::json!({"id": id, "subject": "agent-a", "type": "kasbah.observed.gap"}))
    }

    fn said_of(lines: &[String]) -> String {
        Told::of(&lines.concat()).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn what_is_doubled_or_missing_is_named() {
        let whole = [decided("1", 1, "a"), seen(2), decided("2", 2, "b"), seen(1)];
        assert_eq!(said_of(&whole), "");
        for (more, wrong) in [
            (decided("2", 2, "c"), "twice in the log"),
            (decided("3", 4, "c"), "version 2 is before it"),
            (decided("3", 3, "b"), "decided twice in a row"),
            (seen(4), "agent-a/1 has a hole, number wanted and found: Some((3, 4))"),
        ] {
            let said = said_of(&[whole.concat(), more]);
            assert!(said.contains(wrong), "not {wrong}: {said}");
        }
        assert!(said_of(&whole[..1]).contains("nothing was decided or seen"));
    }
}
