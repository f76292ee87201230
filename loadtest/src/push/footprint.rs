//! Memory, binary size, disk per push, and a start behind many events.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use events::delivery::{DeliveryEvent, SyncStarted};
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, EventId, NewEvent, SourceId, SyncId,
    Timestamp,
};
use store::NewCommit;
use uuid::Uuid;
use world::World;

use super::stage::{AGENT, Stage};
use crate::figure::{Figure, Target};

/// Events behind the measured start.
const EVENTS: u64 = 100_000;

type Values = Vec<(f64, Option<f64>)>;

#[derive(Default)]
pub struct Runs {
    agent_idle: Values,
    agent_peak: Values,
    server_idle: Values,
    disk: Values,
    ready: Values,
}

impl Runs {
    pub fn agent_after_first_sync(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let pid = stage.kasbah.agent(AGENT)?.pid();
        self.agent_peak.push((status_megabytes(pid, "VmHWM:")?, None));
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a folder are far below 2^52")]
    pub fn disk_per_push(&mut self, before: u64, after: u64, pushes: usize) {
        self.disk.push((after.saturating_sub(before) as f64 / pushes as f64 / 1_000.0, None));
    }

    pub fn idle(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let (agent, server) = (stage.kasbah.agent(AGENT)?.pid(), stage.kasbah.server()?.pid());
        self.agent_idle.push((status_megabytes(agent, "VmRSS:")?, None));
        self.server_idle.push((status_megabytes(server, "VmRSS:")?, None));
        Ok(())
    }

    /// Stops the server, appends events behind its back, and times a start until it says that it is ready.
    pub async fn restart_behind_many_events(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        stage.kasbah.stop_agent(AGENT)?;
        stage.kasbah.stop_server()?;
        append_events(&stage.kasbah.data()).await.context("cannot append events")?;
        let start = Instant::now();
        stage.kasbah.start_server().await?;
        self.ready.push((start.elapsed().as_secs_f64() * 1_000.0, None));
        Ok(())
    }

    pub fn figures(self) -> anyhow::Result<Vec<Figure>> {
        let mut figures = vec![
            Figure::of("push.agent-idle-memory", "MB", Target::AtMost(20.0), self.agent_idle),
            Figure::of("push.agent-peak-memory", "MB", Target::AtMost(60.0), self.agent_peak),
            Figure::of("push.up-memory", "MB", Target::AtMost(80.0), self.server_idle),
            Figure::of("push.up-ready", "ms", Target::AtMost(500.0), self.ready),
            Figure::of("push.disk-per-push", "KB", Target::AtMost(16.0), self.disk),
        ];
        let binary = super::stage::built("agent", "kasbah-agent").context("the agent is not built")?;
        #[expect(clippy::cast_precision_loss, reason = "a program is far below 2^52 bytes")]
        let size = std::fs::metadata(binary).context("the agent is not built")?.len() as f64 / 1e6;
        figures.push(Figure::of("push.agent-binary", "MB", Target::AtMost(15.0), vec![(size, None)]));
        Ok(figures)
    }
}

/// A line of `/proc/<pid>/status` in megabytes.
fn status_megabytes(pid: u32, field: &str) -> anyhow::Result<f64> {
    let bytes = testkit::memory_of(pid, field).context("the process tells no memory")?;
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    let megabytes = bytes as f64 / 1e6;
    Ok(megabytes)
}

/// Appends syncs of a source that nobody has, which every fold of sources reads.
async fn append_events(data: &Path) -> anyhow::Result<()> {
    let world = World::real();
    let store = store::embedded::open(&world, data, store::embedded::Options::default())?;
    let organization = events::OrganizationId(Uuid::from_u128(7));
    let mut tasks = Vec::new();
    for writer in 0..100_u128 {
        let log = std::sync::Arc::clone(&store.log);
        tasks.push(tokio::spawn(async move {
            let source = SourceId(Uuid::from_u128(writer));
            for version in 0..EVENTS / 100 {
                let run = u32::try_from(version)? + 1;
                let started = SyncStarted { source, sync: SyncId(Uuid::from_u128(1)), run, epoch: 1 };
                let body = Event::from(DeliveryEvent::SyncStarted(started)).encode()?;
                log.append(NewCommit {
                    id: CommitId(Uuid::now_v7()),
                    organization,
                    aggregate: AggregateRef::new(AggregateKind::Source, source),
                    expected: version,
                    actor: Actor::service("loadtest"),
                    correlation_id: CorrelationId(Uuid::from_u128(1)),
                    causation_id: None,
                    traceparent: None,
                    occurred_at: Timestamp(1_800_000_000_000),
                    command: None,
                    grounds: None,
                    events: vec![NewEvent { id: EventId(Uuid::now_v7()), body }],
                })
                .await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    store.close();
    Ok(())
}
