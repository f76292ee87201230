//! Syncs of sources that name an environment: each delivery of a bundle is a deployment, which begins and ends by itself.
//!
//! One deployment for each sync: it fails with the first run that fails, and a later run that succeeds is another one. A sync that brings
//! what was deployed last is none.

use events::delivery::{NO_COMMIT, SyncOutcome};
use events::environment::{
    Association, DeploymentFailed, DeploymentFinished, DeploymentRefused, DeploymentStarted,
    EnvironmentChanged, EnvironmentCreated, EnvironmentSettings, SyncRun, Tier,
};
use events::{DeploymentId, EnvironmentId, ProjectId, SourceId, SyncId, Timestamp};

use super::decide::stop_time;
use super::{Environments, SeenSync, Source};

/// What is to be done next about the deployments of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Create(EnvironmentCreated),
    Reopen(EnvironmentChanged),
    Start(DeploymentStarted),
    Finish(DeploymentFinished),
    Fail(DeploymentFailed),
    /// Said once of each sync.
    Refuse(DeploymentRefused),
}

/// The environment that a source deploys into.
pub(super) struct Target<'a> {
    pub(super) environment: EnvironmentId,
    project: ProjectId,
    deployer: ProjectId,
    name: &'a str,
    tier: Option<Tier>,
}

impl Environments {
    /// What is to be done next about the deployments of a source; nothing where its project may not deploy there.
    pub(super) fn step(&self, id: SourceId, at: Timestamp) -> Option<Step> {
        let source = self.sources.get(&id)?;
        let target = self.target(source);
        if let Some((deployment, sync)) = source.open {
            return self.end(source, target.map(|target| target.environment), deployment, sync);
        }
        let target = target?;
        let (desired, seen) = (source.desired.as_ref()?, source.seen.as_ref()?);
        let brought = source.done.as_ref().is_some_and(|(environment, commit, bundle)| {
            (*environment, commit, *bundle) == (target.environment, &desired.commit, desired.bundle)
        });
        // A withdrawal is no deployment, and makes no environment available again.
        let withdrawn = desired.commit == NO_COMMIT;
        if withdrawn || seen.sync != desired.sync || brought || !begins(source, seen) {
            return None;
        }
        let sync = SyncRun { source: id, sync: seen.sync, run: seen.run };
        if !self.may_deploy(&target) {
            return (source.refused != Some(seen.sync)).then(|| {
                Step::Refuse(DeploymentRefused {
                    deployment: DeploymentId::refused(id, seen.sync),
                    deployer: target.deployer,
                    project: target.project,
                    name: target.name.to_owned(),
                    sync,
                    commit: desired.commit.clone(),
                })
            });
        }
        let Some(environment) = self.environments.get(&target.environment) else {
            let settings = EnvironmentSettings::of(target.tier.unwrap_or_else(|| Tier::guess(target.name)));
            return self.created(target.project, target.name, settings, at).ok().map(Step::Create);
        };
        if environment.stopped.is_some() {
            return Some(Step::Reopen(EnvironmentChanged {
                environment: target.environment,
                settings: environment.settings.clone(),
                reopened: true,
                auto_stop_at: stop_time(&environment.settings, at),
            }));
        }
        let association = Association { agent: source.agent, namespace: source.namespace.clone() };
        Some(Step::Start(DeploymentStarted {
            deployment: DeploymentId::of_sync(id, seen.sync, seen.run),
            environment: target.environment,
            project: target.project,
            deployer: target.deployer,
            association: Some(association),
            reference: source.reference.clone(),
            commit: desired.commit.clone(),
            job_url: None,
            sync: Some(sync),
            deadline: None,
        }))
    }

    pub(super) fn target<'a>(&self, source: &'a Source) -> Option<Target<'a>> {
        let named = source.environment.as_ref()?;
        let deployer = *self.agents.get(&source.agent)?;
        let project = named.project.unwrap_or(deployer);
        self.projects.get(&project).filter(|known| known.organization == source.organization)?;
        let environment = EnvironmentId::derive(project, &named.name);
        Some(Target { environment, project, deployer, name: &named.name, tier: named.tier })
    }

    /// Why a source's syncs are not recorded as deployments, and what to do; `None` where they are.
    #[must_use]
    pub fn unrecorded(&self, id: SourceId) -> Option<String> {
        let source = self.sources.get(&id)?;
        let target = self.target(source).filter(|target| !self.may_deploy(target))?;
        let (name, project) = (target.name, self.path_of(target.project));
        let deployer = self.path_of(target.deployer);
        Some(format!(
            "its syncs are not recorded as deployments: environment {name:?} of {project} is not there, or does not name {deployer} as deployer; \
             ask a maintainer of {project} for `kasbah env set {name} --project {project} --deployer {deployer}`, after `kasbah env create` \
             where there is none"
        ))
    }

    /// Another project's environment must be there, and name the project that deploys.
    pub(super) fn may_deploy(&self, target: &Target<'_>) -> bool {
        let environment = self.environments.get(&target.environment);
        target.project == target.deployer
            || environment.is_some_and(|found| found.settings.deployers.contains(&target.deployer))
    }

    fn end(
        &self,
        source: &Source,
        target: Option<EnvironmentId>,
        deployment: DeploymentId,
        sync: SyncId,
    ) -> Option<Step> {
        let environment = self.deployments.get(&deployment)?.environment;
        let failed = |reason: &str| {
            let reason = reason.chars().take(events::environment::LONGEST_REASON).collect();
            Some(Step::Fail(DeploymentFailed { deployment, environment, reason }))
        };
        let seen = source.seen.as_ref().filter(|seen| seen.sync == sync);
        match seen.and_then(|seen| seen.ended.as_ref()) {
            Some((SyncOutcome::Succeeded, _)) => {
                return Some(Step::Finish(DeploymentFinished { deployment, environment }));
            }
            Some((SyncOutcome::Unhealthy, _)) => return failed("not all objects became healthy in time"),
            Some((SyncOutcome::Failed, why)) if why.is_empty() => return failed("the sync failed"),
            Some((SyncOutcome::Failed, why)) => return failed(why),
            Some((SyncOutcome::Superseded, _)) => return failed("a newer commit took its place"),
            // Another applier runs it again.
            Some((SyncOutcome::Interrupted, _)) | None => {}
        }
        if target != Some(environment) {
            return failed("the source no longer deploys into this environment");
        }
        let desired = source.desired.as_ref().map(|desired| desired.sync);
        if desired == Some(sync) { None } else { failed("a newer commit took its place") }
    }
}

/// Whether a run of a sync is to be a deployment. One that failed is followed by another only when it succeeds.
fn begins(source: &Source, seen: &SeenSync) -> bool {
    let ended = seen.ended.as_ref().map(|(outcome, _)| *outcome);
    match ended {
        Some(SyncOutcome::Succeeded) => true,
        None | Some(SyncOutcome::Unhealthy | SyncOutcome::Failed) => source.failed != Some(seen.sync),
        Some(SyncOutcome::Superseded | SyncOutcome::Interrupted) => false,
    }
}
