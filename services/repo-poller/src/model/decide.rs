//! What is said about a ref, given what was said before.

use events::configuration::{FileFinding, GitReference};
use events::repository::{
    BundleRejected, FetchFailed, FetchFailure, FetchRecovered, RepositoryEvent, SourceAdvanced,
};
use events::{AgentId, BlobDigest, ProjectId, SourceId};

use super::{Latest, State, ref_aggregate};

/// What came of one source at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// A bundle.
    Bundle {
        /// This one.
        bundle: BlobDigest,
        /// How many objects it has.
        objects: u32,
        /// What is odd but harmless.
        warnings: Vec<FileFinding>,
    },
    /// No bundle.
    Rejected {
        /// Why.
        findings: Vec<FileFinding>,
        /// How many findings were left out.
        more: u32,
    },
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
            Decided::Bundle { bundle, .. } => Latest::Advanced { commit: commit.to_owned(), bundle: *bundle },
            Decided::Rejected { findings, more } => {
                Latest::Rejected { commit: commit.to_owned(), findings: findings.clone(), more: *more }
            }
        };
        if state.latest(*source) == Some(&latest) {
            continue;
        }
        let (source, agent, commit) = (*source, *agent, commit.to_owned());
        decided.push(match outcome.clone() {
            Decided::Bundle { bundle, objects, warnings } => {
                RepositoryEvent::SourceAdvanced(SourceAdvanced {
                    source,
                    agent,
                    commit,
                    bundle,
                    objects,
                    warnings,
                })
            }
            Decided::Rejected { findings, more } => {
                RepositoryEvent::BundleRejected(BundleRejected { source, agent, commit, findings, more })
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
