//! Recordings of sessions with containers, where an agent's configuration wants them.
//!
//! What goes through is understood (which channel says what) and kept as that, sealed, in a stream of its own. It is taken before it goes
//! on, and waits while the log does not keep up; a session of which something can neither be understood nor kept is ended. A gateway that
//! dies takes the last moment of it with it.

mod channels;
mod spdy;
mod spdy_headers;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use events::recording::{RecordSessions, RecordingBatch, SessionChannel, SessionPiece};
use events::{AgentId, InstanceId, OrganizationId};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::header::{HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use parking_lot::Mutex;
use store::{AppendError, EventLog, KeyRing, NewBatch, Sealing};
use tokio::sync::mpsc;
use tunnel::wire;
use uuid::Uuid;
use world::World;

use self::channels::{ChannelData, Channels, Unreadable};
use super::error::{Hop, ProxyError};
use crate::append::append_until_stored;

pub(super) use self::channels::Side;

/// Pieces of one session that wait for the log.
const WAITING: usize = 8;
/// Largest piece, and bytes from which on pieces are written, so that a batch fits into a record of the log.
const PIECE: usize = 64 * 1024;
const BATCH_BYTES: usize = 256 * 1024;
/// What a piece costs in a batch besides what was said.
const PIECE_OVERHEAD: usize = 64;
/// How long pieces gather.
const GATHER: Duration = Duration::from_millis(500);
/// How long a session waits for room.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(30);

/// Which session is recorded, and what of it.
pub(super) struct RecordingSpec {
    pub(super) session: Uuid,
    pub(super) organization: OrganizationId,
    pub(super) agent: AgentId,
    pub(super) keeps: RecordSessions,
}

/// A session that can be recorded, before it is asked for.
pub(super) struct PreparedRecording {
    wanted: RecordingSpec,
    sealing: Sealing,
    asked: SessionPiece,
}

/// A session that began.
struct RecordedSession {
    wanted: RecordingSpec,
    sealing: Sealing,
    pieces: mpsc::Receiver<SessionPiece>,
}

/// Begins recordings.
pub(crate) struct Recordings {
    world: World,
    keys: Arc<dyn KeyRing>,
    sessions: mpsc::UnboundedSender<RecordedSession>,
}

/// Takes what goes through one session.
pub(super) struct Recorder {
    world: World,
    began: Duration,
    keeps: RecordSessions,
    channels: Mutex<Channels>,
    pieces: mpsc::Sender<SessionPiece>,
}

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    /// What goes through is none of what exec and attach say.
    #[error("the session must be recorded, and its protocol cannot be parsed: {0}")]
    Unreadable(#[from] Unreadable),
    /// The log does not take it.
    #[error("the session must be recorded, and recording is not possible now")]
    Unavailable,
}

pub(crate) fn recordings(
    world: &World,
    log: Arc<dyn EventLog>,
    keys: Arc<dyn KeyRing>,
    gateway: InstanceId,
) -> (Recordings, RecordingsWriter) {
    let (sessions, begun) = mpsc::unbounded_channel();
    let writer = RecordingsWriter { writer: BatchWriter { world: world.clone(), log, gateway }, begun };
    (Recordings { world: world.clone(), keys, sessions }, writer)
}

impl Recordings {
    /// Makes ready for a session, before anything of it goes on: what it asks for will be understood, and can be sealed.
    pub(super) async fn prepare(
        &self,
        wanted: RecordingSpec,
        protocol: &HeaderValue,
        head: &Request<()>,
    ) -> Result<PreparedRecording, ProxyError> {
        Channels::check_offered(protocol, head.headers()).map_err(unsupported)?;
        let sealing = Sealing::of(&*self.keys, wanted.organization, RecordingBatch::PURPOSE).await;
        let sealing = sealing.map_err(|error| unavailable(&error))?;
        let target = head.uri().path_and_query().map(PathAndQuery::as_str).unwrap_or_default();
        let target = target.strip_prefix(wire::path::CLUSTER).unwrap_or(target);
        let asked = SessionPiece {
            at_millis: 0,
            channel: SessionChannel::Request,
            bytes: target.as_bytes().to_vec(),
        };
        Ok(PreparedRecording { wanted, sealing, asked })
    }

    /// A recorder for a connection that became this protocol, as the head of the answer says.
    pub(super) fn begin(
        &self,
        PreparedRecording { wanted, sealing, asked }: PreparedRecording,
        protocol: &HeaderValue,
        answer: &HeaderMap,
    ) -> Result<Recorder, ProxyError> {
        let channels = Channels::of(protocol, answer).map_err(unsupported)?;
        let keeps = wanted.keeps;
        let (pieces, receiver) = mpsc::channel(WAITING);
        pieces.try_send(asked).map_err(|error| unavailable(&error))?;
        let session = RecordedSession { wanted, sealing, pieces: receiver };
        self.sessions.send(session).map_err(|_stops| unavailable(&"the gateway is stopping"))?;
        Ok(Recorder {
            began: self.world.clock.monotonic(),
            world: self.world.clone(),
            keeps,
            channels: Mutex::new(channels),
            pieces,
        })
    }
}

fn unsupported(error: Unreadable) -> ProxyError {
    let message =
        format!("{}; use kubectl, or a client with the same protocol", RecordingError::Unreadable(error));
    ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, message)
}

fn unavailable(error: &dyn std::fmt::Display) -> ProxyError {
    let message = format!("{}: {error}; retry", RecordingError::Unavailable);
    ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message)
}

impl Recorder {
    /// Takes the next bytes of one side; waits while the log does not keep up.
    pub(super) async fn record(&self, side: Side, bytes: &[u8]) -> Result<(), RecordingError> {
        let at = self.world.clock.monotonic().saturating_sub(self.began);
        let at_millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let heard = self.channels.lock().read(side, bytes)?;
        for ChannelData { channel, bytes } in
            heard.into_iter().filter(|heard| self.keeps.keeps(heard.channel))
        {
            for piece in bytes.chunks(PIECE) {
                self.send(SessionPiece { at_millis, channel, bytes: piece.to_vec() }).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, piece: SessionPiece) -> Result<(), RecordingError> {
        tokio::select! {
            biased;
            taken = self.pieces.send(piece) => taken.map_err(|_| RecordingError::Unavailable),
            () = self.world.clock.sleep(CAPACITY_TIMEOUT) => Err(RecordingError::Unavailable),
        }
    }
}

/// Appends what recorders took.
pub(crate) struct RecordingsWriter {
    writer: BatchWriter,
    begun: mpsc::UnboundedReceiver<RecordedSession>,
}

struct BatchWriter {
    world: World,
    log: Arc<dyn EventLog>,
    gateway: InstanceId,
}

impl RecordingsWriter {
    /// Writes until no session begins any more, and then until all of them were over.
    pub(crate) async fn run(self, closed: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let Self { writer, mut begun } = self;
        let mut closed = std::pin::pin!(closed);
        let mut written = FuturesUnordered::new();
        let (mut is_closing, mut begin_no_more) = (false, false);
        while !(begin_no_more && written.is_empty()) {
            tokio::select! {
                biased;
                () = &mut closed, if !is_closing => {
                    is_closing = true;
                    begun.close();
                }
                session = begun.recv(), if !begin_no_more => match session {
                    Some(session) => written.push(writer.write(session)),
                    None => begin_no_more = true,
                },
                Some(()) = written.next(), if !written.is_empty() => {}
            }
        }
        Ok(())
    }
}

impl BatchWriter {
    /// Writes a session to its end. What cannot be written ends the session: its recorder finds nobody any more.
    async fn write(&self, session: RecordedSession) {
        let id = session.wanted.session;
        if let Err(error) = self.write_all(session).await {
            tracing::error!(session = %id, error = format!("{error:#}"), "a session is not recorded");
        }
    }

    async fn write_all(
        &self,
        RecordedSession { wanted, sealing, mut pieces }: RecordedSession,
    ) -> anyhow::Result<()> {
        for number in 0.. {
            let batch = self.gather(&mut pieces).await;
            let is_last = batch.is_empty();
            let bound_to = RecordingBatch::bound_to(wanted.session, number, is_last);
            let sealed = sealing.seal(&*self.world.random, &bound_to, &events::encode(&batch)?)?;
            let (session, agent, gateway) = (wanted.session, wanted.agent, self.gateway);
            let batch = RecordingBatch { session, agent, gateway, number, is_last, sealed };
            let record = NewBatch {
                stream: Stream::Recordings,
                organization: wanted.organization,
                writer: session.to_string(),
                data: events::encode(&batch)?,
            };
            append_until_stored(&self.world, &*self.log, record, AppendError::is_transient).await?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// What is said within a moment; nothing once all was.
    async fn gather(&self, pieces: &mut mpsc::Receiver<SessionPiece>) -> Vec<SessionPiece> {
        let mut gathered = Vec::from_iter(pieces.recv().await);
        let mut bytes: usize = gathered.iter().map(|piece| piece.bytes.len() + PIECE_OVERHEAD).sum();
        let mut moment = self.world.clock.sleep(GATHER);
        while !gathered.is_empty() && bytes < BATCH_BYTES {
            tokio::select! {
                biased;
                () = &mut moment => break,
                piece = pieces.recv() => match piece {
                    Some(piece) => {
                        bytes += piece.bytes.len() + PIECE_OVERHEAD;
                        gathered.push(piece);
                    }
                    None => break,
                },
            }
        }
        gathered
    }
}
