//! Reads configuration files when there is a reason, and records what came of it.

mod definitions;
mod read;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, BusError, Dispatcher, Live, Presence, Received, Service, Serving, Subscription};
use events::Notice;
use events::configuration::GitReference;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, Decide};
use events::requests::configuration::{ConfigurationView, ShowConfiguration};
use events::requests::repository::RepositoryAdvanced;
use events::subject::Subject;
use events::{
    Actor, AgentId, CommitId, CorrelationId, OrganizationId, Refusal, RefusalKind, Request, Timestamp,
};
use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use store::{EventLog, Following, Snapshots};
use tokio::sync::watch;
use world::World;

use crate::args::Args;
use crate::model::State;
use read::Read;
use schedule::Schedule;

/// The name under which this service acts.
const SERVICE: &str = "config-fetcher";
/// Milliseconds that another service has to answer.
const ASK_DEADLINE: u32 = 20_000;
/// Files that are read at once.
const READS: usize = 16;

/// What config-fetcher works with.
#[derive(Clone)]
pub struct Deps {
    /// Clock and ids.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// Snapshots of the fold.
    pub snapshots: Arc<dyn Snapshots>,
    /// The other services.
    pub bus: Arc<dyn Bus>,
    /// Says when this service is ready.
    pub readiness: chassis::Readiness,
}

/// Runs until shutdown.
///
/// # Errors
/// When the log cannot be read or the bus is away at the start.
pub async fn run(args: Args, deps: Deps, shutdown: chassis::Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("config-fetcher");
    let fold = store::follow_projection::<State>(
        Arc::clone(&deps.log),
        Arc::clone(&deps.snapshots),
        deps.world.clone(),
    );
    let ended = shutdown.clone();
    let folding = fold.clone().drive(async move { ended.requested().await });
    let fetcher = Arc::new(Fetcher { args, fold, deps });
    let fetching = async {
        fetcher.fold.caught_up().await?;
        let presence = Presence::join(&fetcher.deps.bus, &fetcher.deps.world, SERVICE).await?;
        let advanced = fetcher.deps.bus.subscribe(&Subject::notice(RepositoryAdvanced::NAME)).await?;
        let _serving = fetcher.serve().await?;
        ready.set(true);
        tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            result = fetcher.fetch_for_ever(advanced, presence.live()) => result,
        }
    };
    let folding = async { folding.await.context("config-fetcher cannot follow the log") };
    tokio::try_join!(folding, fetching).map(|_| ())
}

/// Why a file is read: the chain that it belongs to.
#[derive(Debug, Clone)]
struct Cause {
    correlation_id: CorrelationId,
    traceparent: Option<String>,
}

struct Fetcher {
    args: Args,
    deps: Deps,
    fold: Following<State>,
}

impl Fetcher {
    fn now(&self) -> Timestamp {
        Timestamp(self.deps.world.clock.now_millis())
    }

    fn context(&self, organization: OrganizationId, cause: &Cause) -> RequestContext {
        RequestContext {
            actor: Actor::service(SERVICE),
            organization,
            correlation_id: cause.correlation_id,
            causation_id: None,
            traceparent: cause.traceparent.clone(),
            idempotency_key: CommitId(self.deps.world.new_uuid()),
            deadline_millis: ASK_DEADLINE,
        }
    }

    async fn fetch_for_ever(
        self: &Arc<Self>,
        mut advanced: Subscription,
        mut replicas: watch::Receiver<Live>,
    ) -> anyhow::Result<()> {
        let mut reads: FuturesUnordered<BoxFuture<'static, (AgentId, Read)>> = FuturesUnordered::new();
        let mut changes = self.fold.changes();
        let mut schedule = Schedule::new(Duration::from_secs(u64::from(self.args.configuration_interval)));
        loop {
            let now = self.deps.world.clock.monotonic();
            let live = self
                .fold
                .read(|state| schedule.needs(state.revision(), now).then(|| state.live_agents(self.now())));
            if let Some(mut live) = live {
                let replicas = replicas.borrow_and_update();
                live.retain(|agent| replicas.owns(agent.0.as_bytes()));
                schedule.keep(&live, now);
            }
            while reads.len() < READS
                && let Some(due) = schedule.take_due(now)
            {
                let fetcher = Arc::clone(self);
                reads.push(async move { (due.agent, fetcher.read(due).await) }.boxed());
            }
            let pause = if reads.len() < READS { schedule.until_next(now) } else { Duration::from_secs(60) };
            tokio::select! {
                biased;
                Some((agent, read)) = reads.next(), if !reads.is_empty() => {
                    schedule.finished(agent, read, self.deps.world.clock.monotonic(), &*self.deps.world.random);
                }
                // What was another replica's is read at once: that one may have died with a reason to.
                changed = replicas.changed() => {
                    changed.context("the replicas of config-fetcher are no longer known")?;
                    schedule.look_again();
                }
                changed = changes.changed() => changed.context("the fold of config-fetcher ended")?,
                notice = advanced.receiver.recv() => {
                    self.advanced(&mut schedule, notice.context("the bus ended the notices of new commits")?);
                }
                () = self.deps.world.clock.sleep(pause) => {}
            }
        }
    }

    fn advanced(&self, schedule: &mut Schedule, heard: Received) {
        let Received::Message(bytes) = heard else {
            schedule.all_due();
            return;
        };
        match events::decode::<RepositoryAdvanced>(&bytes) {
            Ok(advanced) if advanced.reference == GitReference::Default => {
                let concerned = |agent: &AgentId| {
                    self.fold.read(|state| {
                        state.agent(*agent).is_some_and(|agent| agent.project == advanced.project)
                    })
                };
                let RepositoryAdvanced { correlation_id, traceparent, .. } = &advanced;
                let cause = Cause { correlation_id: *correlation_id, traceparent: traceparent.clone() };
                let (project, now) = (advanced.project, self.deps.world.clock.monotonic());
                schedule.advanced(project, advanced.configuration.clone(), concerned, &cause, now);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "notice of a new commit cannot be read"),
        }
    }

    async fn serve(self: &Arc<Self>) -> Result<Vec<Serving>, BusError> {
        let mut requests = Dispatcher::new(&*self.deps.bus, Arc::clone(self));
        requests
            .answer(|fetcher: Arc<Self>, context, request: ShowConfiguration| async move {
                fetcher.show(&context, request.agent).await
            })
            .await?;
        Ok(requests.serving())
    }

    async fn show(&self, context: &RequestContext, agent: AgentId) -> Result<ConfigurationView, Refusal> {
        let not_found = || Refusal::not_found("the agent");
        let view = self.fold.read(|state| {
            state.agent(agent).filter(|known| known.organization == context.organization)?;
            state.view(agent)
        });
        let view = view.ok_or_else(not_found)?;
        if !matches!(context.actor, Actor::Service(_)) {
            let decide = Decide {
                actor: context.actor.clone(),
                organization: context.organization,
                action: Action::ReadAgent,
                scope: Scope::Agent(agent),
            };
            let cause =
                Cause { correlation_id: context.correlation_id, traceparent: context.traceparent.clone() };
            let asked = self.context(context.organization, &cause);
            let decision = bus::ask(&*self.deps.bus, &asked, &decide).await?;
            if !decision.visible {
                return Err(not_found());
            }
            if !decision.allowed {
                return Err(Refusal::new(RefusalKind::Denied, decision.reason));
            }
        }
        Ok(view)
    }
}

impl Service for Fetcher {
    async fn answer<R, F, A>(&self, _: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        self.fold.answer(attempt).await
    }
}
