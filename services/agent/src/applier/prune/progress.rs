//! How far a prune list is worked off.

use std::collections::{BTreeMap, BTreeSet};

use super::Pruned;

/// Entries by UID.
#[derive(Debug, Default)]
pub(in crate::applier) struct Progress {
    deleted: BTreeSet<String>,
    not_ours: BTreeSet<String>,
    /// With what was told of them.
    kept: BTreeMap<String, String>,
}

impl Progress {
    /// Another list begins.
    pub(in crate::applier) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Those that were deleted or were gone; what was deleted may be there still.
    pub(super) fn deleted(&self) -> &BTreeSet<String> {
        &self.deleted
    }

    /// Nothing is left to do, whatever happens.
    pub(super) fn is_done(&self, uid: &str) -> bool {
        self.deleted.contains(uid) || self.not_ours.contains(uid)
    }

    /// It is there and ours, and stayed when it was looked at last.
    pub(super) fn is_kept(&self, uid: &str) -> bool {
        self.kept.contains_key(uid)
    }

    /// It was looked at, and needs no other attempt for now.
    pub(super) fn is_settled(&self, uid: &str) -> bool {
        self.is_done(uid) || self.is_kept(uid)
    }

    /// Nothing new can be told of it.
    pub(super) fn is_reported(&self, uid: &str, pruned: &Pruned) -> bool {
        matches!(pruned, Pruned::Kept(reason) if self.kept.get(uid) == Some(reason))
    }

    /// Notes what became of an entry.
    pub(in crate::applier) fn note(&mut self, uid: &str, pruned: Pruned) {
        self.kept.remove(uid);
        match pruned {
            Pruned::Deleted | Pruned::Gone => drop(self.deleted.insert(uid.to_owned())),
            Pruned::Kept(reason) => drop(self.kept.insert(uid.to_owned(), reason)),
            Pruned::NotOurs(_) => drop(self.not_ours.insert(uid.to_owned())),
        }
    }
}
