//! What Git, people and syncs make of a source.

use events::Timestamp;
use events::configuration::FileFinding;
use events::delivery::{HoldReason, SyncOutcome, WantedList};
use events::requests::status::{Condition, Reason, State};

use super::{condition, since};
use crate::model::view::wanted;
use crate::model::{AgentState, Desired, Held, SourceState, SyncEnd, SyncObserved};

/// A connected agent that has not begun with a commit after so many milliseconds does not get to it.
const BEGINS_WITHIN: i64 = 60_000;
/// A kind that nothing has served for so many milliseconds is misspelt, or what defines it is not coming by itself.
const SERVED_WITHIN: i64 = 600_000;

/// What is so whatever the cluster is like.
pub(super) fn of_git(source: &SourceState) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(reason) = &source.suspended {
        conditions.push(condition(State::Suspended, Reason::Suspended, suspended(reason)));
    }
    if let Some(failure) = &source.fetch_failure {
        let message = format!("cannot be fetched: {failure}");
        conditions.push(condition(State::Unknown, Reason::FetchFailed, message));
    }
    if let (Some(rejected), None) = (&source.rejected, &source.pinned) {
        let total = rejected.findings.len() + usize::try_from(rejected.more).unwrap_or(0);
        let message = rejection(Some(&rejected.commit), &rejected.findings, total);
        conditions.push(condition(State::Rejected, Reason::CommitRejected, message));
    }
    if let Some((commit, held)) = source.held() {
        conditions.push(condition(State::Held, Reason::Held, is_held(commit, held)));
    }
    if source.takes_no_file && source.pinned.is_none() {
        conditions.push(condition(State::OutOfSync, Reason::NoFile, no_file(source)));
    }
    match &source.desired {
        None if conditions.is_empty() => conditions.push(condition(
            State::Unknown,
            Reason::NoCommit,
            "fetching: no commit of its ref was read yet",
        )),
        None => {}
        Some(_) => conditions.extend(elsewhere(source)),
    }
    conditions
}

/// How far the cluster is with the desired commit.
pub(super) fn of_cluster(source: &SourceState, agent: &AgentState, now: Timestamp) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(blocked) = &source.blocked {
        conditions.push(condition(State::OutOfSync, Reason::Blocked, blocked.clone()));
    }
    if let Some(wanted) = wanted(source).filter(|wanted| wanted.objects > 0) {
        conditions.push(condition(State::OutOfSync, Reason::Wanted, wants(wanted)));
    }
    let (broken, all) = &source.known.broken_watches;
    if let Some(first) = broken.first() {
        let place =
            if first.namespace.is_empty() { String::new() } else { format!(" in {}", first.namespace) };
        let more = if *all > 1 { format!(" (and {} more)", all - 1) } else { String::new() };
        let message =
            format!("drift and health of {}{place} cannot be observed: {}{more}", first.kind, first.reason);
        let began = broken.iter().map(|watch| watch.since).min();
        conditions.push(since(began, condition(State::Unknown, Reason::WatchBroken, message)));
    }
    if let Some(end) = source.observed.as_ref().and_then(|observed| observed.finished.as_ref()) {
        conditions.extend(awaits_kinds(source, end, now));
    }
    if let Some(desired) = &source.desired {
        conditions.push(of_sync(source, agent, desired, now));
    }
    conditions
}

fn of_sync(source: &SourceState, agent: &AgentState, desired: &Desired, now: Timestamp) -> Condition {
    let commit = short(&desired.commit);
    // What an earlier applier found need not be so any more: each begins with all of its sources.
    let observed = source.observed.as_ref();
    let observed = observed.filter(|observed| observed.sync == desired.sync && observed.epoch >= agent.epoch);
    let Some(observed) = observed else {
        let message = format!("waiting for the agent to start with commit {commit}");
        let at = source.known.desired_at;
        let is_late = at.is_some_and(|at| now.millis_since(at) > BEGINS_WITHIN);
        let state = if is_late { State::OutOfSync } else { State::Progressing };
        return since(at, condition(state, Reason::NotBegun, message));
    };
    match &observed.finished {
        None => running(source, observed, commit),
        Some(end) => match end.outcome {
            SyncOutcome::Succeeded => {
                since(Some(end.at), condition(State::InSync, Reason::InSync, format!("at commit {commit}")))
            }
            SyncOutcome::Unhealthy => {
                let message = format!("applied, but {} of its objects are not healthy", end.counts.unhealthy);
                since(Some(end.at), condition(State::Degraded, Reason::ObjectUnhealthy, message))
            }
            SyncOutcome::Superseded | SyncOutcome::Interrupted => {
                let message = format!(
                    "the sync of commit {commit} was interrupted; it restarts when the agent reports again"
                );
                since(Some(end.at), condition(State::Progressing, Reason::Interrupted, message))
            }
            // All that failed is what other sources hold, of which there is a condition.
            SyncOutcome::Failed if wanted(source).is_some_and(|all| end.counts.failed <= all.objects) => {
                since(Some(end.at), condition(State::InSync, Reason::InSync, format!("at commit {commit}")))
            }
            SyncOutcome::Failed => {
                let out = condition(State::OutOfSync, Reason::SyncFailed, failed(end, observed.retry_at));
                let began = source.known.failed_since.or(Some(end.at));
                Condition { retry_at: observed.retry_at, ..since(began, out) }
            }
        },
    }
}

fn running(source: &SourceState, observed: &SyncObserved, commit: &str) -> Condition {
    match (&observed.waiting, &observed.failed_before) {
        (Some(reason), _) => {
            let message = format!("waiting for {reason}");
            since(Some(observed.started_at), condition(State::Progressing, Reason::Waiting, message))
        }
        (None, Some(end)) => {
            let message = format!("{}; retrying now", failed(end, None));
            let began = source.known.failed_since.or(Some(end.at));
            since(began, condition(State::OutOfSync, Reason::SyncFailed, message))
        }
        (None, None) => {
            let message = format!("syncing commit {commit}");
            since(Some(observed.started_at), condition(State::Progressing, Reason::Syncing, message))
        }
    }
}

/// Nothing is kept applied, which is hardly meant.
fn no_file(source: &SourceState) -> String {
    let commit = source.newest.as_ref().map(|newest| short(&newest.commit)).unwrap_or_default();
    let include = source.configuration.as_ref().map(|known| known.include.join(", ")).unwrap_or_default();
    format!("include [{include}] selects no file of commit {commit}, so nothing is applied")
}

/// Why this commit, which the agent should have, was not delivered yet.
pub(in crate::model) fn pending_reason(source: &SourceState, commit: &str) -> String {
    match (&source.suspended, source.held()) {
        (Some(reason), _) => suspended(reason),
        (None, Some((commit, held))) => is_held(commit, held),
        (None, None) => format!("commit {} is about to be delivered", short(commit)),
    }
}

/// Why nothing is delivered to a source.
pub(in crate::model) fn suspended(reason: &str) -> String {
    let given = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("suspended{given}; resume it to continue")
}

fn is_held(commit: &str, held: &Held) -> String {
    format!("commit {} is held: {}; confirm it to continue", short(commit), hold(&held.reason))
}

/// The agent is to have another commit than it has, or a person chose another one than the newest.
fn elsewhere(source: &SourceState) -> Option<Condition> {
    let next = source.candidate().filter(|next| !source.is_desired(next));
    if let Some(next) = next {
        // Those conditions say why it is not delivered.
        if source.suspended.is_some() || source.held().is_some() {
            return None;
        }
        let pinned = if source.pinned.is_some() { "pinned to it; " } else { "" };
        let message = format!("{pinned}commit {} is about to be delivered", short(&next.commit));
        return Some(condition(State::Progressing, Reason::Delivering, message));
    }
    let pinned = source.pinned.as_ref()?;
    if pinned.is_withdrawn() {
        let message =
            "withdrawn: what it owned was deleted with its environment; unpin it to apply its ref again";
        return Some(condition(State::InSync, Reason::Pinned, message));
    }
    let newest = source.newest.as_ref().filter(|newest| newest.commit != pinned.commit)?;
    let message = format!(
        "pinned to commit {}, while {} is the newest; unpin it to follow its ref",
        short(&pinned.commit),
        short(&newest.commit)
    );
    Some(condition(State::InSync, Reason::Pinned, message))
}

/// Some objects' kinds are not served yet; the first of them says what is missing.
fn awaits_kinds(source: &SourceState, end: &SyncEnd, now: Timestamp) -> Option<Condition> {
    let count = end.counts.waiting;
    if count == 0 {
        return None;
    }
    let began = source.known.awaiting_since.unwrap_or(end.at);
    let is_late = now.millis_since(began) > SERVED_WITHIN;
    let first = end.failures.iter().find_map(|failure| Some((&failure.identity, failure.awaits_kind()?)));
    let first = first.map_or_else(String::new, |(identity, why)| format!(", the first is {identity}: {why}"));
    let advice = match is_late {
        true => "; install what defines them, or correct their group and kind",
        false => "",
    };
    let message = format!("applied, but {count} of its objects wait for their kinds{first}{advice}");
    let state = if is_late { State::OutOfSync } else { State::Progressing };
    Some(since(Some(began), condition(state, Reason::KindAwaited, message)))
}

fn failed(end: &SyncEnd, retry_at: Option<Timestamp>) -> String {
    let first = end.failures.first().map_or_else(String::new, |failure| {
        let place = if failure.file.is_empty() {
            String::new()
        } else {
            format!(" ({}:{})", failure.file, failure.line)
        };
        format!(": {}{place}: {}", failure.identity, failure.message)
    });
    let retry = retry_at.map_or_else(String::new, |at| format!("; retry at {at}"));
    format!("failed{first}{retry}")
}

fn wants(wanted: &WantedList) -> String {
    let more = if wanted.objects > 1 { format!(" (and {} more)", wanted.objects - 1) } else { String::new() };
    let first = wanted
        .first
        .first()
        .map_or_else(String::new, |first| format!("{}{more}: {}", first.object, first.reason()));
    format!("everything else is applied; not applied: {first}")
}

/// Why a commit was rejected, in one line; `total` counts also the findings that are not kept.
pub(in crate::model) fn rejection(commit: Option<&str>, findings: &[FileFinding], total: usize) -> String {
    let first =
        findings.first().map_or_else(String::new, |finding| match (finding.file.as_str(), finding.line) {
            ("", _) => format!(": {}", finding.message),
            (file, 0) => format!(": {file}: {}", finding.message),
            (file, line) => format!(": {file}:{line}: {}", finding.message),
        });
    let more = if total > 1 { format!(" (and {} more)", total - 1) } else { String::new() };
    match commit {
        Some(commit) => format!("commit {} was rejected{first}{more}", short(commit)),
        None => format!("rejected{first}{more}"),
    }
}

fn hold(reason: &HoldReason) -> String {
    match reason {
        HoldReason::Empty => "it has no objects, so all of the source's would be pruned".to_owned(),
        HoldReason::LargePrune { prunes, inventory } => {
            format!("it would prune {prunes} of {inventory} objects")
        }
    }
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}
