//! What happens around the decisions on environments: syncs that are deployments, and what ends at its time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::Live;
use chassis::traces;
use events::{CorrelationId, Event, SourceId, Timestamp};
use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use store::{Basis, DecideError, Decided, Following, Origin, Policy};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{Deps, Driver};
use crate::environments::{Due, Environments, Given};
use crate::metrics::Counts;

/// Decisions that are made at once: the log takes many together at the price of one.
const AT_ONCE: usize = 64;
/// So long after a decision that did not come into the log, all is looked at again.
const AGAIN: Duration = Duration::from_secs(2);
/// While nothing happens, the clock is looked at so often.
const QUIET: Duration = Duration::from_secs(60);

/// Environments and deployments, and what they are decided with.
pub(crate) struct EnvironmentDriver {
    pub(crate) deps: Deps,
    pub(crate) fold: Following<Environments>,
    /// The sources that deploy into environments.
    pub(crate) sources: Arc<Driver>,
    counts: Arc<Counts>,
}

/// One thing that is to be done by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    FollowSync(SourceId),
    Expire(Due),
}

impl EnvironmentDriver {
    pub(crate) fn new(sources: Arc<Driver>) -> Self {
        let (deps, counts) = (sources.deps.clone(), Arc::clone(&sources.counts));
        Self { deps, fold: sources.environments.clone(), sources, counts }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.deps.world.clock.now_millis())
    }

    /// Does what is to be done by itself, of what belongs to this replica: an agent's syncs, a project's times.
    pub(crate) async fn keep_environments(&self, mut replicas: watch::Receiver<Live>) -> anyhow::Result<()> {
        let mut changes = self.fold.changes();
        loop {
            changes.borrow_and_update();
            let live = replicas.borrow_and_update().clone();
            let now = self.now();
            let tasks = self.tasks(&live, now);
            let failed = self.perform_all(&tasks, now).await;
            let pause = if failed { AGAIN } else { self.pause() };
            // What was done made something else to do, perhaps.
            if !tasks.is_empty() && !failed {
                continue;
            }
            tokio::select! {
                biased;
                changed = replicas.changed() => changed.context("the replicas of delivery are no longer known")?,
                changed = changes.changed() => changed.context("the fold of environments ended")?,
                () = self.deps.world.clock.sleep(pause) => {}
            }
        }
    }

    /// Whether one of them is not done.
    async fn perform_all(&self, tasks: &[Task], now: Timestamp) -> bool {
        let mut failed = false;
        for some in tasks.chunks(AT_ONCE) {
            let mut performing = FuturesUnordered::new();
            for task in some {
                performing.push(self.perform(*task, now).boxed());
            }
            while let Some(done) = performing.next().await {
                failed |= !done;
            }
        }
        failed
    }

    fn tasks(&self, live: &Live, now: Timestamp) -> Vec<Task> {
        self.fold.read(|state| {
            let syncs = state.undone().filter(|source| {
                state.agent_of_source(*source).is_some_and(|(_, agent)| live.owns(agent.0.as_bytes()))
            });
            let due = state.due(now).filter(|due| {
                let environment = match due {
                    Due::Environment(environment) => Some(*environment),
                    Due::Deployment(deployment) => state.deployed_by(*deployment).map(|(of, _)| of),
                };
                let project = environment.and_then(|id| state.owner_of(id)).map(|(_, project)| project);
                project.is_some_and(|project| live.owns(project.0.as_bytes()))
            });
            syncs.map(Task::FollowSync).chain(due.map(Task::Expire)).collect()
        })
    }

    /// How long until something is due.
    fn pause(&self) -> Duration {
        let now = self.now();
        let next = self.fold.read(|state| state.next_due(now));
        let millis = next.and_then(|next| u64::try_from(next.millis_since(now)).ok());
        millis.map_or(QUIET, |millis| Duration::from_millis(millis.saturating_add(1)).min(QUIET))
    }

    /// Whether it is done.
    async fn perform(&self, task: Task, now: Timestamp) -> bool {
        let (given, origin, span) = match task {
            Task::FollowSync(source) => {
                let (origin, span) = self.origin_of_sync(source);
                (Given::FollowSync { source, at: now }, origin, span)
            }
            Task::Expire(due) => {
                let correlation_id = CorrelationId(self.deps.world.new_uuid());
                let origin = Origin::of_service(&self.deps.world, "delivery", correlation_id);
                (Given::Expire { due, at: now }, origin, tracing::info_span!("delivery.expire"))
            }
        };
        let deciding = self.fold.decide(&Policy::BACKGROUND, &origin, Basis::Newest, &given);
        match deciding.instrument(span).await {
            Ok(decided) => {
                self.count(&decided);
                decided.folded.is_ok()
            }
            Err(DecideError::Overtaken { .. }) => false,
            Err(error) => {
                self.counts.failures.inc();
                tracing::error!(?task, error = %super::chain(&error), "environment cannot be kept");
                false
            }
        }
    }

    fn origin_of_sync(&self, source: SourceId) -> (Origin, tracing::Span) {
        let world = &self.deps.world;
        let cause = self.fold.read(|state| state.cause_of(source));
        let span = tracing::info_span!("delivery.deployment", otel.kind = "consumer", %source);
        let traceparent = cause.as_ref().and_then(|cause| cause.traceparent.clone());
        traces::set_parent_or_none(&span, traceparent.as_deref());
        let correlation_id = cause.as_ref().map(|cause| cause.correlation_id);
        let correlation_id = correlation_id.unwrap_or_else(|| CorrelationId(world.new_uuid()));
        let origin = Origin {
            causation_id: cause.map(|cause| cause.causation_id),
            traceparent: traces::traceparent_of(&span).or(traceparent),
            ..Origin::of_service(world, "delivery", correlation_id)
        };
        (origin, span)
    }

    fn count(&self, decided: &Decided) {
        for event in &decided.events {
            if let Event::Environment(event) = event {
                self.counts.events.with([event.event_type()]).inc();
            }
        }
    }
}
