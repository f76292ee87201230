//! What was touched lately, so that only that is looked at.

use std::collections::{BTreeMap, BTreeSet};

use events::{AgentId, SourceId};

/// Sources and agents by when they were touched last, as a count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChangeLog {
    count: u64,
    sources: Latest<SourceId>,
    agents: Latest<AgentId>,
}

/// What was touched since a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The count up to which this is true.
    pub count: u64,
    /// Sources about which something may have to be done.
    pub sources: Vec<SourceId>,
    /// Agents whose desired state changed.
    pub agents: Vec<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Latest<I> {
    by_count: BTreeSet<(u64, I)>,
    counts: BTreeMap<I, u64>,
}

impl<I> Default for Latest<I> {
    fn default() -> Self {
        Self { by_count: BTreeSet::new(), counts: BTreeMap::new() }
    }
}

impl<I: Copy + Ord> Latest<I> {
    fn touch(&mut self, id: I, count: u64) {
        if let Some(before) = self.counts.insert(id, count) {
            self.by_count.remove(&(before, id));
        }
        self.by_count.insert((count, id));
    }

    fn since(&self, count: u64) -> Vec<I> {
        self.by_count.iter().rev().take_while(|(at, _)| *at > count).map(|(_, id)| *id).collect()
    }
}

impl ChangeLog {
    /// Something may have to be done about this source.
    pub(crate) fn touch(&mut self, source: SourceId) {
        self.count += 1;
        self.sources.touch(source, self.count);
    }

    /// This agent is to have something else.
    pub(crate) fn desired_changed(&mut self, agent: AgentId) {
        self.count += 1;
        self.agents.touch(agent, self.count);
    }

    /// What was touched after a count, the latest first.
    pub(crate) fn since(&self, count: u64) -> Changes {
        Changes { count: self.count, sources: self.sources.since(count), agents: self.agents.since(count) }
    }
}
