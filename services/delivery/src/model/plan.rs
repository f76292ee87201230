//! What an agent is to have, out of the state.

use events::configuration::SourceConfiguration;
use events::desired::{Applier, DesiredPlan, PlannedSource, SourceHead};
use events::{AgentId, CorrelationId, SourceId, SyncId};

use super::{DeliveryState, SourceState};

/// The plan for an agent; `None` while it has no configuration, and for one that is deleted.
#[must_use]
pub fn desired_plan(state: &DeliveryState, agent: AgentId) -> Option<DesiredPlan> {
    let known = state.agents.get(&agent).filter(|known| !known.deleted)?;
    let configuration = known.configuration.as_ref()?;
    let sources = state
        .sources
        .iter()
        .filter(|(_, source)| source.agent == agent && (source.configured || source.removal.is_some()))
        .filter_map(|(id, source)| planned(*id, source))
        .collect();
    Some(DesiredPlan {
        revision: known.revision,
        organization: known.organization,
        agent,
        applier: known.applier.map(|instance| Applier { instance, epoch: known.epoch }),
        mode: configuration.mode,
        resources: configuration.resources.clone(),
        lockdown: configuration.lockdown,
        sources,
    })
}

fn planned(id: SourceId, source: &SourceState) -> Option<PlannedSource> {
    let configuration = source.configuration.as_ref()?;
    if let Some(removal) = &source.removal {
        let mut head = head(id, source, configuration);
        head.sync = removal.sync.unwrap_or(head.sync);
        return Some(PlannedSource { bundle: None, prune: removal.prune, head });
    }
    let desired = source.desired.as_ref();
    Some(PlannedSource {
        bundle: desired.map(|desired| desired.bundle),
        prune: desired.and_then(|desired| desired.prune),
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
    }
}
