//! What configurations declared once: the past is judged by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::configuration::{DeclaredRelation, HealthSettings};
use events::position::Stream;
use events::{AgentId, Position, Timestamp};
use serde::{Deserialize, Serialize};

use super::index::{Declarations, Declared};

/// Former declarations of one agent that are kept.
const KEPT: usize = 20;
/// Bytes of them together.
const KEPT_BYTES: usize = 256 << 10;

/// Where a decision stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedAt {
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// In which partition of the decisions.
    pub partition: u16,
    /// Its sequence there.
    pub sequence: u64,
}

/// What a configuration declared, until another one took its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The decision that ended it.
    pub until: DecidedAt,
    /// How health was judged.
    pub health: HealthSettings,
    /// How objects were related.
    pub relations: Vec<DeclaredRelation>,
}

impl Former {
    fn bytes(&self) -> usize {
        // Serialization of plain texts does not fail.
        serde_json::to_vec(&(&self.health, &self.relations)).map_or(0, |text| text.len())
    }
}

/// Keeps one more, and of all no more than there is room for: the oldest leave first.
pub(super) fn keep(all: &mut Vec<Former>, one: Former) {
    all.push(one);
    let (mut bytes, mut kept) = (0_usize, 0_usize);
    for former in all.iter().rev().take(KEPT) {
        bytes = bytes.saturating_add(former.bytes());
        if bytes > KEPT_BYTES {
            break;
        }
        kept = kept.saturating_add(1);
    }
    all.drain(..all.len().saturating_sub(kept));
}

/// The same, ready to judge by.
#[derive(Debug, Clone)]
pub struct FormerDeclared {
    /// The decision that ended it.
    pub until: DecidedAt,
    /// What was declared.
    pub declared: Arc<Declared>,
}

/// A moment, as decisions know it.
#[derive(Debug, Clone, Copy)]
pub struct Instant<'a> {
    /// When it was.
    pub time: Timestamp,
    /// The state of the log, where it was asked for by that.
    pub position: Option<&'a Position>,
}

impl Instant<'_> {
    /// Whether a decision had been made by then. A position that says nothing of decisions counts by its time.
    fn is_behind(self, decided: DecidedAt) -> bool {
        let position = self.position.filter(|at| at.in_streams(&[Stream::Decisions]) != Position::start());
        position.map_or_else(
            || self.time >= decided.recorded_at,
            |at| at.sequence((Stream::Decisions, decided.partition)) >= decided.sequence,
        )
    }
}

/// What the configurations of all agents declare, and what they declared before, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct Declaring {
    /// Today.
    pub today: Declarations,
    /// Before.
    pub former: BTreeMap<AgentId, Arc<[FormerDeclared]>>,
}

impl Declaring {
    /// What was declared at a moment.
    #[must_use]
    pub fn then(&self, at: Instant<'_>) -> Declarations {
        let agents = self.today.keys();
        agents.filter_map(|agent| Some((*agent, Arc::clone(self.of(*agent, at)?)))).collect()
    }

    /// Whether it is the same one: it is shared until it changes.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let (today, former) = (&self.today, &self.former);
        today.len() == other.today.len()
            && former.len() == other.former.len()
            && today
                .iter()
                .zip(&other.today)
                .all(|(own, others)| own.0 == others.0 && Arc::ptr_eq(own.1, others.1))
            && former
                .iter()
                .zip(&other.former)
                .all(|(own, others)| own.0 == others.0 && Arc::ptr_eq(own.1, others.1))
    }

    /// The same of one agent.
    #[must_use]
    pub fn of(&self, agent: AgentId, at: Instant<'_>) -> Option<&Arc<Declared>> {
        let mut former = self.former.get(&agent).into_iter().flat_map(|former| former.iter());
        let first = former.find(|former| !at.is_behind(former.until));
        first.map(|first| &first.declared).or_else(|| self.today.get(&agent))
    }
}

#[cfg(test)]
mod tests {
    use events::configuration::ImportedRule;

    use super::*;

    fn former(sequence: u64, lua: &str) -> Former {
        let rule = ImportedRule { group: "a".to_owned(), kind: "B".to_owned(), lua: lua.to_owned() };
        let until = DecidedAt { recorded_at: Timestamp(0), partition: 3, sequence };
        let health = HealthSettings { imported: vec![rule], ..HealthSettings::default() };
        Former { until, health, relations: Vec::new() }
    }

    #[test]
    fn the_oldest_leave_by_number_and_by_size() {
        let mut all = Vec::new();
        (0..30).for_each(|sequence| keep(&mut all, former(sequence, "")));
        assert_eq!((all.len(), all[0].until.sequence), (KEPT, 10));
        keep(&mut all, former(30, &"x".repeat(200_000)));
        keep(&mut all, former(31, &"x".repeat(100_000)));
        assert_eq!(all.iter().map(|former| former.until.sequence).collect::<Vec<_>>(), [31]);
    }

    #[test]
    fn a_moment_is_behind_a_decision_by_position_or_else_by_time() {
        let decided = DecidedAt { recorded_at: Timestamp(1_000), partition: 3, sequence: 7 };
        let is_behind = |time, position: Option<&Position>| {
            Instant { time: Timestamp(time), position }.is_behind(decided)
        };
        assert!(!is_behind(999, None) && is_behind(1_000, None));
        let mut position = Position::start();
        position.advance((Stream::Objects, 3), 9);
        assert!(!is_behind(999, Some(&position)) && is_behind(1_000, Some(&position)));
        position.advance((Stream::Decisions, 3), 6);
        assert!(!is_behind(2_000, Some(&position)));
        position.advance((Stream::Decisions, 3), 7);
        assert!(is_behind(0, Some(&position)));
    }
}
