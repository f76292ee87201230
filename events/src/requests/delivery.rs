//! What delivery answers.

use serde::{Deserialize, Serialize};

use crate::configuration::{FileFinding, SourceConfiguration};
use crate::delivery::{HoldReason, ObjectFailure, SyncCounts, SyncOutcome, WantedObject};
use crate::desired::{Applier, DesiredPlan, PlannedSource};
use crate::id::{AgentId, InstanceId, SourceId, SyncId};
use crate::object::ObjectIdentity;
use crate::request::request;
use crate::requests::diff::ObjectDiff;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::requests::status::Status;
use crate::time::Timestamp;

/// What agents are to have now. Asked by gateways when tunnels open and after `desired.changed`. Plans are answered in the order of
/// the agents, of the first ones only where the answer would not fit into a message: at least of one. There is none for an agent
/// without a configuration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowDesired {
    /// Which agents, [`ShowDesired::MOST`] at most.
    pub agents: Vec<AgentId>,
}
request!(ShowDesired => Vec<Option<DesiredPlan>>, "delivery.show-desired");

impl ShowDesired {
    /// So many agents at once.
    pub const MOST: usize = 128;
}

/// What a source's agent is to have next. Only for services, which ask authz first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowNext {
    /// Which source.
    pub source: SourceId,
}
request!(ShowNext => NextSync, "delivery.show-next");

/// The answer to [`ShowNext`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextSync {
    /// As its plan would be: the bundle that waits for a person, or else the one that the agent has been told of.
    pub planned: PlannedSource,
    /// Why it is not delivered yet, or not applied; absent when the agent is to apply it now.
    pub pending: Option<String>,
    /// The newest commit was rejected, so that this is an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedBundle>,
    /// Why the repository cannot be read, so that there may be newer commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_failure: Option<String>,
    /// The first objects that left Git and are not to be pruned, [`NextSync::KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<ObjectDiff>,
    /// How many more there are.
    #[serde(default)]
    pub more_kept: u32,
}

impl NextSync {
    /// So many objects that stay are named.
    pub const KEPT: usize = 100;
}

/// Desired states changed: a notice under `desired.changed`, to the gateways.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredChanged {
    /// Whose; at most [`Self::MOST`].
    pub agents: Vec<ChangedAgent>,
}

/// An agent whose desired state changed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAgent {
    /// Which agent.
    pub agent: AgentId,
    /// The revision that its state has now: another replica of delivery may answer before it has it.
    pub revision: u64,
}

impl DesiredChanged {
    /// Agents of one notice.
    pub const MOST: usize = 256;
}

impl crate::Notice for DesiredChanged {
    const NAME: &'static str = "desired.changed";
}

/// Names the instance that holds an agent's Lease as its applier. Asking again for the instance that is named answers the same.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameApplier {
    /// Which agent.
    pub agent: AgentId,
    /// The instance that holds the Lease.
    pub instance: InstanceId,
}
request!(NameApplier => Applier, "delivery.name-applier");

/// Lists the sources of an agent, or of all agents that the actor may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListSources {
    /// Which agent.
    pub agent: Option<AgentId>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListSources => SourceView, by (AgentId, String), "delivery.list-sources");

/// One source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowSource {
    /// Which.
    pub source: SourceId,
}
request!(ShowSource => SourceView, "delivery.show-source");

/// How a source stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// Its id.
    pub id: SourceId,
    /// Whose.
    pub agent: AgentId,
    /// What the agent's configuration says of it.
    pub configuration: SourceConfiguration,
    /// The newest commit that gave a good bundle.
    pub newest_good_commit: Option<String>,
    /// The newest commit of its ref that was read, good or not.
    #[serde(default)]
    pub newest_commit: Option<String>,
    /// The newest commit of all was refused: it and why.
    pub rejected: Option<RejectedBundle>,
    /// What is odd but harmless in the newest commit that gave a good bundle.
    #[serde(default)]
    pub warnings: Vec<FileFinding>,
    /// The globs take no file of that commit, so that the source keeps nothing applied.
    #[serde(default)]
    pub takes_no_file: bool,
    /// The commit that the agent is to have.
    pub desired_commit: Option<String>,
    /// The commit that the cluster is at: the last sync of it that succeeded or is healthy but for waits.
    pub synced_commit: Option<String>,
    /// When that was reached.
    pub synced_at: Option<Timestamp>,
    /// A bundle waits for confirmation: its commit and why.
    pub held: Option<HeldBundle>,
    /// Suspended, with the reason given.
    pub suspended: Option<String>,
    /// Pinned to a commit.
    pub pinned: Option<String>,
    /// The running or last sync.
    pub sync: Option<SyncView>,
    /// Objects that the source owns in the cluster.
    pub inventory: u32,
    /// Fetching failed, in words.
    pub fetch_failure: Option<String>,
    /// The whole source is blocked, in words.
    pub blocked: Option<String>,
    /// How many objects of the desired bundle other sources of the agent hold, so that they are not applied for this one.
    #[serde(default)]
    pub wants: u32,
    /// The first of them, with their holders.
    #[serde(default)]
    pub wanted: Vec<WantedObject>,
    /// How many objects that left the source were to be pruned and stay in place.
    #[serde(default)]
    pub kept: u32,
    /// The first of them, with the reasons; none in a list of sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_objects: Vec<KeptObject>,
    /// In one line: why the cluster is not at the last commit, or not all of it well; `None` when it is.
    pub why: Option<String>,
    /// The one status.
    pub status: Status,
}

impl SourceView {
    /// Kept objects that stand in a view at most.
    pub const KEPT_OBJECTS: usize = 20;
}

/// The last syncs of a source, the newest first; [`SourceSync::KEPT`] at most. The log has all of them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSyncs {
    /// Of which source.
    pub source: SourceId,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListSyncs => SourceSync, by (Timestamp, SyncId), "delivery.list-syncs");

/// One sync of a source, as the log has it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSync {
    /// Its id.
    pub id: SyncId,
    /// The commit that it brings.
    pub commit: String,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// When the log took its begin: that of its first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the log took its end, where its last run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How often it was run: one that failed is tried again.
    #[serde(default)]
    pub runs: u32,
    /// How the last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<SyncOutcome>,
    /// Its objects in numbers.
    #[serde(default)]
    pub counts: SyncCounts,
    /// The first failure, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ObjectFailure>,
}

impl SourceSync {
    /// So many of a source are kept for queries.
    pub const KEPT: usize = 20;
    /// Letters of a failure that are kept.
    pub const LETTERS: usize = 300;
}

/// An object that was to be pruned and stays in place.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptObject {
    /// Which object.
    pub identity: ObjectIdentity,
    /// Why, in the agent's words.
    pub reason: String,
}

/// See [`SourceView::rejected`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedBundle {
    /// The Git commit.
    pub commit: String,
    /// What is wrong.
    pub findings: Vec<FileFinding>,
    /// How many findings were left out.
    pub more: u32,
    /// What is odd but harmless beside it.
    #[serde(default)]
    pub warnings: Vec<FileFinding>,
}

/// See [`SourceView::held`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBundle {
    /// The Git commit.
    pub commit: String,
    /// Why.
    pub reason: HoldReason,
}

/// One sync.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncView {
    /// Its id.
    pub id: SyncId,
    /// The commit that it brings.
    pub commit: String,
    /// When it began in the cluster.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<SyncOutcome>,
    /// Counts.
    pub counts: SyncCounts,
    /// The first failures.
    pub failures: Vec<ObjectFailure>,
    /// What it waits for.
    pub waiting: Option<String>,
    /// When it is tried again.
    pub retry_at: Option<Timestamp>,
}

/// Looks at the repository, and checks each object of a source again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncSource {
    /// Which.
    pub source: SourceId,
}
request!(SyncSource => SourceView, "delivery.sync-source");

/// Stops delivering to a source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendSource {
    /// Which.
    pub source: SourceId,
    /// Why, for the others.
    pub reason: String,
}
request!(SuspendSource => SourceView, "delivery.suspend-source");

/// Goes on delivering.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeSource {
    /// Which.
    pub source: SourceId,
}
request!(ResumeSource => SourceView, "delivery.resume-source");

/// Keeps a source at one commit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinSource {
    /// Which.
    pub source: SourceId,
    /// Full or abbreviated commit.
    pub commit: String,
}
request!(PinSource => SourceView, "delivery.pin-source");

/// Lets a source follow its ref again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpinSource {
    /// Which.
    pub source: SourceId,
}
request!(UnpinSource => SourceView, "delivery.unpin-source");

/// Confirms the bundle that is held.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmSource {
    /// Which.
    pub source: SourceId,
    /// The commit that the person saw; refused when another is held by now.
    pub commit: Option<String>,
}
request!(ConfirmSource => SourceView, "delivery.confirm-source");
