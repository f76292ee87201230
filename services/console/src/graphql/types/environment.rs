//! Environments and deployments.

use async_graphql::{ComplexObject, Context, Enum, ID, Result, SimpleObject};
use events::environment;
use events::requests::environments::{
    self, DeploymentView, EnvironmentView, ListDeployments, ListEnvironments, ShowEnvironment,
};
use events::requests::index::{self, FindObjects, IndexedObject, ShowEnvironmentTree, ShowTree};
use events::requests::page::{Page, PageCursor, PageLimit};
use events::{DeploymentId, EnvironmentId, ProjectId, RefusalKind, Timestamp};

use super::super::asker::Asker;
use super::super::page::{self, Items};
use super::super::{failure, limits};
use super::filter::ResourceFilter;
use super::resource::{AsOf, HealthState, ListExtra, Resource, TreeNode};
use super::scalar::{Moment, Time};

/// What an environment is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "environment::Tier")]
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

/// Whether an environment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "environments::EnvironmentState")]
pub enum EnvironmentState {
    /// It may be deployed into, and may run.
    Available,
    /// It was stopped.
    Stopped,
}

/// How a deployment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "environments::DeploymentStatus")]
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

/// A project's place to run.
#[derive(Debug, Clone, SimpleObject)]
#[graphql(complex)]
pub struct Environment {
    #[graphql(skip)]
    view: EnvironmentView,
    /// Its id.
    id: ID,
    /// Its name.
    name: String,
    /// Its name as labels and host names have it.
    slug: String,
    /// Id of its project.
    project: ID,
    /// `group/name` of its project.
    project_path: String,
    /// What it is for.
    tier: Tier,
    /// Whether it runs.
    state: EnvironmentState,
    /// When it was stopped, while it is.
    stopped_at: Option<Time>,
    /// Where it is served.
    external_url: Option<String>,
    /// When it stops by itself.
    auto_stop_at: Option<Time>,
    /// When it was created.
    created_at: Time,
    /// Deployments that run.
    running: u32,
}

impl From<EnvironmentView> for Environment {
    fn from(view: EnvironmentView) -> Self {
        Self {
            id: view.id.to_string().into(),
            name: view.name.clone(),
            slug: view.slug.clone(),
            project: view.project.to_string().into(),
            project_path: view.project_path.clone(),
            tier: view.tier.into(),
            state: view.state.into(),
            stopped_at: view.stopped.as_ref().map(|stopped| Time(stopped.at)),
            external_url: view.url.clone(),
            auto_stop_at: view.auto_stop_at.map(Time),
            created_at: Time(view.created_at),
            running: view.running,
            view,
        }
    }
}

#[ComplexObject]
impl Environment {
    /// The deployment that began last, or the last one with a status.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn last_deployment(
        &self,
        context: &Context<'_>,
        status: Option<DeploymentStatus>,
    ) -> Result<Option<Deployment>> {
        let status = match status {
            None => return Ok(self.view.last_deployment.clone().map(Deployment::from)),
            Some(DeploymentStatus::Success) => {
                return Ok(self.view.last_successful.clone().map(Deployment::from));
            }
            Some(status) => status.into(),
        };
        let request = ListDeployments {
            environment: self.view.id,
            status: Some(status),
            limit: PageLimit::new(1),
            cursor: None,
        };
        let page = Asker::of(context)?.ask(&request).await?;
        Ok(page.items.into_iter().next().map(Deployment::from))
    }

    /// Its deployments, the newest first.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn deployments(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only those with this status.")] status: Option<DeploymentStatus>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Deployment>> {
        let request = ListDeployments {
            environment: self.view.id,
            status: status.map(Into::into),
            limit: Some(page::limit(first)?),
            cursor: after.map(PageCursor::from),
        };
        let listed = Asker::of(context)?.ask(&request).await.map_err(page::cursor_is_after)?;
        let key = |deployment: &DeploymentView| -> (Timestamp, DeploymentId) {
            (deployment.started_at, deployment.id)
        };
        page::of::<ListDeployments, _, _>(listed, Default::default(), key, Deployment::from)
    }

    /// How its objects are doing; null while nothing was deployed into it.
    #[graphql(complexity = "20 + child_complexity")]
    async fn health(&self, context: &Context<'_>) -> Result<Option<EnvironmentHealth>> {
        let found = Asker::of(context)?.environment_health(self.view.id).await?;
        Ok(found.map(EnvironmentHealth::from))
    }

    /// Its objects, in the order of cluster, kind, namespace and name.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn resources(
        &self,
        context: &Context<'_>,
        filter: Option<ResourceFilter>,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Resource, ListExtra>> {
        let asker = Asker::of(context)?;
        let at = asker.at(at.as_ref().map(|at| at.0.as_str())).await?;
        let extra = ListExtra::before(context, at.as_ref()).await?;
        let request = FindObjects {
            filter: filter.unwrap_or_default().within(self.view.id),
            at,
            todays_rules,
            at_least: extra.covered(asker).await?,
            limit: Some(page::limit(first)?),
            cursor: after.map(PageCursor::from),
        };
        let page = match asker.ask(&request).await {
            // Nothing was deployed into it.
            Err(error) if failure::is_of_field(&error, RefusalKind::NotFound, "env") => {
                Page { items: Vec::new(), next: None }
            }
            found => found.map_err(page::cursor_is_after)?,
        };
        let key = |object: &IndexedObject| (object.agent, object.identity.key(), object.uid.clone());
        page::of::<FindObjects, _, _>(page, extra, key, Resource::from)
    }

    /// Its objects with their health, each below the one that has caused it; null while nothing was deployed into it.
    #[graphql(complexity = "limits::tree(first, child_complexity)")]
    async fn tree(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "Nodes at most, from 1 to 2000; 200 if not given. The rest is counted.")]
        first: Option<u16>,
    ) -> Result<Option<EnvironmentTree>> {
        let asker = Asker::of(context)?;
        let at = asker.at(at.as_ref().map(|at| at.0.as_str())).await?;
        let most = first.map_or(limits::NODES, usize::from);
        if !(1..=ShowTree::NODES).contains(&most) {
            let message = format!("must be a number from 1 to {}", ShowTree::NODES);
            return Err(failure::invalid("first", message));
        }
        match asker.ask(&ShowEnvironmentTree { environment: self.view.id, at, todays_rules }).await {
            Ok(tree) => EnvironmentTree::sealed(asker, tree, most).await.map(Some),
            Err(error) if failure::is(&error, RefusalKind::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// How an environment's objects are doing, as far as you may see them.
#[derive(Debug, Clone, SimpleObject)]
pub struct EnvironmentHealth {
    /// The worst state of the objects at the top: those that no other object of the environment has caused.
    state: HealthState,
    /// How many objects there are. Without any the environment is empty, and not healthy.
    objects: u64,
    /// How many objects at the top are in each state; states without any are left out.
    counts: Vec<HealthCount>,
    /// The first object at the top in the worst state; null where nothing is wrong.
    worst: Option<Resource>,
    /// Why it may be another by now; null where it is fresh.
    stale: Option<String>,
    /// Why objects may be missing here; null if none are.
    hidden: Option<String>,
}

/// How many are in one state.
#[derive(Debug, Clone, SimpleObject)]
pub struct HealthCount {
    /// The state.
    state: HealthState,
    /// How many.
    count: u64,
}

impl From<index::EnvironmentHealth> for EnvironmentHealth {
    fn from(health: index::EnvironmentHealth) -> Self {
        Self {
            state: health.health.into(),
            objects: health.objects,
            counts: health.counts.into_iter().map(HealthCount::from).collect(),
            worst: health.worst.map(|worst| Resource::from(*worst)),
            stale: health.stale,
            hidden: health.hidden,
        }
    }
}

impl From<index::HealthCount> for HealthCount {
    fn from(count: index::HealthCount) -> Self {
        Self { state: count.state.into(), count: count.count }
    }
}

/// The objects of an environment.
#[derive(Debug, Clone, SimpleObject)]
pub struct EnvironmentTree {
    /// How all of it is doing.
    health: EnvironmentHealth,
    /// The nodes, parents before children; of those at the top the worst first.
    nodes: Vec<TreeNode>,
    /// How many nodes were left out.
    left_out: u64,
    /// Of which state of the index.
    as_of: AsOf,
}

impl EnvironmentTree {
    /// As it leaves the server, with so many nodes at most: parents come before their children, so none loses its parent.
    async fn sealed(asker: &Asker, mut tree: index::EnvironmentTree, most: usize) -> Result<Self> {
        let surplus = tree.nodes.len().saturating_sub(most);
        tree.nodes.truncate(most);
        Ok(Self {
            as_of: AsOf::sealed(asker, &tree.as_of).await?,
            health: tree.health.into(),
            nodes: tree.nodes.into_iter().map(TreeNode::from).collect(),
            left_out: tree.left_out.saturating_add(u64::try_from(surplus).unwrap_or(u64::MAX)),
        })
    }
}

/// How the environments of one tier are doing. Stopped environments are left out.
#[derive(Debug, Clone, SimpleObject)]
#[graphql(complex)]
pub struct TierHealth {
    #[graphql(skip)]
    project: Option<String>,
    /// Which tier.
    tier: Tier,
    /// How many environments.
    environment_count: u64,
    /// The worst state of an environment.
    state: HealthState,
    /// How many environments are in each state; states without any are left out.
    counts: Vec<HealthCount>,
    /// How many have no object.
    empty: u64,
    /// How many may be others by now.
    stale: u64,
    /// Why the first environment in the worst state is so; null where nothing is wrong.
    worst: Option<EnvironmentHealth>,
}

#[ComplexObject]
impl TierHealth {
    /// Its environments.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn environments(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Environment>> {
        let state = Some(environments::EnvironmentState::Available);
        let (tier, project) = (Some(self.tier.into()), self.project.clone());
        let wanted = ListEnvironments { project, tier, state, ..ListEnvironments::default() };
        list(Asker::of(context)?, wanted, first, after).await
    }
}

impl TierHealth {
    /// Of all projects, or of one.
    #[must_use]
    pub fn of(tier: index::TierHealth, project: Option<&str>) -> Self {
        Self {
            project: project.map(str::to_owned),
            tier: tier.tier.into(),
            environment_count: tier.environments,
            state: tier.health.into(),
            counts: tier.counts.into_iter().map(HealthCount::from).collect(),
            empty: tier.empty,
            stale: tier.stale,
            worst: tier.worst.map(EnvironmentHealth::from),
        }
    }
}

/// One delivery into an environment.
#[derive(Debug, Clone, SimpleObject)]
pub struct Deployment {
    /// Its id.
    id: ID,
    /// How it stands.
    status: DeploymentStatus,
    /// Why it failed, in words; empty if nothing was said.
    reason: String,
    /// Where its objects are; null where it has none, or where you may not see the agent.
    agent: Option<DeploymentAgent>,
    /// Id of the project that deploys.
    deployer: ID,
    /// The Git ref; null if it was not given.
    #[graphql(name = "ref")]
    reference: Option<String>,
    /// The Git commit; null if it was not given.
    sha: Option<String>,
    /// The page of the job that deploys.
    job_url: Option<String>,
    /// The sync that it is; null where a job deploys, or where you may not see the agent.
    sync: Option<ID>,
    /// Who started it, such as `user:…` or `job:…`.
    by: String,
    /// When it began.
    created_at: Time,
    /// When its end was recorded.
    finished_at: Option<Time>,
    /// When its status becomes `UNKNOWN`, while it runs.
    deadline: Option<Time>,
}

/// The agent and the namespace of a deployment.
#[derive(Debug, Clone, SimpleObject)]
pub struct DeploymentAgent {
    /// The agent's id.
    id: ID,
    /// The namespace.
    kubernetes_namespace: String,
}

impl From<DeploymentView> for Deployment {
    fn from(view: DeploymentView) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let agent = view.association.map(|association| DeploymentAgent {
            id: association.agent.to_string().into(),
            kubernetes_namespace: association.namespace,
        });
        Self {
            id: view.id.to_string().into(),
            status: view.status.into(),
            reason: view.reason,
            agent,
            deployer: view.deployer.to_string().into(),
            reference: given(view.reference),
            sha: given(view.commit),
            job_url: view.job_url,
            sync: view.sync.map(|run| run.sync.to_string().into()),
            by: view.by.to_string(),
            created_at: Time(view.started_at),
            finished_at: view.ended_at.map(Time),
            deadline: view.deadline.map(Time),
        }
    }
}

/// The environment of a project by its name.
///
/// # Errors
/// What delivery refuses.
pub async fn of_project(asker: &Asker, project: ProjectId, name: &str) -> Result<Option<Environment>> {
    // No name has an asterisk, which stands for any text in a request.
    if name.contains('*') {
        return Ok(None);
    }
    let request = ListEnvironments {
        project: Some(project.to_string()),
        name: Some(name.to_owned()),
        limit: PageLimit::new(1),
        ..ListEnvironments::default()
    };
    let page = asker.ask(&request).await?;
    Ok(page.items.into_iter().find(|environment| environment.name == name).map(Environment::from))
}

/// One environment by its id.
///
/// # Errors
/// What delivery refuses.
pub async fn one(asker: &Asker, id: &ID) -> Result<Environment> {
    let environment: EnvironmentId =
        id.parse().map_err(|_| failure::invalid("id", "must be the id of an environment"))?;
    asker.ask(&ShowEnvironment { environment }).await.map(Environment::from)
}

/// A page of environments.
///
/// # Errors
/// What delivery refuses.
pub async fn list(
    asker: &Asker,
    wanted: ListEnvironments,
    first: Option<u16>,
    after: Option<String>,
) -> Result<Items<Environment>> {
    let request =
        ListEnvironments { limit: Some(page::limit(first)?), cursor: after.map(PageCursor::from), ..wanted };
    let listed = asker.ask(&request).await.map_err(page::cursor_is_after)?;
    let key = |environment: &EnvironmentView| (environment.project, environment.name.clone());
    page::of::<ListEnvironments, _, _>(listed, Default::default(), key, Environment::from)
}
