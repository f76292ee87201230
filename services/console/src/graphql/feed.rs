//! Changes of objects as they come.
//!
//! The log says when an agent's changes were recorded, and nothing else is taken from it: which of them somebody may see, and what they are, the
//! index says, which is asked for the changes of just these records. So a subscription shows what a query would, rights included, and holds no
//! more than one round of changes.
//!
//! Each change has a place of its own behind which a reader goes on: the records before it, and within its record a number that its object and
//! the change make, in whose order those of a record are given. It is the same whatever the filter, and whatever else the record has.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_graphql::Result;
use events::observation::ObservationBatch;
use events::requests::index::{ListChanges, ObjectChange, ObjectFilter};
use events::requests::page::{PageLimit, Paged as _};
use events::{AgentId, Position, Refusal, RefusalKind, Stream, derived_uuid};
use serde::Deserialize;
use store::{FollowReader, Followed, ReadError, ReadFilter, Record};

use super::asker::Asker;
use super::failure;
use super::types::resource::{Change, ChangeEvent};
use super::types::scalar;
use crate::log::cursor::Cursor;

/// What comes within this time is asked for at once.
const TOGETHER: Duration = Duration::from_millis(10);
/// Records of one round.
const RECORDS: usize = 500;
/// Changes of one round. More come at once only where an agent lists everything anew.
const CHANGES: usize = 10_000;
/// How often an index that is behind or away is asked again.
const ATTEMPTS: u32 = 40;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// Bits of a place within a record that tell the changes of one object apart; the others stand for the object.
const OF_ONE_OBJECT: u32 = 24;

/// Changes of objects, one after the other.
pub(super) struct Feed {
    asker: Arc<Asker>,
    filter: ObjectFilter,
    reader: FollowReader,
    /// Everything up to here was given, and of one record a part.
    place: Cursor,
    waiting: VecDeque<(ObjectChange, Cursor)>,
}

/// What of a record is looked at.
#[derive(Deserialize)]
struct Written {
    writer: String,
}

impl Feed {
    /// Begins behind a position, or now.
    ///
    /// # Errors
    /// When it is no position of this log, or its range left the log; and what the index refuses of the filter.
    pub(super) async fn begin(
        asker: Arc<Asker>,
        filter: ObjectFilter,
        after: Option<String>,
    ) -> Result<Self> {
        let place = match after {
            Some(after) => asker.open("after", &after).await?,
            None => {
                let position = asker.start().await.map_err(|refusal| failure::error(&refusal))?.clone();
                Cursor { position, within: None }
            }
        };
        let request =
            ListChanges { filter: filter.clone(), limit: PageLimit::new(1), ..ListChanges::default() };
        asker.ask(&request).await?;
        let organization = Some(asker.context.organization);
        let read = ReadFilter { streams: vec![Stream::Objects], organization, kinds: Vec::new() };
        let reader = asker.app.log.follow(&place.position, &read).await;
        let reader = reader.map_err(|error| unreadable(&error))?;
        Ok(Self { asker, filter, reader, place, waiting: VecDeque::new() })
    }

    /// The next change; `None` when the log ends.
    ///
    /// # Errors
    /// When the log or the index cannot be read any more.
    pub(super) async fn next(&mut self) -> Result<Option<ChangeEvent>> {
        loop {
            if let Some((change, place)) = self.waiting.pop_front() {
                let position = scalar::Position(self.asker.seal_within(&place).await?);
                self.asker.reach(&position.0);
                return Ok(Some(ChangeEvent { position, change: Change::from(change) }));
            }
            let records = self.records().await?;
            if records.is_empty() {
                return Ok(None);
            }
            self.round(&records).await.map_err(|refusal| failure::error(&refusal))?;
        }
    }

    /// What the log has, at least one record; none at its end.
    async fn records(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let clock = Arc::clone(&self.asker.app.world.clock);
        let mut until = None;
        while records.len() < RECORDS {
            let late = async {
                match until {
                    Some(until) => clock.sleep(Duration::saturating_sub(until, clock.monotonic())).await,
                    None => std::future::pending().await,
                }
            };
            let followed = tokio::select! {
                biased;
                () = late => break,
                followed = self.reader.recv() => followed,
            };
            match followed {
                Some(Ok(Followed::Record(record))) => {
                    until.get_or_insert_with(|| clock.monotonic().saturating_add(TOGETHER));
                    records.push(record);
                }
                Some(Ok(Followed::CaughtUp(position) | Followed::Passed(position))) => {
                    // What was passed lies behind records that are still to be asked for.
                    if records.is_empty() {
                        self.place.position.merge(&position);
                    }
                }
                Some(Err(error)) => return Err(unreadable(&error)),
                None => break,
            }
        }
        Ok(records)
    }

    /// Asks for the changes of these records.
    async fn round(&mut self, records: &[Record]) -> Result<(), Refusal> {
        let organization = self.asker.context.organization;
        let mut end = self.place.position.clone();
        let mut wanted = Wanted::new();
        for record in records {
            end.advance(record.shard, record.sequence);
            // The filter has seen to it; said again because nothing of another organization may ever pass here.
            if record.organization == organization
                && let Some(agent) = agent_of(record)
            {
                wanted.insert((agent, record.sequence), record);
            }
        }
        if !wanted.is_empty() {
            let found = self.changes_of(&wanted, &end).await?;
            self.put_in_order(found, records);
        }
        // A part of a record that was given is behind now.
        self.place = Cursor { position: end, within: None };
        Ok(())
    }

    /// The changes of these records that match, once the index has folded all of them. It may be away for a while.
    async fn changes_of(&self, wanted: &Wanted<'_>, end: &Position) -> Result<Vec<ObjectChange>, Refusal> {
        let mut attempt = 1;
        loop {
            match self.listed(wanted, end).await {
                Err(refusal) if refusal.kind == RefusalKind::Unavailable && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
            self.asker.sleep(PAUSE).await;
        }
    }

    async fn listed(&self, wanted: &Wanted<'_>, end: &Position) -> Result<Vec<ObjectChange>, Refusal> {
        let first = ListChanges {
            filter: self.filter.clone(),
            since: wanted.values().map(|record| record.recorded_at).min(),
            at_least: Some(end.clone()),
            limit: Some(PageLimit::MAXIMUM),
            ..ListChanges::default()
        };
        let (mut request, mut found) = (first.clone(), Vec::new());
        loop {
            let page = self.asker.ask_again(&request).await?;
            let is_wanted = |change: &ObjectChange| wanted.contains_key(&(change.agent, change.sequence));
            found.extend(page.items.into_iter().filter(is_wanted));
            if found.len() > CHANGES {
                let message =
                    format!("more than {CHANGES} changes at once; name an agent, a kind or a namespace");
                return Err(Refusal::invalid("filter", message));
            }
            match page.next {
                Some(next) => request = first.clone().at(next),
                None => return Ok(found),
            }
        }
    }

    /// The oldest first, each with the place behind it.
    fn put_in_order(&mut self, changes: Vec<ObjectChange>, records: &[Record]) {
        let mut of_records: BTreeMap<(AgentId, u64), Vec<ObjectChange>> = BTreeMap::new();
        for change in changes {
            of_records.entry((change.agent, change.sequence)).or_default().push(change);
        }
        let mut records: Vec<&Record> = records.iter().collect();
        records.sort_by_key(|record| (record.recorded_at, record.shard, record.sequence));
        let mut position = self.place.position.clone();
        for record in records {
            let agent = agent_of(record);
            let found = agent.and_then(|agent| of_records.remove(&(agent, record.sequence)));
            let given = self
                .place
                .within
                .filter(|(shard, sequence, _)| (*shard, *sequence) == (record.shard, record.sequence))
                .map_or(0, |(_, _, given)| given);
            let mut found = found.unwrap_or_default();
            found.retain(|change| place_within(change) > given);
            found.sort_by_cached_key(|change| (place_within(change), change.number));
            let last = found.pop();
            for change in found {
                let within = Some((record.shard, record.sequence, place_within(&change)));
                self.waiting.push_back((change, Cursor { position: position.clone(), within }));
            }
            position.advance(record.shard, record.sequence);
            let behind = Cursor { position: position.clone(), within: None };
            self.waiting.extend(last.map(|change| (change, behind)));
        }
    }
}

/// Records whose changes are asked for, by agent and place in its partition.
type Wanted<'a> = BTreeMap<(AgentId, u64), &'a Record>;

/// Where a change stands among those of its record: never 0, which is before all of them. Those of one object stand in their order.
fn place_within(change: &ObjectChange) -> usize {
    let object = derived_uuid(&[change.uid.as_bytes()]).as_u128() as u64;
    let of_object = (object << OF_ONE_OBJECT) | (change.number & ((1 << OF_ONE_OBJECT) - 1));
    usize::try_from(of_object).unwrap_or(usize::MAX).max(1)
}

fn agent_of(record: &Record) -> Option<AgentId> {
    let written: Written = events::decode(&record.bytes).ok()?;
    ObservationBatch::agent_of_writer(&written.writer)
}

fn unreadable(error: &ReadError) -> async_graphql::Error {
    failure::error(&Refusal::new(
        RefusalKind::Unavailable,
        format!("{error}; begin again without a position"),
    ))
}
