//! Records of connections, which the gateway observes and writes in its own name.

use std::sync::Arc;
use std::time::Duration;

use events::observation::{Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::{InstanceId, OrganizationId, Timestamp};
use store::{AppendError, EventLog, NewBatch};
use tokio::sync::mpsc;
use world::World;

use crate::append::append_until_stored;

/// Entries that wait for the log; over that they are dropped and counted.
const CAPACITY: usize = 4096;
const AT_ONCE: usize = 256;
/// So many at once are a crowd, of which more are gathered before the log is asked again: each message costs it, and all who follow, about
/// as much as what it holds of fifty.
const BURST: usize = 8;
const GATHER: Duration = Duration::from_millis(50);

/// Takes observations. Cheap to clone; never waits.
#[derive(Clone)]
pub(crate) struct Journal {
    world: World,
    entries: mpsc::Sender<(OrganizationId, Observation)>,
}

/// Appends what was taken.
pub(crate) struct JournalWriter {
    world: World,
    log: Arc<dyn EventLog>,
    writer: String,
    next: u64,
    entries: mpsc::Receiver<(OrganizationId, Observation)>,
}

pub(crate) fn journal(
    world: &World,
    log: Arc<dyn EventLog>,
    instance: InstanceId,
) -> (Journal, JournalWriter) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let writer = JournalWriter {
        world: world.clone(),
        log,
        writer: ObservationBatch::gateway_writer(instance),
        next: 1,
        entries: receiver,
    };
    (Journal { world: world.clone(), entries: sender }, writer)
}

impl Journal {
    pub(crate) fn note(&self, organization: OrganizationId, what: Observed) {
        let at = Timestamp(self.world.clock.now_millis());
        if self.entries.try_send((organization, Observation { at, what })).is_err() {
            tracing::error!("connection is not recorded: the log is too slow");
        }
    }
}

impl JournalWriter {
    /// Writes until `closed`, and then until what was taken is durable.
    pub(crate) async fn run(mut self, closed: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let mut closed = std::pin::pin!(closed);
        let mut closing = false;
        let mut taken = Vec::with_capacity(AT_ONCE);
        loop {
            tokio::select! {
                biased;
                () = &mut closed, if !closing => {
                    closing = true;
                    self.entries.close();
                    continue;
                }
                count = self.entries.recv_many(&mut taken, AT_ONCE) => if count == 0 { return Ok(()) },
            }
            let is_burst = taken.len() >= BURST;
            let mut entries = taken.drain(..).peekable();
            while let Some((organization, observation)) = entries.next() {
                let mut observations = vec![observation];
                while let Some((_, next)) = entries.next_if(|(next, _)| *next == organization) {
                    observations.push(next);
                }
                self.append(organization, observations).await?;
            }
            if is_burst && !closing {
                self.world.clock.sleep(GATHER).await;
            }
        }
    }

    async fn append(
        &mut self,
        organization: OrganizationId,
        observations: Vec<Observation>,
    ) -> anyhow::Result<()> {
        let count = observations.len() as u64;
        let batch = ObservationBatch {
            organization,
            writer: self.writer.clone(),
            epoch: 1,
            first: self.next,
            observations,
        };
        let data = events::encode(&batch)?;
        let record =
            NewBatch { stream: Stream::Observations, organization, writer: self.writer.clone(), data };
        self.next = self.next.saturating_add(count);
        let stored = append_until_stored(&self.world, &*self.log, record, AppendError::is_transient).await;
        if let Err(error) = stored {
            tracing::error!(%error, "connection is not recorded");
        }
        Ok(())
    }
}
