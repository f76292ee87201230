//! Requests to resource-indexer: what runs in the clusters, how it is, and why; now and in the past.
//!
//! No answer tells of an object in a cluster that the asker may not use, neither by its name nor in a count.

use serde::{Deserialize, Serialize};

use crate::configuration::ObjectPatch;
use crate::environment::Tier;
use crate::id::{AgentId, DeploymentId, EnvironmentId, ProjectId};
use crate::object::{ObjectIdentity, ObjectKey};
use crate::observation::FieldWriter;
use crate::position::Position;
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

mod coverage;
mod environments;
mod network;
pub use coverage::*;
pub use environments::*;
pub use network::*;

/// How an object is doing, from best to worst.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthState {
    /// There is no rule that could judge it, and nothing that it says about itself.
    None,
    /// What was asked for is there.
    Healthy,
    /// Stopped on purpose.
    Suspended,
    /// On its way, or waiting.
    Progressing,
    /// Not there at all.
    Missing,
    /// Failed, or failing.
    Degraded,
    /// Cannot be told.
    Unknown,
}

/// The verdict on one object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "IndexedHealth"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectHealth {
    /// How it is doing.
    pub state: HealthState,
    /// Why, for people; empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Being deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminating: bool,
    /// No wait brings it about; it does not count in a roll-up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Which rule judged: `deletion`, `declared`, `built-in`, `generic`, `none`.
    pub rule: String,
    /// The version of the declared rules, where one of them judged: twelve digits that name their definitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_set: Option<String>,
}

/// One object in one cluster, in a line.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedObject {
    /// In which agent's cluster.
    pub agent: AgentId,
    /// The agent's name, `group/project:name` or `group:name`.
    pub agent_name: String,
    /// Which object.
    pub identity: ObjectIdentity,
    /// Its UID.
    pub uid: String,
    /// How it is doing.
    pub health: ObjectHealth,
    /// When it was created, by its API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When the change that made it so was recorded.
    pub changed_at: Timestamp,
    /// When it was deleted or vanished, where it is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
    /// Why its agent's word may be out of date: the agent is not connected, or does not see the kind; absent where it is fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// The environment that it belongs to; of several the one that was asked for, or else the first by project and name. Absent where there is
    /// none that the asker may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<ObjectEnvironment>,
    /// Who owns it, as far as that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<ObjectOwner>,
    /// The deployment that set it last, of those that are kept; absent where that is not known or the asker may not see its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<ObjectDeployment>,
}

/// The deployment that set an object last.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDeployment {
    /// Its id.
    pub id: DeploymentId,
    /// The commit that it brought; empty if not known.
    pub commit: String,
    /// It is a job's, inferred from the object's last writer and the time of the write. A sync's is known: its agent reports its writes.
    pub inferred: bool,
}

/// Who owns an object: who put it there, or what has caused it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectOwner {
    /// How that is known: `source`, by the mark of a manifest source; `helm`, `flux` and `argo-cd`, by the marks of these tools; and, only where
    /// there is no such mark, `managed-by`, by the label, or `field-manager`, by who wrote it.
    pub kind: String,
    /// `agent/source`, the release, Kustomization or application, or the name of the operator or tool.
    pub name: String,
    /// The object that says so, where it has caused this one; absent where it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<ObjectKey>,
}

/// How many own an object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// It has no owner, and belongs to no environment that the asker may see.
    Unowned,
    /// It has more than one owner, or belongs to more than one environment that the asker may see.
    DoublyOwned,
}

/// An environment that an object belongs to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEnvironment {
    /// Its id.
    pub id: EnvironmentId,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// `group/name` of that project.
    pub project_path: String,
    /// What it is for.
    pub tier: Tier,
}

/// A moment of the past: a time, by which everything recorded until then counts, or a position that the log printed. The API takes it as
/// one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// What was recorded by then.
    Time(Timestamp),
    /// What the position covers.
    Position(Position),
}

/// Which objects are meant; all conditions hold.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectFilter {
    /// Name of an agent, `group/project:name`, its last part where that is one agent's only, or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Kind, resource or short name, with the group where that is needed: `Deployment`, `deployments.apps`, `deploy`; several with commas
    /// between them. All kinds if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Label selector as kubectl has it, such as `app=web,tier in (a, b),!canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Any of these states of health.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthState>,
    /// Part of the name, the namespace, the kind, a label or the health's message, in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Environment that the objects belong to: a name, in which `*` stands for any text, `group/project:name` where several projects have one
    /// of the name, or an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Tier of the environment that the objects belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Project of the environment that the objects belong to: `group/name` or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Only objects without an owner, or with more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<Ownership>,
    /// Only objects that this deployment set last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentId>,
}

impl ObjectFilter {
    /// Whether it asks for objects of environments or deployments only.
    #[must_use]
    pub const fn names_environments(&self) -> bool {
        self.env.is_some() || self.tier.is_some() || self.project.is_some() || self.deployment.is_some()
    }

    /// The objects of one environment.
    #[must_use]
    pub fn of_environment(environment: EnvironmentId) -> Self {
        Self { env: Some(environment.to_string()), ..Self::default() }
    }
}

/// The objects that match a filter, in the order of cluster, kind, namespace and name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FindObjects {
    /// Which objects.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
    /// What the answer has to cover, such as the position that a command answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at_least: Option<Position>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(FindObjects => IndexedObject, by (AgentId, ObjectKey, String), "resource-indexer.find-objects");

/// The tree of objects below those that match, by controlling owners and by relations such as a Service's pods.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShowTree {
    /// The roots; they have to be named closely enough: at most [`ShowTree::ROOTS`] match.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
}
request!(ShowTree => ObjectTree, "resource-indexer.show-tree");

impl ShowTree {
    /// Most roots of a tree.
    pub const ROOTS: usize = 100;
    /// Most nodes of an answer; the rest is counted.
    pub const NODES: usize = 2_000;
}

/// The answer to [`ShowTree`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTree {
    /// The nodes, parents before children.
    pub nodes: Vec<TreeNode>,
    /// How many nodes were left out; from 20,000 on there may be more.
    pub left_out: u64,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// One node of an [`ObjectTree`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeNode {
    /// Place of the parent in the list of nodes; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Why it is below its parent: `controls`, `owns`, `selects`, `routes-to`, `scales`, `mounts`, `binds`, …; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// The object.
    pub object: IndexedObject,
}

/// Why objects are as they are: from each that matches down to the object that is to blame.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExplainHealth {
    /// Which objects; at most [`ShowTree::ROOTS`] match.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
}
request!(ExplainHealth => HealthExplained, "resource-indexer.explain-health");

/// The answer to [`ExplainHealth`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthExplained {
    /// One chain for each object that matches, the worst first: the object itself, then what it hangs on, down to the guilty one.
    pub chains: Vec<Vec<IndexedObject>>,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// Everything that is known of one object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShowIndexed {
    /// Which object; exactly one matches.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
}
request!(ShowIndexed => ObjectDetail, "resource-indexer.show-indexed");

/// The answer to [`ShowIndexed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDetail {
    /// In a line.
    pub object: IndexedObject,
    /// The pruned body, as JSON; absent where it was too large or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Who wrote it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<FieldWriter>,
    /// All environments that it belongs to and that the asker may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<ObjectEnvironment>,
    /// What it is related to, such as its owners, and how.
    pub related: Vec<RelatedObject>,
    /// How a service mesh secures connections to its pods; absent for what has no pods, and where no mesh is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<MeshSecurity>,
    /// What can be done with it, by built-in actions and by those that its agent's configuration declares; nothing of the past.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<OfferedAction>,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// Something that can be done with one object: a patch of it, sent to its cluster's API.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedAction {
    /// What it is called.
    pub name: String,
    /// What it does, for people.
    pub text: String,
    /// The resource of the object's kind, such as `deployments`.
    pub resource: String,
    /// The subresource that is patched; absent for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// What it changes, with all values filled in.
    pub patch: ObjectPatch,
    /// The agent's configuration declares it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
}

/// How a service mesh secures connections to pods.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshSecurity {
    /// `istio`, `linkerd`, or `none` where no pod is in a mesh.
    pub mesh: String,
    /// Mutual TLS of the least secured pod: `strict`, `permissive`, `off`, or `unknown` where policies decide that the asker may not see.
    pub mtls: String,
    /// The policy, or another fact, that decides it.
    pub reason: String,
    /// Ports for which that policy says otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSecurity>,
}

/// How a service mesh secures connections to one port.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSecurity {
    /// Which port.
    pub port: u16,
    /// See [`MeshSecurity::mtls`].
    pub mtls: String,
}

/// One relation of an object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedObject {
    /// See [`TreeNode::relation`].
    pub relation: String,
    /// The relation points from the other object to this one.
    pub inwards: bool,
    /// The other object, also where it is not there or not seen.
    pub key: ObjectKey,
    /// Its UID, where it is there and the asker may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// It is known not to be there: its kind is listed, and the asker may see it. Without this and a UID it is only not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// The changes of objects that match, the newest first: deleted ones too.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListChanges {
    /// Which objects; the filter's health, labels and text count as the object was last.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
    /// Only changes that were recorded at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What the answer has to cover, such as the position that a command answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at_least: Option<Position>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListChanges => ObjectChange, by (Timestamp, AgentId, String, u64), "resource-indexer.list-changes");

/// One change of one object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectChange {
    /// In which agent's cluster.
    pub agent: AgentId,
    /// The agent's name.
    pub agent_name: String,
    /// Which object.
    pub identity: ObjectIdentity,
    /// Its UID.
    pub uid: String,
    /// Which change of the object it is, of those that the index knows.
    #[serde(default)]
    pub number: u64,
    /// Place of its record in the log, within the agent's partition. It counts what others do as well, and so never leaves the console.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub sequence: u64,
    /// When the log took it.
    pub recorded_at: Timestamp,
    /// When the agent saw it, as it claims.
    pub seen_at: Timestamp,
    /// When it happened at the earliest, of what vanished: it was there then, and was deleted some time until `recorded_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// `first-seen`, `created`, `changed`, `deleted`, `vanished`, `gap`, `unobserved`.
    pub what: String,
    /// Who wrote it, by its managed fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<FieldWriter>,
    /// Paths of the fields that changed, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// How many fields changed.
    pub field_count: u32,
    /// Health after it, and before it where it was another.
    pub health: HealthState,
    /// See `health`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_before: Option<HealthState>,
    /// The object names an owner in its cluster: what becomes of it may follow from what becomes of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owned: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Of which state of the index an answer is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// What is folded.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub position: Position,
    /// The instant at which it was judged.
    pub judged_at: Timestamp,
    /// Version of the rules that judged.
    pub rules: u32,
    /// What happened before this is gone; absent while nothing has left the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Timestamp>,
}
