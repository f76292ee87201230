//! GraphQL over WebSocket, by the protocol `graphql-transport-ws`.
//!
//! A browser sets no header of a WebSocket, so the token may come in the payload of `connection_init`. One task reads and writes a connection;
//! each operation is a task of its own, whose answers pass through a small queue: a reader who takes nothing is cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::requests::authz::Principal;
use events::{Refusal, RefusalKind, Sha256};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use world::spawn::TaskHandle;

use super::asker::Asker;
use super::failure;
use super::request::GraphqlRequest;
use super::slots::Slot;
use super::sse::{PATIENCE, SIGNED_OUT, TOO_SLOW};
use crate::app::{App, MAXIMUM_BODY, context};
use crate::problem;

/// The protocol.
const PROTOCOL: &str = "graphql-transport-ws";
/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long a client may take until it says who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How often a quiet connection is pinged, and the token looked at again.
const BEAT: Duration = Duration::from_secs(10);
/// Answers of all operations that wait for a reader.
const WAITING: usize = 16;

/// Whether a request asks for a WebSocket.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Agrees on the WebSocket, and serves it.
pub(super) async fn accept(app: Arc<App>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let refuse = |message: &str| problem::response(&Refusal::invalid("headers", message));
    if parts.method != Method::GET
        || parts.headers.get(header::SEC_WEBSOCKET_VERSION) != Some(&HeaderValue::from_static("13"))
    {
        return refuse("a WebSocket is opened by GET, in version 13");
    }
    let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    if !offered.any(|protocol| protocol.trim() == PROTOCOL) {
        return refuse("the WebSocket must offer the protocol graphql-transport-ws");
    }
    let known = match parts.headers.contains_key(header::AUTHORIZATION) {
        true => match app.callers.identify(&app.world, &*app.bus, &parts.headers).await {
            Ok(known) => Some(known),
            Err(refusal) => return problem::response(&refusal),
        },
        false => None,
    };
    let Some(accepted) = parts.headers.get(header::SEC_WEBSOCKET_KEY).and_then(accept_of) else {
        return refuse("the WebSocket has no key");
    };
    let Some(upgrade) = parts.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
        return refuse("this connection cannot become a WebSocket: use HTTP/1.1");
    };
    let Ok(place) = Arc::clone(&app.graphql.all_sockets).try_acquire_owned() else {
        let message = "limit `allWebSockets` reached; retry";
        return problem::response(&Refusal::new(RefusalKind::Unavailable, message));
    };
    let spawner = Arc::clone(&app.world.spawner);
    let serving = async move {
        let _place = place;
        match upgrade.await {
            Ok(upgraded) => serve(app, upgraded, known).await,
            Err(error) => tracing::debug!(%error, "connection did not become a WebSocket"),
        }
    };
    spawner.spawn("console-graphql-websocket", Box::pin(serving));
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL)),
        (header::SEC_WEBSOCKET_ACCEPT, accepted),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

fn accept_of(key: &HeaderValue) -> Option<HeaderValue> {
    let bytes = [key.as_bytes(), GUID.as_bytes()].concat();
    HeaderValue::from_str(&STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes))).ok()
}

type Known = (Sha256, Principal);

/// Why a connection ends: a code of the protocol or of RFC 6455, and words. `None`: it is gone.
type Closed = Option<(u16, String)>;

fn closed<T>(code: u16, reason: impl Into<String>) -> Result<T, Closed> {
    Err(Some((code, reason.into())))
}

/// What a client says.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    ConnectionInit { payload: Option<Map<String, Value>> },
    Subscribe { id: String, payload: Value },
    Complete { id: String },
    Ping {},
    Pong {},
}

/// What an operation says. It ends with `complete` or `error`.
struct Answer {
    id: String,
    /// Which of the operations that had this id.
    number: u64,
    message: Value,
    is_last: bool,
}

struct Connection {
    app: Arc<App>,
    socket: WebSocketStream<TokioIo<Upgraded>>,
    /// Who the upgrade's token says it is.
    offered: Option<Known>,
    /// Who it is, once the client has introduced itself.
    known: Option<Known>,
    /// Its place among the user's WebSockets.
    place: Option<Slot>,
    operations: BTreeMap<String, (u64, TaskHandle)>,
    /// Operations until now.
    count: u64,
    answers: mpsc::Sender<Answer>,
}

async fn serve(app: Arc<App>, upgraded: Upgraded, offered: Option<Known>) {
    let mut config = WebSocketConfig::default();
    (config.max_message_size, config.max_frame_size) = (Some(MAXIMUM_BODY), Some(MAXIMUM_BODY));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (answers, waiting) = mpsc::channel(WAITING);
    let mut connection = Connection {
        app,
        socket,
        offered,
        known: None,
        place: None,
        operations: BTreeMap::new(),
        count: 0,
        answers,
    };
    let ended = connection.run(waiting).await;
    for (_, operation) in connection.operations.values() {
        operation.abort();
    }
    if let Some((code, reason)) = ended {
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        let clock = Arc::clone(&connection.app.world.clock);
        tokio::select! {
            _ = connection.socket.close(Some(frame)) => {}
            () = clock.sleep(PATIENCE) => {}
        }
    }
}

impl Connection {
    async fn run(&mut self, mut answers: mpsc::Receiver<Answer>) -> Closed {
        match self.follow(&mut answers).await {
            Ok(()) => Some((1001, "the server stops".to_owned())),
            Err(closed) => closed,
        }
    }

    async fn follow(&mut self, answers: &mut mpsc::Receiver<Answer>) -> Result<(), Closed> {
        let clock = Arc::clone(&self.app.world.clock);
        let mut changes = self.app.changes.subscribe();
        let introduced_until = clock.monotonic().saturating_add(INTRODUCTION);
        let mut beat = clock.monotonic().saturating_add(BEAT);
        loop {
            let until = if self.known.is_some() { beat } else { introduced_until };
            let wait = until.saturating_sub(clock.monotonic());
            tokio::select! {
                biased;
                () = self.app.shutdown.requested() => return Ok(()),
                _ = changes.changed() => self.look().await?,
                () = clock.sleep(wait) => {
                    if self.known.is_none() {
                        return closed(4408, "Connection initialisation timeout");
                    }
                    beat = clock.monotonic().saturating_add(BEAT);
                    self.look().await?;
                    self.write(Message::Ping(bytes::Bytes::new())).await?;
                }
                message = self.socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.hear(text.as_str()).await?,
                    Some(Ok(Message::Binary(_))) => return closed(4400, "expected text"),
                    // Pings are answered by the library, with what is written next.
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(None),
                },
                answer = answers.recv() => if let Some(answer) = answer {
                    self.answer(answer).await?;
                },
            }
        }
    }

    /// Ends the connection of a token that does not count any more.
    async fn look(&mut self) -> Result<(), Closed> {
        let Some((token, _)) = &self.known else { return Ok(()) };
        let is_live = self.app.callers.is_live(&self.app.world, &*self.app.bus, *token).await;
        if is_live { Ok(()) } else { closed(4403, SIGNED_OUT) }
    }

    fn asker(&self, token: Sha256, principal: &Principal) -> Arc<Asker> {
        let context = context(&self.app.world, &HeaderMap::new(), principal);
        Asker::new(Arc::clone(&self.app), context, token, None)
    }

    async fn hear(&mut self, text: &str) -> Result<(), Closed> {
        let said = match serde_json::from_str(text) {
            Ok(said) => said,
            Err(error) => return closed(4400, short(&format!("invalid message: {error}"))),
        };
        match said {
            Said::ConnectionInit { payload } => self.introduce(payload.unwrap_or_default()).await,
            Said::Subscribe { id, payload } => self.subscribe(id, payload).await,
            Said::Complete { id } => {
                if let Some((_, operation)) = self.operations.remove(&id) {
                    operation.abort();
                }
                Ok(())
            }
            Said::Ping {} => self.say(&json!({ "type": "pong" })).await,
            Said::Pong {} => Ok(()),
        }
    }

    async fn introduce(&mut self, payload: Map<String, Value>) -> Result<(), Closed> {
        if self.known.is_some() {
            return closed(4429, "Too many initialisation requests");
        }
        let known = match self.offered.take() {
            Some(known) => Ok(known),
            None => {
                let said = payload.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
                let value = said.and_then(|(_, value)| HeaderValue::from_str(value.as_str()?).ok());
                let headers = value.map(|value| (header::AUTHORIZATION, value)).into_iter().collect();
                self.app.callers.identify(&self.app.world, &*self.app.bus, &headers).await
            }
        };
        match known {
            Ok(known) => {
                match self.app.graphql.sockets.take(&known.1.actor) {
                    Ok(place) => self.place = Some(place),
                    Err(full) => return closed(4403, short(&full.message)),
                }
                self.known = Some(known);
            }
            Err(refusal) => return closed(4403, short(&format!("Forbidden: {refusal}"))),
        }
        self.say(&json!({ "type": "connection_ack" })).await
    }

    async fn subscribe(&mut self, id: String, payload: Value) -> Result<(), Closed> {
        let Some((token, principal)) = &self.known else { return closed(4401, "Unauthorized") };
        if self.operations.contains_key(&id) {
            return closed(4409, short(&format!("Subscriber for {id} already exists")));
        }
        let prepared =
            GraphqlRequest::of_value(payload).map_err(|refusal| vec![failure::server_error(&refusal)]);
        let asker = self.asker(*token, principal);
        let started = asker.start().await.map_err(|refusal| vec![failure::server_error(&refusal)]);
        let ready = started.and(prepared).and_then(GraphqlRequest::prepared).and_then(|request| {
            let slot = self.app.graphql.slots.take(&principal.actor).map_err(|full| vec![full])?;
            Ok((request, slot))
        });
        let (request, slot) = match ready {
            Ok(ready) => ready,
            Err(errors) => {
                let response = failure::complete(async_graphql::Response::from_errors(errors));
                let message = json!({ "id": id, "type": "error", "payload": response.errors });
                return self.say(&message).await;
            }
        };
        let responses = self.app.graphql.schema.execute_stream(request.data(asker));
        self.count = self.count.saturating_add(1);
        let (answers, of, number) = (self.answers.clone(), id.clone(), self.count);
        let task = self.app.world.spawner.spawn(
            "console-graphql-operation",
            Box::pin(async move {
                forward(responses, (&of, number), &answers).await;
                drop(slot);
            }),
        );
        self.operations.insert(id, (number, task));
        Ok(())
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), Closed> {
        // What was said before its client ended it is of no use any more.
        let is_open = self.operations.get(&answer.id).is_some_and(|(number, _)| *number == answer.number);
        if !is_open {
            return Ok(());
        }
        if answer.is_last {
            self.operations.remove(&answer.id);
        }
        self.say(&answer.message).await
    }

    async fn say(&mut self, message: &Value) -> Result<(), Closed> {
        self.write(Message::text(message.to_string())).await
    }

    async fn write(&mut self, message: Message) -> Result<(), Closed> {
        let clock = Arc::clone(&self.app.world.clock);
        tokio::select! {
            biased;
            written = self.socket.send(message) => written.map_err(|_| None),
            () = self.app.shutdown.requested() => Err(None),
            () = clock.sleep(PATIENCE) => closed(1013, TOO_SLOW),
        }
    }
}

/// Passes the answers of one operation on.
async fn forward(
    mut responses: futures::stream::BoxStream<'static, async_graphql::Response>,
    (id, number): (&str, u64),
    answers: &mpsc::Sender<Answer>,
) {
    let mut is_first = true;
    let last = loop {
        let Some(response) = responses.next().await else { break json!({ "id": id, "type": "complete" }) };
        let response = failure::complete(response);
        // Errors before anything was executed end an operation.
        let is_refused = is_first
            && response.data == async_graphql::Value::Null
            && response.errors.iter().any(|error| error.path.is_empty());
        if is_refused {
            break json!({ "id": id, "type": "error", "payload": response.errors });
        }
        is_first = false;
        let message = json!({ "id": id, "type": "next", "payload": response });
        if answers.send(Answer { id: id.to_owned(), number, message, is_last: false }).await.is_err() {
            return;
        }
    };
    // If nobody listens any more, the connection is gone.
    let _ = answers.send(Answer { id: id.to_owned(), number, message: last, is_last: true }).await;
}

/// As much of a reason as a close frame holds.
fn short(reason: &str) -> String {
    let mut end = reason.len().min(120);
    while !reason.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    reason.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept_of(&key).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_reason_fits_into_a_close_frame() {
        assert_eq!(short("too slow"), "too slow");
        assert_eq!(short(&"ü".repeat(100)), "ü".repeat(60));
    }
}
