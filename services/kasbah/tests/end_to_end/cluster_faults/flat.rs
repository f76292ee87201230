//! What processes hold, before and after.

use anyhow::{Context as _, Result, ensure};
use testkit::{admin_page, eventually, memory_of};

use super::stage::Stage;
use crate::scene::LIMIT;

/// Descriptors that may be there or not: connections of one's own between two uses, an open log.
const DESCRIPTORS_EITHER_WAY: usize = 8;
/// What an allocator may keep of what was in use once more than before.
const KEPT_BYTES: u64 = 20_000_000;

/// What each process held at a moment after everything had been in use once.
pub struct Held(Vec<Process>);

struct Process {
    name: String,
    pid: u32,
    descriptors: usize,
    threads: usize,
    memory: u64,
}

impl Process {
    fn look(name: &str, pid: u32) -> Result<Self> {
        let entries = |folder: &str| {
            Ok::<_, std::io::Error>(std::fs::read_dir(format!("/proc/{pid}/{folder}"))?.count())
        };
        let memory = memory_of(pid, "VmRSS:").with_context(|| format!("{name} is gone"))?;
        Ok(Self {
            name: name.to_owned(),
            pid,
            descriptors: entries("fd")?,
            threads: entries("task")?,
            memory,
        })
    }
}

impl Held {
    /// Of the server and both agents, or of those replicas and agents.
    pub fn now(stage: &mut Stage, replicas: &[&str], agents: &[&str]) -> Self {
        let kasbah = &mut stage.scene.kasbah;
        let mut all: Vec<(String, u32)> = match kasbah.replicas() {
            Ok(running) => {
                let pid = |name: &&str| ((*name).to_owned(), running.process(name).unwrap().pid());
                replicas.iter().map(pid).collect()
            }
            Err(_one_process) => vec![("kasbah up".to_owned(), kasbah.server().unwrap().pid())],
        };
        for agent in agents {
            all.push(((*agent).to_owned(), kasbah.agent(agent).unwrap().pid()));
        }
        Self(all.iter().map(|(name, pid)| Process::look(name, *pid).unwrap()).collect())
    }

    /// The most of both moments.
    pub fn or_more(self, other: Self) -> Self {
        let most = |(one, other): (Process, Process)| Process {
            descriptors: one.descriptors.max(other.descriptors),
            threads: one.threads.max(other.threads),
            memory: one.memory.max(other.memory),
            ..one
        };
        Self(self.0.into_iter().zip(other.0).map(most).collect())
    }

    /// Waits until each holds what it held.
    pub async fn is_held_again(&self) {
        eventually(LIMIT, || async {
            for before in &self.0 {
                let now = Process::look(&before.name, before.pid)?;
                let told = format!(
                    "{}: {} descriptors after {}, {} threads after {}, {} kB after {}",
                    now.name,
                    now.descriptors,
                    before.descriptors,
                    now.threads,
                    before.threads,
                    now.memory / 1000,
                    before.memory / 1000,
                );
                ensure!(now.descriptors <= before.descriptors + DESCRIPTORS_EITHER_WAY, "{told}");
                ensure!(now.threads <= before.threads + DESCRIPTORS_EITHER_WAY, "{told}");
                ensure!(now.memory <= before.memory + before.memory * 3 / 10 + KEPT_BYTES, "{told}");
                println!("{told}");
            }
            Ok(())
        })
        .await;
    }
}

/// The instances of the scene's own agent and of the faulty one.
pub const AGENTS: [&str; 2] = ["agent", super::stage::FAULTY];

/// A gauge or counter on the page of an admin listener, all labels together.
pub fn metric(admin: &str, name: &str) -> Result<u64> {
    let page = admin_page(admin, "/metrics")?;
    let lines = page.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
    });
    let values = lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
    let values: Vec<u64> = values.collect::<Result<_, _>>()?;
    ensure!(!values.is_empty(), "no {name} at {admin}");
    Ok(values.iter().sum())
}

/// Waits until a gateway has nobody's request open.
pub async fn nothing_is_open(admin: &str) {
    eventually(LIMIT, || async {
        let open = metric(admin, "kasbah_tunnel_gateway_cluster_requests_open")?;
        ensure!(open == 0, "{open} requests are open at the gateway");
        Ok(())
    })
    .await;
}

/// Where the one process tells its metrics.
pub fn admin(stage: &Stage) -> String {
    stage.scene.kasbah.admin().trim_start_matches("http://").to_owned()
}
