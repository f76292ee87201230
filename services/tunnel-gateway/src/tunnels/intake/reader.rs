//! Reads one stream of an agent, from its opening to its end.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use events::observation::ObservationBatch;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use http::{Method, Request, StatusCode};
use store::{AppendError, NewBatch};
use tokio::sync::watch;
use tunnel::body::{Guard, GuardedBody, empty};
use tunnel::gateway::AskError;
use tunnel::wire::{Acknowledged, Again, Batch, EventFrame, FrameDecoder, Received};

use super::{Feed, IntakeError, SILENCE};
use crate::gateway::Gateway;
use crate::tunnels::model::{BatchFault, check_batch};
use crate::tunnels::session::Session;

/// Batches on their way into the log at once.
const MAXIMUM_UNDER_WAY: usize = 256;
const HEAD_TIME: Duration = Duration::from_secs(30);
const ACKNOWLEDGE_TIME: Duration = Duration::from_secs(30);
/// Between two acknowledgements.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(10);

/// Reads one event stream.
pub(super) async fn read<F: Feed>(
    gateway: &Gateway,
    session: &Session,
    feed: &mut F,
) -> Result<(), IntakeError> {
    let cursor = Box::pin(feed.durable()).await.map_err(IntakeError::Lagging)?;
    let mut body = Box::pin(open::<F>(session, cursor)).await?;
    let acknowledge = watch::Sender::new(cursor);
    let mut acknowledging = pin!(acknowledge_all::<F>(gateway, session, acknowledge.subscribe()));
    let mut dismissed = pin!(session.dismissed());
    let mut reader = Reader::new(gateway, session, cursor, feed);
    loop {
        let silence = gateway.world.clock.sleep(SILENCE);
        tokio::select! {
            biased;
            farewell = &mut dismissed => {
                if farewell.again == Again::AtOnce {
                    reader.finish(&acknowledge).await?;
                    let newest = *acknowledge.borrow();
                    Box::pin(send_acknowledgement::<F>(session, newest)).await;
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

async fn open<F: Feed>(session: &Session, cursor: Acknowledged) -> Result<GuardedBody, IntakeError> {
    let uri = format!("http://agent{}?after={cursor}", F::PATH);
    let unsendable =
        |error: http::Error| IntakeError::Open(AskError::Unsendable { detail: error.to_string() });
    let request = Request::get(uri).body(empty()).map_err(unsendable)?;
    let guard = Guard { stall: F::STALL, ..Guard::default() };
    let opened =
        session.connection.request_guarded(request, HEAD_TIME, guard).await.map_err(IntakeError::Open)?;
    if opened.status() != StatusCode::OK {
        return Err(IntakeError::Status(opened.status()));
    }
    let (agent, instance, stream) = (session.agent, session.instance, F::STREAM.as_str());
    tracing::debug!(%agent, %instance, stream, %cursor, "event stream opened");
    Ok(opened.into_body())
}

/// Tells the agent how far its observations are durable, the newest only, and not for each batch.
async fn acknowledge_all<F: Feed>(
    gateway: &Gateway,
    session: &Session,
    mut durable: watch::Receiver<Acknowledged>,
) {
    while durable.changed().await.is_ok() {
        let newest = *durable.borrow_and_update();
        Box::pin(send_acknowledgement::<F>(session, newest)).await;
        gateway.world.clock.sleep(ACKNOWLEDGE_EVERY).await;
    }
}

async fn send_acknowledgement<F: Feed>(session: &Session, durable: Acknowledged) {
    let Ok(body) = events::encode(&durable) else { return };
    let acknowledged =
        session.connection.ask(Method::PUT, F::ACKNOWLEDGED, Bytes::from(body), 1024, ACKNOWLEDGE_TIME).await;
    match acknowledged {
        Ok(asked) if asked.status.is_success() => {}
        Ok(asked) => {
            tracing::warn!(agent = %session.agent, status = %asked.status, "acknowledgement is refused")
        }
        Err(error) => tracing::debug!(agent = %session.agent, %error, "acknowledgement does not arrive"),
    }
}

type Append = BoxFuture<'static, (Acknowledged, usize, Result<(), AppendError>)>;

struct Reader<'a, F> {
    gateway: &'a Gateway,
    session: &'a Session,
    feed: &'a mut F,
    decoder: FrameDecoder,
    /// Up to where batches are durable or under way.
    accepted: Acknowledged,
    under_way: FuturesOrdered<Append>,
    bytes_under_way: usize,
}

impl<'a, F: Feed> Reader<'a, F> {
    fn new(gateway: &'a Gateway, session: &'a Session, accepted: Acknowledged, feed: &'a mut F) -> Self {
        Self {
            gateway,
            session,
            feed,
            decoder: FrameDecoder::default(),
            accepted,
            under_way: FuturesOrdered::new(),
            bytes_under_way: 0,
        }
    }

    fn has_capacity(&self) -> bool {
        self.under_way.len() < MAXIMUM_UNDER_WAY && self.bytes_under_way < F::MAXIMUM_BYTES_UNDER_WAY
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), IntakeError> {
        self.decoder.push(piece);
        while let Some(received) = self.decoder.next_received().map_err(IntakeError::Frame)? {
            match received.frame().map_err(IntakeError::Frame)? {
                EventFrame::Idle => self.feed.heard(None).await,
                EventFrame::Lease { held } => self.feed.heard(Some(held)).await,
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
        let is_changed = self.feed.admit(&mut batch).await?;
        let as_it_came = if is_changed || batch.first != came {
            None
        } else {
            received.observations(&batch).map_err(IntakeError::Frame)?
        };
        let last = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        self.gateway.registry.record_epoch(agent, last.epoch);
        let observations = batch.observations.len();
        let record = self.record(batch, as_it_came)?;
        let bytes = record.data.len();
        let wait = self.feed.charge(bytes, observations);
        if !wait.is_zero() {
            self.gateway.world.clock.sleep(wait).await;
        }
        let log = Arc::clone(&self.gateway.log);
        let mut append: Append =
            Box::pin(async move { (last, bytes, log.append_batch(record).await.map(drop)) });
        // Asked for once now, so that the log gets batches in their order.
        match futures::poll!(append.as_mut()) {
            Poll::Ready(done) => self.under_way.push_back(Box::pin(std::future::ready(done))),
            Poll::Pending => self.under_way.push_back(append),
        }
        self.accepted = last;
        self.bytes_under_way = self.bytes_under_way.saturating_add(bytes);
        Ok(())
    }

    fn record(&self, batch: Batch<&str>, as_it_came: Option<Bytes>) -> Result<NewBatch, IntakeError> {
        let organization = self.session.organization;
        let writer = ObservationBatch::agent_writer(self.session.agent);
        let Batch { epoch, first, observations } = batch;
        let observations = if as_it_came.is_some() { Vec::new() } else { observations };
        let record = ObservationBatch { organization, writer: writer.clone(), epoch, first, observations };
        let mut data = events::encode(&record).map_err(IntakeError::Encode)?;
        if let Some(encoded) = as_it_came {
            // In place of the empty array, which is the last byte.
            data.pop();
            data.extend_from_slice(&encoded);
        }
        Ok(NewBatch { stream: F::STREAM, organization, writer, data })
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
