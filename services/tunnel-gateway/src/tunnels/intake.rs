//! Reading what an agent sends: into the log, then acknowledged.
//!
//! An agent has two streams, each with a sequence of its own: [`observations`] of what it did, and [`object_changes`] that it saw. Both are read
//! in the same way by a [`reader`]; a [`Feed`] says what is different. Neither waits for the other.

mod object_changes;
mod observations;
mod reader;

use std::future::Future;
use std::time::Duration;

use events::position::Stream;
use http::StatusCode;
use store::{AppendError, BlobError, CatchUpError};
use tunnel::body::BodyFault;
use tunnel::gateway::AskError;
use tunnel::wire::{Acknowledged, Batch, FrameError};

use self::reader::read;
use super::model::BatchFault;
use super::session::Session;
use crate::gateway::Gateway;

pub(crate) use self::object_changes::{ObjectIntake, read_object_changes};
pub(crate) use self::observations::read_observations;

/// An agent says something, if only that it is idle, more often than this.
const SILENCE: Duration = Duration::from_secs(60);
const FOLD_TIME: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An agent that does not know a stream yet is asked for it again so late: it is another process once it is upgraded.
const PAUSE_WHEN_ABSENT: Duration = Duration::from_secs(20 * 60);

/// One of an agent's streams.
trait Feed: Send {
    /// Where its batches go.
    const STREAM: Stream;
    /// Where the agent has it, and where it takes acknowledgements.
    const PATH: &'static str;
    const ACKNOWLEDGED: &'static str;
    /// Whether older agents do not have it.
    const IS_OPTIONAL: bool;
    /// Bytes of batches that are on their way into the log at once.
    const MAXIMUM_BYTES_UNDER_WAY: usize;
    /// How long reading may stand still, because the log is slow or a rate is exceeded, before the agent's stream is given up and read
    /// again from what is durable.
    const STALL: Duration;

    /// How far it is durable, everything that is in the log by now included.
    fn durable(&mut self) -> impl Future<Output = Result<Acknowledged, CatchUpError>> + Send;

    /// The agent said something beside a batch: whether it holds its Lease, or just that it is there.
    fn heard(&mut self, lease: Option<bool>) -> impl Future<Output = ()> + Send;

    /// Makes of a batch what may go into the log; says whether it is another one by then.
    fn admit(&mut self, batch: &mut Batch<&str>) -> impl Future<Output = Result<bool, IntakeError>> + Send;

    /// A record of so many bytes and observations goes into the log: how long to wait before.
    fn charge(&mut self, bytes: usize, observations: usize) -> Duration;
}

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
    #[error("a body cannot be fetched")]
    Fetch(#[source] AskError),
    #[error("the agent answered {0} instead of a body")]
    BodyStatus(StatusCode),
    #[error("a body cannot be stored")]
    Blob(#[source] BlobError),
    #[error("a record cannot be encoded: {0}")]
    Encode(events::EncodeError),
    #[error("the fold of what is durable lags")]
    Lagging(#[source] CatchUpError),
}

/// Reads until the tunnel is dismissed; then what is under way is brought to its end. Opens the stream again when it broke.
async fn run<F: Feed>(gateway: &Gateway, session: &Session, feed: &mut F) {
    let mut pause = Duration::ZERO;
    loop {
        let started = gateway.world.clock.monotonic();
        let error = match read(gateway, session, feed).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let is_absent = F::IS_OPTIONAL && matches!(error, IntakeError::Status(StatusCode::NOT_FOUND));
        let wait = if is_absent {
            tracing::debug!(agent = %session.agent, path = F::PATH, "the agent is older than this stream");
            PAUSE_WHEN_ABSENT
        } else {
            report(gateway, session, F::STREAM, &error);
            if gateway.world.clock.monotonic().saturating_sub(started) > LONGEST_PAUSE {
                pause = Duration::ZERO;
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let jitter = u64::try_from(pause.as_millis()).unwrap_or(0) / 2;
            pause / 2 + Duration::from_millis(gateway.world.random.below(jitter + 1))
        };
        tokio::select! {
            biased;
            _farewell = session.dismissed() => return,
            () = gateway.world.clock.sleep(wait) => {}
        }
    }
}

fn report(gateway: &Gateway, session: &Session, stream: Stream, error: &IntakeError) {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let (agent, instance, stream) = (session.agent, session.instance, stream.as_str());
    match error {
        IntakeError::Refused(_) => {
            gateway.counts.batches_refused.inc();
            tracing::warn!(%agent, %instance, stream, %error, source, "observations refused");
        }
        IntakeError::Ended
        | IntakeError::Body(BodyFault::Broken { .. })
        | IntakeError::Open(AskError::Closed { .. })
        | IntakeError::Fetch(AskError::Closed { .. }) => {
            tracing::debug!(%agent, %instance, stream, %error, source, "event stream ended");
        }
        _ => tracing::warn!(%agent, %instance, stream, %error, source, "event stream abandoned"),
    }
}
