//! What decisions are given, and how each is made: live, and again from what the log holds of it.

use events::delivery::{
    ApplierNamed, BundleDesired, BundleHeld, DeliveryEvent, PruneEntry, SourceRemoved, WantedList,
};
use events::observation::ObservationBatch;
use events::repository::ref_aggregate;
use events::{
    AgentId, AggregateKind, AggregateRef, BlobDigest, Event, InstanceId, OrganizationId, Refusal, SourceId,
    SyncId,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Decides, Draft, ReadSet};

use super::{Cause, Command, DeliveryState, Verdict, Wanted, is_zero};

/// What a decision is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    /// An instance of an agent wants to apply.
    NameApplier {
        /// Whose instance.
        agent: AgentId,
        /// Which.
        instance: InstanceId,
        /// Also if it is named already: it then begins anew, and states all that it finds.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A person asks something of a source.
    Command {
        /// Of which.
        source: SourceId,
        /// What.
        command: Command,
    },
    /// A source's sync may have begun or ended.
    RecordSyncs {
        /// Which source's.
        source: SourceId,
    },
    /// Something about a source may have to be done.
    Settle {
        /// Which.
        source: SourceId,
        /// What the bundles say; `None` when one could not be read.
        surplus: Option<PruneSummary>,
        /// Where the list of it is stored.
        list: Option<BlobDigest>,
        /// Id of the sync that would do it.
        sync: SyncId,
        /// What other sources hold of the bundle.
        #[serde(default)]
        wanted: Wanted,
    },
}

/// Objects of a source's inventory that no bundle of its agent has. Bundles are blobs, so that which objects they are is computed
/// from more than the log holds; the decision depends on this of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneSummary {
    /// How many.
    pub objects: u32,
    /// Whether one of them is not in the list that the agent has.
    pub unlisted: bool,
    /// How many of them the agent was asked to delete before, and kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept: u32,
    /// How many more there are, which are not to be deleted as long as another source may turn out to have them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withheld: u32,
}

impl PruneSummary {
    /// Of the objects that are to go, beside the list that the agent has.
    #[must_use]
    pub fn of(prune: &[PruneEntry], listed: &[PruneEntry]) -> Self {
        let objects = u32::try_from(prune.len()).unwrap_or(u32::MAX);
        Self { objects, unlisted: prune.iter().any(|entry| !listed.contains(entry)), kept: 0, withheld: 0 }
    }
}

/// The event that a verdict comes to, and the chain that it belongs to; `None` when nothing is to be done.
#[must_use]
pub fn event_of(
    verdict: Verdict,
    (source, agent): (SourceId, AgentId),
    (prunes, prune): (u32, Option<BlobDigest>),
    sync: SyncId,
    wanted: Option<WantedList>,
) -> Option<(DeliveryEvent, Option<Cause>)> {
    Some(match verdict {
        Verdict::Nothing => return None,
        Verdict::Hold { commit, bundle, objects, reason, cause } => {
            let held = BundleHeld { source, agent, commit, bundle, objects, reason };
            (DeliveryEvent::BundleHeld(held), Some(cause))
        }
        Verdict::Deliver { commit, bundle, objects, selection, withheld, cause, .. } => {
            let desired = BundleDesired {
                source,
                agent,
                sync,
                commit,
                bundle,
                objects,
                prune,
                prunes,
                wanted,
                withheld,
                selection,
            };
            (DeliveryEvent::BundleDesired(desired), Some(cause))
        }
        Verdict::Remove { .. } => {
            let sync = (prunes > 0).then_some(sync);
            (DeliveryEvent::SourceRemoved(SourceRemoved { source, agent, sync, prune }), None)
        }
    })
}

impl Decides for DeliveryState {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Source, AggregateKind::Applier];

    type Given = Given;

    fn make(&self, given: &Given) -> Result<Option<Draft>, Refusal> {
        match given {
            Given::NameApplier { agent, instance, again } => self.name_applier(*agent, *instance, *again),
            Given::Command { source, command } => {
                Ok(self.source_draft(*source, self.decide(*source, command.clone())?))
            }
            Given::RecordSyncs { source } => Ok(self.source_draft(*source, self.sync_records(*source))),
            Given::Settle { source, surplus, list, sync, wanted } => {
                let Some((agent, ..)) = self.source_head(*source) else { return Ok(None) };
                let prunes = surplus.map_or(0, |surplus| surplus.objects);
                let verdict = self.judge(*source, *surplus, wanted);
                let event = event_of(verdict, (*source, agent), (prunes, *list), *sync, wanted.list.clone());
                Ok(self.source_draft(*source, event.map(|(event, _)| event).into_iter().collect()))
            }
        }
    }

    fn read_set(&self, given: &Given) -> ReadSet {
        let known = self.agent_of(given).and_then(|agent| Some((agent, self.agents.get(&agent)?)));
        let Some((agent, known)) = known else { return ReadSet::default() };
        let mut read_set = ReadSet::decisions_of(known.organization);
        read_set.observed.insert(ObservationBatch::agent_writer(agent), known.seen);
        read_set
    }

    /// What one source is to have depends on what the agent's others have.
    fn relies_on(&self, given: &Given) -> Vec<AggregateRef> {
        let Some(agent) = self.agent_of(given) else { return Vec::new() };
        let of_agent = [AggregateKind::Agent, AggregateKind::Configuration, AggregateKind::Applier];
        let mut relies_on = of_agent.map(|kind| AggregateRef::new(kind, agent)).to_vec();
        if !matches!(given, Given::NameApplier { .. }) {
            for (id, source) in self.sources_of(agent) {
                relies_on.push(AggregateRef::new(AggregateKind::Source, id));
                let on = source.configuration.as_ref();
                relies_on.extend(on.map(|on| ref_aggregate(on.project, &on.reference)));
            }
        }
        relies_on
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        let version = match aggregate.kind {
            AggregateKind::Applier => aggregate.id.parse().ok().map(|agent| self.applier(agent).1),
            AggregateKind::Source => aggregate
                .id
                .parse()
                .ok()
                .and_then(|source| self.source_head(source))
                .map(|(_, _, version)| version),
            _ => None,
        };
        version.unwrap_or(0)
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        match aggregate.kind {
            AggregateKind::Source => Some(yaml(self.sources.get(&aggregate.id.parse().ok()?)?)),
            AggregateKind::Agent | AggregateKind::Configuration | AggregateKind::Applier => {
                Some(yaml(self.agents.get(&aggregate.id.parse().ok()?)?))
            }
            _ => None,
        }
    }
}

impl DeliveryState {
    fn agent_of(&self, given: &Given) -> Option<AgentId> {
        match given {
            Given::NameApplier { agent, .. } => Some(*agent),
            Given::Command { source, .. } | Given::RecordSyncs { source } | Given::Settle { source, .. } => {
                self.source_head(*source).map(|(agent, ..)| agent)
            }
        }
    }

    fn name_applier(
        &self,
        agent: AgentId,
        instance: InstanceId,
        again: bool,
    ) -> Result<Option<Draft>, Refusal> {
        let organization =
            self.organization_of(agent).ok_or_else(|| Refusal::not_found(format!("agent {agent}")))?;
        let (named, expected) = self.applier(agent);
        if named == Some(instance) && !again {
            return Ok(None);
        }
        let aggregate = AggregateRef::new(AggregateKind::Applier, agent);
        let events = vec![DeliveryEvent::ApplierNamed(ApplierNamed { agent, instance }).into()];
        Ok(Some(Draft { organization, aggregate, expected, events }))
    }

    /// A commit on a source at its version; `None` without events.
    pub(crate) fn source_draft(&self, source: SourceId, events: Vec<DeliveryEvent>) -> Option<Draft> {
        let (_, organization, expected) = self.source_head(source)?;
        let aggregate = AggregateRef::new(AggregateKind::Source, source);
        let events: Vec<Event> = events.into_iter().map(Event::from).collect();
        (!events.is_empty()).then_some(Draft { organization, aggregate, expected, events })
    }
}
