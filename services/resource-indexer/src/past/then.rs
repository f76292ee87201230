//! Objects as they were, found in one pass over what is kept of them, and made into an index. Each body is parsed once.

use std::sync::Arc;

use bytes::Bytes;
use events::position::Stream;
use events::requests::index::Moment;
use events::{AgentId, Timestamp};
use serde_json::Value;

use super::parsed;
use crate::model::{
    Declared, Declaring, Index, Link, Optional, Record, Slot, Verdict, What, Writer, before_imported,
    options_of, own_verdict, was_always,
};
use crate::store::{Partitions, Reader, StoreError, StoredChange, Told};

/// Bytes of bodies that are held between finding and judging; further ones are read a second time.
const HELD: usize = 64 << 20;

/// Up to where changes count.
pub(super) struct Until {
    pub(super) moment: Moment,
    pub(super) partitions: Partitions,
}

impl Until {
    fn covers(&self, agent: AgentId, Told { recorded_at, sequence }: Told) -> bool {
        match &self.moment {
            Moment::Time(time) => recorded_at <= *time,
            Moment::Position(position) => {
                sequence <= position.sequence((Stream::Objects, self.partitions.of(agent)))
            }
        }
    }
}

/// An object as it was.
pub(super) struct Then {
    /// As it is now.
    record: Arc<Record>,
    /// What made it what it was; absent where it has not changed since.
    change: Option<StoredChange>,
    /// Its body then, where it is held.
    body: Held,
}

enum Held {
    Body(Option<Bytes>),
    NotHeld,
}

impl Then {
    /// When it had changed last.
    pub(super) fn changed_at(&self) -> Timestamp {
        self.change.as_ref().map_or(self.record.changed_at, |change| change.recorded_at)
    }
}

/// Those of the objects that were there, in their order.
pub(super) fn found_then(
    reader: &Reader,
    records: &[&Arc<Record>],
    until: &Until,
) -> Result<Vec<Then>, StoreError> {
    let (mut then, mut changed) = (Vec::with_capacity(records.len()), Vec::new());
    for (place, record) in records.iter().enumerate() {
        let (agent, recorded_at, sequence) = (record.agent, record.changed_at, record.sequence);
        if !until.covers(agent, Told { recorded_at, sequence }) {
            changed.push((Reader::place_in_pass(agent, &record.uid), place, *record));
        } else if record.is_there() {
            then.push((place, Then { record: Arc::clone(record), change: None, body: Held::NotHeld }));
        }
    }
    changed.sort_unstable_by(|(left, ..), (right, ..)| left.cmp(right));
    let (mut pass, mut left) = (reader.pass()?, HELD);
    for (object, place, record) in changed {
        let counts = |told| until.covers(record.agent, told);
        let found = pass.newest(&object, record.changes().saturating_sub(1), counts)?;
        let was_there = |what: What| !what.is_end();
        let Some(found) = found.filter(|found| was_there(found.change.what)) else { continue };
        let body = found.body()?;
        let body = match left.checked_sub(body.as_ref().map_or(0, Bytes::len)) {
            Some(rest) => {
                left = rest;
                Held::Body(body)
            }
            None => Held::NotHeld,
        };
        then.push((place, Then { record: Arc::clone(record), change: Some(found.change), body }));
    }
    then.sort_unstable_by_key(|(place, _)| *place);
    Ok(then.into_iter().map(|(_, then)| then).collect())
}

/// Puts the objects into the index of that moment, judged by themselves but for what imported rules say.
pub(super) fn put_then(
    reader: &Reader,
    index: &mut Index,
    (then, declaring): (Vec<Then>, &Declaring),
    at: Timestamp,
) -> Result<(), StoreError> {
    let judging = Judging { reader, index, declaring, at };
    let (mut records, mut claims) = (Vec::with_capacity(then.len()), Vec::new());
    for then in then {
        let (record, is_judged) = judging.of(then)?;
        if !is_judged {
            claims.push(records.len());
        }
        records.push(record);
    }
    let slots = index.put_all(records);
    // The classes of storage that claims are judged with are in it by now.
    for slot in claims.into_iter().filter_map(|place| slots.get(place).copied()) {
        judge_claim(reader, index, slot, at)?;
    }
    Ok(())
}

struct Judging<'a> {
    reader: &'a Reader,
    /// Has what was declared at the moment, and no objects yet.
    index: &'a Index,
    declaring: &'a Declaring,
    at: Timestamp,
}

impl Judging<'_> {
    /// An object as it was, and whether it is judged: claims come when all classes of storage are known.
    fn of(&self, then: Then) -> Result<(Arc<Record>, bool), StoreError> {
        let Then { mut record, change, body } = then;
        let is_as_now = change.is_none() && self.is_declared_alike(&record);
        if is_as_now && was_always(&record) {
            if record.with_pods().is_some() {
                Arc::make_mut(&mut record).set_with_pods(None);
            }
            return Ok((record, true));
        }
        let number = change.as_ref().map_or(record.changes(), |change| change.number);
        let body = match body {
            Held::Body(body) => body,
            Held::NotHeld => self.reader.body_after(record.agent, &record.uid, number)?,
        };
        let body = parsed(body);
        let then = Arc::make_mut(&mut record);
        then.set_with_pods(None);
        if let Some(change) = &change {
            turn_back(then, change, body.as_ref());
        }
        if !is_as_now {
            let links = self.links(then, body.as_ref());
            then.set_declared(links);
        }
        let is_claim = then.kind.is("", "PersistentVolumeClaim");
        if !is_claim {
            then.own = Arc::new(verdict_then(self.index, then, body.as_ref(), self.at));
        }
        Ok((record, !is_claim))
    }

    /// Whether the same was declared of objects of its kind as is today.
    fn is_declared_alike(&self, record: &Record) -> bool {
        let (today, then) = (self.declaring.today.get(&record.agent), self.index.declared(record.agent));
        let is_same = match (today, then) {
            (Some(today), Some(then)) => Arc::ptr_eq(today, then),
            (today, then) => today.is_none() && then.is_none(),
        };
        let mut all = [today, then].into_iter().flatten();
        let concerns = |declared: &Arc<Declared>| {
            declared.judges(&record.kind) || declared.relations.begins_at(&record.kind)
        };
        is_same || (record.declared().is_empty() && !all.any(concerns))
    }

    /// The links that an object had by the relations that were declared.
    fn links(&self, record: &Record, body: Option<&Value>) -> Vec<Link> {
        let declared = self.index.declared(record.agent);
        let begins = declared.is_some_and(|declared| declared.relations.begins_at(&record.kind));
        let body = body.filter(|_| begins);
        body.map(|body| self.index.declared_links(record.agent, &record.kind, body)).unwrap_or_default()
    }
}

/// Makes an object what it was after a change.
fn turn_back(record: &mut Record, change: &StoredChange, body: Option<&Value>) {
    match body {
        Some(body) => record.read(body),
        None => record.forget_body(),
    }
    // That is known of now only.
    (record.digest, record.awaits_body) = (None, false);
    record.note_set_by(None);
    record.hand = Optional::NONE;
    (record.changed_at, record.sequence) = (change.recorded_at, change.sequence);
    record.set_gone_at(None);
    record.set_changes(change.number);
    record.writer = change.writer.as_ref().map(Writer::of);
}

fn verdict_then(index: &Index, record: &Record, body: Option<&Value>, at: Timestamp) -> Verdict {
    let own = match body {
        Some(body) => own_verdict(body, at, &options_of(index, record.agent, &record.kind)),
        None => Verdict::unknown("its body is not known"),
    };
    before_imported(index, (record.agent, &record.kind), own, &Verdict::none())
}

fn judge_claim(reader: &Reader, index: &mut Index, slot: Slot, at: Timestamp) -> Result<(), StoreError> {
    let Some(record) = index.get(slot) else { return Ok(()) };
    let body = parsed(super::body_of(reader, record)?);
    let own = verdict_then(index, record, body.as_ref(), at);
    index.judge(slot, own);
    Ok(())
}
