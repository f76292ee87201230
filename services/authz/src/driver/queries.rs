//! What is only answered.

use bus::page;
use events::requests::authz::{
    AgentView, CredentialView, Decide, DecideFetch, Decision, FetchDecision, FindMissing, GroupView,
    ListAgents, ListAllowedAgents, ListCredentials, ListGroups, ListOrganizations, ListProjects,
    LocateProject, Missing, OrganizationView, ProjectLocation, ProjectView, ShowAgent, ShowProject,
};
use events::requests::page::{Page, Paged as _};
use events::{Actor, AgentId, Refusal, RefusalKind};

use super::Driver;
use crate::model::Asker;

/// Refuses all but services.
pub(super) fn services_only(asker: &Asker) -> Result<(), Refusal> {
    match asker.actor {
        Actor::Service(_) => Ok(()),
        _ => Err(Refusal::new(RefusalKind::Denied, "only services may request this")),
    }
}

impl Driver {
    pub(super) async fn decide(self, asker: Asker, request: Decide) -> Result<Decision, Refusal> {
        if request.actor != asker.actor {
            services_only(&asker)?;
        }
        let decide = || self.directory.read(|directory| directory.decide_access(&request));
        let decision = decide();
        if decision.allowed {
            return Ok(decision);
        }
        // Whoever asks may have heard of a role a moment before this directory.
        self.catch_up().await?;
        Ok(decide())
    }

    pub(super) async fn decide_fetch(
        self,
        asker: Asker,
        request: DecideFetch,
    ) -> Result<FetchDecision, Refusal> {
        services_only(&asker)?;
        if request.agents.len() > DecideFetch::MOST {
            let message = format!("at most {} agents at once", DecideFetch::MOST);
            return Err(Refusal::invalid("agents", message));
        }
        let decide = || {
            let now = self.now();
            self.directory.read(|directory| directory.decide_fetch(asker.organization, &request, now))
        };
        let decision = decide();
        if decision.refused.is_empty() {
            return Ok(decision);
        }
        // The asker may know an agent or a grant a moment before this directory.
        self.catch_up().await?;
        Ok(decide())
    }

    pub(super) async fn find_missing(self, asker: Asker, request: FindMissing) -> Result<Missing, Refusal> {
        services_only(&asker)?;
        let find = || self.directory.read(|directory| directory.missing(asker.organization, &request));
        let missing = find();
        if missing == Missing::default() {
            return Ok(missing);
        }
        // Whoever asks may have heard of a project a moment before this directory.
        self.catch_up().await?;
        Ok(find())
    }

    pub(super) async fn locate_project(
        self,
        asker: Asker,
        request: LocateProject,
    ) -> Result<ProjectLocation, Refusal> {
        services_only(&asker)?;
        let found = self.directory.read(|directory| directory.locate_project(request.project));
        found.ok_or_else(|| Refusal::not_found("project"))
    }

    pub(super) async fn list_allowed_agents(
        self,
        asker: Asker,
        request: ListAllowedAgents,
    ) -> Result<Vec<AgentId>, Refusal> {
        services_only(&asker)?;
        // The asker may know an agent or a role a moment before this directory.
        self.catch_up().await?;
        Ok(self
            .directory
            .read(|directory| directory.allowed_agents(&request).take(ListAllowedAgents::MOST).collect()))
    }

    pub(super) async fn list_organizations(
        self,
        asker: Asker,
        request: ListOrganizations,
    ) -> Result<Page<OrganizationView>, Refusal> {
        let after = request.after()?;
        self.directory.read(|directory| page(&request, directory.organizations_for(&asker, after)))
    }

    pub(super) async fn list_groups(
        self,
        asker: Asker,
        request: ListGroups,
    ) -> Result<Page<GroupView>, Refusal> {
        let after = request.after()?;
        self.directory.read(|directory| page(&request, directory.groups_for(&asker, after)))
    }

    pub(super) async fn list_projects(
        self,
        asker: Asker,
        request: ListProjects,
    ) -> Result<Page<ProjectView>, Refusal> {
        let after = request.after()?;
        self.directory.read(|directory| page(&request, directory.projects_for(&asker, after)))
    }

    pub(super) async fn show_project(
        self,
        asker: Asker,
        request: ShowProject,
    ) -> Result<ProjectView, Refusal> {
        self.directory.read(|directory| {
            let (id, _) = directory.visible_project(&asker, &request.project)?;
            directory.project_view(id).ok_or_else(|| Refusal::not_found("project"))
        })
    }

    pub(super) async fn list_credentials(
        self,
        asker: Asker,
        request: ListCredentials,
    ) -> Result<Page<CredentialView>, Refusal> {
        let after = request.after()?;
        self.directory.read(|directory| page(&request, directory.credentials_for(&asker, after)?))
    }

    pub(super) async fn list_agents(
        self,
        asker: Asker,
        request: ListAgents,
    ) -> Result<Page<AgentView>, Refusal> {
        let after = request.after()?;
        self.directory.read(|directory| page(&request, directory.agents_for(&asker, after)))
    }

    pub(super) async fn show_agent(self, asker: Asker, request: ShowAgent) -> Result<AgentView, Refusal> {
        self.directory.read(|directory| {
            let (id, _) = directory.visible_agent(&asker, &request.agent)?;
            directory.agent_view(id).ok_or_else(|| Refusal::not_found("agent"))
        })
    }
}
