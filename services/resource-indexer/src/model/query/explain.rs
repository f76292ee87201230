//! `ExplainHealth`: from an object down to the one that is to blame.

use std::collections::BTreeSet;

use events::Refusal;
use events::requests::index::{ExplainHealth, HealthExplained, HealthState, IndexedObject};

use super::roots;
use crate::model::filter::Matcher;
use crate::model::index::Slot;
use crate::model::relations::Relation;
use crate::model::view::View;

/// Objects that one chain looks at.
const LOOKED_AT: usize = 10_000;
/// Objects that all chains of an answer look at. Those whose turn comes later stand for themselves.
const LOOKED_AT_BY_ALL: usize = 50_000;
/// Objects in one chain.
const DEPTH: usize = 32;

/// A chain for each object that matches, the worst first.
///
/// # Errors
/// A filter that cannot be read, or matches too many.
pub fn explain(request: &ExplainHealth, view: &View<'_>) -> Result<HealthExplained, Refusal> {
    let matcher = Matcher::read(&request.filter, view)?;
    let roots = roots(&matcher, view)?;
    let slots = roots.iter().filter_map(|record| view.index.by_uid(record.agent, &record.uid));
    let mut left = LOOKED_AT_BY_ALL;
    let mut chains: Vec<(HealthState, Vec<IndexedObject>)> = slots
        .map(|slot| {
            let mut blame = Blame::new(view, left);
            let (worst, chain) = blame.chain(slot, DEPTH);
            left = left.saturating_sub(blame.passed.len());
            (worst, chain.into_iter().filter_map(|slot| Some(view.line(view.there(slot)?))).collect())
        })
        .collect();
    // Those that are alike stay in the order of their names.
    chains.sort_by_key(|(worst, _)| std::cmp::Reverse(*worst));
    let chains = chains.into_iter().map(|(_, chain)| chain).collect();
    Ok(HealthExplained { chains, as_of: view.as_of.clone() })
}

struct Blame<'v, 'a> {
    view: &'v View<'a>,
    passed: BTreeSet<Slot>,
    most: usize,
}

impl<'v, 'a> Blame<'v, 'a> {
    fn new(view: &'v View<'a>, left: usize) -> Self {
        Self { view, passed: BTreeSet::new(), most: LOOKED_AT.min(left) }
    }

    /// The chain from an object to the worst of what it hangs on, and how bad that is. An object that nothing below explains is itself
    /// to blame.
    fn chain(&mut self, slot: Slot, depth: usize) -> (HealthState, Vec<Slot>) {
        self.passed.insert(slot);
        let own = self.state(slot);
        let mut worst: Option<(HealthState, Vec<Slot>)> = None;
        let Some(depth) = depth.checked_sub(1) else { return (own, vec![slot]) };
        for below in self.hangs_on(slot, View::is_bad(own)) {
            if self.passed.contains(&below) || self.passed.len() >= self.most {
                continue;
            }
            let (state, chain) = self.chain(below, depth);
            // Of those that are equally bad the first counts: what is controlled comes before what is only used.
            if View::is_bad(state) && worst.as_ref().is_none_or(|(known, _)| state > *known) {
                worst = Some((state, chain));
            }
        }
        match worst {
            Some((state, mut chain)) => {
                chain.insert(0, slot);
                (own.max(state), chain)
            }
            None => (own, vec![slot]),
        }
    }

    fn state(&self, slot: Slot) -> HealthState {
        let record = self.view.there(slot);
        let verdict = record.map(|record| self.view.verdict(record)).filter(|verdict| !verdict.optional);
        verdict.map_or(HealthState::None, |verdict| verdict.state)
    }

    /// What an object hangs on: what it controls, then what it is otherwise related to. What it only uses explains nothing of an object
    /// that is well.
    fn hangs_on(&self, slot: Slot, is_bad: bool) -> Vec<Slot> {
        let index = self.view.index;
        let Some(record) = index.get(slot) else { return Vec::new() };
        let controlled = index.sources(record).into_iter();
        let controlled = controlled.filter(|(how, _)| *how == Relation::Controls);
        let counts = |how: Relation| how.carries_blame() && (is_bad || !how.is_of_use());
        let other = index.targets(record).filter(|(how, _)| counts(*how) && !how.names_upper());
        let mut found: Vec<(Relation, Slot)> = controlled.chain(other).collect();
        found.retain(|(_, other)| self.view.there(*other).is_some());
        found.sort_by_key(|(how, other)| {
            let record = index.get(*other);
            // The newest first: of a Deployment's ReplicaSets that is the one that is to come.
            let created = record.and_then(|record| record.facts.created_at.time());
            let named = record.map(|record| (record.kind.clone(), record.name.clone()));
            (*how, std::cmp::Reverse(created), named)
        });
        found.into_iter().map(|(_, slot)| slot).collect()
    }
}
