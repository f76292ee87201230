//! Requests about environments. Each that a caller makes is put to authz first.

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::{Dispatcher, PageBuilder, Service, Serving, ask};
use events::directory::Scope;
use events::environment::{EnvironmentSettings, Tier};
use events::request::RequestContext;
use events::requests::authz::{Action, DecideAssociation, Decision, FindProject, FoundProject};
use events::requests::environments::{
    CreateEnvironment, DeleteEnvironment, EnvironmentChange, EnvironmentView, ListEnvironmentChanges,
    ListEnvironments, ListResourceGroups, ResourceGroup, SetEnvironment, ShowEnvironment, StopEnvironment,
};
use events::requests::page::{Page, Paged as _};
use events::{AgentId, AggregateKind, AggregateRef, EnvironmentId, ProjectId, Refusal, RefusalKind, Request};
use store::{Decided, Policy};

use super::listed_projects::ListedProjects;
use super::{decide, decide_on, only_services, origin_of, own_context, permitted};
use crate::driver::EnvironmentDriver;
use crate::environments::{
    Given, ListFilter, SettingsChange, Viewer, environment_view, resource_group, unknown_environment,
};

/// Serves every request about environments and deployments until the guards are dropped.
pub(crate) async fn serve(driver: &Arc<EnvironmentDriver>) -> anyhow::Result<Vec<Serving>> {
    let mut requests = Dispatcher::new(&*driver.deps.bus, Arc::clone(driver));
    requests.answer(EnvironmentDriver::create_environment).await?;
    requests.answer(EnvironmentDriver::set_environment).await?;
    requests.answer(EnvironmentDriver::stop_environment).await?;
    requests.answer(EnvironmentDriver::preview_stop).await?;
    requests.answer(EnvironmentDriver::delete_environment).await?;
    requests.answer(EnvironmentDriver::list_environments).await?;
    requests.answer(EnvironmentDriver::show_environment).await?;
    requests.answer(EnvironmentDriver::list_environment_changes).await?;
    requests.answer(EnvironmentDriver::list_resource_groups).await?;
    requests.answer(EnvironmentDriver::start_deployment).await?;
    requests.answer(EnvironmentDriver::finish_deployment).await?;
    requests.answer(EnvironmentDriver::fail_deployment).await?;
    requests.answer(EnvironmentDriver::report_deployment).await?;
    requests.answer(EnvironmentDriver::show_deployment).await?;
    requests.answer(EnvironmentDriver::list_deployments).await?;
    requests.answer(EnvironmentDriver::can_deploy).await?;
    Ok(requests.serving())
}

impl Service for EnvironmentDriver {
    async fn answer<R, F, A>(&self, _: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        self.fold.answer(attempt).await
    }
}

impl EnvironmentDriver {
    async fn create_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: CreateEnvironment,
    ) -> Result<EnvironmentView, Refusal> {
        let project = self.visible_project(&context, &request.project).await?;
        self.allowed_on(&context, project, Action::ManageEnvironment, &unknown_project(&request.project))
            .await?;
        let settings = EnvironmentSettings {
            tier: request.tier.unwrap_or_else(|| Tier::guess(&request.name)),
            url: given(request.url.clone()),
            agent: self.agent_named(&context, given(request.agent.clone())).await?,
            namespace: given(request.namespace.clone()),
            auto_stop_seconds: request.auto_stop_seconds.filter(|seconds| *seconds > 0),
            deployers: self.projects_named(&context, &request.deployers).await?,
            grouping: request.grouping.clone(),
        };
        let environment = EnvironmentId::derive(project, &request.name);
        let given = Given::Create { project, name: request.name.clone(), settings, at: self.now() };
        self.change(&context, environment, &request, &given).await?;
        self.view(&context, environment).await
    }

    async fn set_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: SetEnvironment,
    ) -> Result<EnvironmentView, Refusal> {
        let environment = request.environment;
        self.allowed(&context, environment, Action::ManageEnvironment).await?;
        let deployers = match &request.deployers {
            Some(named) => Some(self.projects_named(&context, named).await?),
            None => None,
        };
        let agent = match request.agent.clone() {
            Some(agent) => Some(self.agent_named(&context, given(Some(agent))).await?),
            None => None,
        };
        let change = SettingsChange {
            tier: request.tier,
            url: request.url.clone().map(|url| given(Some(url))),
            agent,
            namespace: request.namespace.clone().map(|namespace| given(Some(namespace))),
            auto_stop_seconds: request
                .auto_stop_seconds
                .map(|seconds| Some(seconds).filter(|some| *some > 0)),
            deployers,
            grouping: request.grouping.clone(),
        };
        let given = Given::Set { environment, change, at: self.now() };
        self.change(&context, environment, &request, &given).await?;
        self.view(&context, environment).await
    }

    async fn stop_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: StopEnvironment,
    ) -> Result<EnvironmentView, Refusal> {
        let environment = request.environment;
        self.allowed(&context, environment, Action::StopEnvironment).await?;
        self.job_is_for(&context, environment).await?;
        let withdrawn = match request.delete_objects {
            true => self.may_withdraw(&context, environment).await?,
            false => BTreeSet::new(),
        };
        let given = Given::Stop { environment, reason: request.reason.clone() };
        self.change(&context, environment, &request, &given).await?;
        for source in withdrawn {
            self.sources.withdraw(&context, source, &request).await?;
        }
        self.view(&context, environment).await
    }

    async fn delete_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: DeleteEnvironment,
    ) -> Result<EnvironmentView, Refusal> {
        let environment = request.environment;
        self.allowed(&context, environment, Action::ManageEnvironment).await?;
        let view = self.view(&context, environment).await?;
        self.change(&context, environment, &request, &Given::Delete { environment }).await?;
        Ok(view)
    }

    async fn show_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowEnvironment,
    ) -> Result<EnvironmentView, Refusal> {
        self.allowed(&context, request.environment, Action::ReadEnvironment).await?;
        self.view(&context, request.environment).await
    }

    async fn list_environments(
        self: Arc<Self>,
        context: RequestContext,
        request: ListEnvironments,
    ) -> Result<Page<EnvironmentView>, Refusal> {
        let after = request.after()?;
        let mut projects = ListedProjects::of(&self, &context, &request, after.as_ref()).await?;
        let ListEnvironments { tier, name, state, .. } = request.clone();
        let filter = ListFilter { tier, name, state };
        let mut page = PageBuilder::of(&request);
        let mut agents = AgentsSeen::default();
        while let Some(project) = projects.next().await? {
            let behind = after.as_ref().filter(|(begun, _)| *begun == project).map(|(_, name)| name.as_str());
            let found = self.fold.read(|state| {
                let named = state.matching(project, behind, &filter);
                let most = request.limit().items().saturating_add(1);
                named.take(most).map(|(name, id)| (name.to_owned(), id)).collect::<Vec<_>>()
            });
            for (name, id) in found {
                let Some(view) = self.view_as(&context, id, &mut agents).await? else { continue };
                if !page.push((project, name), view)? {
                    return page.finish();
                }
            }
        }
        page.finish()
    }

    async fn list_environment_changes(
        self: Arc<Self>,
        context: RequestContext,
        request: ListEnvironmentChanges,
    ) -> Result<Vec<EnvironmentChange>, Refusal> {
        let environment = request.environment;
        self.allowed(&context, environment, Action::ReadEnvironment).await?;
        let named = self.fold.read(|state| state.agents_in_changes(environment));
        let mut seen = AgentsSeen::default();
        let viewer = Viewer { actor: &context.actor, agents: seen.look(&self, &context, named).await? };
        Ok(self.fold.read(|state| state.changes_of(environment, &viewer)))
    }

    async fn list_resource_groups(
        self: Arc<Self>,
        context: RequestContext,
        request: ListResourceGroups,
    ) -> Result<Page<ResourceGroup>, Refusal> {
        only_services(&context)?;
        // Who asks has heard of a decision, perhaps before this replica.
        self.fold.catch_up(Policy::REQUEST.fold_within).await?;
        let after = request.after()?;
        let filter = ListFilter::default();
        self.fold.read(|state| {
            let mut page = PageBuilder::of(&request);
            let from = after.as_ref().map(|(project, _)| *project);
            for project in state.projects_with_environments(context.organization, from) {
                let behind =
                    after.as_ref().filter(|(begun, _)| *begun == project).map(|(_, name)| name.as_str());
                for (name, id) in state.matching(project, behind, &filter) {
                    let Some(group) = resource_group(state, id) else { continue };
                    if !page.push((project, name.to_owned()), group)? {
                        return page.finish();
                    }
                }
            }
            page.finish()
        })
    }

    /// Decides a change of an environment.
    async fn change<R: Request>(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
        request: &R,
        given: &Given,
    ) -> Result<Decided, Refusal> {
        let aggregate = AggregateRef::new(AggregateKind::Environment, environment);
        let aggregate = (context.organization, aggregate);
        let origin = origin_of(&self.deps.world, context, aggregate, request, Vec::new())?;
        decide(&self.fold, &origin, given).await
    }

    async fn view(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
    ) -> Result<EnvironmentView, Refusal> {
        let view = self.view_as(context, environment, &mut AgentsSeen::default()).await?;
        view.ok_or_else(|| unknown_environment(environment))
    }

    async fn view_as(
        &self,
        context: &RequestContext,
        id: EnvironmentId,
        seen: &mut AgentsSeen,
    ) -> Result<Option<EnvironmentView>, Refusal> {
        let shown = self.fold.read(|state| state.agents_shown(id));
        let agents = seen.look(self, context, shown).await?;
        let viewer = Viewer { actor: &context.actor, agents };
        Ok(self.fold.read(|state| environment_view(state, id, &viewer)))
    }

    /// Asks authz whether the actor may do this to the project of an environment. Who may not see the project learns nothing.
    pub(super) async fn allowed(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
        action: Action,
    ) -> Result<ProjectId, Refusal> {
        let unknown = unknown_environment(environment);
        let (organization, project) =
            self.fold.read(|state| state.owner_of(environment)).ok_or_else(|| unknown.clone())?;
        if organization != context.organization {
            return Err(unknown);
        }
        self.allowed_on(context, project, action, &unknown).await?;
        Ok(project)
    }

    pub(super) async fn allowed_on(
        &self,
        context: &RequestContext,
        project: ProjectId,
        action: Action,
        unknown: &Refusal,
    ) -> Result<Decision, Refusal> {
        let decision = decide_on(&*self.deps.bus, context, Scope::Project(project), action).await?;
        permitted(decision, || unknown.clone())
    }

    /// The project that a text means; a job's own where there is none.
    pub(super) async fn find_project(
        &self,
        context: &RequestContext,
        project: Option<String>,
    ) -> Result<FoundProject, Refusal> {
        let question = FindProject { actor: context.actor.clone(), project };
        ask(&*self.deps.bus, &own_context(context), &question).await
    }

    pub(super) async fn visible_project(
        &self,
        context: &RequestContext,
        text: &str,
    ) -> Result<ProjectId, Refusal> {
        let found = self.find_project(context, Some(text.to_owned())).await?;
        if found.visible { Ok(found.project) } else { Err(unknown_project(text)) }
    }

    async fn projects_named(
        &self,
        context: &RequestContext,
        named: &[String],
    ) -> Result<BTreeSet<ProjectId>, Refusal> {
        let mut projects = BTreeSet::new();
        for text in named.iter().filter(|text| !text.is_empty()) {
            let found = self.visible_project(context, text).await;
            let about = |refusal| Refusal { field: Some("deployers".to_owned()), ..refusal };
            projects.insert(found.map_err(about)?);
        }
        Ok(projects)
    }

    /// The agent that a text means. Whether a deployment may use it is decided when it starts.
    async fn agent_named(
        &self,
        context: &RequestContext,
        agent: Option<String>,
    ) -> Result<Option<AgentId>, Refusal> {
        let Some(agent) = agent else { return Ok(None) };
        let (actor, namespace) = (context.actor.clone(), String::new());
        let question = DecideAssociation { actor, agent, namespace };
        let decision = ask(&*self.deps.bus, &own_context(context), &question).await?;
        let unknown = || Refusal {
            field: Some("agent".to_owned()),
            ..Refusal::new(RefusalKind::NotFound, decision.reason.clone())
        };
        decision.agent.map(Some).ok_or_else(unknown)
    }
}

/// Which agents a caller sees, asked once each.
#[derive(Debug, Default)]
pub(super) struct AgentsSeen {
    asked: BTreeSet<AgentId>,
    visible: BTreeSet<AgentId>,
}

impl AgentsSeen {
    /// Those that the caller sees, among them all of these that they do.
    pub(super) async fn look(
        &mut self,
        driver: &EnvironmentDriver,
        context: &RequestContext,
        agents: impl IntoIterator<Item = AgentId>,
    ) -> Result<&BTreeSet<AgentId>, Refusal> {
        for agent in agents {
            if self.asked.insert(agent) {
                let (scope, action) = (Scope::Agent(agent), Action::ReadAgent);
                let decision = decide_on(&*driver.deps.bus, context, scope, action).await?;
                if decision.allowed {
                    self.visible.insert(agent);
                }
            }
        }
        Ok(&self.visible)
    }
}

/// An empty text stands for none.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// In the words of authz, so that what is not visible reads as what is not there.
pub(super) fn unknown_project(text: &str) -> Refusal {
    Refusal { field: Some("project".to_owned()), ..Refusal::not_found(format!("project {text:?}")) }
}
