//! What a fold reads: every record is decoded here, once for all projections, and what cannot be decoded is dealt with here.
//!
//! - An event that this build does not know makes its aggregate **read-only**: the events that are known are still folded, and no
//!   decision is made that changes the aggregate or looks at it ([`crate::Heads::grounds`]).
//! - An observation that is not known counts in its writer's sequence and is folded as [`Observed::Unknown`].
//! - A build that knows more never goes on from a snapshot in which something was left out, as long as the log has what it takes to
//!   fold it again.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use events::observation::{BatchHead, ObservationBatch, Observed};
use events::{
    AggregateKind, AggregateRef, Commit, DecodeError, Event, EventBody, EventId, OrganizationId, Refusal,
    RefusalKind,
};
use serde::{Deserialize, Serialize};

use crate::log::{ReadError, Record};

/// The events and observations that a projection knows: those of this build, or more in a test of upgrades.
pub trait Catalogue: Sized {
    /// The event of a body.
    ///
    /// # Errors
    /// Unknown type or version, or malformed data.
    fn decode(body: &EventBody) -> Result<Self, DecodeError>;

    /// Every type of event that is known, with its newest version.
    fn events() -> Vec<(&'static str, u16)>;

    /// Every kind of observation that is known, with its newest version.
    fn observations() -> Vec<(&'static str, u16)> {
        Observed::KINDS.to_vec()
    }
}

impl Catalogue for Event {
    fn decode(body: &EventBody) -> Result<Self, DecodeError> {
        Self::decode(body)
    }

    fn events() -> Vec<(&'static str, u16)> {
        Self::types()
    }
}

/// What a projection folds of one record.
#[derive(Debug)]
pub enum Fact<'a, E> {
    /// A commit, with its events that are known.
    Commit(Committed<'a, E>),
    /// A record of a stream that is not chained.
    Batch(&'a Batch<'a>),
}

/// See [`Fact::Commit`].
#[derive(Debug)]
pub struct Committed<'a, E> {
    /// The commit.
    pub commit: &'a Commit,
    /// The events that are known, in order.
    pub events: Vec<(EventId, E)>,
    /// There are others, or one that is malformed: the aggregate is read-only from here on.
    pub is_incomplete: bool,
}

/// See [`Fact::Batch`].
#[derive(Debug)]
pub struct Batch<'a> {
    record: &'a Record,
    left_out: Cell<bool>,
}

impl Batch<'_> {
    /// The record.
    #[must_use]
    pub const fn record(&self) -> &Record {
        self.record
    }

    /// Whose observations these are and how many, without a look at them; `None` when it is no batch of observations.
    #[must_use]
    pub fn head(&self) -> Option<BatchHead> {
        self.readable(BatchHead::read(&self.record.bytes))
    }

    /// The observations; `None` when it is no batch of observations. Those that are not known are [`Observed::Unknown`], so that all
    /// are counted.
    #[must_use]
    pub fn observations(&self) -> Option<ObservationBatch> {
        let batch: ObservationBatch = self.readable(events::decode(&self.record.bytes))?;
        let is_unknown = |what: &Observed| matches!(what, Observed::Unknown(_));
        if batch.observations.iter().any(|observation| is_unknown(&observation.what)) {
            self.left_out.set(true);
        }
        Some(batch)
    }

    fn readable<T>(&self, read: Result<T, DecodeError>) -> Option<T> {
        let (stream, partition) = self.record.shard;
        let (stream, sequence) = (stream.as_str(), self.record.sequence);
        read.inspect_err(|error| {
            tracing::error!(stream, partition, sequence, %error, "record is not readable by this version");
        })
        .ok()
    }
}

/// What a record held that could not be folded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Why the commit's aggregate is read-only from here on.
    pub(crate) event: Option<String>,
    /// An observation is not known.
    pub(crate) observation: bool,
}

/// Decodes a record and has it folded; says what could not be.
pub(crate) fn fold<E: Catalogue>(record: &Record, apply: impl FnOnce(Fact<'_, E>)) -> LeftOut {
    let Some(commit) = record.commit() else {
        if record.is_commit() {
            return LeftOut { event: Some("commit".to_owned()), observation: false };
        }
        let batch = Batch { record, left_out: Cell::new(false) };
        apply(Fact::Batch(&batch));
        return LeftOut { event: None, observation: batch.left_out.get() };
    };
    LeftOut { event: fold_commit(commit, apply), observation: false }
}

/// Decodes a commit and has it folded; says why its aggregate is read-only from here on, if it is.
pub(crate) fn fold_commit<E: Catalogue>(commit: &Commit, apply: impl FnOnce(Fact<'_, E>)) -> Option<String> {
    let mut unreadable = None;
    let mut events = Vec::with_capacity(commit.events.len());
    for event in &commit.events {
        match E::decode(&event.body) {
            Ok(decoded) => events.push((event.id, decoded)),
            Err(error) => unreadable = Some(error.to_string()),
        }
    }
    apply(Fact::Commit(Committed { commit, events, is_incomplete: unreadable.is_some() }));
    unreadable
}

/// What is known of aggregates beside a projection's state: versions, and which of them are read-only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Aggregates {
    /// Versions, of those that have more than one commit: many have one for good.
    versions: ByAggregate<u64>,
    /// What is not known here of those that are read-only.
    unreadable: ByAggregate<String>,
    /// Organizations with commits of which not even the aggregate can be read.
    opaque: BTreeSet<OrganizationId>,
}

type ByAggregate<T> = BTreeMap<OrganizationId, BTreeMap<AggregateKind, BTreeMap<String, T>>>;

fn entry_of<'a, T>(
    of: &'a ByAggregate<T>,
    organization: OrganizationId,
    aggregate: &AggregateRef,
) -> Option<&'a T> {
    of.get(&organization)?.get(&aggregate.kind)?.get(&aggregate.id)
}

fn insert<T>(of: &mut ByAggregate<T>, organization: OrganizationId, aggregate: &AggregateRef, value: T) {
    let of_kind = of.entry(organization).or_default().entry(aggregate.kind).or_default();
    match of_kind.get_mut(&aggregate.id) {
        Some(before) => *before = value,
        None => drop(of_kind.insert(aggregate.id.clone(), value)),
    }
}

impl Aggregates {
    /// Takes the next commit of its aggregate.
    ///
    /// # Errors
    /// When it is not the next one.
    pub(crate) fn advance(&mut self, record: &Record) -> Result<(), ReadError> {
        let Some(commit) = record.commit() else { return Ok(()) };
        let (organization, aggregate) = (commit.organization, &commit.aggregate);
        let known = entry_of(&self.versions, organization, aggregate).copied();
        // One that is not known is at version 0 or 1.
        let is_next = known.map_or(commit.version <= 2, |known| commit.version == known + 1);
        if !is_next && !self.opaque.contains(&organization) {
            let before = known.map_or_else(|| "0 or 1".to_owned(), |known| known.to_string());
            let detail = format!("version {} of {aggregate} comes after version {before}", commit.version);
            return Err(ReadError::not_dense(record, detail));
        }
        if commit.version > 1 {
            insert(&mut self.versions, organization, aggregate, commit.version);
        }
        Ok(())
    }

    /// Makes the aggregate of a commit read-only.
    pub(crate) fn close(&mut self, record: &Record, projection: &str, detail: String) {
        let organization = record.organization;
        let Some(commit) = record.commit() else {
            if self.opaque.insert(organization) {
                tracing::error!(projection, %organization, "commit of a newer version, organization is read-only: upgrade");
            }
            return;
        };
        let aggregate = &commit.aggregate;
        if entry_of(&self.unreadable, organization, aggregate).is_none() {
            tracing::error!(projection, %organization, %aggregate, detail, "event of a newer version, aggregate is read-only: upgrade");
        }
        insert(&mut self.unreadable, organization, aggregate, detail);
    }

    /// Whether something could not be read.
    pub(crate) fn is_incomplete(&self) -> bool {
        !self.unreadable.is_empty() || !self.opaque.is_empty()
    }

    /// Refuses a decision on an aggregate that has what is not known here, or one that looks at such.
    pub(crate) fn writable(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
    ) -> Result<(), Refusal> {
        let detail = match entry_of(&self.unreadable, organization, aggregate) {
            Some(detail) => detail.as_str(),
            None if self.opaque.contains(&organization) => "commit of unknown shape",
            None => return Ok(()),
        };
        let message =
            format!("{aggregate} was written by a newer version ({detail}) and is read-only here; upgrade");
        Err(Refusal::new(RefusalKind::Unavailable, message))
    }
}

/// Beside a snapshot's state: what was read, by which build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub(crate) aggregates: Aggregates,
    /// Observations were left out.
    pub(crate) left_out: bool,
    events: BTreeMap<String, u16>,
    observations: BTreeMap<String, u16>,
}

fn table(known: Vec<(&'static str, u16)>) -> BTreeMap<String, u16> {
    known.into_iter().map(|(name, version)| (name.to_owned(), version)).collect()
}

/// Whether something is in the one that is not in the other.
fn exceeds(one: &BTreeMap<String, u16>, other: &BTreeMap<String, u16>) -> bool {
    one.iter().any(|(name, version)| other.get(name).is_none_or(|known| known < version))
}

impl Reading {
    /// What a build with this catalogue read.
    pub(crate) fn new<E: Catalogue>(aggregates: Aggregates, left_out: bool) -> Self {
        let (events, observations) = (table(E::events()), table(E::observations()));
        Self { aggregates, left_out, events, observations }
    }

    /// Whether something was left out that may be known by now.
    pub(crate) fn lacks<E: Catalogue>(&self) -> bool {
        (self.aggregates.is_incomplete() && exceeds(&table(E::events()), &self.events))
            || (self.left_out && exceeds(&table(E::observations()), &self.observations))
    }

    /// Whether it was read with just what is known here.
    pub(crate) fn is_of_this_build<E: Catalogue>(&self) -> bool {
        self.events == table(E::events()) && self.observations == table(E::observations())
    }

    /// Whether the build that read it knew events that are not known here.
    pub(crate) fn is_newer<E: Catalogue>(&self) -> bool {
        exceeds(&self.events, &table(E::events()))
    }
}
