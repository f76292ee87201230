//! The fold: records of the log into [`Environments`].

use std::collections::{BTreeSet, VecDeque};

use events::configuration::{ConfigurationChanged, ConfigurationEvent, GitReference, SourceConfiguration};
use events::delivery::{DeliveryEvent, NO_COMMIT, SyncFinished};
use events::directory::DirectoryEvent;
use events::environment::{
    DeploymentStarted, ENDED_PER_ENVIRONMENT, EnvironmentChanged, EnvironmentCreated, EnvironmentEvent,
    EnvironmentStopped,
};
use events::requests::environments::{DeploymentStatus, EnvironmentChangeKind};
use events::{
    AgentId, AggregateKind, Commit, DeploymentId, EnvironmentId, Event, EventId, OrganizationId, ProjectId,
    SourceId, SyncId, Timestamp,
};
use store::{Committed, Fact, Projection, ReadFilter};

use super::changes::differences;
use super::decide::stop_time;
use super::{
    Cause, Deployment, DesiredSync, Due, Environment, Environments, PLACES, Project, SeenSync, Source,
    StoppedState,
};

impl Projection for Environments {
    const NAME: &'static str = "environments";
    const FOLD_VERSION: u32 = 2;
    const SNAPSHOT_EVERY: u64 = 5_000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[
            AggregateKind::Group,
            AggregateKind::Project,
            AggregateKind::Agent,
            AggregateKind::Configuration,
            AggregateKind::Source,
            AggregateKind::Environment,
            AggregateKind::Deployment,
        ])
    }

    fn start() -> Self {
        Self::default()
    }

    /// A process that starts looks at all sources.
    fn restore(fold_version: u32, bytes: &[u8]) -> Option<Self> {
        // Version 1 kept no changes of environments: their history begins with what comes.
        let mut state: Self =
            (1..=Self::FOLD_VERSION).contains(&fold_version).then(|| events::decode(bytes).ok()).flatten()?;
        state.touched = state.sources.keys().copied().collect();
        state.settle_touched();
        Some(state)
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        let Fact::Commit(Committed { commit, events, .. }) = fact else { return };
        for (id, event) in events {
            match event {
                Event::Directory(event) => self.apply_directory(commit.organization, event),
                Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    self.apply_configuration(commit.organization, changed);
                }
                Event::Delivery(event) => self.apply_delivery(commit, id, event),
                Event::Environment(event) => self.apply_environment(commit, event),
                Event::Configuration(ConfigurationEvent::ConfigurationRejected(_))
                | Event::Repository(_)
                | Event::Subscription(_) => {}
            }
        }
        self.settle_touched();
    }
}

impl Environments {
    fn apply_directory(&mut self, organization: OrganizationId, event: DirectoryEvent) {
        match event {
            DirectoryEvent::GroupCreated(created) => {
                self.groups.insert(created.group, (organization, created.name));
            }
            DirectoryEvent::GroupDeleted(deleted) => {
                self.groups.remove(&deleted.group);
            }
            DirectoryEvent::ProjectCreated(created) => {
                let project = Project { organization, group: created.group, name: created.name };
                self.projects.insert(created.project, project);
            }
            DirectoryEvent::ProjectDeleted(deleted) => self.forget_project(deleted.project),
            DirectoryEvent::AgentRegistered(registered) => {
                self.agents.insert(registered.agent, registered.project);
            }
            DirectoryEvent::AgentDeleted(deleted) => {
                self.agents.remove(&deleted.agent);
                self.leave(deleted.agent, &BTreeSet::new());
            }
            _ => {}
        }
    }

    fn forget_project(&mut self, project: ProjectId) {
        self.projects.remove(&project);
        for environment in self.names.remove(&project).unwrap_or_default().into_values() {
            self.forget_environment(environment);
        }
    }

    /// Sources that are not in an agent's configuration deploy no more.
    fn leave(&mut self, agent: AgentId, named: &BTreeSet<SourceId>) {
        let own = self.sources.iter_mut().filter(|(id, source)| source.agent == agent && !named.contains(id));
        for (id, source) in own {
            source.environment = None;
            self.touched.insert(*id);
        }
    }

    fn apply_configuration(&mut self, organization: OrganizationId, changed: ConfigurationChanged) {
        let agent = changed.agent;
        let named = changed.configuration.sources.iter().map(|source| source.id).collect();
        self.leave(agent, &named);
        for configured in changed.configuration.sources {
            let source = self.source(organization, agent, configured.id);
            let (environment, reference) = (configured.environment.clone(), branch_or_tag(&configured));
            source.environment = environment;
            source.reference = reference;
            source.namespace = configured.default_namespace;
        }
    }

    fn source(&mut self, organization: OrganizationId, agent: AgentId, id: SourceId) -> &mut Source {
        self.touched.insert(id);
        self.sources.entry(id).or_insert_with(|| Source {
            organization,
            agent,
            environment: None,
            namespace: String::new(),
            reference: String::new(),
            desired: None,
            seen: None,
            open: None,
            failed: None,
            refused: None,
            done: None,
        })
    }

    fn apply_delivery(&mut self, commit: &Commit, id: EventId, event: DeliveryEvent) {
        match event {
            DeliveryEvent::BundleDesired(desired) => {
                let source = self.source(commit.organization, desired.agent, desired.source);
                let (sync, commit, bundle) = (desired.sync, desired.commit, desired.bundle);
                if commit == NO_COMMIT {
                    // Nothing is deployed any more: the same commit is a deployment again.
                    (source.done, source.failed) = (None, None);
                }
                source.desired = Some(DesiredSync { sync, commit, bundle });
            }
            DeliveryEvent::SyncRequested(requested) => self.known_source(requested.source, |source| {
                if let Some(desired) = &mut source.desired {
                    desired.sync = requested.sync;
                }
            }),
            DeliveryEvent::SourceRemoved(removed) => {
                self.known_source(removed.source, |source| source.desired = None);
            }
            DeliveryEvent::SyncStarted(started) => self.known_source(started.source, |source| {
                let (sync, run, cause) = (started.sync, started.run, cause(commit, id));
                source.seen = Some(SeenSync { sync, run, ended: None, cause });
            }),
            DeliveryEvent::SyncFinished(finished) => self.known_source(finished.source, |source| {
                let (sync, run, cause) = (finished.sync, finished.run, cause(commit, id));
                let ended = Some((finished.outcome, why(&finished)));
                source.seen = Some(SeenSync { sync, run, ended, cause });
            }),
            _ => {}
        }
    }

    fn known_source(&mut self, id: SourceId, fold: impl FnOnce(&mut Source)) {
        if let Some(source) = self.sources.get_mut(&id) {
            fold(source);
            self.touched.insert(id);
        }
    }

    fn apply_environment(&mut self, commit: &Commit, event: EnvironmentEvent) {
        match event {
            EnvironmentEvent::EnvironmentCreated(created) => self.apply_created(commit, created),
            EnvironmentEvent::EnvironmentChanged(changed) => self.apply_changed(commit, changed),
            EnvironmentEvent::EnvironmentStopped(stopped) => self.apply_stopped(commit, stopped),
            EnvironmentEvent::EnvironmentDeleted(deleted) => {
                self.forget_environment(deleted.environment);
                self.deleted.insert(deleted.environment, commit.version);
            }
            EnvironmentEvent::DeploymentStarted(started) => self.apply_started(commit, started),
            EnvironmentEvent::DeploymentFinished(finished) => {
                self.apply_end(commit, finished.deployment, DeploymentStatus::Success, String::new());
            }
            EnvironmentEvent::DeploymentFailed(failed) => {
                self.apply_end(commit, failed.deployment, DeploymentStatus::Failed, failed.reason);
            }
            EnvironmentEvent::DeploymentUnknown(unknown) => {
                self.apply_end(commit, unknown.deployment, DeploymentStatus::Unknown, String::new());
            }
            EnvironmentEvent::DeploymentRefused(refused) => {
                self.known_source(refused.sync.source, |source| source.refused = Some(refused.sync.sync));
            }
        }
    }

    fn apply_created(&mut self, commit: &Commit, created: EnvironmentCreated) {
        let id = created.environment;
        self.deleted.remove(&id);
        self.names.entry(created.project).or_default().insert(created.name.clone(), id);
        let mut environment = Environment {
            organization: commit.organization,
            project: created.project,
            name: created.name,
            slug: created.slug,
            settings: created.settings,
            created_at: commit.occurred_at,
            stopped: None,
            auto_stop_at: None,
            version: commit.version,
            deployments: BTreeSet::new(),
            running: BTreeSet::new(),
            places: std::collections::BTreeMap::new(),
            last_successful: None,
            changes: VecDeque::new(),
        };
        let settings = differences(None, &environment.settings);
        environment.note(commit, EnvironmentChangeKind::Created, settings);
        self.environments.insert(id, environment);
        self.stops_at(id, created.auto_stop_at);
        self.touch_deployers(id);
    }

    fn apply_changed(&mut self, commit: &Commit, changed: EnvironmentChanged) {
        let id = changed.environment;
        let Some(environment) = self.environments.get_mut(&id) else { return };
        environment.version = commit.version;
        let settings = differences(Some(&environment.settings), &changed.settings);
        let kind = match changed.reopened {
            true => EnvironmentChangeKind::Reopened,
            false => EnvironmentChangeKind::Changed,
        };
        environment.note(commit, kind, settings);
        environment.settings = changed.settings;
        if changed.reopened {
            environment.stopped = None;
        }
        self.stops_at(id, changed.auto_stop_at);
        self.touch_deployers(id);
    }

    /// A source may deploy now that the environment is there, or names its project.
    fn touch_deployers(&mut self, environment: EnvironmentId) {
        let Some(name) = self.environments.get(&environment).map(|environment| &environment.name) else {
            return;
        };
        let names = |source: &Source| source.environment.as_ref().is_some_and(|of| of.name == *name);
        let touched = self.sources.iter().filter(|(_, source)| names(source)).map(|(id, _)| *id);
        self.touched.extend(touched.collect::<Vec<_>>());
    }

    fn apply_stopped(&mut self, commit: &Commit, stopped: EnvironmentStopped) {
        let Some(environment) = self.environments.get_mut(&stopped.environment) else { return };
        environment.version = commit.version;
        let (at, by) = (commit.occurred_at, commit.actor.clone());
        environment.note(commit, EnvironmentChangeKind::Stopped(stopped.reason.clone()), Vec::new());
        environment.stopped = Some(StoppedState { at, by, reason: stopped.reason });
        self.stops_at(stopped.environment, None);
    }

    fn stops_at(&mut self, id: EnvironmentId, at: Option<Timestamp>) {
        let Some(environment) = self.environments.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut environment.auto_stop_at, at) {
            self.due.remove(&(before, Due::Environment(id)));
        }
        self.due.extend(at.map(|at| (at, Due::Environment(id))));
    }

    fn forget_environment(&mut self, id: EnvironmentId) {
        self.stops_at(id, None);
        let Some(environment) = self.environments.remove(&id) else { return };
        if let Some(names) = self.names.get_mut(&environment.project) {
            names.remove(&environment.name);
        }
        for (_, deployment) in environment.deployments {
            self.forget_deployment(deployment);
        }
    }

    fn forget_deployment(&mut self, id: DeploymentId) {
        let Some(deployment) = self.deployments.remove(&id) else { return };
        if let Some(deadline) = deployment.deadline {
            self.due.remove(&(deadline, Due::Deployment(id)));
        }
        if let Some(run) = deployment.sync {
            self.known_source(run.source, |source| source.open = source.open.filter(|(open, _)| *open != id));
        }
    }

    fn apply_started(&mut self, commit: &Commit, started: DeploymentStarted) {
        let (id, at) = (started.deployment, commit.occurred_at);
        let Some(environment) = self.environments.get_mut(&started.environment) else { return };
        environment.deployments.insert((at, id));
        environment.running.insert(id);
        let auto_stop_at = stop_time(&environment.settings, at).filter(|_| environment.stopped.is_none());
        if let Some(run) = started.sync {
            self.known_source(run.source, |source| source.open = Some((id, run.sync)));
        }
        self.due.extend(started.deadline.map(|deadline| (deadline, Due::Deployment(id))));
        if auto_stop_at.is_some() {
            self.stops_at(started.environment, auto_stop_at);
        }
        let deployment = Deployment {
            environment: started.environment,
            deployer: started.deployer,
            association: started.association,
            reference: started.reference,
            commit: started.commit,
            job_url: started.job_url,
            sync: started.sync,
            deadline: started.deadline,
            by: commit.actor.clone(),
            started_at: at,
            ended_at: None,
            status: DeploymentStatus::Running,
            reason: String::new(),
            version: commit.version,
        };
        self.deployments.insert(id, deployment);
    }

    fn apply_end(&mut self, commit: &Commit, id: DeploymentId, status: DeploymentStatus, reason: String) {
        let Some(deployment) = self.deployments.get_mut(&id) else { return };
        (deployment.status, deployment.reason) = (status, reason);
        deployment.ended_at = Some(commit.occurred_at);
        deployment.version = commit.version;
        if let Some(deadline) = deployment.deadline {
            self.due.remove(&(deadline, Due::Deployment(id)));
        }
        let deployment = deployment.clone();
        if let Some(run) = deployment.sync {
            self.end_of_sync(&deployment, id, (run.source, run.sync));
        }
        self.place(&deployment, id);
        self.trim(deployment.environment);
    }

    fn end_of_sync(&mut self, deployment: &Deployment, id: DeploymentId, (of, sync): (SourceId, SyncId)) {
        let environment = deployment.environment;
        self.known_source(of, |source| {
            source.open = source.open.filter(|(open, _)| *open != id);
            if deployment.status != DeploymentStatus::Success {
                source.failed = Some(sync);
            } else if let Some(desired) = source.desired.as_ref().filter(|desired| desired.sync == sync) {
                source.done = Some((environment, desired.commit.clone(), desired.bundle));
            }
        });
    }

    /// What runs in the environment from now on.
    fn place(&mut self, deployment: &Deployment, id: DeploymentId) {
        let Some(environment) = self.environments.get_mut(&deployment.environment) else { return };
        environment.running.remove(&id);
        if deployment.status != DeploymentStatus::Success {
            return;
        }
        let began = |id: &DeploymentId| self.deployments.get(id).map(|known| (known.started_at, *id));
        let own = Some((deployment.started_at, id));
        if environment.last_successful.as_ref().and_then(began) < own {
            environment.last_successful = Some(id);
        }
        let Some(association) = &deployment.association else { return };
        if environment.places.get(association).and_then(began) < own {
            environment.places.insert(association.clone(), id);
        }
        if environment.places.len() > PLACES {
            let oldest = environment.places.iter().min_by_key(|(_, id)| began(id)).map(|(at, _)| at.clone());
            oldest.map(|oldest| environment.places.remove(&oldest));
        }
    }

    /// Forgets ended deployments of an environment beyond the limit, the oldest first.
    fn trim(&mut self, id: EnvironmentId) {
        let Some(environment) = self.environments.get_mut(&id) else { return };
        let used: BTreeSet<DeploymentId> =
            environment.places.values().copied().chain(environment.last_successful).collect();
        let ended = environment.deployments.iter().filter(|(_, id)| !environment.running.contains(id));
        let unused: Vec<_> = ended.filter(|(_, id)| !used.contains(id)).copied().collect();
        let surplus = unused.len().saturating_sub(ENDED_PER_ENVIRONMENT);
        for forgotten in unused.into_iter().take(surplus) {
            environment.deployments.remove(&forgotten);
            self.deployments.remove(&forgotten.1);
        }
    }
}

fn cause(commit: &Commit, id: EventId) -> Cause {
    Cause { correlation_id: commit.correlation_id, causation_id: id, traceparent: commit.traceparent.clone() }
}

/// Why a sync did not succeed, as far as it says so.
fn why(finished: &SyncFinished) -> String {
    let Some(first) = finished.failures.first() else { return String::new() };
    let identity = &first.identity;
    format!("{} {}: {}", identity.kind, identity.name, first.message)
}

fn branch_or_tag(source: &SourceConfiguration) -> String {
    match &source.reference {
        GitReference::Branch(name) | GitReference::Tag(name) => name.clone(),
        GitReference::Default | GitReference::Commit(_) => String::new(),
    }
}
