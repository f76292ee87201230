//! The objects of one kind in one cluster, in their order: by namespace, name and UID. These stand in the records; here are slots alone.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::pieces::Pieces;
use super::{Index, Slot};
use crate::model::record::Record;
use crate::model::text::Text;

/// Namespace, name and UID of an object: its place among those of its kind in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub name: Text,
    /// Its UID.
    pub uid: Text,
}

impl Place {
    /// The place of an object.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let (namespace, name, uid) = (record.namespace.clone(), record.name.clone(), record.uid.clone());
        Self { namespace, name, uid }
    }

    /// Whether it is the place of that object.
    #[must_use]
    pub fn is_of(&self, record: &Record) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&record.namespace, &record.name, &record.uid)
    }

    /// Before all objects of that name.
    pub(crate) fn first_named(namespace: Text, name: Text) -> Self {
        Self { namespace, name, uid: Text::default() }
    }

    /// Whether an object of this namespace is before it.
    pub(super) fn is_behind(&self, record: &Record) -> bool {
        (&record.name, &record.uid) < (&self.name, &self.uid)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct OfKind {
    /// Those of a namespace by name and UID.
    namespaces: BTreeMap<Text, Pieces>,
}

impl OfKind {
    /// All of them.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.namespaces.values().flat_map(|named| named.iter().copied())
    }

    /// The namespaces in which some are.
    pub fn namespaces(&self) -> impl Iterator<Item = &Text> {
        self.namespaces.keys()
    }

    /// Those of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = Slot> + use<'_> {
        self.namespaces.get(namespace).into_iter().flat_map(|named| named.iter().copied())
    }

    /// Those of the namespace of a place, from that place on.
    pub fn beginning_at<'a>(&'a self, index: &Index, place: &Place) -> impl Iterator<Item = Slot> + use<'a> {
        let named = self.namespaces.get(&place.namespace);
        let named = named.map(|named| named.from(|slot| is_before(index, slot, place)));
        named.into_iter().flatten().copied()
    }

    /// All from a place on.
    pub fn from<'a>(&'a self, index: &Index, place: &Place) -> impl Iterator<Item = Slot> + use<'a> {
        let behind = (Bound::Excluded(place.namespace.clone()), Bound::Unbounded);
        let behind = self.namespaces.range(behind).flat_map(|(_, named)| named.iter().copied());
        self.beginning_at(index, place).chain(behind)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Puts an object in, which has that place.
    pub(super) fn insert(&mut self, slot: Slot, place: &Place, is_before: impl Fn(Slot) -> bool) {
        match self.namespaces.get_mut(&place.namespace) {
            Some(named) => named.insert(slot, is_before),
            None => {
                self.namespaces.insert(place.namespace.clone(), Pieces::of(vec![slot]));
            }
        }
    }

    /// Takes an object out, which has that place.
    pub(super) fn remove(&mut self, slot: Slot, place: &Place, is_before: impl Fn(Slot) -> bool) {
        let Some(named) = self.namespaces.get_mut(&place.namespace) else { return };
        named.remove(slot, is_before);
        if named.is_empty() {
            self.namespaces.remove(&place.namespace);
        }
    }
}

fn is_before(index: &Index, slot: Slot, place: &Place) -> bool {
    index.get(slot).is_some_and(|record| place.is_behind(record))
}
