//! Projects.

use events::directory::ProjectSettings;
use events::requests::authz::{CreateProject, DeleteProject, ProjectView, SetProject};
use events::{GroupId, ProjectId, Refusal, RefusalKind};

use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::model::claims::{NameId, Named};
use crate::model::projects::{NewProject, external_name};
use crate::model::steps::Step;

impl Driver {
    pub(super) async fn create_project(
        self,
        mut call: Call,
        request: CreateProject,
    ) -> Result<ProjectView, Refusal> {
        let (group, name) = checks::project_path(&request.path)?;
        checks::repository(&request.repository)?;
        let default_branch = request.default_branch.clone().unwrap_or_else(|| "main".to_owned());
        checks::branch(&default_branch)?;
        let group = self.group_for_project(&call, group).await?;
        let asker = call.asker();
        let fresh = call.pass(self.fresh());
        let key = call.key();
        let claim = NameId::of(Named::Project, asker.organization, group.0, name);
        let id = ProjectId(self.claim(&call, claim, fresh, key).await?);
        let credential = request.credential.as_deref();
        let credential = self.granted(&call, id, credential, &request.repository).await?;
        self.claim_external(&call, id, request.external_id).await?;
        let repository = request.repository.clone();
        let settings =
            ProjectSettings { repository, default_branch, credential, external_id: request.external_id };
        let project = NewProject { group, name: name.to_owned(), settings };
        self.commit(&call, key, Step::CreateProject { id, project, key }).await?;
        self.directory.read(|directory| directory.project_view(id)).ok_or_else(gone)
    }

    pub(super) async fn set_project(self, call: Call, request: SetProject) -> Result<ProjectView, Refusal> {
        let asker = call.asker();
        let (id, mut settings) = self.directory.read(|directory| {
            let (id, project) = directory.visible_project(&asker, &request.project)?;
            let (action, scope) =
                (events::requests::authz::Action::ChangeProject, events::directory::Scope::Project(id));
            directory.authorize(&asker, action, scope, "project")?;
            Ok::<_, Refusal>((id, project.settings.clone()))
        })?;
        if let Some(repository) = request.repository {
            checks::repository(&repository)?;
            settings.repository = repository;
        }
        if let Some(branch) = request.default_branch {
            settings.default_branch = branch;
        }
        match request.credential.as_deref() {
            Some("") => settings.credential = None,
            Some(name) => {
                settings.credential = self.granted(&call, id, Some(name), &settings.repository).await?
            }
            None => {}
        }
        if request.external_id.is_some() {
            self.claim_external(&call, id, request.external_id).await?;
            settings.external_id = request.external_id;
        }
        self.commit(&call, call.key(), Step::SetProject { id, settings }).await?;
        self.directory.read(|directory| directory.project_view(id)).ok_or_else(gone)
    }

    pub(super) async fn delete_project(
        self,
        call: Call,
        request: DeleteProject,
    ) -> Result<ProjectView, Refusal> {
        let asker = call.asker();
        let (project, view) = self.directory.read(|directory| {
            let project = directory.project_to_delete(&asker, &request.project)?;
            Ok::<_, Refusal>((project, directory.project_view(project).ok_or_else(gone)?))
        })?;
        self.commit(&call, call.key(), Step::DeleteProject { project }).await?;
        Ok(view)
    }

    /// The group of a new project, made if the asker may. Of two requests that make it at once, both go on with the one.
    async fn group_for_project(&self, call: &Call, name: &str) -> Result<GroupId, Refusal> {
        let asker = call.asker();
        let found = || self.directory.read(|directory| directory.group_for_project(&asker, name));
        if let Some(id) = found()? {
            return Ok(id);
        }
        match self.group(call.clone(), name).await {
            Err(refusal) if refusal.kind == RefusalKind::Conflict => found()?.ok_or(refusal),
            made => made,
        }
    }

    /// The credential that a project is to use, granted to it.
    async fn granted(
        &self,
        call: &Call,
        project: ProjectId,
        credential: Option<&str>,
        repository: &str,
    ) -> Result<Option<events::CredentialId>, Refusal> {
        let Some(credential) = credential else { return Ok(None) };
        let asker = call.asker();
        let find = |directory: &crate::model::Directory| {
            directory.credential_for(&asker, project, credential, repository)
        };
        let id = self.directory.read(find)?;
        self.commit(call, call.step("grant"), Step::GrantCredential { credential: id, project }).await?;
        Ok(Some(id))
    }

    async fn claim_external(&self, call: &Call, id: ProjectId, external: Option<u64>) -> Result<(), Refusal> {
        let Some(external) = external else { return Ok(()) };
        let claim = external_name(call.context.organization, external);
        self.claim(call, claim, id.0, call.key()).await.map(|_| ())
    }
}
