//! Objects that are loaded when a process starts: what they have in common is shared before they are in an index, and looked at once.

use std::collections::HashMap;
use std::sync::Arc;

use events::AgentId;
use smallvec::SmallVec;

use super::{Index, Slot};
use crate::model::known::Known;
use crate::model::list::List;
use crate::model::quick::Quick;
use crate::model::record::{Record, Shared};
use crate::model::relations::Link;
use crate::model::text::Text;

/// Shares what objects have in common.
#[derive(Debug, Default)]
pub struct Loading {
    shared: Shared,
    /// Texts of one cluster's objects: among them UIDs and names, which stand in the objects that have them and in those that name them.
    known: Known,
    of: Option<AgentId>,
}

impl Loading {
    /// Does what reads objects of a cluster. Those of one cluster come one after the other.
    pub fn read<T>(&mut self, agent: AgentId, read: impl FnOnce() -> T) -> T {
        if self.of.replace(agent) != Some(agent) {
            self.known = Known::default();
        }
        self.known.while_reading(&mut self.shared.strings, read)
    }

    /// An object that was read, as it is put into an index.
    #[must_use]
    pub fn prepare(&mut self, mut record: Record) -> Arc<Record> {
        record.share(&mut self.shared);
        Arc::new(record)
    }

    /// Takes in what another thread shared.
    pub fn join(&mut self, other: Self) {
        self.shared.join(other.shared);
    }
}

impl Index {
    /// Puts an object in that was prepared and is not known yet. By its labels and links it is found after [`Self::note_lists`].
    pub fn load(&mut self, record: Arc<Record>) -> Slot {
        self.unnoted.get_or_insert_default();
        let slot = self.add(record);
        self.settle_one(slot, false);
        slot
    }

    /// Lets what was loaded of one cluster be found by labels and links.
    pub fn note_lists(&mut self, agent: AgentId) {
        let Some(Lists { labels, links }) = self.unnoted.take() else { return };
        let searched = self.searched.entry(agent).or_default();
        for (labels, slots) in &labels.all {
            self.pointers.note_labels((agent, labels), slots, searched);
        }
        for (links, slots) in &links.all {
            self.pointers.note_links((agent, links), slots);
        }
    }

    /// Ends loading: what comes later shares with what was loaded.
    pub fn end_loading(&mut self, loading: Loading) {
        self.shared = loading.shared;
    }
}

/// Lists of labels and links, which many objects share, with the objects of each.
#[derive(Debug, Default)]
pub(super) struct Lists {
    labels: WithSlots<(Text, Text)>,
    links: WithSlots<Link>,
}

impl Lists {
    pub(super) fn add(&mut self, slot: Slot, record: &Record) {
        self.labels.add(slot, &record.facts.labels);
        self.links.add(slot, &record.facts.links);
    }
}

type Few = SmallVec<[Slot; 4]>;

#[derive(Debug)]
struct WithSlots<T> {
    all: Vec<(List<T>, Few)>,
    /// Places of the lists, which are held above, by their addresses.
    places: HashMap<usize, usize, Quick>,
}

impl<T> Default for WithSlots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::default() }
    }
}

impl<T> WithSlots<T> {
    fn add(&mut self, slot: Slot, list: &List<T>) {
        if list.is_empty() {
            return;
        }
        let Self { all, places } = self;
        let place = *places.entry(list.as_ptr().addr()).or_insert_with(|| {
            all.push((list.clone(), Few::new()));
            all.len().saturating_sub(1)
        });
        if let Some((_, slots)) = all.get_mut(place) {
            slots.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::given::{AGENT, Given, below, object, pod, seen};
    use crate::model::relations::Target;

    #[test]
    fn what_was_loaded_is_shared_as_what_was_folded() {
        let mut given = Given::agents();
        let pod = |name: &str| seen(&below(pod(name, json!({})), "apps/v1", "ReplicaSet", "web"));
        let set = object("apps/v1", "ReplicaSet", "shop/web", json!({}));
        given.says(vec![pod("shop/web-1"), pod("shop/web-2"), seen(&set)]);
        let folded = &given.fold.index;
        let (mut loaded, mut loading) = (Index::default(), Loading::default());
        for slot in folded.slots() {
            let written = rmp_serde::to_vec(folded.get(slot).unwrap()).unwrap();
            let read: Record = loading.read(AGENT, || rmp_serde::from_slice(&written).unwrap());
            loaded.load(loading.prepare(read));
        }
        loaded.note_lists(AGENT);
        loaded.end_loading(loading);
        let get = |uid: &str| loaded.get(loaded.by_uid(AGENT, uid).unwrap()).unwrap();
        let [one, other, set] = ["uid-web-1", "uid-web-2", "uid-web"].map(get);
        assert!(std::ptr::eq(&*one.facts.links, &*other.facts.links));
        assert!(std::ptr::eq(&one.namespace, &other.namespace), "what is alike is one");
        let Target::Uid(uid, key) = &one.facts.links[0].target else { panic!("{:?}", one.facts.links) };
        assert!(std::ptr::eq(&**uid, &*set.uid) && std::ptr::eq(&*key.name, &*set.name));
        let mut known = folded.get(folded.by_uid(AGENT, "uid-web-1").unwrap()).unwrap().clone();
        known.stated = one.stated;
        assert_eq!(*one, known);
    }
}
