//! Agents that were within reach a moment ago, and the requests that wait for them to come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::AgentId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::Reach;

/// See the module.
#[derive(Default)]
pub(crate) struct Returns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reach: Reach,
    /// Of those who are waited for: told when a tunnel of theirs opens here.
    arrivals: BTreeMap<AgentId, Arc<Notify>>,
}

impl Returns {
    /// An agent could be reached until now.
    pub(crate) fn note(&self, agent: AgentId, now: Duration) {
        self.state.lock().reach.note(agent, now);
    }

    /// An agent went for good.
    pub(crate) fn gone(&self, agent: AgentId) {
        self.state.lock().reach.gone(agent);
    }

    /// An agent has a tunnel here.
    pub(crate) fn arrived(&self, agent: AgentId) {
        if let Some(arrival) = self.state.lock().arrivals.get(&agent) {
            arrival.notify_waiters();
        }
    }

    /// Waits for an agent, unless nobody expects it back or too many wait already.
    pub(crate) fn wait(&self, agent: AgentId, now: Duration) -> Option<Waiting<'_>> {
        let mut state = self.state.lock();
        if !state.reach.begin_waiting(agent, now) {
            return None;
        }
        let arrival = Arc::clone(state.arrivals.entry(agent).or_default());
        Some(Waiting { returns: self, agent, arrival })
    }
}

/// A request that waits, for as long as this is held.
pub(crate) struct Waiting<'a> {
    returns: &'a Returns,
    agent: AgentId,
    pub(crate) arrival: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.returns.state.lock();
        if state.reach.end_waiting(self.agent) {
            state.arrivals.remove(&self.agent);
        }
    }
}
