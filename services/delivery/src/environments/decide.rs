//! Decisions on [`Environments`]. Pure: the clock and ids are passed in.

use std::collections::BTreeSet;

use events::environment::{
    DeploymentFailed, DeploymentFinished, DeploymentStarted, DeploymentUnknown, ENVIRONMENTS_PER_PROJECT,
    EnvironmentChanged, EnvironmentCreated, EnvironmentDeleted, EnvironmentEvent, EnvironmentSettings,
    EnvironmentStopped, Grouping, LONGEST_NAMESPACE, LONGEST_REASON, LONGEST_REFERENCE,
    RUNNING_PER_ENVIRONMENT, StopReason, Tier, check_name, slug,
};
use events::requests::environments::DeploymentStatus;
use events::{
    AgentId, AggregateKind, AggregateRef, DeploymentId, EnvironmentId, OrganizationId, ProjectId, Refusal,
    RefusalKind, SourceId, Timestamp,
};
use serde::{Deserialize, Serialize};
use store::Draft;

use super::syncs::Step;
use super::{Deployment, Due, Environment, Environments, check};

/// What a caller changes of an environment; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SettingsChange {
    /// What it is for.
    pub tier: Option<Tier>,
    /// Where it is served; `Some(None)` for nowhere.
    pub url: Option<Option<String>>,
    /// Where it runs.
    pub agent: Option<Option<AgentId>>,
    /// In which namespace.
    pub namespace: Option<Option<String>>,
    /// After how many seconds it stops.
    pub auto_stop_seconds: Option<Option<u32>>,
    /// All other projects that may deploy.
    pub deployers: Option<BTreeSet<ProjectId>>,
    /// Which objects belong to it.
    pub grouping: Option<Grouping>,
}

/// How a caller ends a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It succeeded.
    Finished,
    /// It failed, for this reason.
    Failed(String),
}

/// A decision: what is to be appended, or nothing.
type Decision = Result<Option<Draft>, Refusal>;

impl Environments {
    pub(super) fn create(
        &self,
        project: ProjectId,
        name: &str,
        settings: &EnvironmentSettings,
        at: Timestamp,
    ) -> Decision {
        if self.environment_named(project, name).is_some() {
            let message =
                format!("the project already has an environment {name:?}; change it, or choose another name");
            return Err(about("name", Refusal::new(RefusalKind::Conflict, message)));
        }
        self.new_environment(project, name, settings.clone(), at)
    }

    fn new_environment(
        &self,
        project: ProjectId,
        name: &str,
        settings: EnvironmentSettings,
        at: Timestamp,
    ) -> Decision {
        let known =
            self.projects.get(&project).ok_or_else(|| about("project", Refusal::not_found("project")))?;
        let created = self.created(project, name, settings, at)?;
        let environment = created.environment;
        let event = EnvironmentEvent::EnvironmentCreated(created);
        Ok(Some(self.on_environment(known.organization, environment, event)))
    }

    /// A new environment of a project, if it may have it.
    pub(super) fn created(
        &self,
        project: ProjectId,
        name: &str,
        settings: EnvironmentSettings,
        at: Timestamp,
    ) -> Result<EnvironmentCreated, Refusal> {
        check_name(name).map_err(|message| Refusal::invalid("name", message))?;
        check::settings(&settings)?;
        let slug = slug(name);
        if let Some(other) = self.with_slug(project, &slug) {
            let message = format!("shares the slug {slug} with environment {other:?}; choose another name");
            return Err(about("name", Refusal::new(RefusalKind::Conflict, message)));
        }
        if self.names.get(&project).is_some_and(|names| names.len() >= ENVIRONMENTS_PER_PROJECT) {
            let message = format!(
                "the project already has {ENVIRONMENTS_PER_PROJECT} environments; delete some that are stopped"
            );
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let environment = EnvironmentId::derive(project, name);
        let auto_stop_at = stop_time(&settings, at);
        let name = name.to_owned();
        Ok(EnvironmentCreated { environment, project, name, slug, settings, auto_stop_at })
    }

    /// The name of the project's environment that has this slug.
    fn with_slug(&self, project: ProjectId, slug: &str) -> Option<&str> {
        let own = self.names.get(&project)?.values().filter_map(|id| self.environments.get(id));
        own.into_iter()
            .find(|environment| environment.slug == slug)
            .map(|environment| environment.name.as_str())
    }

    /// Creates the environment of a deployment, or makes it available again, or has it stop at another time.
    pub(super) fn prepare(
        &self,
        (project, deployer): (ProjectId, ProjectId),
        name: &str,
        tier: Option<Tier>,
        auto_stop_seconds: Option<u32>,
        at: Timestamp,
    ) -> Decision {
        let id = EnvironmentId::derive(project, name);
        let Some(found) = self.environments.get(&id) else {
            if project != deployer {
                return Err(not_a_deployer(name));
            }
            let tier = tier.unwrap_or_else(|| Tier::guess(name));
            let settings = EnvironmentSettings { auto_stop_seconds, ..EnvironmentSettings::of(tier) };
            return self.new_environment(project, name, settings, at);
        };
        may_deploy(found, deployer)?;
        // Others deploy into it, and do not say how long it lives.
        let auto_stop_seconds = auto_stop_seconds.filter(|_| project == deployer);
        let settings = EnvironmentSettings {
            auto_stop_seconds: auto_stop_seconds.or(found.settings.auto_stop_seconds),
            ..found.settings.clone()
        };
        check::settings(&settings)?;
        let reopened = found.stopped.is_some();
        if !reopened && settings == found.settings {
            return Ok(None);
        }
        let auto_stop_at = stop_time(&settings, at);
        Ok(Some(self.changed(id, found, settings, reopened, auto_stop_at)))
    }

    pub(super) fn set(&self, id: EnvironmentId, change: &SettingsChange, at: Timestamp) -> Decision {
        let found = self.known(id)?;
        let before = found.settings.clone();
        let SettingsChange { tier, url, agent, namespace, auto_stop_seconds, deployers, grouping } =
            change.clone();
        let settings = EnvironmentSettings {
            tier: tier.unwrap_or(before.tier),
            url: url.unwrap_or(before.url),
            agent: agent.unwrap_or(before.agent),
            namespace: namespace.unwrap_or(before.namespace),
            auto_stop_seconds: auto_stop_seconds.unwrap_or(before.auto_stop_seconds),
            deployers: deployers.unwrap_or(before.deployers),
            grouping: grouping.or(before.grouping),
        };
        check::settings(&settings)?;
        if settings == found.settings {
            return Ok(None);
        }
        let is_other_time = settings.auto_stop_seconds != found.settings.auto_stop_seconds;
        let auto_stop_at = match found.stopped {
            None if is_other_time => stop_time(&settings, at),
            _ => found.auto_stop_at,
        };
        Ok(Some(self.changed(id, found, settings, false, auto_stop_at)))
    }

    fn changed(
        &self,
        environment: EnvironmentId,
        found: &Environment,
        settings: EnvironmentSettings,
        reopened: bool,
        auto_stop_at: Option<Timestamp>,
    ) -> Draft {
        let changed = EnvironmentChanged { environment, settings, reopened, auto_stop_at };
        self.on_environment(found.organization, environment, EnvironmentEvent::EnvironmentChanged(changed))
    }

    pub(super) fn stop(&self, environment: EnvironmentId, reason: &str) -> Decision {
        let found = self.known(environment)?;
        check::text("reason", reason, LONGEST_REASON)?;
        if found.stopped.is_some() {
            return Ok(None);
        }
        let stopped = EnvironmentStopped { environment, reason: StopReason::Requested(reason.to_owned()) };
        let event = EnvironmentEvent::EnvironmentStopped(stopped);
        Ok(Some(self.on_environment(found.organization, environment, event)))
    }

    pub(super) fn delete(&self, environment: EnvironmentId) -> Decision {
        let found = self.known(environment)?;
        if found.stopped.is_none() {
            let message = "the environment is available: stop it first, so that it is not deleted by mistake";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let event = EnvironmentEvent::EnvironmentDeleted(EnvironmentDeleted { environment });
        Ok(Some(self.on_environment(found.organization, environment, event)))
    }

    pub(super) fn start_deployment(&self, started: &DeploymentStarted) -> Decision {
        let found = self.known(started.environment)?;
        may_deploy(found, started.deployer)?;
        check::text("reference", &started.reference, LONGEST_REFERENCE)?;
        check::text("commit", &started.commit, LONGEST_REFERENCE)?;
        if let Some(association) = &started.association {
            check_namespace(&association.namespace)?;
        }
        if self.deployments.contains_key(&started.deployment) {
            return Err(Refusal::new(RefusalKind::Conflict, "the deployment has already begun"));
        }
        if found.stopped.is_some() {
            let message = "the environment was stopped at the same moment; retry";
            return Err(Refusal::new(RefusalKind::Unavailable, message));
        }
        if found.running.len() >= RUNNING_PER_ENVIRONMENT {
            let message = format!(
                "{RUNNING_PER_ENVIRONMENT} deployments into this environment already run; finish or fail some of them"
            );
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let event = EnvironmentEvent::DeploymentStarted(started.clone());
        Ok(Some(self.on_deployment(found.organization, started.deployment, event)))
    }

    pub(super) fn end_deployment(&self, id: DeploymentId, ending: &Ending) -> Decision {
        let (deployment, organization) = self.deployment(id).ok_or_else(|| unknown_deployment(id))?;
        if let Ending::Failed(reason) = ending {
            check::text("reason", reason, LONGEST_REASON)?;
        }
        if deployment.sync.is_some() {
            let message = "this deployment is a sync of a source, which ends it by itself";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let wanted = match ending {
            Ending::Finished => DeploymentStatus::Success,
            Ending::Failed(_) => DeploymentStatus::Failed,
        };
        if deployment.status == wanted {
            return Ok(None);
        }
        if deployment.status != DeploymentStatus::Running {
            let message = "the deployment has already ended; start another one";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let environment = deployment.environment;
        let event = match ending {
            Ending::Finished => {
                EnvironmentEvent::DeploymentFinished(DeploymentFinished { deployment: id, environment })
            }
            Ending::Failed(reason) => EnvironmentEvent::DeploymentFailed(DeploymentFailed {
                deployment: id,
                environment,
                reason: reason.clone(),
            }),
        };
        Ok(Some(self.on_deployment(organization, id, event)))
    }

    /// Ends what has come to its time.
    pub(super) fn expire(&self, due: Due, now: Timestamp) -> Option<Draft> {
        match due {
            Due::Environment(environment) => {
                let found = self.environments.get(&environment)?;
                found.auto_stop_at.filter(|at| *at <= now && found.stopped.is_none())?;
                let stopped = EnvironmentStopped { environment, reason: StopReason::AutoStop };
                let event = EnvironmentEvent::EnvironmentStopped(stopped);
                Some(self.on_environment(found.organization, environment, event))
            }
            Due::Deployment(id) => {
                let (found, organization) = self.deployment(id)?;
                found.deadline.filter(|at| *at <= now && found.status == DeploymentStatus::Running)?;
                let unknown = DeploymentUnknown { deployment: id, environment: found.environment };
                Some(self.on_deployment(organization, id, EnvironmentEvent::DeploymentUnknown(unknown)))
            }
        }
    }

    /// Does the next step about the deployments of a source.
    pub(super) fn follow_sync(&self, source: SourceId, at: Timestamp) -> Option<Draft> {
        let organization = self.sources.get(&source)?.organization;
        Some(match self.step(source, at)? {
            Step::Create(created) => {
                let id = created.environment;
                self.on_environment(organization, id, EnvironmentEvent::EnvironmentCreated(created))
            }
            Step::Reopen(changed) => {
                let id = changed.environment;
                self.on_environment(organization, id, EnvironmentEvent::EnvironmentChanged(changed))
            }
            Step::Start(started) => {
                let id = started.deployment;
                self.on_deployment(organization, id, EnvironmentEvent::DeploymentStarted(started))
            }
            Step::Finish(finished) => {
                let id = finished.deployment;
                self.on_deployment(organization, id, EnvironmentEvent::DeploymentFinished(finished))
            }
            Step::Fail(failed) => {
                let id = failed.deployment;
                self.on_deployment(organization, id, EnvironmentEvent::DeploymentFailed(failed))
            }
            Step::Refuse(refused) => {
                let id = refused.deployment;
                self.on_deployment(organization, id, EnvironmentEvent::DeploymentRefused(refused))
            }
        })
    }

    fn known(&self, id: EnvironmentId) -> Result<&Environment, Refusal> {
        self.environments.get(&id).ok_or_else(|| unknown_environment(id))
    }

    pub(super) fn deployment(&self, id: DeploymentId) -> Option<(&Deployment, OrganizationId)> {
        let deployment = self.deployments.get(&id)?;
        Some((deployment, self.environments.get(&deployment.environment)?.organization))
    }

    fn on_environment(
        &self,
        organization: OrganizationId,
        id: EnvironmentId,
        event: EnvironmentEvent,
    ) -> Draft {
        let aggregate = AggregateRef::new(AggregateKind::Environment, id);
        Draft { organization, aggregate, expected: self.environment_version(id), events: vec![event.into()] }
    }

    fn on_deployment(
        &self,
        organization: OrganizationId,
        id: DeploymentId,
        event: EnvironmentEvent,
    ) -> Draft {
        let aggregate = AggregateRef::new(AggregateKind::Deployment, id);
        let expected = self.deployments.get(&id).map_or(0, |deployment| deployment.version);
        Draft { organization, aggregate, expected, events: vec![event.into()] }
    }
}

/// When an environment stops by itself after a deployment that began at `at`.
pub(super) fn stop_time(settings: &EnvironmentSettings, at: Timestamp) -> Option<Timestamp> {
    settings.auto_stop_seconds.map(|seconds| at.plus_millis(i64::from(seconds) * 1000))
}

/// Only its own project deploys into an environment, and those that it names.
fn may_deploy(environment: &Environment, deployer: ProjectId) -> Result<(), Refusal> {
    if environment.project == deployer || environment.settings.deployers.contains(&deployer) {
        return Ok(());
    }
    Err(not_a_deployer(&environment.name))
}

/// A project may not deploy into an environment, or there is none.
pub(crate) fn not_a_deployer(name: &str) -> Refusal {
    let message = format!(
        "environment {name:?} is not there, or does not name this project as deployer; ask a maintainer of its project for `kasbah env set --deployer`"
    );
    Refusal::new(RefusalKind::Denied, message)
}

pub(crate) fn unknown_deployment(id: DeploymentId) -> Refusal {
    Refusal::not_found(format!("deployment {id}"))
}

pub(crate) fn unknown_environment(id: EnvironmentId) -> Refusal {
    Refusal::not_found(format!("environment {id}"))
}

fn about(field: &str, refusal: Refusal) -> Refusal {
    Refusal { field: Some(field.to_owned()), ..refusal }
}

fn check_namespace(namespace: &str) -> Result<(), Refusal> {
    if namespace.is_empty() {
        return Err(Refusal::invalid("namespace", "is required where an agent is named; give the namespace"));
    }
    check::text("namespace", namespace, LONGEST_NAMESPACE)
}
