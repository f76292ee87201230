//! What resource-indexer answers on which clusters and kinds it knows.

use serde::{Deserialize, Serialize};

use super::{AsOf, is_zero};
use crate::id::AgentId;
use crate::observation::MissingRight;
use crate::request::request;
use crate::time::Timestamp;

/// What the index covers: which clusters it knows, how fresh each is, and which kinds an agent does not see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShowCoverage {
    /// Only of this agent: its name, `group/project:name`, its last part where that is one agent's only, or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only how many kinds an agent does not see, not which.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
    /// Clusters whose own authorization decides are asked anew what the asker may see; what they said before does not count any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}
request!(ShowCoverage => Coverage, "resource-indexer.show-coverage");

impl ShowCoverage {
    /// Most agents of an answer; the rest is counted.
    pub const AGENTS: usize = 1_000;
    /// Most kinds of all agents together that an answer names; the rest is counted.
    pub const BLIND: usize = 2_000;
}

/// The answer to [`ShowCoverage`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// One for each agent whose cluster the asker may use; at most [`ShowCoverage::AGENTS`].
    pub agents: Vec<AgentCoverage>,
    /// How many agents were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// What is known of one cluster.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCoverage {
    /// Which agent.
    pub agent: AgentId,
    /// Its name.
    pub agent_name: String,
    /// How many objects are there.
    pub objects: u64,
    /// How many kinds were listed in full.
    pub kinds: u32,
    /// When something was heard of it last.
    pub heard_at: Timestamp,
    /// Why it may be out of date; absent where it is fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// Why it is not known what of it the asker may see, where its own authorization decides. What is not known is not shown, and counted
    /// nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights_unknown: Option<String>,
    /// Kinds that the agent does not see, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blind: Vec<BlindKind>,
    /// How many there are.
    pub blind_count: u32,
}

/// A kind that an agent does not see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlindKind {
    /// The resource with its group, such as `deployments.apps`.
    pub resource: String,
    /// The namespace; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Why, in the API server's words.
    pub reason: String,
    /// The right that is missing, where it is for want of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingRight>,
    /// Since when.
    pub since: Timestamp,
}
