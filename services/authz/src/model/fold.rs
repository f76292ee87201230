//! The fold.

use events::directory::{DirectoryEvent, TokenHolder, TokenIssued, UserLinked};
use events::requests::authz::ProviderTrust;
use events::{Actor, AggregateKind, Commit, Event, Timestamp};
use store::{Committed, Fact, Projection, ReadFilter};

use super::identity::Account;
use super::root::LaterRoot;
use super::{Agent, Claim, Credential, Directory, Disabled, Group, Organization, Project, Token, User};

impl Projection for Directory {
    const NAME: &'static str = "authz-directory";
    const FOLD_VERSION: u32 = 9;
    const SNAPSHOT_EVERY: u64 = 10_000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[
            AggregateKind::Organization,
            AggregateKind::Group,
            AggregateKind::Project,
            AggregateKind::User,
            AggregateKind::Agent,
            AggregateKind::Job,
            AggregateKind::Credential,
            AggregateKind::Name,
            AggregateKind::Configuration,
        ])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        if let Fact::Commit(committed) = fact {
            self.apply_commit(committed);
        }
    }
}

impl Directory {
    fn apply_commit(&mut self, committed: Committed<'_, Event>) {
        let Committed { commit, events, is_incomplete } = committed;
        if commit.aggregate.kind == AggregateKind::Configuration {
            self.apply_configuration(commit, events.into_iter().map(|(_, event)| event), is_incomplete);
            return;
        }
        for (_, event) in events {
            if let Event::Directory(event) = event {
                self.apply_event(commit, event);
            }
        }
        self.versions.insert((commit.organization, commit.aggregate.clone()), commit.version);
    }

    #[expect(clippy::too_many_lines, reason = "one short arm an event")]
    fn apply_event(&mut self, commit: &Commit, event: DirectoryEvent) {
        let organization = commit.organization;
        let created_by = commit.id;
        match event {
            DirectoryEvent::OrganizationCreated(event) => {
                self.organizations.insert(event.organization, Organization { name: event.name, created_by });
            }
            DirectoryEvent::RootRotated(event) => {
                let (id, link, since) = (event.root, event.link, commit.occurred_at);
                self.roots.push(LaterRoot { id, link, since, made_by: created_by });
            }
            DirectoryEvent::IdentityProviderTrusted(event) => {
                let trust = ProviderTrust { owners: event.owners };
                self.trusts.insert((organization, event.provider), trust);
            }
            DirectoryEvent::IdentityProviderDistrusted(event) => {
                self.trusts.remove(&(organization, event.provider));
            }
            DirectoryEvent::UserLinked(UserLinked { user, provider, subject }) => {
                self.accounts.insert(Account { organization, provider, subject }, user);
            }
            DirectoryEvent::UserUnlinked(event) => {
                self.accounts
                    .retain(|account, user| *user != event.user || account.provider != event.provider);
            }
            DirectoryEvent::GroupCreated(event) => {
                self.groups.insert(event.group, Group { organization, name: event.name, created_by });
            }
            DirectoryEvent::ProjectCreated(event) => {
                let (group, name, settings) = (event.group, event.name, event.settings);
                if self.gone.contains(&group.0) {
                    self.gone.insert(event.project.0);
                    return;
                }
                self.projects
                    .insert(event.project, Project { organization, group, name, settings, created_by });
            }
            DirectoryEvent::ProjectChanged(event) => {
                if let Some(project) = self.projects.get_mut(&event.project) {
                    project.settings = event.settings;
                }
            }
            DirectoryEvent::UserCreated(event) => {
                let roles = std::collections::BTreeSet::new();
                let user = User { organization, name: event.name, roles, created_by, disabled: None };
                self.users.insert(event.user, user);
            }
            DirectoryEvent::UserDisabled(event) => {
                if let Some(user) = self.users.get_mut(&event.user) {
                    user.disabled = Some(Disabled { keeps_agents_tokens: event.keeps_agents_tokens });
                }
                self.kill_tokens(TokenHolder::User(event.user), commit.occurred_at);
            }
            DirectoryEvent::UserEnabled(event) => {
                if let Some(user) = self.users.get_mut(&event.user) {
                    user.disabled = None;
                }
            }
            DirectoryEvent::TokenLifetimesSet(event) => {
                self.lifetimes.insert(organization, event.lifetimes);
            }
            DirectoryEvent::GroupDeleted(event) => self.apply_group_deleted(event.group),
            DirectoryEvent::ProjectDeleted(event) => {
                self.apply_project_deleted(event.project, commit.occurred_at);
            }
            DirectoryEvent::RoleAssigned(event) => {
                if let Some(user) = self.users.get_mut(&event.user) {
                    user.roles.insert((event.role, event.scope));
                }
            }
            DirectoryEvent::RoleWithdrawn(event) => {
                if let Some(user) = self.users.get_mut(&event.user) {
                    user.roles.remove(&(event.role, event.scope));
                }
            }
            DirectoryEvent::CredentialCreated(event) => {
                let projects = std::collections::BTreeSet::new();
                let (name, host) = (event.name, event.host);
                let credential =
                    Credential { organization, name, host, projects, revoked: false, created_by };
                self.credentials.insert(event.credential, credential);
            }
            DirectoryEvent::CredentialGranted(event) => {
                if let Some(credential) = self.credentials.get_mut(&event.credential) {
                    credential.projects.insert(event.project);
                }
            }
            DirectoryEvent::CredentialRevoked(event) => {
                if let Some(credential) = self.credentials.get_mut(&event.credential) {
                    credential.revoked = true;
                }
            }
            DirectoryEvent::AgentRegistered(event) => {
                let (name, project, group) = (event.name, event.project, event.group);
                let (registered_at, deleted) = (commit.occurred_at, self.gone.contains(&project.0));
                let agent = Agent { organization, name, project, group, registered_at, deleted, created_by };
                self.agents.insert(event.agent, agent);
            }
            DirectoryEvent::AgentDeleted(event) => {
                if let Some(agent) = self.agents.get_mut(&event.agent) {
                    agent.deleted = true;
                }
                self.forget_grants(event.agent);
                self.kill_tokens(TokenHolder::Agent(event.agent), commit.occurred_at);
            }
            DirectoryEvent::JobAdmitted(event) => self.apply_job_admitted(event, commit),
            DirectoryEvent::TokenIssued(event) => self.apply_token_issued(event, commit),
            DirectoryEvent::TokenRevoked(event) => {
                if let Some(token) = self.tokens.get_mut(&event.token) {
                    token.revoked_at.get_or_insert(commit.occurred_at);
                }
            }
            DirectoryEvent::TokenUsed(event) => {
                if let Some(token) = self.tokens.get_mut(&event.token) {
                    token.last_used_at = token.last_used_at.max(Some(event.at));
                }
            }
            DirectoryEvent::NameClaimed(event) => {
                if let Ok(id) = commit.aggregate.id.parse() {
                    self.names.insert((organization, id), Claim { what: event.what, holder: event.holder });
                }
            }
        }
    }

    /// One that comes too late, by a decision on what was so before, is dead from the start.
    fn apply_token_issued(&mut self, event: TokenIssued, commit: &Commit) {
        if let (TokenHolder::Job(job), Some(end)) = (event.holder, event.expires_at) {
            self.job_ends.insert((end, job));
        }
        self.hashes.insert(event.hash, event.token);
        self.holders.entry(event.holder).or_default().insert(event.token);
        let is_late =
            self.is_gone(event.holder) || matches!(commit.actor, Actor::User(user) if self.is_disabled(user));
        let token = Token {
            organization: commit.organization,
            holder: event.holder,
            made_by: commit.actor.clone(),
            clusters_only: event.clusters_only,
            hash: event.hash,
            name: event.name,
            issued_at: commit.occurred_at,
            expires_at: event.expires_at,
            last_used_at: None,
            revoked_at: is_late.then_some(commit.occurred_at),
        };
        self.tokens.insert(event.token, token);
    }

    pub(super) fn kill_tokens(&mut self, holder: TokenHolder, at: Timestamp) {
        for id in self.holders.get(&holder).into_iter().flatten() {
            if let Some(token) = self.tokens.get_mut(id) {
                token.revoked_at.get_or_insert(at);
            }
        }
    }
}
