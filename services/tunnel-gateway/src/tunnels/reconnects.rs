//! Agents that were connected a moment ago, and the requests that wait for them to reconnect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::AgentId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::model::RecentAgents;

/// See the module.
#[derive(Default)]
pub(crate) struct Reconnects {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recent: RecentAgents,
    /// Of agents that requests wait for: notified when one of their tunnels opens here.
    arrivals: BTreeMap<AgentId, Arc<Notify>>,
}

impl Reconnects {
    /// An agent could be reached until now.
    pub(crate) fn mark_reachable(&self, agent: AgentId, now: Duration) {
        self.state.lock().recent.mark_reachable(agent, now);
    }

    /// An agent went for good.
    pub(crate) fn mark_gone(&self, agent: AgentId) {
        self.state.lock().recent.mark_gone(agent);
    }

    /// An agent has a tunnel here.
    pub(crate) fn notify_arrival(&self, agent: AgentId) {
        if let Some(arrival) = self.state.lock().arrivals.get(&agent) {
            arrival.notify_waiters();
        }
    }

    /// Waits for an agent, unless nobody expects it back or too many wait already.
    pub(crate) fn wait(&self, agent: AgentId, now: Duration) -> Option<ReconnectWait<'_>> {
        let mut state = self.state.lock();
        if !state.recent.begin_waiting(agent, now) {
            return None;
        }
        let arrival = Arc::clone(state.arrivals.entry(agent).or_default());
        Some(ReconnectWait { reconnects: self, agent, arrival })
    }
}

/// A request that waits, for as long as this is held.
pub(crate) struct ReconnectWait<'a> {
    reconnects: &'a Reconnects,
    agent: AgentId,
    pub(crate) arrival: Arc<Notify>,
}

impl Drop for ReconnectWait<'_> {
    fn drop(&mut self) {
        let mut state = self.reconnects.state.lock();
        if state.recent.end_waiting(self.agent) {
            state.arrivals.remove(&self.agent);
        }
    }
}
