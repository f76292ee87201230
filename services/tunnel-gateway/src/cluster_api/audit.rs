//! Records of who did what, on their way into the log.
//!
//! Nothing is dropped: a request begins only when there is room for its records, so that a log that is slow slows requests down.
//! Records are written in batches behind the requests that they are about; a gateway that dies takes the last of them with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use events::audit::{AuditBatch, AuditPhase, AuditRecord};
use events::position::Stream;
use events::{InstanceId, OrganizationId, Timestamp};
use http::StatusCode;
use parking_lot::Mutex;
use store::{AppendError, EventLog, NewBatch};
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use world::World;

use super::trouble::{Hop, Trouble};
use crate::gateway::SERVICE;

/// Records that wait for the log.
const CAPACITY: usize = 8192;
/// Records of one batch: far below what fits into one of the log's.
const AT_ONCE: usize = 200;
/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);

type Entry = (OrganizationId, AuditRecord);

/// Takes records. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Audit {
    world: World,
    entries: mpsc::Sender<Entry>,
}

/// Appends what was taken.
pub(crate) struct AuditWriter {
    world: World,
    log: Arc<dyn EventLog>,
    gateway: InstanceId,
    entries: mpsc::Receiver<Entry>,
}

pub(crate) fn audit(world: &World, log: Arc<dyn EventLog>, gateway: InstanceId) -> (Audit, AuditWriter) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let writer = AuditWriter { world: world.clone(), log, gateway, entries: receiver };
    (Audit { world: world.clone(), entries: sender }, writer)
}

/// Room for one request's records: two, if it goes on for long.
pub(super) struct Room {
    began: Option<OwnedPermit<Entry>>,
    ended: OwnedPermit<Entry>,
}

impl Audit {
    /// Waits until there is room for the records of a request.
    pub(super) async fn room(&self, is_long_running: bool) -> Result<Room, Trouble> {
        let reserved = async {
            let began =
                if is_long_running { Some(self.entries.clone().reserve_owned().await?) } else { None };
            Ok(Room { began, ended: self.entries.clone().reserve_owned().await? })
        };
        let reserved: Result<Room, mpsc::error::SendError<()>> = tokio::select! {
            biased;
            reserved = reserved => reserved,
            () = self.world.clock.sleep(PATIENCE) => Err(mpsc::error::SendError(())),
        };
        reserved.map_err(|_| {
            let message = "what is done cannot be recorded now, so nothing is; retry";
            Trouble::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message).retry_after(5)
        })
    }
}

/// The records of one request, which are made as it goes on; the last one when this is dropped.
pub(super) struct Recorded {
    world: World,
    begun: Duration,
    organization: OrganizationId,
    /// But for what is only known later.
    record: AuditRecord,
    code: AtomicU16,
    received: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    room: Mutex<Option<Room>>,
}

impl Recorded {
    pub(super) fn new(world: &World, room: Room, organization: OrganizationId, record: AuditRecord) -> Self {
        Self {
            world: world.clone(),
            begun: world.clock.monotonic(),
            organization,
            record,
            code: AtomicU16::new(0),
            received: Arc::default(),
            sent: Arc::default(),
            room: Mutex::new(Some(room)),
        }
    }

    /// Where it is counted what the client sends, and what it is sent.
    pub(super) fn counters(&self) -> (Arc<AtomicU64>, Arc<AtomicU64>) {
        (Arc::clone(&self.received), Arc::clone(&self.sent))
    }

    /// The head of an answer is there.
    pub(super) fn answered(&self, code: StatusCode) {
        self.code.store(code.as_u16(), Ordering::Relaxed);
        let began = self.room.lock().as_mut().and_then(|room| room.began.take());
        if let Some(began) = began {
            began.send((self.organization, self.so_far(AuditPhase::Began)));
        }
    }

    fn so_far(&self, phase: AuditPhase) -> AuditRecord {
        let took = self.world.clock.monotonic().saturating_sub(self.begun);
        AuditRecord {
            phase,
            code: self.code.load(Ordering::Relaxed),
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            ..self.record.clone()
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let Some(room) = self.room.get_mut().take() else { return };
        // A long one that was answered has said that it began.
        let has_begun = self.record.phase == AuditPhase::Ended && room.began.is_none();
        let phase = if has_begun { AuditPhase::Ended } else { AuditPhase::Whole };
        room.ended.send((self.organization, self.so_far(phase)));
    }
}

impl AuditWriter {
    /// Writes until nobody makes records any more, and then until what was taken is durable.
    pub(crate) async fn run(mut self, all_said: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let mut all_said = std::pin::pin!(all_said);
        let mut closing = false;
        let mut taken = Vec::with_capacity(AT_ONCE);
        loop {
            tokio::select! {
                biased;
                () = &mut all_said, if !closing => {
                    closing = true;
                    self.entries.close();
                    continue;
                }
                count = self.entries.recv_many(&mut taken, AT_ONCE) => if count == 0 { return Ok(()) },
            }
            let mut entries: Vec<Entry> = std::mem::take(&mut taken);
            entries.sort_by_key(|(organization, _)| *organization);
            for together in entries.chunk_by(|(one, _), (other, _)| one == other) {
                let Some((organization, _)) = together.first() else { continue };
                let records = together.iter().map(|(_, record)| record.clone()).collect();
                self.append(*organization, records).await?;
            }
        }
    }

    async fn append(&self, organization: OrganizationId, records: Vec<AuditRecord>) -> anyhow::Result<()> {
        let data = events::encode(&AuditBatch { organization, gateway: self.gateway, records })?;
        let batch = NewBatch { stream: Stream::Audit, organization, writer: SERVICE.to_owned(), data };
        loop {
            match self.log.append_batch(batch.clone()).await {
                Ok(_) => return Ok(()),
                Err(AppendError::Unknown { detail } | AppendError::Away { detail }) => {
                    tracing::warn!(%detail, "what was done may not be recorded, trying again");
                    self.world.clock.sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::error!(%error, "what was done is not recorded");
                    return Ok(());
                }
            }
        }
    }
}

/// When a request came.
pub(super) fn now(world: &World) -> Timestamp {
    Timestamp(world.clock.now_millis())
}
