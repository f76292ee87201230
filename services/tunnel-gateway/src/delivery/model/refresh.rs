//! When the desired state of an agent is refreshed without a notice, since one may be lost: once a minute each, and never all at once.
//! Questions for thousands of agents in the same moment take ten kilobytes of memory each while they last.

use std::time::Duration;

use events::AgentId;

/// Rounds in which each agent is refreshed once.
const ROUNDS: u128 = 12;
/// From one round to the next.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Whether an agent is refreshed in a round.
pub fn is_due(agent: AgentId, round: u64) -> bool {
    agent.0.as_u128() % ROUNDS == u128::from(round) % ROUNDS
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_agent_has_its_turn_once_a_minute_and_all_turns_are_about_as_large() {
        let agents: Vec<AgentId> = (0..1200).map(|number| AgentId(Uuid::from_u128(number))).collect();
        assert_eq!(INTERVAL.as_millis() * ROUNDS, 60_000);
        for first in [0, 5, 1 << 60] {
            let rounds: Vec<u64> = (first..).take(12).collect();
            let due = |round: u64| agents.iter().filter(move |agent| is_due(**agent, round)).count();
            assert!(rounds.iter().all(|round| due(*round) == 100));
            assert!(
                agents.iter().all(|agent| rounds.iter().filter(|round| is_due(*agent, **round)).count() == 1)
            );
        }
    }
}
