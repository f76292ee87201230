//! The tunnels that are open here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use events::requests::delivery::ChangedAgent;
use events::{AgentId, InstanceId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tunnel::wire::{Again, Farewell};

use crate::returns::Returns;
use crate::session::Session;

/// Tunnels by agent and instance. One instance has one tunnel: a newer one takes the place of the older.
pub(crate) struct Registry {
    agents: Mutex<BTreeMap<AgentId, BTreeMap<InstanceId, Arc<Session>>>>,
    /// The newest epoch that wrote through this gateway, of agents with tunnels.
    begun: Mutex<BTreeMap<AgentId, u64>>,
    open: watch::Sender<usize>,
    returns: Returns,
    maximum_per_agent: usize,
}

impl Registry {
    pub(crate) fn new(maximum_per_agent: usize) -> Self {
        Self {
            agents: Mutex::default(),
            begun: Mutex::default(),
            open: watch::Sender::new(0),
            returns: Returns::default(),
            maximum_per_agent,
        }
    }

    /// Whether another instance of this agent finds room.
    pub(crate) fn has_room(&self, agent: AgentId, instance: InstanceId) -> bool {
        let agents = self.agents.lock();
        agents
            .get(&agent)
            .is_none_or(|open| open.contains_key(&instance) || open.len() < self.maximum_per_agent)
    }

    /// Enters a tunnel; gives the one whose place it took.
    pub(crate) fn enter(&self, session: &Arc<Session>) -> Option<Arc<Session>> {
        let mut agents = self.agents.lock();
        let former = agents.entry(session.agent).or_default().insert(session.instance, Arc::clone(session));
        if former.is_none() {
            self.open.send_modify(|open| *open += 1);
        }
        drop(agents);
        self.returns.arrived(session.agent);
        former
    }

    /// Takes a tunnel out, unless another has its place already. Whose token is no longer good is not expected back.
    pub(crate) fn leave(&self, session: &Arc<Session>, again: Again, now: Duration) {
        let mut agents = self.agents.lock();
        if let Some(open) = agents.get_mut(&session.agent) {
            if open.get(&session.instance).is_some_and(|current| Arc::ptr_eq(current, session)) {
                open.remove(&session.instance);
                self.open.send_modify(|open| *open -= 1);
            }
            if open.is_empty() {
                agents.remove(&session.agent);
                self.begun.lock().remove(&session.agent);
                match again {
                    Again::AtOnce | Again::Later => self.returns.note(session.agent, now),
                    Again::Slowly => self.returns.gone(session.agent),
                }
            }
        }
    }

    /// Who was there a moment ago.
    pub(crate) const fn returns(&self) -> &Returns {
        &self.returns
    }

    /// How many agents have tunnels.
    pub(crate) fn agents(&self) -> usize {
        self.agents.lock().len()
    }

    /// All tunnels, or those of one agent.
    pub(crate) fn list(&self, agent: Option<AgentId>) -> Vec<Arc<Session>> {
        let agents = self.agents.lock();
        match agent {
            Some(agent) => agents.get(&agent).into_iter().flat_map(|open| open.values().cloned()).collect(),
            None => agents.values().flat_map(|open| open.values().cloned()).collect(),
        }
    }

    /// The newest epoch of an agent that wrote through this gateway while it had tunnels, 0 if none did.
    pub(crate) fn begun(&self, agent: AgentId) -> u64 {
        self.begun.lock().get(&agent).copied().unwrap_or(0)
    }

    /// An epoch writes: earlier ones no longer do.
    pub(crate) fn begin(&self, agent: AgentId, epoch: u64) {
        let mut begun = self.begun.lock();
        let newest = begun.entry(agent).or_insert(0);
        *newest = (*newest).max(epoch);
    }

    /// The desired state of one agent, or of all, may have changed.
    pub(crate) fn changed(&self, agent: Option<AgentId>) {
        for session in self.list(agent) {
            session.may_have_changed();
        }
    }

    /// States of these revisions are there.
    pub(crate) fn announced(&self, changed: &[ChangedAgent]) {
        let agents = self.agents.lock();
        for ChangedAgent { agent, revision } in changed {
            for session in agents.get(agent).into_iter().flat_map(BTreeMap::values) {
                session.announced.fetch_max(*revision, Ordering::Relaxed);
                session.may_have_changed();
            }
        }
    }

    /// Tells every tunnel to end.
    pub(crate) fn dismiss_all(&self, reason: &str, again: Again) {
        for session in self.list(None) {
            session.dismiss(Farewell { reason: reason.to_owned(), again });
        }
    }

    /// How many tunnels are open, and each change of that.
    pub(crate) fn open(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }
}
