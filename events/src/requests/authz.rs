//! What authz answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::digest::Sha256;
use crate::directory::{ProjectSettings, Scope, TokenLifetimes};
use crate::id::{AgentId, OrganizationId, ProjectId, TokenId, UserId};
use crate::request::{Refusal, request};
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

mod agents;
mod credentials;
mod deployments;
mod identity;
mod jobs;
mod people;
mod projects;
mod root;
mod use_of_clusters;
pub use agents::*;
pub use credentials::*;
pub use deployments::*;
pub use identity::*;
pub use jobs::*;
pub use people::*;
pub use projects::*;
pub use root::*;
pub use use_of_clusters::*;

/// What may be done. The table action × role is in authz; what it does not name is denied.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each variant says what may be done")]
pub enum Action {
    CreateOrganization,
    ReadOrganization,
    CreateGroup,
    CreateProject,
    ReadProject,
    ChangeProject,
    DeleteProject,
    DeleteGroup,
    ReadUsers,
    CreateUser,
    /// End everything of a user, and let them in again.
    DisableUser,
    /// Say how long personal tokens live.
    SetTokenLifetimes,
    AssignRole,
    CreateCredential,
    ReadCredentials,
    GrantCredential,
    RevokeCredential,
    RegisterAgent,
    ReadAgent,
    DeleteAgent,
    IssueAgentToken,
    /// Issue, list and revoke tokens of a project's jobs.
    ManageJobTokens,
    ReadTokens,
    RevokeToken,
    /// Open a tunnel as an agent.
    ConnectAgent,
    ReadSource,
    SyncSource,
    SuspendSource,
    PinSource,
    ConfirmSource,
    DiffSource,
    ReadLog,
    /// Read what went through sessions with containers.
    ReadRecordings,
    VerifyLog,
    /// Announce a push to a project.
    AnnouncePush,
    /// Read a project's repository on behalf of an agent.
    ReadRepository,
    /// Issue, list and revoke another user's personal tokens.
    ManageUserTokens,
    /// Say which identity providers the organization believes, and take accounts there from users.
    ManageIdentityProviders,
    /// See which root signs passes, and have another sign from now on.
    RotateRoot,
    /// See a project's environments and deployments.
    ReadEnvironment,
    /// Create, change and delete a project's environments.
    ManageEnvironment,
    /// Stop a project's environments.
    StopEnvironment,
    /// Record a project's deployments.
    RecordDeployment,
    /// Have the organization's events sent to programs outside.
    ManageSubscriptions,
}

impl Action {
    /// Every action.
    pub const ALL: &'static [Self] = &[
        Self::CreateOrganization,
        Self::ReadOrganization,
        Self::CreateGroup,
        Self::CreateProject,
        Self::ReadProject,
        Self::ChangeProject,
        Self::DeleteProject,
        Self::DeleteGroup,
        Self::ReadUsers,
        Self::CreateUser,
        Self::DisableUser,
        Self::SetTokenLifetimes,
        Self::AssignRole,
        Self::CreateCredential,
        Self::ReadCredentials,
        Self::GrantCredential,
        Self::RevokeCredential,
        Self::RegisterAgent,
        Self::ReadAgent,
        Self::DeleteAgent,
        Self::IssueAgentToken,
        Self::ManageJobTokens,
        Self::ReadTokens,
        Self::RevokeToken,
        Self::ConnectAgent,
        Self::ReadSource,
        Self::SyncSource,
        Self::SuspendSource,
        Self::PinSource,
        Self::ConfirmSource,
        Self::DiffSource,
        Self::ReadLog,
        Self::ReadRecordings,
        Self::VerifyLog,
        Self::AnnouncePush,
        Self::ReadRepository,
        Self::ManageUserTokens,
        Self::ManageIdentityProviders,
        Self::RotateRoot,
        Self::ReadEnvironment,
        Self::ManageEnvironment,
        Self::StopEnvironment,
        Self::RecordDeployment,
        Self::ManageSubscriptions,
    ];
}

/// Who holds this token? The secret itself never crosses the bus.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authenticate {
    /// SHA-256 of the secret.
    pub hash: Sha256,
}
request!(Authenticate => Principal, "authz.authenticate");

/// Who holds a live token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Who.
    pub actor: Actor,
    /// Their organization.
    pub organization: OrganizationId,
    /// The token.
    pub token: TokenId,
    /// When the token ends by itself.
    pub expires_at: Option<Timestamp>,
}

/// May the holders of these tokens open tunnels? Many at once: after a gateway's end all its agents come together. Only
/// services may ask.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admit {
    /// SHA-256 of each secret, [`Admit::MOST`] at most.
    pub hashes: Vec<Sha256>,
}
request!(Admit => Vec<Admission>, "authz.admit");

impl Admit {
    /// So many tokens at once, so that the answer fits into a message.
    pub const MOST: usize = 128;
}

/// The answer to [`Admit`] about one token; the answers stand in the order of the hashes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// An agent that may.
    Admitted {
        /// Whose token it is.
        holder: Principal,
        /// The agent.
        agent: AgentId,
    },
    /// An agent that may not.
    Denied {
        /// Whose token it is.
        holder: Principal,
        /// The agent.
        agent: AgentId,
        /// Why.
        refusal: Refusal,
    },
    /// No live token, or not an agent's.
    Refused(Refusal),
}

/// May this actor do this there?
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decide {
    /// Who.
    pub actor: Actor,
    /// In which organization.
    pub organization: OrganizationId,
    /// What.
    pub action: Action,
    /// Where.
    pub scope: Scope,
}
request!(Decide => Decision, "authz.decide");

/// The answer to [`Decide`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// Whether the actor may know that the scope exists; if not, answer "not found".
    pub visible: bool,
    /// By which role and scope, or what is missing.
    pub reason: String,
}

/// The agents on which an actor may do something, in the order of their ids: those with ids from `from` on, [`ListAllowedAgents::MOST`] at
/// most. Fewer are the last ones. Only for services, which fill pages of lists with what the actor may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListAllowedAgents {
    /// Who.
    pub actor: Actor,
    /// In which organization.
    pub organization: OrganizationId,
    /// What.
    pub action: Action,
    /// The first id that counts; all if not given.
    pub from: Option<AgentId>,
}
request!(ListAllowedAgents => Vec<AgentId>, "authz.list-allowed-agents");

impl ListAllowedAgents {
    /// So many agents at once, so that the answer fits into a message.
    pub const MOST: usize = 1024;
}

/// Which of these projects and groups the organization does not have, as grants name them: people have no other way to see that
/// a grant lets nobody in. Only for services.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindMissing {
    /// Projects, each as `group/name`, an id, or the external numeric id.
    pub projects: Vec<String>,
    /// Names of groups.
    pub groups: Vec<String>,
}
request!(FindMissing => Missing, "authz.find-missing");

/// The answer to [`FindMissing`]: those of them that there are not.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Missing {
    /// Projects, as they were given.
    pub projects: BTreeSet<String>,
    /// Groups, as they were given.
    pub groups: BTreeSet<String>,
}

/// May these agents' projects read that project's repository with that project's credential? Asked before each fetch.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecideFetch {
    /// The agents that want it, [`DecideFetch::MOST`] at most.
    pub agents: Vec<AgentId>,
    /// Whose repository.
    pub project: ProjectId,
}
request!(DecideFetch => FetchDecision, "authz.decide-fetch");

impl DecideFetch {
    /// So many agents at once, so that the answer fits into a message.
    pub const MOST: usize = 1024;
}

/// The answer to [`DecideFetch`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchDecision {
    /// The agents for which it may not be fetched: why not, and what to do.
    pub refused: BTreeMap<AgentId, String>,
    /// Where the repository is; present when it may be fetched for at least one.
    pub settings: Option<ProjectSettings>,
    /// The host the credential may be sent to; present when there is a credential. Its secret is in the key ring.
    pub credential_host: Option<String>,
}

impl FetchDecision {
    /// Whether it may be fetched for one of the agents that were asked about.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn of(&self, agent: AgentId) -> Result<(), &str> {
        self.refused.get(&agent).map_or(Ok(()), |reason| Err(reason))
    }
}

/// Creates an organization.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOrganization {
    /// Its name.
    pub name: String,
    /// Login name of its first owner.
    pub owner: String,
}
request!(CreateOrganization => OrganizationView, "authz.create-organization");

/// Lists the organizations that the actor may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListOrganizations {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListOrganizations => OrganizationView, by OrganizationId, "authz.list-organizations");

/// One organization.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganizationView {
    /// Its id.
    pub id: OrganizationId,
    /// Its name.
    pub name: String,
    /// How long its personal tokens live.
    #[serde(default)]
    pub token_lifetimes: TokenLifetimes,
    /// First personal token of its owner: only in the answer to [`CreateOrganization`], shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_token: Option<SecretToken>,
}

/// Says how long personal tokens of the actor's organization live that are issued from now on; what is `None` stays.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTokenLifetimes {
    /// Where nothing else is said, in seconds.
    pub default_seconds: Option<u64>,
    /// At most, in seconds.
    pub longest_seconds: Option<u64>,
}
request!(SetTokenLifetimes => OrganizationView, "authz.set-token-lifetimes");

/// Makes sure that there is an organization with an owner who has a live token. Only services may ask; asking again
/// changes nothing while the token lives.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureOwner {
    /// Name of the organization.
    pub organization: String,
    /// Login name of its owner, who is an operator too.
    pub owner: String,
    /// SHA-256 of the token that the asker has already, if it has one.
    pub token: Option<Sha256>,
    /// Another asker may hold the owner's token: where one lives, none is issued.
    #[serde(default)]
    pub shared: bool,
}
request!(EnsureOwner => FirstStart, "authz.ensure-owner");

/// The answer to [`EnsureOwner`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstStart {
    /// The organization.
    pub organization: OrganizationId,
    /// Its owner.
    pub owner: UserId,
    /// A new token, when none that the asker may know of lives; earlier ones of this kind are revoked.
    pub token: Option<SecretToken>,
}
