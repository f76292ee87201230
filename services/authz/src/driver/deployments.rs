//! Whose deployments go where.

use events::requests::authz::{
    AssociationDecision, DecideAssociation, FindProject, FoundProject, ListAllowedProjects,
};
use events::{ProjectId, Refusal};

use super::Driver;
use super::queries::services_only;
use crate::model::Asker;

impl Driver {
    pub(super) async fn find_project(
        self,
        asker: Asker,
        request: FindProject,
    ) -> Result<FoundProject, Refusal> {
        services_only(&asker)?;
        let find = || self.directory.read(|directory| directory.meant_project(&asker, &request));
        if let Ok(found) = find() {
            return Ok(found);
        }
        // The asker may know a project a moment before this directory.
        self.catch_up().await?;
        find()
    }

    pub(super) async fn list_allowed_projects(
        self,
        asker: Asker,
        request: ListAllowedProjects,
    ) -> Result<Vec<ProjectId>, Refusal> {
        services_only(&asker)?;
        self.catch_up().await?;
        Ok(self
            .directory
            .read(|directory| directory.allowed_projects(&request).take(ListAllowedProjects::MOST).collect()))
    }

    pub(super) async fn decide_association(
        self,
        asker: Asker,
        request: DecideAssociation,
    ) -> Result<AssociationDecision, Refusal> {
        services_only(&asker)?;
        let decide = || self.directory.read(|directory| directory.association(&asker, &request));
        let decision = decide();
        if decision.allowed {
            return Ok(decision);
        }
        // A grant may have come into force a moment ago.
        self.catch_up().await?;
        Ok(decide())
    }
}
