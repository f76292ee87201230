//! Withdrawing a source: all objects that it owns are deleted, by the same rules as objects that leave Git, until somebody unpins it.
//!
//! It is a pin to a bundle without objects. So pruning policies, adopted objects, objects of other sources, and the agent's own reasons to keep an
//! object count as they do elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::delivery::{BundleConfirmed, DeliveryEvent, NO_COMMIT, SourcePinned};
use events::requests::delivery::KeptObject;
use events::requests::environments::WithdrawnSource;
use events::{BlobDigest, SourceId};

use super::plan::kept;
use super::status::suspended;
use super::{Bundle, BundleContents, DeliveryState, SourceState};

impl Bundle {
    /// Stands for a source that was withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.commit == NO_COMMIT
    }
}

impl SourceState {
    pub(super) fn decide_withdraw(&self, source: SourceId, bundle: BlobDigest) -> Vec<DeliveryEvent> {
        if self.pinned.as_ref().is_some_and(Bundle::is_withdrawn) {
            return Vec::new();
        }
        let commit = NO_COMMIT.to_owned();
        vec![
            DeliveryEvent::SourcePinned(SourcePinned { source, commit: commit.clone(), bundle, objects: 0 }),
            DeliveryEvent::BundleConfirmed(BundleConfirmed { source, commit, bundle: Some(bundle) }),
        ]
    }
}

/// The objects that withdrawing a source would delete, and those that would stay. `contents` has all of [`DeliveryState::bundles_needed`]; `None` when there
/// is no such source.
#[must_use]
pub fn withdrawal(
    state: &DeliveryState,
    source: SourceId,
    contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
) -> Option<WithdrawnSource> {
    let known = state.sources.get(&source).filter(|known| known.configured)?;
    let prune = state.prune_for(source, known, None, contents)?.prune;
    let (stay, more) = kept(state, source, known, None, contents)?;
    let reason = |message: Option<String>| message.unwrap_or_default();
    Some(WithdrawnSource {
        source,
        name: known.configuration.as_ref()?.name.clone(),
        agent: known.agent,
        deletes: u32::try_from(prune.len()).unwrap_or(u32::MAX),
        objects: prune.into_iter().take(WithdrawnSource::SHOWN).map(|entry| entry.identity).collect(),
        stay: u32::try_from(stay.len()).unwrap_or(u32::MAX).saturating_add(more),
        kept: stay
            .into_iter()
            .take(WithdrawnSource::SHOWN)
            .map(|one| KeptObject { identity: one.identity, reason: reason(one.message) })
            .collect(),
        waits: known.suspended.as_deref().map(suspended),
        refused: None,
    })
}
