//! Groups and projects.

use events::directory::{
    DirectoryEvent, GroupCreated, OrganizationCreated, ProjectChanged, ProjectCreated, ProjectSettings, Scope,
};
use events::requests::authz::Action;
use events::{
    AggregateKind, CommitId, CredentialId, GroupId, OrganizationId, ProjectId, Refusal, RefusalKind,
};

use serde::{Deserialize, Serialize};

use super::claims::{NameId, Named};
use super::{Asker, Decided, Directory, aggregate};
use crate::checks::{self, Location};

/// The claim of an external numeric id.
#[must_use]
pub fn external_name(organization: OrganizationId, external: u64) -> NameId {
    NameId::of(Named::External, organization, organization.0, &external.to_string())
}

/// What a project is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewProject {
    /// Its group.
    pub group: GroupId,
    /// Its name.
    pub name: String,
    /// What it points at; the credential resolved.
    pub settings: ProjectSettings,
}

impl Directory {
    /// Creates an organization under its claimed id.
    ///
    /// # Errors
    /// When another has it.
    pub fn create_organization(
        &self,
        id: OrganizationId,
        name: &str,
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        if let Some(existing) = self.organizations.get(&id) {
            return already(existing.created_by == key);
        }
        let event = OrganizationCreated { organization: id, name: name.to_owned() };
        let events = vec![DirectoryEvent::OrganizationCreated(event)];
        self.draft(id, aggregate(AggregateKind::Organization, id), events, ())
    }

    /// Creates a group under its claimed id.
    ///
    /// # Errors
    /// Not allowed, or another has the name.
    pub fn create_group(
        &self,
        asker: &Asker,
        id: GroupId,
        name: &str,
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        self.may_create_group(asker)?;
        if let Some(existing) = self.groups.get(&id) {
            return already(existing.created_by == key);
        }
        let event = GroupCreated { group: id, name: name.to_owned() };
        let events = vec![DirectoryEvent::GroupCreated(event)];
        self.draft(asker.organization, aggregate(AggregateKind::Group, id), events, ())
    }

    /// Whether the asker may create groups.
    ///
    /// # Errors
    /// When not.
    pub fn may_create_group(&self, asker: &Asker) -> Result<(), Refusal> {
        self.authorize(asker, Action::CreateGroup, Scope::Organization(asker.organization), "organization")
    }

    /// The group that a new project goes into; `None` when it is to be made, which the asker may.
    ///
    /// # Errors
    /// Not allowed. To those who may not create groups, a group that is missing and one that they do not see read the same.
    pub fn group_for_project(&self, asker: &Asker, group: &str) -> Result<Option<GroupId>, Refusal> {
        let scope = Scope::Organization(asker.organization);
        match self.group_named(asker.organization, group) {
            Some(id) => {
                self.authorize(asker, Action::CreateProject, Scope::Group(id), format!("group {group:?}"))?;
                Ok(Some(id))
            }
            None if self.may(asker, Action::CreateGroup, scope) => {
                self.authorize(asker, Action::CreateProject, scope, "organization")?;
                Ok(None)
            }
            None => Err(Refusal::not_found(format!("group {group:?}"))),
        }
    }

    /// Creates a project under its claimed id.
    ///
    /// # Errors
    /// Not allowed, or another has the name.
    pub fn create_project(
        &self,
        asker: &Asker,
        id: ProjectId,
        project: &NewProject,
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        self.authorize(asker, Action::CreateProject, Scope::Group(project.group), "group")?;
        if let Some(existing) = self.projects.get(&id) {
            return already(existing.created_by == key);
        }
        self.check_settings(asker, id, &project.settings)?;
        let (group, name, settings) = (project.group, project.name.clone(), project.settings.clone());
        let event = ProjectCreated { project: id, group, name, settings };
        let events = vec![DirectoryEvent::ProjectCreated(event)];
        self.draft(asker.organization, aggregate(AggregateKind::Project, id), events, ())
    }

    /// Changes a project's settings to these.
    ///
    /// # Errors
    /// Not found, not allowed, or settings that do not go together.
    pub fn set_project(
        &self,
        asker: &Asker,
        id: ProjectId,
        settings: &ProjectSettings,
    ) -> Result<Decided<()>, Refusal> {
        self.authorize(asker, Action::ChangeProject, Scope::Project(id), "project")?;
        if self.projects.get(&id).is_some_and(|project| project.settings == *settings) {
            return Ok(Decided::already(()));
        }
        self.check_settings(asker, id, settings)?;
        let event = ProjectChanged { project: id, settings: settings.clone() };
        let events = vec![DirectoryEvent::ProjectChanged(event)];
        self.draft(asker.organization, aggregate(AggregateKind::Project, id), events, ())
    }

    /// The credential that a project is to use, if the asker may let it: granted already, or theirs to grant.
    ///
    /// # Errors
    /// Not found, not theirs to grant, or bound to another host than the repository's.
    pub fn credential_for(
        &self,
        asker: &Asker,
        project: ProjectId,
        credential: &str,
        repository: &str,
    ) -> Result<CredentialId, Refusal> {
        let field = |refusal: Refusal| Refusal { field: Some("credential".to_owned()), ..refusal };
        let missing = || field(Refusal::not_found(format!("credential {credential:?}")));
        let may_grant = self.may(asker, Action::GrantCredential, Scope::Organization(asker.organization));
        let (id, found) = self
            .find_credential(asker.organization, credential)
            .filter(|(_, found)| may_grant || found.projects.contains(&project))
            .ok_or_else(missing)?;
        if found.revoked {
            return Err(field(Refusal::new(
                RefusalKind::Conflict,
                "this credential was revoked; create a new one",
            )));
        }
        fits(&found.host, repository)?;
        Ok(id)
    }

    fn check_settings(
        &self,
        asker: &Asker,
        id: ProjectId,
        settings: &ProjectSettings,
    ) -> Result<(), Refusal> {
        checks::repository(&settings.repository)?;
        checks::branch(&settings.default_branch)?;
        let Some(credential) = settings.credential else { return Ok(()) };
        let granted = self.credentials.get(&credential).filter(|found| {
            found.organization == asker.organization && !found.revoked && found.projects.contains(&id)
        });
        let granted = granted.ok_or_else(|| {
            let message = "this credential was not granted to the project, or was revoked; ask an owner";
            Refusal { field: Some("credential".to_owned()), ..Refusal::new(RefusalKind::Denied, message) }
        })?;
        fits(&granted.host, &settings.repository)
    }
}

/// Whether a credential bound to `host` may be sent to where the repository is.
pub(super) fn fits(host: &str, repository: &str) -> Result<(), Refusal> {
    match checks::repository(repository)? {
        Location::Http { host: actual, .. } if actual.eq_ignore_ascii_case(host) => Ok(()),
        Location::Http { host: actual, .. } => {
            let message = format!("is bound to host {host:?}, but the repository is on {actual:?}");
            Err(Refusal::invalid("credential", message))
        }
        Location::Local => Err(Refusal::invalid("credential", "is for a host; a local path needs none")),
    }
}

pub(super) fn already(by_this_request: bool) -> Result<Decided<()>, Refusal> {
    if by_this_request {
        return Ok(Decided::already(()));
    }
    let message = "this name was taken at the same moment; choose another";
    Err(Refusal { field: Some("name".to_owned()), ..Refusal::new(RefusalKind::Conflict, message) })
}
