//! What delivery answers on environments and deployments.

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::environment::{Association, Grouping, StopReason, SyncRun, Tier};
use crate::id::{AgentId, DeploymentId, EnvironmentId, ProjectId};
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

mod groups;
mod stop;
pub use groups::*;
pub use stop::*;

/// Creates an environment. A project's first deployment into a name creates it, too.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CreateEnvironment {
    /// The project: `group/name` or id.
    pub project: String,
    /// The name, such as `production` or `review/login`.
    pub name: String,
    /// What it is for; guessed from the name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Where it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Agent for deployments that name none: name, `group/project:agent`, or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Namespace for deployments that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Stops so many seconds after the last deployment began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_seconds: Option<u32>,
    /// Other projects that may record deployments into it, each as `group/name` or id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployers: Vec<String>,
    /// Which objects belong to it; decided by its deployments if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping>,
}
request!(CreateEnvironment => EnvironmentView, "delivery.create-environment");

/// Changes an environment; what is not given stays.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetEnvironment {
    /// Which.
    pub environment: EnvironmentId,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Where it is served; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Agent for deployments that name none; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Namespace for deployments that name none; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Stops so many seconds after the last deployment began; 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_seconds: Option<u32>,
    /// All other projects that may record deployments into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployers: Option<Vec<String>>,
    /// Which objects belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping>,
}
request!(SetEnvironment => EnvironmentView, "delivery.set-environment");

/// Stops an environment. Its history stays, and the next deployment makes it available again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopEnvironment {
    /// Which.
    pub environment: EnvironmentId,
    /// Why, for the others.
    #[serde(default)]
    pub reason: String,
    /// Deletes what the sources that deploy into it own in their clusters, too, as [`PreviewStop`] answers it. They stay withdrawn until they
    /// are unpinned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete_objects: bool,
}
request!(StopEnvironment => EnvironmentView, "delivery.stop-environment");

/// Deletes a stopped environment. Its history stays in the log only.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteEnvironment {
    /// Which.
    pub environment: EnvironmentId,
}
request!(DeleteEnvironment => EnvironmentView, "delivery.delete-environment");

/// Lists the environments that the actor may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListEnvironments {
    /// Only of this project: `group/name` or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Only of this group's projects: name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only of this tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Only those with this name, in which `*` stands for any text, such as `production/*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<EnvironmentState>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListEnvironments => EnvironmentView, by (ProjectId, String), "delivery.list-environments");

/// One environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowEnvironment {
    /// Which.
    pub environment: EnvironmentId,
}
request!(ShowEnvironment => EnvironmentView, "delivery.show-environment");

/// Changes of an environment's settings and state, the newest first; the last [`crate::environment::CHANGES_PER_ENVIRONMENT`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEnvironmentChanges {
    /// Of which environment.
    pub environment: EnvironmentId,
}
request!(ListEnvironmentChanges => Vec<EnvironmentChange>, "delivery.list-environment-changes");

/// One change of an environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
    /// The kind of change.
    pub change: EnvironmentChangeKind,
    /// Settings that are different since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingChange>,
}

/// See [`EnvironmentChange::change`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentChangeKind {
    /// It was created.
    Created,
    /// It has other settings.
    Changed,
    /// It was stopped, and is available again.
    Reopened,
    /// It was stopped.
    Stopped(StopReason),
}

/// One setting before and after a change.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name, as [`SetEnvironment`] has it.
    pub setting: String,
    /// Before; absent where it was not set, and where the actor may not see the agent that it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// After it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Whether an environment runs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentState {
    /// It may be deployed into, and may run.
    Available,
    /// It was stopped.
    Stopped,
}

/// How an environment stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentView {
    /// Its id.
    pub id: EnvironmentId,
    /// Whose it is.
    pub project: ProjectId,
    /// `group/name` of that project.
    pub project_path: String,
    /// Its name.
    pub name: String,
    /// Its name as labels and host names have it.
    pub slug: String,
    /// What it is for.
    pub tier: Tier,
    /// Whether it runs.
    pub state: EnvironmentState,
    /// When it was stopped, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// Where it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Agent for deployments that name none; absent also where the actor may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Namespace for deployments that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Stops so many seconds after the last deployment began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_seconds: Option<u32>,
    /// When it stops by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_at: Option<Timestamp>,
    /// Other projects that may record deployments into it.
    #[serde(default)]
    pub deployers: Vec<ProjectId>,
    /// Which objects belong to it: as it was set, or as its last successful deployment has it.
    pub grouping: Grouping,
    /// When it was created.
    pub created_at: Timestamp,
    /// Deployments that run.
    pub running: u32,
    /// The deployment that began last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_deployment: Option<DeploymentView>,
    /// The last one that succeeded: what runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful: Option<DeploymentView>,
}

/// See [`EnvironmentView::stopped`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
    /// Why.
    pub reason: StopReason,
}

/// Starts a deployment. Creates the environment where the project has none of the name, and makes a stopped one available again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartDeployment {
    /// The environment's name.
    #[serde(rename = "env")]
    pub environment: String,
    /// The environment's project: `group/name` or id; the asking job's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The project that deploys, where that is another one; the asking job's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployer: Option<String>,
    /// What the environment is for, where it is created; guessed from the name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Through which agent: name, `group/project:agent`, or id; the environment's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Into which namespace; the environment's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The Git ref.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The Git commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The page of the job that deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
    /// Unknown after so many seconds without an end; 3600 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// The environment stops so many seconds after this deployment began, and after each later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_seconds: Option<u32>,
}
request!(StartDeployment => DeploymentView, "delivery.start-deployment");

/// Records that a deployment succeeded.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishDeployment {
    /// Which.
    pub deployment: DeploymentId,
}
request!(FinishDeployment => DeploymentView, "delivery.finish-deployment");

/// Records that a deployment failed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailDeployment {
    /// Which.
    pub deployment: DeploymentId,
    /// Why, for the others.
    #[serde(default)]
    pub reason: String,
}
request!(FailDeployment => DeploymentView, "delivery.fail-deployment");

/// Ends the running deployments of a job, or one of them, as a CI system reports it. Only for services that have verified that the report
/// is the project's. Answers the deployments that it ended: none where none runs, and none of another project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportDeployment {
    /// The project that deploys.
    pub project: ProjectId,
    /// Which.
    pub which: ReportedDeployment,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Why not, in words.
    #[serde(default)]
    pub reason: String,
}
request!(ReportDeployment => Vec<DeploymentId>, "delivery.report-deployment");

/// See [`ReportDeployment::which`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedDeployment {
    /// This one.
    Deployment(DeploymentId),
    /// All deployments that the job with this page started.
    JobUrl(String),
}

/// One deployment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowDeployment {
    /// Which.
    pub deployment: DeploymentId,
}
request!(ShowDeployment => DeploymentView, "delivery.show-deployment");

/// Lists the deployments of an environment, the newest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDeployments {
    /// Of which environment.
    pub environment: EnvironmentId,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DeploymentStatus>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListDeployments => DeploymentView, by (Timestamp, DeploymentId), "delivery.list-deployments");

/// How a deployment stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentStatus {
    /// It goes on.
    Running,
    /// It succeeded.
    Success,
    /// It failed.
    Failed,
    /// Nobody recorded its end before its deadline.
    Unknown,
}

/// One deployment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentView {
    /// Its id.
    pub id: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
    /// That environment's name.
    pub environment_name: String,
    /// That environment's project.
    pub project: ProjectId,
    /// The project that deploys.
    pub deployer: ProjectId,
    /// How it stands.
    pub status: DeploymentStatus,
    /// Why it failed, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Where the objects are; absent where there is none, or the actor may not see the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<Association>,
    /// Why there is no association in this view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_association: Option<WithoutAssociation>,
    /// The Git ref.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The Git commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The page of the job that deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
    /// The sync that it is; absent where a job deploys, or the actor may not see the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncRun>,
    /// Who started it.
    pub by: Actor,
    /// When it began.
    pub started_at: Timestamp,
    /// When its end was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it becomes unknown, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// Why a view of a deployment shows no agent and namespace.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutAssociation {
    /// None was named.
    NotNamed,
    /// The actor may not see the agent.
    NotVisible,
    /// The caller was not granted the agent and namespace that it named: what was missing. Only in the answer to the start.
    NotGranted(String),
}

/// May this project's deployments be recorded into another project's environment? Says what permits it, or what is missing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanDeploy {
    /// The environment's name.
    #[serde(rename = "env")]
    pub environment: String,
    /// The environment's project: `group/name` or id; the asking job's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The project that deploys, where that is another one; the asking job's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployer: Option<String>,
    /// Through which agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Into which namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
request!(CanDeploy => DeployDecision, "delivery.can-deploy");

/// The answer to [`CanDeploy`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployDecision {
    /// Whether a deployment may be recorded.
    pub allowed: bool,
    /// What permits it, or what is missing.
    pub reason: String,
    /// Whether the deployment would keep the agent and namespace; absent where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associates: Option<bool>,
    /// What permits the association, or what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association_reason: Option<String>,
}
