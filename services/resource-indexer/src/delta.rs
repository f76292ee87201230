//! A body as what differs from another one. Most changes touch one place: what is alike at both ends is left out, and the middle is
//! compressed with the middle of the other one as a dictionary.

use bytes::Bytes;
use lz4_flex::block::{compress_with_dict, decompress_with_dict};

/// Bytes of a dictionary that the compressor reaches.
const WINDOW: usize = 60 * 1024;
/// The longest middle that is unpacked.
const LARGEST: usize = 32 * 1024 * 1024;

/// How the body before a change is kept: it is made of the one after it, so that the newest is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyBefore {
    /// It is the one after.
    Same,
    /// It is not known.
    Unknown,
    /// All of it.
    Whole(Bytes),
    /// What differs from the one after.
    Delta {
        /// Bytes at the beginning that are alike.
        head: usize,
        /// Bytes at the end that are alike.
        tail: usize,
        /// Length of what stands between.
        length: usize,
        /// That, compressed.
        middle: Bytes,
    },
}

/// What was kept does not give a body: it is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a kept body cannot be unpacked")]
pub struct Damaged;

/// The end of the bytes, as far as the compressor reaches.
fn dictionary(bytes: &[u8]) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(WINDOW)..).unwrap_or_default()
}

impl BodyBefore {
    /// What differs between two bodies.
    #[must_use]
    pub fn delta(before: &[u8], after: &[u8]) -> Self {
        let head = before.iter().zip(after).take_while(|(left, right)| left == right).count();
        let (old, new) = (before.get(head..).unwrap_or_default(), after.get(head..).unwrap_or_default());
        let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(left, right)| left == right).count();
        let cut = |bytes: &[u8]| bytes.len().saturating_sub(tail);
        let old = old.get(..cut(old)).unwrap_or_default();
        let new = new.get(..cut(new)).unwrap_or_default();
        let middle = compress_with_dict(old, dictionary(new)).into();
        Self::Delta { head, tail, length: old.len(), middle }
    }

    /// The body before, given the one after.
    ///
    /// # Errors
    /// When it is damaged, or needs a body that is not known.
    pub fn body(&self, after: Option<&Bytes>) -> Result<Option<Bytes>, Damaged> {
        match self {
            Self::Same => Ok(after.cloned()),
            Self::Unknown => Ok(None),
            Self::Whole(body) => Ok(Some(body.clone())),
            Self::Delta { head, tail, length, middle } => {
                let after = after.ok_or(Damaged)?;
                let end = after.len().checked_sub(*tail).ok_or(Damaged)?;
                let (first, last) = (after.get(..*head).ok_or(Damaged)?, after.get(end..).ok_or(Damaged)?);
                let other = dictionary(after.get(*head..end).ok_or(Damaged)?);
                let length = Some(*length).filter(|length| *length <= LARGEST).ok_or(Damaged)?;
                let middle = decompress_with_dict(middle, length, other).map_err(|_| Damaged)?;
                Ok(Some([first, &middle, last].concat().into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(before: &[u8], after: &[u8]) -> usize {
        let kept = BodyBefore::delta(before, after);
        let after = Bytes::copy_from_slice(after);
        assert_eq!(kept.body(Some(&after)).unwrap().as_deref(), Some(before));
        let BodyBefore::Delta { middle, .. } = &kept else { panic!("{kept:?}") };
        middle.len()
    }

    proptest! {
        #[test]
        fn a_delta_gives_the_body_back(before in ".{0,300}", after in ".{0,300}", place in 0..300_usize) {
            there_and_back(before.as_bytes(), after.as_bytes());
            let mut changed = before.clone().into_bytes();
            changed.insert(place.min(before.len()), b'x');
            there_and_back(before.as_bytes(), &changed);
        }
    }

    #[test]
    fn a_change_in_one_place_of_a_large_body_is_small() {
        let large: String = (0..50_000).map(|number| format!("\"field{number}\":{number},")).collect();
        let mut changed = large.clone();
        changed.replace_range(500_000..500_010, "something else");
        assert!(there_and_back(large.as_bytes(), changed.as_bytes()) < 40);
        there_and_back(large.as_bytes(), b"");
        there_and_back(b"", large.as_bytes());
    }

    #[test]
    fn what_is_damaged_is_not_given_out() {
        let other = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
        let kept = BodyBefore::delta(b"{\"a\":1}", b"{\"a\":2}");
        assert_eq!(kept.body(None), Err(Damaged));
        assert_eq!(kept.body(other(b"{").as_ref()), Err(Damaged));
        assert_eq!(BodyBefore::Unknown.body(other(b"x").as_ref()), Ok(None));
        assert_eq!(BodyBefore::Same.body(other(b"x").as_ref()), Ok(other(b"x")));
    }
}
