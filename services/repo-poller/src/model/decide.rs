//! What is said about a ref, given what was said before.

use std::collections::BTreeMap;

use events::configuration::{FileFinding, GitReference};
use events::repository::{
    BundleRejected, FetchFailed, FetchFailure, FetchRecovered, RepositoryEvent, SourceAdvanced,
};
use events::{
    AgentId, AggregateKind, AggregateRef, BlobDigest, Event, OrganizationId, ProjectId, Refusal, RefusalKind,
    Sha256, SourceId,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Decides, Draft, ReadSet};

use super::{Latest, SourceState, State, ref_aggregate};

/// Encoded events of one commit, in bytes; well below what any log takes, as it is recorded with what it was decided on.
const COMMIT_BYTES: usize = 192 * 1024;

/// What came of one source at a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decided {
    /// A bundle.
    Bundle {
        /// This one.
        bundle: BlobDigest,
        /// How many objects it has.
        objects: u32,
        /// What is odd but harmless.
        warnings: Vec<FileFinding>,
        /// The globs take no file.
        #[serde(default)]
        takes_no_file: bool,
        /// Which files it was made of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Sha256>,
    },
    /// No bundle.
    Rejected {
        /// Why.
        findings: Vec<FileFinding>,
        /// How many findings were left out.
        more: u32,
        /// What is odd but harmless beside it.
        #[serde(default)]
        warnings: Vec<FileFinding>,
    },
}

/// What a decision about a ref is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Whose.
    pub organization: OrganizationId,
    /// Of which project's repository.
    pub project: ProjectId,
    /// Which ref.
    pub reference: GitReference,
    /// What came of looking at it.
    pub found: Found,
}

/// What came of looking at a ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// It was read, and this came of its sources.
    Built {
        /// At this commit.
        commit: String,
        /// Each source.
        outcomes: Vec<(SourceId, AgentId, Decided)>,
    },
    /// It could not be read.
    Failed {
        /// In this way.
        failure: FetchFailure,
        /// As people read it.
        message: String,
        /// For these sources.
        sources: Vec<SourceId>,
    },
}

impl Decides for State {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Ref];

    type Given = Given;

    /// As many events as fit into one commit; what is left is decided again on the state behind it.
    fn make(&self, given: &Given) -> Result<Option<Draft>, Refusal> {
        let Given { organization, project, reference, found } = given;
        let events: Vec<RepositoryEvent> = match found {
            Found::Built { commit, outcomes } => decide_built(self, *project, reference, commit, outcomes),
            Found::Failed { failure, message, sources } => {
                let failed = decide_failed(self, *project, reference, *failure, message, sources.clone());
                failed.into_iter().collect()
            }
        };
        if events.is_empty() {
            return Ok(None);
        }
        let aggregate = ref_aggregate(*project, reference);
        let expected = self.ref_version(&aggregate);
        let events =
            first_batch(events).map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        Ok(Some(Draft { organization: *organization, aggregate, expected, events }))
    }

    fn read_set(&self, given: &Given) -> ReadSet {
        ReadSet::decisions_of(given.organization)
    }

    /// Which bundles there are to build is said by the configurations.
    fn relies_on(&self, given: &Given) -> Vec<AggregateRef> {
        match &given.found {
            Found::Built { outcomes, .. } => outcomes
                .iter()
                .map(|(_, agent, _)| AggregateRef::new(AggregateKind::Configuration, agent))
                .collect(),
            Found::Failed { .. } => Vec::new(),
        }
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.ref_version(aggregate)
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        let known = self.refs.get(&aggregate.id).filter(|_| aggregate.kind == AggregateKind::Ref)?;
        let on_it = |source: &SourceState| ref_aggregate(source.project, &source.reference) == *aggregate;
        let sources: BTreeMap<_, _> = self.sources.iter().filter(|(_, source)| on_it(source)).collect();
        Some(yaml(known) + &yaml(&BTreeMap::from([("sources", sources)])))
    }
}

/// As many events as fit into one commit.
fn first_batch(events: Vec<RepositoryEvent>) -> Result<Vec<Event>, events::EncodeError> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for event in events {
        bytes += event.encode()?.data.len();
        if bytes > COMMIT_BYTES && !batch.is_empty() {
            break;
        }
        batch.push(Event::from(event));
    }
    Ok(batch)
}

/// The ref was read, and this came of its sources: says what is new.
#[must_use]
pub fn decide_built(
    state: &State,
    project: ProjectId,
    reference: &GitReference,
    commit: &str,
    outcomes: &[(SourceId, AgentId, Decided)],
) -> Vec<RepositoryEvent> {
    let mut decided: Vec<RepositoryEvent> =
        decide_recovered(state, project, reference, outcomes).into_iter().collect();
    for (source, agent, outcome) in outcomes {
        let latest = match outcome {
            Decided::Bundle { bundle, takes_no_file, selection, .. } => Latest::Advanced {
                commit: commit.to_owned(),
                bundle: *bundle,
                takes_no_file: *takes_no_file,
                selection: *selection,
            },
            Decided::Rejected { findings, more, .. } => {
                Latest::Rejected { commit: commit.to_owned(), findings: findings.clone(), more: *more }
            }
        };
        if state.latest(*source).is_some_and(|last| last.matches(&latest)) {
            continue;
        }
        let (source, agent, commit) = (*source, *agent, commit.to_owned());
        decided.push(match outcome.clone() {
            Decided::Bundle { bundle, objects, warnings, takes_no_file, selection } => {
                RepositoryEvent::SourceAdvanced(SourceAdvanced {
                    source,
                    agent,
                    commit,
                    bundle,
                    objects,
                    warnings,
                    takes_no_file,
                    selection,
                })
            }
            Decided::Rejected { findings, more, warnings } => {
                RepositoryEvent::BundleRejected(BundleRejected {
                    source,
                    agent,
                    commit,
                    findings,
                    more,
                    warnings,
                })
            }
        });
    }
    decided
}

fn decide_recovered(
    state: &State,
    project: ProjectId,
    reference: &GitReference,
    outcomes: &[(SourceId, AgentId, Decided)],
) -> Option<RepositoryEvent> {
    let failing = |id: &SourceId| state.sources.get(id).is_some_and(|source| source.failing.is_some());
    let sources: Vec<SourceId> = outcomes.iter().map(|(id, ..)| *id).filter(failing).collect();
    let aggregate = ref_aggregate(project, reference);
    let ref_failing = state.refs.get(&aggregate.id).is_some_and(|known| known.failing.is_some());
    (!sources.is_empty() || (outcomes.is_empty() && ref_failing)).then(|| {
        RepositoryEvent::FetchRecovered(FetchRecovered { project, reference: reference.clone(), sources })
    })
}

/// The ref could not be read for these sources: says so, unless it was said for this very reason.
#[must_use]
pub fn decide_failed(
    state: &State,
    project: ProjectId,
    reference: &GitReference,
    failure: FetchFailure,
    message: &str,
    sources: Vec<SourceId>,
) -> Option<RepositoryEvent> {
    let same = |failing: &Option<(FetchFailure, String)>| {
        failing.as_ref().is_some_and(|(kind, text)| *kind == failure && text == message)
    };
    let known = if sources.is_empty() {
        state.refs.get(&ref_aggregate(project, reference).id).is_some_and(|known| same(&known.failing))
    } else {
        sources.iter().all(|id| state.sources.get(id).is_none_or(|source| same(&source.failing)))
    };
    (!known).then(|| {
        let (reference, message) = (reference.clone(), message.to_owned());
        RepositoryEvent::FetchFailed(FetchFailed { project, reference, failure, message, sources })
    })
}
