use std::future::poll_fn;

use bytes::Bytes;
use futures::FutureExt as _;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use world::World;

use super::is_close_in_order;
use super::sending::send;
use crate::body::{Coalesced, RequestBody};

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The other side took nothing of the request: it can be sent over another connection.
    #[error(transparent)]
    NotTaken(h2::Error),
    /// The other side took nothing of the request, for now (RFC 9113, section 8.7): it can be sent again.
    #[error(transparent)]
    Refused(h2::Error),
    /// Such a request is never taken.
    #[error(transparent)]
    Unsendable(h2::Error),
    /// What became of the request is not known.
    #[error(transparent)]
    Broken(h2::Error),
}

/// Sends a request: its head, and its body as that comes. Gives its answer's head as soon as it is there. Dropped before, it takes the
/// request back.
///
/// # Errors
/// See [`ExchangeError`].
pub async fn exchange(
    world: &World,
    mut sender: SendRequest<Bytes>,
    mut head: Request<()>,
    body: RequestBody,
) -> Result<Response<RecvStream>, ExchangeError> {
    poll_fn(|context| sender.poll_ready(context)).await.map_err(ExchangeError::NotTaken)?;
    announce_length(&mut head, &body);
    let is_whole = body.is_end_stream();
    let (mut answer, stream) = sender.send_request(head, is_whole).map_err(|error| {
        if error.is_io() || error.is_go_away() {
            ExchangeError::NotTaken(error)
        } else {
            ExchangeError::Unsendable(error)
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
    heard.map_err(|error| match error.reason() {
        _ if is_close_in_order(&error) => ExchangeError::NotTaken(error),
        Some(Reason::REFUSED_STREAM) if error.is_remote() => ExchangeError::Refused(error),
        _ => ExchangeError::Broken(error),
    })
}

/// The length of what is known whole, where a reader would miss it (RFC 9110, section 8.6).
fn announce_length(head: &mut Request<()>, body: &RequestBody) {
    let has_contents = matches!(*head.method(), Method::POST | Method::PUT | Method::PATCH);
    let known = body.size_hint().exact().filter(|length| *length != 0 || has_contents);
    if let Some(length) = known {
        head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}
