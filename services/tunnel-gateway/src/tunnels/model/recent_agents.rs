//! Agents that were connected a moment ago, and how many requests wait for each of them to reconnect.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use events::AgentId;

/// Agents that lost their tunnels dial again at once, or within this time.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(10);
/// Requests that wait for one agent.
const MAXIMUM_WAITING: usize = 64;
/// Agents that are known at once.
const MAXIMUM_AGENTS: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub struct RecentAgents {
    seen: BTreeMap<AgentId, Seen>,
    /// One entry for each of `seen`, by a time that may be too early.
    oldest_first: VecDeque<(Duration, AgentId)>,
    waiting: BTreeMap<AgentId, usize>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Duration,
    comes_back: bool,
}

impl RecentAgents {
    /// An agent could be reached until now. `now` never runs backwards.
    pub fn mark_reachable(&mut self, agent: AgentId, now: Duration) {
        self.forget_older(now);
        let seen = Seen { at: now, comes_back: true };
        if let Some(known) = self.seen.get_mut(&agent) {
            *known = seen;
        } else if self.seen.len() < MAXIMUM_AGENTS {
            self.seen.insert(agent, seen);
            self.oldest_first.push_back((now, agent));
        }
    }

    /// An agent went for good, as one whose token was revoked does.
    pub fn mark_gone(&mut self, agent: AgentId) {
        if let Some(seen) = self.seen.get_mut(&agent) {
            seen.comes_back = false;
        }
    }

    /// Begins to wait for an agent, if it is expected back and not too many wait already.
    pub fn begin_waiting(&mut self, agent: AgentId, now: Duration) -> bool {
        let is_expected = self
            .seen
            .get(&agent)
            .is_some_and(|seen| seen.comes_back && now.saturating_sub(seen.at) < COMES_BACK_WITHIN);
        let waiting = self.waiting.get(&agent).copied().unwrap_or(0);
        let may = is_expected && waiting < MAXIMUM_WAITING;
        if may {
            self.waiting.insert(agent, waiting + 1);
        }
        may
    }

    /// One that waited no longer does. Whether it was the last.
    pub fn end_waiting(&mut self, agent: AgentId) -> bool {
        let left = self.waiting.get(&agent).copied().unwrap_or(0).saturating_sub(1);
        if left > 0 {
            self.waiting.insert(agent, left);
        } else {
            self.waiting.remove(&agent);
        }
        left == 0
    }

    fn forget_older(&mut self, now: Duration) {
        let is_old = |at: Duration| now.saturating_sub(at) >= COMES_BACK_WITHIN;
        while let Some((_, agent)) = self.oldest_first.pop_front_if(|(at, _)| is_old(*at)) {
            match self.seen.get(&agent) {
                Some(seen) if !is_old(seen.at) => self.oldest_first.push_back((seen.at, agent)),
                _ => drop(self.seen.remove(&agent)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn agent(number: u128) -> AgentId {
        AgentId(Uuid::from_u128(number))
    }

    const fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn only_who_could_be_reached_a_moment_ago_is_waited_for() {
        let mut recent = RecentAgents::default();
        assert!(!recent.begin_waiting(agent(1), second(1)), "it was never there");
        recent.mark_reachable(agent(1), second(100));
        assert!(recent.begin_waiting(agent(1), second(109)));
        assert!(!recent.begin_waiting(agent(2), second(109)));
        assert!(!recent.begin_waiting(agent(1), second(110)), "it has been away too long");
        recent.mark_reachable(agent(1), second(120));
        recent.mark_gone(agent(1));
        assert!(!recent.begin_waiting(agent(1), second(121)), "it does not come back");
        recent.mark_reachable(agent(1), second(122));
        assert!(recent.begin_waiting(agent(1), second(123)), "it did come back");
    }

    #[test]
    fn only_so_many_wait_for_one_agent_and_each_leaves_a_place() {
        let mut recent = RecentAgents::default();
        recent.mark_reachable(agent(1), second(1));
        let begun = (0..1000).filter(|_| recent.begin_waiting(agent(1), second(2))).count();
        assert_eq!(begun, MAXIMUM_WAITING);
        assert!(!recent.end_waiting(agent(1)));
        assert!(recent.begin_waiting(agent(1), second(2)));
        let last = (0..MAXIMUM_WAITING).filter(|_| recent.end_waiting(agent(1))).count();
        assert_eq!((last, recent.waiting.len()), (1, 0));
    }

    #[test]
    fn who_was_there_long_ago_takes_no_memory_and_who_is_there_again_and_again_little() {
        let mut recent = RecentAgents::default();
        for number in 0..1000 {
            recent.mark_reachable(agent(number), second(0));
        }
        for moment in 1..100 {
            recent.mark_gone(agent(1));
            recent.mark_reachable(agent(1), second(moment));
        }
        assert_eq!((recent.seen.len(), recent.oldest_first.len()), (1, 1));
        assert!(recent.begin_waiting(agent(1), second(100)));
    }
}
