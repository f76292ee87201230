//! What people get to see.

use events::directory::{PersonalData, Scope, TokenHolder};
use events::requests::authz::{
    Action, AgentView, CredentialView, GroupView, OrganizationView, ProjectLocation, ProjectView, TokenView,
    UserView,
};
use events::{Actor, AgentId, CredentialId, GroupId, OrganizationId, ProjectId, Refusal, TokenId, UserId};

use super::{Asker, Directory, Token};

impl Directory {
    /// One organization.
    #[must_use]
    pub fn organization_view(&self, id: OrganizationId) -> Option<OrganizationView> {
        self.organizations.get(&id).map(|found| OrganizationView {
            id,
            name: found.name.clone(),
            token_lifetimes: self.token_lifetimes(id),
            owner_token: None,
        })
    }

    /// The organizations that the asker may see: their own, or all for an operator.
    #[must_use]
    pub fn organizations_for(&self, asker: &Asker) -> Vec<OrganizationView> {
        let sees = |id: &OrganizationId| {
            let there = Asker { actor: asker.actor.clone(), organization: *id };
            let reads = self.may(&there, Action::ReadOrganization, Scope::Organization(*id));
            reads && (*id == asker.organization || !matches!(asker.actor, Actor::Service(_)))
        };
        self.organizations.keys().filter(|id| sees(id)).filter_map(|id| self.organization_view(*id)).collect()
    }

    /// One group.
    #[must_use]
    pub fn group_view(&self, id: GroupId) -> Option<GroupView> {
        self.groups.get(&id).map(|group| GroupView { id, name: group.name.clone() })
    }

    /// The groups that the asker may see: those in which they may see something.
    #[must_use]
    pub fn groups_for(&self, asker: &Asker) -> Vec<GroupView> {
        let sees = |id: GroupId| {
            let (actor, organization) = (asker.actor.clone(), asker.organization);
            let (action, scope) = (Action::ReadProject, Scope::Group(id));
            self.decide_access(&events::requests::authz::Decide { actor, organization, action, scope })
                .visible
        };
        self.groups.keys().filter(|id| sees(**id)).filter_map(|id| self.group_view(*id)).collect()
    }

    /// One project.
    #[must_use]
    pub fn project_view(&self, id: ProjectId) -> Option<ProjectView> {
        let project = self.projects.get(&id)?;
        let (group, settings) = (project.group, project.settings.clone());
        Some(ProjectView { id, group, path: self.path(project), settings })
    }

    /// The projects that the asker may see.
    #[must_use]
    pub fn projects_for(&self, asker: &Asker) -> Vec<ProjectView> {
        let sees = |id: ProjectId| self.may(asker, Action::ReadProject, Scope::Project(id));
        self.projects.keys().filter(|id| sees(**id)).filter_map(|id| self.project_view(*id)).collect()
    }

    /// Where a project is.
    #[must_use]
    pub fn locate_project(&self, id: ProjectId) -> Option<ProjectLocation> {
        let organization = self.projects.get(&id)?.organization;
        Some(ProjectLocation { organization, project: self.project_view(id)? })
    }

    /// One agent, also when it was deleted.
    #[must_use]
    pub fn agent_view(&self, id: AgentId) -> Option<AgentView> {
        let agent = self.agents.get(&id)?;
        let project_path = self.project_path_of(agent).unwrap_or_default();
        let (name, project, registered_at) = (agent.name.clone(), agent.project, agent.registered_at);
        Some(AgentView { id, name, project, project_path, registered_at })
    }

    /// The agents that the asker may see.
    #[must_use]
    pub fn agents_for(&self, asker: &Asker) -> Vec<AgentView> {
        let sees = |id: AgentId| self.may(asker, Action::ReadAgent, Scope::Agent(id));
        self.agents.keys().filter(|id| sees(**id)).filter_map(|id| self.agent_view(*id)).collect()
    }

    /// One credential.
    #[must_use]
    pub fn credential_view(&self, id: CredentialId) -> Option<CredentialView> {
        let found = self.credentials.get(&id)?;
        let (name, host) = (found.name.clone(), found.host.clone());
        let projects = found.projects.iter().copied().collect();
        Some(CredentialView { id, name, host, projects, revoked: found.revoked })
    }

    /// The credentials of the asker's organization.
    ///
    /// # Errors
    /// When they may not see them.
    pub fn credentials_for(&self, asker: &Asker) -> Result<Vec<CredentialView>, Refusal> {
        self.authorize(
            asker,
            Action::ReadCredentials,
            Scope::Organization(asker.organization),
            "organization",
        )?;
        let own = self.credentials.iter().filter(|(_, found)| found.organization == asker.organization);
        Ok(own.filter_map(|(id, _)| self.credential_view(*id)).collect())
    }

    /// The users of the asker's organization, names still encrypted.
    ///
    /// # Errors
    /// When they may not see them.
    pub fn users_for(&self, asker: &Asker) -> Result<Vec<(UserView, PersonalData)>, Refusal> {
        self.authorize(asker, Action::ReadUsers, Scope::Organization(asker.organization), "organization")?;
        let own = self.users.iter().filter(|(_, found)| found.organization == asker.organization);
        Ok(own.filter_map(|(id, _)| self.user_view(*id)).collect())
    }

    /// One user, the name still encrypted.
    #[must_use]
    pub fn user_view(&self, id: UserId) -> Option<(UserView, PersonalData)> {
        let user = self.users.get(&id)?;
        let roles = user.roles.iter().copied().collect();
        let accounts = self.accounts.iter().filter(|(_, holder)| **holder == id);
        let accounts = accounts.map(|(account, _)| account.provider.clone()).collect();
        let disabled = user.disabled.is_some();
        Some((UserView { id, name: None, roles, accounts, disabled }, user.name.clone()))
    }

    /// One token.
    #[must_use]
    pub fn token_view(&self, id: TokenId) -> Option<TokenView> {
        self.tokens.get(&id).map(|token| view(id, token))
    }

    /// The tokens of a holder, also those that are dead.
    #[must_use]
    pub fn tokens_of(&self, holder: TokenHolder) -> Vec<TokenView> {
        self.held_by(holder).map(|(id, token)| view(id, token)).collect()
    }
}

fn view(id: TokenId, token: &Token) -> TokenView {
    TokenView {
        id,
        name: token.name.clone(),
        holder: token.holder,
        issued_at: token.issued_at,
        expires_at: token.expires_at,
        last_used_at: token.last_used_at,
        revoked_at: token.revoked_at,
        clusters_only: token.clusters_only,
    }
}
