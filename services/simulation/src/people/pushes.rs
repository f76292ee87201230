//! What was ever pushed for an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::model::{Model, is_deployment, source_of};

/// What its cluster may come to be like.
pub(crate) type SharedPushes = Arc<Mutex<Pushes>>;

/// All commits of an agent, as far as they say what is to be in its cluster.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    /// What each object was to be, from which commit on: the commit's place in the history.
    values: BTreeMap<String, Vec<(u64, Option<u64>)>>,
    /// Objects that left their source once, or whose source did.
    left: BTreeSet<String>,
}

impl Pushes {
    /// A commit of one repository.
    pub(super) fn note(&mut self, place: u64, repository: usize, model: &Model) {
        for (name, value) in model.objects_in(repository) {
            let values = self.values.entry(name).or_default();
            if values.last().is_none_or(|(_, last)| *last != value) {
                values.push((place, value));
            }
        }
    }

    /// These objects may be deleted from now on.
    pub(super) fn leave(&mut self, names: impl Iterator<Item = String>) {
        self.left.extend(names);
    }

    pub(crate) fn may_be_deleted(&self, name: &str) -> bool {
        self.left.contains(name)
    }

    /// What each Deployment of a source was to be in a commit.
    pub(crate) fn deployments_at(&self, source: u64, place: u64) -> Vec<(String, u64)> {
        let own =
            self.values.iter().filter(|(name, _)| is_deployment(name) && source_of(name) == Some(source));
        let then = own.filter_map(|(name, values)| {
            let (_, value) = values.iter().rev().find(|(from, _)| *from <= place)?;
            Some((name.clone(), (*value)?))
        });
        then.collect()
    }

    /// From the first commit in which an object was to have this value, to the one behind the last.
    pub(crate) fn span(&self, name: &str, value: u64) -> Option<Range<u64>> {
        let values = self.values.get(name)?;
        let ends = values.iter().skip(1).map(|(place, _)| *place).chain([u64::MAX]);
        let mut spans = values.iter().zip(ends).filter(|((_, was), _)| *was == Some(value));
        let (first, end) = spans.next()?;
        let end = spans.last().map_or(end, |(_, end)| end);
        Some(first.0..end)
    }
}
