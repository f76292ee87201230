//! What the agent as a whole makes of its sources.

use std::collections::{BTreeMap, BTreeSet};

use events::requests::status::{AgentInstance, AgentStatus, Condition, Reason, State};
use events::{AgentId, InstanceId};

use super::{StatusContext, condition, since, source_status};
use crate::model::{AgentState, DeliveryState};

/// Rights that are listed.
const RIGHTS: usize = 100;

/// What stands in the way of knowing how the agent's cluster is.
pub(super) fn conditions(agent: &AgentState, around: &StatusContext) -> Vec<Condition> {
    let seen = &agent.seen_of;
    let connected = around.connected(agent);
    let Some(applier) = agent.applier else {
        let message = if connected.is_empty() {
            "waiting for its agent, which never connected"
        } else {
            "no instance of its agent holds the Lease yet: its API server may be unreachable, or the right to the Lease may be missing"
        };
        let reason = if connected.is_empty() { Reason::NeverConnected } else { Reason::NotStated };
        return vec![condition(State::Unknown, reason, message)];
    };
    if !connected.contains(&applier) {
        // Of a gateway that died nobody said when.
        let gone = seen.closed_at.max(seen.heard_at.filter(|_| !has_tunnel(agent, applier, around)));
        return vec![since(gone, absence(&connected))];
    }
    let mut conditions = Vec::new();
    if let Some((at, reason)) = &seen.api_server_lost {
        let message = format!("its agent cannot reach the API server: {reason}");
        conditions.push(since(Some(*at), condition(State::Unknown, Reason::ApiServerUnreachable, message)));
    }
    if seen.stated < agent.epoch {
        let message = "its agent has not reported the state of the cluster yet";
        conditions.push(condition(State::Unknown, Reason::NotStated, message));
    }
    if let Some(at) = seen.lost_at {
        let message = "its agent had more observations than it could send, and reads all objects again";
        conditions.push(since(Some(at), condition(State::Unknown, Reason::ObservationsLost, message)));
    }
    conditions
}

fn absence(connected: &BTreeSet<InstanceId>) -> Condition {
    if connected.is_empty() {
        return condition(State::Stale, Reason::AgentGone, "its agent is not connected");
    }
    let message = "the applying instance of its agent is disconnected, and no other instance has replaced it";
    condition(State::Stale, Reason::ApplierGone, message)
}

fn has_tunnel(agent: &AgentState, instance: InstanceId, around: &StatusContext) -> bool {
    agent.seen_of.tunnels.iter().any(|tunnel| tunnel.instance == instance && around.lives(tunnel.gateway))
}

/// All that is so of an agent, what weighs most first; none when it is connected, applies and has its newest configuration.
pub(super) fn own_conditions(agent: &AgentState, around: &StatusContext) -> Vec<Condition> {
    let mut own = conditions(agent, around);
    if let Some(rejected) = &agent.rejected {
        let message = format!("{}; the configuration before it stays in force", rejected.reason);
        let rejection = condition(State::Rejected, Reason::ConfigurationRejected, message);
        own.push(since(Some(rejected.since), rejection));
    }
    own.sort_by_key(|condition| std::cmp::Reverse(condition.state));
    own
}

/// How an agent stands; `None` when it is not known or deleted.
#[must_use]
pub fn agent_status(state: &DeliveryState, agent: AgentId, around: &StatusContext) -> Option<AgentStatus> {
    let known = state.agents.get(&agent).filter(|known| !known.deleted)?;
    let seen = &known.seen_of;
    let mut own = own_conditions(known, around);
    let mut sources: BTreeMap<State, u32> = BTreeMap::new();
    let mut missing_rights = BTreeSet::new();
    for (id, source) in state.sources_of(agent) {
        let Some(status) = source_status(state, id, around) else { continue };
        *sources.entry(status.state).or_default() += 1;
        let (broken, _) = &source.known.broken_watches;
        missing_rights.extend(source.known.missing_rights.iter().cloned());
        missing_rights.extend(broken.iter().filter_map(|watch| watch.missing.clone()));
    }
    if own.is_empty() {
        own.push(condition(State::InSync, Reason::Connected, "connected, and applies"));
    }
    let connected = around.connected(known);
    let is_applying = known.applier.is_some_and(|applier| connected.contains(&applier));
    Some(AgentStatus {
        agent,
        state: own.first().map_or(State::Unknown, |worst| worst.state),
        conditions: own,
        gone_since: seen.closed_at.or(seen.heard_at).filter(|_| connected.is_empty()),
        applier: known.applier,
        api_server_reachable: (is_applying && seen.stated >= known.epoch)
            .then_some(seen.api_server_lost.is_none()),
        missing_rights: missing_rights.into_iter().take(RIGHTS).collect(),
        sources,
        instances: instances(known, around),
    })
}

fn instances(agent: &AgentState, around: &StatusContext) -> Vec<AgentInstance> {
    let mut newest: BTreeMap<InstanceId, AgentInstance> = BTreeMap::new();
    for tunnel in agent.seen_of.tunnels.iter().filter(|tunnel| around.lives(tunnel.gateway)) {
        let instance = AgentInstance {
            instance: tunnel.instance,
            since: tunnel.since,
            version: tunnel.version.clone(),
            applier: agent.applier == Some(tunnel.instance),
        };
        let known = newest.entry(tunnel.instance).or_insert_with(|| instance.clone());
        if known.since < instance.since {
            *known = instance;
        }
    }
    newest.into_values().collect()
}
