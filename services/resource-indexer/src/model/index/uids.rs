//! Objects of one cluster by their UIDs, which stand in the records alone.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::Slot;

/// See the module. What is given as `uid_of` says the UID of the object in a slot.
#[derive(Debug, Default)]
pub(super) struct Uids {
    slots: HashTable<Slot>,
    hasher: RandomState,
}

impl Uids {
    pub(super) fn get<'a>(&self, uid: &str, uid_of: impl Fn(Slot) -> Option<&'a str>) -> Option<Slot> {
        let is_it = |slot: &Slot| uid_of(*slot) == Some(uid);
        self.slots.find(self.hasher.hash_one(uid), is_it).copied()
    }

    pub(super) fn insert<'a>(&mut self, uid: &str, slot: Slot, uid_of: impl Fn(Slot) -> Option<&'a str>) {
        let Self { slots, hasher } = self;
        let hash_of = |slot: &Slot| hasher.hash_one(uid_of(*slot).unwrap_or_default());
        slots.insert_unique(hasher.hash_one(uid), slot, hash_of);
    }

    pub(super) fn remove(&mut self, uid: &str, slot: Slot) {
        if let Ok(entry) = self.slots.find_entry(self.hasher.hash_one(uid), |known| *known == slot) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// In no order.
    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter()
    }
}
