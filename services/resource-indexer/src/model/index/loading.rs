//! Objects that are loaded when a process starts. They are prepared in one thread and put in in another one: each is half of the work.

use std::sync::Arc;

use events::AgentId;

use super::{Index, Slot};
use crate::model::record::{Record, Shared};
use crate::model::relations::Target;
use crate::model::text::Strings;

/// Shares what objects have in common, before they are in an index.
#[derive(Debug, Default)]
pub struct Loading {
    shared: Shared,
    /// Names and UIDs of one cluster's objects, and of those that they name.
    named: Strings,
    of: Option<AgentId>,
}

impl Loading {
    /// The object as it is put into an index. Those of one cluster come one after the other.
    #[must_use]
    pub fn prepare(&mut self, mut record: Record) -> Arc<Record> {
        if self.of.replace(record.agent) != Some(record.agent) {
            self.named = Strings::default();
        }
        self.named.share(&mut record.uid);
        self.named.share(&mut record.name);
        for link in record.facts.links.unshared() {
            if let Target::Uid(uid, key) = &mut link.target {
                self.named.share(uid);
                self.named.share(&mut key.name);
            }
        }
        record.share(&mut self.shared);
        Arc::new(record)
    }
}

impl Index {
    /// Puts an object in that was prepared and is not known yet.
    pub fn load(&mut self, record: Arc<Record>) -> Slot {
        let slot = self.add(record);
        self.settle_one(slot, false);
        slot
    }

    /// Ends loading: what comes later shares with what was loaded.
    pub fn end_loading(&mut self, loading: Loading) {
        self.shared = loading.shared;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::given::{AGENT, Given, below, object, pod, seen};

    #[test]
    fn what_was_loaded_is_shared_as_what_was_folded() {
        let mut given = Given::agents();
        let pod = |name: &str| seen(&below(pod(name, json!({})), "apps/v1", "ReplicaSet", "web"));
        let set = object("apps/v1", "ReplicaSet", "shop/web", json!({}));
        given.says(vec![pod("shop/web-1"), pod("shop/web-2"), seen(&set)]);
        let folded = &given.fold.index;
        let (mut loaded, mut loading) = (Index::default(), Loading::default());
        for slot in folded.slots() {
            let written = rmp_serde::to_vec(folded.get(slot).unwrap()).unwrap();
            let read: Record = rmp_serde::from_slice(&written).unwrap();
            loaded.load(loading.prepare(read));
        }
        loaded.end_loading(loading);
        let get = |uid: &str| loaded.get(loaded.by_uid(AGENT, uid).unwrap()).unwrap();
        let [one, other, set] = ["uid-web-1", "uid-web-2", "uid-web"].map(get);
        assert!(std::ptr::eq(&*one.facts.links, &*other.facts.links));
        assert!(std::ptr::eq(&one.namespace, &other.namespace), "what is alike is one");
        let Target::Uid(uid, key) = &one.facts.links[0].target else { panic!("{:?}", one.facts.links) };
        assert!(std::ptr::eq(&**uid, &*set.uid) && std::ptr::eq(&*key.name, &*set.name));
        let mut known = folded.get(folded.by_uid(AGENT, "uid-web-1").unwrap()).unwrap().clone();
        known.stated = one.stated;
        assert_eq!(*one, known);
    }
}
