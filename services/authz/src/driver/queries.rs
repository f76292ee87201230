//! What is only answered.

use events::requests::authz::{
    AgentView, CredentialView, Decide, DecideFetch, Decision, FetchDecision, FindMissing, GroupView,
    ListAgents, ListCredentials, ListGroups, ListOrganizations, ListProjects, LocateProject, Missing,
    OrganizationView, ProjectLocation, ProjectView, ShowAgent, ShowProject,
};
use events::{Actor, Refusal, RefusalKind};

use super::Driver;
use crate::model::Asker;

/// Refuses all but services.
pub(super) fn services_only(asker: &Asker) -> Result<(), Refusal> {
    match asker.actor {
        Actor::Service(_) => Ok(()),
        _ => Err(Refusal::new(RefusalKind::Denied, "only services ask this")),
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
        // Whoever asks may have heard of an agent or a grant a moment before this directory.
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

    pub(super) async fn list_organizations(
        self,
        asker: Asker,
        _: ListOrganizations,
    ) -> Result<Vec<OrganizationView>, Refusal> {
        Ok(self.directory.read(|directory| directory.organizations_for(&asker)))
    }

    pub(super) async fn list_groups(self, asker: Asker, _: ListGroups) -> Result<Vec<GroupView>, Refusal> {
        Ok(self.directory.read(|directory| directory.groups_for(&asker)))
    }

    pub(super) async fn list_projects(
        self,
        asker: Asker,
        _: ListProjects,
    ) -> Result<Vec<ProjectView>, Refusal> {
        Ok(self.directory.read(|directory| directory.projects_for(&asker)))
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
        _: ListCredentials,
    ) -> Result<Vec<CredentialView>, Refusal> {
        self.directory.read(|directory| directory.credentials_for(&asker))
    }

    pub(super) async fn list_agents(self, asker: Asker, _: ListAgents) -> Result<Vec<AgentView>, Refusal> {
        Ok(self.directory.read(|directory| directory.agents_for(&asker)))
    }

    pub(super) async fn show_agent(self, asker: Asker, request: ShowAgent) -> Result<AgentView, Refusal> {
        self.directory.read(|directory| {
            let (id, _) = directory.visible_agent(&asker, &request.agent)?;
            directory.agent_view(id).ok_or_else(|| Refusal::not_found("agent"))
        })
    }
}
