//! What an agent is to have, out of the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::configuration::SourceConfiguration;
use events::delivery::{PruneEntry, WantedObject};
use events::desired::{Applier, DesiredPlan, PlannedSource, SourceHead};
use events::requests::delivery::NextSync;
use events::requests::diff::{DiffChange, DiffReason, ObjectDiff};
use events::{AgentId, BlobDigest, CorrelationId, SourceId, SyncId};

use super::status::{pending_reason, suspended};
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
        observe: configuration.observe.clone(),
        health: configuration.health.for_agents(),
        lockdown: configuration.lockdown,
        replaces: known.replaces.clone(),
        rejected: known.rejected.clone(),
        sources,
    })
}

/// What a source's agent is to have next, and lists that are not stored yet.
#[derive(Debug)]
pub struct Next {
    /// What; without the addresses of the lists.
    pub next: NextSync,
    /// What the bundle that waits would delete, and what it wants of other sources; absent where none waits.
    pub lists: Option<(Vec<PruneEntry>, Vec<WantedObject>)>,
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
) -> Option<Next> {
    let known = state.sources.get(&source).filter(|known| known.configured)?;
    let (kept, more_kept) = match known.candidate() {
        Some(candidate) => kept(state, source, known, Some(candidate.digest), contents)?,
        None => (Vec::new(), 0),
    };
    let mut next = NextSync {
        planned: planned(source, known)?,
        pending: known.suspended.as_deref().map(suspended),
        rejected: known.rejected.clone().filter(|_| known.pinned.is_none()),
        fetch_failure: known.fetch_failure.clone(),
        kept,
        more_kept,
    };
    let Some(waiting) = known.candidate().filter(|next| !known.is_desired(next)) else {
        return Some(Next { next, lists: None });
    };
    let prune = state.prune_for(source, known, Some(waiting.digest), contents)?.prune;
    let wanted = state.wanted(source, contents, lists)?;
    next.planned.bundle = Some(waiting.digest);
    (next.planned.prune, next.planned.wanted) = (None, None);
    next.planned.head.commit.clone_from(&waiting.commit);
    next.pending = Some(pending_reason(known, &waiting.commit));
    Some(Next { next, lists: Some((prune, wanted)) })
}

/// The first objects that left Git and are not to be pruned, with the reason, and how many more there are. `None` when a bundle's
/// contents are not known.
pub(super) fn kept(
    state: &DeliveryState,
    source: SourceId,
    known: &SourceState,
    own: Option<BlobDigest>,
    contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
) -> Option<(Vec<ObjectDiff>, u32)> {
    let policies = &known.configuration.as_ref()?.policies;
    let current = state.current_bundles(source, known, own, contents)?;
    let is_withheld = state.is_withheld(known);
    let mut all = known.inventory.iter().filter(|(key, _)| current.lacks(key)).filter_map(|(_, owned)| {
        let (reason, message) = if !policies.prune {
            (DiffReason::PruningOff, "the source's policies switch pruning off (prune: false)")
        } else if owned.adopted && !policies.prune_adopted {
            (
                DiffReason::AdoptedBefore,
                "it was there before and was adopted; only with prune_adopted: true it is pruned",
            )
        } else if is_withheld {
            (DiffReason::Withheld, "another source of the agent may have it now, which was not read yet")
        } else {
            return None;
        };
        Some(ObjectDiff::new(owned.identity.clone(), DiffChange::Keep).because(reason, message))
    });
    let first: Vec<ObjectDiff> = all.by_ref().take(NextSync::KEPT).collect();
    Some((first, u32::try_from(all.count()).unwrap_or(u32::MAX)))
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
