//! Exports: follows the log once, and appends what it says as CloudEvents.
//!
//! One replica exports. It begins where the checkpoint says, reads what was exported behind it, and leaves out what is there. A
//! checkpoint is saved only after the exports up to it were read back and were found to count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use bus::Live;
use events::export::{Counted, ExportLane, began_before, is_exported};
use events::position::Shard;
use events::subject::{partition_of_organization, partition_of_writer};
use events::{CloudEvent, OrganizationId, Position, Stream, Timestamp};
use serde::{Deserialize, Serialize};
use store::{
    AppendError, Backoff, Followed, Following, NewBatch, ReadFilter, Record, Snapshot, SnapshotError,
    Snapshots,
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::driver::Deps;
use crate::metrics::Counts;
use crate::model::State;

/// The name of the exporter's checkpoint among the snapshots.
pub(crate) const CHECKPOINT: &str = "event-relay-exports";
/// The key by which the replicas choose the one that exports.
const EXPORTS: &[u8] = b"exports";
/// What is exported.
const STREAMS: [Stream; 2] = [Stream::Decisions, Stream::Observations];
/// Between two checkpoints while there is something to save.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);
/// How much of the past the first export of a log has.
const FIRST_PAST_MILLIS: i64 = 3_600_000;
/// How long the fold may take to know what an event is about.
const FOLD_WITHIN: Duration = Duration::from_secs(10);
/// Pauses while the log does not take an event, or cannot be read.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(2) };
const PAUSE: Duration = Duration::from_secs(1);

/// Exports while it is this replica's turn.
pub(crate) struct Exporter {
    pub(crate) fold: Following<State>,
    pub(crate) deps: Deps,
    pub(crate) counts: Counts,
}

/// What is kept of the exports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Checkpoint {
    /// What was exported.
    source: Position,
    /// The exports that were read back.
    exports: Position,
    /// The organizations' lanes at that position.
    lanes: BTreeMap<OrganizationId, ExportLane>,
}

/// One turn.
struct Turn<'a> {
    exporter: &'a Exporter,
    run: Uuid,
    confirmed: Checkpoint,
    /// The lanes with what this turn appended.
    lanes: BTreeMap<OrganizationId, ExportLane>,
    /// Ids of events that are exported already.
    there: BTreeSet<String>,
    /// Everything up to here is exported.
    source: Position,
}

impl Exporter {
    pub(crate) async fn export_for_ever(&self, mut live: watch::Receiver<Live>) -> anyhow::Result<()> {
        let mut others = live.clone();
        loop {
            live.wait_for(|live| live.owns(EXPORTS)).await.context("replicas are no longer known")?;
            let turn = tokio::select! {
                biased;
                lost = others.wait_for(|live| !live.owns(EXPORTS)) => {
                    lost.context("replicas are no longer known")?;
                    continue;
                }
                turn = self.turn() => turn,
            };
            if let Err(error) = turn {
                tracing::warn!(error = format!("{error:#}"), "exports are begun again");
            }
            self.counts.restarts.inc();
            self.deps.world.clock.sleep(PAUSE).await;
        }
    }

    /// Exports until another replica does, or the log fails.
    async fn turn(&self) -> anyhow::Result<()> {
        let mut turn = Turn::begin(self).await?;
        let filter = ReadFilter::streams(&STREAMS);
        let mut records = self.deps.log.follow(&turn.source, &filter).await?;
        let clock = &self.deps.world.clock;
        let mut due = clock.monotonic() + CHECKPOINT_EVERY;
        loop {
            let wait = due.saturating_sub(clock.monotonic());
            tokio::select! {
                biased;
                () = clock.sleep(wait) => {
                    turn.save().await?;
                    due = clock.monotonic() + CHECKPOINT_EVERY;
                }
                next = records.recv() => match next.context("the log ended")?? {
                    Followed::Record(record) => turn.record(&record).await?,
                    Followed::CaughtUp(position) | Followed::Passed(position) => turn.source.merge(&position),
                },
            }
        }
    }

    /// Where the exports of a log without a checkpoint go on: behind the last record of each shard that was exported.
    async fn source_behind(&self, last: &BTreeMap<Shard, Timestamp>) -> anyhow::Result<Position> {
        let log = &self.deps.log;
        let first = Timestamp(self.deps.world.clock.now_millis()).plus_millis(-FIRST_PAST_MILLIS);
        let newest = last.values().max().copied();
        let mut source = log.position_at(&STREAMS, newest.map_or(first, |newest| newest.min(first))).await?;
        for (shard, time) in last {
            let there = log.position_at(&[shard.0], time.plus_millis(-1)).await?;
            source.0.insert(*shard, there.sequence(*shard));
        }
        Ok(source)
    }
}

/// The last checkpoint; `None` if there is none that can be read.
async fn checkpoint(snapshots: &dyn Snapshots) -> Result<Option<Checkpoint>, SnapshotError> {
    let loaded = snapshots.load(CHECKPOINT).await?;
    Ok(loaded.and_then(|snapshot| events::decode(&snapshot.state).ok()))
}

/// The exports that were read back by the last checkpoint, and the organizations' lanes there.
pub(crate) async fn read_by_now(
    snapshots: &dyn Snapshots,
) -> Result<(Position, BTreeMap<OrganizationId, ExportLane>), SnapshotError> {
    let Checkpoint { exports, lanes, .. } = checkpoint(snapshots).await?.unwrap_or_default();
    Ok((exports, lanes))
}

impl<'a> Turn<'a> {
    async fn begin(exporter: &'a Exporter) -> anyhow::Result<Self> {
        let loaded = checkpoint(&*exporter.deps.snapshots).await?;
        let is_first = loaded.is_none();
        let confirmed = loaded.unwrap_or_default();
        let source = confirmed.source.clone();
        let run = exporter.deps.world.new_uuid();
        let (lanes, there) = (BTreeMap::new(), BTreeSet::new());
        let mut turn = Self { exporter, run, confirmed, lanes, there, source };
        let events = turn.read_back(None).await?;
        if is_first {
            turn.begin_without_checkpoint(&events).await?;
        } else {
            turn.there = events.into_iter().map(|event| event.id).collect();
        }
        turn.lanes = turn.confirmed.lanes.clone();
        tracing::info!(run = %turn.run, from = %turn.source, "exports begin");
        Ok(turn)
    }

    async fn begin_without_checkpoint(&mut self, events: &[CloudEvent]) -> anyhow::Result<()> {
        let partitions = self.exporter.deps.log.partitions();
        let mut last: BTreeMap<Shard, Timestamp> = BTreeMap::new();
        for event in events {
            let newest = last.entry(shard_of(event, partitions)).or_insert(event.recordedat);
            *newest = (*newest).max(event.recordedat);
        }
        let is_recent = |event: &&CloudEvent| {
            last.get(&shard_of(event, partitions)).is_some_and(|newest| event.recordedat >= *newest)
        };
        self.there = events.iter().filter(is_recent).map(|event| event.id.clone()).collect();
        self.source = self.exporter.source_behind(&last).await?;
        Ok(())
    }

    /// Reads the exports behind those that were read; the events that count.
    async fn read_back(&mut self, only: Option<OrganizationId>) -> anyhow::Result<Vec<CloudEvent>> {
        let filter = ReadFilter { organization: only, ..ReadFilter::streams(&[Stream::Exports]) };
        let mut records = self.exporter.deps.log.read(&self.confirmed.exports, &filter).await?;
        let mut events = Vec::new();
        let mut lanes = self.confirmed.lanes.clone();
        while let Some(record) = records.recv().await {
            let record = record?;
            let Ok(event) = CloudEvent::from_json(&record.bytes) else { continue };
            if lanes.entry(record.organization).or_default().take(&event) == Counted::Event {
                events.push(event);
            }
            if only.is_none() {
                self.confirmed.exports.advance(record.shard, record.sequence);
            }
        }
        match only {
            // What is read of one organization says nothing of the others in its partition.
            Some(organization) => {
                if let Some(lane) = lanes.get(&organization) {
                    self.lanes.insert(organization, *lane);
                }
            }
            None => self.confirmed.lanes = lanes,
        }
        Ok(events)
    }

    async fn record(&mut self, record: &Record) -> anyhow::Result<()> {
        let mut events = record.cloud_events();
        events.retain(|event| is_exported(&event.event_type));
        if !events.is_empty() {
            let (stream, partition) = record.shard;
            let position = Position::of(stream, partition, record.sequence);
            let folded = self.exporter.fold.wait_for(&position, FOLD_WITHIN).await;
            folded.context("what events are about is not known")?;
        }
        for event in events {
            // Observations may be in the log twice.
            if !self.there.remove(&event.id) {
                self.event(record.organization, event).await?;
            }
        }
        self.source.advance(record.shard, record.sequence);
        Ok(())
    }

    async fn event(&mut self, organization: OrganizationId, mut event: CloudEvent) -> anyhow::Result<()> {
        if self.lanes.get(&organization).and_then(|lane| lane.run) != Some(self.run) {
            self.begin_lane(organization, &event).await?;
            if self.there.remove(&event.id) {
                return Ok(());
            }
        }
        self.exporter.fold.read(|state| state.place(&mut event));
        let recorded = event.recordedat;
        let sequence = self.lanes.get(&organization).map_or(0, |lane| lane.sequence).saturating_add(1);
        self.append(organization, event, sequence).await?;
        if let Some(lane) = self.lanes.get_mut(&organization) {
            lane.sequence = sequence;
        }
        let counts = &self.exporter.counts;
        counts.exported.inc();
        let lag = self.exporter.deps.world.clock.now_millis().saturating_sub(recorded.0);
        counts.export_lag_seconds.set(lag.max(0) / 1000);
        Ok(())
    }

    /// Says that from now on this run exports the organization's events; what others exported before that counts.
    async fn begin_lane(&mut self, organization: OrganizationId, first: &CloudEvent) -> anyhow::Result<()> {
        let sequence = self.lanes.get(&organization).map_or(0, |lane| lane.sequence);
        let began = began_before(first, self.exporter.deps.world.new_uuid().to_string());
        self.append(organization, began, sequence).await?;
        let events = self.read_back(Some(organization)).await?;
        self.there.extend(events.into_iter().map(|event| event.id));
        let run = self.lanes.get(&organization).and_then(|lane| lane.run);
        anyhow::ensure!(run == Some(self.run), "another replica exports");
        Ok(())
    }

    async fn append(
        &self,
        organization: OrganizationId,
        event: CloudEvent,
        sequence: u64,
    ) -> anyhow::Result<()> {
        let Deps { log, world, .. } = &self.exporter.deps;
        let event = CloudEvent {
            exportlog: Some(log.id()),
            exportsequence: Some(sequence),
            exportrun: Some(self.run),
            ..event
        };
        let mut record = NewBatch {
            stream: Stream::Exports,
            organization,
            writer: event.event_type.clone(),
            data: event.to_json(),
        };
        let mut attempt = 0;
        loop {
            match log.append_batch(record.clone()).await {
                Ok(_) => return Ok(()),
                Err(AppendError::TooLarge { bytes, .. }) if event.data.get("left_out").is_none() => {
                    let data = serde_json::json!({ "left_out": "the data is too large", "bytes": bytes });
                    record.data = CloudEvent { data, ..event.clone() }.to_json();
                }
                // What is stored twice has one number, and counts once.
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "event is exported again");
                    world.clock.sleep(BACKOFF.pause(attempt, &*world.random)).await;
                    attempt += 1;
                }
                Err(error) => return Err(error).context("event cannot be exported"),
            }
        }
    }

    /// Reads back what was exported since the last checkpoint, and saves how far that is, if all of it counts.
    async fn save(&mut self) -> anyhow::Result<()> {
        if self.source == self.confirmed.source {
            return Ok(());
        }
        let source = self.source.clone();
        self.read_back(None).await?;
        for (organization, lane) in &self.lanes {
            let confirmed = self.confirmed.lanes.get(organization).copied().unwrap_or_default();
            let is_ours = lane.run != Some(self.run) || confirmed == *lane;
            anyhow::ensure!(is_ours, "another replica exports the events of organization {organization}");
        }
        self.confirmed.source = source;
        let snapshot = Snapshot {
            name: CHECKPOINT.to_owned(),
            fold_version: 1,
            position: self.confirmed.exports.clone(),
            heads: None,
            reading: None,
            state: events::encode(&self.confirmed)?,
        };
        if let Err(error) = self.exporter.deps.snapshots.save(snapshot).await {
            tracing::warn!(%error, "checkpoint of the exports is not saved");
        }
        Ok(())
    }
}

/// The shard in which the record lies that an event is of.
fn shard_of(event: &CloudEvent, partitions: u16) -> Shard {
    if event.event_type.starts_with("kasbah.observed.") {
        return (Stream::Observations, partition_of_writer(&event.subject, partitions));
    }
    let organization = event.source.strip_prefix("/organizations/").and_then(|id| id.parse().ok());
    let organization = organization.unwrap_or(OrganizationId::SYSTEM);
    (Stream::Decisions, partition_of_organization(organization, partitions))
}
