//! GraphQL over server-sent events, in distinct connections mode: an answer is a stream of `next` and one `complete`.
//!
//! The `id` of an event is a position, so that a client that comes again with `Last-Event-ID` goes on where it was.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::Response as GraphqlResponse;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use events::{Refusal, RefusalKind};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;

use super::asker::Asker;
use super::failure;
use super::slots::Slot;

/// How often a quiet answer shows that it lives, and the caller's token is looked at again.
const BEAT: Duration = Duration::from_secs(10);
/// Events that wait for a reader.
const WAITING: usize = 16;
/// How long an event waits for a reader that takes none.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Why a slow reader is cut off.
pub(super) const TOO_SLOW: &str = "cut off: the reader takes no events; begin again with the last position";
/// Why a subscription ends whose token does.
pub(super) const SIGNED_OUT: &str = "the token is not valid any more";

/// What ends an answer before its operation does.
enum End {
    /// Nobody listens, or the server stops.
    Silent,
    /// The message to the reader.
    Told(Refusal),
}

/// An answer that goes on while there is something to say and somebody listens.
pub(super) fn answer(
    asker: Arc<Asker>,
    slot: Slot,
    responses: BoxStream<'static, GraphqlResponse>,
) -> Response {
    let (sender, receiver) = mpsc::channel(WAITING);
    let spawner = Arc::clone(&asker.app.world.spawner);
    spawner.spawn("console-graphql-events", Box::pin(run(asker, slot, responses, sender)));
    let pieces = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|piece: Bytes| (Ok::<_, std::convert::Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn run(
    asker: Arc<Asker>,
    slot: Slot,
    mut responses: BoxStream<'static, GraphqlResponse>,
    sender: mpsc::Sender<Bytes>,
) {
    // A place for the last word, which is there also when all others are taken.
    let Ok(last) = sender.clone().reserve_owned().await else { return };
    let ended = forward(&asker, &mut responses, &sender).await;
    drop((responses, slot));
    let piece = match ended {
        Ok(()) => complete(),
        Err(End::Silent) => return,
        Err(End::Told(refusal)) => {
            let told = GraphqlResponse::from_errors(vec![failure::server_error(&refusal)]);
            [next(&told, None), complete().to_vec()].concat().into()
        }
    };
    last.send(piece);
}

async fn forward(
    asker: &Asker,
    responses: &mut BoxStream<'static, GraphqlResponse>,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), End> {
    let clock = Arc::clone(&asker.app.world.clock);
    let mut changes = asker.app.changes.subscribe();
    let mut beat = clock.monotonic().saturating_add(BEAT);
    loop {
        let wait = beat.saturating_sub(clock.monotonic());
        let piece = tokio::select! {
            biased;
            () = asker.app.shutdown.requested() => return Err(End::Silent),
            () = sender.closed() => return Err(End::Silent),
            _ = changes.changed() => None,
            () = clock.sleep(wait) => {
                beat = clock.monotonic().saturating_add(BEAT);
                Some(Bytes::from_static(b":\n\n"))
            }
            response = responses.next() => match response {
                Some(response) => {
                    let position = asker.reached();
                    let piece = next(&failure::complete(response), position.as_deref());
                    say(asker, sender, piece.into()).await?;
                    continue;
                }
                None => return Ok(()),
            },
        };
        if !asker.is_live().await {
            return Err(End::Told(Refusal::new(RefusalKind::Unauthenticated, SIGNED_OUT)));
        }
        if let Some(piece) = piece {
            say(asker, sender, piece).await?;
        }
    }
}

async fn say(asker: &Asker, sender: &mpsc::Sender<Bytes>, piece: Bytes) -> Result<(), End> {
    tokio::select! {
        biased;
        sent = sender.send(piece) => sent.map_err(|_| End::Silent),
        () = asker.app.shutdown.requested() => Err(End::Silent),
        () = asker.sleep(PATIENCE) => Err(End::Told(Refusal::new(RefusalKind::Unavailable, TOO_SLOW))),
    }
}

/// An event, with the position behind it as its id.
fn next(response: &GraphqlResponse, position: Option<&str>) -> Vec<u8> {
    let text = serde_json::to_string(response).unwrap_or_default();
    let id = position.map(|position| format!("id: {position}\n")).unwrap_or_default();
    format!("{id}event: next\ndata: {text}\n\n").into_bytes()
}

fn complete() -> Bytes {
    Bytes::from_static(b"event: complete\ndata:\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_position_as_its_id() {
        let response = GraphqlResponse::new(async_graphql::value!({ "a": 1 }));
        let text = |position| String::from_utf8(next(&response, position)).unwrap();
        assert_eq!(text(Some("p_a")), "id: p_a\nevent: next\ndata: {\"data\":{\"a\":1}}\n\n");
        assert_eq!(text(None), "event: next\ndata: {\"data\":{\"a\":1}}\n\n");
    }
}
