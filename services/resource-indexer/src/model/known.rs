//! Texts that are known while records are read: equal ones are one from the beginning, and no room is made for those that are thrown away.

use std::cell::RefCell;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;

use super::quick::Quick;
use super::text::{Strings, Text};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Those that were read.
    read: HashTable<Text>,
    /// Those that others share already.
    shared: Strings,
    hasher: Quick,
}

thread_local! {
    /// The deserialization of a text is given nothing but the text.
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// The text, as it is known while [`Known::while_reading`] goes on.
pub(super) fn text_of(text: &str) -> Text {
    KNOWN.with_borrow_mut(|known| known.as_mut().map_or_else(|| Text::from(text), |known| known.text(text)))
}

impl Known {
    /// Does what reads texts. They are those of `shared` where it has them.
    pub(crate) fn while_reading<T>(&mut self, shared: &mut Strings, read: impl FnOnce() -> T) -> T {
        let _reading = Reading::begin(self, shared);
        read()
    }

    fn text(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::default();
        }
        let Self { read, shared, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(known) = read.find(hash, |known| **known == *text) {
            return known.clone();
        }
        let new = shared.get(text).unwrap_or_else(|| Text::from(text));
        read.insert_unique(hash, new.clone(), |known| hasher.hash_one(&**known));
        new
    }
}

/// Nothing is known any more on this thread once it is dropped, also where what reads panics.
struct Reading<'k> {
    known: &'k mut Known,
    shared: &'k mut Strings,
}

impl<'k> Reading<'k> {
    fn begin(known: &'k mut Known, shared: &'k mut Strings) -> Self {
        std::mem::swap(&mut known.shared, shared);
        KNOWN.with_borrow_mut(|here| *here = Some(std::mem::take(known)));
        Self { known, shared }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *self.known = KNOWN.with_borrow_mut(Option::take).unwrap_or_default();
        std::mem::swap(&mut self.known.shared, self.shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_that_are_read_are_one_and_those_that_are_shared_already() {
        let (mut known, mut shared) = (Known::default(), Strings::default());
        let mut kept = Text::from("kept");
        shared.share(&mut kept);
        let written = rmp_serde::to_vec(&["new", "kept", "new", ""]).unwrap();
        let read = || rmp_serde::from_slice::<Vec<Text>>(&written).unwrap();
        let texts = known.while_reading(&mut shared, read);
        let again = known.while_reading(&mut shared, read);
        assert_eq!(texts, ["new", "kept", "new", ""].map(Text::from));
        let is_one = |one: &Text, other: &Text| std::ptr::eq(&raw const **one, &raw const **other);
        assert!(is_one(&texts[0], &texts[2]) && is_one(&texts[0], &again[0]) && is_one(&texts[1], &kept));
        assert!(shared.get("kept").is_some() && shared.get("new").is_none());
        assert!(!is_one(&read()[0], &texts[0]), "nothing is known any more");
    }
}
