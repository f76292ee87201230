//! Performs what [`crate::model`] decides: reads bundles, appends, wakes the gateways, answers requests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, Live, Presence};
use bytes::Bytes;
use chassis::traces;
use events::delivery::{BundleDesired, BundleHeld, DeliveryEvent, PruneEntry, SourceRemoved};
use events::requests::delivery::{DesiredChanged, NextSync};
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, CommitId, CorrelationId, Event, OrganizationId,
    SourceId, SyncId, Timestamp,
};
use store::{AppendError, Blobs, EventLog, NewCommit, Snapshots};
use tokio::sync::watch;
use tracing::Instrument as _;
use world::World;

use crate::bundles::{BundleError, Bundles};
use crate::metrics::Counts;
use crate::model::{Cause, DeliveryState, Verdict, has_pending, next_sync};

/// How long a settled change may take to come back through the fold before the driver looks again by itself.
const FOLD_DEADLINE: Duration = Duration::from_secs(10);

/// Settings of delivery.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Args {}

/// What delivery works with.
#[derive(Clone)]
pub struct Deps {
    /// Clock, ids, tasks.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// Bundles and prune lists.
    pub blobs: Arc<dyn Blobs>,
    /// Snapshots of the fold.
    pub snapshots: Arc<dyn Snapshots>,
    /// The other services.
    pub bus: Arc<dyn Bus>,
    /// Says when this service is ready.
    pub readiness: chassis::Readiness,
    /// The process's metrics.
    pub metrics: chassis::Metrics,
}

/// Runs until shutdown.
///
/// # Errors
/// When the log cannot be read or the bus is away at the start.
pub async fn run(_args: Args, deps: Deps, shutdown: chassis::Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("delivery");
    let fold = store::follow_projection::<DeliveryState>(
        Arc::clone(&deps.log),
        Arc::clone(&deps.snapshots),
        deps.world.clone(),
    );
    let counts = Counts::register(&deps.metrics);
    let driver = Arc::new(Driver { bundles: Bundles::new(Arc::clone(&deps.blobs)), fold, counts, deps });
    let folding = driver.fold.clone().drive({
        let shutdown = shutdown.clone();
        async move { shutdown.requested().await }
    });
    let serving = async {
        driver.fold.caught_up().await?;
        let presence = Presence::join(&driver.deps.bus, &driver.deps.world, "delivery").await?;
        let _serving = crate::handlers::serve(&driver).await?;
        ready.set(true);
        tokio::select! {
            () = shutdown.requested() => Ok(()),
            result = driver.settle_for_ever(presence.live()) => result,
        }
    };
    let folding = async { folding.await.context("delivery cannot read the log") };
    tokio::try_join!(folding, serving).map(|_| ())
}

pub(crate) struct Driver {
    pub(crate) deps: Deps,
    pub(crate) fold: store::Following<DeliveryState>,
    bundles: Bundles,
    counts: Counts,
}

/// A source could not be settled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettleError {
    #[error("bundle cannot be read")]
    Bundle(#[from] BundleError),
    #[error("prune list cannot be stored")]
    Blob(#[from] store::BlobError),
    #[error("event cannot be encoded")]
    Encode(#[from] events::EncodeError),
    #[error("log did not take the decision")]
    Append(#[from] AppendError),
}

impl Driver {
    /// Settles the sources of those agents that belong to this replica.
    async fn settle_for_ever(&self, mut replicas: watch::Receiver<Live>) -> anyhow::Result<()> {
        let mut changes = self.fold.changes();
        let mut count = 0;
        let mut again: Vec<SourceId> = Vec::new();
        loop {
            let touched = self.fold.read(|state| state.touched_since(count));
            count = touched.count;
            let live = replicas.borrow_and_update().clone();
            for agent in touched.agents.into_iter().filter(|agent| live.owns(agent.0.as_bytes())) {
                self.announce(agent).await;
            }
            let mut sources = touched.sources;
            sources.append(&mut again);
            sources.dedup();
            sources.retain(|source| {
                let head = self.fold.read(|state| state.source_head(*source));
                head.is_some_and(|(agent, ..)| live.owns(agent.0.as_bytes()))
            });
            for source in sources {
                if let Err(error) = self.settle(source).await {
                    if !matches!(error, SettleError::Append(AppendError::Conflict { .. })) {
                        self.counts.failures.inc();
                        tracing::error!(%source, error = %chain(&error), "source cannot be settled");
                    }
                    again.push(source);
                }
            }
            self.forget_unused_bundles();
            let pause = if again.is_empty() { Duration::from_secs(3600) } else { Duration::from_secs(1) };
            tokio::select! {
                changed = changes.changed() => changed.context("the fold of delivery ended")?,
                // What was another replica's is looked at from the start: that one may have died before it settled something.
                changed = replicas.changed() => {
                    changed.context("the replicas of delivery are not known any more")?;
                    count = 0;
                }
                () = self.deps.world.clock.sleep(pause) => {}
            }
        }
    }

    /// Does what is to be done about one source, by the state as it is now.
    async fn settle(&self, source: SourceId) -> Result<(), SettleError> {
        let (records, head) = self.fold.read(|state| (state.sync_records(source), state.source_head(source)));
        let Some(head) = head else { return Ok(()) };
        if !records.is_empty() {
            self.append(source, head, records, None).await?;
        }
        let (agent, organization, _) = head;
        let (needed, listed) =
            self.fold.read(|state| (state.bundles_needed(source), state.prune_list_of(source)));
        let contents = self.bundles.contents(organization, &needed).await?;
        let listed = self.bundles.prune_list(organization, listed).await?;
        // Whoever suspends or pins from here on makes this decision lose.
        let (verdict, head) = self.fold.read(|state| {
            (state.verdict(source, &contents, &listed), state.source_head(source).unwrap_or(head))
        });
        let (event, cause) = match verdict {
            Verdict::Nothing => return Ok(()),
            Verdict::Hold { commit, bundle, objects, reason, cause } => {
                let held = BundleHeld { source, agent, commit, bundle, objects, reason };
                (DeliveryEvent::BundleHeld(held), Some(cause))
            }
            Verdict::Deliver { commit, bundle, objects, prune, cause } => {
                let prunes = u32::try_from(prune.len()).unwrap_or(u32::MAX);
                let prune = self.store_prune_list(organization, prune).await?;
                let sync = SyncId(self.deps.world.new_uuid());
                let desired = BundleDesired { source, agent, sync, commit, bundle, objects, prune, prunes };
                (DeliveryEvent::BundleDesired(desired), Some(cause))
            }
            Verdict::Remove { prune } => {
                let sync = (!prune.is_empty()).then(|| SyncId(self.deps.world.new_uuid()));
                let prune = self.store_prune_list(organization, prune).await?;
                (DeliveryEvent::SourceRemoved(SourceRemoved { source, agent, sync, prune }), None)
            }
        };
        self.append(source, head, vec![event], cause).await
    }

    /// What a source's agent is to have next, with its prune list stored.
    pub(crate) async fn next_sync(&self, source: SourceId) -> Result<Option<NextSync>, SettleError> {
        let Some((_, organization, _)) = self.fold.read(|state| state.source_head(source)) else {
            return Ok(None);
        };
        let needed = self.fold.read(|state| match has_pending(state, source) {
            true => state.bundles_needed(source),
            false => Vec::new(),
        });
        let contents = self.bundles.contents(organization, &needed).await?;
        let next = self.fold.read(|state| next_sync(state, source, &contents));
        let Some((mut next, prune)) = next else { return Ok(None) };
        if next.pending.is_some() {
            next.planned.prune = self.store_prune_list(organization, prune).await?;
        }
        Ok(Some(next))
    }

    async fn store_prune_list(
        &self,
        organization: OrganizationId,
        prune: Vec<PruneEntry>,
    ) -> Result<Option<BlobDigest>, SettleError> {
        if prune.is_empty() {
            return Ok(None);
        }
        let content = Bytes::from(events::encode(&prune)?);
        Ok(self.deps.blobs.put(organization, vec![content]).await?.first().copied())
    }

    /// Appends to a source on the version that was looked at, and waits until the state has it too.
    async fn append(
        &self,
        source: SourceId,
        (_, organization, expected): (AgentId, OrganizationId, u64),
        events: Vec<DeliveryEvent>,
        cause: Option<Cause>,
    ) -> Result<(), SettleError> {
        let cause =
            cause.or_else(|| self.fold.read(|state| state.cause_of(source))).unwrap_or_else(|| Cause {
                correlation_id: CorrelationId(self.deps.world.new_uuid()),
                causation_id: None,
                traceparent: None,
            });
        let decided = events.clone();
        let events = store::new_events(&self.deps.world, events.into_iter().map(Event::from))?;
        let span = tracing::info_span!(
            "delivery.decide",
            otel.kind = "consumer",
            %source,
            events = events.iter().map(|event| event.body.event_type.as_str()).collect::<Vec<_>>().join(", "),
        );
        traces::set_parent_or_none(&span, cause.traceparent.as_deref());
        let commit = NewCommit {
            id: CommitId(self.deps.world.new_uuid()),
            organization,
            aggregate: AggregateRef::new(AggregateKind::Source, source),
            expected,
            actor: Actor::service("delivery"),
            correlation_id: cause.correlation_id,
            causation_id: cause.causation_id,
            traceparent: traces::traceparent_of(&span).or(cause.traceparent),
            occurred_at: Timestamp(self.deps.world.clock.now_millis()),
            command: None,
            events,
        };
        let appending = store::append_known(&self.deps.world, &*self.deps.log, commit);
        let appended = appending.instrument(span).await?;
        decided.iter().for_each(|event| self.counts.recorded(event));
        if self.fold.wait_for(&appended.position, FOLD_DEADLINE).await.is_err() {
            tracing::warn!(%source, "fold is slow");
        }
        Ok(())
    }

    async fn announce(&self, agent: AgentId) {
        let revision = self.fold.read(|state| state.revision(agent));
        if let Err(error) = bus::announce(&*self.deps.bus, &DesiredChanged { agent, revision }).await {
            tracing::warn!(%agent, %error, "gateways could not be told of a new desired state");
        }
    }

    fn forget_unused_bundles(&self) {
        let in_use = self.fold.read(DeliveryState::bundles_in_use);
        if self.bundles.kept() > in_use.len() {
            self.bundles.keep_only(&in_use);
        }
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
