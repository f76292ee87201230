//! The state of all sources, folded from the log, and the decisions made on it. Pure.

mod contest;
mod decide;
mod fold;
mod given;
mod news;
mod plan;
mod seen;
mod status;
mod view;
mod withdraw;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use events::configuration::{AgentConfiguration, FileFinding, SourceConfiguration};
use events::delivery::{HoldReason, ObjectFailure, SyncCounts, SyncOutcome, WantedList};
use events::desired::{ConfigurationRejection, FinishedManifest};
use events::object::ObjectKey;
use events::observation::{Observation, Write};
use events::requests::delivery::{RejectedBundle, SourceSync};
use events::{
    AgentId, BlobDigest, CorrelationId, EventId, InstanceId, ObjectIdentity, OrganizationId, Sha256,
    SourceId, SyncId, Timestamp,
};
use serde::{Deserialize, Serialize};

pub use contest::{Wanted, WantedLists};
pub use decide::{BundleContents, Command, Verdict};
pub use given::{Given, PruneSummary, event_of};
use news::ChangeLog;
pub use news::Changes;
pub use plan::{Next, awaits_decision, desired_plan, has_pending, next_sync};
use seen::{AgentSeen, Seen};
pub use status::{Failing, StatusContext, Tally, agent_status, objects_behind, source_status};
pub use view::source_view;
pub use withdraw::withdrawal;

/// Everything that delivery knows.
///
/// Decisions and observations come from two streams between which no order is promised, so what is folded from one never
/// depends on what the other had said by then; only decisions look at both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryState {
    pub(crate) agents: BTreeMap<AgentId, AgentState>,
    pub(crate) sources: BTreeMap<SourceId, SourceState>,
    /// Each agent's own among them.
    pub(crate) of_agents: BTreeMap<AgentId, BTreeSet<SourceId>>,
    /// Up to where each gateway's own observations were folded.
    #[serde(default)]
    pub(crate) gateways: BTreeMap<InstanceId, u64>,
    /// In which order things came is this process's own: another one reads the streams in another order.
    #[serde(skip)]
    pub(crate) news: ChangeLog,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentState {
    pub(crate) organization: OrganizationId,
    /// Its name; empty where a snapshot from before names were kept has the agent.
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) configuration: Option<AgentConfiguration>,
    /// Why its newest configuration is not in force.
    #[serde(default)]
    pub(crate) rejected: Option<ConfigurationRejection>,
    pub(crate) applier: Option<InstanceId>,
    /// Version of the aggregate `applier/<agent>`: the epoch.
    pub(crate) epoch: u64,
    pub(crate) deleted: bool,
    /// Deleted agents whose name it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaces: Vec<AgentId>,
    /// Counts everything that changes what the agent is to have.
    pub(crate) revision: u64,
    /// Last observation that was folded: epoch and sequence.
    pub(crate) seen: (u64, u64),
    /// Observations of the same epoch behind a gap, by the sequence of their first: they wait for what is missing.
    pub(crate) early: BTreeMap<u64, Vec<Observation>>,
    /// Parts of an inventory statement that is not complete yet; of this epoch.
    pub(crate) statement: Vec<events::observation::OwnedObject>,
    /// About how many bytes they are. Above a bound the statement is let go, and nothing comes of it.
    #[serde(default)]
    pub(crate) statement_bytes: u64,
    /// How it stands.
    #[serde(default)]
    pub(crate) seen_of: AgentSeen,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceState {
    pub(crate) organization: OrganizationId,
    pub(crate) agent: AgentId,
    /// What its agent's configuration says; the last one, when it left.
    pub(crate) configuration: Option<SourceConfiguration>,
    /// It is in its agent's configuration.
    pub(crate) configured: bool,
    /// The log has `source.removed` for its leaving.
    pub(crate) removal: Option<Removal>,
    /// Version of the aggregate `source/<id>`.
    pub(crate) version: u64,
    /// The newest good bundle of its ref.
    pub(crate) newest: Option<Bundle>,
    pub(crate) rejected: Option<RejectedBundle>,
    /// What is odd in the newest good bundle.
    #[serde(default)]
    pub(crate) warnings: Vec<FileFinding>,
    /// The globs take no file of the newest good bundle's commit.
    #[serde(default)]
    pub(crate) takes_no_file: bool,
    pub(crate) fetch_failure: Option<String>,
    pub(crate) desired: Option<Desired>,
    pub(crate) held: Option<Held>,
    /// Commit that a person confirmed, by an event from before confirmations belonged to a bundle.
    pub(crate) confirmed: Option<String>,
    /// Bundle that a person confirmed. Ends when another bundle is desired, or when the same bundle means something else.
    #[serde(default)]
    pub(crate) confirmed_bundle: Option<BlobDigest>,
    pub(crate) suspended: Option<String>,
    pub(crate) pinned: Option<Bundle>,
    pub(crate) observed: Option<SyncObserved>,
    /// Runs of the desired sync that the log has `sync.started` and `sync.finished` of.
    pub(crate) recorded: Recorded,
    /// Syncs that were decided, from the one that was recorded last on: what was observed of earlier ones is over, however late it is
    /// read.
    pub(crate) awaited: Vec<SyncId>,
    /// Commit that the cluster is at, and since when.
    pub(crate) synced: Option<(String, Timestamp)>,
    pub(crate) inventory: BTreeMap<ObjectKey, Owned>,
    pub(crate) blocked: Option<String>,
    /// How its objects stand.
    #[serde(default)]
    pub(crate) known: Seen,
    /// Its last syncs, the newest last.
    #[serde(default)]
    pub(crate) syncs: VecDeque<SourceSync>,
}

impl SourceState {
    /// Nothing is known of it but whose it is.
    pub(crate) fn new(organization: OrganizationId, agent: AgentId) -> Self {
        Self {
            organization,
            agent,
            configuration: None,
            configured: false,
            removal: None,
            version: 0,
            newest: None,
            rejected: None,
            warnings: Vec::new(),
            takes_no_file: false,
            fetch_failure: None,
            desired: None,
            held: None,
            confirmed: None,
            confirmed_bundle: None,
            suspended: None,
            pinned: None,
            observed: None,
            recorded: Recorded::default(),
            awaited: Vec::new(),
            synced: None,
            inventory: BTreeMap::new(),
            blocked: None,
            known: Seen::default(),
            syncs: VecDeque::new(),
        }
    }
}

/// A good bundle and the chain that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bundle {
    pub(crate) commit: String,
    pub(crate) digest: BlobDigest,
    pub(crate) objects: u32,
    pub(crate) cause: Cause,
    /// Which files it was made of, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) selection: Option<Sha256>,
}

/// What an effect carries on from its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The chain.
    pub correlation_id: CorrelationId,
    /// The event.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Desired {
    pub(crate) commit: String,
    pub(crate) bundle: BlobDigest,
    pub(crate) sync: SyncId,
    pub(crate) prune: Option<BlobDigest>,
    /// Objects of the bundle that other sources hold.
    #[serde(default)]
    pub(crate) wanted: Option<WantedList>,
    pub(crate) check_all: bool,
    pub(crate) cause: Cause,
    /// Which files its bundle was made of, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) selection: Option<Sha256>,
    /// How many objects left the source and may be in another one, which was not read yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) withheld: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Removal {
    pub(crate) sync: Option<SyncId>,
    pub(crate) prune: Option<BlobDigest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) commit: String,
    pub(crate) bundle: BlobDigest,
    pub(crate) reason: HoldReason,
}

/// What the agent said of the sync that it is at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SyncObserved {
    pub(crate) sync: SyncId,
    pub(crate) epoch: u64,
    pub(crate) run: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) waiting: Option<String>,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) finished: Option<SyncEnd>,
    /// How the run before failed, while another one goes on.
    pub(crate) failed_before: Option<SyncEnd>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SyncEnd {
    pub(crate) at: Timestamp,
    pub(crate) outcome: SyncOutcome,
    pub(crate) counts: SyncCounts,
    pub(crate) failures: Vec<ObjectFailure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) sync: Option<SyncId>,
    pub(crate) started: u32,
    pub(crate) finished: u32,
}

/// One object that a source owns in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owned {
    pub(crate) identity: ObjectIdentity,
    pub(crate) uid: String,
    pub(crate) adopted: bool,
    /// Why the agent left it in place, when it was asked to delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<String>,
    /// It ran to its end under this manifest, and may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finished: Option<FinishedManifest>,
    /// The last write of ours, and when.
    #[serde(default)]
    pub(crate) written: Option<(Write, Timestamp)>,
}

impl DeliveryState {
    /// The last syncs of a source behind a key, the newest first; `None` when there is no such source.
    #[must_use]
    pub fn syncs_behind(
        &self,
        source: SourceId,
        after: Option<(Timestamp, SyncId)>,
        most: usize,
    ) -> Option<Vec<SourceSync>> {
        let known = self.sources.get(&source).filter(|known| known.configured)?;
        let mut syncs: Vec<&SourceSync> = known.syncs.iter().collect();
        syncs.sort_by_key(|sync| std::cmp::Reverse((sync.decided_at, sync.id)));
        let behind =
            syncs.into_iter().filter(|sync| after.is_none_or(|last| (sync.decided_at, sync.id) < last));
        Some(behind.take(most).cloned().collect())
    }

    /// What was touched after `count`.
    #[must_use]
    pub fn touched_since(&self, count: u64) -> Changes {
        self.news.since(count)
    }

    /// Every bundle that some source of a living agent has or is about to have.
    #[must_use]
    pub fn bundles_in_use(&self) -> std::collections::HashSet<BlobDigest> {
        let bundles = self.sources.values().filter(|source| source.configured).flat_map(|source| {
            let desired = source.desired.as_ref().map(|desired| desired.bundle);
            desired.into_iter().chain(source.candidate().map(|bundle| bundle.digest))
        });
        bundles.collect()
    }

    /// The agent's organization, if the agent is known and lives.
    #[must_use]
    pub fn organization_of(&self, agent: AgentId) -> Option<OrganizationId> {
        self.agents.get(&agent).filter(|state| !state.deleted).map(|state| state.organization)
    }

    /// An agent's sources, also those that left its configuration.
    pub(crate) fn sources_of(&self, agent: AgentId) -> impl Iterator<Item = (SourceId, &SourceState)> {
        let own = self.of_agents.get(&agent).into_iter().flatten();
        own.filter_map(|id| Some((*id, self.sources.get(id)?)))
    }

    /// The agent of a source, its organization and the version of its aggregate.
    #[must_use]
    pub fn source_head(&self, source: SourceId) -> Option<(AgentId, OrganizationId, u64)> {
        self.sources.get(&source).map(|state| (state.agent, state.organization, state.version))
    }

    /// The sources in an agent's configuration, in the order of their names.
    #[must_use]
    pub fn configured_sources(
        &self,
        organization: OrganizationId,
        agent: AgentId,
    ) -> BTreeMap<String, SourceId> {
        let own = self.sources_of(agent);
        let own = own.filter(|(_, source)| source.organization == organization && source.configured);
        own.filter_map(|(id, source)| Some((source.configuration.as_ref()?.name.clone(), id))).collect()
    }

    /// Instance and epoch of an agent's applier; epoch 0 while none was named.
    #[must_use]
    pub fn applier(&self, agent: AgentId) -> (Option<InstanceId>, u64) {
        self.agents.get(&agent).map_or((None, 0), |state| (state.applier, state.epoch))
    }

    /// The revision of an agent's desired state.
    #[must_use]
    pub fn revision(&self, agent: AgentId) -> u64 {
        self.agents.get(&agent).map_or(0, |state| state.revision)
    }
}
