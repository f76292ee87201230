//! A source's bundle on its way, and its syncs.

use events::delivery::{
    BundleDesired, ObjectFailure, SyncCounts, SyncFinished, SyncOutcome, SyncRequested, SyncStarted,
};
use events::requests::delivery::SourceSync;
use events::{SyncId, Timestamp};

use super::{Cause, Desired, Recorded, SourceState};

pub(super) fn apply_desired(state: &mut SourceState, desired: BundleDesired, cause: Cause, at: Timestamp) {
    // One that was decided before the configuration named the source again may lie behind that configuration.
    state.removal = None;
    state.held = None;
    state.confirmed_bundle = state.confirmed_bundle.filter(|bundle| *bundle == desired.bundle);
    state.awaits(desired.sync);
    state.known.desired_at = Some(at);
    note(state, desired.sync, &desired.commit, at);
    state.desired = Some(Desired {
        commit: desired.commit,
        bundle: desired.bundle,
        sync: desired.sync,
        prune: desired.prune,
        wanted: desired.wanted,
        check_all: false,
        cause,
        selection: desired.selection,
        withheld: desired.withheld,
    });
}

pub(super) fn apply_requested(
    state: &mut SourceState,
    requested: &SyncRequested,
    cause: Cause,
    at: Timestamp,
) {
    state.awaits(requested.sync);
    state.known.desired_at = Some(at);
    let Some(desired) = &mut state.desired else { return };
    desired.sync = requested.sync;
    desired.check_all = true;
    desired.cause = cause;
    let commit = desired.commit.clone();
    note(state, requested.sync, &commit, at);
}

pub(super) fn apply_started(state: &mut SourceState, started: &SyncStarted, at: Timestamp) {
    state.comes_to(started.sync);
    let before = state.recorded;
    let finished = if before.sync == Some(started.sync) { before.finished } else { 0 };
    state.recorded = Recorded { sync: Some(started.sync), started: started.run, finished };
    if let Some(noted) = noted(state, started.sync) {
        noted.started_at.get_or_insert(at);
        noted.runs = started.run;
        (noted.finished_at, noted.outcome) = (None, None);
    }
}

/// Keeps a sync that was decided, and forgets the oldest beyond the limit.
fn note(state: &mut SourceState, id: SyncId, commit: &str, at: Timestamp) {
    state.syncs.push_back(SourceSync {
        id,
        commit: commit.to_owned(),
        decided_at: at,
        started_at: None,
        finished_at: None,
        runs: 0,
        outcome: None,
        counts: SyncCounts::default(),
        failure: None,
    });
    if state.syncs.len() > SourceSync::KEPT {
        state.syncs.pop_front();
    }
}

fn noted(state: &mut SourceState, id: SyncId) -> Option<&mut SourceSync> {
    state.syncs.iter_mut().rev().find(|noted| noted.id == id)
}

fn shortened(failure: &ObjectFailure) -> ObjectFailure {
    let message = failure.message.chars().take(SourceSync::LETTERS).collect();
    ObjectFailure { message, ..failure.clone() }
}

pub(super) fn apply_end(state: &mut SourceState, finished: &SyncFinished, at: Timestamp) {
    state.comes_to(finished.sync);
    state.recorded.sync = Some(finished.sync);
    state.recorded.finished = finished.run;
    state.recorded.started = state.recorded.started.max(finished.run);
    if let Some(noted) = noted(state, finished.sync) {
        noted.started_at.get_or_insert(at);
        noted.runs = noted.runs.max(finished.run);
        (noted.finished_at, noted.outcome) = (Some(at), Some(finished.outcome));
        noted.counts = finished.counts;
        noted.failure = finished.failures.first().map(shortened);
    }
    let commit =
        state.desired.as_ref().filter(|desired| desired.sync == finished.sync).map(|d| d.commit.clone());
    if let (SyncOutcome::Succeeded | SyncOutcome::Unhealthy, Some(commit)) = (finished.outcome, commit) {
        state.synced = Some((commit, at));
    }
}
