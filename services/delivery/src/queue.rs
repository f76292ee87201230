//! Sources that something may have to be done about, each handled by itself. Pure.
//!
//! - A source is handled once at a time, and not beside another one of its agent: each is decided with the others' bundles in mind.
//! - A source that failed waits for its own pause, which doubles; no other source waits with it.
//! - Each partition of the log has its own places: what hangs in one partition takes no place of another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use events::{AgentId, SourceId};
use store::Backoff;
use world::Random;

/// Pauses of a source that cannot be decided just now.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) };
/// Pause of a source that cannot be decided as it is, unless something about it changes.
const STUCK: Duration = Duration::from_secs(60);

/// When a source is due, and its turn among those that are due then.
type Turn = (Duration, u64);

/// Which sources are due. Times are the world's monotonic clock.
#[derive(Debug)]
pub(crate) struct Queue {
    places: usize,
    partitions: BTreeMap<u16, Partition>,
    agents: BTreeMap<AgentId, Agent>,
    sources: BTreeMap<SourceId, Source>,
    turns: u64,
}

#[derive(Debug, Default)]
struct Partition {
    /// Agents of which no source is handled, by the first turn of their sources.
    waiting: BTreeSet<(Turn, AgentId)>,
    handled: usize,
}

#[derive(Debug)]
struct Agent {
    partition: u16,
    waiting: BTreeSet<(Turn, SourceId)>,
    is_handled: bool,
}

#[derive(Debug)]
struct Source {
    agent: AgentId,
    /// `None` while it is handled.
    turn: Option<Turn>,
    /// Touched while it was handled.
    again: bool,
    failures: u32,
    is_stuck: bool,
    is_postponed: bool,
}

/// A source that is to be handled now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) source: SourceId,
    pub(crate) agent: AgentId,
    /// Sources of the same agent whose turns come next. None for a source that was postponed once.
    pub(crate) coming: Vec<SourceId>,
}

/// How handling a source ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is left to do.
    Settled,
    /// Those that come next are to be handled first.
    Postponed,
    /// It may succeed a moment later.
    Failed,
    /// It succeeds only when something about it changes.
    Stuck,
}

impl Agent {
    /// Where the agent stands in its partition.
    fn turn(&self) -> Option<Turn> {
        self.waiting.first().map(|(turn, _)| *turn).filter(|_| !self.is_handled)
    }
}

impl Queue {
    /// With so many places in each partition.
    pub(crate) const fn new(places: usize) -> Self {
        Self {
            places,
            partitions: BTreeMap::new(),
            agents: BTreeMap::new(),
            sources: BTreeMap::new(),
            turns: 0,
        }
    }

    /// Whether no source waits or is handled.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Something may have to be done about a source.
    pub(crate) fn touch(&mut self, source: SourceId, agent: AgentId, partition: u16, now: Duration) {
        match self.sources.get_mut(&source) {
            Some(Source { turn: None, again, .. }) => *again = true,
            Some(Source { is_stuck: true, .. }) => self.wait(source, now),
            Some(_) => {}
            None => {
                let fresh = Source {
                    agent,
                    turn: None,
                    again: false,
                    failures: 0,
                    is_stuck: false,
                    is_postponed: false,
                };
                self.sources.insert(source, fresh);
                let waiting = BTreeSet::new();
                self.agents.entry(agent).or_insert(Agent { partition, waiting, is_handled: false });
                self.wait(source, now);
            }
        }
    }

    /// Takes the source whose turn it is, if there is a place for it.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Due> {
        let (_, agent) = self.next_turns().min().filter(|((due, _), _)| *due <= now)?;
        let (mut taken, mut others) = (None, Vec::new());
        self.change(agent, |partition, agent| {
            taken = agent.waiting.pop_first().map(|(_, source)| source);
            let due = agent.waiting.iter().take_while(|((due, _), _)| *due <= now);
            others.extend(due.map(|(_, source)| *source));
            agent.is_handled = true;
            partition.handled += 1;
        });
        let source = taken?;
        let entry = self.sources.get_mut(&source)?;
        (entry.turn, entry.again) = (None, false);
        if entry.is_postponed {
            others.clear();
        }
        others.retain(|other| self.sources.get(other).is_some_and(|known| !known.is_postponed));
        Some(Due { source, agent, coming: others })
    }

    /// A source was handled.
    pub(crate) fn finished(&mut self, source: SourceId, ended: Ended, now: Duration, random: &dyn Random) {
        let Some(entry) = self.sources.get_mut(&source) else { return };
        let due = match ended {
            Ended::Settled => entry.again.then_some(now),
            Ended::Postponed => Some(now),
            Ended::Failed => Some(now + BACKOFF.pause(entry.failures, random)),
            Ended::Stuck => Some(if entry.again { now } else { now + STUCK }),
        };
        entry.failures = if ended == Ended::Failed { entry.failures.saturating_add(1) } else { 0 };
        (entry.is_stuck, entry.is_postponed) = (ended == Ended::Stuck, ended == Ended::Postponed);
        self.turns += 1;
        entry.turn = due.map(|due| (due, self.turns));
        let (agent, turn) = (entry.agent, entry.turn);
        if turn.is_none() {
            self.sources.remove(&source);
        }
        self.change(agent, |partition, agent| {
            agent.is_handled = false;
            partition.handled = partition.handled.saturating_sub(1);
            agent.waiting.extend(turn.map(|turn| (turn, source)));
        });
    }

    /// How long until the next turn for which there is a place; `None` while there is none.
    pub(crate) fn until_next(&self, now: Duration) -> Option<Duration> {
        self.next_turns().map(|((due, _), _)| due.saturating_sub(now)).min()
    }

    /// The next turn of each partition that has a place left.
    fn next_turns(&self) -> impl Iterator<Item = (Turn, AgentId)> {
        let open = self.partitions.values().filter(|partition| partition.handled < self.places);
        open.filter_map(|partition| partition.waiting.first().copied())
    }

    /// Lets a source wait until it is due, behind those that are due at the same time.
    fn wait(&mut self, source: SourceId, due: Duration) {
        let Some(entry) = self.sources.get_mut(&source) else { return };
        self.turns += 1;
        let (agent, turn) = (entry.agent, (due, self.turns));
        let before = entry.turn.replace(turn);
        self.change(agent, |_, agent| {
            if let Some(before) = before {
                agent.waiting.remove(&(before, source));
            }
            agent.waiting.insert((turn, source));
        });
    }

    /// Changes an agent, and where it stands in its partition.
    fn change(&mut self, id: AgentId, change: impl FnOnce(&mut Partition, &mut Agent)) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let partition = self.partitions.entry(agent.partition).or_default();
        if let Some(turn) = agent.turn() {
            partition.waiting.remove(&(turn, id));
        }
        change(partition, agent);
        match agent.turn() {
            Some(turn) => {
                partition.waiting.insert((turn, id));
            }
            None if agent.is_handled => {}
            None => {
                self.agents.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
