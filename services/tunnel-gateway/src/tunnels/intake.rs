//! Reading an agent's events: into the log, then acknowledged.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use events::SourceId;
use events::observation::ObservationBatch;
use events::position::Stream;
use events::requests::delivery::NameApplier;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use http::{Method, Request, StatusCode};
use store::{AppendError, NewBatch};
use tokio::sync::watch;
use tunnel::body::{BodyFault, Guard, GuardedBody, empty};
use tunnel::gateway::AskError;
use tunnel::wire::{Acknowledged, Again, Batch, EventFrame, FrameDecoder, FrameError, Received, path};

use super::model::{BatchFault, check_batch, has_foreign_sources, remove_foreign_sources};
use super::session::Session;
use crate::gateway::Gateway;
use crate::token_bucket::TokenBucket;

/// Batches on their way into the log at once, and their bytes.
const MAXIMUM_UNDER_WAY: usize = 256;
const MAXIMUM_BYTES_UNDER_WAY: usize = 8 * 1024 * 1024;
/// An agent says something, if only that it is idle, more often than this.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the log may take before the agent's stream is given up, and read again from what is durable.
const LOG_TIME: Duration = Duration::from_secs(120);
const HEAD_TIME: Duration = Duration::from_secs(30);
const ACKNOWLEDGE_TIME: Duration = Duration::from_secs(30);
/// Between two acknowledgements.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(10);
const FOLD_TIME: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long delivery may take to say by itself who applies when a tunnel opened.
const APPLIER_TIMEOUT: Duration = Duration::from_secs(30);
/// Being named again and again costs the log: so far apart.
const NAMING_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum IntakeError {
    #[error("the event stream cannot be opened")]
    Open(#[source] AskError),
    #[error("the agent answered {0} to the event stream")]
    Status(StatusCode),
    #[error("the event stream ended")]
    Ended,
    #[error("the event stream broke")]
    Body(#[source] BodyFault),
    #[error("no frame for {SILENCE:?}")]
    Silent,
    #[error("a frame is not readable")]
    Frame(#[source] FrameError),
    #[error("a batch is refused")]
    Refused(#[source] BatchFault),
    #[error("the log does not accept a batch")]
    Log(#[source] AppendError),
    #[error("a record cannot be encoded: {0}")]
    Encode(events::EncodeError),
    #[error("the fold of durable observations lags")]
    Lagging(#[source] store::CatchUpError),
}

/// Reads until the tunnel is dismissed; then what is under way is brought to its end. Opens the stream again when it broke.
pub(crate) async fn run(gateway: &Gateway, session: &Session) {
    let mut pause = Duration::ZERO;
    let mut names = Naming { last: None, held: false, pending: false };
    loop {
        let started = gateway.world.clock.monotonic();
        let error = match read(gateway, session, &mut names).await {
            Ok(()) => return,
            Err(error) => error,
        };
        report(gateway, session, &error);
        if gateway.world.clock.monotonic().saturating_sub(started) > LONGEST_PAUSE {
            pause = Duration::ZERO;
        }
        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let jitter = u64::try_from(pause.as_millis()).unwrap_or(0) / 2;
        let wait = pause / 2 + Duration::from_millis(gateway.world.random.below(jitter + 1));
        tokio::select! {
            biased;
            _farewell = session.dismissed() => return,
            () = gateway.world.clock.sleep(wait) => {}
        }
    }
}

fn report(gateway: &Gateway, session: &Session, error: &IntakeError) {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let (agent, instance) = (session.agent, session.instance);
    match error {
        IntakeError::Refused(_) => {
            gateway.counts.batches_refused.inc();
            tracing::warn!(%agent, %instance, %error, source, "observations refused");
        }
        IntakeError::Ended
        | IntakeError::Body(BodyFault::Broken { .. })
        | IntakeError::Open(AskError::Closed { .. }) => {
            tracing::debug!(%agent, %instance, %error, source, "event stream ended");
        }
        _ => tracing::warn!(%agent, %instance, %error, source, "event stream abandoned"),
    }
}

/// Reads one event stream.
async fn read(gateway: &Gateway, session: &Session, names: &mut Naming) -> Result<(), IntakeError> {
    let cursor = Box::pin(durable(gateway, session)).await?;
    let mut body = Box::pin(open(session, cursor)).await?;
    let acknowledge = watch::Sender::new(cursor);
    let mut acknowledging = pin!(acknowledge_all(gateway, session, acknowledge.subscribe()));
    let mut dismissed = pin!(session.dismissed());
    let mut reader = Reader::new(gateway, session, cursor, names);
    loop {
        let silence = gateway.world.clock.sleep(SILENCE);
        tokio::select! {
            biased;
            farewell = &mut dismissed => {
                if farewell.again == Again::AtOnce {
                    reader.finish(&acknowledge).await?;
                    let newest = *acknowledge.borrow();
                    Box::pin(send_acknowledgement(session, newest)).await;
                }
                return Ok(());
            }
            durable = reader.under_way.next(), if !reader.under_way.is_empty() => reader.finish_append(durable, &acknowledge)?,
            () = &mut acknowledging => {}
            piece = body.chunk(), if reader.has_capacity() => match piece {
                Some(Ok(piece)) => Box::pin(reader.take(&piece)).await?,
                Some(Err(fault)) => return Err(IntakeError::Body(fault)),
                None => {
                    reader.finish(&acknowledge).await?;
                    return Err(IntakeError::Ended);
                }
            },
            () = silence, if reader.under_way.is_empty() => return Err(IntakeError::Silent),
        }
    }
}

/// What is durable of this agent's observations, everything that is in the log by now included.
async fn durable(gateway: &Gateway, session: &Session) -> Result<Acknowledged, IntakeError> {
    gateway.catch_up_throttle.wait(&*gateway.world.clock).await;
    gateway.cursors.catch_up(FOLD_TIME).await.map_err(IntakeError::Lagging)?;
    Ok(gateway.cursors.read(|cursors| cursors.of(session.agent)))
}

async fn open(session: &Session, cursor: Acknowledged) -> Result<GuardedBody, IntakeError> {
    let uri = format!("http://agent{}?after={cursor}", path::EVENTS);
    let unsendable =
        |error: http::Error| IntakeError::Open(AskError::Unsendable { detail: error.to_string() });
    let request = Request::get(uri).body(empty()).map_err(unsendable)?;
    let guard = Guard { stall: LOG_TIME, ..Guard::default() };
    let opened =
        session.connection.request_guarded(request, HEAD_TIME, guard).await.map_err(IntakeError::Open)?;
    if opened.status() != StatusCode::OK {
        return Err(IntakeError::Status(opened.status()));
    }
    tracing::debug!(agent = %session.agent, instance = %session.instance, %cursor, "event stream opened");
    Ok(opened.into_body())
}

/// Tells the agent how far its observations are durable, the newest only, and not for each batch.
async fn acknowledge_all(gateway: &Gateway, session: &Session, mut durable: watch::Receiver<Acknowledged>) {
    while durable.changed().await.is_ok() {
        let newest = *durable.borrow_and_update();
        Box::pin(send_acknowledgement(session, newest)).await;
        gateway.world.clock.sleep(ACKNOWLEDGE_EVERY).await;
    }
}

async fn send_acknowledgement(session: &Session, durable: Acknowledged) {
    let Ok(body) = events::encode(&durable) else { return };
    let acknowledged = session
        .connection
        .ask(Method::PUT, path::ACKNOWLEDGED, Bytes::from(body), 1024, ACKNOWLEDGE_TIME)
        .await;
    match acknowledged {
        Ok(asked) if asked.status.is_success() => {}
        Ok(asked) => {
            tracing::warn!(agent = %session.agent, status = %asked.status, "acknowledgement is refused")
        }
        Err(error) => tracing::debug!(agent = %session.agent, %error, "acknowledgement does not arrive"),
    }
}

type Append = BoxFuture<'static, (Acknowledged, usize, Result<(), AppendError>)>;

struct Reader<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    decoder: FrameDecoder,
    /// Up to where batches are durable or under way.
    accepted: Acknowledged,
    own: BTreeSet<SourceId>,
    under_way: FuturesOrdered<Append>,
    bytes_under_way: usize,
    rate: TokenBucket,
    names: &'a mut Naming,
}

impl<'a> Reader<'a> {
    fn new(
        gateway: &'a Gateway,
        session: &'a Session,
        accepted: Acknowledged,
        names: &'a mut Naming,
    ) -> Self {
        let now = gateway.world.clock.monotonic();
        Self {
            gateway,
            session,
            decoder: FrameDecoder::default(),
            accepted,
            own: gateway.standing.read(|standing| standing.sources(session.agent)),
            under_way: FuturesOrdered::new(),
            bytes_under_way: 0,
            rate: TokenBucket::new(gateway.args.tunnel_observation_rate, now),
            names,
        }
    }

    fn has_capacity(&self) -> bool {
        self.under_way.len() < MAXIMUM_UNDER_WAY && self.bytes_under_way < MAXIMUM_BYTES_UNDER_WAY
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), IntakeError> {
        self.decoder.push(piece);
        while let Some(received) = self.decoder.next_received().map_err(IntakeError::Frame)? {
            match received.frame().map_err(IntakeError::Frame)? {
                EventFrame::Idle => self.names.name_if_pending(self.gateway, self.session).await,
                EventFrame::Lease { held } => {
                    (self.names.held, self.names.pending) = (held, held);
                    self.names.name_if_pending(self.gateway, self.session).await;
                }
                EventFrame::Batch(batch) => self.append(batch, &received).await?,
            }
        }
        Ok(())
    }

    /// Puts a batch on its way into the log, as it came where it may stay so.
    async fn append(&mut self, batch: Batch<&str>, received: &Received) -> Result<(), IntakeError> {
        let came = batch.first;
        let agent = self.session.agent;
        let newest = self.gateway.registry.newest_epoch(agent);
        if batch.epoch < newest {
            return Err(IntakeError::Refused(BatchFault::OldEpoch { epoch: batch.epoch, newest }));
        }
        let checked = check_batch(self.accepted, self.session.named_applier(), self.session.instance, batch);
        let Some(mut batch) = checked.map_err(IntakeError::Refused)? else { return Ok(()) };
        let is_changed = self.remove_foreign(&mut batch).await?;
        let as_it_came = if is_changed || batch.first != came {
            None
        } else {
            received.observations(&batch).map_err(IntakeError::Frame)?
        };
        let last = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        self.gateway.registry.record_epoch(agent, last.epoch);
        let record = self.record(batch, as_it_came)?;
        let bytes = record.data.len();
        let wait = self.rate.take(bytes, self.gateway.world.clock.monotonic());
        if !wait.is_zero() {
            self.gateway.world.clock.sleep(wait).await;
        }
        let log = std::sync::Arc::clone(&self.gateway.log);
        let mut append: Append =
            Box::pin(async move { (last, bytes, log.append_batch(record).await.map(drop)) });
        // Asked for once now, so that the log gets batches in their order.
        match futures::poll!(append.as_mut()) {
            std::task::Poll::Ready(done) => self.under_way.push_back(Box::pin(std::future::ready(done))),
            std::task::Poll::Pending => self.under_way.push_back(append),
        }
        self.accepted = last;
        self.bytes_under_way = self.bytes_under_way.saturating_add(bytes);
        Ok(())
    }

    /// Leaves out what is not this agent's. A source that is not known yet may be in the log and not in the fold.
    /// Says whether there was something.
    async fn remove_foreign(&mut self, batch: &mut Batch<&str>) -> Result<bool, IntakeError> {
        if !has_foreign_sources(&batch.observations, &self.own) {
            return Ok(false);
        }
        let standing = &self.gateway.standing;
        standing.catch_up(FOLD_TIME).await.map_err(IntakeError::Lagging)?;
        self.own = standing.read(|standing| standing.sources(self.session.agent));
        let foreign = remove_foreign_sources(&mut batch.observations, &self.own);
        if !foreign.is_empty() {
            let (agent, instance) = (self.session.agent, self.session.instance);
            let sources = foreign.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::warn!(%agent, %instance, sources, "observations of other agents' sources are removed");
        }
        Ok(true)
    }

    fn record(&self, batch: Batch<&str>, as_it_came: Option<Bytes>) -> Result<NewBatch, IntakeError> {
        let organization = self.session.organization;
        let writer = ObservationBatch::agent_writer(self.session.agent);
        let Batch { epoch, first, observations } = batch;
        self.gateway.counts.observations.inc_by(observations.len() as u64);
        let observations = if as_it_came.is_some() { Vec::new() } else { observations };
        let record = ObservationBatch { organization, writer: writer.clone(), epoch, first, observations };
        let mut data = events::encode(&record).map_err(IntakeError::Encode)?;
        if let Some(encoded) = as_it_came {
            // In place of the empty array, which is the last byte.
            data.pop();
            data.extend_from_slice(&encoded);
        }
        Ok(NewBatch { stream: Stream::Observations, organization, writer, data })
    }

    /// The oldest batch under way is through.
    fn finish_append(
        &mut self,
        landed: Option<(Acknowledged, usize, Result<(), AppendError>)>,
        acknowledge: &watch::Sender<Acknowledged>,
    ) -> Result<(), IntakeError> {
        let Some((last, bytes, outcome)) = landed else { return Ok(()) };
        self.bytes_under_way = self.bytes_under_way.saturating_sub(bytes);
        outcome.map_err(IntakeError::Log)?;
        acknowledge.send_replace(last);
        Ok(())
    }

    async fn finish(&mut self, acknowledge: &watch::Sender<Acknowledged>) -> Result<(), IntakeError> {
        while let Some(landed) = self.under_way.next().await {
            self.finish_append(Some(landed), acknowledge)?;
        }
        Ok(())
    }
}

/// Has the instance named that says it holds its agent's Lease.
struct Naming {
    /// When delivery was asked last.
    last: Option<Duration>,
    /// The agent said last that it holds its Lease.
    held: bool,
    /// Delivery is to be asked to name it.
    pending: bool,
}

impl Naming {
    /// Asks delivery until it answers: what the instance sends next counts only once it is named. One that was named a moment
    /// ago and says it again is not asked for at once.
    async fn name_if_pending(&mut self, gateway: &Gateway, session: &Session) {
        // One that held the Lease before may have been named after this one, because what it asked for came late.
        self.pending |= self.held && !session.is_applier();
        let lately = self.last.is_some_and(|last| {
            gateway.world.clock.monotonic().saturating_sub(last) < NAMING_PAUSE && session.is_applier()
        });
        if !self.pending || lately {
            return;
        }
        // What applies by now is told by delivery when a tunnel opens, of many agents together: thousands that come back at once need
        // not be asked about one by one.
        if self.last.is_none() {
            tokio::select! {
                biased;
                () = session.applier_known() => {}
                () = gateway.world.clock.sleep(APPLIER_TIMEOUT) => {}
            }
            if session.is_applier() {
                (self.pending, self.last) = (false, Some(gateway.world.clock.monotonic()));
                return;
            }
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let request = NameApplier { agent: session.agent, instance: session.instance };
            let (agent, instance) = (session.agent, session.instance);
            self.last = Some(gateway.world.clock.monotonic());
            match bus::ask(&*gateway.bus, &gateway.context(session.organization), &request).await {
                Ok(applier) => {
                    tracing::info!(%agent, %instance, epoch = applier.epoch, "applier named");
                    self.pending = false;
                    session.set_applier(Some(applier));
                    gateway.registry.mark_changed(Some(agent));
                    return;
                }
                Err(refusal) => {
                    tracing::warn!(%agent, %instance, %refusal, "applier not named, retrying");
                    gateway.world.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}
