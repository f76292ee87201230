//! Slots in an order that is known elsewhere, in pieces: four bytes each, and little more.

use std::iter::{Flatten, Skip};
use std::slice;

use super::Slot;

/// As many are in one piece: each one that is put in moves others of its piece.
const PIECE: usize = 256;

/// See the module. None of the pieces is empty.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Vec<Slot>>,
}

/// See [`Pieces::iter`].
pub(super) type Iter<'a> = Flatten<slice::Iter<'a, Vec<Slot>>>;

/// See [`Pieces::from`].
pub(super) type Rest<'a> = Skip<Flatten<Skip<slice::Iter<'a, Vec<Slot>>>>>;

impl Pieces {
    /// These, which are in order.
    pub(super) fn of(slots: Vec<Slot>) -> Self {
        Self { pieces: vec![slots] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// All of them.
    pub(super) fn iter(&self) -> Iter<'_> {
        self.pieces.iter().flatten()
    }

    /// Those that are not before what is looked for.
    pub(super) fn from(&self, is_before: impl Fn(Slot) -> bool) -> Rest<'_> {
        let (piece, inside) = self.find(is_before);
        self.pieces.iter().skip(piece).flatten().skip(inside)
    }

    /// The piece and the place in it of the first one that is not before what is looked for.
    fn find(&self, is_before: impl Fn(Slot) -> bool) -> (usize, usize) {
        let ends_before = |piece: &Vec<Slot>| piece.last().is_some_and(|slot| is_before(*slot));
        let piece = self.pieces.partition_point(ends_before);
        let inside = self.pieces.get(piece).map_or(0, |slots| slots.partition_point(|slot| is_before(*slot)));
        (piece, inside)
    }

    /// Puts one in where it is looked for.
    pub(super) fn insert(&mut self, slot: Slot, is_before: impl Fn(Slot) -> bool) {
        let (piece, inside) = self.find(is_before);
        match self.pieces.get_mut(piece) {
            Some(slots) if slots.get(inside) == Some(&slot) => {}
            Some(slots) => slots.insert(inside, slot),
            None => match self.pieces.last_mut() {
                // What comes in order fills one piece after the other.
                Some(last) if last.len() < PIECE => last.push(slot),
                _ => self.pieces.push(vec![slot]),
            },
        }
        let Some(slots) = self.pieces.get_mut(piece).filter(|slots| slots.len() > PIECE) else { return };
        let rest = slots.split_off(PIECE / 2);
        self.pieces.insert(piece.saturating_add(1), rest);
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, slot: Slot, is_before: impl Fn(Slot) -> bool) {
        let (piece, inside) = self.find(is_before);
        let Some(slots) = self.pieces.get_mut(piece) else { return };
        if slots.get(inside) == Some(&slot) {
            slots.remove(inside);
        }
        if slots.is_empty() {
            self.pieces.remove(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_in_order_however_they_come_and_go(
            steps in prop::collection::vec((any::<bool>(), 0..2_000_u32), 0..1_500),
            from in 0..2_000_u32,
        ) {
            let (mut pieces, mut set) = (Pieces::default(), BTreeSet::new());
            // In order first: that fills pieces.
            let all = (0..600).map(|number| (true, number * 3)).chain(steps);
            for (adds, number) in all {
                let is_before = |slot: Slot| slot.0 < number;
                if adds {
                    set.insert(Slot(number));
                    pieces.insert(Slot(number), is_before);
                } else {
                    set.remove(&Slot(number));
                    pieces.remove(Slot(number), is_before);
                }
                prop_assert!(pieces.pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
            }
            prop_assert!(pieces.iter().eq(set.iter()));
            let behind = pieces.from(|slot| slot.0 < from);
            prop_assert!(behind.eq(set.range(Slot(from)..)));
        }
    }
}
