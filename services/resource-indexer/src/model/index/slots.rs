//! Sets of objects of which most have few: a label, an owner, a name that is pointed at.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::slice;

use smallvec::SmallVec;

use super::Slot;
use super::pieces::{self, Pieces};

/// As many take no memory of their own.
const INSIDE: usize = 3;
/// As many are kept in one piece, in which each one that is put in moves others.
const FEW: usize = 32;

/// Slots in their order.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "most sets have few: what all take is little")]
pub enum Slots {
    /// As many of these as the number says.
    Inside(u8, [Slot; INSIDE]),
    /// Few, in one piece.
    Few(Box<Vec<Slot>>),
    /// More than few, or once more.
    Many(Box<Pieces>),
}

impl Default for Slots {
    fn default() -> Self {
        Self::Inside(0, [Slot(0); INSIDE])
    }
}

impl Slots {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Inside(count, _) => *count == 0,
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Inside(count, _) => usize::from(*count),
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// All of them, in their order.
    pub fn iter(&self) -> Iter<'_> {
        match self {
            Self::Inside(count, slots) => {
                Iter::Few(slots.get(..usize::from(*count)).unwrap_or_default().iter())
            }
            Self::Few(few) => Iter::Few(few.iter()),
            Self::Many(many) => Iter::Many(many.iter()),
        }
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        match self {
            Self::Inside(..) => {
                let mut slots = self.inside();
                if let Err(place) = slots.binary_search(&slot) {
                    slots.insert(place, slot);
                    *self = Self::of(&slots);
                }
            }
            Self::Few(few) => match few.binary_search(&slot) {
                Ok(_) => {}
                Err(place) if few.len() < FEW => few.insert(place, slot),
                Err(place) => {
                    few.insert(place, slot);
                    *self = Self::Many(Box::new(Pieces::of(std::mem::take(few.as_mut()))));
                }
            },
            Self::Many(many) => many.insert(slot, |known| known < slot),
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        match self {
            Self::Inside(..) => {
                let mut slots = self.inside();
                slots.retain(|known| *known != slot);
                *self = Self::of(&slots);
            }
            Self::Few(few) => {
                if let Ok(place) = few.binary_search(&slot) {
                    few.remove(place);
                }
            }
            Self::Many(many) => many.remove(slot, |known| known < slot),
        }
    }

    /// Those inside, with room for one more.
    fn inside(&self) -> SmallVec<[Slot; INSIDE + 1]> {
        self.iter().copied().collect()
    }

    fn of(slots: &[Slot]) -> Self {
        let mut inside = [Slot(0); INSIDE];
        match (u8::try_from(slots.len()), inside.get_mut(..slots.len())) {
            (Ok(count), Some(part)) => {
                part.copy_from_slice(slots);
                Self::Inside(count, inside)
            }
            _ => Self::Few(Box::new(slots.to_vec())),
        }
    }
}

/// Adds to or takes from a set that is no more once it is empty; says whether the set came or went.
pub(super) fn change<K: Ord>(sets: &mut BTreeMap<K, Slots>, key: K, slot: Slot, adds: bool) -> bool {
    change_all(sets, key, &[slot], adds)
}

/// The same with several.
pub(super) fn change_all<K: Ord>(sets: &mut BTreeMap<K, Slots>, key: K, slots: &[Slot], adds: bool) -> bool {
    match sets.entry(key) {
        Entry::Vacant(place) => {
            if adds {
                let set = place.insert(Slots::default());
                slots.iter().for_each(|slot| set.insert(*slot));
            }
            adds
        }
        Entry::Occupied(mut set) if adds => {
            slots.iter().for_each(|slot| set.get_mut().insert(*slot));
            false
        }
        Entry::Occupied(mut set) => {
            slots.iter().for_each(|slot| set.get_mut().remove(*slot));
            let is_empty = set.get().is_empty();
            if is_empty {
                set.remove();
            }
            is_empty
        }
    }
}

/// See [`Slots::iter`].
pub enum Iter<'a> {
    /// Of few.
    Few(slice::Iter<'a, Slot>),
    /// Of many.
    Many(pieces::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Slot;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next(),
            Self::Many(many) => many.next(),
        }
    }
}

impl<'a> IntoIterator for &'a Slots {
    type Item = &'a Slot;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_takes_no_more_than_what_leads_to_it() {
        assert_eq!(size_of::<Slots>(), 16);
    }

    proptest! {
        #[test]
        fn they_are_the_set_that_they_stand_for(steps: Vec<(bool, u8)>) {
            let (mut slots, mut set) = (Slots::default(), BTreeSet::new());
            for (adds, number) in steps {
                let slot = Slot(u32::from(number) / 3);
                if adds {
                    slots.insert(slot);
                    set.insert(slot);
                } else {
                    slots.remove(slot);
                    set.remove(&slot);
                }
                prop_assert!(slots.iter().eq(set.iter()));
                prop_assert_eq!(slots.len(), set.len());
            }
        }
    }
}
