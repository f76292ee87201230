//! Connections that become another protocol: exec, attach, port-forward. Bytes go through as they are.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{Either, select};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tunnel::BoxError;
use tunnel::body::RequestBody;
use tunnel::wire::cluster;
use world::World;

use super::AnswerBody;
use super::admission::AdmittedRequest;
use super::error::ProxyError;
use super::forward::ask_while_open;
use super::headers;
use super::open_requests::{End, OpenGuard, OpenRequest};
use super::recording::{Recorder, Side};
use super::slots::RequestSlot;
use crate::gateway::Gateway;

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;
/// Pieces of the client's that wait for the tunnel.
const WAITING: usize = 4;
/// How long a client may stay when the API server has ended a session.
const LAST_WORDS: Duration = Duration::from_secs(10);

type Piece = Result<Frame<Bytes>, BoxError>;
type Client = TokioIo<Upgraded>;

/// Asks the agent to open such a connection, and joins the client's with it.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    AdmittedRequest { guard, asked, below, recording }: AdmittedRequest,
    protocol: HeaderValue,
    upgraded: OnUpgrade,
) -> Result<Response<AnswerBody>, ProxyError> {
    let prepared = match recording {
        Some(wanted) => {
            let prepared = gateway.recordings.prepare(wanted, &protocol, &asked.head).await;
            Some(prepared.inspect_err(|error| guard.open.audit.failed(error.code()))?)
        }
        None => None,
    };
    let (sender, mut receiver) = mpsc::channel::<Piece>(WAITING);
    let pieces = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    let body: RequestBody = StreamBody::new(pieces).boxed_unsync();
    let (mut parts, body) = ask_while_open(gateway, &guard, asked, body).await?.into_parts();
    let became = parts.headers.get(cluster::UPGRADE).is_some() && parts.status == StatusCode::OK;
    parts.headers = guard.check_redirect(parts.status, headers::answered(&parts.headers), below)?;
    let recorder = prepared
        .filter(|_| became)
        .map(|prepared| gateway.recordings.begin(prepared, &protocol, &parts.headers))
        .transpose()
        .inspect_err(|error| guard.open.audit.failed(error.code()))?;
    let code = if became { StatusCode::SWITCHING_PROTOCOLS } else { parts.status };
    guard.open.audit.answered(code);
    parts.version = http::Version::HTTP_11;
    if !became {
        return Ok(Response::from_parts(parts, guard.sent(body).boxed_unsync()));
    }
    parts.status = StatusCode::SWITCHING_PROTOCOLS;
    headers::without_body(&mut parts.headers);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.insert(UPGRADE, protocol);
    let joined = join(gateway.world.clone(), upgraded, sender, body, guard, recorder);
    gateway.world.spawner.spawn("cluster-upgrade", Box::pin(joined));
    Ok(Response::from_parts(parts, Empty::new().map_err(|never| match never {}).boxed_unsync()))
}

async fn join(
    world: World,
    upgraded: OnUpgrade,
    sender: mpsc::Sender<Piece>,
    body: AnswerBody,
    guard: OpenGuard,
    recorder: Option<Recorder>,
) {
    let upgraded = tokio::select! {
        biased;
        _end = guard.open.ended() => return,
        upgraded = upgraded => upgraded,
    };
    let client = match upgraded {
        Ok(client) => TokioIo::new(client),
        Err(error) => {
            tracing::debug!(%error, "a connection was not upgraded");
            drop(sender.send(Err(error.into())).await);
            return;
        }
    };
    let (reader, writer) = tokio::io::split(client);
    let (received, ended) = (guard.open.audit.received(), guard.open.ended());
    let (slot, tape) = (Arc::clone(&guard.slot), Tape { recorder, open: Arc::clone(&guard.open) });
    tokio::select! {
        biased;
        _end = ended => {}
        () = carry(
            world,
            client_to_agent(reader, sender, &received, &slot, &tape),
            agent_to_client(guard.sent(body).boxed_unsync(), writer, &tape),
        ) => {}
    }
}

/// What goes through a session on its way into its recording, if there is to be one.
struct Tape {
    recorder: Option<Recorder>,
    open: Arc<OpenRequest>,
}

impl Tape {
    /// Takes what goes through next. What cannot be recorded ends the session, and does not go on.
    async fn record(&self, side: Side, piece: &[u8]) {
        let Some(recorder) = &self.recorder else { return };
        if let Err(error) = recorder.record(side, piece).await {
            tracing::warn!(%error, "session ended");
            self.open.end(End::Cut(error.to_string()));
            std::future::pending().await
        }
    }
}

/// Until both have ended. A client that broke off ends the other direction; one that says nothing more does not, but the API server
/// is the one who ends a session, and its client then has a while to go.
async fn carry(world: World, up: impl Future<Output = bool>, down: impl Future<Output = ()>) {
    match select(pin!(up), pin!(down)).await {
        Either::Left((is_in_order, down)) => {
            if is_in_order {
                down.await;
            }
        }
        Either::Right(((), up)) => drop(select(up, world.clock.sleep(LAST_WORDS)).await),
    }
}

/// What the client says; its end is the end of the request's body. Whether it ended in order.
async fn client_to_agent(
    mut client: ReadHalf<Client>,
    sender: mpsc::Sender<Piece>,
    received: &AtomicU64,
    slot: &RequestSlot,
    tape: &Tape,
) -> bool {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        let read = tokio::select! {
            biased;
            () = sender.closed() => return true,
            read = client.read_buf(&mut buffer) => read,
        };
        let piece = match read {
            Ok(0) => return true,
            Ok(bytes) => {
                received.fetch_add(bytes as u64, Ordering::Relaxed);
                if let Some(pause) = slot.pace(bytes) {
                    pause.await;
                }
                let piece = buffer.split().freeze();
                tape.record(Side::Client, &piece).await;
                Ok(Frame::data(piece))
            }
            Err(error) => Err(error.into()),
        };
        let is_broken = piece.is_err();
        if sender.send(piece).await.is_err() || is_broken {
            return !is_broken;
        }
    }
}

/// What the API server says; its end is the end of what is written to the client.
async fn agent_to_client(mut body: AnswerBody, mut client: WriteHalf<Client>, tape: &Tape) {
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                tracing::debug!(?error, "a session broke off behind the tunnel");
                break;
            }
        };
        let Ok(piece) = frame.into_data() else { continue };
        tape.record(Side::Cluster, &piece).await;
        if client.write_all(&piece).await.is_err() || client.flush().await.is_err() {
            return;
        }
    }
    drop(client.shutdown().await);
}
