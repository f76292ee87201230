use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use futures::FutureExt as _;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use world::World;

use super::alive::{Lost, silence};
use super::sending::send;
use crate::BoxError;
use crate::body::{Coalesced, Guard, GuardedBody};
use crate::runtime::within;
use crate::settings::{
    CONNECTION_WINDOW_BYTES, Keepalive, MAXIMUM_HEADER_LIST_BYTES, MAXIMUM_STREAMS, RESET_STREAM_DURATION,
    SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
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
        .max_concurrent_reset_streams(MAXIMUM_STREAMS as usize)
        .reset_stream_duration(RESET_STREAM_DURATION)
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
                let asked = Asked { is_head: request.method() == Method::HEAD, respond };
                let given_up = request.body().given_up();
                let answering = asked.answer(world.clone(), service(request), given_up);
                world.spawner.spawn("tunnel-stream", Box::pin(answering));
            }
            () = &mut drain => connection.graceful_shutdown(),
            lost = &mut silence => return Err(lost),
        }
    }
}

/// A request that wants an answer.
struct Asked {
    is_head: bool,
    respond: SendResponse<Bytes>,
}

impl Asked {
    async fn answer<B, E>(
        mut self,
        world: World,
        answering: impl Future<Output = Result<Response<B>, E>>,
        given_up: impl Future<Output = ()>,
    ) where
        B: Body<Data = Bytes, Error: Into<BoxError> + Send + Unpin>,
        E: Into<BoxError>,
    {
        let is_given_up = tokio::select! {
            biased;
            () = given_up => true,
            () = self.answer_whole(&world, answering) => false,
        };
        if is_given_up {
            // Who reads no more of a request is not to seem to go on with it.
            self.respond.send_reset(Reason::CANCEL);
        }
    }

    async fn answer_whole<B, E>(
        &mut self,
        world: &World,
        answering: impl Future<Output = Result<Response<B>, E>>,
    ) where
        B: Body<Data = Bytes, Error: Into<BoxError> + Send + Unpin>,
        E: Into<BoxError>,
    {
        let answered = tokio::select! {
            biased;
            _reset = poll_fn(|context| self.respond.poll_reset(context)) => return,
            answered = answering => answered,
        };
        let (head, body) = match answered {
            Ok(answer) => answer.into_parts(),
            Err(error) => {
                tracing::debug!(error = error.into(), "a request has no answer");
                return self.respond.send_reset(Reason::INTERNAL_ERROR);
            }
        };
        // An answer to HEAD has no body, whatever it says (RFC 9110, section 9.3.2).
        let is_whole = self.is_head || body.is_end_stream();
        let mut head = Response::from_parts(head, ());
        let length = body.size_hint().exact().filter(|_| !body.is_end_stream());
        if let Some(length) = length {
            head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        match self.respond.send_response(head, is_whole) {
            Ok(stream) if !is_whole => send(Coalesced::new(world, body), stream).await,
            Ok(_whole) => {}
            Err(error) => {
                tracing::debug!(%error, "an answer cannot be sent");
                self.respond.send_reset(Reason::INTERNAL_ERROR);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use h2::client::SendRequest;
    use http_body::Frame;
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;

    type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

    /// Answers what begins with `/answers`, and reads of no request more than its head.
    async fn reads_nothing(request: Request<GuardedBody>) -> Result<Response<AnswerBody>, BoxError> {
        let body = match request.uri().path() {
            "/answers/whole" => Full::from("{}").map_err(|never| match never {}).boxed_unsync(),
            "/answers/endlessly" => {
                let unread = request.into_body();
                let endless = futures::stream::once(async move {
                    let _held = unread;
                    pending::<Result<Frame<Bytes>, BoxError>>().await
                });
                StreamBody::new(endless).boxed_unsync()
            }
            _ => {
                let _held = request;
                pending().await
            }
        };
        Ok(Response::new(body))
    }

    async fn connected() -> SendRequest<Bytes> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let serving = async move {
            let served = serve(&World::real(), far, Keepalive::default(), reads_nothing, pending()).await;
            drop(served);
        };
        World::real().spawner.spawn("agent", Box::pin(serving));
        let (sender, connection) = h2::client::handshake(near).await.unwrap();
        World::real().spawner.spawn("gateway", Box::pin(async move { drop(connection.await) }));
        sender
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_which_nobody_reads_more_is_reset_before_its_answer_and_within_it() {
        let mut sender = connected().await;
        let more_than_waits = Bytes::from(vec![b'x'; Guard::PATIENT.queue_bytes + 1]);
        for path in ["/silent", "/answers/endlessly"] {
            let request = Request::post(format!("http://agent{path}")).body(()).unwrap();
            let (answer, mut stream) = sender.send_request(request, false).unwrap();
            stream.send_data(more_than_waits.clone(), false).unwrap();
            let error = match answer.await {
                Ok(answer) => answer.into_body().data().await.unwrap().unwrap_err(),
                Err(error) => error,
            };
            assert_eq!((error.is_reset(), error.reason()), (true, Some(Reason::CANCEL)), "{path}");
        }
    }

    #[tokio::test]
    async fn an_answer_to_head_has_no_body() {
        let request = Request::head("http://agent/answers/whole").body(()).unwrap();
        let answer = connected().await.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(answer.headers()[CONTENT_LENGTH], "2");
        assert!(answer.into_body().is_end_stream());
    }
}
