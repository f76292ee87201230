//! The fold: what agents saw, into objects and their changes.
//!
//! Agents' batches, gateways' words and decisions come from partitions between which no order is promised: what is folded from one
//! never depends on what another had said by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use events::object::ObjectIdentity;
use events::observation::{
    Gone, Observation, ObservationBatch, Observed as Word, ObservedKind, SeenObject, Write,
};
use events::requests::index::HealthState;
use events::{AgentId, Sha256, Timestamp};
use objects::health::HealthOptions;

use super::bodies::{Bodies, Wanted};
use super::change::{Change, Folded, RecordedAt, What};
use super::deployed::{SetBy, hand_of};
use super::facts::Special;
use super::index::{Index, OfKind, Slot};
use super::judge::{before_imported, options_of, own_verdict};
use super::observed::{Blind, Gap, KindState, Observed};
use super::owners::managers_of;
use super::record::{Kind, Record, Verdict, uid_of_kind};
use super::relations::Key;
use super::text::Text;
use super::writers::{Writer, Written};

/// Objects of one agent that are kept, those that are gone included.
pub const OBJECTS: usize = 500_000;
/// Objects of all agents of which an applier spoke before they were seen.
const APPLIED: usize = 10_000;

/// Everything that is folded from the objects' stream.
#[derive(Debug)]
pub struct Fold {
    /// The objects.
    pub index: Index,
    /// The agents that told of them.
    pub observed: BTreeMap<AgentId, Observed>,
    /// Objects of one agent that are kept.
    limit: usize,
    /// What appliers said of objects that were not seen yet: the two streams are in no order. It is lost when the process ends.
    applied: BTreeMap<(AgentId, Text), SetBy>,
}

impl Default for Fold {
    fn default() -> Self {
        Self::with_limit(OBJECTS)
    }
}

impl Fold {
    /// One that keeps so many objects of each agent, those that are gone included.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { index: Index::default(), observed: BTreeMap::new(), limit, applied: BTreeMap::new() }
    }

    /// The bodies that have to be fetched before a batch is folded: those of what it says, and of what waited for it. What says nothing
    /// new needs none.
    #[must_use]
    pub fn wanted(&self, agent: AgentId, batch: &ObservationBatch) -> Wanted {
        let observed = self.observed.get(&agent);
        if observed.is_some_and(|observed| observed.keeps_waiting(batch.epoch, batch.first)) {
            return Wanted::default();
        }
        let early = observed.into_iter().flat_map(|observed| observed.early.values());
        let mut wanted = Wanted::default();
        for observation in batch.observations.iter().chain(early.flatten()) {
            let Word::ObjectSeen { object } = &observation.what else { continue };
            let uid = self.uid_of(agent, &object.identity, &object.uid);
            let known = self.index.by_uid(agent, &uid).and_then(|slot| self.index.get(slot));
            let is_news = known.is_none_or(|known| {
                !known.is_there() || known.awaits_body || known.digest != Some(object.digest)
            });
            if is_news {
                wanted.add(&object.body);
            }
        }
        wanted
    }

    /// Folds a batch of an agent, with the large bodies that were fetched for it. Doubles and batches of an earlier epoch change nothing.
    pub fn apply(
        &mut self,
        at: RecordedAt,
        agent: AgentId,
        batch: ObservationBatch,
        bodies: &mut Bodies,
    ) -> Folded {
        let mut folded = Folded::default();
        let observed = self.observed.entry(agent).or_insert_with(|| Observed::new(batch.organization));
        if observed.organization != batch.organization || batch.epoch < observed.seen.0 {
            return folded;
        }
        observed.heard_at = observed.heard_at.max(at.recorded_at);
        let (epoch, first, observations) = (batch.epoch, batch.first, batch.observations);
        if epoch > observed.seen.0 {
            let before = if at.misses_beginning && observed.is_new() { first.saturating_sub(1) } else { 0 };
            observed.begin_epoch((epoch, before), at);
        }
        if first > observed.seen.1.saturating_add(1) {
            observed.keep_early(first, observations, at);
        } else {
            self.apply_run((at, agent), (first, observations), bodies, &mut folded);
        }
        while let Some((first, early)) = self.observed.get_mut(&agent).and_then(Observed::next_early) {
            // It counts as of this record: the position says that what lies before is folded.
            self.apply_run((at, agent), (first, early), bodies, &mut folded);
        }
        folded
    }

    /// Folds what an agent's applier did: which sync set an object last. Says of which objects that is another one.
    pub fn applied(&mut self, agent: AgentId, batch: &ObservationBatch) -> Vec<Text> {
        let mut changed = Vec::new();
        for (sequence, observation) in (batch.first..).zip(&batch.observations) {
            let Word::ObjectApplied { sync: Some(sync), object, write, .. } = &observation.what else {
                continue;
            };
            if *write == Write::Unchanged {
                continue;
            }
            let uid = self.uid_of(agent, &object.identity, &object.uid);
            let set = SetBy { sync: *sync, told: (batch.epoch, sequence) };
            match self.index.by_uid(agent, &uid) {
                Some(slot) if self.index.set_by(slot, set) => changed.push(uid),
                Some(_) => {}
                None => {
                    self.applied.insert((agent, uid), set);
                    if self.applied.len() > APPLIED {
                        self.applied.pop_first();
                    }
                }
            }
        }
        changed
    }

    fn apply_run(
        &mut self,
        (at, agent): (RecordedAt, AgentId),
        (first, observations): (u64, Vec<Observation>),
        bodies: &mut Bodies,
        folded: &mut Folded,
    ) {
        for (sequence, observation) in (first..).zip(observations) {
            let Some(observed) = self.observed.get_mut(&agent) else { return };
            if sequence <= observed.seen.1 {
                continue;
            }
            observed.seen.1 = sequence;
            let stated = observed.seen;
            let step = Step { at, agent, stated, seen_at: observation.at };
            self.apply_one(step, observation.what, bodies, folded);
        }
    }

    fn apply_one(&mut self, step: Step, what: Word, bodies: &mut Bodies, folded: &mut Folded) {
        match what {
            Word::ObjectSeen { object } => self.seen(step, *object, bodies, folded),
            Word::ObjectKept { identity, uid, digest } => {
                let uid = self.uid_of(step.agent, &identity, &uid);
                self.kept(step, &identity, &uid, digest, folded);
            }
            Word::ObjectGone { identity, uid, why, .. } => {
                let uid = self.uid_of(step.agent, &identity, &uid);
                if let Some(slot) = self.index.by_uid(step.agent, &uid) {
                    self.gone(step, slot, why, folded);
                }
            }
            Word::KindListed { of, since, .. } => self.listed(step, &of, since, folded),
            Word::KindBlind { of, reason, missing } => {
                if let Some(observed) = self.observed.get_mut(&step.agent) {
                    observed.blinded(&of, Blind { reason, missing, since: step.seen_at });
                }
            }
            Word::KindDropped { of, why } => {
                for slot in self.there_of(step.agent, &of) {
                    self.gone(step, slot, why, folded);
                }
                if let Some(observed) = self.observed.get_mut(&step.agent) {
                    observed.dropped(&of);
                }
            }
            Word::KindsSettled { silent } => self.settled(step, &silent, folded),
            Word::ObjectsGap { of, .. } => {
                let gap = Gap::at(step.at, step.stated, step.seen_at);
                let observed = self.observed.get_mut(&step.agent);
                if let Some(kind) = observed.and_then(|observed| observed.kind_mut(&of)) {
                    kind.gap = Some(gap);
                }
            }
            // What is not known, or belongs in another stream, counts in the sequence alone.
            _ => {}
        }
    }

    /// Whether no more objects of an agent are kept; that is reported with its coverage.
    fn is_full(&mut self, agent: AgentId) -> bool {
        let is_full = self.index.kept(agent) >= self.limit;
        if let (true, Some(observed)) = (is_full, self.observed.get_mut(&agent)) {
            observed.is_full = true;
        }
        is_full
    }

    /// Under what an object is kept: its UID, with its kind where an object of another kind has that already, as a Namespace and a
    /// Project of OpenShift.
    fn uid_of(&self, agent: AgentId, identity: &ObjectIdentity, uid: &str) -> Text {
        let kind = Kind::new(&identity.group, &identity.kind);
        let of_kind = uid_of_kind(uid, &kind);
        let of = |uid: &str| self.index.get(self.index.by_uid(agent, uid)?);
        let is_taken = of(uid).is_some_and(|record| record.kind != kind);
        if is_taken || of(&of_kind).is_some() { of_kind } else { Text::from(uid) }
    }

    fn seen(&mut self, step: Step, object: SeenObject, bodies: &mut Bodies, folded: &mut Folded) {
        let Step { agent, stated, .. } = step;
        let SeenObject { identity, uid, digest, body, writers, .. } = object;
        let uid = self.uid_of(agent, &identity, &uid);
        let slot = self.index.by_uid(agent, &uid);
        folded.stated.insert((agent, uid.clone()));
        let body = bodies.find(body);
        if slot.is_none() && self.is_full(agent) {
            return;
        }
        let before = slot.and_then(|slot| self.index.get(slot));
        if let Some(slot) = slot
            && before.is_some_and(|before| {
                let lacks_it = before.awaits_body && body.is_ok();
                before.is_there() && before.digest == Some(digest) && !lacks_it
            })
        {
            self.index.state(slot, stated);
            return;
        }
        if let Ok(body) = &body {
            bodies.take(body);
        }
        self.replace_namesake(step, &identity, &uid, folded);
        let before = slot.and_then(|slot| self.index.get(slot)).cloned();
        let what = self.what_of(agent, &identity, before.as_ref());
        let mut record = before.unwrap_or_else(|| Record::named(agent, &identity, &uid));
        if record.changes() > 0 && what == What::Changed {
            self.mark_gap(step, &mut record, folded);
        }
        let generation = record.facts.generation;
        let former = Arc::clone(&record.own);
        let judged = read_body(&mut record, body.as_ref().map_err(|why| *why), step.at, &self.index);
        let own = Verdict::clone(&record.own);
        record.own = Arc::new(before_imported(&self.index, (agent, &record.kind), own, &former));
        let what = if self.was_made_unseen(&record, what) { What::Created } else { what };
        let has_new_generation = record.facts.generation != generation;
        let writer = record.written.writer_of_change(&writers, has_new_generation);
        record.writer = writer.as_ref().map(Writer::of);
        record.written = Written::by(&writers);
        record.hand = hand_of(&writers).into();
        let applied = self.applied.remove(&(agent, uid.clone()));
        record.note_set_by(SetBy::later(record.set_by(), applied));
        record.change_alike(|alike| {
            alike.version = Text::from(identity.version.as_str());
            alike.managers = managers_of(&writers).into();
        });
        (record.digest, record.awaits_body) = (Some(digest), body.is_err());
        record.set_gone_at(None);
        record.stated = stated;
        self.changed(step, record, what, (body.ok(), judged), folded);
    }

    fn kept(
        &mut self,
        step: Step,
        identity: &ObjectIdentity,
        uid: &Text,
        digest: Sha256,
        folded: &mut Folded,
    ) {
        folded.stated.insert((step.agent, uid.clone()));
        if self.index.by_uid(step.agent, uid).is_none() && self.is_full(step.agent) {
            return;
        }
        let known = self.index.by_uid(step.agent, uid).and_then(|slot| Some((slot, self.index.get(slot)?)));
        let (slot, mut record) = match known {
            Some((slot, record)) => {
                if record.is_there() && (record.digest == Some(digest) || record.awaits_body) {
                    self.index.state(slot, step.stated);
                    return;
                }
                (Some(slot), record.clone())
            }
            None => {
                self.replace_namesake(step, identity, uid, folded);
                (None, Record::named(step.agent, identity, uid))
            }
        };
        // It is there, and what it is like is sent when it is asked for: that makes the next change.
        record.set_gone_at(None);
        (record.stated, record.awaits_body) = (step.stated, true);
        if slot.is_none() {
            record.changed_at = step.at.recorded_at;
            record.own = Arc::new(Verdict::unknown("its agent has not sent it in full yet"));
            record.built_in = HealthState::Unknown;
        }
        self.index.put(record);
        folded.records.insert((step.agent, uid.clone()));
    }

    /// Marks that states of an object may be missing since its last change, where there was a gap in its kind. An agent tells of a gap
    /// before the state that it is about, or behind it: either way the next change is marked.
    fn mark_gap(&self, step: Step, record: &mut Record, folded: &mut Folded) {
        let Some(observed) = self.observed.get(&step.agent) else { return };
        let Kind { group, kind } = &record.kind;
        let gaps = observed.kind_states(group, kind, &record.namespace).filter_map(|kind| kind.gap);
        let newest = gaps.chain(observed.gap).max_by_key(|gap| gap.stated);
        let Some(gap) = newest.filter(|gap| gap.stated > record.told) else { return };
        record.set_changes(record.changes().saturating_add(1));
        folded.changes.push(Change {
            agent: record.agent,
            uid: record.uid.clone(),
            number: record.changes(),
            sequence: gap.sequence,
            recorded_at: gap.recorded_at,
            seen_at: gap.seen_at,
            not_before: None,
            what: What::Gap,
            writer: None,
            body: None,
            health: record.built_in,
        });
    }

    /// An object of another UID has the name: the one that had it is gone, whether its end was seen or not.
    fn replace_namesake(&mut self, step: Step, identity: &ObjectIdentity, uid: &str, folded: &mut Folded) {
        let ObjectIdentity { group, kind, namespace, name, .. } = identity;
        let key = Key::new(group, kind, namespace, name);
        let Some(slot) = self.index.there(step.agent, &key) else { return };
        if self.index.get(slot).is_some_and(|record| &*record.uid != uid) {
            self.gone(step, slot, Gone::Vanished, folded);
        }
    }

    fn what_of(&self, agent: AgentId, identity: &ObjectIdentity, before: Option<&Record>) -> What {
        if before.is_some_and(|before| before.changes() > 0 && before.is_there()) {
            return What::Changed;
        }
        let ObjectIdentity { group, kind, namespace, .. } = identity;
        let observed = self.observed.get(&agent);
        let mut states = observed.into_iter().flat_map(|seen| seen.kind_states(group, kind, namespace));
        // What an earlier epoch had listed may have changed unseen before this one began.
        let epoch = observed.map(|observed| observed.seen.0);
        let was_watched =
            states.any(|kind| kind.listed_in.is_some() && kind.listed_in == epoch && kind.blind.is_none());
        if was_watched && before.is_none() { What::Created } else { What::FirstSeen }
    }

    /// Whether an object that is first seen was made after its kind had been listed, while nobody watched.
    fn was_made_unseen(&self, record: &Record, what: What) -> bool {
        let made_at =
            record.facts.created_at.time().filter(|_| what == What::FirstSeen && record.changes() == 0);
        made_at.zip(self.known_at(record)).is_some_and(|(made_at, known_at)| made_at > known_at)
    }

    /// When all objects of a kind were known last: those that were there are in the index.
    fn known_at(&self, record: &Record) -> Option<Timestamp> {
        let Kind { group, kind } = &record.kind;
        let observed = self.observed.get(&record.agent)?;
        observed.kind_states(group, kind, &record.namespace).filter_map(|state| state.known_at).max()
    }

    fn gone(&mut self, step: Step, slot: Slot, why: Gone, folded: &mut Folded) {
        let Some(record) = self.index.get(slot).filter(|record| record.is_there()) else { return };
        let mut record = record.clone();
        record.set_gone_at(Some(step.at.recorded_at));
        let what = match why {
            Gone::Deleted => What::Deleted,
            Gone::Vanished | Gone::KindGone => What::Vanished,
            Gone::NotObserved => What::Unobserved,
        };
        if record.changes() == 0 || record.kind.is_passing() {
            // Nothing but its name was ever known, or it tells of others and passes by itself: nothing is kept of it.
            self.erase(slot, &record, folded);
            return;
        }
        if what == What::Deleted {
            self.mark_gap(step, &mut record, folded);
        }
        let judged = record.built_in;
        self.changed(step, record, what, (None, judged), folded);
    }

    fn erase(&mut self, slot: Slot, record: &Record, folded: &mut Folded) {
        let known = (record.agent, record.uid.clone());
        self.index.remove(slot);
        folded.changes.retain(|change| (change.agent, &change.uid) != (known.0, &known.1));
        if let Some(Special::RefusedPodOf(uid)) = record.special() {
            folded.records.insert((record.agent, uid.clone()));
        }
        folded.records.insert(known.clone());
        folded.erased.insert(known);
    }

    fn changed(
        &mut self,
        step: Step,
        mut record: Record,
        what: What,
        (body, health): (Option<Bytes>, HealthState),
        folded: &mut Folded,
    ) {
        let RecordedAt { sequence, recorded_at, .. } = step.at;
        let not_before = self.known_at(&record).filter(|_| what == What::Vanished);
        record.set_changes(record.changes().saturating_add(1));
        (record.sequence, record.changed_at, record.told) = (sequence, recorded_at, step.stated);
        folded.changes.push(Change {
            agent: record.agent,
            uid: record.uid.clone(),
            number: record.changes(),
            sequence,
            recorded_at,
            seen_at: step.seen_at,
            not_before,
            what,
            writer: record.writer.as_ref().filter(|_| record.is_there()).map(Writer::answer),
            body,
            health,
        });
        record.set_with_pods(None);
        folded.records.insert((record.agent, record.uid.clone()));
        self.index.put(record);
    }

    /// All of a kind was stated: what was not is gone.
    fn listed(&mut self, step: Step, of: &ObservedKind, since: u64, folded: &mut Folded) {
        for slot in self.there_of(step.agent, of) {
            let is_stated = self.index.get(slot).is_some_and(|record| {
                let (epoch, sequence) = record.stated;
                epoch == step.stated.0 && sequence >= since
            });
            if !is_stated {
                self.gone(step, slot, Gone::Vanished, folded);
            }
        }
        if let Some(observed) = self.observed.get_mut(&step.agent) {
            observed.listed(of, step.at.recorded_at, step.seen_at);
        }
    }

    /// All kinds were told of: of what an earlier epoch stated of others nobody tells any more. Whether their kinds are served is not said.
    fn settled(&mut self, step: Step, silent: &[String], folded: &mut Folded) {
        let epoch = step.stated.0;
        if !self.observed.get_mut(&step.agent).is_some_and(|observed| observed.settled(silent)) {
            return;
        }
        for slot in self.untold(step.agent, epoch, silent) {
            self.gone(step, slot, Gone::NotObserved, folded);
        }
    }

    /// The objects that are there, were stated before this epoch last, and of whose kind this epoch says nothing.
    fn untold(&self, agent: AgentId, epoch: u64, silent: &[String]) -> Vec<Slot> {
        let Some(observed) = self.observed.get(&agent) else { return Vec::new() };
        let is_untold = |record: &Record| {
            let Kind { group, kind } = &record.kind;
            let told = |state: &KindState| state.told_in == Some(epoch);
            record.is_there()
                && record.stated.0 < epoch
                && !silent.iter().any(|silent| **silent == **group)
                && !observed.kind_states(group, kind, &record.namespace).any(told)
        };
        let slots = self.index.kinds(agent).into_iter().flat_map(|kinds| kinds.values());
        slots.flat_map(OfKind::slots).filter(|slot| self.index.get(*slot).is_some_and(is_untold)).collect()
    }

    /// The objects that a feed is about and that are there.
    fn there_of(&self, agent: AgentId, of: &ObservedKind) -> Vec<Slot> {
        let kind = Kind::new(&of.group, &of.kind);
        let of_kind = self.index.kinds(agent).and_then(|kinds| kinds.get(&kind));
        let is_there = |slot: &Slot| self.index.get(*slot).is_some_and(Record::is_there);
        match of_kind {
            Some(of_kind) if of.namespace.is_empty() => of_kind.slots().filter(is_there).collect(),
            Some(of_kind) => of_kind.in_namespace(&of.namespace).filter(is_there).collect(),
            None => Vec::new(),
        }
    }
}

/// One observation on its way.
#[derive(Debug, Clone, Copy)]
struct Step {
    at: RecordedAt,
    agent: AgentId,
    /// Its epoch and sequence.
    stated: (u64, u64),
    seen_at: Timestamp,
}

/// Takes from a body what is kept of it in memory; says how the object was when the body was recorded.
fn read_body(record: &mut Record, body: Result<&Bytes, &str>, at: RecordedAt, index: &Index) -> HealthState {
    let read = |body: &Bytes| serde_json::from_slice(body).map_err(|_| "its body could not be read");
    let parsed = match body.and_then(read) {
        Ok(parsed) => parsed,
        Err(why) => {
            record.forget_body();
            record.set_declared(Vec::new());
            record.own = Arc::new(Verdict::unknown(why));
            record.built_in = HealthState::Unknown;
            return HealthState::Unknown;
        }
    };
    record.read(&parsed);
    record.set_declared(index.declared_links(record.agent, &record.kind, &parsed));
    let options = options_of(index, record.agent, &record.kind);
    let then = own_verdict(&parsed, at.recorded_at, &options);
    // What is kept of the past depends on objects alone, and not on decisions.
    let is_declared = options.rules.covers(&record.kind.group, &record.kind.kind);
    let state = if is_declared {
        let built_in = HealthOptions { rules: Arc::default(), ..options.clone() };
        own_verdict(&parsed, at.recorded_at, &built_in).state
    } else {
        then.state
    };
    record.built_in = state;
    let own = if then.is_due(at.now) { own_verdict(&parsed, at.now, &options) } else { then };
    record.own = Arc::new(own);
    state
}

#[cfg(test)]
mod tests;
