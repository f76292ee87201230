//! What finds objects by what they point at, and by their labels.

use std::collections::BTreeMap;

use events::AgentId;

use super::Slot;
use super::searched::Searched;
use super::slots::{Slots, change, change_all};
use crate::model::record::{Record, plain_uid};
use crate::model::relations::{Key, Link, Target};
use crate::model::text::Text;

type Sets<K> = BTreeMap<AgentId, BTreeMap<K, Slots>>;

/// Which pointers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// All of them, and labels.
    All,
    /// Only links to what has caused an object.
    Causes,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    /// By UID that links name: objects whose owner came later are found here once it does.
    by_named_uid: Sets<Text>,
    by_named_key: Sets<Key>,
    by_label: Sets<(Text, Text)>,
    /// Objects that select others by their labels, by namespace, and by a label that all of those have where there is one.
    selecting: Sets<(Text, Option<(Text, Text)>)>,
}

impl Pointers {
    /// Adds an object to what finds it, or takes it out.
    pub(super) fn note(
        &mut self,
        (slot, record): (Slot, &Record),
        kept: Kept,
        mut searched: Option<&mut Searched>,
        adds: bool,
    ) {
        let agent = record.agent;
        if kept == Kept::All {
            let by_label = self.by_label.entry(agent).or_default();
            for label in record.facts.labels.iter() {
                let is_other = change(by_label, label.clone(), slot, adds);
                if let Some(searched) = searched.as_mut().filter(|_| is_other) {
                    searched.note_label(label, adds);
                }
            }
        }
        for link in record.links().filter(|link| kept == Kept::All || link.relation.is_cause()) {
            self.note_link((agent, link), &[slot], adds);
        }
    }

    /// Adds objects that share a list of labels.
    pub(super) fn note_labels(
        &mut self,
        (agent, labels): (AgentId, &[(Text, Text)]),
        slots: &[Slot],
        searched: &mut Searched,
    ) {
        let by_label = self.by_label.entry(agent).or_default();
        for label in labels {
            if change_all(by_label, label.clone(), slots, true) {
                searched.note_label(label, true);
            }
        }
    }

    /// Adds objects that share a list of links.
    pub(super) fn note_links(&mut self, (agent, links): (AgentId, &[Link]), slots: &[Slot]) {
        for link in links {
            self.note_link((agent, link), slots, true);
        }
    }

    fn note_link(&mut self, (agent, link): (AgentId, &Link), slots: &[Slot], adds: bool) {
        let (namespace, selector) = match &link.target {
            Target::Uid(uid, _) => {
                change_all(self.by_named_uid.entry(agent).or_default(), uid.clone(), slots, adds);
                return;
            }
            Target::Key(key) => {
                change_all(self.by_named_key.entry(agent).or_default(), key.clone(), slots, adds);
                return;
            }
            Target::Labels(selected) => (&selected.namespace, &selected.selector),
            Target::Claims(claimed) => (&claimed.namespace, &claimed.selector),
        };
        let label = selector.exact().map(|(key, value)| (key.clone(), value.clone()));
        let selecting = self.selecting.entry(agent).or_default();
        change_all(selecting, (namespace.clone(), label), slots, adds);
    }

    pub(super) fn forget_agent(&mut self, agent: AgentId) {
        self.by_named_uid.remove(&agent);
        self.by_named_key.remove(&agent);
        self.by_label.remove(&agent);
        self.selecting.remove(&agent);
    }

    /// Takes in those of other clusters.
    pub(super) fn join(&mut self, mut other: Self) {
        self.by_named_uid.append(&mut other.by_named_uid);
        self.by_named_key.append(&mut other.by_named_key);
        self.by_label.append(&mut other.by_label);
        self.selecting.append(&mut other.selecting);
    }

    /// The UID as links of one cluster name it.
    pub(super) fn named_uid(&self, agent: AgentId, uid: &str) -> Option<&Text> {
        self.by_named_uid.get(&agent)?.get_key_value(uid).map(|(uid, _)| uid)
    }

    /// The labels of one cluster.
    pub(super) fn labels(&self, agent: AgentId) -> impl Iterator<Item = &(Text, Text)> {
        self.by_label.get(&agent).into_iter().flat_map(BTreeMap::keys)
    }

    /// Objects with a label in one cluster.
    pub(super) fn labelled(&self, agent: AgentId, label: &(Text, Text)) -> Option<&Slots> {
        self.by_label.get(&agent)?.get(label)
    }

    /// Objects with a link to this one by its UID or its key.
    pub(super) fn naming<'a>(&'a self, record: &Record, key: &Key) -> impl Iterator<Item = Slot> + use<'a> {
        let by_uid = self.by_named_uid.get(&record.agent).and_then(|named| named.get(plain_uid(&record.uid)));
        let by_key = self.by_named_key.get(&record.agent).and_then(|named| named.get(key));
        [by_uid, by_key].into_iter().flatten().flatten().copied()
    }

    /// Objects with a selector that may select this one.
    pub(super) fn selecting<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = Slot> + 'a {
        let labels = record.facts.labels.iter().cloned().map(Some).chain([None]);
        let selecting = self.selecting.get(&record.agent);
        labels.filter_map(move |label| selecting?.get(&(record.namespace.clone(), label))).flatten().copied()
    }
}
