//! What many objects share: labels, links, field managers, verdicts, and what objects of a namespace have alike.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quick::Quick;

/// An immutable list behind one pointer, cheap to clone. An empty one takes no memory of its own.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T>(Option<Arc<Box<[T]>>>);

impl<T> List<T> {
    /// The items, as long as nobody shares the list; none afterwards.
    pub(crate) fn unshared(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.as_mut().and_then(Arc::get_mut).into_iter().flat_map(|items| items.iter_mut())
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.as_ref().map(|items| &***items).unwrap_or_default()
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self((!items.is_empty()).then(|| Arc::new(items.into())))
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// Keeps one copy of each thing. Only looked up in, never iterated in an order that matters.
#[derive(Debug)]
pub struct Copies<T>(HashSet<Arc<T>, Quick>);

impl<T> Default for Copies<T> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<T: Eq + Hash> Copies<T> {
    /// Replaces a thing by the copy that is kept. The first one is kept, once `within` has shared what it consists of.
    pub fn share(&mut self, thing: &mut Arc<T>, within: impl FnOnce(&mut T)) {
        if let Some(kept) = self.0.get(&**thing) {
            *thing = Arc::clone(kept);
            return;
        }
        if let Some(thing) = Arc::get_mut(thing) {
            within(thing);
        }
        self.0.insert(Arc::clone(thing));
    }

    /// Keeps the copies of another one, where there is none yet.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Lets go of what nobody else holds.
    pub fn sweep(&mut self) {
        self.0.retain(|thing| Arc::strong_count(thing) > 1);
    }
}

/// Keeps one copy of each list.
#[derive(Debug)]
pub struct Lists<T>(Copies<Box<[T]>>);

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self(Copies::default())
    }
}

impl<T: Eq + Hash> Lists<T> {
    /// Replaces a list by the copy that is kept. The first one is kept, once `within` has shared what its items consist of.
    pub fn share(&mut self, list: &mut List<T>, within: impl FnMut(&mut T)) {
        if let Some(items) = &mut list.0 {
            self.0.share(items, |items| items.iter_mut().for_each(within));
        }
    }

    /// Keeps the copies of another one, where there is none yet.
    pub fn join(&mut self, other: Self) {
        self.0.join(other.0);
    }

    /// Lets go of what nobody else holds.
    pub fn sweep(&mut self) {
        self.0.sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one_as_long_as_somebody_holds_them() {
        let mut lists = Lists::default();
        let [mut one, mut other] = [List::from(vec![1, 2]), List::from(vec![1, 2])];
        let mut seen = Vec::new();
        lists.share(&mut one, |item| seen.push(*item));
        lists.share(&mut other, |item| seen.push(*item));
        assert_eq!(seen, [1, 2], "of the one that is kept");
        assert!(std::ptr::eq(&*one, &*other));
        assert_eq!(one.unshared().count(), 0, "changed for all of them");
        lists.sweep();
        drop((one, other));
        assert_eq!(lists.0.0.len(), 1);
        lists.sweep();
        assert!(lists.0.0.is_empty());
    }

    #[test]
    fn what_is_written_is_what_a_list_of_its_own_is_written_as() {
        let (list, none) = (List::from(vec!["a", "b"]), List::<u8>::default());
        assert_eq!(size_of_val(&none), size_of::<usize>());
        assert_eq!(rmp_serde::to_vec(&list).unwrap(), rmp_serde::to_vec(&["a", "b"]).unwrap());
        let bytes = rmp_serde::to_vec(&none).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec(&[0_u8; 0]).unwrap());
        assert_eq!(rmp_serde::from_slice::<List<u8>>(&bytes).unwrap(), none);
    }
}
