//! How a source stands, for people.

use events::delivery::{HoldReason, SyncOutcome, WantedList};
use events::requests::delivery::{HeldBundle, SourceView, SyncView};
use events::{SourceId, Timestamp};

use super::{DeliveryState, Held, SourceState};

/// The view of a source; `None` when it is not known or left the configuration.
#[must_use]
pub fn source_view(state: &DeliveryState, source: SourceId) -> Option<SourceView> {
    let known = state.sources.get(&source).filter(|known| known.configured)?;
    let connected = state.agents.get(&known.agent).is_some_and(|agent| agent.applier.is_some());
    Some(SourceView {
        id: source,
        agent: known.agent,
        configuration: known.configuration.clone()?,
        newest_commit: known.newest.as_ref().map(|bundle| bundle.commit.clone()),
        rejected: known.rejected.clone(),
        warnings: known.warnings.clone(),
        takes_no_file: known.takes_no_file,
        desired_commit: known.desired.as_ref().map(|desired| desired.commit.clone()),
        synced_commit: known.synced.as_ref().map(|(commit, _)| commit.clone()),
        synced_at: known.synced.as_ref().map(|(_, at)| *at),
        held: known
            .held()
            .map(|(commit, held)| HeldBundle { commit: commit.to_owned(), reason: held.reason.clone() }),
        suspended: known.suspended.clone(),
        pinned: known.pinned.as_ref().map(|pinned| pinned.commit.clone()),
        sync: sync_view(known),
        inventory: u32::try_from(known.inventory.len()).unwrap_or(u32::MAX),
        fetch_failure: known.fetch_failure.clone(),
        blocked: known.blocked.clone(),
        wants: wanted(known).map_or(0, |wanted| wanted.objects),
        wanted: wanted(known).map(|wanted| wanted.first.clone()).unwrap_or_default(),
        why: why(known, connected),
    })
}

/// Objects that other sources hold.
fn wanted(known: &SourceState) -> Option<&WantedList> {
    known.desired.as_ref()?.wanted.as_ref()
}

fn sync_view(known: &SourceState) -> Option<SyncView> {
    let desired = known.desired.as_ref()?;
    let observed = known.observed.as_ref().filter(|observed| observed.sync == desired.sync);
    let end = observed.and_then(|observed| observed.finished.as_ref());
    Some(SyncView {
        id: desired.sync,
        commit: desired.commit.clone(),
        started_at: observed.map(|observed| observed.started_at),
        finished_at: end.map(|end| end.at),
        outcome: end.map(|end| end.outcome),
        counts: end.map(|end| end.counts).unwrap_or_default(),
        failures: end.map(|end| end.failures.clone()).unwrap_or_default(),
        waiting: observed.and_then(|observed| observed.waiting.clone()),
        retry_at: observed.and_then(|observed| observed.retry_at),
    })
}

/// In one line, why the cluster is not at the last commit; `None` when it is. What stops first is said first.
pub(crate) fn why(source: &SourceState, connected: bool) -> Option<String> {
    if let Some(reason) = &source.suspended {
        return Some(suspended(reason));
    }
    if let Some(failure) = &source.fetch_failure {
        return Some(format!("cannot be fetched: {failure}"));
    }
    if let (Some(rejected), None) = (&source.rejected, &source.pinned) {
        return Some(rejection(rejected));
    }
    if let Some((commit, held)) = source.held() {
        return Some(is_held(commit, held));
    }
    if source.takes_no_file && source.pinned.is_none() {
        return Some(no_file(source));
    }
    let Some(desired) = &source.desired else {
        return Some("fetching: no commit of its ref was read yet".to_owned());
    };
    if let Some(blocked) = &source.blocked {
        return Some(blocked.clone());
    }
    if !connected {
        return Some("waiting for its agent: it never connected".to_owned());
    }
    sync_reason(source, desired.sync, &desired.commit)
        .or_else(|| wanted(source).map(wants))
        .or_else(|| elsewhere(source, &desired.commit))
}

/// Nothing is kept applied, which is hardly meant.
fn no_file(source: &SourceState) -> String {
    let commit = source.newest.as_ref().map(|newest| short(&newest.commit)).unwrap_or_default();
    let include = source.configuration.as_ref().map(|known| known.include.join(", ")).unwrap_or_default();
    format!("no file of commit {commit} is taken by include [{include}], so nothing is kept applied")
}

/// Why this commit, which the agent should have, was not delivered yet.
pub(super) fn why_pending(source: &SourceState, commit: &str) -> String {
    match (&source.suspended, source.held()) {
        (Some(reason), _) => suspended(reason),
        (None, Some((commit, held))) => is_held(commit, held),
        (None, None) => format!("commit {} is about to be delivered", short(commit)),
    }
}

fn suspended(reason: &str) -> String {
    let given = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("suspended{given}; resume it to go on")
}

fn is_held(commit: &str, held: &Held) -> String {
    format!("commit {} is held: {}; confirm it to go on", short(commit), hold(&held.reason))
}

/// Everything is done, and not with the newest commit.
fn elsewhere(source: &SourceState, desired: &str) -> Option<String> {
    let newest = &source.newest.as_ref().filter(|newest| newest.commit != desired)?.commit;
    Some(match &source.pinned {
        Some(pinned) => format!(
            "pinned to commit {}, while {} is the newest; unpin it to follow its ref",
            short(&pinned.commit),
            short(newest)
        ),
        None => format!("commit {} is about to be delivered", short(newest)),
    })
}

fn sync_reason(source: &SourceState, sync: events::SyncId, commit: &str) -> Option<String> {
    let commit = short(commit);
    let Some(observed) = source.observed.as_ref().filter(|observed| observed.sync == sync) else {
        return Some(format!("waiting for the agent to begin with commit {commit}"));
    };
    match &observed.finished {
        None => Some(match (&observed.waiting, &observed.failed_before) {
            (Some(reason), _) => format!("waiting for {reason}"),
            (None, Some(end)) => format!("{}; trying again now", failed(end, None)),
            (None, None) => format!("syncing commit {commit}"),
        }),
        Some(end) => match end.outcome {
            SyncOutcome::Succeeded => is_waiting(end),
            SyncOutcome::Unhealthy => {
                Some(format!("applied, but {} of its objects are not healthy", end.counts.unhealthy))
            }
            SyncOutcome::Superseded | SyncOutcome::Interrupted => Some(format!(
                "the sync of commit {commit} was interrupted; it begins again with the agent's next word"
            )),
            // All that failed is what other sources hold.
            SyncOutcome::Failed if wanted(source).is_some_and(|all| end.counts.failed <= all.objects) => None,
            SyncOutcome::Failed => Some(failed(end, observed.retry_at)),
        },
    }
}

/// Some objects' kinds are not served yet; the first of them says what is missing.
fn is_waiting(end: &super::SyncEnd) -> Option<String> {
    let count = end.counts.waiting;
    let first = end.failures.first().map_or_else(String::new, |failure| {
        format!(", the first is {}: {}", failure.identity, failure.message)
    });
    (count > 0).then(|| format!("applied, but {count} of its objects wait for their kinds{first}"))
}

fn failed(end: &super::SyncEnd, retry_at: Option<Timestamp>) -> String {
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

fn rejection(rejected: &events::requests::delivery::RejectedBundle) -> String {
    let first = rejected.findings.first().map_or_else(String::new, |finding| {
        match (finding.file.as_str(), finding.line) {
            ("", _) => format!(": {}", finding.message),
            (file, 0) => format!(": {file}: {}", finding.message),
            (file, line) => format!(": {file}:{line}: {}", finding.message),
        }
    });
    let total = rejected.findings.len() + usize::try_from(rejected.more).unwrap_or(0);
    let more = if total > 1 { format!(" (and {} more)", total - 1) } else { String::new() };
    format!("commit {} was rejected{first}{more}", short(&rejected.commit))
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
