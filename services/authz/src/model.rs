//! The directory: state folded from the log, and pure decisions on it.
//!
//! A name belongs to the holder of its claim. The claim comes first and names the id that the thing will have; whoever finds
//! a claim whose thing never came to be creates the thing under that very id, so that of two who do so at once the log lets
//! one win, and a crash between the two commits blocks no name.

pub mod access;
pub mod agents;
pub mod claims;
pub mod credentials;
pub mod deletion;
mod deployments;
pub mod fetch;
pub mod fold;
pub mod grants;
pub mod identity;
pub mod job_grants;
pub mod jobs;
pub mod lookup;
pub mod projects;
pub mod root;
pub mod steps;
pub mod tokens;
pub mod users;
pub mod views;

use std::collections::{BTreeMap, BTreeSet};

use events::directory::{
    DirectoryEvent, PersonalData, ProjectSettings, Role, Scope, TokenHolder, TokenLifetimes,
};
use events::grants::Grants;
use events::requests::authz::ProviderTrust;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, CommitId, CredentialId, Event, GroupId, JobId,
    OrganizationId, ProjectId, Refusal, Sha256, Timestamp, TokenId, UserId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Everything that authz knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Directory {
    pub(crate) organizations: BTreeMap<OrganizationId, Organization>,
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) projects: BTreeMap<ProjectId, Project>,
    pub(crate) users: BTreeMap<UserId, User>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) credentials: BTreeMap<CredentialId, Credential>,
    pub(crate) tokens: BTreeMap<TokenId, Token>,
    pub(crate) hashes: BTreeMap<Sha256, TokenId>,
    pub(crate) holders: BTreeMap<TokenHolder, BTreeSet<TokenId>>,
    pub(crate) names: BTreeMap<(OrganizationId, Uuid), Claim>,
    pub(crate) versions: BTreeMap<Key, u64>,
    pub(crate) grants: BTreeMap<AgentId, Grants>,
    /// Agents whose files came into force when jobs of their own projects needed no entry.
    pub(crate) implicit_rights: BTreeSet<AgentId>,
    pub(crate) jobs: BTreeMap<JobId, jobs::Job>,
    /// Which identity providers each organization believes, by their names.
    pub(crate) trusts: BTreeMap<(OrganizationId, String), ProviderTrust>,
    /// The roots that took the place of the first one.
    pub(crate) roots: Vec<root::LaterRoot>,
    /// Whose each account at an identity provider is.
    pub(crate) accounts: BTreeMap<identity::Account, UserId>,
    /// How long personal tokens live, where an organization says so.
    pub(crate) lifetimes: BTreeMap<OrganizationId, TokenLifetimes>,
    /// Groups and projects that were deleted: nothing has their ids again.
    pub(crate) gone: BTreeSet<Uuid>,
    /// The sources of each agent that read another project than its own, by name.
    pub(crate) readers: BTreeMap<AgentId, BTreeSet<(ProjectId, String)>>,
    /// When each job's token ends by itself.
    pub(crate) job_ends: BTreeSet<(Timestamp, JobId)>,
}

/// An aggregate anywhere.
pub(crate) type Key = (OrganizationId, AggregateRef);

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    pub(crate) name: String,
    pub(crate) created_by: CommitId,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub(crate) organization: OrganizationId,
    pub(crate) name: String,
    pub(crate) created_by: CommitId,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub(crate) organization: OrganizationId,
    pub(crate) group: GroupId,
    pub(crate) name: String,
    pub(crate) settings: ProjectSettings,
    pub(crate) created_by: CommitId,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub(crate) organization: OrganizationId,
    pub(crate) name: PersonalData,
    pub(crate) roles: BTreeSet<(Role, Scope)>,
    pub(crate) created_by: CommitId,
    /// While they may do nothing.
    pub(crate) disabled: Option<Disabled>,
}

/// A user may do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Agents' tokens that they made live on.
    pub(crate) keeps_agents_tokens: bool,
}

/// An agent; stays known after its deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub(crate) organization: OrganizationId,
    pub(crate) name: String,
    /// Its configuration project.
    pub(crate) project: ProjectId,
    /// Its owner, where that is not its configuration project.
    pub(crate) group: Option<GroupId>,
    pub(crate) registered_at: Timestamp,
    pub(crate) deleted: bool,
    pub(crate) created_by: CommitId,
}

impl Agent {
    /// Who owns it: roles there hold for the agent.
    pub(crate) fn owner(&self) -> Scope {
        self.group.map_or(Scope::Project(self.project), Scope::Group)
    }
}

/// A Git credential, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    pub(crate) organization: OrganizationId,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) projects: BTreeSet<ProjectId>,
    pub(crate) revoked: bool,
    pub(crate) created_by: CommitId,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub(crate) organization: OrganizationId,
    pub(crate) holder: TokenHolder,
    /// Who had it issued.
    pub(crate) made_by: Actor,
    pub(crate) clusters_only: bool,
    pub(crate) hash: Sha256,
    pub(crate) name: String,
    pub(crate) issued_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) last_used_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
}

/// A claimed name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub(crate) what: String,
    pub(crate) holder: String,
}

/// Who asks, and in which organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Who.
    pub actor: Actor,
    /// Where they act.
    pub organization: OrganizationId,
}

/// What a decision wants to append: one commit on one aggregate.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Whose.
    pub organization: OrganizationId,
    /// Which aggregate.
    pub aggregate: AggregateRef,
    /// Its version that the decision was made on.
    pub expected: u64,
    /// At least one.
    pub events: Vec<DirectoryEvent>,
}

impl From<Draft> for store::Draft {
    fn from(draft: Draft) -> Self {
        let Draft { organization, aggregate, expected, events } = draft;
        Self { organization, aggregate, expected, events: events.into_iter().map(Event::from).collect() }
    }
}

/// A decision: what is to be appended (nothing when it is so already), and what it means for the asker.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided<T> {
    /// To append.
    pub draft: Option<Draft>,
    /// What it means.
    pub outcome: T,
}

impl<T> Decided<T> {
    /// It is so already.
    pub(crate) const fn already(outcome: T) -> Self {
        Self { draft: None, outcome }
    }
}

impl Directory {
    /// The version of an aggregate, 0 when it does not exist.
    #[must_use]
    pub fn version(&self, organization: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.versions.get(&(organization, aggregate.clone())).copied().unwrap_or(0)
    }

    /// A commit on an aggregate at its version, as the outcome of a decision.
    #[expect(clippy::unnecessary_wraps, reason = "every decision ends with it, and others are refused")]
    pub(crate) fn draft<T>(
        &self,
        organization: OrganizationId,
        aggregate: AggregateRef,
        events: Vec<DirectoryEvent>,
        outcome: T,
    ) -> Result<Decided<T>, Refusal> {
        let expected = self.version(organization, &aggregate);
        Ok(Decided { draft: Some(Draft { organization, aggregate, expected, events }), outcome })
    }
}

pub(crate) fn aggregate(kind: AggregateKind, id: impl std::fmt::Display) -> AggregateRef {
    AggregateRef::new(kind, id)
}

#[cfg(test)]
pub(crate) mod given;
#[cfg(test)]
mod tests;
