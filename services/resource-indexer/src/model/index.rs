//! The objects in memory, with what finds them: by place, UID, owner, name that is pointed at, label, health, environment and deadline.
//!
//! Objects that are gone stay while something of their history is kept; queries about now leave them out.

mod declared;
mod grouped;
mod loading;
mod noting;
mod parts;
mod pieces;
mod places;
mod pointers;
mod related;
mod searched;
mod slots;
mod uids;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use events::requests::index::HealthState;
use events::{AgentId, SourceId, Timestamp};

pub use grouped::{InCluster, counted};
pub use loading::Loading;
pub use parts::Room;
pub use places::{OfKind, Place};
pub use searched::contains;
pub use slots::Slots;

use super::facts::Special;
use super::former::Declaring;
use super::record::{Kind, Record, Shared, plain_uid, uid_of_kind};
use super::relations::Key;
use super::text::Text;
pub use declared::{Declarations, Declared};
use pointers::{Kept, Pointers};
use uids::Uids;

/// An object's slot in an [`Index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// See the module.
#[derive(Debug, Default)]
pub struct Index {
    /// A question about the past shares a record until it changes.
    slots: Vec<Option<Arc<Record>>>,
    free: Vec<Slot>,
    by_uid: BTreeMap<AgentId, Uids>,
    places: BTreeMap<AgentId, BTreeMap<Kind, OfKind>>,
    /// Of a moment of the past only what leads to causes.
    pointers: Pointers,
    /// Of a moment of the past all pointers, once somebody asks for more than causes: most questions do not.
    late: Option<OnceLock<Pointers>>,
    /// Objects that are there and not well, by how they are.
    unwell: BTreeMap<AgentId, BTreeMap<HealthState, Slots>>,
    /// Objects that wait for their imported rules.
    asking: BTreeMap<AgentId, Slots>,
    deadlines: BTreeSet<(Timestamp, Slot)>,
    /// Definitions of kinds.
    defining: BTreeMap<AgentId, BTreeMap<Kind, Slots>>,
    /// Events that say that a pod could not be made, by the UID of the object that was to have it.
    refusing: BTreeMap<AgentId, BTreeMap<Text, Slots>>,
    by_source: BTreeMap<AgentId, BTreeMap<SourceId, Slots>>,
    grouped: grouped::Grouped,
    searched: BTreeMap<AgentId, searched::Searched>,
    shared: Shared,
    there: BTreeMap<AgentId, u64>,
    /// What agents' configurations declare of their objects, and did.
    declaring: Declaring,
    /// Of objects that are being loaded: what is not among the pointers yet.
    unnoted: Option<loading::Lists>,
}

impl Index {
    /// The object in a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Record> {
        record_in(&self.slots, slot)
    }

    /// The same, to be kept.
    #[must_use]
    pub fn shared(&self, slot: Slot) -> Option<Arc<Record>> {
        self.slots.get(usize::try_from(slot.0).ok()?)?.clone()
    }

    /// The object of that UID.
    #[must_use]
    pub fn by_uid(&self, agent: AgentId, uid: &str) -> Option<Slot> {
        self.by_uid.get(&agent)?.get(uid, uid_in(&self.slots))
    }

    /// The object of that UID that an owner reference means: of two kinds that share one, the named one.
    #[must_use]
    pub fn owner(&self, agent: AgentId, uid: &str, kind: &Kind) -> Option<Slot> {
        let found = self.by_uid(agent, uid);
        let is_of_kind = found.and_then(|slot| self.get(slot)).is_some_and(|record| record.kind == *kind);
        if is_of_kind { found } else { self.by_uid(agent, &uid_of_kind(uid, kind)).or(found) }
    }

    /// All objects of a cluster by kind, then by place.
    #[must_use]
    pub fn kinds(&self, agent: AgentId) -> Option<&BTreeMap<Kind, OfKind>> {
        self.places.get(&agent)
    }

    /// Agents of which there are objects, or were.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.places.keys().copied()
    }

    /// All objects, those that are gone included, in the order of cluster, kind and place.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let kinds = self.places.values().flat_map(BTreeMap::values);
        kinds.flat_map(OfKind::slots)
    }

    /// The object that has that name now.
    #[must_use]
    pub fn there(&self, agent: AgentId, key: &Key) -> Option<Slot> {
        let of_kind = self.places.get(&agent)?.get(&key.kind)?;
        let from = Place::first_named(key.namespace.clone(), key.name.clone());
        let behind = of_kind.beginning_at(self, &from).filter_map(|slot| Some((slot, self.get(slot)?)));
        let mut named = behind.take_while(|(_, record)| record.name == key.name);
        named.find(|(_, record)| record.is_there()).map(|(slot, _)| slot)
    }

    /// Objects with a label in one cluster.
    pub fn labelled<'a>(
        &'a self,
        agent: AgentId,
        label: &(Text, Text),
    ) -> impl Iterator<Item = Slot> + use<'a> {
        self.all_pointers().labelled(agent, label).into_iter().flatten().copied()
    }

    fn all_pointers(&self) -> &Pointers {
        let Some(late) = &self.late else { return &self.pointers };
        late.get_or_init(|| {
            let mut pointers = Pointers::default();
            for slot in self.slots() {
                if let Some(record) = self.get(slot) {
                    pointers.note((slot, record), Kept::All, None, true);
                }
            }
            pointers
        })
    }

    /// Objects that are not well in one of these ways. Which of `None` and `Healthy` are so is not kept.
    pub fn unwell<'a>(
        &'a self,
        agent: AgentId,
        states: &[HealthState],
    ) -> impl Iterator<Item = Slot> + use<'a> {
        let of_agent = self.unwell.get(&agent);
        let states: BTreeSet<HealthState> = states.iter().copied().collect();
        states.into_iter().filter_map(move |state| of_agent?.get(&state)).flatten().copied()
    }

    /// How many objects of a cluster are kept, those that are gone included.
    #[must_use]
    pub fn kept(&self, agent: AgentId) -> usize {
        self.by_uid.get(&agent).map_or(0, Uids::len)
    }

    /// The short names of a kind, where its definition is there.
    #[must_use]
    pub fn short_names(&self, agent: AgentId, kind: &Kind) -> &[Text] {
        let slots = self.defining.get(&agent).and_then(|defining| defining.get(kind));
        let mut records = slots.into_iter().flatten().filter_map(|slot| self.get(*slot));
        match records.find(|record| record.is_there()).and_then(Record::special) {
            Some(Special::Defines(_, short)) => short,
            _ => &[],
        }
    }

    /// Events that are there and say that a pod of the object could not be made.
    pub fn refusing<'a>(&'a self, agent: AgentId, uid: &str) -> impl Iterator<Item = &'a Record> + use<'a> {
        let slots = self.refusing.get(&agent).and_then(|refusing| refusing.get(plain_uid(uid)));
        slots.into_iter().flatten().filter_map(|slot| self.get(*slot)).filter(|record| record.is_there())
    }

    /// Names of the classes of storage that bind on first use.
    #[must_use]
    pub fn late_classes(&self, agent: AgentId) -> BTreeSet<String> {
        let of_kind = self.of_kind(agent, &Kind::new("storage.k8s.io", "StorageClass"));
        let there = of_kind.filter_map(|slot| self.get(slot)).filter(|record| record.is_there());
        let late = there.filter(|record| record.special() == Some(&Special::BindsOnFirstUse));
        late.map(|record| record.name.to_string()).collect()
    }

    /// All objects of a kind in a cluster, those that are gone included.
    pub fn of_kind(&self, agent: AgentId, kind: &Kind) -> impl Iterator<Item = Slot> + use<'_> {
        let of_kind = self.places.get(&agent).and_then(|kinds| kinds.get(kind));
        of_kind.into_iter().flat_map(OfKind::slots)
    }

    /// How many objects of a cluster are there.
    #[must_use]
    pub fn count(&self, agent: AgentId) -> u64 {
        self.there.get(&agent).copied().unwrap_or(0)
    }

    /// How many objects are kept, those that are gone included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects that have to be judged again at this instant, those first that had to be first.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = Slot> + '_ {
        let due = self.deadlines.iter().take_while(move |(at, _)| *at <= now);
        due.map(|(_, slot)| *slot)
    }

    /// When the next object has to be judged again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The objects of a kind in a namespace, those that are gone included.
    pub fn in_namespace<'a>(
        &'a self,
        agent: AgentId,
        kind: &Kind,
        namespace: &'a Text,
    ) -> impl Iterator<Item = Slot> + use<'a> {
        let of_kind = self.places.get(&agent).and_then(|kinds| kinds.get(kind));
        of_kind.into_iter().flat_map(move |of_kind| of_kind.in_namespace(namespace))
    }
}

fn record_in(slots: &[Option<Arc<Record>>], slot: Slot) -> Option<&Record> {
    slots.get(usize::try_from(slot.0).ok()?)?.as_deref()
}

fn uid_in<'a>(slots: &'a [Option<Arc<Record>>]) -> impl Fn(Slot) -> Option<&'a str> {
    move |slot| record_in(slots, slot).map(|record| &*record.uid)
}

#[cfg(test)]
mod tests;
