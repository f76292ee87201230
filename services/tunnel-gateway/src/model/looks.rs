//! Whose desired state is asked for when nothing was heard of it, since a notice may be lost: each agent's once a minute, and never
//! all at once. Questions for thousands in the same moment take ten kilobytes of memory each while they last.

use std::time::Duration;

use events::AgentId;

/// In so many looks each agent has its turn.
const LOOKS: u128 = 12;
/// From one look to the next.
pub const EVERY: Duration = Duration::from_secs(5);

/// Whether it is an agent's turn.
pub fn is_due(agent: AgentId, round: u64) -> bool {
    agent.0.as_u128() % LOOKS == u128::from(round) % LOOKS
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_agent_has_its_turn_once_a_minute_and_all_turns_are_about_as_large() {
        let agents: Vec<AgentId> = (0..1200).map(|number| AgentId(Uuid::from_u128(number))).collect();
        assert_eq!(EVERY.as_millis() * LOOKS, 60_000);
        for first in [0, 5, 1 << 60] {
            let looks: Vec<u64> = (first..).take(12).collect();
            let due = |look: u64| agents.iter().filter(move |agent| is_due(**agent, look)).count();
            assert!(looks.iter().all(|look| due(*look) == 100));
            assert!(
                agents.iter().all(|agent| looks.iter().filter(|look| is_due(*agent, **look)).count() == 1)
            );
        }
    }
}
