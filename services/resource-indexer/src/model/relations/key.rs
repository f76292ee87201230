//! The names of objects: links are mostly made of them.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::list::Copies;
use crate::model::record::Kind;
use crate::model::text::{Strings, Text};

/// The name of an object in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Key {
    /// Its kind and its namespace, which are read as if they stood here.
    room: Arc<Room>,
    /// Its name.
    pub name: Text,
}

/// The objects of one kind in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room {
    /// Their kind.
    pub kind: Kind,
    /// Their namespace, empty for cluster-scoped objects.
    pub namespace: Text,
}

/// A name as it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    kind: Kind,
    namespace: Text,
    name: Text,
}

impl From<Stored> for Key {
    fn from(Stored { kind, namespace, name }: Stored) -> Self {
        Self::of(kind, namespace, name)
    }
}

impl From<Key> for Stored {
    fn from(Key { room, name }: Key) -> Self {
        let Room { kind, namespace } = Arc::unwrap_or_clone(room);
        Self { kind, namespace, name }
    }
}

impl Deref for Key {
    type Target = Room;
    fn deref(&self) -> &Room {
        &self.room
    }
}

impl Key {
    /// The object of that kind, namespace and name.
    #[must_use]
    pub fn of(kind: Kind, namespace: Text, name: Text) -> Self {
        Self { room: Arc::new(Room { kind, namespace }), name }
    }

    pub(crate) fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self::of(Kind::new(group, kind), Text::from(namespace), Text::from(name))
    }

    pub(super) fn share(&mut self, strings: &mut Strings, rooms: &mut Copies<Room>) {
        rooms.share(&mut self.room, |room| {
            room.kind.share(strings);
            strings.share(&mut room.namespace);
        });
    }
}
