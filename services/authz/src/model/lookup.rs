//! Finding things by what people type. Who may see what is found is decided elsewhere.

use events::directory::Scope;
use events::requests::authz::{Action, FindMissing, Missing};
use events::{AgentId, CredentialId, GroupId, OrganizationId, ProjectId, Refusal, RefusalKind, UserId};

use super::claims::{NameId, Named};
use super::projects::external_name;
use super::{Agent, Asker, Credential, Directory, Project};

/// A user as people name them: by id, or by a login name, of which only the keyed claim comes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRef {
    /// By id.
    Id(UserId),
    /// By the claim of the login name.
    Name(NameId),
}

impl Directory {
    /// The group of that name.
    #[must_use]
    pub fn group_named(&self, organization: OrganizationId, name: &str) -> Option<GroupId> {
        self.named(NameId::of(Named::Group, organization, organization.0, name)).map(GroupId)
    }

    /// The project by `group/name`, id, or external numeric id.
    #[must_use]
    pub fn find_project(&self, organization: OrganizationId, text: &str) -> Option<(ProjectId, &Project)> {
        let id = if let Ok(id) = text.parse::<ProjectId>() {
            id
        } else if let Some((group, name)) = text.split_once('/') {
            let group = self.group_named(organization, group)?;
            ProjectId(self.named(NameId::of(Named::Project, organization, group.0, name))?)
        } else {
            ProjectId(self.named(external_name(organization, text.parse().ok()?))?)
        };
        let project = self.projects.get(&id).filter(|project| project.organization == organization)?;
        Some((id, project))
    }

    /// Those projects and groups that the organization does not have.
    #[must_use]
    pub fn missing(&self, organization: OrganizationId, request: &FindMissing) -> Missing {
        let projects = request.projects.iter();
        let groups = request.groups.iter();
        Missing {
            projects: projects
                .filter(|path| self.find_project(organization, path).is_none())
                .cloned()
                .collect(),
            groups: groups.filter(|name| self.group_named(organization, name).is_none()).cloned().collect(),
        }
    }

    /// The project that the asker means and may see.
    ///
    /// # Errors
    /// Not found, also when it is not theirs to see.
    pub fn visible_project(&self, asker: &Asker, text: &str) -> Result<(ProjectId, &Project), Refusal> {
        let missing = || Refusal {
            field: Some("project".to_owned()),
            ..Refusal::not_found(format!("project {text:?}"))
        };
        let found = self.find_project(asker.organization, text).ok_or_else(missing)?;
        if self.may(asker, Action::ReadProject, Scope::Project(found.0)) { Ok(found) } else { Err(missing()) }
    }

    /// The agent by id, `group/project:name`, or by a name that only one of those that the asker may see has.
    ///
    /// # Errors
    /// Not found, also when it is not theirs to see; or a name that several have.
    pub fn visible_agent(&self, asker: &Asker, text: &str) -> Result<(AgentId, &Agent), Refusal> {
        let missing =
            || Refusal { field: Some("agent".to_owned()), ..Refusal::not_found(format!("agent {text:?}")) };
        let sees = |id: AgentId| self.may(asker, Action::ReadAgent, Scope::Agent(id));
        if let Ok(id) = text.parse::<AgentId>() {
            let agent = self.agents.get(&id).filter(|_| sees(id)).ok_or_else(missing)?;
            return Ok((id, agent));
        }
        if let Some((path, name)) = text.split_once(':') {
            let (project, _) = self.find_project(asker.organization, path).ok_or_else(missing)?;
            let id = self
                .agent_named(asker.organization, project, name)
                .filter(|id| sees(*id))
                .ok_or_else(missing)?;
            return self.agents.get(&id).map(|agent| (id, agent)).ok_or_else(missing);
        }
        let mut found = self.agents.iter().filter(|(id, agent)| agent.name == text && sees(**id));
        match (found.next(), found.next()) {
            (None, _) => Err(missing()),
            (Some((id, agent)), None) => Ok((*id, agent)),
            (Some(_), Some(_)) => {
                let message =
                    format!("several agents are called {text:?}; use group/project:{text}, or the id");
                Err(Refusal {
                    field: Some("agent".to_owned()),
                    ..Refusal::new(RefusalKind::Conflict, message)
                })
            }
        }
    }

    pub(super) fn agent_named(
        &self,
        organization: OrganizationId,
        project: ProjectId,
        name: &str,
    ) -> Option<AgentId> {
        self.named(NameId::of(Named::Agent, organization, project.0, name)).map(AgentId)
    }

    /// The credential by name or id.
    pub(super) fn find_credential(
        &self,
        organization: OrganizationId,
        text: &str,
    ) -> Option<(CredentialId, &Credential)> {
        let id = match text.parse::<CredentialId>() {
            Ok(id) => id,
            Err(_) => {
                CredentialId(self.named(NameId::of(Named::Credential, organization, organization.0, text))?)
            }
        };
        let credential =
            self.credentials.get(&id).filter(|credential| credential.organization == organization)?;
        Some((id, credential))
    }

    /// The user of the asker's organization.
    ///
    /// # Errors
    /// Not found. The message holds no name: names of persons go into no message.
    pub fn find_user(&self, asker: &Asker, user: UserRef) -> Result<UserId, Refusal> {
        let id = match user {
            UserRef::Id(id) => Some(id),
            UserRef::Name(name) => self.named(name).map(UserId),
        };
        id.filter(|id| self.users.get(id).is_some_and(|found| found.organization == asker.organization))
            .ok_or_else(|| Refusal { field: Some("user".to_owned()), ..Refusal::not_found("user") })
    }

    /// `group/name` of a project.
    #[must_use]
    pub fn path(&self, project: &Project) -> String {
        let group = self.groups.get(&project.group).map_or("", |group| group.name.as_str());
        format!("{group}/{}", project.name)
    }

    /// The organization of that name.
    #[must_use]
    pub fn organization_named(&self, name: &str) -> Option<OrganizationId> {
        self.named(NameId::organization(name)).map(OrganizationId)
    }
}
