//! The texts of a cluster's objects, one behind the other, so that a text is looked for in all of them at once.

use std::collections::{BTreeMap, BTreeSet};

use events::AgentId;
use memchr::memmem::Finder;

use super::{Index, OfKind, Slot};
use crate::model::record::Record;
use crate::model::text::Text;

/// Behind each text: names and labels have none in them.
const END: u8 = b'\n';
/// Bytes of texts that have left before all are collected anew.
const LEFT: usize = 64 * 1024;

/// Texts in small letters, with what each leads to. A text that has left is found until they are collected anew, so what is found is
/// looked at again.
#[derive(Debug)]
struct Texts<V> {
    all: Vec<u8>,
    starts: Vec<u32>,
    leads_to: Vec<V>,
    left: usize,
}

impl<V> Default for Texts<V> {
    fn default() -> Self {
        Self { all: Vec::new(), starts: Vec::new(), leads_to: Vec::new(), left: 0 }
    }
}

impl<V> Texts<V> {
    fn add<'t>(&mut self, parts: impl IntoIterator<Item = &'t str>, leads_to: V) {
        self.starts.push(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.leads_to.push(leads_to);
        for part in parts {
            if part.is_ascii() {
                self.all.extend(part.bytes().map(|byte| byte.to_ascii_lowercase()));
            } else {
                self.all.extend_from_slice(part.to_lowercase().as_bytes());
            }
            self.all.push(END);
        }
    }

    fn leave(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes);
    }

    fn is_worn(&self) -> bool {
        self.left > LEFT && self.left > self.all.len() / 2
    }

    /// What the texts lead to that have this one in them.
    fn find<'a>(&'a self, text: &'a Finder<'a>) -> impl Iterator<Item = &'a V> {
        let mut last = None;
        text.find_iter(&self.all).filter_map(move |at| {
            let behind =
                self.starts.partition_point(|start| usize::try_from(*start).is_ok_and(|start| start <= at));
            let found = behind.checked_sub(1)?;
            if last.replace(found) == Some(found) { None } else { self.leads_to.get(found) }
        })
    }
}

/// What of one cluster is searched.
#[derive(Debug, Default)]
pub(super) struct Searched {
    names: Texts<Slot>,
    labels: Texts<(Text, Text)>,
    /// With how many objects each has.
    namespaces: BTreeMap<Text, usize>,
    /// Objects that are well and whose verdict has a message nevertheless.
    telling: BTreeSet<Slot>,
}

impl Searched {
    pub(super) fn note(&mut self, slot: Slot, record: &Record, adds: bool) {
        if adds {
            self.names.add([&*record.name], slot);
            *self.namespaces.entry(record.namespace.clone()).or_default() += 1;
            return;
        }
        self.names.leave(record.name.len());
        if let Some(count) = self.namespaces.get_mut(&record.namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.namespaces.remove(&record.namespace);
            }
        }
    }

    /// The first object came to have a label, or the last one has it no more.
    pub(super) fn note_label(&mut self, label: &(Text, Text), adds: bool) {
        if adds {
            self.labels.add([&*label.0, &*label.1], label.clone());
        } else {
            self.labels.leave(label.0.len().saturating_add(label.1.len()));
        }
    }

    pub(super) fn note_telling(&mut self, slot: Slot, adds: bool) {
        if adds {
            self.telling.insert(slot);
        } else {
            self.telling.remove(&slot);
        }
    }
}

impl Index {
    /// Objects of a cluster among which all are that are there and have a text, in small letters, in their name, namespace, kind, labels or
    /// the message of their verdict; `None` where they are more than `most`, and of a moment of the past, whose texts are not kept.
    #[must_use]
    pub fn with_text(&self, agent: AgentId, text: &str, most: usize) -> Option<BTreeSet<Slot>> {
        if self.late.is_some() {
            return None;
        }
        let Some(searched) = self.searched.get(&agent) else { return Some(BTreeSet::new()) };
        let finder = Finder::new(text);
        let mut found = Few { slots: BTreeSet::new(), most };
        let is_found = |whole: &str| contains(whole, text);
        let kinds = self.kinds(agent).into_iter().flatten();
        for (_, of_kind) in kinds.filter(|(kind, _)| is_found(&kind.kind)) {
            found.add(of_kind.slots())?;
        }
        for (namespace, count) in searched.namespaces.iter().filter(|(namespace, _)| is_found(namespace)) {
            if *count > most {
                return None;
            }
            let kinds = self.kinds(agent).into_iter().flat_map(BTreeMap::keys);
            found.add(kinds.flat_map(|kind| self.in_namespace(agent, kind, namespace)))?;
        }
        for label in searched.labels.find(&finder) {
            found.add(self.labelled(agent, label))?;
        }
        found.add(searched.names.find(&finder).copied())?;
        let unwell = self.unwell.get(&agent).into_iter().flat_map(BTreeMap::values).flatten();
        let telling = unwell.chain(&searched.telling).copied();
        let tells = |slot: &Slot| self.get(*slot).is_some_and(|record| is_found(&record.verdict().message));
        found.add(telling.filter(tells))?;
        Some(found.slots)
    }

    /// Collects the texts of a cluster anew where many of them have left.
    pub(super) fn collect_texts(&mut self, agent: AgentId) {
        let Some(searched) = self.searched.get(&agent) else { return };
        let (names, labels) = (searched.names.is_worn(), searched.labels.is_worn());
        let names = names.then(|| {
            let mut texts = Texts::default();
            for slot in self.kinds(agent).into_iter().flat_map(BTreeMap::values).flat_map(OfKind::slots) {
                let Some(record) = self.get(slot) else { continue };
                texts.add([&*record.name], slot);
            }
            texts
        });
        let labels = labels.then(|| {
            let mut texts = Texts::default();
            for label in self.pointers.labels(agent) {
                texts.add([&*label.0, &*label.1], label.clone());
            }
            texts
        });
        if let Some(searched) = self.searched.get_mut(&agent) {
            searched.names = names.unwrap_or_else(|| std::mem::take(&mut searched.names));
            searched.labels = labels.unwrap_or_else(|| std::mem::take(&mut searched.labels));
        }
    }
}

/// Objects, as long as they are few.
struct Few {
    slots: BTreeSet<Slot>,
    most: usize,
}

impl Few {
    fn add(&mut self, slots: impl Iterator<Item = Slot>) -> Option<()> {
        for slot in slots {
            self.slots.insert(slot);
            if self.slots.len() > self.most {
                return None;
            }
        }
        Some(())
    }
}

/// Whether a text contains another one, which is in small letters, in letters of either size.
pub fn contains(whole: &str, part: &str) -> bool {
    if !whole.is_ascii() {
        return whole.to_lowercase().contains(part);
    }
    let (Some(first), part) = (part.bytes().next(), part.as_bytes()) else { return true };
    let mut starts = whole.bytes().enumerate().filter(|(_, byte)| byte.to_ascii_lowercase() == first);
    starts.any(|(start, _)| {
        let here = whole.as_bytes().get(start..start.saturating_add(part.len()));
        here.is_some_and(|here| here.eq_ignore_ascii_case(part))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::given::{AGENT, Given, config, seen};

    #[test]
    fn labels_that_change_all_the_time_take_no_more_room_and_lose_no_name() {
        let mut given = Given::agents();
        for round in 0..6_000 {
            let label = format!("{round}-{}", "x".repeat(50));
            let body = config("shop/settings", json!({"metadata": {"labels": {"example.com/round": label}}}));
            given.says(vec![seen(&body)]);
        }
        let index = &given.fold.index;
        let searched = &index.searched[&AGENT];
        let most = 2 * LEFT + 1_000;
        assert!(searched.labels.all.len() < most, "{} bytes", searched.labels.all.len());
        assert_eq!(index.with_text(AGENT, "5999-", 10).unwrap().len(), 1);
        assert_eq!(index.with_text(AGENT, "settings", 10).unwrap().len(), 1);
    }

    #[test]
    fn a_text_leads_once_to_each_and_what_has_left_is_collected() {
        let mut texts = Texts::default();
        texts.add(["Web-web"], 1);
        texts.add(["key", "ÄWEB"], 2);
        texts.add(["other"], 3);
        let find =
            |texts: &Texts<i32>, text: &str| texts.find(&Finder::new(text)).copied().collect::<Vec<_>>();
        assert_eq!(find(&texts, "web"), [1, 2]);
        assert_eq!(find(&texts, "äw"), [2]);
        assert_eq!(find(&texts, "keyä"), [0; 0], "they are two texts");
        assert!(!texts.is_worn());
        texts.leave(LEFT + 1);
        assert!(texts.is_worn());
        assert!(contains("Web", "eb") && contains("ÄB", "äb") && !contains("we", "web"));
    }
}
