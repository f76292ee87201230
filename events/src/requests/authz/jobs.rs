//! CI jobs.

use serde::{Deserialize, Serialize};

use super::SecretToken;
use crate::directory::JobEnvironment;
use crate::grants::CiAccessAs;
use crate::id::AgentId;
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};

/// Issues a token for a job of a project, for CI systems that cannot prove by themselves which job it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueJobToken {
    /// `group/name` or id of the project.
    pub project: String,
    /// What the job is called.
    pub name: String,
    /// What it deploys to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<JobEnvironment>,
    /// It runs for a protected branch or tag.
    #[serde(default)]
    pub protected: bool,
    /// Ends by itself after so many seconds; an hour if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<u64>,
}
request!(IssueJobToken => SecretToken, "authz.issue-job-token");

impl IssueJobToken {
    /// How long a job's token lives when nothing is said, in seconds.
    pub const LIFETIME_SECONDS: u64 = 3600;
}

/// Lists the agents whose clusters' APIs the asking job may use.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListJobAgents {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListJobAgents => JobAgent, by AgentId, "authz.list-job-agents");

/// An agent whose cluster's API a job may use.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAgent {
    /// The agent.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// `group/name` of its project.
    pub project_path: String,
    /// Namespace of requests that name none.
    pub default_namespace: String,
    /// As whom the cluster sees the job.
    pub access_as: CiAccessAs,
    /// The entry that lets it in names environments, and the job's is one of them.
    pub is_for_environment: bool,
    /// Which entry of which file lets it in.
    pub place: String,
}
