//! A source's bundle on its way, and the end of its syncs.

use events::Timestamp;
use events::delivery::{BundleDesired, SyncFinished, SyncOutcome};

use super::{Cause, Desired, SourceState};

pub(super) fn apply_desired(state: &mut SourceState, desired: BundleDesired, cause: Cause, at: Timestamp) {
    // One that was decided before the configuration named the source again may lie behind that configuration.
    state.removal = None;
    state.held = None;
    state.confirmed_bundle = state.confirmed_bundle.filter(|bundle| *bundle == desired.bundle);
    state.awaits(desired.sync);
    state.known.desired_at = Some(at);
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

pub(super) fn apply_end(state: &mut SourceState, finished: &SyncFinished, at: Timestamp) {
    state.comes_to(finished.sync);
    state.recorded.sync = Some(finished.sync);
    state.recorded.finished = finished.run;
    state.recorded.started = state.recorded.started.max(finished.run);
    let commit =
        state.desired.as_ref().filter(|desired| desired.sync == finished.sync).map(|d| d.commit.clone());
    if let (SyncOutcome::Succeeded | SyncOutcome::Unhealthy, Some(commit)) = (finished.outcome, commit) {
        state.synced = Some((commit, at));
    }
}
