//! What resource-indexer answers on the objects of environments.
//!
//! It knows the environments into which something was deployed: where nothing was, nothing says which objects belong to them.

use serde::{Deserialize, Serialize};

use super::{AsOf, HealthState, IndexedObject, Moment, TreeNode};
use crate::environment::Tier;
use crate::id::{EnvironmentId, ProjectId};
use crate::request::request;
use crate::requests::environments::EnvironmentState;
use crate::requests::page::{PageCursor, PageLimit, paged};

/// How the environments are doing that match, by project and name. All conditions hold.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListEnvironmentHealth {
    /// A name, in which `*` stands for any text, `group/project:name`, or an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Only of this tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Only of this project: `group/name` or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListEnvironmentHealth => EnvironmentHealth, by (ProjectId, String), "resource-indexer.list-environment-health");

/// How an environment's objects are doing, as far as the asker may see them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentHealth {
    /// Which environment.
    pub environment: EnvironmentId,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// `group/name` of that project.
    pub project_path: String,
    /// Its tier.
    pub tier: Tier,
    /// Whether it runs.
    pub state: EnvironmentState,
    /// How many objects there are. Without any the environment is empty, and not healthy.
    pub objects: u64,
    /// The worst state of the objects at the top: those that no other object of the environment has caused.
    pub health: HealthState,
    /// How many objects at the top are in each state, from best to worst; states without any are left out.
    pub counts: Vec<HealthCount>,
    /// The first object at the top in the worst state, with its reason; absent where nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Box<IndexedObject>>,
    /// Why it may be another by now: an agent is not connected. Such an environment is never simply healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// Why objects may be missing here: a cluster that the asker may not use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// How many are in one state.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCount {
    /// The state.
    pub state: HealthState,
    /// How many.
    pub count: u64,
}

/// Each tier with how its environments are doing, the most important first. Stopped environments are left out.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShowTiers {
    /// Only environments of this project: `group/name` or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}
request!(ShowTiers => Tiers, "resource-indexer.show-tiers");

/// The answer to [`ShowTiers`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiers {
    /// The tiers that have environments.
    pub tiers: Vec<TierHealth>,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// How the environments of one tier are doing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierHealth {
    /// Which tier.
    pub tier: Tier,
    /// How many environments.
    pub environments: u64,
    /// The worst state of an environment.
    pub health: HealthState,
    /// How many environments are in each state, from best to worst; states without any are left out.
    pub counts: Vec<HealthCount>,
    /// How many have no object.
    pub empty: u64,
    /// How many may be others by now.
    pub stale: u64,
    /// The first environment in the worst state, with its reason; absent where nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<EnvironmentHealth>,
}

/// All objects of an environment with their health, each below the one that has caused it. Events are left out.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowEnvironmentTree {
    /// Which environment.
    pub environment: EnvironmentId,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given. Which objects
    /// belong to the environment is decided by its rule of today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
}
request!(ShowEnvironmentTree => EnvironmentTree, "resource-indexer.show-environment-tree");

/// The answer to [`ShowEnvironmentTree`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentTree {
    /// How all of it is doing.
    pub health: EnvironmentHealth,
    /// The nodes, parents before children; of those at the top the worst first. At most [`super::ShowTree::NODES`].
    pub nodes: Vec<TreeNode>,
    /// How many nodes were left out.
    pub left_out: u64,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// What changed in an environment between two moments: which objects came, went and changed. Events are left out.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffEnvironment {
    /// Which environment.
    pub environment: EnvironmentId,
    /// The earlier moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position. Which objects belong to the
    /// environment is decided by its rule of today.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub from: Moment,
    /// The later moment; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub to: Option<Moment>,
    /// Judges and relates by what is declared today; otherwise, the past by what was declared then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub todays_rules: bool,
    /// Compares the status of objects as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub status: bool,
}
request!(DiffEnvironment => EnvironmentDiff, "resource-indexer.diff-environment");

impl DiffEnvironment {
    /// Most objects of an answer; the rest is counted.
    pub const OBJECTS: usize = 500;
    /// Most fields of one object that are named; the rest is counted.
    pub const FIELDS: usize = 20;
}

/// The answer to [`DiffEnvironment`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentDiff {
    /// Whether anything differs.
    pub differs: bool,
    /// Objects that are there at the later moment only, as they are then.
    pub came: Vec<IndexedObject>,
    /// Objects that are there at the earlier moment only, as they were then.
    pub went: Vec<IndexedObject>,
    /// Objects that are others at the later moment.
    pub changed: Vec<ChangedObject>,
    /// How many objects that came, went or may have changed were left out.
    pub left_out: u64,
    /// Of which state of the index, at the later moment.
    pub as_of: AsOf,
}

/// An object that is another than it was.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedObject {
    /// As it is at the later moment.
    pub object: IndexedObject,
    /// The fields that differ, the first ones.
    pub fields: Vec<ChangedField>,
    /// How many differ; none where a body is not known for both moments.
    pub field_count: u32,
}

/// A field that differs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedField {
    /// Where, such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// What was there, as JSON, of long values the beginning; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What is there now, as JSON, of long values the beginning; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
