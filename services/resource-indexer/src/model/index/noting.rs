//! Putting objects in and out: what finds them is kept with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::AgentId;
use events::requests::index::HealthState;

use super::pointers::Kept;
use super::slots::change;
use super::uids::Uids;
use super::{Index, OfKind, Place, Slot, record_in, uid_in};
use crate::model::deployed::SetBy;
use crate::model::facts::Special;
use crate::model::groups::Memberships;
use crate::model::record::{Kind, Record, Verdict};
use crate::model::relations::Target;

const fn is_unwell(state: HealthState) -> bool {
    !matches!(state, HealthState::None | HealthState::Healthy)
}

/// Whether an object is found as before, except by its verdict: most changes touch the status alone.
fn is_found_alike(before: &Record, after: &Record) -> bool {
    before.is_there() == after.is_there()
        && (&before.kind, &before.namespace, &before.name) == (&after.kind, &after.namespace, &after.name)
        && before.facts.labels == after.facts.labels
        && before.facts.links == after.facts.links
        && before.special() == after.special()
        && before.source == after.source
        && before.declared() == after.declared()
}

impl Index {
    /// Puts an object in, in the place of what was known of it.
    pub fn put(&mut self, mut record: Record) -> Slot {
        self.share_uids(&mut record);
        record.share(&mut self.shared);
        let known = self.by_uid(record.agent, &record.uid).and_then(|slot| Some((slot, self.shared(slot)?)));
        let Some((slot, before)) = known else {
            record.groups = Memberships::default();
            let slot = self.add(Arc::new(record));
            self.settle_one(slot, false);
            return slot;
        };
        record.groups = before.groups.clone();
        if is_found_alike(&before, &record) {
            self.note_verdict(slot, false);
            self.set(slot, Some(Arc::new(record)));
            self.note_verdict(slot, true);
            return slot;
        }
        let is_renamed = (&before.name, &before.namespace) != (&record.name, &record.namespace);
        self.note(slot, false);
        if is_renamed {
            self.note_text(slot, false);
        }
        self.set(slot, Some(Arc::new(record)));
        self.note(slot, true);
        if is_renamed {
            self.note_text(slot, true);
        }
        self.settle_one(slot, before.is_there());
        slot
    }

    /// UIDs stand in the objects that have them and in those that name them.
    fn share_uids(&self, record: &mut Record) {
        let agent = record.agent;
        let named = |uid: &str| self.pointers.named_uid(agent, uid).cloned();
        if let Some(uid) = named(&record.uid) {
            record.uid = uid;
        }
        for link in record.facts.links.unshared() {
            let Target::Uid(uid, key) = &mut link.target else { continue };
            let found = self.by_uid(agent, uid).and_then(|slot| self.get(slot));
            if let Some(found) = found.filter(|found| found.name == key.name) {
                key.name = found.name.clone();
            }
            let found = found.filter(|found| found.uid == *uid).map(|found| found.uid.clone());
            if let Some(known) = found.or_else(|| named(uid)) {
                *uid = known;
            }
        }
    }

    /// Puts objects of another index in, all at once.
    pub fn put_all(&mut self, records: impl IntoIterator<Item = Arc<Record>>) -> Vec<Slot> {
        let slots: Vec<Slot> = records.into_iter().map(|record| self.add(record)).collect();
        self.settle(slots.iter().copied().collect());
        slots
    }

    /// Adds one that is not known yet.
    pub(super) fn add(&mut self, record: Arc<Record>) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(u32::try_from(self.slots.len().saturating_sub(1)).unwrap_or(u32::MAX))
        });
        self.set(slot, Some(record));
        self.note(slot, true);
        self.note_text(slot, true);
        slot
    }

    /// Takes an object out, with all that is known of it.
    pub fn remove(&mut self, slot: Slot) {
        let Some(record) = self.get(slot) else { return };
        let agent = record.agent;
        let caused = self.caused(record).into_iter().filter(|caused| *caused != slot).collect();
        self.note_text(slot, false);
        self.note(slot, false);
        self.set(slot, None);
        self.free.push(slot);
        if places_are_empty(&self.places, agent) {
            self.forget_agent(agent);
        } else {
            self.collect_texts(agent);
        }
        self.settle(caused);
    }

    /// Notes in which epoch and with which sequence an object was stated.
    pub fn state(&mut self, slot: Slot, stated: (u64, u64)) {
        if let Some(record) = self.get_mut(slot) {
            record.stated = stated;
        }
    }

    /// Notes which sync set an object last; says whether that is another one than was known.
    pub fn set_by(&mut self, slot: Slot, set: SetBy) -> bool {
        let Some(record) = self.get_mut(slot) else { return false };
        let before = record.set_by();
        let later = SetBy::later(before, Some(set));
        record.note_set_by(later);
        later != before
    }

    /// Sets the verdict on an object by itself.
    pub fn judge(&mut self, slot: Slot, own: Verdict) {
        let own = self.kept_verdict(own);
        self.change_verdict(slot, |record| record.own = own);
    }

    /// Sets the verdict that its pods give a workload; `None` where it is its own.
    pub fn judge_with_pods(&mut self, slot: Slot, verdict: Option<Verdict>) {
        let verdict = verdict.map(|verdict| self.kept_verdict(verdict));
        self.change_verdict(slot, |record| record.set_with_pods(verdict));
    }

    /// Lets go of texts that nothing uses.
    pub fn sweep(&mut self) {
        self.grouped.sweep();
        self.shared.sweep();
    }

    fn kept_verdict(&mut self, verdict: Verdict) -> Arc<Verdict> {
        let mut verdict = Arc::new(verdict);
        self.shared.share_verdict(&mut verdict);
        verdict
    }

    fn change_verdict(&mut self, slot: Slot, change: impl FnOnce(&mut Record)) {
        self.note_verdict(slot, false);
        if let Some(record) = self.get_mut(slot) {
            change(record);
        }
        self.note_verdict(slot, true);
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Record> {
        self.slots.get_mut(usize::try_from(slot.0).ok()?)?.as_mut().map(Arc::make_mut)
    }

    fn set(&mut self, slot: Slot, record: Option<Arc<Record>>) {
        if let Some(place) = usize::try_from(slot.0).ok().and_then(|at| self.slots.get_mut(at)) {
            *place = record;
        }
    }

    fn note_verdict(&mut self, slot: Slot, adds: bool) {
        self.note_top(slot, adds);
        let Some(record) = self.get(slot).filter(|record| record.is_there()) else { return };
        let (agent, state, asks) = (record.agent, record.verdict().state, record.own.asks);
        let deadlines = [record.own.recheck_at.time(), record.verdict().recheck_at.time()];
        if is_unwell(state) {
            change(self.unwell.entry(agent).or_default(), state, slot, adds);
        } else if self.late.is_none() && !record.verdict().message.is_empty() {
            self.searched.entry(agent).or_default().note_telling(slot, adds);
        }
        if asks {
            change(&mut self.asking, agent, slot, adds);
        }
        for at in deadlines.into_iter().flatten() {
            if adds {
                self.deadlines.insert((at, slot));
            } else {
                self.deadlines.remove(&(at, slot));
            }
        }
    }

    /// Adds an object to everything that finds it, or takes it out.
    pub(super) fn note(&mut self, slot: Slot, adds: bool) {
        self.note_verdict(slot, adds);
        self.note_groups(slot, adds);
        let Some(record) = self.shared(slot) else { return };
        let agent = record.agent;
        self.note_place(slot, &record, adds);
        if record.is_there() {
            let there = self.there.entry(agent).or_default();
            *there = if adds { there.saturating_add(1) } else { there.saturating_sub(1) };
        }
        match record.special() {
            Some(Special::Defines(kind, _)) => {
                change(self.defining.entry(agent).or_default(), kind.clone(), slot, adds);
            }
            Some(Special::RefusedPodOf(uid)) => {
                change(self.refusing.entry(agent).or_default(), uid.clone(), slot, adds);
            }
            _ => {}
        }
        if let Some(source) = record.source {
            change(self.by_source.entry(agent).or_default(), source, slot, adds);
        }
        let kept = if self.late.is_some() { Kept::Causes } else { Kept::All };
        let searched = self.late.is_none().then(|| self.searched.entry(agent).or_default());
        match &mut self.unnoted {
            Some(lists) => lists.add(slot, &record),
            None => self.pointers.note((slot, &record), kept, searched, adds),
        }
        if let Some(late) = &mut self.late {
            late.take();
        }
        // Between its going and its coming an object that changes has no name to be collected.
        if adds {
            self.collect_texts(agent);
        }
    }

    fn note_place(&mut self, slot: Slot, record: &Record, adds: bool) {
        let Self { slots, by_uid, places, .. } = self;
        let slots: &[_] = slots;
        let (by_uid, places) =
            (by_uid.entry(record.agent).or_default(), places.entry(record.agent).or_default());
        let place = Place::of(record);
        let is_before = |other| record_in(slots, other).is_some_and(|other| place.is_behind(other));
        if adds {
            by_uid.insert(&record.uid, slot, uid_in(slots));
            places.entry(record.kind.clone()).or_default().insert(slot, &place, is_before);
            return;
        }
        by_uid.remove(&record.uid, slot);
        if let Some(of_kind) = places.get_mut(&record.kind) {
            of_kind.remove(slot, &place, is_before);
            if of_kind.is_empty() {
                places.remove(&record.kind);
            }
        }
    }

    /// Notes the texts of an object that came or goes.
    fn note_text(&mut self, slot: Slot, adds: bool) {
        let Some(record) = self.shared(slot).filter(|_| self.late.is_none()) else { return };
        self.searched.entry(record.agent).or_default().note(slot, &record, adds);
    }

    /// Takes all objects of a cluster out.
    pub fn remove_agent(&mut self, agent: AgentId) {
        let slots: BTreeSet<Slot> =
            self.by_uid.remove(&agent).into_iter().flat_map(Uids::into_slots).collect();
        self.deadlines.retain(|(_, slot)| !slots.contains(slot));
        for slot in slots {
            self.set(slot, None);
            self.free.push(slot);
        }
        self.forget_agent(agent);
    }

    fn forget_agent(&mut self, agent: AgentId) {
        self.by_uid.remove(&agent);
        self.places.remove(&agent);
        self.pointers.forget_agent(agent);
        if let Some(late) = &mut self.late {
            late.take();
        }
        self.unwell.remove(&agent);
        self.there.remove(&agent);
        self.defining.remove(&agent);
        self.asking.remove(&agent);
        self.refusing.remove(&agent);
        self.by_source.remove(&agent);
        self.searched.remove(&agent);
        self.grouped.forget_agent(agent);
    }
}

fn places_are_empty(places: &BTreeMap<AgentId, BTreeMap<Kind, OfKind>>, agent: AgentId) -> bool {
    places.get(&agent).is_none_or(BTreeMap::is_empty)
}
