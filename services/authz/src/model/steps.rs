//! Everything that authz decides, each as data: recorded with the commit, so that the decision can be made again.

use std::collections::{BTreeMap, BTreeSet};

use events::directory::{
    AgentRegistered, JobAdmitted, PersonalData, ProjectSettings, Role, Scope, TokenHolder, TokenIssued,
    TokenLifetimes,
};
use events::root::RootLink;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, CommitId, CredentialId, GroupId, JobId, OrganizationId,
    ProjectId, Refusal, RefusalKind, RootId, Timestamp, TokenId, UserId,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Decides, ReadSet};
use uuid::Uuid;

use super::claims::NameId;
use super::identity::{Account, JobClaims};
use super::projects::NewProject;
use super::{Asker, Decided, Directory, User};

/// What a decision is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Who asks, and where.
    pub asker: Asker,
    /// Now.
    pub now: Timestamp,
    /// What is wanted.
    pub step: Step,
}

/// One decision of a request. Ids, hashes and ciphertext were made before; `key` is the commit that creates the thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is a method of the directory, which says it")]
pub enum Step {
    Claim { name: NameId, fresh: Uuid, key: CommitId },
    CreateOrganization { id: OrganizationId, name: String, key: CommitId },
    CreateGroup { id: GroupId, name: String, key: CommitId },
    CreateProject { id: ProjectId, project: NewProject, key: CommitId },
    SetProject { id: ProjectId, settings: ProjectSettings },
    NewUser { id: UserId, name: PersonalData, roles: Vec<(Role, Scope)>, key: CommitId },
    CreateUser { id: UserId, name: PersonalData, first: (Role, Scope), key: CommitId },
    AssignRole { user: UserId, role: (Role, Scope), withdraw: bool },
    DisableUser { user: UserId, keeps_agents_tokens: bool },
    EnableUser { user: UserId },
    SetTokenLifetimes { lifetimes: TokenLifetimes },
    DeleteGroup { group: GroupId },
    DeleteProject { project: ProjectId },
    CreateCredential { claim: NameId, id: CredentialId, name: String, host: String, key: CommitId },
    GrantCredential { credential: CredentialId, project: ProjectId },
    RevokeCredential { credential: String },
    RegisterAgent { agent: AgentRegistered, token: TokenIssued, key: CommitId },
    DeleteAgent { agent: String },
    IssueToken { token: TokenIssued, unless_held: bool },
    AdmitJob { job: JobAdmitted, token: TokenIssued },
    TrustProvider { provider: String, owners: BTreeSet<String> },
    DistrustProvider { provider: String },
    RotateRoot { root: RootId, link: RootLink },
    UnlinkUser { user: UserId, provider: String },
    SignInJob { claims: JobClaims, job: JobAdmitted, token: TokenIssued },
    SignInUser { account: Account, token: TokenIssued },
    RevokeToken { token: TokenId },
    Revoke { token: TokenId },
    UseToken { token: TokenId },
}

impl Directory {
    /// Decides a step. Its outcome is the id of what it is about: of a claim the id under which the thing is to be created.
    ///
    /// # Errors
    /// As of the step.
    #[expect(clippy::too_many_lines, reason = "one short arm a step")]
    pub fn decide(&self, given: &Given) -> Result<Decided<Uuid>, Refusal> {
        let Given { asker, now, step } = given;
        match step {
            Step::Claim { name, fresh, key } => self.claim(*name, *fresh, *key),
            Step::CreateOrganization { id, name, key } => {
                about(id.0, self.create_organization(*id, name, *key))
            }
            Step::CreateGroup { id, name, key } => about(id.0, self.create_group(asker, *id, name, *key)),
            Step::CreateProject { id, project, key } => {
                about(id.0, self.create_project(asker, *id, project, *key))
            }
            Step::SetProject { id, settings } => about(id.0, self.set_project(asker, *id, settings)),
            Step::NewUser { id, name, roles, key } => {
                about(id.0, self.new_user(asker.organization, *id, name.clone(), roles, *key))
            }
            Step::CreateUser { id, name, first, key } => {
                about(id.0, self.create_user(asker, *id, name.clone(), *first, *key))
            }
            Step::AssignRole { user, role, withdraw } => {
                about(user.0, self.assign_role(asker, *user, *role, *withdraw))
            }
            Step::DisableUser { user, keeps_agents_tokens } => {
                about(user.0, self.disable_user(asker, *user, *keeps_agents_tokens))
            }
            Step::EnableUser { user } => about(user.0, self.enable_user(asker, *user)),
            Step::SetTokenLifetimes { lifetimes } => {
                about(asker.organization.0, self.set_token_lifetimes(asker, *lifetimes))
            }
            Step::DeleteGroup { group } => about(group.0, self.delete_group(asker, *group)),
            Step::DeleteProject { project } => about(project.0, self.delete_project(asker, *project)),
            Step::CreateCredential { claim, id, .. } if !self.is_claimed_by(*claim, id.0) => Err(gone()),
            Step::CreateCredential { id, name, host, key, .. } => {
                about(id.0, self.create_credential(asker, *id, name, host, *key))
            }
            Step::GrantCredential { credential, project } => {
                about(credential.0, self.grant_credential(asker, *credential, *project))
            }
            Step::RevokeCredential { credential } => {
                let Decided { draft, outcome } = self.revoke_credential(asker, credential)?;
                Ok(Decided { draft, outcome: outcome.0 })
            }
            Step::RegisterAgent { agent, token, key } => {
                about(agent.agent.0, self.register_agent(asker, agent.clone(), token.clone(), *key))
            }
            Step::DeleteAgent { agent } => {
                let Decided { draft, outcome } = self.delete_agent(asker, agent)?;
                Ok(Decided { draft, outcome: outcome.0 })
            }
            Step::IssueToken { token, unless_held: true }
                if self.holds_token(token.holder, &token.name, *now) =>
            {
                Ok(Decided::already(token.token.0))
            }
            Step::IssueToken { token, .. } => about(token.token.0, self.issue_token(asker, token, *now)),
            Step::AdmitJob { job, token } => {
                about(token.token.0, self.admit_job(asker, job.clone(), token.clone(), *now))
            }
            Step::TrustProvider { provider, owners } => {
                about(asker.organization.0, self.trust_provider(asker, provider, owners))
            }
            Step::DistrustProvider { provider } => {
                about(asker.organization.0, self.distrust_provider(asker, provider))
            }
            Step::RotateRoot { root, link } => about(root.0, self.rotate_root(asker, *root, link, *now)),
            Step::UnlinkUser { user, provider } => about(user.0, self.unlink_user(asker, *user, provider)),
            Step::SignInJob { claims, job, token } => {
                about(token.token.0, self.sign_in_job(claims, job.clone(), token.clone(), *now))
            }
            Step::SignInUser { account, token } => {
                about(token.token.0, self.sign_in_user(account, token.clone(), *now))
            }
            Step::RevokeToken { token } => about(token.0, self.revoke_token(asker, *token)),
            Step::Revoke { token } => about(token.0, self.revoke(*token)),
            Step::UseToken { token } => about(token.0, self.use_token(*token, *now)),
        }
    }

    /// Whether the holder has a token of that name that is live at `now`.
    #[must_use]
    pub fn holds_token(&self, holder: TokenHolder, name: &str, now: Timestamp) -> bool {
        self.held_by(holder).any(|(_, token)| token.name == name && token.is_live(now))
    }
}

impl Decides for Directory {
    const DECIDES: &'static [AggregateKind] = &[
        AggregateKind::Organization,
        AggregateKind::Group,
        AggregateKind::Project,
        AggregateKind::User,
        AggregateKind::Agent,
        AggregateKind::Job,
        AggregateKind::Credential,
        AggregateKind::Name,
    ];

    type Given = Given;

    fn make(&self, given: &Given) -> Result<Option<store::Draft>, Refusal> {
        Ok(self.decide(given)?.draft.map(store::Draft::from))
    }

    /// Names of organizations and operators are in the organization `system`; who asks may be at home in another than the
    /// one in which they act.
    fn read_set(&self, given: &Given) -> ReadSet {
        let mut organizations = BTreeSet::from([OrganizationId::SYSTEM, given.asker.organization]);
        if let Actor::User(user) = &given.asker.actor {
            organizations.extend(self.users.get(user).map(|user| user.organization));
        }
        match &given.step {
            Step::Claim { name, .. } => organizations.extend([name.organization]),
            Step::CreateOrganization { id, .. } => organizations.extend([*id]),
            Step::Revoke { token } | Step::UseToken { token } => {
                organizations.extend(self.tokens.get(token).map(|token| token.organization));
            }
            _ => {}
        }
        ReadSet { organizations, ..ReadSet::default() }
    }

    fn version_of(&self, organization: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.version(organization, aggregate)
    }

    fn describe(&self, organization: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        let id: Uuid = aggregate.id.parse().ok()?;
        let tokens = |holder: TokenHolder| {
            let tokens: BTreeMap<_, _> = self.held_by(holder).collect();
            yaml(&BTreeMap::from([("tokens", tokens)]))
        };
        match aggregate.kind {
            AggregateKind::Organization => shown(self.organizations.get(&OrganizationId(id))),
            AggregateKind::Group => shown(self.groups.get(&GroupId(id))),
            AggregateKind::Project => shown(self.projects.get(&ProjectId(id))),
            AggregateKind::Credential => shown(self.credentials.get(&CredentialId(id))),
            AggregateKind::Name => shown(self.names.get(&(organization, id))),
            AggregateKind::User => {
                let (id, user) = self.users.get_key_value(&UserId(id))?;
                // Bytes of ciphertext tell people nothing.
                let user = User { name: PersonalData(Vec::new()), ..user.clone() };
                Some(yaml(&user) + &tokens(TokenHolder::User(*id)))
            }
            AggregateKind::Agent => {
                let (id, agent) = self.agents.get_key_value(&AgentId(id))?;
                Some(yaml(agent) + &tokens(TokenHolder::Agent(*id)))
            }
            AggregateKind::Job => {
                let (id, job) = self.jobs.get_key_value(&JobId(id))?;
                Some(yaml(job) + &tokens(TokenHolder::Job(*id)))
            }
            _ => None,
        }
    }
}

fn shown<T: Serialize>(known: Option<&T>) -> Option<String> {
    known.map(yaml)
}

fn about(id: Uuid, decided: Result<Decided<()>, Refusal>) -> Result<Decided<Uuid>, Refusal> {
    decided.map(|Decided { draft, .. }| Decided { draft, outcome: id })
}

/// What was just written must be there; if not, another request undid it.
pub(crate) fn gone() -> Refusal {
    Refusal::new(RefusalKind::Conflict, "it was changed at the same moment; look again")
}
