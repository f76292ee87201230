//! Requests about subscriptions. Each is put to authz first.

use std::sync::Arc;

use bus::{Dispatcher, Service, Serving, ask};
use events::directory::Scope;
use events::export::{EventFilter, ExportPosition, MOST_PATTERNS, TypePattern};
use events::request::RequestContext;
use events::requests::authz::{Action, Decide, FindProject};
use events::requests::subscriptions::{
    ConsumerView, CreateSubscription, DeadLetterList, DeleteSubscription, ListDeadLetters, ListSubscriptions,
    NewSubscription, PauseSubscription, ReplaySubscription, ResendDeadLetters, ResumeSubscription,
    RotateSubscriptionSecret, ShowSubscription, SubscriptionList, SubscriptionState, SubscriptionView,
};
use events::subscription::{LONGEST_URL, SendFrom, Webhook, WebhookFormat};
use events::{
    Actor, AggregateKind, AggregateRef, CommandRecord, Refusal, RefusalKind, Request, SubscriptionId,
    Timestamp,
};
use store::{Basis, Origin, Policy};

use crate::cursors::{Progress, group_of};
use crate::deliverer::Deliverer;
use crate::driver::SERVICE;
use crate::model::{Given, Subscription, WantedWay};
use crate::signature::{Secret, WebhookUrl};

/// Serves every request until the guards are dropped.
pub(crate) async fn serve(relay: &Arc<Deliverer>) -> anyhow::Result<Vec<Serving>> {
    let mut requests = Dispatcher::new(&*relay.deps.bus, Arc::clone(relay));
    requests.answer(Deliverer::create).await?;
    requests.answer(Deliverer::list).await?;
    requests.answer(Deliverer::show).await?;
    requests.answer(Deliverer::delete).await?;
    requests.answer(Deliverer::replay).await?;
    requests.answer(Deliverer::pause).await?;
    requests.answer(Deliverer::resume).await?;
    requests.answer(Deliverer::rotate).await?;
    requests.answer(Deliverer::letters).await?;
    requests.answer(Deliverer::resend).await?;
    Ok(requests.serving())
}

impl Service for Deliverer {
    async fn answer<R, F, A>(&self, context: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        self.allowed(context).await?;
        self.fold.answer(attempt).await
    }
}

impl Deliverer {
    async fn create(
        self: Arc<Self>,
        context: RequestContext,
        request: CreateSubscription,
    ) -> Result<NewSubscription, Refusal> {
        let filter = self.filter(&context, &request).await?;
        let from = match request.from.as_deref() {
            Some(text) => parse_from(text)?,
            None => SendFrom::Time(self.now()),
        };
        let id = SubscriptionId::derive(context.organization, &request.name);
        let way = match (request.url.as_deref(), request.nats) {
            (Some(url), false) => WantedWay::Webhook(self.webhook(&context, id, url, request.format).await?),
            (None, true) if request.format.is_none() => {
                self.consumers.check(&filter)?;
                WantedWay::Consumer
            }
            (None, true) => return Err(Refusal::invalid("format", "is for webhooks only")),
            _ => return Err(Refusal::invalid("url", "give either the address of a webhook, or nats")),
        };
        let (organization, name) = (context.organization, request.name.clone());
        let given = Given::Create { organization, name, filter, way, from };
        // What the address has besides the host may be a secret of the receiver.
        let recorded = CreateSubscription { url: None, ..request };
        self.decide(&context, id, &recorded, &given).await?;
        self.wait_for_consumer(id).await;
        self.with_secret(id).await
    }

    /// A webhook that is to be, its address sealed.
    async fn webhook(
        &self,
        context: &RequestContext,
        id: SubscriptionId,
        url: &str,
        format: Option<WebhookFormat>,
    ) -> Result<Webhook, Refusal> {
        if url.len() > LONGEST_URL {
            return Err(Refusal::invalid("url", format!("is longer than {LONGEST_URL} bytes")));
        }
        self.sender.check(url).map_err(|error| Refusal::invalid("url", error))?;
        let seal = WebhookUrl::of(&*self.deps.keys, context.organization).await;
        let sealed = seal.map_err(|error| away(&error))?.seal(&*self.deps.world.random, id, url);
        Ok(Webhook { shown: WebhookUrl::shown(url), sealed, format: format.unwrap_or_default() })
    }

    /// Waits until a subscription's consumer is made, if it has one.
    async fn wait_for_consumer(&self, id: SubscriptionId) {
        let known = self.fold.read(|state| state.subscription(id).cloned());
        if let Some(known) = known.filter(|known| known.consumer().is_some()) {
            self.consumers.wait(id, &known, true).await;
        }
    }

    async fn list(
        self: Arc<Self>,
        context: RequestContext,
        _: ListSubscriptions,
    ) -> Result<SubscriptionList, Refusal> {
        let mut own: Vec<(SubscriptionId, Subscription)> = self.fold.read(|state| {
            let own = state.subscriptions().filter(|(_, known)| known.organization == context.organization);
            own.map(|(id, known)| (id, known.clone())).collect()
        });
        own.sort_by(|(_, left), (_, right)| left.name.cmp(&right.name));
        let ids: Vec<SubscriptionId> = own.iter().map(|(id, _)| *id).collect();
        let progress = self.look_up(group_of(context.organization), &ids).await;
        let mut progress = progress.map_err(|error| away(&error))?;
        let end = self.ends.of(context.organization);
        let mut items = Vec::new();
        for (id, known) in own {
            let consumer = self.consumers.view(id, &known).await?;
            items.push(view((id, known), progress.remove(&id).unwrap_or_default(), consumer, end));
        }
        let now = self.deps.world.clock.monotonic();
        let readers = self.readers.of(context.organization, &self.ends, now);
        Ok(SubscriptionList { items, readers })
    }

    async fn show(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowSubscription,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, known) = self.named(&context, &request.subscription)?;
        self.view(id, known).await
    }

    async fn delete(
        self: Arc<Self>,
        context: RequestContext,
        request: DeleteSubscription,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, known) = self.named(&context, &request.subscription)?;
        let view = self.view(id, known.clone()).await?;
        self.decide(&context, id, &request, &Given::Delete { subscription: id }).await?;
        if known.consumer().is_some() {
            self.consumers.wait(id, &known, false).await;
        }
        Ok(view)
    }

    async fn replay(
        self: Arc<Self>,
        context: RequestContext,
        request: ReplaySubscription,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, _) = self.named(&context, &request.subscription)?;
        let from = request.from.as_deref().map(parse_from).transpose()?;
        self.decide(&context, id, &request, &Given::Replay { subscription: id, from }).await?;
        self.as_it_is_now(&context, id).await
    }

    async fn pause(
        self: Arc<Self>,
        context: RequestContext,
        request: PauseSubscription,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, _) = self.named(&context, &request.subscription)?;
        self.decide(&context, id, &request, &Given::Pause { subscription: id }).await?;
        self.as_it_is_now(&context, id).await
    }

    async fn resume(
        self: Arc<Self>,
        context: RequestContext,
        request: ResumeSubscription,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, _) = self.named(&context, &request.subscription)?;
        self.decide(&context, id, &request, &Given::Resume { subscription: id }).await?;
        self.as_it_is_now(&context, id).await
    }

    /// A subscription that was changed, once its consumer is as it is wanted.
    async fn as_it_is_now(
        &self,
        context: &RequestContext,
        id: SubscriptionId,
    ) -> Result<SubscriptionView, Refusal> {
        self.wait_for_consumer(id).await;
        let (id, known) = self.named(context, &id.to_string())?;
        self.view(id, known).await
    }

    async fn rotate(
        self: Arc<Self>,
        context: RequestContext,
        request: RotateSubscriptionSecret,
    ) -> Result<NewSubscription, Refusal> {
        let (id, _) = self.named(&context, &request.subscription)?;
        let given = Given::Rotate { subscription: id, at: self.now() };
        self.decide(&context, id, &request, &given).await?;
        self.with_secret(id).await
    }

    async fn letters(
        self: Arc<Self>,
        context: RequestContext,
        request: ListDeadLetters,
    ) -> Result<DeadLetterList, Refusal> {
        let (id, known) = self.named(&context, &request.subscription)?;
        let progress = self.progress_of(id, &known).await?;
        Ok(DeadLetterList { items: progress.letters.into(), dropped: progress.dropped })
    }

    async fn resend(
        self: Arc<Self>,
        context: RequestContext,
        request: ResendDeadLetters,
    ) -> Result<SubscriptionView, Refusal> {
        let (id, known) = self.named(&context, &request.subscription)?;
        let given = Given::Resend { subscription: id, sequences: request.sequences.clone() };
        self.decide(&context, id, &request, &given).await?;
        self.view(id, known).await
    }

    /// The subscription of the caller's organization with this name or id.
    fn named(&self, context: &RequestContext, text: &str) -> Result<(SubscriptionId, Subscription), Refusal> {
        let id = text.parse().unwrap_or_else(|_| SubscriptionId::derive(context.organization, text));
        let known = self.fold.read(|state| state.subscription(id).cloned());
        let known = known.filter(|known| known.organization == context.organization);
        known.map(|known| (id, known)).ok_or_else(|| Refusal::not_found("subscription"))
    }

    async fn filter(
        &self,
        context: &RequestContext,
        request: &CreateSubscription,
    ) -> Result<EventFilter, Refusal> {
        let types: Vec<TypePattern> = request.types.clone();
        if types.len() > MOST_PATTERNS {
            return Err(Refusal::invalid("types", format!("names more than {MOST_PATTERNS}")));
        }
        if let Some(useless) = types.iter().find(|types| !types.is_of_use()) {
            let message = format!("no exported event is of {useless}; docs/events.md lists them");
            return Err(Refusal::invalid("types", message));
        }
        let project = match &request.project {
            Some(project) => {
                let question = FindProject { actor: context.actor.clone(), project: Some(project.clone()) };
                let found = ask(&*self.deps.bus, &own_context(context), &question).await?;
                if !found.visible {
                    return Err(Refusal::not_found(format!("project {project}")));
                }
                Some(found.project)
            }
            None => None,
        };
        let environment = request.environment.as_deref();
        let environment =
            environment.map(|text| EventFilter::parse_environment(text, project)).transpose()?;
        if environment.is_some_and(|environment| !self.fold.read(|state| state.has_environment(environment)))
        {
            return Err(Refusal::not_found("environment"));
        }
        Ok(EventFilter { types, project, environment })
    }

    async fn allowed(&self, context: &RequestContext) -> Result<(), Refusal> {
        let (actor, organization) = (context.actor.clone(), context.organization);
        let scope = Scope::Organization(organization);
        let question = Decide { actor, organization, action: Action::ManageSubscriptions, scope };
        let decision = ask(&*self.deps.bus, &own_context(context), &question).await?;
        match (decision.allowed, decision.visible) {
            (true, _) => Ok(()),
            (false, true) => Err(Refusal::new(RefusalKind::Denied, decision.reason)),
            (false, false) => Err(Refusal::not_found("subscription")),
        }
    }

    async fn decide<R: Request>(
        &self,
        context: &RequestContext,
        id: SubscriptionId,
        request: &R,
        given: &Given,
    ) -> Result<(), Refusal> {
        let data = events::encode(request);
        let data = data.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        let aggregate = AggregateRef::new(AggregateKind::Subscription, id);
        let origin = Origin {
            commit: context.idempotency_key,
            actor: context.actor.clone(),
            correlation_id: context.correlation_id,
            causation_id: context.causation_id,
            traceparent: context.traceparent.clone(),
            occurred_at: self.now(),
            command: Some(CommandRecord { name: R::NAME.to_owned(), data, ids: Vec::new() }),
            repeats: Some((context.organization, aggregate)),
        };
        let decided = self.fold.decide(&Policy::REQUEST, &origin, Basis::Newest, given).await?;
        decided.folded.map_err(|error| {
            Refusal::new(RefusalKind::Unavailable, format!("stored, but not readable yet: {error}; retry"))
        })
    }

    async fn with_secret(&self, id: SubscriptionId) -> Result<NewSubscription, Refusal> {
        let known = self.fold.read(|state| state.subscription(id).cloned());
        let known = known.ok_or_else(|| Refusal::not_found("subscription"))?;
        let secret = match known.webhook() {
            Some(_) => {
                let secret = Secret::of(&*self.deps.keys, known.organization, id, known.secret).await;
                Some(secret.map_err(|error| away(&error))?.text())
            }
            None => None,
        };
        Ok(NewSubscription { subscription: self.view(id, known).await?, secret })
    }

    async fn view(&self, id: SubscriptionId, known: Subscription) -> Result<SubscriptionView, Refusal> {
        let progress = self.progress_of(id, &known).await?;
        let consumer = self.consumers.view(id, &known).await?;
        let end = self.ends.of(known.organization);
        Ok(view((id, known), progress, consumer, end))
    }

    async fn progress_of(&self, id: SubscriptionId, known: &Subscription) -> Result<Progress, Refusal> {
        let found = self.look_up(group_of(known.organization), &[id]).await.map_err(|error| away(&error))?;
        Ok(found.into_values().next().unwrap_or_default())
    }
}

/// `consumer` is with when its oldest event was exported, `end` the number of the organization's last exported event.
fn view(
    (id, known): (SubscriptionId, Subscription),
    progress: Progress,
    consumer: Option<(ConsumerView, Option<Timestamp>)>,
    end: Option<u64>,
) -> SubscriptionView {
    let (consumer, oldest) = match consumer {
        Some((consumer, oldest)) => (Some(consumer), oldest),
        None => (None, progress.oldest),
    };
    let behind = match &consumer {
        Some(consumer) => Some(consumer.pending.saturating_add(consumer.unacknowledged)),
        None => progress.behind(end),
    };
    let (state, reason, since, retry_at) = match (&known.paused, progress.parked, progress.failing) {
        _ if known.consumer().is_some() && consumer.is_none() => {
            let reason = "the consumer on NATS is not as it should be yet";
            (SubscriptionState::Retrying, reason.to_owned(), None, None)
        }
        (Some((since, actor)), ..) => {
            (SubscriptionState::Paused, format!("paused by {actor}"), Some(*since), None)
        }
        (None, Some((since, reason)), _) => (SubscriptionState::Parked, reason, Some(since), None),
        (None, None, Some(failing)) => {
            (SubscriptionState::Retrying, failing.reason, Some(failing.since), Some(failing.next))
        }
        (None, None, None) => (SubscriptionState::Active, String::new(), None, None),
    };
    SubscriptionView {
        id,
        url: known.webhook().map(|webhook| webhook.shown.clone()),
        format: known.webhook().map(|webhook| webhook.format),
        name: known.name,
        filter: known.filter,
        consumer,
        created_at: known.created_at,
        state,
        reason,
        since,
        retry_at,
        position: progress.position.map(|position| position.to_string()),
        behind,
        oldest,
        delivered_at: progress.delivered_at,
        dead_letters: u32::try_from(progress.letters.len()).unwrap_or(u32::MAX),
    }
}

fn parse_from(text: &str) -> Result<SendFrom, Refusal> {
    if text == "start" {
        return Ok(SendFrom::Time(Timestamp(0)));
    }
    if let Ok(position) = text.parse::<ExportPosition>() {
        return Ok(SendFrom::Behind(position));
    }
    let time = Timestamp::parse(text).map_err(|_| {
        Refusal::invalid(
            "from",
            "must be a time such as 2026-01-31T12:00:00Z, the position of an event, or start",
        )
    });
    time.map(SendFrom::Time)
}

/// The same request's context, asked by this service itself.
fn own_context(context: &RequestContext) -> RequestContext {
    RequestContext { actor: Actor::service(SERVICE), ..context.clone() }
}

fn away(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}
