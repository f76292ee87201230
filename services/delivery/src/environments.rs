//! Environments and deployments: the state of all of them, folded from the log, and the decisions made on it. Pure.
//!
//! Laws:
//! - A project has one environment of a name: the id derives from both.
//! - A deployment begins once and ends once, as finished, failed or unknown, and has at most one association.
//! - Only its own project, and those that it names as deployers, record deployments into an environment.
//! - The fold needs no observation: the end of a sync is a decision, too.

mod changes;
mod check;
mod decide;
mod fold;
mod given;
mod syncs;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use events::configuration::SourceEnvironment;
use events::delivery::SyncOutcome;
use events::environment::{Association, EnvironmentSettings, Grouping, StopReason, SyncRun};
use events::requests::environments::{
    DeploymentStatus, EnvironmentChange, EnvironmentState, ReportedDeployment,
};
use events::{
    Actor, AgentId, BlobDigest, CorrelationId, DeploymentId, EnvironmentId, EventId, GroupId, OrganizationId,
    ProjectId, SourceId, SyncId, Timestamp,
};
use serde::{Deserialize, Serialize};

pub(crate) use check::url as check_url;
pub use decide::{Ending, SettingsChange};
pub(crate) use decide::{not_a_deployer, unknown_deployment, unknown_environment};
pub use given::Given;
pub use view::{ListFilter, Viewer, deployment_view, environment_view, resource_group};

/// Places of an environment that are kept: beyond these, the one that was deployed to longest ago is dropped.
const PLACES: usize = 64;

/// All environments and deployments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Environments {
    groups: BTreeMap<GroupId, (OrganizationId, String)>,
    projects: BTreeMap<ProjectId, Project>,
    environments: BTreeMap<EnvironmentId, Environment>,
    names: BTreeMap<ProjectId, BTreeMap<String, EnvironmentId>>,
    deployments: BTreeMap<DeploymentId, Deployment>,
    /// Versions of deleted environments: one of the same name goes on from there.
    deleted: BTreeMap<EnvironmentId, u64>,
    /// The configuration project of each agent.
    agents: BTreeMap<AgentId, ProjectId>,
    sources: BTreeMap<SourceId, Source>,
    /// What is to be done by itself, and when.
    due: BTreeSet<(Timestamp, Due)>,
    /// Sources that one commit touched; empty between commits.
    #[serde(skip)]
    touched: BTreeSet<SourceId>,
    /// Sources about whose deployments something is to be done.
    #[serde(skip)]
    undone: BTreeSet<SourceId>,
}

/// What has a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Due {
    /// An environment stops.
    Environment(EnvironmentId),
    /// A deployment becomes unknown.
    Deployment(DeploymentId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Project {
    organization: OrganizationId,
    group: GroupId,
    name: String,
}

/// One environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) organization: OrganizationId,
    pub(crate) project: ProjectId,
    pub(crate) name: String,
    pub(crate) slug: String,
    pub(crate) settings: EnvironmentSettings,
    pub(crate) created_at: Timestamp,
    pub(crate) stopped: Option<StoppedState>,
    pub(crate) auto_stop_at: Option<Timestamp>,
    /// Version of its aggregate.
    pub(crate) version: u64,
    /// Those that are kept, by when they began.
    pub(crate) deployments: BTreeSet<(Timestamp, DeploymentId)>,
    pub(crate) running: BTreeSet<DeploymentId>,
    /// The last one that succeeded, of those into each place.
    pub(crate) places: BTreeMap<Association, DeploymentId>,
    /// The last one that succeeded.
    pub(crate) last_successful: Option<DeploymentId>,
    /// Its last changes, the newest last.
    #[serde(default)]
    pub(crate) changes: VecDeque<EnvironmentChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoppedState {
    pub(crate) at: Timestamp,
    pub(crate) by: Actor,
    pub(crate) reason: StopReason,
}

/// One deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) environment: EnvironmentId,
    pub(crate) deployer: ProjectId,
    pub(crate) association: Option<Association>,
    pub(crate) reference: String,
    pub(crate) commit: String,
    pub(crate) job_url: Option<String>,
    pub(crate) sync: Option<SyncRun>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) by: Actor,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) status: DeploymentStatus,
    pub(crate) reason: String,
    /// Version of its aggregate.
    pub(crate) version: u64,
}

/// What is known of a source as far as it deploys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Source {
    organization: OrganizationId,
    agent: AgentId,
    environment: Option<SourceEnvironment>,
    namespace: String,
    /// The branch or tag; empty where it follows none.
    reference: String,
    desired: Option<DesiredSync>,
    seen: Option<SeenSync>,
    /// The deployment that goes on.
    open: Option<(DeploymentId, SyncId)>,
    /// The sync whose deployment failed.
    failed: Option<SyncId>,
    /// The last sync whose refusal by the environment's project is recorded.
    #[serde(default)]
    refused: Option<SyncId>,
    /// What was deployed last.
    done: Option<(EnvironmentId, String, BlobDigest)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DesiredSync {
    sync: SyncId,
    commit: String,
    bundle: BlobDigest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenSync {
    sync: SyncId,
    run: u32,
    /// How the run ended, and why in words.
    ended: Option<(SyncOutcome, String)>,
    cause: Cause,
}

/// What led to a sync's begin or end, for the deployment that it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The chain.
    pub correlation_id: CorrelationId,
    /// The event.
    pub causation_id: EventId,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl Environment {
    pub(crate) const fn state(&self) -> EnvironmentState {
        match self.stopped {
            Some(_) => EnvironmentState::Stopped,
            None => EnvironmentState::Available,
        }
    }
}

impl Environments {
    /// The environment of a project by its name.
    #[must_use]
    pub fn environment_named(&self, project: ProjectId, name: &str) -> Option<EnvironmentId> {
        self.names.get(&project)?.get(name).copied()
    }

    /// Organization and project of an environment.
    #[must_use]
    pub fn owner_of(&self, environment: EnvironmentId) -> Option<(OrganizationId, ProjectId)> {
        self.environments.get(&environment).map(|found| (found.organization, found.project))
    }

    /// The name of an environment.
    #[must_use]
    pub fn name_of(&self, environment: EnvironmentId) -> Option<&str> {
        self.environments.get(&environment).map(|found| found.name.as_str())
    }

    /// The settings of an environment.
    #[must_use]
    pub fn settings_of(&self, environment: EnvironmentId) -> Option<&EnvironmentSettings> {
        self.environments.get(&environment).map(|found| &found.settings)
    }

    /// The environment of a deployment, and the project that deploys.
    #[must_use]
    pub fn deployed_by(&self, deployment: DeploymentId) -> Option<(EnvironmentId, ProjectId)> {
        self.deployments.get(&deployment).map(|found| (found.environment, found.deployer))
    }

    /// The running deployments of a project that a CI system reports. Not those of syncs, which end by themselves.
    #[must_use]
    pub fn running_of(&self, deployer: ProjectId, which: &ReportedDeployment) -> Vec<DeploymentId> {
        let running = self.environments.values().flat_map(|environment| &environment.running);
        let meant = running.filter(|id| {
            let found = self.deployments.get(id);
            let found = found.filter(|found| found.deployer == deployer && found.sync.is_none());
            found.is_some_and(|found| match which {
                ReportedDeployment::Deployment(wanted) => *id == wanted,
                ReportedDeployment::JobUrl(url) => found.job_url.as_ref() == Some(url),
            })
        });
        meant.copied().collect()
    }

    /// The organization of a source that is known.
    #[must_use]
    pub fn agent_of_source(&self, source: SourceId) -> Option<(OrganizationId, AgentId)> {
        self.sources.get(&source).map(|found| (found.organization, found.agent))
    }

    /// The sources that deploy into an environment.
    #[must_use]
    pub fn sources_into(&self, environment: EnvironmentId) -> BTreeSet<SourceId> {
        let into = |source: &Source| {
            let target = self.target(source).filter(|target| target.environment == environment);
            target.is_some_and(|target| self.may_deploy(&target))
        };
        self.sources.iter().filter(|(_, source)| into(source)).map(|(id, _)| *id).collect()
    }

    /// What led to the sync that a source is at.
    #[must_use]
    pub fn cause_of(&self, source: SourceId) -> Option<Cause> {
        self.sources.get(&source)?.seen.as_ref().map(|seen| seen.cause.clone())
    }

    /// A group by its name or id.
    #[must_use]
    pub fn group(&self, organization: OrganizationId, text: &str) -> Option<GroupId> {
        let mut own = self.groups.iter().filter(|(_, (of, _))| *of == organization);
        own.find(|(id, (_, name))| name == text || id.to_string() == text).map(|(id, _)| *id)
    }

    /// The group of a project.
    #[must_use]
    pub fn group_of(&self, project: ProjectId) -> Option<GroupId> {
        self.projects.get(&project).map(|found| found.group)
    }

    /// `group/name` of a project; empty where it is not known.
    #[must_use]
    pub fn path_of(&self, project: ProjectId) -> String {
        let Some(found) = self.projects.get(&project) else { return String::new() };
        let group = self.groups.get(&found.group).map_or("", |(_, name)| name.as_str());
        format!("{group}/{}", found.name)
    }

    /// What is due by itself at a moment, the earliest first.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = Due> {
        self.due.iter().take_while(move |(at, _)| *at <= now).map(|(_, due)| *due)
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self, after: Timestamp) -> Option<Timestamp> {
        self.due.iter().map(|(at, _)| *at).find(|at| *at > after)
    }

    /// Sources about whose deployments something is to be done now.
    pub fn undone(&self) -> impl Iterator<Item = SourceId> {
        self.undone.iter().copied()
    }

    /// Looks again at the sources that were touched.
    fn settle_touched(&mut self) {
        for source in std::mem::take(&mut self.touched) {
            if self.step(source, Timestamp(0)).is_some() {
                self.undone.insert(source);
            } else {
                self.undone.remove(&source);
            }
        }
    }

    /// Which objects belong to an environment: as it was set, or as its last successful deployment has it.
    pub(crate) fn grouping_of(&self, environment: &Environment) -> Grouping {
        if let Some(grouping) = &environment.settings.grouping {
            return grouping.clone();
        }
        let last = environment.last_successful.and_then(|last| self.deployments.get(&last));
        match last.and_then(|last| last.sync) {
            Some(_) => Grouping::Inventory,
            None => Grouping::Namespace,
        }
    }
}
