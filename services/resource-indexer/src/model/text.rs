//! Text that many objects share: kinds, namespaces, labels, UIDs.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;

use arcstr::ArcStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quick::Quick;

/// Immutable text behind one pointer, cheap to clone. Many objects share one, so that equal texts are mostly found to be so without reading them.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Text(ArcStr);

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        if ArcStr::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ArcStr::from(text))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(super::known::text_of(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// Keeps one copy of each text. Only looked up in, never iterated in an order that matters.
#[derive(Debug, Clone, Default)]
pub struct Strings(HashSet<ArcStr, Quick>);

impl Strings {
    /// Replaces a text by the copy that is kept.
    pub fn share(&mut self, text: &mut Text) {
        match self.0.get(text.0.as_str()) {
            Some(kept) => text.0 = ArcStr::clone(kept),
            None => {
                self.0.insert(ArcStr::clone(&text.0));
            }
        }
    }

    /// Replaces a text by the copy that is kept, if there is one: for those of which most objects have one of their own.
    pub fn share_known(&self, text: &mut Text) {
        if let Some(kept) = self.0.get(text.0.as_str()) {
            text.0 = ArcStr::clone(kept);
        }
    }

    /// The copy that is kept.
    pub fn get(&self, text: &str) -> Option<Text> {
        self.0.get(text).cloned().map(Text)
    }

    /// Keeps the copies of another one, where there is none yet.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Lets go of what nobody else holds.
    pub fn sweep(&mut self) {
        self.0.retain(|text| ArcStr::strong_count(text).is_some_and(|count| count > 1));
    }
}
