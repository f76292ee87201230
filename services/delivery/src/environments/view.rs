//! Environments and deployments, for callers.

use std::collections::BTreeSet;
use std::ops::Bound;

use events::environment::{Association, Tier};
use events::requests::environments::{
    DeploymentStatus, DeploymentView, EnvironmentState, EnvironmentView, PlacedDeployment, ResourceGroup,
    ResourcePlace, Stopped, WithoutAssociation,
};
use events::{Actor, AgentId, DeploymentId, EnvironmentId, OrganizationId, ProjectId, Timestamp};
use objects::kinds::glob;

use super::{Deployment, Environment, Environments};

/// Which environments are listed.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only of this tier.
    pub tier: Option<Tier>,
    /// Only with such a name; `*` stands for any text.
    pub name: Option<String>,
    /// Only in this state.
    pub state: Option<EnvironmentState>,
}

impl ListFilter {
    fn takes(&self, environment: &Environment) -> bool {
        self.tier.is_none_or(|tier| environment.settings.tier == tier)
            && self.state.is_none_or(|state| environment.state() == state)
            && self.name.as_ref().is_none_or(|pattern| glob(pattern, &environment.name))
    }
}

/// Who looks: which agents they see.
pub struct Viewer<'a> {
    /// Who.
    pub actor: &'a Actor,
    /// The agents that they may see, of those in question.
    pub agents: &'a BTreeSet<AgentId>,
}

impl Environments {
    /// Environments of a project that a filter takes, behind a name, in the order of their names.
    pub fn matching<'a>(
        &'a self,
        project: ProjectId,
        after: Option<&str>,
        filter: &'a ListFilter,
    ) -> impl Iterator<Item = (&'a str, EnvironmentId)> + use<'a> {
        let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(name.to_owned()));
        let own = self.names.get(&project).map(|names| names.range((from, Bound::Unbounded)));
        own.into_iter().flatten().filter_map(move |(name, id)| {
            let environment = self.environments.get(id)?;
            filter.takes(environment).then_some((name.as_str(), *id))
        })
    }

    /// Deployments of an environment behind a key, the newest first.
    pub fn deployments_behind(
        &self,
        environment: EnvironmentId,
        after: Option<(Timestamp, DeploymentId)>,
        status: Option<DeploymentStatus>,
    ) -> impl Iterator<Item = (Timestamp, DeploymentId)> {
        let to = after.map_or(Bound::Unbounded, Bound::Excluded);
        let known = self.environments.get(&environment);
        let own = known.map(|known| known.deployments.range((Bound::Unbounded, to)).rev());
        own.into_iter().flatten().copied().filter(move |(_, id)| {
            let found = self.deployments.get(id);
            found.is_some_and(|found| status.is_none_or(|status| found.status == status))
        })
    }

    /// The agents that the view of an environment may show.
    #[must_use]
    pub fn agents_shown(&self, id: EnvironmentId) -> BTreeSet<AgentId> {
        let Some(environment) = self.environments.get(&id) else { return BTreeSet::new() };
        let shown = [self.last_deployment(environment), environment.last_successful];
        let deployed = shown.into_iter().flatten().filter_map(|id| self.agent_deployed(id));
        deployed.chain(environment.settings.agent).collect()
    }

    /// The agent that a deployment is associated with.
    #[must_use]
    pub fn agent_deployed(&self, id: DeploymentId) -> Option<AgentId> {
        self.deployments.get(&id)?.association.as_ref().map(|association| association.agent)
    }

    fn last_deployment(&self, environment: &Environment) -> Option<DeploymentId> {
        environment.deployments.last().map(|(_, id)| *id)
    }

    /// Projects of an organization that have environments, from one on.
    pub fn projects_with_environments(
        &self,
        organization: OrganizationId,
        from: Option<ProjectId>,
    ) -> impl Iterator<Item = ProjectId> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let own = self.names.range((from, Bound::Unbounded)).map(|(project, _)| *project);
        own.filter(move |id| self.projects.get(id).is_some_and(|found| found.organization == organization))
    }
}

/// The view of an environment.
#[must_use]
pub fn environment_view(
    state: &Environments,
    id: EnvironmentId,
    viewer: &Viewer<'_>,
) -> Option<EnvironmentView> {
    let environment = state.environments.get(&id)?;
    let settings = &environment.settings;
    let view = |id: DeploymentId| deployment_view(state, id, viewer);
    Some(EnvironmentView {
        id,
        project: environment.project,
        project_path: state.path_of(environment.project),
        name: environment.name.clone(),
        slug: environment.slug.clone(),
        tier: settings.tier,
        state: environment.state(),
        stopped: environment.stopped.as_ref().map(|stopped| Stopped {
            at: stopped.at,
            by: stopped.by.clone(),
            reason: stopped.reason.clone(),
        }),
        url: settings.url.clone(),
        agent: settings.agent.filter(|agent| viewer.agents.contains(agent)),
        namespace: settings.namespace.clone(),
        auto_stop_seconds: settings.auto_stop_seconds,
        auto_stop_at: environment.auto_stop_at,
        deployers: settings.deployers.iter().copied().collect(),
        grouping: state.grouping_of(environment),
        created_at: environment.created_at,
        running: u32::try_from(environment.running.len()).unwrap_or(u32::MAX),
        last_deployment: state.last_deployment(environment).and_then(view),
        last_successful: environment.last_successful.and_then(view),
    })
}

/// The view of a deployment.
#[must_use]
pub fn deployment_view(
    state: &Environments,
    id: DeploymentId,
    viewer: &Viewer<'_>,
) -> Option<DeploymentView> {
    let deployment = state.deployments.get(&id)?;
    let environment = state.environments.get(&deployment.environment)?;
    let (association, without_association) = shown(deployment, viewer);
    Some(DeploymentView {
        id,
        environment: deployment.environment,
        environment_name: environment.name.clone(),
        project: environment.project,
        deployer: deployment.deployer,
        status: deployment.status,
        reason: deployment.reason.clone(),
        sync: deployment.sync.filter(|_| association.is_some()),
        association,
        without_association,
        reference: deployment.reference.clone(),
        commit: deployment.commit.clone(),
        job_url: deployment.job_url.clone(),
        by: deployment.by.clone(),
        started_at: deployment.started_at,
        ended_at: deployment.ended_at,
        deadline: deployment.deadline.filter(|_| deployment.status == DeploymentStatus::Running),
    })
}

/// The association as far as the viewer may see it. What they named themselves they know.
fn shown(deployment: &Deployment, viewer: &Viewer<'_>) -> (Option<Association>, Option<WithoutAssociation>) {
    match &deployment.association {
        None => (None, Some(WithoutAssociation::NotNamed)),
        Some(association) if viewer.agents.contains(&association.agent) || deployment.by == *viewer.actor => {
            (Some(association.clone()), None)
        }
        Some(_) => (None, Some(WithoutAssociation::NotVisible)),
    }
}

/// Which objects belong to an environment; `None` where nothing says so yet.
#[must_use]
pub fn resource_group(state: &Environments, id: EnvironmentId) -> Option<ResourceGroup> {
    let environment = state.environments.get(&id)?;
    let places = environment.places.iter().filter_map(|(association, deployment)| {
        let found = state.deployments.get(deployment)?;
        Some(ResourcePlace {
            association: association.clone(),
            deployment: *deployment,
            commit: found.commit.clone(),
            sync: found.sync,
            recent: recent_in(state, environment, association),
        })
    });
    let places: Vec<_> = places.collect();
    (!places.is_empty()).then(|| ResourceGroup {
        environment: id,
        project: environment.project,
        name: environment.name.clone(),
        slug: environment.slug.clone(),
        tier: environment.settings.tier,
        state: environment.state(),
        grouping: state.grouping_of(environment),
        places,
    })
}

/// The last deployments into one place, the newest first.
fn recent_in(state: &Environments, environment: &Environment, place: &Association) -> Vec<PlacedDeployment> {
    let newest_first = environment.deployments.iter().rev();
    let known = newest_first.filter_map(|(_, id)| Some((*id, state.deployments.get(id)?)));
    let there = known.filter(|(_, found)| found.association.as_ref() == Some(place));
    let placed = there.map(|(id, found)| PlacedDeployment {
        deployment: id,
        commit: found.commit.clone(),
        sync: found.sync,
        started_at: found.started_at,
        ended_at: found.ended_at,
    });
    placed.take(ResourcePlace::RECENT).collect()
}
