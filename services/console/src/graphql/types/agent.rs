//! Agents and projects.

use async_graphql::{ComplexObject, Context, ID, Json, Result, SimpleObject};
use events::requests::authz::{AgentView, ListAgents, ProjectView};
use events::requests::configuration::{ConfigurationView, ShowConfiguration};
use events::requests::environments::ListEnvironments;
use events::requests::page::PageLimit;
use events::requests::status::{AgentInstance as Instance, AgentStatus as Status};
use events::{AgentId, ProjectId};
use serde_json::Value;

use super::super::asker::Asker;
use super::super::limits;
use super::super::page::Items;
use super::commit::Finding;
use super::environment::{self, Environment, EnvironmentState, Tier};
use super::scalar::Time;
use super::source::{Condition, State};

/// One registered identity for one cluster.
#[derive(Debug, Clone, SimpleObject)]
#[graphql(complex)]
pub struct Agent {
    #[graphql(skip)]
    key: AgentId,
    /// Its id.
    id: ID,
    /// Its name.
    name: String,
    /// Its configuration project.
    project: ID,
    /// `group/name` of that project.
    project_path: String,
    /// Name of the group that owns it; null where its configuration project does.
    group_name: Option<String>,
    /// Since when it is registered.
    registered_at: Time,
}

impl From<AgentView> for Agent {
    fn from(agent: AgentView) -> Self {
        Self {
            key: agent.id,
            id: agent.id.to_string().into(),
            name: agent.name,
            project: agent.project.to_string().into(),
            project_path: agent.project_path,
            group_name: agent.group.map(|group| group.name),
            registered_at: Time(agent.registered_at),
        }
    }
}

#[ComplexObject]
impl Agent {
    /// How it stands; null while delivery does not know it yet.
    async fn status(&self, context: &Context<'_>) -> Result<Option<AgentStatus>> {
        Ok(Asker::of(context)?.status_of(self.key).await?.map(AgentStatus::from))
    }

    /// Which configuration of it is in force, and what is wrong with the newest.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn configuration(&self, context: &Context<'_>) -> Result<AgentConfiguration> {
        let request = ShowConfiguration { agent: self.key };
        Asker::of(context)?.ask(&request).await.map(AgentConfiguration::from)
    }
}

/// The configuration of an agent.
#[derive(Debug, Clone, SimpleObject)]
pub struct AgentConfiguration {
    /// Path of the file in the configuration project.
    file: String,
    /// What is in force; null while there never was a good one.
    #[graphql(complexity = 100)]
    in_force: Option<Json<Value>>,
    /// The Git commit that is in force.
    commit: Option<String>,
    /// Since when.
    since: Option<Time>,
    /// What is odd but harmless in it.
    warnings: Vec<Finding>,
    /// The newest commit was refused, and the one before stays in force: when; null where it was not.
    rejected_at: Option<Time>,
    /// That commit, if one could be read.
    rejected_commit: Option<String>,
    /// Everything that is wrong with it.
    findings: Vec<Finding>,
}

impl From<ConfigurationView> for AgentConfiguration {
    fn from(view: ConfigurationView) -> Self {
        let (rejected_at, rejected_commit, findings) = match view.rejected {
            Some(rejected) => (Some(Time(rejected.at)), rejected.commit, rejected.findings),
            None => (None, None, Vec::new()),
        };
        Self {
            file: view.file,
            in_force: view
                .configuration
                .and_then(|configuration| serde_json::to_value(configuration).ok())
                .map(Json),
            commit: view.commit,
            since: view.since.map(Time),
            warnings: view.warnings.into_iter().map(Finding::from).collect(),
            rejected_at,
            rejected_commit,
            findings: findings.into_iter().map(Finding::from).collect(),
        }
    }
}

/// How an agent stands.
#[derive(Debug, Clone, SimpleObject)]
pub struct AgentStatus {
    /// In a word.
    state: State,
    /// All that is so, what weighs most first.
    conditions: Vec<Condition>,
    /// Its connected instances.
    instances: Vec<AgentInstance>,
    /// When the last of them left, while none is connected.
    gone_since: Option<Time>,
    /// Whether the instance that applies reaches its API server; null when that is not known.
    api_server_reachable: Option<bool>,
    /// The first rights that the agent lacks, in words.
    missing_rights: Vec<String>,
}

/// A connected instance of an agent.
#[derive(Debug, Clone, SimpleObject)]
pub struct AgentInstance {
    /// Which process.
    id: ID,
    /// Since when it is connected.
    since: Time,
    /// Its version.
    version: String,
    /// It applies.
    applier: bool,
}

impl From<Status> for AgentStatus {
    fn from(status: Status) -> Self {
        Self {
            state: status.state.into(),
            conditions: status.conditions.into_iter().map(Condition::from).collect(),
            instances: status.instances.into_iter().map(AgentInstance::from).collect(),
            gone_since: status.gone_since.map(Time),
            api_server_reachable: status.api_server_reachable,
            missing_rights: status.missing_rights.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<Instance> for AgentInstance {
    fn from(instance: Instance) -> Self {
        let Instance { instance: id, since, version, applier } = instance;
        Self { id: id.to_string().into(), since: Time(since), version, applier }
    }
}

/// A project.
#[derive(Debug, Clone, SimpleObject)]
#[graphql(complex)]
pub struct Project {
    #[graphql(skip)]
    key: ProjectId,
    /// Its id.
    id: ID,
    /// `group/name`.
    full_path: String,
    /// Its group.
    group: ID,
    /// URL or path of its repository, without credentials.
    repository: String,
    /// The branch that is meant when none is named.
    default_branch: String,
    /// The numeric id that another system gives it.
    external_id: Option<ID>,
}

impl From<ProjectView> for Project {
    fn from(project: ProjectView) -> Self {
        let ProjectView { id, group, path, settings } = project;
        Self {
            key: id,
            id: id.to_string().into(),
            full_path: path,
            group: group.to_string().into(),
            repository: settings.repository,
            default_branch: settings.default_branch,
            external_id: settings.external_id.map(|id| id.to_string().into()),
        }
    }
}

#[ComplexObject]
impl Project {
    /// The agents whose configuration project it is, as far as you may see them.
    #[graphql(complexity = "10 + 20 * child_complexity")]
    async fn agents(&self, context: &Context<'_>) -> Result<Vec<Agent>> {
        let request = ListAgents { limit: Some(PageLimit::MAXIMUM), ..ListAgents::default() };
        let agents = Asker::of(context)?.all(request).await?;
        Ok(agents.into_iter().filter(|agent| agent.project == self.key).map(Agent::from).collect())
    }

    /// Its environment of this name; null where it has none.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn environment(&self, context: &Context<'_>, name: String) -> Result<Option<Environment>> {
        environment::of_project(Asker::of(context)?, self.key, &name).await
    }

    /// Its environments.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn environments(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only of this tier.")] tier: Option<Tier>,
        #[graphql(desc = "Only with this name, in which `*` stands for any text.")] name: Option<String>,
        #[graphql(desc = "Only in this state.")] state: Option<EnvironmentState>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Environment>> {
        let (tier, state) = (tier.map(Into::into), state.map(Into::into));
        let project = Some(self.key.to_string());
        let wanted = ListEnvironments { project, tier, name, state, ..ListEnvironments::default() };
        environment::list(Asker::of(context)?, wanted, first, after).await
    }
}
