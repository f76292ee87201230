//! Recorded decisions made again, and models folded one record at a time: for whoever looks at a log without its services.

use std::collections::BTreeMap;

use events::observation::ObservationBatch;
use events::position::Stream;
use events::{AggregateKind, AggregateRef, Commit, CommitId, Event, Grounds, OrganizationId, Refusal};
use serde::Serialize;

use crate::log::{ReadFilter, Record};
use crate::model::{Decides, Draft};

/// What came of making a recorded decision again.
#[derive(Debug, Clone, PartialEq)]
pub enum Redecided {
    /// The same events on the same version.
    Same,
    /// Another decision.
    Differs {
        /// What was decided then.
        recorded: Vec<Event>,
        /// What today's model decides: a draft, nothing, or a refusal.
        made: Box<Result<Option<Draft>, Refusal>>,
    },
    /// It was recorded before decisions were recorded with what they were made on.
    WithoutGrounds,
    /// What it was made on is not among the records.
    NotHere {
        /// What is missing.
        missing: String,
    },
    /// This version cannot read what is recorded.
    Unreadable {
        /// Why.
        detail: String,
    },
}

/// Records to make decisions again from, in the order of their log.
#[derive(Debug, Default)]
pub struct Recorded {
    lanes: BTreeMap<Lane, Vec<Record>>,
    places: BTreeMap<(OrganizationId, CommitId), usize>,
    /// Ends of the batches of a writer.
    ends: BTreeMap<String, Vec<(u64, u64)>>,
}

/// What has one order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Decisions(OrganizationId),
    Observations(String),
}

impl Recorded {
    /// Adds the next record.
    pub fn add(&mut self, record: Record) {
        match record.shard.0 {
            Stream::Decisions => self.add_commit(record),
            Stream::Observations => {
                if let Ok(batch) = events::decode::<ObservationBatch>(&record.bytes) {
                    let last = (batch.first + batch.observations.len() as u64).saturating_sub(1);
                    self.ends.entry(batch.writer.clone()).or_default().push((batch.epoch, last));
                    self.lanes.entry(Lane::Observations(batch.writer)).or_default().push(record);
                }
            }
            // No decision is made on objects.
            Stream::Objects | Stream::Audit | Stream::Refusals | Stream::Recordings | Stream::Exports => {}
        }
    }

    fn add_commit(&mut self, record: Record) {
        let records = self.lanes.entry(Lane::Decisions(record.organization)).or_default();
        if let Some(commit) = record.commit() {
            self.places.insert((commit.organization, commit.id), records.len());
        }
        records.push(record);
    }

    /// How many records of each lane a decision was made on.
    fn behind(&self, grounds: &Grounds) -> Result<BTreeMap<Lane, usize>, String> {
        let mut wanted = BTreeMap::new();
        for (organization, commit) in &grounds.commits {
            let lane = Lane::Decisions(*organization);
            let count = match commit {
                None => 0,
                Some((commit, _)) => {
                    1 + self.places.get(&(*organization, *commit)).ok_or_else(|| {
                        format!("commit {commit} of organization {organization}, on which it was decided")
                    })?
                }
            };
            wanted.insert(lane, count);
        }
        for (writer, seen) in &grounds.observed {
            let mut ends = self.ends.get(writer).into_iter().flatten();
            let count = match ends.position(|end| end == seen) {
                Some(place) => place + 1,
                None if *seen == (0, 0) => 0,
                None => return Err(format!("observations of {writer} up to {} in epoch {}", seen.1, seen.0)),
            };
            wanted.insert(Lane::Observations(writer.clone()), count);
        }
        Ok(wanted)
    }
}

/// A model that decisions can be made again with, and that can be folded step by step.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The projection's name.
    pub name: &'static str,
    /// Kinds of the aggregates that it decides.
    pub decides: &'static [AggregateKind],
    start: fn() -> Box<dyn Folding>,
    redecide: fn(&Recorded, &mut OnRedecided<'_>),
}

/// Called with each decision and the result of making it again.
pub type OnRedecided<'a> = dyn FnMut(&Record, &Commit, Redecided) + 'a;

impl Model {
    /// The model of a service.
    #[must_use]
    pub const fn of<P: Decides>() -> Self {
        Self {
            name: P::NAME,
            decides: P::DECIDES,
            start: || Box::new(Fold { filter: P::filter(), state: P::start() }),
            redecide: redecide::<P>,
        }
    }

    /// Its state before the first record.
    #[must_use]
    pub fn start(&self) -> Box<dyn Folding> {
        (self.start)()
    }

    /// Makes all decisions of this model again, and reports each result.
    pub fn redecide(&self, recorded: &Recorded, report: &mut OnRedecided<'_>) {
        (self.redecide)(recorded, report);
    }
}

/// A model's state, whichever it is.
pub trait Folding: Send {
    /// Folds a record, if the model follows such.
    fn apply(&mut self, record: &Record);

    /// What is known of an aggregate, for people.
    fn describe(&self, organization: OrganizationId, aggregate: &AggregateRef) -> Option<String>;
}

/// State in YAML, as people read it.
#[must_use]
pub fn yaml(state: &impl Serialize) -> String {
    let mut text = String::new();
    // A text stays on its line, so that a difference of two states shows it whole.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    match serde_saphyr::to_fmt_writer_with_options(&mut text, state, options) {
        Ok(()) => text,
        Err(error) => format!("cannot be shown: {error}\n"),
    }
}

struct Fold<P> {
    filter: ReadFilter,
    state: P,
}

impl<P: Decides> Folding for Fold<P> {
    fn apply(&mut self, record: &Record) {
        if follows(&self.filter, record) {
            self.state.fold(record);
        }
    }

    fn describe(&self, organization: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        self.state.describe(organization, aggregate)
    }
}

fn follows(filter: &ReadFilter, record: &Record) -> bool {
    let of_kind = |commit: &Commit| filter.kinds.contains(&commit.aggregate.kind);
    filter.streams.contains(&record.shard.0)
        && (record.shard.0 != Stream::Decisions
            || filter.kinds.is_empty()
            || record.commit().is_some_and(of_kind))
}

/// Makes the decisions of a model again, organization by organization.
fn redecide<P: Decides>(recorded: &Recorded, report: &mut OnRedecided<'_>) {
    let mut again = Again::<P> {
        recorded,
        filter: P::filter(),
        state: P::start(),
        folded: BTreeMap::new(),
        unreadable: None,
    };
    let decisions = recorded.lanes.iter().filter(|(lane, _)| matches!(lane, Lane::Decisions(_)));
    for record in decisions.flat_map(|(_, records)| records) {
        if let Some(commit) = record.commit().filter(|commit| P::DECIDES.contains(&commit.aggregate.kind)) {
            let remade = again.make(commit);
            report(record, commit, remade);
        }
    }
}

struct Again<'a, P> {
    recorded: &'a Recorded,
    filter: ReadFilter,
    state: P,
    /// How many records of each lane were passed, and how many of them are in the state.
    folded: BTreeMap<Lane, (usize, u64)>,
    /// What of that this version cannot read.
    unreadable: Option<String>,
}

impl<P: Decides> Again<'_, P> {
    fn make(&mut self, commit: &Commit) -> Redecided {
        let Some(grounds) = &commit.grounds else { return Redecided::WithoutGrounds };
        let unreadable = |error: events::DecodeError| Redecided::Unreadable { detail: error.to_string() };
        let given: P::Given = match events::decode(&grounds.given) {
            Ok(given) => given,
            Err(error) => return unreadable(error),
        };
        let events: Result<Vec<Event>, _> =
            commit.events.iter().map(|event| Event::decode(&event.body)).collect();
        let events = match events {
            Ok(events) => events,
            Err(error) => return unreadable(error),
        };
        if let Err(missing) = self.recorded.behind(grounds).and_then(|wanted| self.fold_to(wanted, grounds)) {
            return Redecided::NotHere { missing };
        }
        let made = self.state.make(&given);
        let same = matches!(&made, Ok(Some(draft)) if draft.events == events
            && draft.expected + 1 == commit.version
            && (draft.organization, &draft.aggregate) == (commit.organization, &commit.aggregate));
        match &self.unreadable {
            _ if same => Redecided::Same,
            Some(detail) => Redecided::Unreadable { detail: detail.clone() },
            None => Redecided::Differs { recorded: events, made: Box::new(made) },
        }
    }

    /// Folds just what a decision was made on. Of what it did not look at, there may be more or less.
    fn fold_to(&mut self, wanted: BTreeMap<Lane, usize>, grounds: &Grounds) -> Result<(), String> {
        let folded = |lane: &Lane| self.folded.get(lane).map_or(0, |(records, _)| *records);
        if wanted.iter().any(|(lane, count)| folded(lane) > *count) {
            self.state = P::start();
            self.folded.clear();
            self.unreadable = None;
        }
        for (lane, count) in wanted {
            let records = self.recorded.lanes.get(&lane);
            let (from, followed) = self.folded.entry(lane).or_default();
            let records = records.and_then(|records| records.get(*from..count));
            for record in records.into_iter().flatten().filter(|record| follows(&self.filter, record)) {
                if let Some(detail) = self.state.fold(record) {
                    self.unreadable = Some(detail);
                }
                *followed += 1;
            }
            *from = count;
        }
        for (organization, head) in &grounds.commits {
            let here = self.folded.get(&Lane::Decisions(*organization)).map_or(0, |(_, followed)| *followed);
            let then = head.map_or(0, |(_, count)| count);
            if here != then {
                return Err(format!(
                    "{} earlier decisions of organization {organization}",
                    then.saturating_sub(here)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
