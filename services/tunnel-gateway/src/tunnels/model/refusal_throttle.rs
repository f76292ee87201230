//! Refused connections, logged once in a while: an agent that dials all day does not fill the log.

use std::collections::BTreeMap;
use std::time::Duration;

use events::AgentId;

const INTERVAL: Duration = Duration::from_secs(60);
const MAXIMUM_KEYS: usize = 1024;

/// A refused agent, if it is known, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalKey {
    /// Whose token it was.
    pub agent: Option<AgentId>,
    /// Why.
    pub reason: String,
}

/// Counts refusals that are not logged.
#[derive(Debug, Default)]
pub struct RefusalThrottle {
    logged: BTreeMap<RefusalKey, (Duration, u64)>,
}

impl RefusalThrottle {
    /// What to log of this refusal now, if anything: the reason, with the number of those that were suppressed since.
    pub fn record(&mut self, refused: &RefusalKey, now: Duration) -> Option<String> {
        if let Some((last, suppressed)) = self.logged.get_mut(refused) {
            if now.saturating_sub(*last) < INTERVAL {
                *suppressed = suppressed.saturating_add(1);
                return None;
            }
            let text = if *suppressed == 0 {
                refused.reason.clone()
            } else {
                format!("{} ({suppressed} times more before)", refused.reason)
            };
            (*last, *suppressed) = (now, 0);
            return Some(text);
        }
        if self.logged.len() >= MAXIMUM_KEYS {
            self.logged.retain(|_, (last, _)| now.saturating_sub(*last) < INTERVAL);
        }
        if self.logged.len() >= MAXIMUM_KEYS {
            return None;
        }
        self.logged.insert(refused.clone(), (now, 0));
        Some(refused.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn refused(agent: u128) -> RefusalKey {
        RefusalKey { agent: Some(AgentId(Uuid::from_u128(agent))), reason: "revoked".to_owned() }
    }

    #[test]
    fn a_hammering_agent_is_said_once_a_minute_with_its_count() {
        let mut refusals = RefusalThrottle::default();
        let said: Vec<String> = (0..1_200_u64)
            .filter_map(|tick| refusals.record(&refused(1), Duration::from_millis(tick * 100)))
            .collect();
        assert_eq!(said, ["revoked", "revoked (599 times more before)"]);
        assert!(
            refusals.record(&refused(2), Duration::from_secs(1)).is_some(),
            "another agent is said at once"
        );
    }

    #[test]
    fn however_many_knock_memory_stays_bounded() {
        let mut refusals = RefusalThrottle::default();
        let said =
            (0..10_000).filter(|agent| refusals.record(&refused(*agent), Duration::ZERO).is_some()).count();
        assert_eq!(said, MAXIMUM_KEYS);
        assert!(refusals.record(&refused(99_999), INTERVAL).is_some(), "old ones make room");
        assert!(refusals.logged.len() <= MAXIMUM_KEYS);
    }
}
