//! Performs what [`crate::model`] decides: reads bundles, appends, wakes the gateways, answers requests.

mod environments;
mod sources;

pub(crate) use environments::EnvironmentDriver;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use bus::{Bus, Live, Presence};
use bytes::Bytes;
use chassis::traces;
use events::delivery::{PruneEntry, WantedList, WantedObject};
use events::requests::delivery::{ChangedAgent, DesiredChanged, NextSync};
use events::{
    AgentId, AggregateKind, AggregateRef, BlobDigest, CorrelationId, Event, Grounds, OrganizationId, Refusal,
    RefusalKind, SourceId, SyncId,
};
use serde::Serialize;
use store::{Basis, Blobs, DecideError, Decided, Decides as _, Draft, EventLog, Origin, Policy, Snapshots};
use tokio::sync::watch;
use tracing::{Instrument as _, Span};
use world::World;

use crate::bundles::{BundleError, Bundles};
use crate::environments::Environments;
use crate::metrics::Counts;
use crate::model::{
    BundleContents, Cause, DeliveryState, Given, Next, PruneSummary, Verdict, Wanted, WantedLists, event_of,
    next_sync,
};

/// Under what gateways tell each other, and this service, that they live.
const GATEWAYS: &str = "tunnel-gateway";

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
    let counts = Arc::new(Counts::register(&deps.metrics));
    let bundles = Bundles::new(Arc::clone(&deps.blobs));
    let (log, snapshots) = (Arc::clone(&deps.log), Arc::clone(&deps.snapshots));
    let environments = store::follow_projection::<Environments>(log, snapshots, deps.world.clone());
    let driver = Driver { bundles, fold, environments, counts, deps, gateways: OnceLock::new() };
    let driver = Arc::new(driver);
    let environments = Arc::new(EnvironmentDriver::new(Arc::clone(&driver)));
    let until = || {
        let shutdown = shutdown.clone();
        async move { shutdown.requested().await }
    };
    let folding = driver.fold.clone().drive(until());
    let folding_environments = environments.fold.clone().drive(until());
    let serving = async {
        driver.fold.caught_up().await?;
        environments.fold.caught_up().await?;
        let presence = Presence::join(&driver.deps.bus, &driver.deps.world, "delivery").await?;
        let gateways = Presence::join(&driver.deps.bus, &driver.deps.world, GATEWAYS).await?;
        driver.gateways.get_or_init(|| gateways.live());
        let _serving = crate::handlers::serve(&driver).await?;
        let _serving_environments = crate::handlers::environments::serve(&environments).await?;
        ready.set(true);
        tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            result = driver.settle_sources(presence.live()) => result,
            result = driver.announce_for_ever(presence.live()) => result,
            result = driver.measure_for_ever(presence.live()) => result,
            result = environments.keep_environments(presence.live()) => result,
        }
    };
    let folding = async { folding.await.context("delivery cannot read the log") };
    let folding_environments = async { folding_environments.await.context("delivery cannot read the log") };
    tokio::try_join!(folding, folding_environments, serving).map(|_| ())
}

pub(crate) struct Driver {
    pub(crate) deps: Deps,
    pub(crate) fold: store::Following<DeliveryState>,
    /// The environments that sources deploy into.
    pub(crate) environments: store::Following<Environments>,
    pub(crate) bundles: Bundles,
    pub(crate) counts: Arc<Counts>,
    /// Which gateways live: a tunnel of one that died is none any more, and nobody says so in the log.
    pub(crate) gateways: OnceLock<watch::Receiver<Live>>,
}

/// A source could not be settled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettleError {
    #[error("bundle cannot be read")]
    Bundle(#[from] BundleError),
    #[error("other bundles are needed now than were read")]
    Outdated,
    #[error("a source that holds objects of this one is about to drop them")]
    Postponed,
    #[error("list of objects cannot be stored")]
    Blob(#[from] store::BlobError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("list of objects cannot be encoded")]
    Encode(#[from] events::EncodeError),
    #[error("decision is not recorded")]
    Decide(#[from] DecideError),
}

impl SettleError {
    /// Whether it may succeed a moment later.
    fn is_transient(&self) -> bool {
        match self {
            Self::Outdated | Self::Postponed | Self::Blob(_) => true,
            Self::Bundle(BundleError::Blob { .. }) => true,
            Self::Bundle(BundleError::Malformed { .. }) | Self::Encode(_) => false,
            Self::Refused(refusal) => refusal.kind == RefusalKind::Unavailable,
            Self::Decide(error) => error.is_transient(),
        }
    }
}

/// Contents of bundles by address.
type Contents = BTreeMap<BlobDigest, Arc<dyn BundleContents>>;

/// Blobs that a decision on a source looks at.
struct Blobbed {
    contents: Contents,
    /// The source's present prune list.
    listed: Vec<PruneEntry>,
    lists: WantedLists,
}

/// What is to be done about a source, and what that was decided on.
struct Settling {
    verdict: Verdict,
    surplus: Option<PruneSummary>,
    /// What other sources hold of the bundle, and whether the agent was told so.
    wanted: Vec<WantedObject>,
    wanted_changed: bool,
    /// Without what was given: that is known once the prune list is stored.
    grounds: Grounds,
    expected: u64,
}

impl Driver {
    /// Does what is to be done about one source, by the state as it is now; nothing while one of those to come is about to drop what
    /// this one wants.
    async fn settle(&self, source: SourceId, coming: &[SourceId]) -> Result<(), SettleError> {
        let Some((agent, organization, _)) = self.fold.read(|state| state.source_head(source)) else {
            return Ok(());
        };
        self.record_syncs(source).await?;
        let (needed, listed, lists) = self.fold.read(|state| {
            (state.bundles_needed(source), state.prune_list_of(source), state.wanted_lists_needed(source))
        });
        let contents = self.bundles.contents(organization, &needed).await?;
        let listed = self.bundles.prune_list(organization, listed).await?;
        let lists = self.bundles.wanted_lists(organization, &lists).await?;
        // A suspension or a pin from here on makes this decision lose.
        let blobs = Blobbed { contents, listed, lists };
        let Some(settling) = self.settling(source, &blobs, coming)? else { return Ok(()) };
        let Settling { verdict, surplus, wanted, wanted_changed, mut grounds, expected } = settling;
        let list = match &verdict {
            Verdict::Deliver { prune, .. } | Verdict::Remove { prune } => prune.clone(),
            Verdict::Hold { .. } | Verdict::Nothing => Vec::new(),
        };
        let list = self.store_list(organization, &list).await?;
        let wanted = match &verdict {
            Verdict::Deliver { .. } => self.store_wanted(organization, &wanted).await?,
            _ => None,
        };
        let sync = SyncId(self.deps.world.new_uuid());
        let prunes = surplus.map_or(0, |surplus| surplus.objects);
        let wanted = Wanted { list: wanted, changed: wanted_changed };
        let event = event_of(verdict, (source, agent), (prunes, list), sync, wanted.list.clone());
        let Some((event, cause)) = event else { return Ok(()) };
        grounds.given = events::encode(&Given::Settle { source, surplus, list, sync, wanted })?;
        let aggregate = AggregateRef::new(AggregateKind::Source, source);
        let draft = Draft { organization, aggregate, expected, events: vec![event.into()] };
        let (origin, span) = self.origin(source, cause, &draft.events);
        let recording = self.fold.record(&Policy::BACKGROUND, &origin, draft, grounds);
        self.count(source, &recording.instrument(span).await?);
        Ok(())
    }

    /// Records that a source's sync began or ended, where the log does not have it yet.
    async fn record_syncs(&self, source: SourceId) -> Result<(), SettleError> {
        let given = Given::RecordSyncs { source };
        let events = self.fold.read(|state| state.sync_records(source));
        if events.is_empty() {
            return Ok(());
        }
        let events: Vec<Event> = events.into_iter().map(Event::from).collect();
        let (origin, span) = self.origin(source, None, &events);
        let deciding = self.fold.decide(&Policy::BACKGROUND, &origin, Basis::Newest, &given);
        self.count(source, &deciding.instrument(span).await?);
        Ok(())
    }

    /// What is to be done about a source, with the state that says so.
    fn settling(
        &self,
        source: SourceId,
        blobs: &Blobbed,
        coming: &[SourceId],
    ) -> Result<Option<Settling>, SettleError> {
        let Blobbed { contents, listed, lists } = blobs;
        self.fold.read_with_heads(|state, heads| {
            // Nothing can be said without them, and nobody says so again: what came to another source touches that one alone.
            if state.bundles_needed(source).iter().any(|digest| !contents.contains_key(digest))
                || state.wanted_lists_needed(source).iter().any(|digest| !lists.contains_key(digest))
            {
                return Err(SettleError::Outdated);
            }
            let wanted = state.wanted(source, contents, lists).ok_or(SettleError::Outdated)?;
            let wanted_changed = state.wanted_differs(source, &wanted, lists);
            let about = Wanted { list: None, changed: wanted_changed };
            let (verdict, surplus) = state.verdict_with_surplus(source, contents, listed, &about);
            let Some((_, organization, expected)) = state.source_head(source) else { return Ok(None) };
            if verdict == Verdict::Nothing {
                return Ok(None);
            }
            let dropping = state.about_to_drop(&wanted, contents);
            if coming.iter().any(|other| dropping.contains(other)) {
                return Err(SettleError::Postponed);
            }
            let aggregate = AggregateRef::new(AggregateKind::Source, source);
            let looking = Given::RecordSyncs { source };
            let (read_set, relies_on) = (state.read_set(&looking), || state.relies_on(&looking));
            let grounds = heads.grounds(&(), read_set, organization, &aggregate, relies_on)?;
            Ok(Some(Settling { verdict, surplus, wanted, wanted_changed, grounds, expected }))
        })
    }

    /// What a source's agent is to have next, with its prune list stored.
    pub(crate) async fn next_sync(&self, source: SourceId) -> Result<Option<NextSync>, SettleError> {
        let Some((_, organization, _)) = self.fold.read(|state| state.source_head(source)) else {
            return Ok(None);
        };
        let (needed, lists) =
            self.fold.read(|state| (state.bundles_needed(source), state.wanted_lists_needed(source)));
        let contents = self.bundles.contents(organization, &needed).await?;
        let lists = self.bundles.wanted_lists(organization, &lists).await?;
        let next = self.fold.read(|state| next_sync(state, source, &contents, &lists));
        let Some(Next { mut next, lists }) = next else { return Ok(None) };
        if let Some((prune, wanted)) = lists {
            next.planned.prune = self.store_list(organization, &prune).await?;
            next.planned.wanted = self.store_list(organization, &wanted).await?;
        }
        Ok(Some(next))
    }

    /// Stores a list that grows with a source; an empty one is none.
    async fn store_list<T: Serialize + Sync>(
        &self,
        organization: OrganizationId,
        list: &[T],
    ) -> Result<Option<BlobDigest>, SettleError> {
        if list.is_empty() {
            return Ok(None);
        }
        let content = Bytes::from(events::encode(&list)?);
        Ok(self.deps.blobs.put(organization, vec![content]).await?.first().copied())
    }

    async fn store_wanted(
        &self,
        organization: OrganizationId,
        wanted: &[WantedObject],
    ) -> Result<Option<WantedList>, SettleError> {
        let Some(list) = self.store_list(organization, wanted).await? else { return Ok(None) };
        let objects = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let first = wanted.iter().take(WantedObject::FIRST).cloned().collect();
        Ok(Some(WantedList { list, objects, first }))
    }

    /// What led to a decision on a source, with the span that it is recorded in.
    fn origin(&self, source: SourceId, cause: Option<Cause>, events: &[Event]) -> (Origin, Span) {
        let world = &self.deps.world;
        let cause = cause.or_else(|| self.fold.read(|state| state.cause_of(source))).unwrap_or_else(|| {
            Cause { correlation_id: CorrelationId(world.new_uuid()), causation_id: None, traceparent: None }
        });
        let span = tracing::info_span!(
            "delivery.decide",
            otel.kind = "consumer",
            %source,
            events = events.iter().map(Event::event_type).collect::<Vec<_>>().join(", "),
        );
        traces::set_parent_or_none(&span, cause.traceparent.as_deref());
        let origin = Origin {
            causation_id: cause.causation_id,
            traceparent: traces::traceparent_of(&span).or(cause.traceparent),
            ..Origin::of_service(world, "delivery", cause.correlation_id)
        };
        (origin, span)
    }

    fn count(&self, source: SourceId, decided: &Decided) {
        for event in &decided.events {
            if let Event::Delivery(event) = event {
                self.counts.recorded(event);
            }
        }
        if decided.folded.is_err() {
            tracing::warn!(%source, "fold is slow");
        }
    }

    async fn announce(&self, agents: &[AgentId]) {
        let changed =
            |state: &DeliveryState, agent: AgentId| ChangedAgent { agent, revision: state.revision(agent) };
        let agents = self.fold.read(|state| agents.iter().map(|agent| changed(state, *agent)).collect());
        if let Err(error) = bus::announce(&*self.deps.bus, &DesiredChanged { agents }).await {
            tracing::warn!(%error, "gateways were not notified of new desired states");
        }
    }

    /// How many are kept after that.
    fn forget_unused_bundles(&self) -> usize {
        let in_use = self.fold.read(DeliveryState::bundles_in_use);
        if self.bundles.kept() > in_use.len() {
            self.bundles.keep_only(&in_use);
        }
        self.bundles.kept()
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

#[cfg(test)]
mod tests;
