//! The use of clusters' APIs.

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::attributes::Attributes;
use crate::digest::Sha256;
use crate::grants::UserAccessAs;
use crate::id::AgentId;
use crate::pass::{AccessAs, Narrowing, SignedPass};
use crate::position::Position;
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::root::RootLink;
use crate::time::Timestamp;

/// May a user do this with the API of an agent's cluster? Says which entry of the agent's configuration grants it, or what is
/// missing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanUse {
    /// Name of the agent, `group/project:name`, or id.
    pub agent: String,
    /// Another user (name or id), for those who may see users; the asker if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What they would do.
    pub attributes: Attributes,
}
request!(CanUse => UseDecision, "authz.can-use");

/// The answer to [`CanUse`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseDecision {
    /// Whether Kasbah lets it through; the cluster's own authorization has the last word.
    pub allowed: bool,
    /// As whom the cluster sees them, if it is let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_as: Option<AccessAs>,
    /// Which entry of which file grants it, or what is missing.
    pub reason: String,
}

/// A pass for the holder of a token, for the API of an agent's cluster. Only services may ask: gateways, for each request that they do
/// not hold a pass for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignPass {
    /// SHA-256 of the secret of the token.
    pub hash: Sha256,
    /// For which agent's cluster.
    pub agent: AgentId,
    /// What the asker has heard of changes in the directory and in configurations: an answer from before does not count.
    #[serde(default, skip_serializing_if = "is_start")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: Position,
}
request!(SignPass => IssuedPass, "authz.sign-pass");

fn is_start(position: &Position) -> bool {
    *position == Position::start()
}

/// The answer to [`SignPass`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedPass {
    /// The pass.
    pub pass: SignedPass,
    /// When the token ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ends: Option<Timestamp>,
    /// How agents that pin an earlier root come to the one that signed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootLink>,
}

impl SignPass {
    /// How long a pass lives, in milliseconds.
    pub const LIFETIME_MILLIS: i64 = 60_000;
}

/// A pass by which an agent asks its cluster what a user or a job may list there ([`crate::pass::Purpose::Review`]); it is good for no request. Only
/// services may ask: those that show what is in the clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignReview {
    /// Whose rights.
    pub actor: Actor,
    /// In which agent's cluster.
    pub agent: AgentId,
    /// What the asker has heard of changes in the directory and in configurations: an answer from before does not count.
    #[serde(default, skip_serializing_if = "is_start")]
    pub since: Position,
}
request!(SignReview => IssuedReview, "authz.sign-review");

/// The answer to [`SignReview`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedReview {
    /// The pass.
    pub pass: SignedPass,
    /// How agents that pin an earlier root come to the one that signed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootLink>,
}

/// The agents whose clusters' APIs a user or a job may use, and how much of each. Only services may ask: those that show what is in the
/// clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListUsableAgents {
    /// Who uses them.
    pub actor: Actor,
    /// What the asker has heard of changes in the directory and in configurations: an answer from before does not count.
    #[serde(default, skip_serializing_if = "is_start")]
    pub since: Position,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListUsableAgents => UsableAgent, by AgentId, "authz.list-usable-agents");

/// One item of [`ListUsableAgents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsableAgent {
    /// Which agent.
    pub agent: AgentId,
    /// As whom the cluster sees the requests: where it is not as the agent, the cluster's own authorization has the last word.
    pub access_as: UserAccessAs,
    /// What may be used: whatever any one of these leaves.
    pub grants: Vec<Narrowing>,
    /// Another value, where the cluster would see them as somebody else, or with other groups; what the cluster said of them before does
    /// not count then. Absent where it sees the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Sha256>,
}
