//! What decisions on environments are given, and how each is made: live, and again from what the log holds of it.

use events::environment::{DeploymentStarted, EnvironmentSettings, Tier};
use events::{
    AggregateKind, AggregateRef, DeploymentId, EnvironmentId, OrganizationId, ProjectId, Refusal, SourceId,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Decides, Draft, ReadSet};

use super::decide::{Ending, SettingsChange};
use super::{Due, Environments};

/// What a decision is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    /// A caller creates an environment.
    Create {
        /// Whose.
        project: ProjectId,
        /// Its name.
        name: String,
        /// The rest.
        settings: EnvironmentSettings,
        /// Now.
        at: Timestamp,
    },
    /// An environment is to be there, and available, for a deployment.
    Prepare {
        /// Whose.
        project: ProjectId,
        /// The project that deploys.
        deployer: ProjectId,
        /// Its name.
        name: String,
        /// Its tier, if it has to be created; guessed if not given.
        tier: Option<Tier>,
        /// It stops so long after each deployment.
        auto_stop_seconds: Option<u32>,
        /// Now.
        at: Timestamp,
    },
    /// A caller changes an environment.
    Set {
        /// Which.
        environment: EnvironmentId,
        /// What is different.
        change: SettingsChange,
        /// Now.
        at: Timestamp,
    },
    /// A caller stops an environment.
    Stop {
        /// Which.
        environment: EnvironmentId,
        /// Why.
        reason: String,
    },
    /// A caller deletes an environment.
    Delete {
        /// Which.
        environment: EnvironmentId,
    },
    /// A caller starts a deployment.
    Start {
        /// All of it.
        started: DeploymentStarted,
    },
    /// A caller ends a deployment.
    End {
        /// Which.
        deployment: DeploymentId,
        /// How.
        ending: Ending,
    },
    /// The time of something may be over.
    Expire {
        /// Of what.
        due: Due,
        /// Now.
        at: Timestamp,
    },
    /// The sync of a source may have begun or ended.
    FollowSync {
        /// Whose.
        source: SourceId,
        /// Now.
        at: Timestamp,
    },
}

impl Decides for Environments {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Environment, AggregateKind::Deployment];

    type Given = Given;

    fn make(&self, given: &Given) -> Result<Option<Draft>, Refusal> {
        match given {
            Given::Create { project, name, settings, at } => self.create(*project, name, settings, *at),
            Given::Prepare { project, deployer, name, tier, auto_stop_seconds, at } => {
                self.prepare((*project, *deployer), name, *tier, *auto_stop_seconds, *at)
            }
            Given::Set { environment, change, at } => self.set(*environment, change, *at),
            Given::Stop { environment, reason } => self.stop(*environment, reason),
            Given::Delete { environment } => self.delete(*environment),
            Given::Start { started } => self.start_deployment(started),
            Given::End { deployment, ending } => self.end_deployment(*deployment, ending),
            Given::Expire { due, at } => Ok(self.expire(*due, *at)),
            Given::FollowSync { source, at } => Ok(self.follow_sync(*source, *at)),
        }
    }

    fn read_set(&self, given: &Given) -> ReadSet {
        self.organization_of(given).map(ReadSet::decisions_of).unwrap_or_default()
    }

    /// A deployment depends on its environment, and a sync's also on its source.
    fn relies_on(&self, given: &Given) -> Vec<AggregateRef> {
        let environment = |id| AggregateRef::new(AggregateKind::Environment, id);
        match given {
            Given::Start { started } => vec![environment(started.environment)],
            Given::FollowSync { source, .. } => {
                let mut relies_on = vec![AggregateRef::new(AggregateKind::Source, source)];
                if let Some(known) = self.sources.get(source) {
                    relies_on.push(AggregateRef::new(AggregateKind::Configuration, known.agent));
                    relies_on
                        .extend(known.open.map(|(id, _)| AggregateRef::new(AggregateKind::Deployment, id)));
                }
                relies_on
            }
            _ => Vec::new(),
        }
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        match aggregate.kind {
            AggregateKind::Environment => aggregate.id.parse().map_or(0, |id| self.environment_version(id)),
            AggregateKind::Deployment => {
                let known = aggregate.id.parse().ok().and_then(|id| self.deployments.get(&id));
                known.map_or(0, |deployment| deployment.version)
            }
            _ => 0,
        }
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        match aggregate.kind {
            AggregateKind::Environment => Some(yaml(self.environments.get(&aggregate.id.parse().ok()?)?)),
            AggregateKind::Deployment => Some(yaml(self.deployments.get(&aggregate.id.parse().ok()?)?)),
            AggregateKind::Source => Some(yaml(self.sources.get(&aggregate.id.parse().ok()?)?)),
            _ => None,
        }
    }
}

impl Environments {
    /// The version of an environment's aggregate, also of one that was deleted.
    pub(super) fn environment_version(&self, id: EnvironmentId) -> u64 {
        let known = self.environments.get(&id).map(|environment| environment.version);
        known.or_else(|| self.deleted.get(&id).copied()).unwrap_or(0)
    }

    fn organization_of(&self, given: &Given) -> Option<OrganizationId> {
        let of_project = |project: &ProjectId| self.projects.get(project).map(|found| found.organization);
        let of =
            |environment: EnvironmentId| self.owner_of(environment).map(|(organization, _)| organization);
        let of_deployment =
            |id: &DeploymentId| self.deployments.get(id).and_then(|known| of(known.environment));
        match given {
            Given::Create { project, .. } | Given::Prepare { project, .. } => of_project(project),
            Given::Set { environment, .. }
            | Given::Stop { environment, .. }
            | Given::Delete { environment } => of(*environment),
            Given::Start { started } => of(started.environment),
            Given::End { deployment, .. } => of_deployment(deployment),
            Given::Expire { due: Due::Environment(environment), .. } => of(*environment),
            Given::Expire { due: Due::Deployment(deployment), .. } => of_deployment(deployment),
            Given::FollowSync { source, .. } => self.sources.get(source).map(|known| known.organization),
        }
    }
}
