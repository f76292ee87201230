//! Which stream and subject a record lies under, and how a stored message is a record.

use std::collections::HashMap;

use events::position::{Shard, Stream};
use events::subject::Subject;
use events::{AggregateKind, OrganizationId, Timestamp};
use parking_lot::Mutex;

use super::server::Stored;
use crate::log::{ReadFilter, Record};

/// What a message that is stored is sent again under, for those who follow.
pub(super) const STORED: &str = "kasbah.stored";

/// Name of a shard's stream.
pub(super) fn stream_name((stream, partition): Shard) -> String {
    format!("kasbah-{}-{partition}", stream.as_str())
}

/// The token of a stream in subjects.
pub(super) const fn token(stream: Stream) -> &'static str {
    match stream {
        Stream::Decisions => "log",
        Stream::Observations => "observed",
        Stream::Objects => "objects",
        Stream::Audit => "audit",
        Stream::Refusals => "refused",
        Stream::Recordings => "recorded",
        Stream::Exports => "exported",
    }
}

/// All subjects of a shard.
pub(super) fn subjects((stream, partition): Shard) -> String {
    format!("kasbah.{}.{partition}.>", token(stream))
}

/// The subject of a batch; `None` when the writer's name cannot be a part of it.
pub(super) fn subject_of_batch(record: &crate::log::NewBatch, partition: u16) -> Option<String> {
    let fits = match record.stream {
        // The type of an event consists of several tokens.
        Stream::Exports => record.writer.split('.').all(fits_a_subject),
        _ => fits_a_subject(&record.writer),
    };
    if !fits {
        return None;
    }
    let organization = record.organization;
    Some(match record.stream {
        Stream::Audit => Subject::audit(partition, organization).to_string(),
        Stream::Refusals => Subject::refused(partition, organization).to_string(),
        Stream::Objects => Subject::objects(partition, organization, &record.writer).to_string(),
        Stream::Recordings => Subject::recorded(partition, organization, &record.writer).to_string(),
        Stream::Exports => Subject::exported(partition, organization, &record.writer).to_string(),
        Stream::Observations | Stream::Decisions => {
            Subject::observed(partition, organization, &record.writer).to_string()
        }
    })
}

/// Whether a writer's name can be a part of a subject.
pub(super) fn fits_a_subject(writer: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !writer.is_empty() && writer.len() <= 200 && writer.bytes().all(fine)
}

/// What stands in a record's subject.
struct Address {
    shard: Shard,
    organization: OrganizationId,
    kind: Option<AggregateKind>,
}

/// Reads the subject of a record.
fn address(subject: &str) -> Option<Address> {
    let mut tokens = subject.split('.').skip(1);
    let kept_in = tokens.next()?;
    let stream = *Stream::ALL.iter().find(|stream| token(**stream) == kept_in)?;
    let partition = tokens.next()?.parse().ok()?;
    let organization = tokens.next()?.parse().ok()?;
    let kind = tokens.next();
    let kind = AggregateKind::ALL.iter().copied().find(|known| kind == Some(known.as_str()));
    Some(Address { shard: (stream, partition), organization, kind })
}

/// The shard whose record a message is.
pub(super) fn shard_of(message: &Stored) -> Option<Shard> {
    address(&message.subject).map(|address| address.shard)
}

/// A stored message, understood.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) sequence: u64,
    /// The record and the kind of its aggregate, if this version knows it; nothing when the message is no record.
    record: Option<(Record, Option<AggregateKind>)>,
}

impl Parsed {
    pub(super) fn of(message: Stored) -> Self {
        let sequence = message.sequence;
        let Some(Address { shard, organization, kind }) = address(&message.subject) else {
            tracing::error!(subject = message.subject, "a message in the log is no record");
            return Self { sequence, record: None };
        };
        let record = Record::new(shard, sequence, message.recorded_at, organization, message.payload);
        Self { sequence, record: Some((record, kind)) }
    }

    /// Whether a filter wants the record.
    pub(super) fn is_wanted(&self, filter: &ReadFilter) -> bool {
        let Some((record, kind)) = &self.record else { return false };
        // What a newer version wrote of a kind that this one does not know is for nobody who names kinds.
        let of_kind = record.shard.0 != Stream::Decisions
            || filter.kinds.is_empty()
            || kind.is_some_and(|kind| filter.kinds.contains(&kind));
        of_kind && filter.organization.is_none_or(|wanted| wanted == record.organization)
    }

    /// Decodes what is decoded once for all clones.
    pub(super) fn decode(&self) {
        if let Some((record, _)) = &self.record {
            let _decoded = record.commit();
        }
    }
}

/// Leaves out what a filter does not want, and never lets the time of a shard run backwards.
#[derive(Debug)]
pub(super) struct RecordFilter {
    filter: ReadFilter,
    newest: Mutex<HashMap<Shard, Timestamp>>,
}

impl RecordFilter {
    pub(super) fn new(filter: ReadFilter) -> Self {
        Self { filter, newest: Mutex::default() }
    }

    /// The record, if it is wanted.
    pub(super) fn take(&self, message: Parsed) -> Option<Record> {
        let is_wanted = message.is_wanted(&self.filter);
        let (mut record, _) = message.record?;
        record.recorded_at = {
            let mut newest = self.newest.lock();
            let newest = newest.entry(record.shard).or_insert(record.recorded_at);
            *newest = (*newest).max(record.recorded_at);
            *newest
        };
        is_wanted.then_some(record)
    }

    pub(super) const fn filter(&self) -> &ReadFilter {
        &self.filter
    }
}
