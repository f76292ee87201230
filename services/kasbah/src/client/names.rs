//! Names for the ids in answers, for people.

use std::collections::BTreeMap;

use events::directory::{Role, Scope, TokenHolder};
use events::request::RefusalKind;
use events::requests::authz::{AgentView, CredentialView, GroupView, ProjectView, UserView};
use events::{AgentId, CredentialId, GroupId, OrganizationId, ProjectId, UserId};
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::session::Session;

/// Names of what the answer mentions, each list asked for once. What the asker may not list keeps its id.
#[derive(Debug, Clone, Default)]
pub struct Names {
    agents: Option<BTreeMap<AgentId, String>>,
    credentials: Option<BTreeMap<CredentialId, String>>,
    groups: Option<BTreeMap<GroupId, String>>,
    projects: Option<BTreeMap<ProjectId, String>>,
    users: Option<BTreeMap<UserId, String>>,
}

impl Names {
    /// Adds the agents' names.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn with_agents(mut self, session: &Session) -> Result<Self, Failure> {
        if self.agents.is_some() {
            return Ok(self);
        }
        let agents: Vec<AgentView> = list(session, "agents").await?;
        self.agents = Some(agents.into_iter().map(|agent| (agent.id, agent.name)).collect());
        Ok(self)
    }

    /// Adds the credentials' names.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn with_credentials(mut self, session: &Session) -> Result<Self, Failure> {
        if self.credentials.is_some() {
            return Ok(self);
        }
        let credentials: Vec<CredentialView> = list(session, "credentials").await?;
        let named = credentials.into_iter().map(|credential| (credential.id, credential.name));
        self.credentials = Some(named.collect());
        Ok(self)
    }

    /// Adds the groups' names.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn with_groups(mut self, session: &Session) -> Result<Self, Failure> {
        if self.groups.is_some() {
            return Ok(self);
        }
        let groups: Vec<GroupView> = list(session, "groups").await?;
        self.groups = Some(groups.into_iter().map(|group| (group.id, group.name)).collect());
        Ok(self)
    }

    /// Adds the projects' paths.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn with_projects(mut self, session: &Session) -> Result<Self, Failure> {
        if self.projects.is_some() {
            return Ok(self);
        }
        let projects: Vec<ProjectView> = list(session, "projects").await?;
        self.projects = Some(projects.into_iter().map(|project| (project.id, project.path)).collect());
        Ok(self)
    }

    /// Adds the users' names.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn with_users(mut self, session: &Session) -> Result<Self, Failure> {
        if self.users.is_some() {
            return Ok(self);
        }
        let users: Vec<UserView> = list(session, "users").await?;
        self.users = Some(users.into_iter().filter_map(|user| Some((user.id, user.name?))).collect());
        Ok(self)
    }

    /// An agent's name, or its id.
    #[must_use]
    pub fn agent(&self, id: AgentId) -> String {
        name_of(self.agents.as_ref(), &id)
    }

    /// A credential's name, or its id.
    #[must_use]
    pub fn credential(&self, id: CredentialId) -> String {
        name_of(self.credentials.as_ref(), &id)
    }

    /// A project's path, or its id.
    #[must_use]
    pub fn project(&self, id: ProjectId) -> String {
        name_of(self.projects.as_ref(), &id)
    }

    /// Who holds a token.
    #[must_use]
    pub fn holder(&self, holder: TokenHolder) -> String {
        match holder {
            TokenHolder::Agent(id) => format!("agent {}", self.agent(id)),
            TokenHolder::User(id) => format!("user {}", name_of(self.users.as_ref(), &id)),
            TokenHolder::Job(id) => format!("job {id}"),
        }
    }

    /// Where a role holds, as `--scope` takes it.
    #[must_use]
    pub fn scope(&self, scope: Scope) -> String {
        match scope {
            Scope::Organization(OrganizationId::SYSTEM) => "system".to_owned(),
            Scope::Organization(_) => "organization".to_owned(),
            Scope::Group(id) => format!("group:{}", name_of(self.groups.as_ref(), &id)),
            Scope::Project(id) => format!("project:{}", self.project(id)),
            Scope::Agent(id) => format!("agent:{}", self.agent(id)),
        }
    }
}

/// The name of what has this id, or the id.
fn name_of<K: Ord + std::fmt::Display>(names: Option<&BTreeMap<K, String>>, id: &K) -> String {
    names.and_then(|names| names.get(id)).cloned().unwrap_or_else(|| id.to_string())
}

async fn list<T: DeserializeOwned>(session: &Session, what: &str) -> Result<Vec<T>, Failure> {
    match session.api.list(&[what], &[]).await {
        Err(Failure::Refused { refusal, .. })
            if matches!(refusal.kind, RefusalKind::Denied | RefusalKind::NotFound) =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

/// What `--role` takes.
pub const ROLES: &[(&str, Role)] = &[
    ("operator", Role::Operator),
    ("owner", Role::Owner),
    ("maintainer", Role::Maintainer),
    ("developer", Role::Developer),
    ("viewer", Role::Viewer),
    ("job", Role::Job),
];

/// A role as people write it.
#[must_use]
pub fn role_name(role: Role) -> &'static str {
    ROLES.iter().find(|(_, known)| *known == role).map_or("agent", |(name, _)| name)
}

/// Reads a role.
///
/// # Errors
/// When there is none of that name that a person can be given.
pub fn parse_role(text: &str) -> Result<Role, String> {
    let names: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
    ROLES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, role)| *role)
        .ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

/// Where a role is to hold, as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeName {
    /// The whole organization.
    Organization,
    /// A group, by name or id.
    Group(String),
    /// A project, by path or id.
    Project(String),
    /// An agent, by name or id.
    Agent(String),
}

/// Reads a scope.
///
/// # Errors
/// When it is none.
pub fn parse_scope(text: &str) -> Result<ScopeName, String> {
    let wrong = || "expected organization, group:<name>, project:<group/name> or agent:<name>".to_owned();
    if text == "organization" {
        return Ok(ScopeName::Organization);
    }
    let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    let name = name.to_owned();
    match kind {
        "group" => Ok(ScopeName::Group(name)),
        "project" => Ok(ScopeName::Project(name)),
        "agent" => Ok(ScopeName::Agent(name)),
        _ => Err(wrong()),
    }
}

impl ScopeName {
    /// The scope; `None` for the asker's organization.
    ///
    /// # Errors
    /// When there is no such thing, or the server cannot be asked.
    pub async fn resolve(&self, session: &Session) -> Result<Option<Scope>, Failure> {
        Ok(match self {
            Self::Organization => None,
            Self::Group(name) => {
                let groups: Vec<GroupView> = session.api.list(&["groups"], &[]).await?;
                let found = groups.iter().find(|group| group.name == *name || group.id.to_string() == *name);
                let group = found.ok_or_else(|| Failure::not_found(&format!("group {name}")))?;
                Some(Scope::Group(group.id))
            }
            Self::Project(path) => {
                let project: ProjectView = session.api.get(&["projects", path], &[]).await?;
                Some(Scope::Project(project.id))
            }
            Self::Agent(name) => Some(Scope::Agent(session.agent(name).await?.id)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_and_others_refused() {
        for (text, scope) in [
            ("organization", ScopeName::Organization),
            ("group:platform", ScopeName::Group("platform".into())),
            ("project:shop/web", ScopeName::Project("shop/web".into())),
            ("agent:shop/config:edge", ScopeName::Agent("shop/config:edge".into())),
        ] {
            assert_eq!(parse_scope(text), Ok(scope), "{text}");
        }
        for text in ["", "group", "group:", "team:x", "shop/web"] {
            assert!(parse_scope(text).unwrap_err().contains("project:<group/name>"), "{text}");
        }
    }

    #[test]
    fn every_role_but_an_agents_can_be_given() {
        for role in Role::ALL.iter().filter(|role| **role != Role::Agent) {
            assert_eq!(parse_role(role_name(*role)), Ok(*role));
            assert_eq!(serde_json::to_value(role).unwrap(), role_name(*role));
        }
        assert!(parse_role("agent").unwrap_err().starts_with("expected one of operator, owner"));
    }
}
