//! Many simulated agents in this process, and what is seen of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use events::Sha256;
use events::desired::DesiredState;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tunnel::agent::{DialError, Target, Transport};
use tunnel::handshake::Token;
use world::World;

use super::reports::Reports;
use super::simulated::{Behaviour, Simulated};

/// What an agent keeps from one connection to the next.
#[derive(Debug, Clone)]
pub struct AgentContent {
    /// The digest of the state that it has.
    has: Option<Sha256>,
    /// Tickets by which it resumes TLS.
    tickets: Resumption,
}

impl AgentContent {
    /// Nothing yet. Each agent is a process by itself.
    fn nothing() -> Self {
        Self { has: None, tickets: Resumption::in_memory_sessions(1) }
    }
}

/// What is known of one agent.
#[derive(Debug, Clone, Default)]
struct Seen {
    dials: usize,
    ready: Option<Instant>,
    /// The commit that it was told last, and when.
    told: Option<(String, Instant)>,
    /// The digest of the state that it has.
    has: Option<Sha256>,
}

/// What the agents share.
pub struct Shared {
    pub world: World,
    seen: Mutex<Vec<Seen>>,
    /// Why dials failed, and how often.
    failures: Mutex<BTreeMap<String, usize>>,
    changes: watch::Sender<()>,
    /// How often each agent reports; never without.
    traffic: watch::Sender<Option<Duration>>,
    /// How long reports took until they were durable, in milliseconds.
    durable: Mutex<Vec<f64>>,
}

impl Shared {
    fn change(&self, number: usize, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.seen.lock().get_mut(number) {
            change(seen);
        }
        self.changes.send_replace(());
    }

    pub fn dialled(&self, number: usize) {
        self.change(number, |seen| seen.dials += 1);
    }

    /// Its gateway listens to it.
    pub fn ready(&self, number: usize) {
        self.change(number, |seen| seen.ready = Some(Instant::now()));
    }

    pub fn lost(&self, number: usize) {
        self.change(number, |seen| seen.ready = None);
    }

    pub fn failed(&self, error: &DialError) {
        *self.failures.lock().entry(error.to_string()).or_default() += 1;
    }

    pub fn traffic(&self) -> watch::Receiver<Option<Duration>> {
        self.traffic.subscribe()
    }

    pub fn durable(&self, times: Vec<Duration>) {
        self.durable.lock().extend(times.into_iter().map(|time| time.as_secs_f64() * 1000.0));
    }

    /// The digest of the state that an agent has.
    pub fn has(&self, number: usize) -> Option<Sha256> {
        self.seen.lock().get(number).and_then(|seen| seen.has)
    }

    pub fn told(&self, number: usize, state: &DesiredState, digest: Sha256) {
        let commit = state.sources.first().map(|source| source.head.commit.clone()).unwrap_or_default();
        self.change(number, |seen| {
            seen.has = Some(digest);
            if seen.told.as_ref().is_none_or(|(told, _)| *told != commit) {
                seen.told = Some((commit, Instant::now()));
            }
        });
    }
}

fn nothing(tokens: &[Token]) -> Vec<AgentContent> {
    tokens.iter().map(|_| AgentContent::nothing()).collect()
}

/// The same, with an agent's own tickets.
fn resuming(target: &Target, tickets: &Resumption) -> Target {
    let transport = match &target.transport {
        Transport::PlainText => Transport::PlainText,
        Transport::Tls(config) => {
            let mut config = ClientConfig::clone(config);
            config.resumption = tickets.clone();
            Transport::Tls(Arc::new(config))
        }
    };
    Target { transport, ..target.clone() }
}

/// Agents that live until this is dropped.
pub struct Fleet {
    begun: Instant,
    shared: Arc<Shared>,
    tickets: Vec<Resumption>,
    agents: Vec<JoinHandle<()>>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.agents.iter().for_each(JoinHandle::abort);
    }
}

impl Fleet {
    /// All of them dial at once, spread over the gateways.
    pub fn start(targets: Vec<Target>, tokens: &[Token], manner: impl Fn(usize) -> Behaviour) -> Self {
        Self::start_with(&targets, tokens, nothing(tokens), |number| (number, manner(number)))
    }

    /// The same of agents that were there before, and have what those had ([`Self::kept`]).
    pub fn come_back(targets: Vec<Target>, tokens: &[Token], kept: Vec<AgentContent>) -> Self {
        Self::start_with(&targets, tokens, kept, |number| (number, Behaviour::Good))
    }

    /// All of them dial the first gateway at once.
    pub fn start_at_first(targets: Vec<Target>, tokens: &[Token]) -> Self {
        Self::start_with(&targets, tokens, nothing(tokens), |_| (0, Behaviour::Good))
    }

    fn start_with(
        targets: &[Target],
        tokens: &[Token],
        kept: Vec<AgentContent>,
        of: impl Fn(usize) -> (usize, Behaviour),
    ) -> Self {
        let tickets: Vec<_> = kept.iter().map(|kept| kept.tickets.clone()).collect();
        let own = |tickets| targets.iter().map(|target| resuming(target, tickets)).collect();
        let each: Vec<Vec<Target>> = tickets.iter().map(own).collect();
        let seen = kept.into_iter().map(|kept| Seen { has: kept.has, ..Seen::default() }).collect();
        let begun = Instant::now();
        let shared = Arc::new(Shared {
            world: World::real(),
            seen: Mutex::new(seen),
            failures: Mutex::default(),
            changes: watch::Sender::new(()),
            traffic: watch::Sender::new(None),
            durable: Mutex::default(),
        });
        let agents = tokens.iter().zip(each).enumerate().map(|(number, (token, targets))| {
            let (first, manner) = of(number);
            let (token, reports) = (token.clone(), Reports::default());
            let agent = Simulated { number, targets, first, token, manner, reports };
            tokio::spawn(Arc::new(agent).live(Arc::clone(&shared)))
        });
        let agents = agents.collect();
        Self { begun, shared, tickets, agents }
    }

    /// When they began to dial.
    pub const fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until something holds of so many agents; the moments at which it came to hold of each, in order.
    async fn until(
        &self,
        what: &str,
        count: usize,
        limit: Duration,
        moment: impl Fn(&Seen) -> Option<Instant>,
    ) -> anyhow::Result<Vec<Instant>> {
        let end = tokio::time::Instant::now() + limit;
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let mut moments: Vec<Instant> = self.shared.seen.lock().iter().filter_map(&moment).collect();
            if moments.len() >= count {
                moments.sort();
                return Ok(moments);
            }
            let waited = tokio::time::timeout_at(end, changes.changed()).await;
            ensure!(
                waited.is_ok(),
                "{} of {count} agents {what} within {limit:?}; dials failed by: {:?}",
                moments.len(),
                self.shared.failures.lock()
            );
            // Looking at all of them for each change would be most of the work.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until so many have a tunnel; when each had it.
    pub async fn ready(&self, count: usize, limit: Duration) -> anyhow::Result<Vec<Instant>> {
        self.until("were ready", count, limit, |seen| seen.ready).await
    }

    /// What each has for the next time.
    pub fn kept(&self) -> Vec<AgentContent> {
        let seen = self.shared.seen.lock();
        let both = seen.iter().zip(&self.tickets);
        both.map(|(seen, tickets)| AgentContent { has: seen.has, tickets: tickets.clone() }).collect()
    }

    /// How many were told anything.
    pub fn told_anything(&self) -> usize {
        self.shared.seen.lock().iter().filter(|seen| seen.told.is_some()).count()
    }

    /// Waits until so many were told a commit; when each was.
    pub async fn told(&self, commit: &str, count: usize, limit: Duration) -> anyhow::Result<Vec<Instant>> {
        let moment = |seen: &Seen| seen.told.as_ref().filter(|(told, _)| told == commit).map(|(_, at)| *at);
        self.until(&format!("were told of {commit}"), count, limit, moment).await
    }

    /// Has each agent report so often from now on.
    pub fn report_every(&self, interval: Duration) {
        self.shared.traffic.send_replace(Some(interval));
    }

    /// How long those reports took until they were durable that became so since the last call, in milliseconds.
    pub fn take_durable(&self) -> Vec<f64> {
        std::mem::take(&mut self.shared.durable.lock())
    }

    /// Dials of all of them so far.
    pub fn dials(&self) -> usize {
        self.shared.seen.lock().iter().map(|seen| seen.dials).sum()
    }

    /// Waits until so many have a tunnel that is younger than a moment; when the last one had it.
    pub async fn back(&self, since: Instant, count: usize, limit: Duration) -> anyhow::Result<Instant> {
        let younger = |seen: &Seen| seen.ready.filter(|ready| *ready > since);
        let moments = self.until("were back", count, limit, younger).await?;
        Ok(moments.last().copied().unwrap_or(since))
    }
}
