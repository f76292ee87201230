//! What goes on while processes are struck: pushes, configuration changes, token rotations, commands. Each keeps its own record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use testkit::{Dice, WorkTree, write_private};
use tokio::task::{JoinHandle, spawn_blocking};

use super::scene::{self, PROJECT, Scene};
use crate::client::Client;
use crate::record::Record;

/// ConfigMaps of an agent that come and go.
const NAMES: u64 = 8;

/// What was done, and has to be so in the end.
#[derive(Debug, Default)]
pub struct Done {
    /// What was acknowledged.
    pub record: Record,
    /// Each agent's ConfigMaps, with their values.
    pub wanted: BTreeMap<String, BTreeMap<String, String>>,
    /// Secrets of tokens that were revoked, or whose agent was deleted, each with its name.
    pub revoked: Vec<(String, String)>,
    /// Rotations that were acknowledged in all their parts.
    pub rotations: usize,
}

/// The work while it goes on.
pub struct Work {
    stop: Arc<AtomicBool>,
    workers: Option<[JoinHandle<Result<Done>>; 3]>,
}

impl Drop for Work {
    /// Nobody works on when the run fails.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One who works.
struct Worker {
    client: Client,
    dice: Dice,
    stop: Arc<AtomicBool>,
    done: Done,
}

/// What of an agent concerns the work.
#[derive(Clone)]
struct Agent {
    name: String,
    namespace: String,
    token_file: PathBuf,
    token_id: String,
    secret: String,
}

impl Work {
    pub fn start(scene: &Scene, mut dice: Dice) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let agents: Vec<Agent> = scene.agents.iter().map(|(name, agent)| Agent::of(name, agent)).collect();
        let mut worker = || Worker {
            client: scene.client.clone(),
            dice: Dice::new(dice.roll(u64::MAX)),
            stop: Arc::clone(&stop),
            done: Done::default(),
        };
        let (pushing, rotating, commanding) = (worker(), worker(), worker());
        let (tree, fleet) = (Arc::clone(&scene.tree), agents.clone());
        let pushes = spawn_blocking(move || pushing.push(&tree, &fleet));
        let tokens = spawn_blocking(move || rotating.rotate(agents));
        let commands = spawn_blocking(move || commanding.command());
        Self { workers: Some([pushes, tokens, commands]), stop }
    }

    /// Ends it, and gives what was done.
    pub async fn stop(mut self) -> Result<Done> {
        self.stop.store(true, Ordering::Relaxed);
        let [pushes, tokens, commands] = self.workers.take().context("stopped already")?;
        let (pushed, rotated, commanded) = tokio::try_join!(pushes, tokens, commands)?;
        let (pushed, rotated, mut done) = (pushed?, rotated?, commanded?);
        done.record.add(pushed.record);
        done.record.add(rotated.record);
        done.wanted = pushed.wanted;
        done.revoked.extend(rotated.revoked);
        done.rotations = rotated.rotations;
        Ok(done)
    }
}

impl Worker {
    fn pause(&mut self, least: u64, more: u64) -> bool {
        std::thread::sleep(Duration::from_millis(least + self.dice.roll(more)));
        !self.stop.load(Ordering::Relaxed)
    }

    /// Changes, adds and removes ConfigMaps, and now and then an agent's configuration.
    fn push(mut self, tree: &WorkTree, agents: &[Agent]) -> Result<Done> {
        for agent in agents {
            let first = BTreeMap::from([("first".to_owned(), "0".to_owned())]);
            self.done.wanted.insert(agent.name.clone(), first);
        }
        let mut number = 0;
        while self.pause(100, 400) {
            number += 1;
            let agent = self.dice.pick(agents).context("no agents")?;
            match self.dice.roll(8) {
                0 => {
                    let interval = 20 + self.dice.roll(60);
                    let text = scene::configuration(&agent.name, &agent.namespace, interval);
                    tree.write(&scene::configuration_file(&agent.name), text)?;
                }
                1 | 2 => self.remove(tree, &agent.name)?,
                _ => self.set(tree, &agent.name, number)?,
            }
            if tree.git(&["status", "--porcelain"])?.trim().is_empty() {
                continue;
            }
            self.done.record.push(tree.commit_and_push(&format!("chaos {number}")));
        }
        Ok(self.done)
    }

    fn set(&mut self, tree: &WorkTree, agent: &str, number: u32) -> Result<()> {
        let (name, value) = (format!("c{}", self.dice.roll(NAMES)), number.to_string());
        tree.write(&scene::manifest(agent, &name), scene::config_map(&name, &value))?;
        self.done.wanted.entry(agent.to_owned()).or_default().insert(name, value);
        Ok(())
    }

    fn remove(&mut self, tree: &WorkTree, agent: &str) -> Result<()> {
        let wanted = self.done.wanted.entry(agent.to_owned()).or_default();
        let names: Vec<String> = wanted.keys().filter(|name| *name != "first").cloned().collect();
        let Some(name) = self.dice.pick(&names) else { return Ok(()) };
        wanted.remove(name);
        tree.remove(&scene::manifest(agent, name))
    }

    /// Gives agents new tokens, and registers guests that are deleted again.
    fn rotate(mut self, mut agents: Vec<Agent>) -> Result<Done> {
        let mut number = 0;
        while self.pause(1000, 3000) {
            number += 1;
            if self.dice.roll(3) == 0 {
                self.guest(number);
                continue;
            }
            let chosen = usize::try_from(self.dice.roll(agents.len() as u64))?;
            if let Some(agent) = agents.get_mut(chosen)
                && self.rotate_one(agent, number).is_err()
            {
                self.done.record.unacknowledged += 1;
            }
        }
        Ok(self.done)
    }

    fn rotate_one(&mut self, agent: &mut Agent, number: u32) -> Result<()> {
        let name = format!("rotation-{number}");
        let issued = self.client.json(&["token", "issue", "--agent", &agent.name, "--name", &name])?;
        let (id, secret) = scene::issued(&issued)?;
        write_private(&agent.token_file, &secret)?;
        let old = std::mem::replace(&mut agent.token_id, id);
        let old_secret = std::mem::replace(&mut agent.secret, secret);
        self.client.call(&["token", "revoke", &old])?;
        self.done.revoked.push((format!("{}, token {old}", agent.name), old_secret));
        self.done.rotations += 1;
        Ok(())
    }

    /// An agent that is registered and deleted: its token must never live again.
    fn guest(&mut self, number: u32) {
        let name = format!("guest-{number}");
        let gone = self.client.json(&["agent", "register", &name, "--project", PROJECT]).and_then(|guest| {
            let (_, secret) = scene::issued(guest.get("token").context("no token")?)?;
            let id = guest.pointer("/agent/id").and_then(Value::as_str).context("no id")?.to_owned();
            self.client.call(&["agent", "delete", &id])?;
            Ok(secret)
        });
        match gone {
            Ok(secret) => self.done.revoked.push((name, secret)),
            Err(_) => self.done.record.unacknowledged += 1,
        }
    }

    fn command(mut self) -> Result<Done> {
        let mut number = 0;
        while self.pause(50, 200) {
            number += 1;
            let name = format!("chaos-{number}");
            let asked = self.client.json(&["group", "create", &name]);
            self.done.record.create_group(asked, &name);
        }
        Ok(self.done)
    }
}

impl Agent {
    fn of(name: &str, agent: &scene::Agent) -> Self {
        Self {
            name: name.to_owned(),
            namespace: agent.namespace.clone(),
            token_file: agent.token_file.clone(),
            token_id: agent.token_id.clone(),
            secret: std::fs::read_to_string(&agent.token_file).unwrap_or_default(),
        }
    }
}
