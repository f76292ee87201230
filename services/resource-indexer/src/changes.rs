//! `ListChanges`: what happened to objects, the newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::sync::Arc;

use bus::PageBuilder;
use events::request::RequestContext;
use events::requests::index::{HealthState, ListChanges, ObjectChange};
use events::requests::page::{Page, PageCursor, Paged as _};
use events::{AgentId, ObjectIdentity, Refusal, RefusalKind, Timestamp};
use objects::diff::diff;
use objects::digest::Status;
use objects::health::HealthOptions;
use serde_json::Value;

use crate::driver::Driver;
use crate::handlers::Asked;
use crate::imported::ForOneQuestion;
use crate::model::{
    Declaring, Instant, Kind, Matcher, Record, Rights, Text, View, What, own_verdict, plain_uid,
};
use crate::store::{Entry, Reader, StoreError, StoredChange};

/// Objects whose histories are read one by one; changes of more are found by going through all changes.
const FEW: usize = 100;
/// Changes whose objects are looked up in one go.
const AT_ONCE: usize = 1_000;
/// Changes that one page looks at.
const LOOKED_AT: usize = 50_000;
/// Paths of fields that are answered for one change.
const FIELDS: usize = 20;

/// The order of the list: the newest first, then by cluster and object.
type Place = (Reverse<Timestamp>, AgentId, String, Reverse<u64>);

fn place_of(entry: &Entry) -> Place {
    (Reverse(entry.recorded_at), entry.agent, entry.uid.to_string(), Reverse(entry.number))
}

impl Driver {
    pub(crate) async fn list_changes(
        self: Arc<Self>,
        context: RequestContext,
        request: ListChanges,
    ) -> Result<Page<ObjectChange>, Refusal> {
        let (filter, at_least) = (request.filter.clone(), request.at_least.clone());
        let rights = self.ready(&context, &Asked { filter, at_least, ..Asked::default() }).await?;
        self.beside(move |driver| driver.page_of(&request, &rights)).await
    }

    /// Reads a page; folding waits only while objects are looked up.
    fn page_of(&self, request: &ListChanges, rights: &Rights) -> Result<Page<ObjectChange>, Refusal> {
        let behind =
            request.after()?.map(|(at, agent, uid, number)| (Reverse(at), agent, uid, Reverse(number)));
        let (matcher, few, (reader, declaring)) = self.look(rights, |view, state| {
            let matcher = Matcher::read(&request.filter, view)?;
            let few: Vec<Object> = matcher
                .walk_all(view)
                .take(FEW.saturating_add(1))
                .map(|record| Object::of(view, record))
                .collect();
            Ok((matcher, few, (Arc::clone(&state.reader), state.fold.index.declaring().clone())))
        })?;
        let listing = Listing {
            driver: self,
            imported: self.imported.for_one_question(),
            declaring,
            todays_rules: request.todays_rules,
            now: self.now(),
            rights,
            matcher,
            reader,
            since: request.since,
            behind,
        };
        let most = request.limit().items().saturating_add(1);
        let found = if few.len() <= FEW { listing.of_objects(few, most) } else { listing.of_all(most) };
        let Found { entries, looked_up_to } = found?;
        let mut page = PageBuilder::of(request);
        let mut is_full = false;
        for (entry, object) in entries {
            let change = listing.change(&entry, object).map_err(|error| self.broken(&error))?;
            let Some(change) = change else { continue };
            let key = (entry.recorded_at, entry.agent, entry.uid.to_string(), entry.number);
            if !page.push(key, change)? {
                is_full = true;
                break;
            }
        }
        let mut page = page.finish()?;
        if let (false, Some(last)) = (is_full, looked_up_to) {
            // There may be more behind what was looked at, with nothing that matches so far.
            let key = (last.recorded_at, last.agent, last.uid.to_string(), last.number);
            let next = PageCursor::behind::<ListChanges>(&key);
            page.next = Some(next.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?);
        }
        Ok(page)
    }
}

/// What a change says of its object.
#[derive(Clone)]
struct Object {
    agent: AgentId,
    agent_name: String,
    uid: Text,
    identity: ObjectIdentity,
    changes: u64,
    kind: Kind,
    is_owned: bool,
}

impl Object {
    fn of(view: &View<'_>, record: &Record) -> Self {
        Self {
            agent: record.agent,
            agent_name: view.directory.name_of(record.agent),
            uid: record.uid.clone(),
            identity: record.identity(),
            changes: record.changes(),
            kind: record.kind.clone(),
            is_owned: record.facts.is_owned(),
        }
    }
}

/// Changes in the order of the list.
struct Found {
    entries: Vec<(Entry, Object)>,
    /// Up to where was looked, where that was not the end.
    looked_up_to: Option<Entry>,
}

struct Listing<'a> {
    driver: &'a Driver,
    imported: ForOneQuestion<'a>,
    declaring: Declaring,
    todays_rules: bool,
    now: Timestamp,
    rights: &'a Rights,
    matcher: Matcher,
    reader: Arc<Reader>,
    since: Option<Timestamp>,
    behind: Option<Place>,
}

impl Listing<'_> {
    fn is_wanted(&self, entry: &Entry) -> bool {
        self.since.is_none_or(|since| entry.recorded_at >= since)
            && self.behind.as_ref().is_none_or(|behind| place_of(entry) > *behind)
    }

    fn of_objects(&self, objects: Vec<Object>, most: usize) -> Result<Found, Refusal> {
        let mut entries = Vec::new();
        for object in objects {
            let found = self.of_object(&object, most).map_err(|error| self.driver.broken(&error))?;
            entries.extend(found.into_iter().map(|entry| (entry, object.clone())));
        }
        entries.sort_by_key(|(entry, _)| place_of(entry));
        entries.truncate(most);
        Ok(Found { entries, looked_up_to: None })
    }

    fn of_object(&self, object: &Object, most: usize) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for change in self.reader.changes_back(object.agent, &object.uid, object.changes)? {
            let change = change?;
            let entry = entry_of(object, &change);
            // What stands before the log's horizon is kept as a base only.
            if change.is_listed && self.is_wanted(&entry) {
                entries.push(entry);
            }
            if entries.len() >= most {
                break;
            }
        }
        Ok(entries)
    }

    /// Goes through the changes of all clusters that are meant, the newest first.
    fn of_all(&self, most: usize) -> Result<Found, Refusal> {
        let broken = |error: StoreError| self.driver.broken(&error);
        let until = self.behind.as_ref().map(|(Reverse(at), ..)| *at);
        let mut lanes = Lanes::default();
        for agent in self.matcher.agents() {
            lanes.add(self.reader.timeline_back(*agent, until).map_err(broken)?).map_err(broken)?;
        }
        let (mut entries, mut looked_at) = (Vec::new(), 0_usize);
        loop {
            let some = lanes.next_some(self.since).map_err(broken)?;
            looked_at = looked_at.saturating_add(some.len());
            let last = some.last().cloned();
            entries.extend(self.meant(some)?);
            if entries.len() >= most {
                entries.truncate(most);
                return Ok(Found { entries, looked_up_to: None });
            }
            if last.is_none() || looked_at >= LOOKED_AT {
                return Ok(Found { entries, looked_up_to: last });
            }
        }
    }

    /// Those of the changes whose objects are meant and may be seen.
    fn meant(&self, some: Vec<Entry>) -> Result<Vec<(Entry, Object)>, Refusal> {
        self.driver.look(self.rights, |view, _| {
            let found = some.into_iter().filter_map(|entry| {
                let record = view.index.get(view.index.by_uid(entry.agent, &entry.uid)?)?;
                let is_meant = self.matcher.agents().contains(&entry.agent)
                    && self.is_wanted(&entry)
                    && view.sees(record)
                    && self.matcher.means(view, record);
                is_meant.then(|| (entry, Object::of(view, record)))
            });
            Ok(found.collect())
        })
    }

    /// A change with what it changed.
    fn change(&self, entry: &Entry, object: Object) -> Result<Option<ObjectChange>, StoreError> {
        let Entry { agent, uid, number, .. } = entry;
        let change = self.reader.change(*agent, uid, *number)?;
        let Some(change) = change.filter(|change| change.is_listed) else { return Ok(None) };
        let before = self.reader.change(*agent, uid, number.saturating_sub(1))?;
        let known = before.as_ref().map(|before| before.seen_at.min(before.recorded_at));
        let not_before = change.not_before.max(known).filter(|_| change.what == What::Vanished);
        let (fields, field_count) = match (change.what, &before) {
            (What::Changed, Some(_)) => self.fields(entry)?,
            _ => (Vec::new(), 0),
        };
        let health = self.health(&object, entry, *number, &change)?;
        let before = before.map(|before| self.health(&object, entry, number.saturating_sub(1), &before));
        let health_before = before.transpose()?.filter(|before| *before != health);
        Ok(Some(ObjectChange {
            agent: *agent,
            agent_name: object.agent_name,
            identity: object.identity,
            uid: plain_uid(uid).to_owned(),
            number: *number,
            sequence: change.sequence,
            recorded_at: change.recorded_at,
            seen_at: change.seen_at,
            not_before,
            what: change.what.as_str().to_owned(),
            writer: change.writer,
            fields,
            field_count,
            health,
            health_before,
            owned: object.is_owned,
        }))
    }

    /// How an object was after a change: by what was declared for its kind then, or is today.
    fn health(
        &self,
        object: &Object,
        entry: &Entry,
        number: u64,
        change: &StoredChange,
    ) -> Result<HealthState, StoreError> {
        let time = if self.todays_rules { self.now } else { change.recorded_at };
        let declared = self.declaring.of(object.agent, Instant { time, position: None });
        let Some(declared) = declared.filter(|declared| declared.judges(&object.kind)) else {
            return Ok(change.health);
        };
        let body = self.reader.body_after(entry.agent, &entry.uid, number)?;
        let Some(body) = body.and_then(|body| serde_json::from_slice(&body).ok()) else {
            return Ok(change.health);
        };
        let options = HealthOptions { rules: Arc::clone(&declared.rules), ..HealthOptions::default() };
        let own = own_verdict(&body, change.recorded_at, &options);
        let script = declared.imported.script_for(&object.kind).filter(|_| own.leaves_to_imported());
        let own = script.map_or(own, |script| self.imported.judge(script, &body, change.recorded_at));
        Ok(own.state)
    }

    fn fields(&self, entry: &Entry) -> Result<(Vec<String>, u32), StoreError> {
        let body = |number: u64| -> Result<Option<Value>, StoreError> {
            let body = self.reader.body_after(entry.agent, &entry.uid, number)?;
            Ok(body.and_then(|body| serde_json::from_slice(&body).ok()))
        };
        let (before, after) = (body(entry.number.saturating_sub(1))?, body(entry.number)?);
        let (Some(before), Some(after)) = (before, after) else { return Ok((Vec::new(), 0)) };
        let changes = diff(&before, &after, Status::Covered);
        let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        Ok((changes.iter().take(FIELDS).map(|change| change.path.to_string()).collect(), count))
    }
}

fn entry_of(object: &Object, change: &StoredChange) -> Entry {
    Entry {
        recorded_at: change.recorded_at,
        sequence: change.sequence,
        agent: object.agent,
        uid: object.uid.clone(),
        number: change.number,
    }
}

/// The changes of some clusters, each in its order.
struct Lanes<I: Iterator<Item = Result<Entry, StoreError>>> {
    lanes: Vec<Peekable<I>>,
    /// When the next change of each was recorded, the newest first.
    next: BinaryHeap<(Timestamp, usize)>,
}

impl<I: Iterator<Item = Result<Entry, StoreError>>> Default for Lanes<I> {
    fn default() -> Self {
        Self { lanes: Vec::new(), next: BinaryHeap::new() }
    }
}

impl<I: Iterator<Item = Result<Entry, StoreError>>> Lanes<I> {
    fn add(&mut self, lane: I) -> Result<(), StoreError> {
        self.lanes.push(lane.peekable());
        self.note(self.lanes.len().saturating_sub(1))
    }

    fn note(&mut self, lane: usize) -> Result<(), StoreError> {
        match self.lanes.get_mut(lane).and_then(Peekable::peek) {
            Some(Ok(entry)) => self.next.push((entry.recorded_at, lane)),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        Ok(())
    }

    /// The next changes of all, the newest first; none at the end, or before that time. Those of one moment stay together.
    fn next_some(&mut self, since: Option<Timestamp>) -> Result<Vec<Entry>, StoreError> {
        let mut some = Vec::new();
        while some.len() < AT_ONCE
            && let Some((moment, _)) = self.next.peek().copied()
            && since.is_none_or(|since| moment >= since)
        {
            let mut of_moment = Vec::new();
            while let Some((at, number)) = self.next.peek().copied()
                && at == moment
            {
                self.next.pop();
                let Some(lane) = self.lanes.get_mut(number) else { continue };
                while let Some(entry) = lane.next_if(|entry| is_of(entry, moment)) {
                    of_moment.push(entry?);
                }
                self.note(number)?;
            }
            of_moment.sort_by_key(place_of);
            some.extend(of_moment);
        }
        Ok(some)
    }
}

fn is_of(entry: &Result<Entry, StoreError>, moment: Timestamp) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.recorded_at == moment)
}
