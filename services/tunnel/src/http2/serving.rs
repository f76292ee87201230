use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use futures::FutureExt as _;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use world::World;

use super::alive::{Lost, silence};
use super::sending::send;
use crate::BoxError;
use crate::body::{Coalesced, Guard, GuardedBody};
use crate::runtime::within;
use crate::settings::{
    CONNECTION_WINDOW_BYTES, Keepalive, MAXIMUM_HEADER_LIST_BYTES, MAXIMUM_STREAMS, SEND_BUFFER_BYTES,
    STREAM_WINDOW_BYTES,
};

/// Answers requests over a connection, as its server, until it has ended. Once `drain` is ready no new request is taken (GOAWAY), and it
/// ends when those have that run. A request that its sender gives up is dropped.
///
/// # Errors
/// When the connection ended otherwise than in order.
pub(crate) async fn serve<T, F, B, E>(
    world: &World,
    io: T,
    keepalive: Keepalive,
    service: impl Fn(Request<GuardedBody>) -> F,
    drain: impl Future<Output = ()>,
) -> Result<(), Lost>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError> + Send + Unpin> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let mut settings = Builder::new();
    settings
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAXIMUM_STREAMS)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES);
    let timeout = keepalive.timeout;
    let begun = within(world, timeout, settings.handshake(io)).await.ok_or(Lost::Silent { timeout })?;
    let mut connection = begun.map_err(Lost::Broken)?;
    let mut silence = pin!(silence(world, connection.ping_pong(), keepalive));
    let mut drain = pin!(drain.fuse());
    loop {
        tokio::select! {
            biased;
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted.map_err(Lost::Broken)?;
                let request = request.map(|stream| GuardedBody::new(world, Guard::PATIENT, stream));
                let answering = answer(world.clone(), service(request), respond);
                world.spawner.spawn("tunnel-stream", Box::pin(answering));
            }
            () = &mut drain => connection.graceful_shutdown(),
            lost = &mut silence => return Err(lost),
        }
    }
}

async fn answer<B, E>(
    world: World,
    answering: impl Future<Output = Result<Response<B>, E>>,
    mut respond: SendResponse<Bytes>,
) where
    B: Body<Data = Bytes, Error: Into<BoxError> + Send + Unpin>,
    E: Into<BoxError>,
{
    let answered = tokio::select! {
        biased;
        _reset = poll_fn(|context| respond.poll_reset(context)) => return,
        answered = answering => answered,
    };
    let (head, body) = match answered {
        Ok(answer) => answer.into_parts(),
        Err(error) => {
            tracing::debug!(error = error.into(), "a request has no answer");
            return respond.send_reset(Reason::INTERNAL_ERROR);
        }
    };
    let is_whole = body.is_end_stream();
    let mut head = Response::from_parts(head, ());
    if let Some(length) = body.size_hint().exact().filter(|_| !is_whole) {
        head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    match respond.send_response(head, is_whole) {
        Ok(stream) if !is_whole => send(Coalesced::new(&world, body), stream).await,
        Ok(_whole) => {}
        Err(error) => {
            tracing::debug!(%error, "an answer cannot be sent");
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}
