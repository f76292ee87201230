//! Models that decide, so that each decision can be made again from what the log holds of it.

use std::collections::{BTreeMap, BTreeSet};

use events::{
    AggregateKind, AggregateRef, CommitId, EncodeError, Event, Grounds, OrganizationId, Refusal, RefusalKind,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::following::Following;
use crate::log::Record;
use crate::projection::Projection;

/// A model that decides on what it folds. Pure.
///
/// Laws:
/// 1. [`Decides::make`] depends on nothing but what it is given and the folded records of what [`Decides::looked_at`] names.
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
    fn looked_at(&self, given: &Self::Given) -> LookedAt;

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
pub struct LookedAt {
    /// Decisions of these organizations.
    pub organizations: BTreeSet<OrganizationId>,
    /// Observations of these writers, up to this epoch and sequence.
    pub observed: BTreeMap<String, (u64, u64)>,
}

impl LookedAt {
    /// Decisions of one organization, and no observations.
    #[must_use]
    pub fn decisions_of(organization: OrganizationId) -> Self {
        Self { organizations: [organization].into(), observed: BTreeMap::new() }
    }
}

/// The last commit of each organization that a state is the fold of, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heads(BTreeMap<OrganizationId, (CommitId, u64)>);

impl Heads {
    /// Takes note of a record that was folded.
    pub fn note(&mut self, record: &Record) {
        if let Some(commit) = record.commit() {
            let head = self.0.entry(commit.organization).or_insert((commit.id, 0));
            *head = (commit.id, head.1 + 1);
        }
    }

    /// What a decision on the state of these heads is recorded with.
    ///
    /// # Errors
    /// When what it was given cannot be encoded.
    pub fn grounds<G: Serialize>(&self, given: &G, looked_at: LookedAt) -> Result<Grounds, EncodeError> {
        let head = |organization: OrganizationId| (organization, self.0.get(&organization).copied());
        Ok(Grounds {
            given: events::encode(given)?,
            commits: looked_at.organizations.into_iter().map(head).collect(),
            observed: looked_at.observed,
        })
    }
}

impl<P: Decides> Following<P> {
    /// Makes a decision on the state as it is; with what it was made on.
    ///
    /// # Errors
    /// The decision's refusal.
    pub fn make(&self, given: &P::Given) -> Result<Option<(Draft, Grounds)>, Refusal> {
        self.read_with_heads(|state, heads| make(state, heads, given))
    }
}

/// Makes a decision on a state, with what it was made on.
pub(crate) fn make<P: Decides>(
    state: &P,
    heads: &Heads,
    given: &P::Given,
) -> Result<Option<(Draft, Grounds)>, Refusal> {
    let Some(draft) = state.make(given)? else { return Ok(None) };
    let grounds = heads.grounds(given, state.looked_at(given));
    let grounds = grounds.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
    Ok(Some((draft, grounds)))
}
