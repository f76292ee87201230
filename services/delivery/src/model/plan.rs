//! What an agent is to have, out of the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::configuration::SourceConfiguration;
use events::delivery::{PruneEntry, WantedObject};
use events::desired::{Applier, DesiredPlan, PlannedSource, SourceHead};
use events::requests::delivery::NextSync;
use events::{AgentId, BlobDigest, CorrelationId, SourceId, SyncId};

use super::status::why_pending;
use super::{BundleContents, DeliveryState, SourceState, WantedLists};

/// The plan for an agent; `None` while it has no configuration, and for one that is deleted.
#[must_use]
pub fn desired_plan(state: &DeliveryState, agent: AgentId) -> Option<DesiredPlan> {
    let known = state.agents.get(&agent).filter(|known| !known.deleted)?;
    let configuration = known.configuration.as_ref()?;
    let sources = state
        .sources_of(agent)
        .filter(|(_, source)| source.configured || source.removal.is_some())
        .filter_map(|(id, source)| planned(id, source))
        .collect();
    Some(DesiredPlan {
        revision: known.revision,
        organization: known.organization,
        agent,
        applier: known.applier.map(|instance| Applier { instance, epoch: known.epoch }),
        mode: configuration.mode,
        resources: configuration.resources.clone(),
        lockdown: configuration.lockdown,
        replaces: known.replaces.clone(),
        sources,
    })
}

/// What a source's agent is to have next: as its plan stands, or with the bundle that waits for a person and what it would
/// delete and want of other sources. `contents` has all of [`DeliveryState::bundles_needed`], `lists` all of
/// [`DeliveryState::wanted_lists_needed`]; `None` when there is no such source.
#[must_use]
pub fn next_sync(
    state: &DeliveryState,
    source: SourceId,
    contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
    lists: &WantedLists,
) -> Option<(NextSync, Vec<PruneEntry>, Vec<WantedObject>)> {
    let known = state.sources.get(&source).filter(|known| known.configured)?;
    let mut planned = planned(source, known)?;
    let Some(waiting) = known.candidate().filter(|next| !known.is_desired(next)) else {
        return Some((NextSync { planned, pending: None }, Vec::new(), Vec::new()));
    };
    let prune = state.prune_for(source, known, Some(waiting.digest), contents)?.prune;
    let wanted = state.wanted(source, contents, lists)?;
    planned.bundle = Some(waiting.digest);
    (planned.prune, planned.wanted) = (None, None);
    planned.head.commit.clone_from(&waiting.commit);
    Some((NextSync { planned, pending: Some(why_pending(known, &waiting.commit)) }, prune, wanted))
}

/// Whether a bundle waits for a source's agent to be told of it.
#[must_use]
pub fn has_pending(state: &DeliveryState, source: SourceId) -> bool {
    let known = state.sources.get(&source).filter(|known| known.configured);
    known.is_some_and(|known| known.candidate().is_some_and(|next| !known.is_desired(next)))
}

/// Whether delivery itself is about to deliver a source's bundle or to hold it: nobody else has to do anything for that.
#[must_use]
pub fn awaits_decision(state: &DeliveryState, source: SourceId) -> bool {
    let Some(known) = state.sources.get(&source).filter(|known| known.configured) else { return false };
    let lives = state.agents.get(&known.agent).is_some_and(|agent| !agent.deleted);
    let is_open = known.held().is_none() || known.candidate().is_some_and(|next| known.is_confirmed(next));
    lives && known.suspended.is_none() && is_open && has_pending(state, source)
}

fn planned(id: SourceId, source: &SourceState) -> Option<PlannedSource> {
    let configuration = source.configuration.as_ref()?;
    if let Some(removal) = &source.removal {
        let mut head = head(id, source, configuration);
        head.sync = removal.sync.unwrap_or(head.sync);
        return Some(PlannedSource { bundle: None, prune: removal.prune, wanted: None, head });
    }
    let desired = source.desired.as_ref();
    Some(PlannedSource {
        bundle: desired.map(|desired| desired.bundle),
        prune: desired.and_then(|desired| desired.prune),
        wanted: desired.and_then(|desired| desired.wanted.as_ref()).map(|wanted| wanted.list),
        head: head(id, source, configuration),
    })
}

fn head(id: SourceId, source: &SourceState, configuration: &SourceConfiguration) -> SourceHead {
    let desired = source.desired.as_ref();
    SourceHead {
        source: id,
        name: configuration.name.clone(),
        sync: desired.map_or(SyncId(id.0), |desired| desired.sync),
        check_all: desired.is_some_and(|desired| desired.check_all),
        commit: desired.map(|desired| desired.commit.clone()).unwrap_or_default(),
        correlation_id: desired.map_or(CorrelationId(id.0), |desired| desired.cause.correlation_id),
        traceparent: desired.and_then(|desired| desired.cause.traceparent.clone()),
        suspended: source.suspended.is_some(),
        removed: source.removal.is_some(),
        default_namespace: configuration.default_namespace.clone(),
        service_account: configuration.service_account.clone(),
        policies: configuration.policies.clone(),
        finished: source.inventory.values().filter_map(|owned| owned.finished.clone()).collect(),
    }
}
