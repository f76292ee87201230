//! An index that is loaded in parts: no two of them have objects of one cluster. What finds objects is made for one cluster after the other,
//! and by several threads.

use std::ops::Range;
use std::sync::Arc;

use super::{Index, Slot};
use crate::model::record::Record;

/// Room for all objects that a thread loads, each in a slot that nobody else uses.
#[derive(Debug, Default)]
pub struct Room(Vec<Option<Arc<Record>>>);

impl Room {
    /// Room for so many.
    #[must_use]
    pub fn of(objects: usize) -> Self {
        Self(vec![None; objects])
    }
}

impl Index {
    /// An empty one. Objects that are put in take these slots, the first ones first.
    #[must_use]
    pub fn part(room: Room, slots: Range<usize>) -> Self {
        let slots = slots.rev().filter_map(|slot| u32::try_from(slot).ok());
        Self { slots: room.0, free: slots.map(Slot).collect(), ..Self::default() }
    }

    /// Takes the room from it, for another part, and the slots that no object took.
    pub fn leave_room(&mut self) -> (Room, Vec<Slot>) {
        (Room(std::mem::take(&mut self.slots)), std::mem::take(&mut self.free))
    }

    /// Whether there is a slot for an object that is not known yet.
    #[must_use]
    pub fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes in a part that left its room.
    pub fn join(&mut self, other: Self) {
        // Each field by its name: of one that is forgotten the objects of a part would be missing.
        let Self {
            slots: _,
            free: _,
            mut by_uid,
            mut places,
            pointers,
            late: _,
            mut unwell,
            mut asking,
            mut deadlines,
            mut defining,
            mut refusing,
            mut by_source,
            // Nothing is grouped or declared while objects are loaded, and what they share is kept by who loads them.
            grouped: _,
            mut searched,
            shared: _,
            mut there,
            declaring: _,
            unnoted: _,
        } = other;
        self.by_uid.append(&mut by_uid);
        self.places.append(&mut places);
        self.pointers.join(pointers);
        self.unwell.append(&mut unwell);
        self.asking.append(&mut asking);
        self.deadlines.append(&mut deadlines);
        self.defining.append(&mut defining);
        self.refusing.append(&mut refusing);
        self.by_source.append(&mut by_source);
        self.searched.append(&mut searched);
        self.there.append(&mut there);
    }

    /// Takes in the objects of all parts, and the slots that none of them took: the first of these are taken first.
    pub fn end_parts(&mut self, rooms: impl IntoIterator<Item = Room>, mut unused: Vec<Slot>) {
        for Room(room) in rooms {
            if self.slots.is_empty() {
                self.slots = room;
                continue;
            }
            for (own, record) in self.slots.iter_mut().zip(room) {
                if record.is_some() {
                    *own = record;
                }
            }
        }
        unused.sort_unstable_by(|one, other| other.cmp(one));
        self.free = unused;
    }
}
