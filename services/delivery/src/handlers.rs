//! Requests that delivery answers. Each that a person makes is put to authz first.

pub(crate) mod deployments;
pub(crate) mod environments;
mod listed_projects;
mod withdraw;

use std::sync::Arc;

use bus::{Bus, Dispatcher, Service, Serving, announce, ask};
use events::desired::{Applier, DesiredPlan};
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, Decide, Decision};
use events::requests::delivery::{
    ConfirmSource, NameApplier, NextSync, PinSource, ResumeSource, ShowDesired, ShowNext, ShowSource,
    SourceView, SuspendSource, SyncSource, UnpinSource,
};
use events::requests::repository::{BundleAt, RepositoryPushed, ShowFetch};
use events::requests::status::{Condition, Reason, State};
use events::{
    Actor, AggregateKind, AggregateRef, CommandRecord, CommitId, InstanceId, OrganizationId, ProjectId,
    Refusal, RefusalKind, Request, SourceId, SyncId, Timestamp, derived_uuid,
};
use store::{Basis, Decided, Decides, Following, Origin, Policy};
use uuid::Uuid;
use world::World;

use crate::driver::{Driver, chain};
use crate::model::{Command, Given, StatusContext, awaits_decision, desired_plan, source_view};

/// Of plans that are answered together; one that is larger goes by itself.
const MAXIMUM_PLAN_BYTES: usize = bus::MAXIMUM_MESSAGE_BYTES / 2;
/// How long a command waits, once its own effect can be read, for what follows from it.
const DECIDED_WITHIN: std::time::Duration = std::time::Duration::from_millis(2_500);

/// Serves every request until the guards are dropped.
pub(crate) async fn serve(driver: &Arc<Driver>) -> anyhow::Result<Vec<Serving>> {
    let mut requests = Dispatcher::new(&*driver.deps.bus, Arc::clone(driver));
    requests.answer(Driver::show_desired).await?;
    requests.answer(Driver::show_next).await?;
    requests.answer(Driver::name_applier).await?;
    requests.answer(Driver::list_sources).await?;
    requests.answer(Driver::show_source).await?;
    requests.answer(Driver::list_objects).await?;
    requests.answer(Driver::list_syncs).await?;
    requests.answer(Driver::list_agent_statuses).await?;
    requests.answer(Driver::sync_source).await?;
    requests.answer(Driver::suspend_source).await?;
    requests.answer(Driver::resume_source).await?;
    requests.answer(Driver::pin_source).await?;
    requests.answer(Driver::unpin_source).await?;
    requests.answer(Driver::confirm_source).await?;
    Ok(requests.serving())
}

impl Service for Driver {
    async fn answer<R, F, A>(&self, _: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        self.fold.answer(attempt).await
    }
}

impl Driver {
    async fn show_desired(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowDesired,
    ) -> Result<Vec<Option<DesiredPlan>>, Refusal> {
        only_services(&context)?;
        if request.agents.len() > ShowDesired::MOST {
            let message = format!("at most {} agents at once", ShowDesired::MOST);
            return Err(Refusal::invalid("agents", message));
        }
        let (mut plans, mut bytes) = (Vec::new(), 0);
        for agent in request.agents {
            let plan = self.fold.read(|state| desired_plan(state, agent));
            let encoded = events::encode(&plan)
                .map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
            bytes += encoded.len();
            if bytes > MAXIMUM_PLAN_BYTES && !plans.is_empty() {
                break;
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    async fn show_next(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowNext,
    ) -> Result<NextSync, Refusal> {
        only_services(&context)?;
        let source = request.source;
        let next = self.next_sync(source).await.map_err(|error| {
            tracing::error!(%source, error = %chain(&error), "the next desired state of a source cannot be determined");
            Refusal::new(RefusalKind::Unavailable, "its bundle cannot be read now; retry")
        })?;
        let next = next.ok_or_else(|| match self.view(source) {
            Err(unknown) => unknown,
            Ok(_) => Refusal::new(RefusalKind::Unavailable, "it is changing now; retry"),
        })?;
        if next.planned.bundle.is_none() && next.rejected.is_none() {
            let why = next.fetch_failure.map(|failure| format!(": {failure}")).unwrap_or_default();
            let message = format!("no commit of the source's ref was read yet{why}");
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        Ok(next)
    }

    async fn name_applier(
        self: Arc<Self>,
        context: RequestContext,
        request: NameApplier,
    ) -> Result<Applier, Refusal> {
        only_services(&context)?;
        let NameApplier { agent, instance } = request;
        let organization = self
            .fold
            .read(|state| state.organization_of(agent))
            .ok_or_else(|| Refusal::not_found(format!("agent {agent}")))?;
        // Each tunnel that opens again says so: what is so already need not be looked for in the log.
        let (applier, epoch) = self.fold.read(|state| state.applier(agent));
        let again = self.fold.read(|state| state.needs_statement(agent));
        if applier == Some(instance) && !again {
            return Ok(Applier { instance, epoch });
        }
        let aggregate = AggregateRef::new(AggregateKind::Applier, agent);
        let aggregate = (organization, aggregate);
        let origin = origin_of(&self.deps.world, &context, aggregate, &request, Vec::new())?;
        let given = Given::NameApplier { agent, instance, again };
        let named = decide(&self.fold, &origin, &given).await?;
        Ok(Applier { instance, epoch: named.version })
    }

    async fn show_source(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::ReadSource).await?;
        let mut view = self.view(request.source)?;
        let looks_done = matches!(view.status.reason, Reason::InSync | Reason::NotRecorded);
        if looks_done || view.newest_commit.is_none() {
            self.add_fetching(&context, &mut view).await;
        }
        Ok(view)
    }

    /// A source that looks done may just be fetching the next commit.
    async fn add_fetching(&self, context: &RequestContext, view: &mut SourceView) {
        let context = own_context(context);
        let fetch = match ask(&*self.deps.bus, &context, &ShowFetch { source: view.id }).await {
            Ok(fetch) => fetch,
            Err(error) => {
                tracing::debug!(source = %view.id, %error, "repo-poller does not report the state of fetching");
                return;
            }
        };
        if fetch.fetching {
            view.status.add(Condition {
                state: State::Progressing,
                reason: Reason::Fetching,
                message: "fetching a new commit".to_owned(),
                since: None,
                retry_at: None,
            });
            view.why = view.status.why();
        }
    }

    async fn sync_source(
        self: Arc<Self>,
        context: RequestContext,
        request: SyncSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SyncSource).await?;
        let sync = Command::Sync { sync: SyncId(self.deps.world.new_uuid()) };
        let view = self.command(&context, request.source, &request, sync).await?;
        self.announce_wish_for_news(&context, view.configuration.project).await;
        Ok(view)
    }

    /// A requested sync is to bring what is in Git now, not what was there at the last look.
    async fn announce_wish_for_news(&self, context: &RequestContext, project: ProjectId) {
        let pushed = RepositoryPushed {
            project,
            reference: None,
            correlation_id: context.correlation_id,
            traceparent: context.traceparent.clone(),
        };
        if let Err(error) = announce(&*self.deps.bus, &pushed).await {
            tracing::warn!(%project, %error, "repo-poller was not notified to poll at once");
        }
    }

    async fn suspend_source(
        self: Arc<Self>,
        context: RequestContext,
        request: SuspendSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SuspendSource).await?;
        if request.reason.len() > 500 {
            return Err(Refusal::invalid("reason", "longer than 500 bytes: shorten it"));
        }
        let suspend = Command::Suspend { reason: request.reason.clone() };
        self.command(&context, request.source, &request, suspend).await
    }

    async fn resume_source(
        self: Arc<Self>,
        context: RequestContext,
        request: ResumeSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SuspendSource).await?;
        self.command(&context, request.source, &request, Command::Resume).await
    }

    async fn pin_source(
        self: Arc<Self>,
        context: RequestContext,
        request: PinSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::PinSource).await?;
        let wanted = BundleAt { source: request.source, commit: request.commit.clone() };
        let found = ask(&*self.deps.bus, &own_context(&context), &wanted).await?;
        let pin = Command::Pin { commit: found.commit, bundle: found.bundle, objects: found.objects };
        self.command(&context, request.source, &request, pin).await
    }

    async fn unpin_source(
        self: Arc<Self>,
        context: RequestContext,
        request: UnpinSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::PinSource).await?;
        self.command(&context, request.source, &request, Command::Unpin).await
    }

    async fn confirm_source(
        self: Arc<Self>,
        context: RequestContext,
        request: ConfirmSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::ConfirmSource).await?;
        let confirm = Command::Confirm { commit: request.commit.clone() };
        self.command(&context, request.source, &request, confirm).await
    }

    /// Decides a command, again when the source moved on meanwhile, and answers the view after it.
    async fn command<R: Request>(
        &self,
        context: &RequestContext,
        source: SourceId,
        request: &R,
        command: Command,
    ) -> Result<SourceView, Refusal> {
        let aggregate = AggregateRef::new(AggregateKind::Source, source);
        let ids = match &command {
            Command::Sync { sync } => vec![sync.0],
            _ => Vec::new(),
        };
        let aggregate = (context.organization, aggregate);
        let origin = origin_of(&self.deps.world, context, aggregate, request, ids)?;
        decide(&self.fold, &origin, &Given::Command { source, command }).await?;
        self.until_decided(source).await;
        self.view(source)
    }

    /// Waits until what follows from a command is decided, by whichever replica settles the source, so that the answer shows it. Where
    /// that takes longer, the status says what is about to come.
    async fn until_decided(&self, source: SourceId) {
        let mut changes = self.fold.changes();
        let decided = async {
            while self.fold.read(|state| awaits_decision(state, source)) {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            biased;
            () = decided => {}
            () = self.deps.world.clock.sleep(DECIDED_WITHIN) => {}
        }
    }

    /// What a status depends on besides the log.
    pub(crate) fn around(&self) -> StatusContext {
        let gateways = self
            .gateways
            .get()
            .map(|live| live.borrow().replicas().iter().map(|replica| InstanceId(*replica)).collect());
        StatusContext { now: Timestamp(self.deps.world.clock.now_millis()), gateways }
    }

    fn view(&self, source: SourceId) -> Result<SourceView, Refusal> {
        let view = self.view_with(source, &self.around());
        view.ok_or_else(|| Refusal::not_found(format!("source {source}")))
    }

    /// A source, with what is missing for its syncs to be deployments, where something is.
    pub(crate) fn view_with(&self, source: SourceId, around: &StatusContext) -> Option<SourceView> {
        let mut view = self.fold.read(|state| source_view(state, source, around))?;
        if let Some(message) = self.environments.read(|state| state.unrecorded(view.id)) {
            let (state, reason) = (State::InSync, Reason::NotRecorded);
            view.status.add(Condition { state, reason, message, since: None, retry_at: None });
            view.why = view.status.why();
        }
        Some(view)
    }

    /// Asks authz whether the actor may do this to the source's agent.
    pub(crate) async fn allowed(
        &self,
        context: &RequestContext,
        source: SourceId,
        action: Action,
    ) -> Result<(), Refusal> {
        let unknown = || Refusal::not_found(format!("source {source}"));
        let (agent, organization, _) =
            self.fold.read(|state| state.source_head(source)).ok_or_else(unknown)?;
        if organization != context.organization {
            return Err(unknown());
        }
        let decision = decide_on(&*self.deps.bus, context, Scope::Agent(agent), action).await?;
        permitted(decision, unknown)?;
        Ok(())
    }
}

/// Decides, and waits until what was decided can be read.
pub(crate) async fn decide<P: Decides>(
    fold: &Following<P>,
    origin: &Origin,
    given: &P::Given,
) -> Result<Decided, Refusal> {
    let decided = fold.decide(&Policy::REQUEST, origin, Basis::Newest, given).await?;
    decided.folded.clone().map_err(|error| unavailable(&error))?;
    Ok(decided)
}

/// Asks authz whether the actor may do this there.
pub(crate) async fn decide_on(
    bus: &dyn Bus,
    context: &RequestContext,
    scope: Scope,
    action: Action,
) -> Result<Decision, Refusal> {
    let (actor, organization) = (context.actor.clone(), context.organization);
    ask(bus, &own_context(context), &Decide { actor, organization, action, scope }).await
}

/// Turns a refused decision into a refusal: `unknown` where the actor may not even see the thing.
pub(crate) fn permitted(decision: Decision, unknown: impl FnOnce() -> Refusal) -> Result<Decision, Refusal> {
    match (decision.allowed, decision.visible) {
        (true, _) => Ok(decision),
        (false, true) => Err(Refusal::new(RefusalKind::Denied, decision.reason)),
        (false, false) => Err(unknown()),
    }
}

/// The same request's context, asked by this service itself.
pub(crate) fn own_context(context: &RequestContext) -> RequestContext {
    RequestContext { actor: Actor::service("delivery"), ..context.clone() }
}

/// What the log keeps of a request besides what it decided. A repeated request is found by its key.
pub(crate) fn origin_of<R: Request>(
    world: &World,
    context: &RequestContext,
    aggregate: (OrganizationId, AggregateRef),
    request: &R,
    ids: Vec<Uuid>,
) -> Result<Origin, Refusal> {
    let data =
        events::encode(request).map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
    Ok(Origin {
        commit: context.idempotency_key,
        actor: context.actor.clone(),
        correlation_id: context.correlation_id,
        causation_id: context.causation_id,
        traceparent: context.traceparent.clone(),
        occurred_at: Timestamp(world.clock.now_millis()),
        command: Some(CommandRecord { name: R::NAME.to_owned(), data, ids }),
        repeats: Some(aggregate),
    })
}

/// The origin of a part of a request, such as one of several objects. Its commit is derived, so that a repeated request finds it.
pub(crate) fn origin_of_part(origin: Origin, what: &str, part: Uuid) -> Origin {
    let key = derived_uuid(&[what.as_bytes(), origin.commit.0.as_bytes(), part.as_bytes()]);
    Origin { commit: CommitId(key), ..origin }
}

pub(crate) fn only_services(context: &RequestContext) -> Result<(), Refusal> {
    match context.actor {
        Actor::Service(_) => Ok(()),
        _ => Err(Refusal::new(RefusalKind::Denied, "only services may request this")),
    }
}

pub(crate) fn unavailable(error: &store::WaitError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("stored, but not readable yet: {error}; retry"))
}
