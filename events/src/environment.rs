//! Environments and deployments: a project's places to run, and what was delivered into them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::catalogue::context;
use crate::id::{AgentId, DeploymentId, EnvironmentId, ProjectId, SourceId, SyncId};
use crate::time::Timestamp;

mod name;
pub use name::{check_name, slug};

/// Environments that a project may have, stopped ones included.
pub const ENVIRONMENTS_PER_PROJECT: usize = 2_000;
/// Deployments into one environment that may run at the same time.
pub const RUNNING_PER_ENVIRONMENT: usize = 50;
/// Ended deployments of an environment that are kept for queries, beside the last successful one. The log has all of them.
pub const ENDED_PER_ENVIRONMENT: usize = 50;
/// Changes of an environment's settings and state that are kept for queries. The log has all of them.
pub const CHANGES_PER_ENVIRONMENT: usize = 20;
/// Projects that may deploy into another project's environment.
pub const DEPLOYERS_PER_ENVIRONMENT: usize = 50;
/// Longest name of an environment, in characters.
pub const LONGEST_NAME: usize = 255;
/// Longest namespace of an association, in characters.
pub const LONGEST_NAMESPACE: usize = 255;
/// Longest URL, in characters.
pub const LONGEST_URL: usize = 2_048;
/// Longest Git ref and longest commit, in characters.
pub const LONGEST_REFERENCE: usize = 255;
/// Longest reason, in characters.
pub const LONGEST_REASON: usize = 500;
/// A deployment whose end nobody records is unknown after so many seconds, where nothing else is said.
pub const DEADLINE_SECONDS: u32 = 3_600;
/// Longest deadline, in seconds.
pub const LONGEST_DEADLINE_SECONDS: u32 = 7 * 86_400;
/// Shortest time to an automatic stop, in seconds.
pub const SHORTEST_AUTO_STOP_SECONDS: u32 = 60;
/// Longest time to an automatic stop, in seconds.
pub const LONGEST_AUTO_STOP_SECONDS: u32 = 366 * 86_400;
/// Label with the project of an object's environment, where nothing else is configured.
pub const PROJECT_LABEL: &str = "app.gitlab.com/project_id";
/// Label with the slug of an object's environment, where nothing else is configured.
pub const ENVIRONMENT_LABEL: &str = "app.gitlab.com/environment_slug";

context! {
    /// What delivery decided on environments and deployments.
    EnvironmentEvent {
        /// An environment was created.
        EnvironmentCreated(EnvironmentCreated) = "kasbah.environment.created" v 1,
        /// An environment has other settings, or is available again.
        EnvironmentChanged(EnvironmentChanged) = "kasbah.environment.changed" v 1,
        /// An environment was stopped. Its history stays.
        EnvironmentStopped(EnvironmentStopped) = "kasbah.environment.stopped" v 1,
        /// An environment was deleted. The log keeps its history.
        EnvironmentDeleted(EnvironmentDeleted) = "kasbah.environment.deleted" v 1,
        /// A deployment began.
        DeploymentStarted(DeploymentStarted) = "kasbah.deployment.started" v 1,
        /// A deployment succeeded.
        DeploymentFinished(DeploymentFinished) = "kasbah.deployment.finished" v 1,
        /// A deployment failed.
        DeploymentFailed(DeploymentFailed) = "kasbah.deployment.failed" v 1,
        /// Nobody recorded the end of a deployment before its deadline.
        DeploymentUnknown(DeploymentUnknown) = "kasbah.deployment.unknown" v 1,
        /// A sync deploys into another project's environment, and is not recorded there: that project does not let it.
        DeploymentRefused(DeploymentRefused) = "kasbah.deployment.refused" v 1,
    }
}

/// What an environment is for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Serves users.
    Production,
    /// The last check before production.
    Staging,
    /// Tests run there.
    Testing,
    /// Work in progress, review apps included.
    Development,
    /// None of these.
    Other,
}

impl Tier {
    /// Every tier, the most important first.
    pub const ALL: &'static [Self] =
        &[Self::Production, Self::Staging, Self::Testing, Self::Development, Self::Other];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Staging => "staging",
            Self::Testing => "testing",
            Self::Development => "development",
            Self::Other => "other",
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Tier {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|tier| tier.as_str() == text);
        found.ok_or_else(|| format!("must be one of {}", known()))
    }
}

/// Which objects belong to an environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// All objects of the namespace.
    Namespace,
    /// Those of the namespace that carry the environment's labels.
    Labels {
        /// Label with the project: its external numeric id, its id, or its path.
        project: String,
        /// Label with the environment's slug.
        environment: String,
    },
    /// Those in the inventory of the source that deploys.
    Inventory,
}

impl Grouping {
    /// By the labels that GitLab reserves.
    #[must_use]
    pub fn reserved_labels() -> Self {
        Self::Labels { project: PROJECT_LABEL.to_owned(), environment: ENVIRONMENT_LABEL.to_owned() }
    }
}

/// What may be changed of an environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentSettings {
    /// What it is for.
    pub tier: Tier,
    /// Where it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where it runs, for deployments that name no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The namespace, for deployments that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// It stops so many seconds after the last deployment began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_seconds: Option<u32>,
    /// Other projects that may record deployments into it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deployers: BTreeSet<ProjectId>,
    /// Which objects belong to it; decided by its deployments if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping>,
}

impl EnvironmentSettings {
    /// Nothing but a tier.
    #[must_use]
    pub const fn of(tier: Tier) -> Self {
        Self {
            tier,
            url: None,
            agent: None,
            namespace: None,
            auto_stop_seconds: None,
            deployers: BTreeSet::new(),
            grouping: None,
        }
    }
}

/// See [`EnvironmentEvent::EnvironmentCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentCreated {
    /// Its id: [`EnvironmentId::derive`].
    pub environment: EnvironmentId,
    /// Whose it is.
    pub project: ProjectId,
    /// Its name, unique in the project.
    pub name: String,
    /// Its name as labels and host names have it: [`slug`].
    pub slug: String,
    /// The rest.
    pub settings: EnvironmentSettings,
    /// When it stops by itself, as long as nothing is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_at: Option<Timestamp>,
}

/// See [`EnvironmentEvent::EnvironmentChanged`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChanged {
    /// Which.
    pub environment: EnvironmentId,
    /// What holds from now on.
    pub settings: EnvironmentSettings,
    /// It was stopped, and is available again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reopened: bool,
    /// When it stops by itself, as long as nothing is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_stop_at: Option<Timestamp>,
}

/// Why an environment was stopped.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// Its time to run was over.
    AutoStop,
    /// A caller stopped it, with these words; they may be empty.
    Requested(String),
}

/// See [`EnvironmentEvent::EnvironmentStopped`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentStopped {
    /// Which.
    pub environment: EnvironmentId,
    /// Why.
    pub reason: StopReason,
}

/// See [`EnvironmentEvent::EnvironmentDeleted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentDeleted {
    /// Which.
    pub environment: EnvironmentId,
}

/// Where a deployment put its objects.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Association {
    /// Through which agent.
    pub agent: AgentId,
    /// Into which namespace.
    pub namespace: String,
}

/// The run of a sync that a deployment is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SyncRun {
    /// Of which source.
    pub source: SourceId,
    /// Which sync.
    pub sync: SyncId,
    /// Which run of it.
    pub run: u32,
}

/// See [`EnvironmentEvent::DeploymentStarted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentStarted {
    /// Its id.
    pub deployment: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
    /// The environment's project.
    pub project: ProjectId,
    /// The project that deploys.
    pub deployer: ProjectId,
    /// Where the objects are put; absent where the caller named no agent, or was not granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<Association>,
    /// The Git ref; empty if not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The Git commit; empty if not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The page of the job that deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
    /// The sync that it is; absent where a job deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncRun>,
    /// When it becomes unknown; absent for a sync, which ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// See [`EnvironmentEvent::DeploymentFinished`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentFinished {
    /// Which.
    pub deployment: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
}

/// See [`EnvironmentEvent::DeploymentFailed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentFailed {
    /// Which.
    pub deployment: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
    /// Why, in words; empty if not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// See [`EnvironmentEvent::DeploymentUnknown`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentUnknown {
    /// Which.
    pub deployment: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
}

/// See [`EnvironmentEvent::DeploymentRefused`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentRefused {
    /// What it would have been: [`DeploymentId::refused`].
    pub deployment: DeploymentId,
    /// The project whose source it is.
    pub deployer: ProjectId,
    /// The project that the source names.
    pub project: ProjectId,
    /// The environment that it names.
    pub name: String,
    /// The sync.
    pub sync: SyncRun,
    /// The Git commit.
    pub commit: String,
}
