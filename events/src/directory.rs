//! Events of authz: the directory, tokens, credentials.
//!
//! People's names and e-mail addresses are ciphertext under a key per person ([`PersonalData`]); envelopes hold ids only.

use serde::{Deserialize, Serialize};

use crate::catalogue::context;
use crate::digest::Sha256;
use crate::id::{AgentId, CredentialId, GroupId, JobId, OrganizationId, ProjectId, RootId, TokenId, UserId};
use crate::root::RootLink;
use crate::time::Timestamp;

context! {
    /// What authz decided.
    DirectoryEvent {
        /// A tenant came to be.
        OrganizationCreated(OrganizationCreated) = "kasbah.organization.created" v 1,
        /// Passes are signed by another root from now on.
        RootRotated(RootRotated) = "kasbah.root.rotated" v 1,
        /// An organization believes an identity provider.
        IdentityProviderTrusted(IdentityProviderTrusted) = "kasbah.identity-provider.trusted" v 1,
        /// An organization believes an identity provider no more.
        IdentityProviderDistrusted(IdentityProviderDistrusted) = "kasbah.identity-provider.distrusted" v 1,
        /// A group came to be.
        GroupCreated(GroupCreated) = "kasbah.group.created" v 1,
        /// A project came to be.
        ProjectCreated(ProjectCreated) = "kasbah.project.created" v 1,
        /// A project's repository, branch, credential or external id changed.
        ProjectChanged(ProjectChanged) = "kasbah.project.changed" v 1,
        /// A user came to be.
        UserCreated(UserCreated) = "kasbah.user.created" v 1,
        /// An account at an identity provider is a user's from now on.
        UserLinked(UserLinked) = "kasbah.user.linked" v 1,
        /// A user has no account at an identity provider any more.
        UserUnlinked(UserUnlinked) = "kasbah.user.unlinked" v 1,
        /// A user may do nothing any more; what they held and made is dead.
        UserDisabled(UserDisabled) = "kasbah.user.disabled" v 1,
        /// A user may sign in again.
        UserEnabled(UserEnabled) = "kasbah.user.enabled" v 1,
        /// An organization says how long personal tokens live.
        TokenLifetimesSet(TokenLifetimesSet) = "kasbah.token-lifetimes.set" v 1,
        /// A group is gone.
        GroupDeleted(GroupDeleted) = "kasbah.group.deleted" v 1,
        /// A project is gone.
        ProjectDeleted(ProjectDeleted) = "kasbah.project.deleted" v 1,
        /// A user got a role.
        RoleAssigned(RoleAssigned) = "kasbah.role.assigned" v 1,
        /// A user lost a role.
        RoleWithdrawn(RoleWithdrawn) = "kasbah.role.withdrawn" v 1,
        /// A Git credential was put into the key ring.
        CredentialCreated(CredentialCreated) = "kasbah.credential.created" v 1,
        /// A project may use a credential.
        CredentialGranted(CredentialGranted) = "kasbah.credential.granted" v 1,
        /// A credential's secret was destroyed.
        CredentialRevoked(CredentialRevoked) = "kasbah.credential.revoked" v 1,
        /// An agent was registered.
        AgentRegistered(AgentRegistered) = "kasbah.agent.registered" v 2,
        /// An agent was deleted; its tokens are dead.
        AgentDeleted(AgentDeleted) = "kasbah.agent.deleted" v 1,
        /// A CI job was let in.
        JobAdmitted(JobAdmitted) = "kasbah.job.admitted" v 1,
        /// A token was issued.
        TokenIssued(TokenIssued) = "kasbah.token.issued" v 1,
        /// A token was revoked.
        TokenRevoked(TokenRevoked) = "kasbah.token.revoked" v 1,
        /// A token was used; at most once an hour each.
        TokenUsed(TokenUsed) = "kasbah.token.used" v 1,
        /// A name was claimed.
        NameClaimed(NameClaimed) = "kasbah.name.claimed" v 1,
    }
}

/// Ciphertext of a person's data under that person's key; unreadable once the key is destroyed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PersonalData(
    #[serde(with = "serde_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
    pub Vec<u8>,
);

/// What somebody may be. The table action × role is in authz.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs the server side; acts in the organization `system`.
    Operator,
    /// Everything in its scope, people included.
    Owner,
    /// Agents, sources, tokens of agents.
    Maintainer,
    /// Looks, syncs.
    Developer,
    /// Looks.
    Viewer,
    /// A CI job, limited to what it was granted.
    Job,
    /// An agent, limited to itself.
    Agent,
}

impl Role {
    /// Every role.
    pub const ALL: &'static [Self] = &[
        Self::Operator,
        Self::Owner,
        Self::Maintainer,
        Self::Developer,
        Self::Viewer,
        Self::Job,
        Self::Agent,
    ];
}

/// Where something applies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole organization.
    Organization(OrganizationId),
    /// A group and its projects.
    Group(GroupId),
    /// One project.
    Project(ProjectId),
    /// One agent.
    Agent(AgentId),
}

/// Who holds a token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenHolder {
    /// An agent.
    Agent(AgentId),
    /// A user.
    User(UserId),
    /// A CI job.
    Job(JobId),
}

/// What is known of a CI job. No name of a person is in it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobFacts {
    /// What the CI system, or whoever issued its token, calls it.
    pub name: String,
    /// The pipeline or workflow run that it is part of; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline: String,
    /// The branch or tag that it runs for; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// That branch or tag is protected.
    #[serde(default)]
    pub is_protected: bool,
    /// What it deploys to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<JobEnvironment>,
}

/// What a CI job deploys to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnvironment {
    /// Its name, such as `production` or `review/login`.
    pub name: String,
    /// Its tier, such as `production` or `staging`; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tier: String,
}

/// See [`DirectoryEvent::JobAdmitted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAdmitted {
    /// Its id.
    pub job: JobId,
    /// The project that it is a job of.
    pub project: ProjectId,
    /// What is known of it.
    pub facts: JobFacts,
}

/// See [`DirectoryEvent::OrganizationCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganizationCreated {
    /// Its id.
    pub organization: OrganizationId,
    /// Its name, unique on this installation.
    pub name: String,
}

/// See [`DirectoryEvent::RootRotated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRotated {
    /// Under which id the key ring has it. A key that was made and then not used has another, and signs nothing ever.
    pub root: RootId,
    /// The former root's word for it.
    pub link: RootLink,
}

/// See [`DirectoryEvent::IdentityProviderTrusted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityProviderTrusted {
    /// Its name, which the operator gave it.
    pub provider: String,
    /// Of jobs: whose repositories' jobs are let in, such as a group of GitLab or an organization of GitHub.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
}

/// See [`DirectoryEvent::IdentityProviderDistrusted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityProviderDistrusted {
    /// Its name.
    pub provider: String,
}

/// See [`DirectoryEvent::GroupCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCreated {
    /// Its id.
    pub group: GroupId,
    /// Its name, unique in the organization.
    pub name: String,
}

/// See [`DirectoryEvent::ProjectCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectCreated {
    /// Its id.
    pub project: ProjectId,
    /// The group that it lives in.
    pub group: GroupId,
    /// Its name, unique in the group.
    pub name: String,
    /// What it points at.
    pub settings: ProjectSettings,
}

/// Where a project's repository is and how it is read.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectSettings {
    /// URL or path, without credentials.
    pub repository: String,
    /// The branch that is meant when none is named.
    pub default_branch: String,
    /// The credential that reads it, if one is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialId>,
    /// The numeric id that another system gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<u64>,
}

/// See [`DirectoryEvent::ProjectChanged`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectChanged {
    /// The project.
    pub project: ProjectId,
    /// All settings as they are from now on.
    pub settings: ProjectSettings,
}

/// See [`DirectoryEvent::UserCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCreated {
    /// Their id.
    pub user: UserId,
    /// Their login name, encrypted.
    pub name: PersonalData,
}

/// See [`DirectoryEvent::UserLinked`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLinked {
    /// Whose.
    pub user: UserId,
    /// Where the account is.
    pub provider: String,
    /// The account's id there, under a key of the organization: it tells nobody who it is.
    pub subject: Sha256,
}

/// See [`DirectoryEvent::UserUnlinked`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserUnlinked {
    /// Whose.
    pub user: UserId,
    /// Where the account is.
    pub provider: String,
}

/// See [`DirectoryEvent::UserDisabled`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDisabled {
    /// Who.
    pub user: UserId,
    /// Tokens of agents that they made stay.
    #[serde(default)]
    pub keeps_agents_tokens: bool,
}

/// See [`DirectoryEvent::UserEnabled`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEnabled {
    /// Who.
    pub user: UserId,
}

/// How long personal tokens of an organization live.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLifetimes {
    /// Where nothing else is said, in seconds.
    pub default_seconds: u64,
    /// At most, in seconds.
    pub longest_seconds: u64,
}

impl Default for TokenLifetimes {
    /// 90 days, and 365 days at most.
    fn default() -> Self {
        let day = 24 * 3600;
        Self { default_seconds: 90 * day, longest_seconds: 365 * day }
    }
}

/// See [`DirectoryEvent::TokenLifetimesSet`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLifetimesSet {
    /// From now on, for tokens that are issued then.
    pub lifetimes: TokenLifetimes,
}

/// See [`DirectoryEvent::GroupDeleted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDeleted {
    /// Which.
    pub group: GroupId,
}

/// See [`DirectoryEvent::ProjectDeleted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectDeleted {
    /// Which.
    pub project: ProjectId,
}

/// See [`DirectoryEvent::RoleAssigned`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssigned {
    /// Whose.
    pub user: UserId,
    /// Which.
    pub role: Role,
    /// Where.
    pub scope: Scope,
}

/// See [`DirectoryEvent::RoleWithdrawn`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleWithdrawn {
    /// Whose.
    pub user: UserId,
    /// Which.
    pub role: Role,
    /// Where.
    pub scope: Scope,
}

/// See [`DirectoryEvent::CredentialCreated`]. The secret is in the key ring only.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialCreated {
    /// Its id.
    pub credential: CredentialId,
    /// Its name, unique in the organization.
    pub name: String,
    /// The one host that it may be sent to, with port where it is not the scheme's own.
    pub host: String,
}

/// See [`DirectoryEvent::CredentialGranted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialGranted {
    /// Which.
    pub credential: CredentialId,
    /// To whom.
    pub project: ProjectId,
}

/// See [`DirectoryEvent::CredentialRevoked`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRevoked {
    /// Which.
    pub credential: CredentialId,
}

/// See [`DirectoryEvent::AgentRegistered`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRegistered {
    /// Its id.
    pub agent: AgentId,
    /// Its name, unique in its configuration project.
    pub name: String,
    /// Its configuration project, whose repository has its configuration file. It owns the agent where no group does.
    pub project: ProjectId,
    /// The group that owns it. Since version 2: a reader that did not know of it would let the wrong people in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Deleted agents that had this name in this project before, and whose owner was this one's or its project: what they applied is this agent's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<AgentId>,
}

/// See [`DirectoryEvent::AgentDeleted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDeleted {
    /// Which.
    pub agent: AgentId,
}

/// See [`DirectoryEvent::TokenIssued`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIssued {
    /// Its id.
    pub token: TokenId,
    /// Whose it is.
    pub holder: TokenHolder,
    /// SHA-256 of the secret, which has 256 random bits.
    pub hash: Sha256,
    /// What it is called.
    pub name: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// It is good for the use of clusters' APIs, and for nothing of Kasbah's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clusters_only: bool,
}

/// See [`DirectoryEvent::TokenRevoked`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRevoked {
    /// Which.
    pub token: TokenId,
    /// Whose it was.
    pub holder: TokenHolder,
}

/// See [`DirectoryEvent::TokenUsed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsed {
    /// Which.
    pub token: TokenId,
    /// When, to the hour.
    pub at: Timestamp,
}

/// See [`DirectoryEvent::NameClaimed`]. The aggregate's id derives from what is named, its parent and the name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameClaimed {
    /// What is named, such as `project`.
    pub what: String,
    /// The id of the thing that has the name now.
    pub holder: String,
}
