//! The connections that are open at this gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use events::requests::delivery::ChangedAgent;
use events::{AgentId, InstanceId};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tunnel::handshake::Role;
use tunnel::wire::{Again, Farewell};

use super::capacity::CapacityPermit;
use super::reconnects::Reconnects;
use super::session::Session;

/// Tunnels by agent and instance, and the connections beside them.
pub(crate) struct Registry {
    agents: Mutex<BTreeMap<AgentId, Connections>>,
    /// The newest epoch that wrote through this gateway, of agents with tunnels.
    epochs: Mutex<BTreeMap<AgentId, u64>>,
    open: watch::Sender<usize>,
    reconnects: Reconnects,
    maximum_per_agent: usize,
    maximum_bulk_per_agent: usize,
}

/// What one agent has open here.
#[derive(Default)]
struct Connections {
    /// One instance has one tunnel: a newer one takes the place of the older.
    tunnels: BTreeMap<InstanceId, Arc<Session>>,
    /// In the order in which they came.
    bulk: Vec<Arc<Session>>,
    /// While the agent is asked for one more beside its tunnels: notified when one comes in here.
    bulk_arrival: Option<Arc<Notify>>,
}

impl Connections {
    /// For requests to the cluster's API: over tunnels only where there is nothing beside them. The newest first: an older one may be
    /// dead without anybody knowing it yet.
    fn cluster_connections(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.offered_bulk().rev().chain(self.tunnels.values().filter(|session| is_offered(session)))
    }

    fn offered_bulk(&self) -> impl DoubleEndedIterator<Item = &Arc<Session>> {
        self.bulk.iter().filter(|session| is_offered(session))
    }

    fn is_empty(&self) -> bool {
        self.tunnels.is_empty() && self.bulk.is_empty()
    }
}

fn is_offered(session: &Session) -> bool {
    !session.capacity.is_closed() && !session.connection.is_closed()
}

/// Where a request to a cluster's API may go.
pub(crate) enum ConnectionLookup {
    /// A permit on a connection here.
    Found(Arc<Session>, CapacityPermit),
    /// All capacity here is taken.
    Full,
    /// Nothing is open here.
    None,
}

impl Registry {
    pub(crate) fn new(maximum_per_agent: usize, maximum_bulk_per_agent: usize) -> Self {
        Self {
            agents: Mutex::default(),
            epochs: Mutex::default(),
            open: watch::Sender::new(0),
            reconnects: Reconnects::default(),
            maximum_per_agent,
            maximum_bulk_per_agent,
        }
    }

    /// Whether another instance of this agent may connect.
    pub(crate) fn has_capacity(&self, agent: AgentId, instance: InstanceId) -> bool {
        let agents = self.agents.lock();
        agents.get(&agent).is_none_or(|open| {
            open.tunnels.contains_key(&instance) || open.tunnels.len() < self.maximum_per_agent
        })
    }

    /// Whether one more connection beside its tunnels may be opened.
    pub(crate) fn has_bulk_capacity(&self, agent: AgentId) -> bool {
        let agents = self.agents.lock();
        agents.get(&agent).is_none_or(|open| {
            // Those that only bring what they have to its end may be as many again.
            open.offered_bulk().count() < self.maximum_bulk_per_agent
                && open.bulk.len() / 2 < self.maximum_bulk_per_agent
        })
    }

    /// Enters a connection; gives the tunnel whose place it took. What came in beside that one may be as dead as it is: nothing new goes
    /// over it.
    pub(crate) fn enter(&self, session: &Arc<Session>) -> Option<Arc<Session>> {
        let mut agents = self.agents.lock();
        let open = agents.entry(session.agent).or_default();
        let former = match session.role {
            Role::Control => {
                open.bulk_arrival = None;
                open.tunnels.insert(session.instance, Arc::clone(session))
            }
            Role::Bulk => {
                open.bulk.push(Arc::clone(session));
                if let Some(arrival) = &open.bulk_arrival {
                    arrival.notify_one();
                }
                None
            }
        };
        if let Some(former) = &former {
            let beside = open.bulk.iter().filter(|beside| beside.instance == former.instance);
            beside.for_each(|beside| beside.capacity.close());
        }
        if former.is_none() {
            self.open.send_modify(|open| *open += 1);
        }
        drop(agents);
        self.reconnects.notify_arrival(session.agent);
        former
    }

    /// Nothing new goes over a connection; it stays listed until it leaves.
    pub(crate) fn stop_offering(&self, session: &Session, again: Again, now: Duration) {
        let agents = self.agents.lock();
        session.capacity.close();
        if let Some(open) = agents.get(&session.agent) {
            self.expect_reconnect(session.agent, open, again, now);
        }
    }

    /// Takes a connection out, unless it is out or another has its place already.
    pub(crate) fn leave(&self, session: &Arc<Session>, again: Again, now: Duration) {
        let mut agents = self.agents.lock();
        if let Some(open) = agents.get_mut(&session.agent) {
            let before = open.tunnels.len() + open.bulk.len();
            open.tunnels.retain(|_, current| !Arc::ptr_eq(current, session));
            open.bulk.retain(|current| !Arc::ptr_eq(current, session));
            let left = before - open.tunnels.len() - open.bulk.len();
            self.open.send_modify(|open| *open -= left);
            if open.tunnels.is_empty() {
                self.epochs.lock().remove(&session.agent);
            }
            // Of what offered nothing any more, that was noted before.
            if !session.capacity.is_closed() || again == Again::Slowly {
                self.expect_reconnect(session.agent, open, again, now);
            }
            if open.is_empty() {
                agents.remove(&session.agent);
            }
        }
    }

    /// An agent to which nothing leads any more is expected back, but for one whose token is no longer good.
    fn expect_reconnect(&self, agent: AgentId, open: &Connections, again: Again, now: Duration) {
        if open.cluster_connections().next().is_some() {
            return;
        }
        match again {
            Again::AtOnce | Again::Later => self.reconnects.mark_reachable(agent, now),
            Again::Slowly => self.reconnects.mark_gone(agent),
        }
    }

    /// Who was there a moment ago.
    pub(crate) const fn reconnects(&self) -> &Reconnects {
        &self.reconnects
    }

    /// How many agents have tunnels.
    pub(crate) fn agents(&self) -> usize {
        self.agents.lock().values().filter(|open| !open.tunnels.is_empty()).count()
    }

    /// All tunnels, or those of one agent.
    pub(crate) fn list(&self, agent: Option<AgentId>) -> Vec<Arc<Session>> {
        let agents = self.agents.lock();
        let tunnels = |open: &Connections| open.tunnels.values().cloned().collect::<Vec<_>>();
        match agent {
            Some(agent) => agents.get(&agent).map(tunnels).unwrap_or_default(),
            None => agents.values().flat_map(tunnels).collect(),
        }
    }

    /// Everything that is open, with what stands beside the tunnels.
    pub(crate) fn connections(&self) -> Vec<Arc<Session>> {
        let agents = self.agents.lock();
        agents.values().flat_map(|open| open.tunnels.values().chain(&open.bulk).cloned()).collect()
    }

    /// Where a request to an agent's cluster may go; and a tunnel of the agent, with the capacity that is free beside its tunnels.
    pub(crate) fn find_connection(
        &self,
        agent: AgentId,
    ) -> (ConnectionLookup, Option<(Arc<Session>, usize)>) {
        let agents = self.agents.lock();
        let Some(open) = agents.get(&agent) else { return (ConnectionLookup::None, None) };
        let taken = open
            .cluster_connections()
            .find_map(|session| Some((Arc::clone(session), session.capacity.acquire()?)));
        let found = match taken {
            Some((session, taken)) => ConnectionLookup::Found(session, taken),
            None if open.cluster_connections().next().is_some() => ConnectionLookup::Full,
            None => ConnectionLookup::None,
        };
        let may_have_more = open.offered_bulk().count() < self.maximum_bulk_per_agent;
        let tunnel = open.tunnels.values().find(|tunnel| may_have_more && is_offered(tunnel));
        let free = open.offered_bulk().map(|session| session.capacity.free()).sum();
        (found, tunnel.map(|tunnel| (Arc::clone(tunnel), free)))
    }

    /// Begins to ask an agent for one more connection beside its tunnels, unless that was begun already; gives what is notified when one
    /// comes in here.
    pub(crate) fn begin_bulk_request(&self, agent: AgentId) -> Option<Arc<Notify>> {
        let mut agents = self.agents.lock();
        let open = agents.get_mut(&agent).filter(|open| open.bulk_arrival.is_none())?;
        Some(Arc::clone(open.bulk_arrival.insert(Arc::default())))
    }

    /// It was asked. Who has a new tunnel since then was to be asked anew.
    pub(crate) fn end_bulk_request(&self, agent: AgentId, arrival: &Arc<Notify>) {
        if let Some(open) = self.agents.lock().get_mut(&agent) {
            open.bulk_arrival.take_if(|current| Arc::ptr_eq(current, arrival));
        }
    }

    /// The newest epoch of an agent that wrote through this gateway while it had tunnels, 0 if none did.
    pub(crate) fn newest_epoch(&self, agent: AgentId) -> u64 {
        self.epochs.lock().get(&agent).copied().unwrap_or(0)
    }

    /// An epoch writes: earlier ones no longer do.
    pub(crate) fn record_epoch(&self, agent: AgentId, epoch: u64) {
        let mut epochs = self.epochs.lock();
        let newest = epochs.entry(agent).or_insert(0);
        *newest = (*newest).max(epoch);
    }

    /// The desired state of one agent, or of all, may have changed.
    pub(crate) fn mark_changed(&self, agent: Option<AgentId>) {
        for session in self.list(agent) {
            session.mark_changed();
        }
    }

    /// The desired states of some agents may have changed.
    pub(crate) fn mark_changed_where(&self, is_meant: impl Fn(AgentId) -> bool) {
        let agents = self.agents.lock();
        for (_, open) in agents.iter().filter(|(agent, _)| is_meant(**agent)) {
            open.tunnels.values().for_each(|session| session.mark_changed());
        }
    }

    /// States of these revisions are there.
    pub(crate) fn announce(&self, changed: &[ChangedAgent]) {
        let agents = self.agents.lock();
        for ChangedAgent { agent, revision } in changed {
            for session in agents.get(agent).into_iter().flat_map(|open| open.tunnels.values()) {
                session.announced.fetch_max(*revision, Ordering::Relaxed);
                session.mark_changed();
            }
        }
    }

    /// Tells every connection to end.
    pub(crate) fn dismiss_all(&self, reason: &str, again: Again) {
        for session in self.connections() {
            session.dismiss(Farewell { reason: reason.to_owned(), again });
        }
    }

    /// How many connections are open, and each change of that.
    pub(crate) fn open(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }
}
