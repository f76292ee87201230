//! The one status of a source, made of everything that was said of it: a pure function of the state and an instant.
//!
//! Each part of the state that bears on a source makes a condition; the headline is the condition that stands last in the order of
//! [`events::requests::status::State`]. `docs/status.md` lists them.

mod agent;
mod conditions;
mod objects;
mod tally;

use std::collections::BTreeSet;

use events::requests::status::{Condition, Reason, State, Status};
use events::{InstanceId, SourceId, Timestamp};

use super::{AgentState, DeliveryState, SourceState};

pub use agent::agent_status;
pub(super) use conditions::{pending_reason, rejection, suspended};
pub use objects::objects_behind;
pub use tally::{Failing, Tally};

/// What a status depends on besides the log.
#[derive(Debug, Clone, Default)]
pub struct StatusContext {
    /// The instant, by the server's clock.
    pub now: Timestamp,
    /// Gateways that live; a tunnel of another one is none any more. `None`: nobody knows, so all are taken as living.
    pub gateways: Option<BTreeSet<InstanceId>>,
}

impl StatusContext {
    fn lives(&self, gateway: InstanceId) -> bool {
        self.gateways.as_ref().is_none_or(|gateways| gateways.contains(&gateway))
    }

    /// Instances of an agent that are connected.
    fn connected(&self, agent: &AgentState) -> BTreeSet<InstanceId> {
        let tunnels = agent.seen_of.tunnels.iter().filter(|tunnel| self.lives(tunnel.gateway));
        tunnels.map(|tunnel| tunnel.instance).collect()
    }
}

/// The status of a source that is in its agent's configuration; `None` when there is no such source.
#[must_use]
pub fn source_status(state: &DeliveryState, source: SourceId, around: &StatusContext) -> Option<Status> {
    let known = state.sources.get(&source)?;
    let conditions = conditions_of(state, known, around)?;
    let (counts, not_well) = objects::roll_up(known, Status::OBJECTS);
    Some(Status::of(conditions, counts, not_well))
}

/// All that is so of a source, in no order; `None` when it is not in its agent's configuration.
fn conditions_of(
    state: &DeliveryState,
    known: &SourceState,
    around: &StatusContext,
) -> Option<Vec<Condition>> {
    if !known.configured {
        return None;
    }
    let mut conditions = conditions::of_git(known);
    if known.desired.is_some() {
        match state.agents.get(&known.agent) {
            Some(agent) => {
                conditions.extend(agent::conditions(agent, around));
                conditions.extend(conditions::of_cluster(known, agent, around.now));
            }
            None => conditions.push(condition(
                State::Unknown,
                Reason::NeverConnected,
                "waiting for its agent, which never connected",
            )),
        }
    }
    conditions.extend(objects::conditions(known));
    Some(conditions)
}

fn condition(state: State, reason: Reason, message: impl Into<String>) -> Condition {
    Condition { state, reason, message: message.into(), since: None, retry_at: None }
}

fn since(at: Option<Timestamp>, condition: Condition) -> Condition {
    Condition { since: at, ..condition }
}
