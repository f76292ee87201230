//! What people get to see.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use events::directory::{PersonalData, Scope, TokenHolder};
use events::requests::authz::{
    Action, AgentView, CredentialView, GroupView, ListAllowedAgents, ListAllowedProjects, OrganizationView,
    ProjectLocation, ProjectView, TokenView, UserView,
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

    /// The organizations behind an id that the asker may see: their own, or all for an operator.
    pub fn organizations_for(
        &self,
        asker: &Asker,
        after: Option<OrganizationId>,
    ) -> impl Iterator<Item = (OrganizationId, OrganizationView)> {
        let sees = move |id: &OrganizationId| {
            let there = Asker { actor: asker.actor.clone(), organization: *id };
            let reads = self.may(&there, Action::ReadOrganization, Scope::Organization(*id));
            reads && (*id == asker.organization || !matches!(asker.actor, Actor::Service(_)))
        };
        behind(&self.organizations, after)
            .map(|(id, _)| id)
            .filter(sees)
            .filter_map(|id| Some((id, self.organization_view(id)?)))
    }

    /// One group.
    #[must_use]
    pub fn group_view(&self, id: GroupId) -> Option<GroupView> {
        self.groups.get(&id).map(|group| GroupView { id, name: group.name.clone() })
    }

    /// The groups behind an id that the asker may see: those in which they may see something.
    pub fn groups_for(
        &self,
        asker: &Asker,
        after: Option<GroupId>,
    ) -> impl Iterator<Item = (GroupId, GroupView)> {
        let sees = move |id: &GroupId| {
            let (actor, organization) = (asker.actor.clone(), asker.organization);
            let (action, scope) = (Action::ReadProject, Scope::Group(*id));
            self.decide_access(&events::requests::authz::Decide { actor, organization, action, scope })
                .visible
        };
        behind(&self.groups, after)
            .map(|(id, _)| id)
            .filter(sees)
            .filter_map(|id| Some((id, self.group_view(id)?)))
    }

    /// One project.
    #[must_use]
    pub fn project_view(&self, id: ProjectId) -> Option<ProjectView> {
        let project = self.projects.get(&id)?;
        let (group, settings) = (project.group, project.settings.clone());
        Some(ProjectView { id, group, path: self.path(project), settings })
    }

    /// The projects behind an id that the asker may see.
    pub fn projects_for(
        &self,
        asker: &Asker,
        after: Option<ProjectId>,
    ) -> impl Iterator<Item = (ProjectId, ProjectView)> {
        let sees = move |id: &ProjectId| self.may(asker, Action::ReadProject, Scope::Project(*id));
        behind(&self.projects, after)
            .map(|(id, _)| id)
            .filter(sees)
            .filter_map(|id| Some((id, self.project_view(id)?)))
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
        let group = agent.group.and_then(|group| self.group_view(group));
        let (name, project, registered_at) = (agent.name.clone(), agent.project, agent.registered_at);
        Some(AgentView { id, name, project, project_path, group, registered_at })
    }

    /// The agents behind an id that the asker may see.
    pub fn agents_for(
        &self,
        asker: &Asker,
        after: Option<AgentId>,
    ) -> impl Iterator<Item = (AgentId, AgentView)> {
        let sees = move |id: &AgentId| self.may(asker, Action::ReadAgent, Scope::Agent(*id));
        behind(&self.agents, after)
            .map(|(id, _)| id)
            .filter(sees)
            .filter_map(|id| Some((id, self.agent_view(id)?)))
    }

    /// The agents on which an actor may do something, from an id on.
    pub fn allowed_agents(&self, wanted: &ListAllowedAgents) -> impl Iterator<Item = AgentId> {
        let asker = Asker { actor: wanted.actor.clone(), organization: wanted.organization };
        let from = wanted.from.map_or(Bound::Unbounded, Bound::Included);
        let agents = self.agents.range((from, Bound::Unbounded)).map(|(id, _)| *id);
        agents.filter(move |id| self.may(&asker, wanted.action, Scope::Agent(*id)))
    }

    /// The projects on which an actor may do something, from an id on.
    pub fn allowed_projects(&self, wanted: &ListAllowedProjects) -> impl Iterator<Item = ProjectId> {
        let asker = Asker { actor: wanted.actor.clone(), organization: wanted.organization };
        let from = wanted.from.map_or(Bound::Unbounded, Bound::Included);
        let projects = self.projects.range((from, Bound::Unbounded)).map(|(id, _)| *id);
        projects.filter(move |id| self.may(&asker, wanted.action, Scope::Project(*id)))
    }

    /// One credential.
    #[must_use]
    pub fn credential_view(&self, id: CredentialId) -> Option<CredentialView> {
        let found = self.credentials.get(&id)?;
        let (name, host) = (found.name.clone(), found.host.clone());
        let projects = found.projects.iter().copied().collect();
        Some(CredentialView { id, name, host, projects, revoked: found.revoked })
    }

    /// The credentials of the asker's organization behind an id.
    ///
    /// # Errors
    /// When they may not see them.
    pub fn credentials_for(
        &self,
        asker: &Asker,
        after: Option<CredentialId>,
    ) -> Result<impl Iterator<Item = (CredentialId, CredentialView)>, Refusal> {
        self.authorize(
            asker,
            Action::ReadCredentials,
            Scope::Organization(asker.organization),
            "organization",
        )?;
        let organization = asker.organization;
        let own =
            behind(&self.credentials, after).filter(move |(_, found)| found.organization == organization);
        Ok(own.filter_map(|(id, _)| Some((id, self.credential_view(id)?))))
    }

    /// The users of the asker's organization behind an id, names still encrypted.
    ///
    /// # Errors
    /// When they may not see them.
    pub fn users_for(
        &self,
        asker: &Asker,
        after: Option<UserId>,
    ) -> Result<impl Iterator<Item = (UserView, PersonalData)>, Refusal> {
        self.may_read_users(asker)?;
        let organization = asker.organization;
        let own = behind(&self.users, after).filter(move |(_, found)| found.organization == organization);
        Ok(own.filter_map(|(id, _)| self.user_view(id)))
    }

    /// Whether the asker may see the users of their organization.
    ///
    /// # Errors
    /// When not.
    pub fn may_read_users(&self, asker: &Asker) -> Result<(), Refusal> {
        self.authorize(asker, Action::ReadUsers, Scope::Organization(asker.organization), "organization")
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

    /// The tokens of holders behind an id, in the order of their ids; also those that are dead.
    pub fn tokens_of_all(
        &self,
        holders: impl Iterator<Item = TokenHolder>,
        after: Option<TokenId>,
    ) -> impl Iterator<Item = (TokenId, TokenView)> {
        let held = holders.filter_map(|holder| self.holders.get(&holder)).flatten();
        let ids: BTreeSet<TokenId> =
            held.copied().filter(|id| after.is_none_or(|after| *id > after)).collect();
        ids.into_iter().filter_map(|id| Some((id, self.token_view(id)?)))
    }
}

/// What has an id behind this one, in the order of the ids.
pub(super) fn behind<K: Ord + Copy, V>(
    all: &BTreeMap<K, V>,
    after: Option<K>,
) -> impl Iterator<Item = (K, &V)> {
    let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
    all.range((begin, Bound::Unbounded)).map(|(id, found)| (*id, found))
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
