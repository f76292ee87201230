//! Agents, and the tokens of agents and people.

use serde::{Deserialize, Serialize};

use super::GroupView;
use crate::directory::TokenHolder;
use crate::id::{AgentId, ProjectId, TokenId};
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

/// Registers an agent and issues its first token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAgent {
    /// Its name, unique in its configuration project.
    pub name: String,
    /// `group/name` or id of its configuration project. It owns the agent where no group does.
    pub project: String,
    /// Name or id of the group that owns the agent. Its configuration project is one of that group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}
request!(RegisterAgent => AgentWithToken, "authz.register-agent");

/// An agent just registered.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentWithToken {
    /// The agent.
    pub agent: AgentView,
    /// Its first token, shown once.
    pub token: SecretToken,
    /// Public root key that the agent pins (Ed25519, base64).
    pub root_key: String,
}

/// Deletes an agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteAgent {
    /// Name or id.
    pub agent: String,
}
request!(DeleteAgent => AgentView, "authz.delete-agent");

/// Lists agents.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListAgents {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListAgents => AgentView, by AgentId, "authz.list-agents");

/// Finds one agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowAgent {
    /// Name, `group/project:name`, or id.
    pub agent: String,
}
request!(ShowAgent => AgentView, "authz.show-agent");

/// One agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its id.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// Its configuration project.
    pub project: ProjectId,
    /// `group/name` of that project.
    pub project_path: String,
    /// The group that owns it; absent where its configuration project does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// Since when.
    pub registered_at: Timestamp,
}

/// Issues another token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueToken {
    /// For whom: an agent (name or id), or `None` for the actor's own personal token.
    pub agent: Option<String>,
    /// Another user (name or id), for those who may.
    pub user: Option<String>,
    /// What it is called.
    pub name: String,
    /// Seconds until it ends by itself; for people what the organization says if not given, for agents never.
    pub lifetime_seconds: Option<u64>,
    /// It is to be good for the use of clusters' APIs only; for the actor's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clusters_only: bool,
}
request!(IssueToken => SecretToken, "authz.issue-token");

/// A token with its secret: shown once.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretToken {
    /// The token.
    pub view: TokenView,
    /// The secret. Only its hash is stored.
    pub secret: String,
}

impl std::fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretToken").field("view", &self.view).finish_non_exhaustive()
    }
}

/// Lists the tokens of an agent, a user, or the actor.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListTokens {
    /// An agent, by name or id.
    pub agent: Option<String>,
    /// A user, by name or id.
    pub user: Option<String>,
    /// A project, by `group/name` or id: those of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListTokens => TokenView, by TokenId, "authz.list-tokens");

/// Revokes a token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeToken {
    /// Which.
    pub token: TokenId,
}
request!(RevokeToken => TokenView, "authz.revoke-token");

/// One token, without its secret.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// Its id.
    pub id: TokenId,
    /// Its name.
    pub name: String,
    /// Whose.
    pub holder: TokenHolder,
    /// Since when.
    pub issued_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// Last use, to the hour.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// It is good for the use of clusters' APIs only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clusters_only: bool,
}
