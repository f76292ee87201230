//! How a source stands, for people.

use events::SourceId;
use events::delivery::WantedList;
use events::requests::delivery::{HeldBundle, KeptObject, SourceView, SyncView};

use super::{DeliveryState, SourceState, StatusContext, source_status};

/// The view of a source; `None` when it is not known or left the configuration.
#[must_use]
pub fn source_view(state: &DeliveryState, source: SourceId, around: &StatusContext) -> Option<SourceView> {
    let known = state.sources.get(&source).filter(|known| known.configured)?;
    let status = source_status(state, source, around)?;
    Some(SourceView {
        id: source,
        agent: known.agent,
        configuration: known.configuration.clone()?,
        newest_good_commit: known.newest.as_ref().map(|bundle| bundle.commit.clone()),
        newest_commit: newest(known),
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
        kept: u32::try_from(kept(known).count()).unwrap_or(u32::MAX),
        kept_objects: kept(known).take(SourceView::KEPT_OBJECTS).collect(),
        why: status.why(),
        status,
    })
}

/// Objects that other sources hold.
pub(super) fn wanted(known: &SourceState) -> Option<&WantedList> {
    known.desired.as_ref()?.wanted.as_ref()
}

/// Objects that were to be pruned and stay in place.
fn kept(known: &SourceState) -> impl Iterator<Item = KeptObject> {
    known.inventory.values().filter_map(|owned| {
        Some(KeptObject { identity: owned.identity.clone(), reason: owned.kept.clone()? })
    })
}

/// What was rejected came after what was good, or it would not be rejected any more.
fn newest(known: &SourceState) -> Option<String> {
    let rejected = known.rejected.as_ref().map(|rejected| &rejected.commit);
    rejected.or(known.newest.as_ref().map(|bundle| &bundle.commit)).cloned()
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
