//! Requests about deployments. Each that a caller makes is put to authz first.

use std::sync::Arc;

use bus::{PageBuilder, ask};
use events::environment::{
    Association, DEADLINE_SECONDS, DeploymentStarted, LONGEST_DEADLINE_SECONDS, LONGEST_REASON, check_name,
};
use events::request::RequestContext;
use events::requests::authz::{Action, DecideAssociation};
use events::requests::environments::{
    CanDeploy, DeployDecision, DeploymentView, FailDeployment, FinishDeployment, ListDeployments,
    ReportDeployment, ShowDeployment, StartDeployment, WithoutAssociation,
};
use events::requests::page::{Page, Paged as _};
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, DeploymentId, EnvironmentId, ProjectId, Refusal,
    RefusalKind, Request,
};
use store::Origin;

use super::environments::{AgentsSeen, unknown_project};
use super::{decide, only_services, origin_of, origin_of_part, own_context};
use crate::driver::EnvironmentDriver;
use crate::environments::{Ending, Given, Viewer, check_url, deployment_view, unknown_deployment};

/// Shortest deadline, in seconds.
const SHORTEST_DEADLINE_SECONDS: u32 = 1;

/// Who deploys where.
struct Parties {
    environment: EnvironmentId,
    project: ProjectId,
    deployer: ProjectId,
    /// What permits it.
    reason: String,
}

/// Where a deployment goes, and why that is not kept.
#[derive(Default)]
struct Place {
    association: Option<Association>,
    /// What grants it, or what is missing; absent where no agent was named.
    reason: Option<String>,
}

impl EnvironmentDriver {
    pub(super) async fn start_deployment(
        self: Arc<Self>,
        context: RequestContext,
        request: StartDeployment,
    ) -> Result<DeploymentView, Refusal> {
        let name = request.environment.clone();
        check_name(&name).map_err(|message| Refusal::invalid("env", message))?;
        if let Some(url) = &request.job_url {
            check_url("job_url", url)?;
        }
        let deadline = deadline(request.deadline_seconds)?;
        let parties =
            self.parties(&context, &name, request.project.as_deref(), request.deployer.clone()).await?;
        self.prepare(&context, &parties, &request).await?;
        let named = (request.agent.clone(), request.namespace.clone());
        let place = self.place(&context, parties.environment, named).await?;
        let id = DeploymentId::of_request(context.idempotency_key);
        let started = DeploymentStarted {
            deployment: id,
            environment: parties.environment,
            project: parties.project,
            deployer: parties.deployer,
            association: place.association.clone(),
            reference: request.reference.clone(),
            commit: request.commit.clone(),
            job_url: request.job_url.clone(),
            sync: None,
            deadline: Some(self.now().plus_millis(i64::from(deadline) * 1000)),
        };
        self.change_deployment(&context, id, &request, &Given::Start { started }).await?;
        let mut view = self.deployment(&context, id).await?;
        if let (None, Some(reason)) = (&place.association, place.reason) {
            view.without_association = Some(WithoutAssociation::NotGranted(reason));
        }
        Ok(view)
    }

    pub(super) async fn finish_deployment(
        self: Arc<Self>,
        context: RequestContext,
        request: FinishDeployment,
    ) -> Result<DeploymentView, Refusal> {
        let deployment = request.deployment;
        self.may_end(&context, deployment).await?;
        let given = Given::End { deployment, ending: Ending::Finished };
        self.change_deployment(&context, deployment, &request, &given).await?;
        self.deployment(&context, deployment).await
    }

    pub(super) async fn fail_deployment(
        self: Arc<Self>,
        context: RequestContext,
        request: FailDeployment,
    ) -> Result<DeploymentView, Refusal> {
        let deployment = request.deployment;
        self.may_end(&context, deployment).await?;
        let given = Given::End { deployment, ending: Ending::Failed(request.reason.clone()) };
        self.change_deployment(&context, deployment, &request, &given).await?;
        self.deployment(&context, deployment).await
    }

    /// A job's end, as its CI system's webhook reports it.
    pub(super) async fn report_deployment(
        self: Arc<Self>,
        context: RequestContext,
        request: ReportDeployment,
    ) -> Result<Vec<DeploymentId>, Refusal> {
        only_services(&context)?;
        let ending = match request.succeeded {
            true => Ending::Finished,
            false => Ending::Failed(request.reason.chars().take(LONGEST_REASON).collect()),
        };
        let running = self.fold.read(|state| state.running_of(request.project, &request.which));
        let mut ended = Vec::new();
        for deployment in running {
            let given = Given::End { deployment, ending: ending.clone() };
            let aggregate = AggregateRef::new(AggregateKind::Deployment, deployment);
            let aggregate = (context.organization, aggregate);
            let origin = origin_of(&self.deps.world, &context, aggregate, &request, Vec::new())?;
            // One report may end several.
            let origin = origin_of_part(origin, "reported", deployment.0);
            match decide(&self.fold, &origin, &given).await {
                Ok(_) => ended.push(deployment),
                // Somebody ended it at the same moment.
                Err(refusal) if refusal.kind == RefusalKind::Conflict => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(ended)
    }

    pub(super) async fn show_deployment(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowDeployment,
    ) -> Result<DeploymentView, Refusal> {
        let unknown = unknown_deployment(request.deployment);
        let environment = self.environment_of(&context, request.deployment)?.0;
        let allowed = self.allowed(&context, environment, Action::ReadEnvironment).await;
        allowed.map_err(|refusal| if refusal.kind == RefusalKind::NotFound { unknown } else { refusal })?;
        self.deployment(&context, request.deployment).await
    }

    pub(super) async fn list_deployments(
        self: Arc<Self>,
        context: RequestContext,
        request: ListDeployments,
    ) -> Result<Page<DeploymentView>, Refusal> {
        let after = request.after()?;
        self.allowed(&context, request.environment, Action::ReadEnvironment).await?;
        let most = request.limit().items().saturating_add(1);
        let keys: Vec<_> = self.fold.read(|state| {
            state.deployments_behind(request.environment, after, request.status).take(most).collect()
        });
        let (mut page, mut seen) = (PageBuilder::of(&request), AgentsSeen::default());
        for key in keys {
            let Some(view) = self.deployment_as(&context, key.1, &mut seen).await? else { continue };
            if !page.push(key, view)? {
                break;
            }
        }
        page.finish()
    }

    pub(super) async fn can_deploy(
        self: Arc<Self>,
        context: RequestContext,
        request: CanDeploy,
    ) -> Result<DeployDecision, Refusal> {
        let parties =
            self.parties(&context, &request.environment, request.project.as_deref(), request.deployer).await;
        let parties = match parties {
            Ok(parties) => parties,
            Err(refusal) if matches!(refusal.kind, RefusalKind::Denied | RefusalKind::NotFound) => {
                let (allowed, reason) = (false, refusal.message);
                return Ok(DeployDecision { allowed, reason, associates: None, association_reason: None });
            }
            Err(refusal) => return Err(refusal),
        };
        let named = (request.agent, request.namespace);
        let place = self.place(&context, parties.environment, named).await?;
        Ok(DeployDecision {
            allowed: true,
            reason: parties.reason,
            associates: place.reason.as_ref().map(|_| place.association.is_some()),
            association_reason: place.reason,
        })
    }

    /// Who deploys where, if they may.
    async fn parties(
        &self,
        context: &RequestContext,
        name: &str,
        project: Option<&str>,
        deployer: Option<String>,
    ) -> Result<Parties, Refusal> {
        let is_job = matches!(context.actor, Actor::Job(_));
        let own = match (&deployer, is_job) {
            (Some(text), _) => Some(self.visible_project(context, text).await?),
            // Without a project, the one that is found below is the job's own.
            (None, true) if project.is_some() => Some(self.find_project(context, None).await?.project),
            (None, _) => None,
        };
        let of = self.find_project(context, project.map(str::to_owned)).await?;
        is_for(of.for_environment.as_deref(), name)?;
        let deployer = own.unwrap_or(of.project);
        let unknown = unknown_project(project.unwrap_or_default());
        if own.is_none() && !is_job && !of.visible {
            return Err(unknown);
        }
        let decision = self.allowed_on(context, deployer, Action::RecordDeployment, &unknown).await?;
        let environment = EnvironmentId::derive(of.project, name);
        let parties = Parties { environment, project: of.project, deployer, reason: decision.reason };
        if deployer == of.project {
            return Ok(parties);
        }
        let is_named = self.fold.read(|state| {
            state.settings_of(environment).is_some_and(|settings| settings.deployers.contains(&deployer))
        });
        match (is_named, of.visible) {
            (true, _) => {
                let reason = format!("{}; environment {name} names its project as deployer", parties.reason);
                Ok(Parties { reason, ..parties })
            }
            (false, true) => Err(crate::environments::not_a_deployer(name)),
            (false, false) => Err(unknown),
        }
    }

    /// Makes sure that the environment is there, and available.
    async fn prepare(
        &self,
        context: &RequestContext,
        parties: &Parties,
        request: &StartDeployment,
    ) -> Result<(), Refusal> {
        let given = Given::Prepare {
            project: parties.project,
            deployer: parties.deployer,
            name: request.environment.clone(),
            tier: request.tier,
            auto_stop_seconds: request.auto_stop_seconds.filter(|seconds| *seconds > 0),
            at: self.now(),
        };
        let aggregate = AggregateRef::new(AggregateKind::Environment, parties.environment);
        let aggregate = (context.organization, aggregate);
        let origin = origin_of(&self.deps.world, context, aggregate, request, Vec::new())?;
        // The request's own commit is the start of the deployment; this one is made again where it is needed.
        let commit = CommitId(self.deps.world.new_uuid());
        decide(&self.fold, &Origin { commit, repeats: None, ..origin }, &given).await?;
        Ok(())
    }

    /// The agent and namespace of a deployment, as far as the caller is granted them.
    async fn place(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
        (agent, namespace): (Option<String>, Option<String>),
    ) -> Result<Place, Refusal> {
        let settings = self.fold.read(|state| state.settings_of(environment).cloned());
        let (own_agent, own_namespace) =
            settings.map(|settings| (settings.agent, settings.namespace)).unwrap_or_default();
        let agent = agent.filter(|agent| !agent.is_empty()).or(own_agent.map(|agent| agent.to_string()));
        let given_namespace = namespace.filter(|namespace| !namespace.is_empty());
        let Some(agent) = agent else {
            if given_namespace.is_some() {
                let message = "is required with a namespace, because the environment has no agent; name one";
                return Err(Refusal::invalid("agent", message));
            }
            return Ok(Place::default());
        };
        let Some(namespace) = given_namespace.or(own_namespace) else {
            let message = "is required with an agent, because the environment has no namespace; name one";
            return Err(Refusal::invalid("namespace", message));
        };
        let actor = context.actor.clone();
        let question = DecideAssociation { actor, agent, namespace: namespace.clone() };
        let decision = ask(&*self.deps.bus, &own_context(context), &question).await?;
        let granted = decision.agent.filter(|_| decision.allowed);
        let association = granted.map(|agent| Association { agent, namespace });
        Ok(Place { association, reason: Some(decision.reason) })
    }

    async fn change_deployment<R: Request>(
        &self,
        context: &RequestContext,
        deployment: DeploymentId,
        request: &R,
        given: &Given,
    ) -> Result<(), Refusal> {
        let aggregate = AggregateRef::new(AggregateKind::Deployment, deployment);
        let aggregate = (context.organization, aggregate);
        let origin = origin_of(&self.deps.world, context, aggregate, request, Vec::new())?;
        decide(&self.fold, &origin, given).await?;
        Ok(())
    }

    /// The environment of a deployment of the caller's organization, and the project that deploys.
    fn environment_of(
        &self,
        context: &RequestContext,
        deployment: DeploymentId,
    ) -> Result<(EnvironmentId, ProjectId), Refusal> {
        let found = self.fold.read(|state| {
            let (environment, deployer) = state.deployed_by(deployment)?;
            let (organization, _) = state.owner_of(environment)?;
            (organization == context.organization).then_some((environment, deployer))
        });
        found.ok_or_else(|| unknown_deployment(deployment))
    }

    /// Who may record deployments of the project that deploys may end one.
    async fn may_end(&self, context: &RequestContext, deployment: DeploymentId) -> Result<(), Refusal> {
        let (environment, deployer) = self.environment_of(context, deployment)?;
        let unknown = unknown_deployment(deployment);
        self.allowed_on(context, deployer, Action::RecordDeployment, &unknown).await?;
        self.job_is_for(context, environment).await
    }

    /// Refuses a job that is for another environment.
    pub(super) async fn job_is_for(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
    ) -> Result<(), Refusal> {
        if !matches!(context.actor, Actor::Job(_)) {
            return Ok(());
        }
        let own = self.find_project(context, None).await?.for_environment;
        let name = self.fold.read(|state| state.name_of(environment).map(str::to_owned));
        is_for(own.as_deref(), &name.unwrap_or_default())
    }

    async fn deployment(
        &self,
        context: &RequestContext,
        id: DeploymentId,
    ) -> Result<DeploymentView, Refusal> {
        let view = self.deployment_as(context, id, &mut AgentsSeen::default()).await?;
        view.ok_or_else(|| unknown_deployment(id))
    }

    async fn deployment_as(
        &self,
        context: &RequestContext,
        id: DeploymentId,
        seen: &mut AgentsSeen,
    ) -> Result<Option<DeploymentView>, Refusal> {
        let agent = self.fold.read(|state| state.agent_deployed(id));
        let agents = seen.look(self, context, agent).await?;
        let viewer = Viewer { actor: &context.actor, agents };
        Ok(self.fold.read(|state| deployment_view(state, id, &viewer)))
    }
}

/// A job that is for one environment records nothing of others.
fn is_for(job_environment: Option<&str>, name: &str) -> Result<(), Refusal> {
    match job_environment {
        Some(own) if own != name => {
            let message = format!("is not the job's environment: the job's token is for {own}");
            Err(Refusal { field: Some("env".to_owned()), ..Refusal::new(RefusalKind::Denied, message) })
        }
        _ => Ok(()),
    }
}

fn deadline(seconds: Option<u32>) -> Result<u32, Refusal> {
    let seconds = seconds.unwrap_or(DEADLINE_SECONDS);
    if (SHORTEST_DEADLINE_SECONDS..=LONGEST_DEADLINE_SECONDS).contains(&seconds) {
        return Ok(seconds);
    }
    let message = format!("must be {SHORTEST_DEADLINE_SECONDS} to {LONGEST_DEADLINE_SECONDS} seconds");
    Err(Refusal::invalid("deadline_seconds", message))
}
