//! The changes of each agent in the order of time, many in one row: for lists, and for what leaves. A gap is recorded behind what it
//! precedes, so that a row may grow at any place.

use std::collections::BTreeSet;

use bytes::Bytes;
use events::{AgentId, Timestamp};
use redb::{ReadOnlyTable, ReadableTable, WriteTransaction};

use super::coding::{Input, put_number, put_signed, put_size};
use super::keys::{agent_of, put_uid, split_uid};
use super::{StoreError, TIMELINE, put, remove};
use crate::delta::Damaged;
use crate::model::Text;

/// Bytes of one row: with its key it fills a page of the database.
const ROOM: usize = 4096 - 64;
/// Most bytes that a moment takes before its changes.
const HEAD: usize = 16;

/// A change and its place in time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// Sequence of the record in the log.
    pub sequence: u64,
    /// In which cluster.
    pub agent: AgentId,
    /// Of which object.
    pub uid: Text,
    /// Which of the object's changes.
    pub number: u64,
}

/// When a record was recorded, and its sequence.
type Moment = (Timestamp, u64);

impl Entry {
    const fn moment(&self) -> Moment {
        (self.recorded_at, self.sequence)
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_uid(out, &self.uid);
        put_number(out, self.number);
    }
}

/// Where a row begins. `piece` is 0 where the row has the first change of the record that it begins with; rows with further changes of that
/// record count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    agent: AgentId,
    moment: Moment,
    piece: u32,
}

impl Place {
    fn key(self) -> Vec<u8> {
        let (Timestamp(at), sequence) = self.moment;
        // Before 1970 nothing was recorded.
        let at = u64::try_from(at).unwrap_or(0);
        let agent = self.agent.0.as_bytes().as_slice();
        [agent, &at.to_be_bytes(), &sequence.to_be_bytes(), &self.piece.to_be_bytes()].concat()
    }

    fn read(key: &[u8]) -> Result<Self, Damaged> {
        let agent = agent_of(key).ok_or(Damaged)?;
        let rest = key.get(16..).ok_or(Damaged)?;
        let (at, rest) = rest.split_first_chunk::<8>().ok_or(Damaged)?;
        let (sequence, rest) = rest.split_first_chunk::<8>().ok_or(Damaged)?;
        let (piece, _) = rest.split_first_chunk::<4>().ok_or(Damaged)?;
        let at = i64::try_from(u64::from_be_bytes(*at)).map_err(|_| Damaged)?;
        let moment = (Timestamp(at), u64::from_be_bytes(*sequence));
        Ok(Self { agent, moment, piece: u32::from_be_bytes(*piece) })
    }
}

fn first_of(agent: AgentId) -> Vec<u8> {
    Place { agent, moment: (Timestamp(0), 0), piece: 0 }.key()
}

/// Behind all rows of an agent up to a moment.
fn last_until(agent: AgentId, moment: Moment) -> Vec<u8> {
    Place { agent, moment, piece: u32::MAX }.key()
}

const END: Moment = (Timestamp(i64::MAX), u64::MAX);

struct Row {
    place: Place,
    entries: Vec<Entry>,
    /// Bytes that it takes, or a few less.
    bytes: usize,
    /// The agent has no later one.
    is_last: bool,
}

impl Row {
    fn new(place: Place, entries: Vec<Entry>, is_last: bool) -> Self {
        let bytes = written(place, &entries).len();
        Self { place, entries, bytes, is_last }
    }

    fn read(key: &[u8], value: &[u8], is_last: bool) -> Result<Self, StoreError> {
        let place = Place::read(key).map_err(|error| StoreError::encoding(&error))?;
        let entries = entries_of(place, value).map_err(|error| StoreError::encoding(&error))?;
        Ok(Self { place, entries, bytes: value.len(), is_last })
    }

    /// The row to which what was recorded at a moment belongs: the last one that begins no later.
    fn around(writing: &WriteTransaction, agent: AgentId, moment: Moment) -> Result<Self, StoreError> {
        let table = writing.open_table(TIMELINE).map_err(StoreError::of)?;
        let Some((last, _)) = last_row(&table, agent, last_until(agent, END))? else {
            return Ok(Self::new(Place { agent, moment, piece: 0 }, Vec::new(), true));
        };
        match last_row(&table, agent, last_until(agent, moment))? {
            Some((key, value)) => Self::read(&key, &value, key == last),
            None => Ok(Self::new(Place { agent, moment, piece: 0 }, Vec::new(), false)),
        }
    }

    fn is_for(&self, entry: &Entry) -> bool {
        self.is_last && self.place.agent == entry.agent && self.place.moment <= entry.moment()
    }

    /// Adds an entry; the rest, where that does not fit.
    fn add(&mut self, entry: Entry) -> Option<Self> {
        let place = self.entries.partition_point(|known| known.moment() <= entry.moment());
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        let cost = bytes.len().saturating_add(HEAD);
        if self.bytes.saturating_add(cost) <= ROOM {
            self.bytes = self.bytes.saturating_add(cost);
            self.entries.insert(place, entry);
            return None;
        }
        let is_at_end = place == self.entries.len();
        self.entries.insert(place, entry);
        Some(self.cut_at(if is_at_end { place } else { self.middle() }))
    }

    /// Where two halves part, not within a record where there are several.
    fn middle(&self) -> usize {
        let half = self.entries.len() / 2;
        let starts = self.entries.iter().zip(self.entries.iter().skip(1)).zip(1..);
        let starts =
            starts.filter(|((before, after), _)| before.moment() != after.moment()).map(|(_, at)| at);
        starts.min_by_key(|start: &usize| start.abs_diff(half)).unwrap_or(half)
    }

    fn cut_at(&mut self, at: usize) -> Self {
        let rest = self.entries.split_off(at.min(self.entries.len()));
        let begins = rest.first().map_or(self.place.moment, Entry::moment);
        let piece = if self.entries.last().is_none_or(|last| last.moment() != begins) {
            0
        } else if self.place.moment == begins {
            self.place.piece.saturating_add(1)
        } else {
            1
        };
        let is_last = std::mem::take(&mut self.is_last);
        Self::new(Place { agent: self.place.agent, moment: begins, piece }, rest, is_last)
    }

    fn store(&self, writing: &WriteTransaction) -> Result<(), StoreError> {
        let key = self.place.key();
        if self.entries.is_empty() {
            return remove(writing, TIMELINE, &key);
        }
        put(writing, TIMELINE, &key, &written(self.place, &self.entries))
    }
}

/// What is recorded at one moment stands behind one head.
fn written(place: Place, entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    let (Timestamp(mut at), mut sequence) = place.moment;
    for group in entries.chunk_by(|one, other| one.moment() == other.moment()) {
        let Some(first) = group.first() else { continue };
        put_signed(&mut out, first.recorded_at.0.wrapping_sub(at));
        put_signed(&mut out, first.sequence.wrapping_sub(sequence).cast_signed());
        put_size(&mut out, group.len());
        group.iter().for_each(|entry| entry.write(&mut out));
        (at, sequence) = (first.recorded_at.0, first.sequence);
    }
    out
}

fn entries_of(place: Place, value: &[u8]) -> Result<Vec<Entry>, Damaged> {
    let mut input = Input::new(Bytes::copy_from_slice(value));
    let (mut recorded_at, mut sequence) = place.moment;
    let mut entries = Vec::new();
    while !input.is_empty() {
        recorded_at = Timestamp(recorded_at.0.wrapping_add(input.signed()?));
        sequence = sequence.wrapping_add_signed(input.signed()?);
        for _ in 0..input.number()? {
            let (uid, number) = (input.uid()?, input.number()?);
            entries.push(Entry { recorded_at, sequence, agent: place.agent, uid, number });
        }
    }
    Ok(entries)
}

impl Input {
    fn uid(&mut self) -> Result<Text, Damaged> {
        let (uid, rest) = split_uid(self.as_slice()).ok_or(Damaged)?;
        let length = self.as_slice().len().saturating_sub(rest.len());
        self.take(length)?;
        Ok(uid)
    }
}

type KeyAndValue = (Vec<u8>, Vec<u8>);

fn last_row(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    agent: AgentId,
    until: Vec<u8>,
) -> Result<Option<KeyAndValue>, StoreError> {
    let first = first_of(agent);
    let mut rows = table.range(first.as_slice()..=until.as_slice()).map_err(StoreError::of)?;
    let last = rows.next_back().transpose().map_err(StoreError::of)?;
    Ok(last.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
}

/// Adds changes of one agent, in the order in which they came.
pub(super) fn add(writing: &WriteTransaction, entries: Vec<Entry>) -> Result<(), StoreError> {
    let mut open: Option<Row> = None;
    for entry in entries {
        let mut row = match open.take() {
            Some(row) if row.is_for(&entry) => row,
            other => {
                other.map(|row| row.store(writing)).transpose()?;
                Row::around(writing, entry.agent, entry.moment())?
            }
        };
        open = match row.add(entry) {
            None => Some(row),
            Some(rest) => {
                row.store(writing)?;
                Some(rest)
            }
        };
    }
    open.map(|row| row.store(writing)).transpose()?;
    Ok(())
}

/// Takes the changes of some of an agent's objects away, which were recorded at these moments.
pub(super) fn take_away(
    writing: &WriteTransaction,
    agent: AgentId,
    uids: &BTreeSet<Text>,
    mut moments: BTreeSet<Moment>,
) -> Result<(), StoreError> {
    let mut before: Option<Vec<u8>> = None;
    while let Some(moment) = moments.last().copied() {
        let until = last_until(agent, moment);
        let row = {
            let table = writing.open_table(TIMELINE).map_err(StoreError::of)?;
            let first = first_of(agent);
            let mut rows = match &before {
                // It was looked at: what is left of that moment is before it.
                Some(key) if *key <= until => table.range(first.as_slice()..key.as_slice()),
                _ => table.range(first.as_slice()..=until.as_slice()),
            }
            .map_err(StoreError::of)?;
            let row = rows.next_back().transpose().map_err(StoreError::of)?;
            row.map(|(key, value)| Row::read(key.value(), value.value(), false)).transpose()?
        };
        let Some(mut row) = row else { break };
        let count = row.entries.len();
        row.entries.retain(|entry| !uids.contains(&entry.uid));
        if row.entries.len() < count {
            row.store(writing)?;
        }
        // A record may have begun in the row before.
        moments.retain(|moment| *moment <= row.place.moment);
        before = Some(row.place.key());
    }
    Ok(())
}

/// Takes the oldest changes of an agent away, up to a sequence, and about so many of them.
pub(super) fn take_oldest(
    writing: &WriteTransaction,
    agent: AgentId,
    until: u64,
    most: usize,
) -> Result<Vec<Entry>, StoreError> {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    {
        let table = writing.open_table(TIMELINE).map_err(StoreError::of)?;
        let (first, last) = (first_of(agent), last_until(agent, END));
        for row in table.range(first.as_slice()..=last.as_slice()).map_err(StoreError::of)? {
            let (key, value) = row.map_err(StoreError::of)?;
            let mut row = Row::read(key.value(), value.value(), false)?;
            let leaving = row.entries.iter().take_while(|entry| entry.sequence <= until).count();
            if leaving == 0 || taken.len() >= most {
                break;
            }
            let rest = row.entries.split_off(leaving);
            taken.append(&mut row.entries);
            let goes_on = rest.is_empty();
            left.push(Row { entries: rest, ..row });
            if !goes_on {
                break;
            }
        }
    }
    left.iter().try_for_each(|row| row.store(writing))?;
    Ok(taken)
}

/// The next agents that have changes, behind one.
pub(super) fn agents_behind(
    writing: &WriteTransaction,
    mut behind: Option<AgentId>,
    most: usize,
) -> Result<Vec<AgentId>, StoreError> {
    let table = writing.open_table(TIMELINE).map_err(StoreError::of)?;
    let mut agents = Vec::new();
    while agents.len() < most {
        let from = behind.map_or_else(Vec::new, |agent| last_until(agent, END));
        let mut rows = table.range(from.as_slice()..).map_err(StoreError::of)?;
        let Some(row) = rows.next().transpose().map_err(StoreError::of)? else { break };
        let agent = agent_of(row.0.value()).ok_or_else(|| StoreError::encoding(&Damaged))?;
        agents.push(agent);
        behind = Some(agent);
    }
    Ok(agents)
}

/// Changes of an agent that were recorded until a moment, the newest first.
pub(super) fn back_from(
    table: &ReadOnlyTable<&'static [u8], &'static [u8]>,
    agent: AgentId,
    until: Option<Timestamp>,
) -> Result<impl Iterator<Item = Result<Entry, StoreError>> + use<>, StoreError> {
    let first = first_of(agent);
    let last = last_until(agent, until.map_or(END, |until| (until, u64::MAX)));
    let rows = table.range(first.as_slice()..=last.as_slice()).map_err(StoreError::of)?;
    Ok(rows.rev().flat_map(move |row| {
        let row =
            row.map_err(StoreError::of).and_then(|(key, value)| Row::read(key.value(), value.value(), false));
        let entries = match row {
            Ok(row) => row.entries.into_iter().rev().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        let is_in_time = move |entry: &Result<Entry, StoreError>| {
            entry.as_ref().map_or(true, |entry| until.is_none_or(|until| entry.recorded_at <= until))
        };
        entries.into_iter().filter(is_in_time)
    }))
}
