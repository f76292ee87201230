//! How objects are related: links are resolved against what is there.

use std::collections::BTreeSet;

use events::AgentId;

use super::{Index, Place, Slot};
use crate::model::record::{Kind, Record, plain_uid};
use crate::model::relations::{Key, Link, Relation, Selected, Target};
use crate::model::text::Text;

impl Index {
    /// What an object points at: how, and to which objects that are there. With many pods behind one selector that is long.
    pub fn targets<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = (Relation, Slot)> + 'a {
        record
            .links()
            .flat_map(move |link| self.targets_of(record.agent, link).map(|slot| (link.relation, slot)))
    }

    /// The objects that are there and that a link names.
    pub fn targets_of<'a>(&'a self, agent: AgentId, link: &'a Link) -> Box<dyn Iterator<Item = Slot> + 'a> {
        match &link.target {
            Target::Uid(uid, key) => {
                let named = self.owner(agent, uid, &key.kind);
                Box::new(named.filter(|slot| self.get(*slot).is_some_and(Record::is_there)).into_iter())
            }
            Target::Key(key) => Box::new(self.there(agent, key).into_iter()),
            Target::Labels(selected) => {
                let Selected { kind, namespace, selector } = &**selected;
                let is_selected = move |slot: &Slot| {
                    self.get(*slot).is_some_and(|found| found.is_there() && selected.has(found))
                };
                match selector.exact() {
                    Some((key, value)) => {
                        let label = (key.clone(), value.clone());
                        Box::new(self.labelled(agent, &label).filter(is_selected))
                    }
                    None => Box::new(self.in_namespace(agent, kind, namespace).filter(is_selected)),
                }
            }
            Target::Claims(claimed) => {
                let prefixes = claimed.prefixes.iter();
                let claims = prefixes.flat_map(move |prefix| self.claims(agent, &claimed.namespace, prefix));
                Box::new(claims.filter(move |slot| {
                    self.get(*slot).is_some_and(|found| found.is_there() && claimed.has(found))
                }))
            }
        }
    }

    /// What an object has caused and how, those that are gone included.
    #[must_use]
    pub fn caused_how(&self, record: &Record) -> Vec<(Relation, Slot)> {
        let key = record.key();
        let candidates: BTreeSet<Slot> = self.pointers.naming(record, &key).collect();
        let of_one = |slot: Slot| {
            let links = self.get(slot).into_iter().flat_map(|other| other.facts.links.iter());
            let causing = links.filter(|link| link.relation.is_cause() && names(link, record, &key));
            causing.map(move |link| (link.relation, slot))
        };
        candidates.into_iter().flat_map(of_one).collect()
    }

    /// The objects that point at an object, and how: those that are there.
    #[must_use]
    pub fn sources(&self, record: &Record) -> Vec<(Relation, Slot)> {
        let key = record.key();
        let pointers = self.all_pointers();
        let candidates: BTreeSet<Slot> =
            pointers.naming(record, &key).chain(pointers.selecting(record)).collect();
        let mut found = Vec::new();
        for slot in candidates {
            let Some(source) = self.get(slot).filter(|source| source.is_there()) else { continue };
            let links = source.links().filter(|link| names(link, record, &key));
            found.extend(links.map(|link| (link.relation, slot)));
        }
        found
    }

    /// Claims of volumes whose names begin so.
    fn claims<'a>(
        &'a self,
        agent: AgentId,
        namespace: &'a Text,
        prefix: &'a Text,
    ) -> impl Iterator<Item = Slot> + use<'a> {
        let from = Place::first_named(namespace.clone(), prefix.clone());
        let claim = Kind::new("", "PersistentVolumeClaim");
        let of_kind = self.places.get(&agent).and_then(|kinds| kinds.get(&claim));
        let behind = of_kind.into_iter().flat_map(move |of_kind| of_kind.beginning_at(self, &from));
        let begins =
            move |slot: &Slot| self.get(*slot).is_some_and(|claim| claim.name.starts_with(&**prefix));
        behind.take_while(begins)
    }
}

/// Whether a link names an object that is there.
fn names(link: &Link, record: &Record, key: &Key) -> bool {
    match &link.target {
        Target::Uid(uid, named) => {
            let plain = plain_uid(&record.uid);
            **uid == *plain && (*plain == *record.uid || named.kind == record.kind)
        }
        Target::Key(named) => named == key,
        Target::Labels(selected) => selected.has(record),
        Target::Claims(claimed) => claimed.has(record),
    }
}
