//! Requests that delivery answers. Each that a person makes is put to authz first.

use std::sync::Arc;

use bus::{Serving, answer, ask};
use events::delivery::{ApplierNamed, DeliveryEvent};
use events::desired::{Applier, DesiredPlan};
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, Decide};
use events::requests::delivery::{
    ConfirmSource, ListSources, NameApplier, PinSource, ResumeSource, ShowDesired, ShowSource, SourceView,
    SuspendSource, SyncSource, UnpinSource,
};
use events::requests::repository::{BundleAt, ShowFetch};
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, CommandRecord, Event, OrganizationId, Refusal, RefusalKind, Request,
    SourceId, SyncId, Timestamp,
};
use futures::FutureExt as _;
use store::{AppendError, NewCommit};

use crate::driver::Driver;
use crate::model::{Command, desired_plan, source_view};

/// How often a command is decided again when the source moved on meanwhile.
const ATTEMPTS: usize = 8;
/// How long a command waits until its own effect can be read.
const READ_BACK: std::time::Duration = std::time::Duration::from_secs(5);

/// Serves every request until the guards are dropped.
pub(crate) async fn serve(driver: &Arc<Driver>) -> anyhow::Result<Vec<Serving>> {
    Ok(vec![
        serve_one(driver, Driver::show_desired).await?,
        serve_one(driver, Driver::name_applier).await?,
        serve_one(driver, Driver::list_sources).await?,
        serve_one(driver, Driver::show_source).await?,
        serve_one(driver, Driver::sync_source).await?,
        serve_one(driver, Driver::suspend_source).await?,
        serve_one(driver, Driver::resume_source).await?,
        serve_one(driver, Driver::pin_source).await?,
        serve_one(driver, Driver::unpin_source).await?,
        serve_one(driver, Driver::confirm_source).await?,
    ])
}

async fn serve_one<R, F>(driver: &Arc<Driver>, method: F) -> anyhow::Result<Serving>
where
    R: Request,
    F: AsyncMethod<R>,
{
    let driver = Arc::clone(driver);
    let bus = Arc::clone(&driver.deps.bus);
    let serving = answer::<R, _>(&*bus, move |context, request| {
        method.call(Arc::clone(&driver), context, request)
    })
    .await?;
    Ok(serving)
}

/// A method of [`Driver`] that answers `R`.
trait AsyncMethod<R: Request>: Send + Sync + 'static {
    fn call(
        &self,
        driver: Arc<Driver>,
        context: RequestContext,
        request: R,
    ) -> futures::future::BoxFuture<'static, Result<R::Reply, Refusal>>;
}

impl<R, F, A> AsyncMethod<R> for F
where
    R: Request,
    F: Fn(Arc<Driver>, RequestContext, R) -> A + Send + Sync + 'static,
    A: Future<Output = Result<R::Reply, Refusal>> + Send + 'static,
{
    fn call(
        &self,
        driver: Arc<Driver>,
        context: RequestContext,
        request: R,
    ) -> futures::future::BoxFuture<'static, Result<R::Reply, Refusal>> {
        self(driver, context, request).boxed()
    }
}

impl Driver {
    async fn show_desired(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowDesired,
    ) -> Result<Option<DesiredPlan>, Refusal> {
        only_services(&context)?;
        Ok(self.fold.read(|state| desired_plan(state, request.agent)))
    }

    async fn name_applier(self: Arc<Self>, context: RequestContext, request: NameApplier) -> Result<Applier, Refusal> {
        only_services(&context)?;
        let NameApplier { agent, instance } = request;
        for _ in 0..ATTEMPTS {
            let (named, epoch) = self.fold.read(|state| state.applier(agent));
            if named == Some(instance) {
                return Ok(Applier { instance, epoch });
            }
            let organization = self
                .fold
                .read(|state| state.organization_of(agent))
                .ok_or_else(|| Refusal::not_found(format!("agent {agent}")))?;
            let event = DeliveryEvent::ApplierNamed(ApplierNamed { agent, instance });
            let aggregate = AggregateRef::new(AggregateKind::Applier, agent);
            self.decided(&context, organization, aggregate, epoch, vec![event], &request, Vec::new()).await?;
        }
        Err(Refusal::new(RefusalKind::Unavailable, "too many instances claim to apply; retry"))
    }

    async fn list_sources(
        self: Arc<Self>,
        context: RequestContext,
        request: ListSources,
    ) -> Result<Vec<SourceView>, Refusal> {
        let sources = self.fold.read(|state| state.list(context.organization, request.agent));
        let mut views = Vec::with_capacity(sources.len());
        let mut decided: Option<(AgentId, bool)> = None;
        for source in sources {
            let Some(view) = self.fold.read(|state| source_view(state, source)) else { continue };
            let visible = match decided {
                Some((agent, visible)) if agent == view.agent => visible,
                _ => self.decide_on(&context, view.agent, Action::ReadSource).await?.allowed,
            };
            decided = Some((view.agent, visible));
            if visible {
                views.push(view);
            }
        }
        Ok(views)
    }

    async fn show_source(self: Arc<Self>, context: RequestContext, request: ShowSource) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::ReadSource).await?;
        let mut view = self.view(request.source)?;
        if view.why.is_none() || view.newest_commit.is_none() {
            self.add_fetching(&context, &mut view).await;
        }
        Ok(view)
    }

    /// A source that looks done may just be fetching the next commit.
    async fn add_fetching(&self, context: &RequestContext, view: &mut SourceView) {
        let context = self.own_context(context);
        let fetch = match ask(&*self.deps.bus, &context, &ShowFetch { source: view.id }).await {
            Ok(fetch) => fetch,
            Err(error) => {
                tracing::debug!(source = %view.id, %error, "poller does not say how fetching stands");
                return;
            }
        };
        if fetch.fetching {
            view.why = Some("fetching a new commit".to_owned());
        }
    }

    async fn sync_source(self: Arc<Self>, context: RequestContext, request: SyncSource) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SyncSource).await?;
        let sync = SyncId(self.deps.world.new_uuid());
        self.command(&context, request.source, &request, Command::Sync { sync }, vec![sync.0]).await
    }

    async fn suspend_source(
        self: Arc<Self>,
        context: RequestContext,
        request: SuspendSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SuspendSource).await?;
        if request.reason.len() > 500 {
            return Err(Refusal::invalid("reason", "longer than 500 bytes: say it shorter"));
        }
        let command = Command::Suspend { reason: request.reason.clone() };
        self.command(&context, request.source, &request, command, Vec::new()).await
    }

    async fn resume_source(
        self: Arc<Self>,
        context: RequestContext,
        request: ResumeSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::SuspendSource).await?;
        self.command(&context, request.source, &request, Command::Resume, Vec::new()).await
    }

    async fn pin_source(self: Arc<Self>, context: RequestContext, request: PinSource) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::PinSource).await?;
        let wanted = BundleAt { source: request.source, commit: request.commit.clone() };
        let found = ask(&*self.deps.bus, &self.own_context(&context), &wanted).await?;
        let command = Command::Pin { commit: found.commit, bundle: found.bundle, objects: found.objects };
        self.command(&context, request.source, &request, command, Vec::new()).await
    }

    async fn unpin_source(
        self: Arc<Self>,
        context: RequestContext,
        request: UnpinSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::PinSource).await?;
        self.command(&context, request.source, &request, Command::Unpin, Vec::new()).await
    }

    async fn confirm_source(
        self: Arc<Self>,
        context: RequestContext,
        request: ConfirmSource,
    ) -> Result<SourceView, Refusal> {
        self.allowed(&context, request.source, Action::ConfirmSource).await?;
        let command = Command::Confirm { commit: request.commit.clone() };
        self.command(&context, request.source, &request, command, Vec::new()).await
    }

    /// Decides a command, again when the source moved on meanwhile, and answers the view after it.
    async fn command<R: Request>(
        &self,
        context: &RequestContext,
        source: SourceId,
        request: &R,
        command: Command,
        ids: Vec<uuid::Uuid>,
    ) -> Result<SourceView, Refusal> {
        for _ in 0..ATTEMPTS {
            let (decision, head) = self
                .fold
                .read(|state| (state.decide(source, command.clone()), state.source_head(source)));
            let events = decision?;
            let Some((_, organization, version)) = head.filter(|_| !events.is_empty()) else {
                return self.view(source);
            };
            let aggregate = AggregateRef::new(AggregateKind::Source, source);
            if self.decided(context, organization, aggregate, version, events, request, ids.clone()).await? {
                return self.view(source);
            }
        }
        Err(Refusal::new(RefusalKind::Unavailable, "the source changes too fast; retry"))
    }

    /// Appends what a request decided; `false` when the aggregate moved on meanwhile. Either way the state has caught up.
    #[expect(clippy::too_many_arguments, reason = "a commit has that many parts, and there is one caller a kind")]
    async fn decided<R: Request>(
        &self,
        context: &RequestContext,
        organization: OrganizationId,
        aggregate: AggregateRef,
        expected: u64,
        events: Vec<DeliveryEvent>,
        request: &R,
        ids: Vec<uuid::Uuid>,
    ) -> Result<bool, Refusal> {
        let encoding = |error: events::EncodeError| Refusal::new(RefusalKind::Internal, error.to_string());
        let commit = NewCommit {
            id: context.idempotency_key,
            organization,
            aggregate,
            expected,
            actor: context.actor.clone(),
            correlation_id: context.correlation_id,
            causation_id: context.causation_id,
            traceparent: context.traceparent.clone(),
            occurred_at: Timestamp(self.deps.world.clock.now_millis()),
            command: Some(CommandRecord {
                name: R::NAME.to_owned(),
                data: events::encode(request).map_err(encoding)?,
                ids,
            }),
            events: store::new_events(&self.deps.world, events.into_iter().map(Event::from)).map_err(encoding)?,
        };
        match store::append_known(&self.deps.world, &*self.deps.log, commit).await {
            Ok(appended) => {
                let read_back = self.fold.wait_for(&appended.position, READ_BACK).await;
                read_back.map_err(|_| Refusal::new(RefusalKind::Unavailable, "stored, but not folded yet; look again"))?;
                Ok(true)
            }
            Err(AppendError::Conflict { .. }) => {
                let end = self.deps.log.position();
                let caught_up = self.fold.wait_for(&end, READ_BACK).await;
                caught_up.map_err(|_| Refusal::new(RefusalKind::Unavailable, "the fold is behind; retry"))?;
                Ok(false)
            }
            Err(error) => Err(Refusal::new(RefusalKind::Unavailable, error.to_string())),
        }
    }

    fn view(&self, source: SourceId) -> Result<SourceView, Refusal> {
        self.fold
            .read(|state| source_view(state, source))
            .ok_or_else(|| Refusal::not_found(format!("source {source}")))
    }

    /// Asks authz whether the actor may do this to the source's agent.
    async fn allowed(&self, context: &RequestContext, source: SourceId, action: Action) -> Result<(), Refusal> {
        let unknown = || Refusal::not_found(format!("source {source}"));
        let (agent, organization, _) = self.fold.read(|state| state.source_head(source)).ok_or_else(unknown)?;
        if organization != context.organization {
            return Err(unknown());
        }
        let decision = self.decide_on(context, agent, action).await?;
        match (decision.allowed, decision.visible) {
            (true, _) => Ok(()),
            (false, true) => Err(Refusal::new(RefusalKind::Denied, decision.reason)),
            (false, false) => Err(unknown()),
        }
    }

    async fn decide_on(
        &self,
        context: &RequestContext,
        agent: AgentId,
        action: Action,
    ) -> Result<events::requests::authz::Decision, Refusal> {
        let question = Decide {
            actor: context.actor.clone(),
            organization: context.organization,
            action,
            scope: Scope::Agent(agent),
        };
        ask(&*self.deps.bus, &self.own_context(context), &question).await
    }

    /// The same request's context, asked by this service itself.
    fn own_context(&self, context: &RequestContext) -> RequestContext {
        RequestContext { actor: Actor::service("delivery"), ..context.clone() }
    }
}

fn only_services(context: &RequestContext) -> Result<(), Refusal> {
    match context.actor {
        Actor::Service(_) => Ok(()),
        _ => Err(Refusal::new(RefusalKind::Denied, "only a service may ask this")),
    }
}
