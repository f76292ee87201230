//! Changes of one object that follow each other, in one row: the newest body whole, and with each change how the body was before it.
//! The row is compressed as one, since bodies and changes of an object resemble each other.

use bytes::Bytes;
use events::Timestamp;
use events::observation::FieldWriter;
use events::requests::index::HealthState;
use lz4_flex::block::{compress, decompress};

use super::StoreError;
use super::coding::{Input, put_bytes, put_number, put_signed, put_size};
use crate::delta::{BodyBefore, Damaged};
use crate::model::What;

/// A page of the database. A row that fills one wastes nothing, whatever the order in which rows come.
const PAGE: usize = 4096;
/// What the database adds to the only row of a page, and the longest usual key.
const BESIDE: usize = 64;
/// Changes of one row, but for what large bodies allow.
const CHANGES: u64 = 512;
/// Changes of one row, however large the bodies are.
const FEW: u64 = 16;
/// Bytes of bodies that are made to read the oldest body of a row.
const WORK: u64 = 8 * 1024 * 1024;
/// The longest row, not compressed, that is unpacked.
const LARGEST: usize = 256 * 1024 * 1024;

/// A change as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChange {
    /// Counts the object's changes, from 1.
    pub number: u64,
    /// Sequence of the record in the log.
    pub sequence: u64,
    /// When that was recorded.
    pub recorded_at: Timestamp,
    /// When the agent saw it, as it claims.
    pub seen_at: Timestamp,
    /// When it happened at the earliest, as far as lists say; of what vanished only.
    pub not_before: Option<Timestamp>,
    /// What it was.
    pub what: What,
    /// Who wrote it.
    pub writer: Option<FieldWriter>,
    /// Health after it.
    pub health: HealthState,
    /// It is one of those that are listed, and not kept only as the state from which the others go on.
    pub is_listed: bool,
    /// The body before it; that of the oldest change of a row is not kept there.
    pub before: BodyBefore,
}

/// A change as a row has it. The texts of who wrote it stand once in the row: most readers look for one change among many.
#[derive(Debug, Clone)]
pub(super) struct InRow {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) recorded_at: Timestamp,
    seen_at: Timestamp,
    not_before: Option<Timestamp>,
    pub(super) what: What,
    /// The place among the row's writers, and when.
    writer: Option<(usize, Option<Timestamp>)>,
    health: HealthState,
    is_listed: bool,
    pub(super) before: BodyBefore,
}

/// A row, unpacked as far as adding to it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chain {
    first: u64,
    count: u64,
    sequence: u64,
    recorded_at: i64,
    /// Those that wrote, without their times.
    writers: Vec<FieldWriter>,
    /// The body after the newest change, where it is known.
    pub(super) body: Option<Bytes>,
    /// Changes, the oldest first.
    changes: Bytes,
}

const LISTED: u8 = 0b1000;
const WRITTEN: u8 = 0b1_0000;
const WRITTEN_AT: u8 = 0b10_0000;
const BODY_SHIFT: u8 = 6;

impl Chain {
    /// One of some changes that follow each other, the oldest first; `body` is the one after the newest.
    pub(super) fn of(changes: &[StoredChange], body: Option<Bytes>) -> Self {
        let mut chain = Self { body, ..Self::default() };
        let mut written = Vec::new();
        for change in changes {
            chain.write(change, &mut written);
        }
        chain.changes = written.into();
        chain
    }

    /// Number of the newest change.
    pub(super) const fn number(&self) -> u64 {
        self.first.saturating_add(self.count).saturating_sub(1)
    }

    /// Adds the next change, after which the body is another one, and gives the row; `None`, and nothing is added, where another row begins
    /// with it.
    pub(super) fn push(&mut self, change: &StoredChange, body: Option<&Bytes>) -> Option<Vec<u8>> {
        let length = |body: Option<&Bytes>| body.map_or(0, Bytes::len);
        let work = self.count.saturating_mul(u64::try_from(length(self.body.as_ref())).unwrap_or(u64::MAX));
        let is_quick = self.count < FEW || (self.count < CHANGES && work < WORK);
        if change.number != self.number().saturating_add(1) || !is_quick {
            return None;
        }
        let room = length(body).next_power_of_two().max(PAGE).saturating_sub(BESIDE);
        let before = (self.first, self.count, self.sequence, self.recorded_at);
        let (writers, written) = (self.writers.len(), self.changes.len());
        let body_before = std::mem::replace(&mut self.body, body.cloned());
        let mut changes = Vec::from(std::mem::take(&mut self.changes));
        self.write(change, &mut changes);
        self.changes = changes.into();
        let row = self.row();
        if row.len() <= room {
            return Some(row);
        }
        (self.first, self.count, self.sequence, self.recorded_at) = before;
        self.writers.truncate(writers);
        self.changes.truncate(written);
        self.body = body_before;
        None
    }

    fn write(&mut self, change: &StoredChange, out: &mut Vec<u8>) {
        let StoredChange { number, sequence, recorded_at, seen_at, what, health, is_listed, .. } = *change;
        let is_first = self.count == 0;
        if is_first {
            self.first = number;
        }
        let before = if is_first { &BodyBefore::Unknown } else { &change.before };
        let kept = match before {
            BodyBefore::Same => 0,
            BodyBefore::Unknown => 1,
            BodyBefore::Whole(_) => 2,
            BodyBefore::Delta { .. } => 3_u8,
        };
        let flags = [
            code_of(what),
            if is_listed { LISTED } else { 0 },
            if change.writer.is_some() { WRITTEN } else { 0 },
            if change.writer.as_ref().is_some_and(|writer| writer.at.is_some()) { WRITTEN_AT } else { 0 },
            kept << BODY_SHIFT,
        ];
        out.push(flags.into_iter().fold(0, |all, flag| all | flag));
        out.push(health_code(health));
        put_signed(out, difference(sequence, self.sequence));
        put_signed(out, recorded_at.0.wrapping_sub(self.recorded_at));
        put_signed(out, seen_at.0.wrapping_sub(recorded_at.0));
        if what == What::Vanished {
            // 0: it is not known.
            let before = change
                .not_before
                .map_or(0, |first| recorded_at.0.abs_diff(first.0.min(recorded_at.0)).saturating_add(1));
            put_number(out, before);
        }
        if let Some(writer) = &change.writer {
            put_number(out, self.place_of(writer));
            if let Some(at) = writer.at {
                put_signed(out, at.0.wrapping_sub(seen_at.0));
            }
        }
        match before {
            BodyBefore::Same | BodyBefore::Unknown => {}
            BodyBefore::Whole(body) => put_bytes(out, body),
            BodyBefore::Delta { head, tail, length, middle } => {
                for size in [head, tail, length] {
                    put_size(out, *size);
                }
                put_bytes(out, middle);
            }
        }
        (self.sequence, self.recorded_at) = (sequence, recorded_at.0);
        self.count = self.count.saturating_add(1);
    }

    fn place_of(&mut self, writer: &FieldWriter) -> u64 {
        let FieldWriter { manager, operation, subresource, at: _ } = writer;
        let is_it = |known: &FieldWriter| {
            (&known.manager, &known.operation, &known.subresource) == (manager, operation, subresource)
        };
        let found = self.writers.iter().position(is_it);
        let place = found.unwrap_or_else(|| {
            self.writers.push(FieldWriter { at: None, ..writer.clone() });
            self.writers.len().saturating_sub(1)
        });
        u64::try_from(place).unwrap_or(u64::MAX)
    }

    /// The changes, the oldest first.
    pub(super) fn changes(&self) -> Result<Vec<StoredChange>, Damaged> {
        Ok(self.in_row()?.iter().map(|change| self.stored(change)).collect())
    }

    /// The same as the row has them.
    pub(super) fn in_row(&self) -> Result<Vec<InRow>, Damaged> {
        let mut input = Input::new(self.changes.clone());
        let (mut sequence, mut recorded_at) = (0_u64, 0_i64);
        let mut changes = Vec::new();
        while !input.is_empty() {
            let number = self.first.saturating_add(u64::try_from(changes.len()).map_err(|_| Damaged)?);
            let change = self.read_change(&mut input, (number, sequence, recorded_at))?;
            (sequence, recorded_at) = (change.sequence, change.recorded_at.0);
            changes.push(change);
        }
        Ok(changes)
    }

    /// A change of the row, whole.
    pub(super) fn stored(&self, change: &InRow) -> StoredChange {
        let writer = change.writer.and_then(|(place, at)| {
            let known = self.writers.get(place)?;
            Some(FieldWriter { at, ..known.clone() })
        });
        StoredChange {
            number: change.number,
            sequence: change.sequence,
            recorded_at: change.recorded_at,
            seen_at: change.seen_at,
            not_before: change.not_before,
            what: change.what,
            writer,
            health: change.health,
            is_listed: change.is_listed,
            before: change.before.clone(),
        }
    }

    fn read_change(
        &self,
        input: &mut Input,
        (number, sequence, recorded_at): (u64, u64, i64),
    ) -> Result<InRow, Damaged> {
        let flags = input.byte()?;
        let health = health_of(input.byte()?)?;
        let sequence = sequence.wrapping_add_signed(input.signed()?);
        let recorded_at = recorded_at.wrapping_add(input.signed()?);
        let seen_at = recorded_at.wrapping_add(input.signed()?);
        let what = what_of(flags & 0b111)?;
        let before = if what == What::Vanished { input.number()? } else { 0 };
        let not_before =
            before.checked_sub(1).map(|before| Timestamp(recorded_at.wrapping_sub_unsigned(before)));
        let writer = (flags & WRITTEN != 0).then(|| {
            let place = Some(input.size()?).filter(|place| *place < self.writers.len()).ok_or(Damaged)?;
            let at = (flags & WRITTEN_AT != 0).then(|| input.signed()).transpose()?;
            Ok((place, at.map(|at| Timestamp(at.wrapping_add(seen_at)))))
        });
        let writer = writer.transpose()?;
        let before = match flags >> BODY_SHIFT {
            0 => BodyBefore::Same,
            1 => BodyBefore::Unknown,
            2 => BodyBefore::Whole(input.bytes()?),
            _ => {
                let (head, tail, length) = (input.size()?, input.size()?, input.size()?);
                BodyBefore::Delta { head, tail, length, middle: input.bytes()? }
            }
        };
        let (recorded_at, seen_at) = (Timestamp(recorded_at), Timestamp(seen_at));
        let is_listed = flags & LISTED != 0;
        Ok(InRow {
            number,
            sequence,
            recorded_at,
            seen_at,
            not_before,
            what,
            writer,
            health,
            is_listed,
            before,
        })
    }

    /// The row.
    pub(super) fn row(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.first);
        put_number(&mut out, self.count);
        put_number(&mut out, self.sequence);
        put_signed(&mut out, self.recorded_at);
        put_size(&mut out, self.writers.len());
        for FieldWriter { manager, operation, subresource, at: _ } in &self.writers {
            for text in [manager, operation, subresource] {
                put_bytes(&mut out, text.as_bytes());
            }
        }
        out.push(u8::from(self.body.is_some()));
        if let Some(body) = &self.body {
            put_bytes(&mut out, body);
        }
        out.extend_from_slice(&self.changes);
        let mut row = Vec::new();
        put_size(&mut row, out.len());
        row.extend_from_slice(&compress(&out));
        row
    }

    /// What a row says.
    pub(super) fn read(row: &[u8]) -> Result<Self, StoreError> {
        Self::unpack(row).map_err(|error| StoreError::encoding(&error))
    }

    fn unpack(row: &[u8]) -> Result<Self, Damaged> {
        let mut input = Input::new(Bytes::copy_from_slice(row));
        let size = Some(input.size()?).filter(|size| *size <= LARGEST).ok_or(Damaged)?;
        let unpacked = decompress(&input.rest(), size).map_err(|_| Damaged)?;
        let mut input = Input::new(unpacked.into());
        let (first, count, sequence) = (input.number()?, input.number()?, input.number()?);
        let (recorded_at, mut writers) = (input.signed()?, Vec::new());
        for _ in 0..input.number()? {
            let (manager, operation, subresource) = (input.text()?, input.text()?, input.text()?);
            writers.push(FieldWriter { manager, operation, subresource, at: None });
        }
        let body = (input.byte()? == 1).then(|| input.bytes()).transpose()?;
        Ok(Self { first, count, sequence, recorded_at, writers, body, changes: input.rest() })
    }
}

fn difference(one: u64, other: u64) -> i64 {
    one.wrapping_sub(other).cast_signed()
}

const WHATS: [What; 7] = [
    What::FirstSeen,
    What::Created,
    What::Changed,
    What::Deleted,
    What::Vanished,
    What::Gap,
    What::Unobserved,
];

const HEALTHS: [HealthState; 7] = [
    HealthState::None,
    HealthState::Healthy,
    HealthState::Suspended,
    HealthState::Progressing,
    HealthState::Missing,
    HealthState::Degraded,
    HealthState::Unknown,
];

/// Its place in a list that only grows at its end.
fn code_in<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let place = all.iter().position(|known| known == one);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or_default()
}

fn code_of(what: What) -> u8 {
    code_in(&WHATS, &what)
}

fn what_of(code: u8) -> Result<What, Damaged> {
    WHATS.get(usize::from(code)).copied().ok_or(Damaged)
}

fn health_code(health: HealthState) -> u8 {
    code_in(&HEALTHS, &health)
}

fn health_of(code: u8) -> Result<HealthState, Damaged> {
    HEALTHS.get(usize::from(code)).copied().ok_or(Damaged)
}
