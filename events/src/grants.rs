//! Whom an agent's configuration lets use its cluster's API. The keys are those of GitLab's agent configuration, with
//! [`Narrowing`] added.

use serde::{Deserialize, Serialize};

use crate::audit::AuditMode;
use crate::pass::{Impersonated, Narrowing};
use crate::recording::RecordSessions;

/// All grants of an agent's configuration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants {
    /// Jobs of these projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ci_projects: Vec<CiGrant>,
    /// Jobs of all projects of these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ci_groups: Vec<CiGrant>,
    /// People with a role in these projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_projects: Vec<UserGrant>,
    /// People with a role in these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_groups: Vec<UserGrant>,
    /// As whom the cluster sees people.
    #[serde(default)]
    pub users_access_as: UserAccessAs,
    /// What becomes of requests that cannot be recorded.
    #[serde(default, skip_serializing_if = "AuditMode::is_default")]
    pub audit: AuditMode,
    /// What of sessions is kept.
    #[serde(default, skip_serializing_if = "RecordSessions::is_default")]
    pub record_sessions: RecordSessions,
}

/// A grant for jobs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiGrant {
    /// Path of the project or group, in lower case.
    pub path: String,
    /// Namespace of the job's kubeconfig.
    pub default_namespace: String,
    /// As whom the cluster sees the job.
    pub access_as: CiAccessAs,
    /// Only jobs of these environments, in which `*` stands for any text; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<String>,
    /// Only jobs of protected branches and tags.
    #[serde(default)]
    pub protected_branches_only: bool,
    /// What of it may be used.
    #[serde(default, skip_serializing_if = "Narrowing::is_empty")]
    pub narrowing: Narrowing,
    /// Line of the entry.
    pub line: u32,
}

/// As whom a cluster sees a job.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CiAccessAs {
    /// As the agent's own service account.
    #[default]
    Agent,
    /// As the job, with its project, groups and environment as groups.
    CiJob,
    /// As somebody whom the configuration names.
    Impersonate(Impersonated),
}

/// A grant for people.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserGrant {
    /// Path of the project or group, in lower case.
    pub path: String,
    /// What of it may be used.
    #[serde(default, skip_serializing_if = "Narrowing::is_empty")]
    pub narrowing: Narrowing,
    /// Line of the entry.
    pub line: u32,
}

/// As whom a cluster sees a person.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserAccessAs {
    /// As the agent's own service account.
    #[default]
    Agent,
    /// As the person, with the roles that give the grant as groups.
    User,
}

impl Grants {
    /// Whether nobody is let in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
