//! Whose file is to be read when.

use std::collections::BTreeMap;
use std::time::Duration;

use events::AgentId;
use world::Random;

use super::Cause;
use super::read::Read;

/// First and longest pause when a file could not be read just now.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// One entry for each agent with a live token. Times are the world's monotonic clock.
pub(super) struct Schedule {
    interval: Duration,
    entries: BTreeMap<AgentId, Entry>,
    /// The revision of the state that the agents are from.
    seen: Option<u64>,
}

#[derive(Debug, Default)]
struct Entry {
    due: Duration,
    cause: Option<Cause>,
    reading: bool,
    /// Asked for while it was being read.
    again: bool,
    failures: u32,
}

impl Schedule {
    pub(super) const fn new(interval: Duration) -> Self {
        Self { interval, entries: BTreeMap::new(), seen: None }
    }

    /// Whether the agents of this revision are not known yet.
    pub(super) fn needs(&mut self, revision: u64) -> bool {
        self.seen.replace(revision) != Some(revision)
    }

    /// Tokens may have ended meanwhile: the agents are asked for again.
    pub(super) const fn look_again(&mut self) {
        self.seen = None;
    }

    /// These are the agents now; new ones are due at once.
    pub(super) fn keep(&mut self, agents: &[AgentId], now: Duration) {
        self.entries.retain(|agent, _| agents.binary_search(agent).is_ok());
        for agent in agents {
            self.entries.entry(*agent).or_insert_with(|| Entry { due: now, ..Entry::default() });
        }
    }

    /// An agent that is due, and the chain that made it so.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<(AgentId, Option<Cause>)> {
        let (agent, entry) = self.entries.iter_mut().find(|(_, entry)| !entry.reading && entry.due <= now)?;
        entry.reading = true;
        Some((*agent, entry.cause.take()))
    }

    pub(super) fn until_next(&self, now: Duration) -> Duration {
        let waiting = self.entries.values().filter(|entry| !entry.reading);
        waiting.map(|entry| entry.due.saturating_sub(now)).min().unwrap_or(self.interval).min(self.interval)
    }

    /// These are due at once, in that chain.
    pub(super) fn due_if(&mut self, concerned: impl Fn(&AgentId) -> bool, cause: &Cause) {
        for (_, entry) in self.entries.iter_mut().filter(|(agent, _)| concerned(agent)) {
            entry.due = Duration::ZERO;
            entry.cause = Some(cause.clone());
            entry.again = entry.reading;
        }
    }

    pub(super) fn all_due(&mut self) {
        for entry in self.entries.values_mut() {
            entry.due = Duration::ZERO;
            entry.again = entry.reading;
        }
    }

    pub(super) fn finished(&mut self, agent: AgentId, read: Read, now: Duration, random: &dyn Random) {
        let Some(entry) = self.entries.get_mut(&agent) else { return };
        entry.reading = false;
        if std::mem::take(&mut entry.again) {
            return;
        }
        let pause = match read {
            Read::Done => {
                entry.failures = 0;
                self.interval
            }
            Read::NotNow => {
                let doubled = FIRST_BACKOFF
                    .saturating_mul(1_u32.checked_shl(entry.failures.min(16)).unwrap_or(u32::MAX));
                entry.failures = entry.failures.saturating_add(1);
                doubled.min(LONGEST_BACKOFF)
            }
        };
        let spread = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 5;
        entry.due = now + pause - Duration::from_millis(random.below(spread));
    }
}
