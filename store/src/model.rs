//! Models that decide, so that each decision can be made again from what the log holds of it.

use std::collections::{BTreeMap, BTreeSet};

use events::{AggregateKind, AggregateRef, CommitId, Event, Grounds, OrganizationId, Refusal, RefusalKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::log::{ReadError, Record};
use crate::projection::Projection;
use crate::reading::{Aggregates, LeftOut};

/// A model that decides on what it folds. Pure.
///
/// Laws:
/// 1. [`Decides::make`] depends on nothing but what it is given and the folded records of what [`Decides::read_set`] names.
/// 2. What it is given holds no secret: it is recorded with the commit.
pub trait Decides: Projection {
    /// Kinds of the aggregates that it decides.
    const DECIDES: &'static [AggregateKind];

    /// What a decision is given beside the state: command, clock, ids, facts from elsewhere.
    type Given: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Makes a decision; nothing when nothing needs to be done.
    ///
    /// # Errors
    /// When the state does not allow it.
    fn make(&self, given: &Self::Given) -> Result<Option<Draft>, Refusal>;

    /// What of the log a decision looks at.
    fn read_set(&self, given: &Self::Given) -> ReadSet;

    /// Aggregates of the same organization, beside the one that a decision changes, that it must know in full: it is not made while one
    /// of them is read-only here. Asked for only while some aggregate is.
    fn relies_on(&self, given: &Self::Given) -> Vec<AggregateRef> {
        let _ = given;
        Vec::new()
    }

    /// The version of an aggregate, 0 when it does not exist.
    fn version_of(&self, organization: OrganizationId, aggregate: &AggregateRef) -> u64;

    /// What is known of an aggregate, for people; `None` when nothing is.
    fn describe(&self, organization: OrganizationId, aggregate: &AggregateRef) -> Option<String>;
}

/// What a decision wants to append: one commit on one aggregate.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Whose.
    pub organization: OrganizationId,
    /// Which aggregate.
    pub aggregate: AggregateRef,
    /// Its version that the decision was made on.
    pub expected: u64,
    /// At least one.
    pub events: Vec<Event>,
}

/// What of the log a decision looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSet {
    /// Decisions of these organizations.
    pub organizations: BTreeSet<OrganizationId>,
    /// Observations of these writers, up to this epoch and sequence.
    pub observed: BTreeMap<String, (u64, u64)>,
}

impl ReadSet {
    /// Decisions of one organization, and no observations.
    #[must_use]
    pub fn decisions_of(organization: OrganizationId) -> Self {
        Self { organizations: [organization].into(), ..Self::default() }
    }
}

/// The last commit of each organization that a state is the fold of, and how many there were.
pub type Commits = BTreeMap<OrganizationId, (CommitId, u64)>;

/// What a state is the fold of: the last commits, and what is known of their aggregates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heads {
    pub(crate) commits: Commits,
    pub(crate) aggregates: Aggregates,
    /// Observations were left out.
    pub(crate) left_out: bool,
}

impl Heads {
    /// Takes note of a record that is folded next.
    ///
    /// # Errors
    /// When it is not the next one of its aggregate.
    pub(crate) fn advance(&mut self, record: &Record) -> Result<(), ReadError> {
        self.aggregates.advance(record)?;
        if let Some(commit) = record.commit() {
            let head = self.commits.entry(commit.organization).or_insert((commit.id, 0));
            *head = (commit.id, head.1 + 1);
        }
        Ok(())
    }

    /// Takes note of what could not be folded.
    pub(crate) fn note(&mut self, record: &Record, projection: &str, left_out: LeftOut) {
        self.left_out |= left_out.observation;
        if let Some(detail) = left_out.event {
            self.aggregates.close(record, projection, detail);
        }
    }

    /// What a decision on the state of these heads is recorded with: no decision goes into the log without it, and none gets it
    /// that changes or looks at an aggregate which a newer version wrote to.
    ///
    /// # Errors
    /// When one of these aggregates is read-only here, or what the decision was given cannot be encoded.
    pub fn grounds<G: Serialize>(
        &self,
        given: &G,
        read_set: ReadSet,
        organization: OrganizationId,
        aggregate: &AggregateRef,
        relies_on: impl FnOnce() -> Vec<AggregateRef>,
    ) -> Result<Grounds, Refusal> {
        if self.aggregates.is_incomplete() {
            for aggregate in relies_on().iter().chain([aggregate]) {
                self.aggregates.writable(organization, aggregate)?;
            }
        }
        let ReadSet { organizations, observed } = read_set;
        let head = |organization: OrganizationId| (organization, self.commits.get(&organization).copied());
        let given =
            events::encode(given).map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        Ok(Grounds { given, commits: organizations.into_iter().map(head).collect(), observed })
    }

    /// A decision that was made on the state of these heads, with its grounds.
    ///
    /// # Errors
    /// As of [`Heads::grounds`].
    pub fn grounded<P: Decides>(
        &self,
        state: &P,
        given: &P::Given,
        draft: Draft,
    ) -> Result<(Draft, Grounds), Refusal> {
        let (read_set, relies_on) = (state.read_set(given), || state.relies_on(given));
        let grounds = self.grounds(given, read_set, draft.organization, &draft.aggregate, relies_on)?;
        Ok((draft, grounds))
    }
}

/// Makes a decision on a state, with what it was made on.
pub(crate) fn make<P: Decides>(
    state: &P,
    heads: &Heads,
    given: &P::Given,
) -> Result<Option<(Draft, Grounds)>, Refusal> {
    let draft = state.make(given)?;
    draft.map(|draft| heads.grounded(state, given, draft)).transpose()
}
