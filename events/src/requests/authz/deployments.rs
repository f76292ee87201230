//! Whose deployments go where.

use serde::{Deserialize, Serialize};

use super::Action;
use crate::actor::Actor;
use crate::id::{AgentId, OrganizationId, ProjectId};
use crate::request::request;

/// Which project an actor means. Only for services, which decide what the actor may know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindProject {
    /// Who means it.
    pub actor: Actor,
    /// `group/name`, id, or external numeric id; a job's own project if not given.
    pub project: Option<String>,
}
request!(FindProject => FoundProject, "authz.find-project");

/// The answer to [`FindProject`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundProject {
    /// Which.
    pub project: ProjectId,
    /// Whether the actor may know that it exists; if not, answer "not found".
    pub visible: bool,
    /// The environment that the actor is for, where it is a job with one.
    pub for_environment: Option<String>,
}

/// The projects on which an actor may do something, in the order of their ids: those with ids from `from` on,
/// [`ListAllowedProjects::MOST`] at most. Fewer are the last ones. Only for services, which fill pages of lists with what the actor may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListAllowedProjects {
    /// Who.
    pub actor: Actor,
    /// In which organization.
    pub organization: OrganizationId,
    /// What.
    pub action: Action,
    /// The first id that counts; all if not given.
    pub from: Option<ProjectId>,
}
request!(ListAllowedProjects => Vec<ProjectId>, "authz.list-allowed-projects");

impl ListAllowedProjects {
    /// So many projects at once, so that the answer fits into a message.
    pub const MOST: usize = 1024;
}

/// May an actor's deployments be associated with this agent and namespace? They may where `user_access` or `ci_access` of the agent lets
/// the actor use that namespace. Only for services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecideAssociation {
    /// Whose deployment.
    pub actor: Actor,
    /// Name of the agent, `group/project:name`, or id.
    pub agent: String,
    /// The namespace.
    pub namespace: String,
}
request!(DecideAssociation => AssociationDecision, "authz.decide-association");

/// The answer to [`DecideAssociation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationDecision {
    /// The agent, where the actor may know of it.
    pub agent: Option<AgentId>,
    /// Whether it may be associated.
    pub allowed: bool,
    /// Which entry of which file grants it, or what is missing.
    pub reason: String,
}
