//! How many sources and agents stand how, and which of them fail: what metrics are made of.

use std::collections::BTreeMap;

use events::requests::status::{Condition, Reason, State, Status};
use events::{AgentId, OrganizationId, SourceId, Timestamp};

use super::{StatusContext, agent, conditions_of};
use crate::model::{AgentState, DeliveryState};

/// Counts, and what fails.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    /// Sources by their headline.
    pub sources: BTreeMap<State, u64>,
    /// Agents by theirs; one that is connected and applies is in sync.
    pub agents: BTreeMap<State, u64>,
    /// Agents whose newest configuration was rejected.
    pub rejected_configurations: u64,
    /// All that fails.
    pub failing: Vec<Failing>,
}

/// An agent or a source that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Whose.
    pub organization: OrganizationId,
    /// Which agent.
    pub agent: AgentId,
    /// Its name; its id where the name is not known.
    pub agent_name: String,
    /// The source and its name; `None`: the agent as a whole fails.
    pub source: Option<(SourceId, String)>,
    /// What is wrong.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
}

impl DeliveryState {
    /// All agents that are not deleted.
    #[must_use]
    pub fn living_agents(&self) -> Vec<AgentId> {
        self.agents.iter().filter(|(_, known)| !known.deleted).map(|(id, _)| *id).collect()
    }

    /// Adds an agent and its sources.
    pub fn tally(&self, id: AgentId, around: &StatusContext, tally: &mut Tally) {
        let Some(known) = self.agents.get(&id).filter(|known| !known.deleted) else { return };
        let own = agent::own_conditions(known, around);
        let state = own.first().map_or(State::InSync, |worst| worst.state);
        *tally.agents.entry(state).or_default() += 1;
        tally.rejected_configurations += u64::from(known.rejected.is_some());
        let failing = own.iter().filter(|condition| condition.reason != Reason::NeverConnected);
        tally.failing.extend(failing.map(|condition| failing_of(id, known, None, condition)));
        for (source, state) in self.sources_of(id) {
            let Some(conditions) = conditions_of(self, state, around) else { continue };
            let headline = Status::headline(&conditions);
            *tally.sources.entry(headline.state).or_default() += 1;
            if is_failing(&headline) {
                let name = state.configuration.as_ref().map_or_else(String::new, |known| known.name.clone());
                tally.failing.push(failing_of(id, known, Some((source, name)), &headline));
            }
        }
    }
}

/// Whether somebody has to look after the source itself: what people decided is no failure, and what its agent as a whole makes of it is
/// said of the agent.
const fn is_failing(headline: &Condition) -> bool {
    match headline.state {
        State::Degraded | State::OutOfSync | State::Rejected => true,
        State::Unknown => matches!(headline.reason, Reason::FetchFailed | Reason::WatchBroken),
        State::InSync | State::Progressing | State::Held | State::Suspended | State::Stale => false,
    }
}

fn failing_of(
    id: AgentId,
    agent: &AgentState,
    source: Option<(SourceId, String)>,
    condition: &Condition,
) -> Failing {
    let agent_name = if agent.name.is_empty() { id.to_string() } else { agent.name.clone() };
    Failing {
        organization: agent.organization,
        agent: id,
        agent_name,
        source,
        state: condition.state,
        reason: condition.reason,
        since: condition.since,
    }
}
