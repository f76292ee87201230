//! Refusals at the door, said once in a while: somebody who knocks all day does not fill the log.

use std::collections::BTreeMap;
use std::time::Duration;

use events::AgentId;

const EVERY: Duration = Duration::from_secs(60);
const MAXIMUM_KEYS: usize = 1024;

/// Who was refused and why, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Whose token it was.
    pub agent: Option<AgentId>,
    /// Why.
    pub reason: String,
}

/// Counts refusals that are kept back.
#[derive(Debug, Default)]
pub struct Refusals {
    said: BTreeMap<Refused, (Duration, u64)>,
}

impl Refusals {
    /// What to say of this refusal now, if anything: the reason, with the number of those that were kept back since.
    pub fn note(&mut self, refused: &Refused, now: Duration) -> Option<String> {
        if let Some((last, kept)) = self.said.get_mut(refused) {
            if now.saturating_sub(*last) < EVERY {
                *kept = kept.saturating_add(1);
                return None;
            }
            let text = if *kept == 0 {
                refused.reason.clone()
            } else {
                format!("{} ({kept} times more before)", refused.reason)
            };
            (*last, *kept) = (now, 0);
            return Some(text);
        }
        if self.said.len() >= MAXIMUM_KEYS {
            self.said.retain(|_, (last, _)| now.saturating_sub(*last) < EVERY);
        }
        if self.said.len() >= MAXIMUM_KEYS {
            return None;
        }
        self.said.insert(refused.clone(), (now, 0));
        Some(refused.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn refused(agent: u128) -> Refused {
        Refused { agent: Some(AgentId(Uuid::from_u128(agent))), reason: "revoked".to_owned() }
    }

    #[test]
    fn a_hammering_agent_is_said_once_a_minute_with_its_count() {
        let mut refusals = Refusals::default();
        let said: Vec<String> = (0..1_200_u64)
            .filter_map(|tick| refusals.note(&refused(1), Duration::from_millis(tick * 100)))
            .collect();
        assert_eq!(said, ["revoked", "revoked (599 times more before)"]);
        assert!(
            refusals.note(&refused(2), Duration::from_secs(1)).is_some(),
            "another agent is said at once"
        );
    }

    #[test]
    fn however_many_knock_memory_stays_bounded() {
        let mut refusals = Refusals::default();
        let said =
            (0..10_000).filter(|agent| refusals.note(&refused(*agent), Duration::ZERO).is_some()).count();
        assert_eq!(said, MAXIMUM_KEYS);
        assert!(refusals.note(&refused(99_999), EVERY).is_some(), "old ones make room");
        assert!(refusals.said.len() <= MAXIMUM_KEYS);
    }
}
