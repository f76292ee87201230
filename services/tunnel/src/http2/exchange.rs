use std::future::poll_fn;

use bytes::Bytes;
use futures::FutureExt as _;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use world::World;

use crate::body::{Coalesced, RequestBody};

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// The other side took nothing of the request: it can be sent over another connection.
    #[error("the request was not taken")]
    NotTaken(#[source] h2::Error),
    /// Such a request is never taken.
    #[error("the request cannot be sent")]
    Unsendable(#[source] h2::Error),
    /// What became of the request is not known.
    #[error("no answer came")]
    Broken(#[source] h2::Error),
}

/// Sends a request: its head, and its body as that comes. Gives its answer's head as soon as it is there. Dropped before, it takes the
/// request back.
///
/// # Errors
/// See [`Unheard`].
pub async fn exchange(
    world: &World,
    mut sender: SendRequest<Bytes>,
    mut head: Request<()>,
    body: RequestBody,
) -> Result<Response<RecvStream>, Unheard> {
    poll_fn(|context| sender.poll_ready(context)).await.map_err(Unheard::NotTaken)?;
    announce_length(&mut head, &body);
    let is_whole = body.is_end_stream();
    let (mut answer, stream) = sender.send_request(head, is_whole).map_err(|error| {
        if error.is_io() || error.is_go_away() {
            Unheard::NotTaken(error)
        } else {
            Unheard::Unsendable(error)
        }
    })?;
    let heard = if is_whole {
        answer.await
    } else {
        let mut sending = send(Coalesced::new(world, body), stream).boxed();
        tokio::select! {
            biased;
            () = &mut sending => answer.await,
            heard = &mut answer => {
                if heard.is_ok() {
                    // An answer may begin before the request's body ends, and both go on.
                    world.spawner.spawn("request-body", sending);
                }
                heard
            }
        }
    };
    heard.map_err(
        |error| {
            if was_not_taken(&error) { Unheard::NotTaken(error) } else { Unheard::Broken(error) }
        },
    )
}

/// Whether the other side, as it closes the connection in order, has said that it did not take a request. One that it took it answers.
fn was_not_taken(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}

/// The length of what is known whole, where a reader would miss it (RFC 9110, section 8.6).
fn announce_length(head: &mut Request<()>, body: &RequestBody) {
    let has_contents = matches!(*head.method(), Method::POST | Method::PUT | Method::PATCH);
    let known = body.size_hint().exact().filter(|length| *length != 0 || has_contents);
    if let Some(length) = known {
        head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

/// Sends a body until its end, or until the other side wants no more of it.
async fn send(mut body: Coalesced<RequestBody>, mut stream: SendStream<Bytes>) {
    loop {
        let frame = tokio::select! {
            biased;
            _reset = poll_fn(|context| stream.poll_reset(context)) => return,
            frame = body.frame() => frame,
        };
        let sent = match frame.map(|frame| frame.map(|frame| frame.into_data())) {
            Some(Ok(Ok(data))) => {
                if !has_room(&mut stream).await {
                    return;
                }
                let is_last = body.is_end_stream();
                stream.send_data(data, is_last).map(|()| is_last)
            }
            Some(Ok(Err(rest))) => {
                let trailers = rest.into_trailers().unwrap_or_default();
                stream.send_trailers(trailers).map(|()| true)
            }
            Some(Err(error)) => {
                tracing::debug!(error, "a request's body broke off");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return;
            }
            None => stream.send_data(Bytes::new(), true).map(|()| true),
        };
        match sent {
            Ok(false) => {}
            Ok(true) => return,
            // Such as trailers that may not be sent.
            Err(error) => {
                tracing::debug!(%error, "a request's body cannot be sent");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return;
            }
        }
    }
}

/// Waits until the stream takes a piece, of any size: what is over its window waits in it. Whether it takes one at all.
async fn has_room(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
    }
    true
}
