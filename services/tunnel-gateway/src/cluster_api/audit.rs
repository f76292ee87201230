//! Records of who did what, on their way into the log.
//!
//! Nothing is dropped: a request begins only when there is room for its records, so that a log that is slow slows requests down.
//! Records are written in batches behind the requests that they are about; a gateway that dies takes the last of them with it. Where an
//! agent's configuration wants it, the record that a request begins is durable before anything of it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use events::attributes::{Attributes, Target};
use events::audit::{AuditBatch, AuditPhase, AuditRecord};
use events::position::Stream;
use events::{InstanceId, OrganizationId};
use http::StatusCode;
use parking_lot::Mutex;
use store::{AppendError, EventLog, NewBatch};
use tokio::sync::{mpsc, oneshot, watch};
use world::World;

use super::error::{Hop, ProxyError};
use crate::append::append_until_stored;
use crate::gateway::SERVICE;

/// Records that wait for the log.
const CAPACITY: usize = 8192;
/// Records of one batch: with the longest texts that are recorded they fit into one of the log's.
const MAXIMUM_BATCH: usize = 100;
/// Records that are taken together, and how long they gather.
const MAXIMUM_TAKEN: usize = 2000;
const GATHER: Duration = Duration::from_millis(100);
/// How much of a name, or a path, and of a reason is recorded, in bytes.
const LONGEST_NAME: usize = 300;
const LONGEST_REASON: usize = 1000;
/// How long a request waits for room.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one waits until the record that it begins is durable.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A record on its way.
struct Entry {
    organization: OrganizationId,
    record: AuditRecord,
    /// Who waits until it is durable.
    stored: Option<oneshot::Sender<()>>,
}

/// Takes records. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Audit {
    world: World,
    /// Never full: whoever begins something waits, not who ends it.
    entries: mpsc::UnboundedSender<Entry>,
    /// Those that somebody waits for: they do not gather, nor stand behind others.
    awaited: mpsc::UnboundedSender<Entry>,
    waiting: Arc<watch::Sender<usize>>,
}

/// Appends what was taken.
pub(crate) struct AuditWriter {
    world: World,
    log: Arc<dyn EventLog>,
    gateway: InstanceId,
    entries: mpsc::UnboundedReceiver<Entry>,
    awaited: mpsc::UnboundedReceiver<Entry>,
    waiting: Arc<watch::Sender<usize>>,
}

pub(crate) fn audit(world: &World, log: Arc<dyn EventLog>, gateway: InstanceId) -> (Audit, AuditWriter) {
    let (entries, receiver) = mpsc::unbounded_channel();
    let (awaited, awaited_receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(watch::Sender::new(0));
    let writer = AuditWriter {
        world: world.clone(),
        log,
        gateway,
        entries: receiver,
        awaited: awaited_receiver,
        waiting: Arc::clone(&waiting),
    };
    (Audit { world: world.clone(), entries, awaited, waiting }, writer)
}

impl Audit {
    /// Waits until not too many records wait for the log.
    pub(super) async fn wait_for_capacity(&self) -> Result<(), ProxyError> {
        if *self.waiting.borrow() < CAPACITY {
            return Ok(());
        }
        let mut waiting = self.waiting.subscribe();
        let has_capacity = tokio::select! {
            biased;
            has_capacity = waiting.wait_for(|waiting| *waiting < CAPACITY) => has_capacity.is_ok(),
            () = self.world.clock.sleep(CAPACITY_TIMEOUT) => false,
        };
        if has_capacity {
            return Ok(());
        }
        Err(unavailable())
    }

    fn enqueue(&self, organization: OrganizationId, record: AuditRecord) {
        self.count_waiting();
        if self.entries.send(Entry { organization, record, stored: None }).is_err() {
            tracing::error!("audit record not written: the gateway has stopped");
        }
    }

    /// Makes no room, and so wakes nobody who waits for some.
    fn count_waiting(&self) {
        self.waiting.send_if_modified(|waiting| {
            *waiting += 1;
            false
        });
    }

    /// Takes a record, and waits until it is durable.
    async fn store(&self, organization: OrganizationId, record: AuditRecord) -> Result<(), ProxyError> {
        let (stored, is_stored) = oneshot::channel();
        self.count_waiting();
        let taken = self.awaited.send(Entry { organization, record, stored: Some(stored) });
        let is_durable = tokio::select! {
            biased;
            is_stored = is_stored => is_stored.is_ok() && taken.is_ok(),
            () = self.world.clock.sleep(DURABLE_TIMEOUT) => false,
        };
        if is_durable { Ok(()) } else { Err(unavailable()) }
    }
}

fn unavailable() -> ProxyError {
    let message = "the request is refused because its audit record cannot be written now; retry";
    ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message).retry_after(5)
}

/// The records of one request, which are made as it goes on; the last one when this is dropped.
pub(super) struct RequestAudit {
    begun: Duration,
    organization: OrganizationId,
    /// It also has a record when it is answered.
    is_long_running: bool,
    code: AtomicU16,
    received: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    stage: Mutex<Stage>,
    audit: Audit,
}

/// How far a request's records are, with what they hold but for what is only known later.
enum Stage {
    Open(Box<AuditRecord>),
    Begun(Box<AuditRecord>),
    Over,
}

impl RequestAudit {
    pub(super) fn new(
        audit: &Audit,
        organization: OrganizationId,
        record: AuditRecord,
        is_long_running: bool,
    ) -> Self {
        Self {
            begun: audit.world.clock.monotonic(),
            organization,
            is_long_running,
            code: AtomicU16::new(0),
            received: Arc::default(),
            sent: Arc::default(),
            stage: Mutex::new(Stage::Open(Box::new(record))),
            audit: audit.clone(),
        }
    }

    /// Without records of the request.
    pub(super) fn disabled(self) -> Self {
        *self.stage.lock() = Stage::Over;
        self
    }

    /// Where it is counted what the client sends.
    pub(super) fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Where it is counted what it is sent.
    pub(super) fn sent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
    }

    /// Says that it begins, and waits until that is durable.
    pub(super) async fn begin_durably(&self) -> Result<(), ProxyError> {
        let Some(record) = self.begin_record() else { return Ok(()) };
        let begun = self.audit.store(self.organization, record).await;
        begun.inspect_err(|error| self.failed(error.code()))
    }

    /// The head of an answer is there.
    pub(super) fn answered(&self, code: StatusCode) {
        self.failed(code);
        if self.is_long_running
            && let Some(record) = self.begin_record()
        {
            self.audit.enqueue(self.organization, record);
        }
    }

    /// There is no answer, but this one of ours.
    pub(super) fn failed(&self, code: StatusCode) {
        self.code.store(code.as_u16(), Ordering::Relaxed);
    }

    /// The request is over.
    pub(super) fn finish(&self) {
        let was = std::mem::replace(&mut *self.stage.lock(), Stage::Over);
        let (phase, record) = match was {
            Stage::Open(record) => (AuditPhase::Whole, record),
            Stage::Begun(record) => (AuditPhase::Ended, record),
            Stage::Over => return,
        };
        self.audit.enqueue(self.organization, self.complete(phase, *record));
    }

    /// The record that it begins, unless there is one.
    fn begin_record(&self) -> Option<AuditRecord> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Open(record) => {
                let begins = self.complete(AuditPhase::Began, (*record).clone());
                *stage = Stage::Begun(record);
                Some(begins)
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    fn complete(&self, phase: AuditPhase, record: AuditRecord) -> AuditRecord {
        let took = self.audit.world.clock.monotonic().saturating_sub(self.begun);
        let code = self.code.load(Ordering::Relaxed);
        AuditRecord {
            phase,
            code,
            // One that did not come to be was not recorded.
            is_recorded: record.is_recorded && code == StatusCode::SWITCHING_PROTOCOLS,
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            ..record
        }
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        self.finish();
    }
}

impl AuditWriter {
    /// Writes until nobody makes records any more, and then until what was taken is durable.
    pub(crate) async fn run(self, closed: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let Self { world, log, gateway, mut entries, mut awaited, waiting } = self;
        let writer = BatchWriter { world, log, gateway, waiting };
        let (close, is_closed) = watch::channel(false);
        let closing = async {
            closed.await;
            close.send_replace(true);
            std::future::pending().await
        };
        let written = async {
            tokio::try_join!(
                writer.write_all(&mut entries, Some(GATHER), is_closed.clone()),
                writer.write_all(&mut awaited, None, is_closed.clone()),
            )
        };
        tokio::select! {
            biased;
            written = written => written.map(drop),
            never = closing => never,
        }
    }
}

/// Writes records into the log.
struct BatchWriter {
    world: World,
    log: Arc<dyn EventLog>,
    gateway: InstanceId,
    waiting: Arc<watch::Sender<usize>>,
}

impl BatchWriter {
    /// Writes what comes, once it gathered for a while, until all was said.
    async fn write_all(
        &self,
        entries: &mut mpsc::UnboundedReceiver<Entry>,
        gather: Option<Duration>,
        mut is_closed: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut closing = false;
        let mut taken = Vec::with_capacity(MAXIMUM_BATCH);
        loop {
            tokio::select! {
                biased;
                _closed = is_closed.wait_for(|closed| *closed), if !closing => {
                    closing = true;
                    entries.close();
                    continue;
                }
                count = entries.recv_many(&mut taken, MAXIMUM_BATCH) => if count == 0 { return Ok(()) },
            }
            // What comes within a moment goes together: the log syncs once for each batch.
            if let Some(gather) = gather.filter(|_| !closing && taken.len() < MAXIMUM_BATCH) {
                self.world.clock.sleep(gather).await;
            }
            while taken.len() < MAXIMUM_TAKEN
                && let Ok(next) = entries.try_recv()
            {
                taken.push(next);
            }
            let count = taken.len();
            self.write(std::mem::take(&mut taken)).await?;
            self.waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(count));
        }
    }

    async fn write(&self, mut entries: Vec<Entry>) -> anyhow::Result<()> {
        entries.sort_by_key(|entry| entry.organization);
        let mut entries = entries.into_iter().peekable();
        while let Some(Entry { organization, record, stored }) = entries.next() {
            let (mut records, mut waiting) = (vec![record], Vec::from_iter(stored));
            while records.len() < MAXIMUM_BATCH
                && let Some(next) = entries.next_if(|next| next.organization == organization)
            {
                records.push(next.record);
                waiting.extend(next.stored);
            }
            if self.append(organization, records).await? {
                for stored in waiting {
                    // Whoever waited may have gone.
                    let _heard = stored.send(());
                }
            }
        }
        Ok(())
    }

    /// Whether the log has them.
    async fn append(&self, organization: OrganizationId, records: Vec<AuditRecord>) -> anyhow::Result<bool> {
        let data = events::encode(&AuditBatch { organization, gateway: self.gateway, records })?;
        let batch = NewBatch { stream: Stream::Audit, organization, writer: SERVICE.to_owned(), data };
        // Whoever begins something waits meanwhile, also for a log that is read-only until it is started again.
        let is_transient =
            |error: &AppendError| error.is_transient() || matches!(error, AppendError::ReadOnly { .. });
        let stored = append_until_stored(&self.world, &*self.log, batch, is_transient).await;
        if let Err(error) = &stored {
            tracing::error!(%error, "audit record not written");
        }
        Ok(stored.is_ok())
    }
}

/// What is asked for, without what is too long to be recorded.
pub(super) fn shortened(attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    match &mut attributes.target {
        Target::Path(path) => cut(path, LONGEST_NAME),
        Target::Resource(target) => {
            let texts =
                [&mut target.group, &mut target.version, &mut target.resource, &mut target.subresource];
            texts
                .into_iter()
                .chain([&mut target.namespace, &mut target.name])
                .for_each(|text| cut(text, LONGEST_NAME));
        }
    }
    cut(&mut attributes.verb, LONGEST_NAME);
    attributes
}

/// The reason, as far as it is recorded.
pub(super) fn reason(text: &str) -> String {
    let mut text = text.to_owned();
    cut(&mut text, LONGEST_REASON);
    text
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}
