//! Groups and projects.

use serde::{Deserialize, Serialize};

use crate::directory::ProjectSettings;
use crate::id::{GroupId, OrganizationId, ProjectId};
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};

/// In which organization is this project? Only services may ask: the console, for webhooks.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocateProject {
    /// Which.
    pub project: ProjectId,
}
request!(LocateProject => ProjectLocation, "authz.locate-project");

/// The answer to [`LocateProject`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectLocation {
    /// Its organization.
    pub organization: OrganizationId,
    /// The project.
    pub project: ProjectView,
}

/// Creates a group.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGroup {
    /// Its name.
    pub name: String,
}
request!(CreateGroup => GroupView, "authz.create-group");

/// Lists groups.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListGroups {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListGroups => GroupView, by GroupId, "authz.list-groups");

/// One group.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// Its id.
    pub id: GroupId,
    /// Its name.
    pub name: String,
}

/// Deletes a group without projects.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteGroup {
    /// Its name or id.
    pub group: String,
}
request!(DeleteGroup => GroupView, "authz.delete-group");

/// Creates a project; its group is made if there is none of that name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateProject {
    /// `group/name`.
    pub path: String,
    /// URL or path of its repository, without credentials.
    pub repository: String,
    /// Default branch; `main` if not given.
    pub default_branch: Option<String>,
    /// Name of a credential.
    pub credential: Option<String>,
    /// Numeric id in another system.
    pub external_id: Option<u64>,
}
request!(CreateProject => ProjectView, "authz.create-project");

/// Changes a project; what is `None` stays.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetProject {
    /// `group/name`, or an id.
    pub project: String,
    /// New repository.
    pub repository: Option<String>,
    /// New default branch.
    pub default_branch: Option<String>,
    /// New credential, by name; empty for none.
    pub credential: Option<String>,
    /// New numeric id in another system.
    pub external_id: Option<u64>,
}
request!(SetProject => ProjectView, "authz.set-project");

/// Deletes a project without agents, which no source reads. Roles in it and tokens of its jobs end with it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteProject {
    /// `group/name`, or an id.
    pub project: String,
}
request!(DeleteProject => ProjectView, "authz.delete-project");

/// Lists projects.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListProjects {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListProjects => ProjectView, by ProjectId, "authz.list-projects");

/// Finds one project.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowProject {
    /// `group/name`, an id, or the external numeric id.
    pub project: String,
}
request!(ShowProject => ProjectView, "authz.show-project");

/// One project.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectView {
    /// Its id.
    pub id: ProjectId,
    /// Its group.
    pub group: GroupId,
    /// `group/name`.
    pub path: String,
    /// Where its repository is.
    pub settings: ProjectSettings,
}
