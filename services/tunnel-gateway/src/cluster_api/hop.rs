//! Requests that came to a gateway without the agent's tunnel: one hop over the bus to one that has it.
//!
//! A gateway that has a tunnel of an agent serves streams under the agent's own subject, so that NATS knows the way and nobody keeps a list
//! that may be stale. Each request is a byte stream of its own, with credit of its own. Nothing is sent twice: a stream that breaks
//! is a request that broke.

use std::sync::Arc;
use std::time::Duration;

use bus::{ByteReader, ByteStream, ByteWriter, Opening, RequestError, StreamHandler};
use bytes::{Buf, Bytes, BytesMut};
use events::request::RequestContext;
use events::requests::gateway::{ForwardedAnswer, ForwardedRequest, HeaderText};
use events::subject::Subject;
use events::{Actor, AgentId, OrganizationId, Request as _};
use futures::{FutureExt as _, stream};
use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tunnel::BoxError;
use tunnel::body::RequestBody;
use tunnel::wire::{self, cluster};
use world::spawn::TaskHandle;

use super::AnswerBody;
use super::admission::Forwarded;
use super::error::{Hop, ProxyError};
use super::forward::{Attempts, Carried, carry};
use super::upstream;
use crate::gateway::{ASK_TIME, Gateway};
use crate::tunnels::session::Session;

/// Bytes under way in each direction.
const WINDOW: u32 = 1024 * 1024;
/// Largest head of a request or an answer.
const MAXIMUM_HEAD: usize = 512 * 1024;
/// Stands where the length of a piece would.
const TRAILERS: u32 = u32::MAX;

/// A stream to a gateway that has a tunnel of the agent.
pub(super) struct Opened {
    stream: ByteStream,
    /// The head, unless it went with the opening.
    unsent_head: Option<Bytes>,
    /// The opening held the whole request.
    is_sent: bool,
}

/// Opens a stream to whichever gateway has a tunnel of the agent, if one has. The head of what only reads goes with it: that may come to
/// two gateways, when nothing is heard of the first.
pub(super) async fn open(gateway: &Gateway, asked: &Forwarded) -> Result<Option<Opened>, ProxyError> {
    let agent = asked.agent;
    let subject = Subject::agent_request(ForwardedRequest::NAME, agent);
    let head = framed(&forwarded(asked)).map_err(|error| broken(&*error))?;
    let goes_along = cluster::only_reads(asked.head.method(), asked.head.headers())
        && head.len() <= bus::MAXIMUM_FIRST_BYTES;
    let is_sent = goes_along && asked.is_whole;
    let (first, unsent_head) = if goes_along { (head, None) } else { (Bytes::new(), Some(head)) };
    let opening = Opening { first, is_all: is_sent };
    let context = gateway.context(OrganizationId::SYSTEM);
    match gateway.bus.open_stream(&subject, &context, WINDOW, opening).await {
        Ok(stream) => {
            gateway.registry.reconnects().mark_reachable(agent, gateway.world.clock.monotonic());
            Ok(Some(Opened { stream, unsent_head, is_sent }))
        }
        Err(RequestError::NoResponder { .. }) => Ok(None),
        Err(error) => {
            let message = format!("the other gateways do not answer now: {error}");
            Err(ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Replica, message).retry_after(1))
        }
    }
}

fn forwarded(Forwarded { head, head_time, .. }: &Forwarded) -> ForwardedRequest {
    ForwardedRequest {
        method: head.method().to_string(),
        target: head.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        headers: headers_to_list(head.headers()),
        head_time_millis: u64::try_from(head_time.as_millis()).unwrap_or(u64::MAX),
    }
}

fn broken(error: &(impl std::fmt::Display + ?Sized)) -> ProxyError {
    ProxyError::new(StatusCode::BAD_GATEWAY, Hop::Replica, error.to_string())
}

/// Sends a request over such a stream.
pub(super) async fn ask(
    gateway: &Gateway,
    Opened { stream: ByteStream { reader, mut writer }, unsent_head, is_sent }: Opened,
    body: RequestBody,
    head_time: Duration,
) -> Result<Response<AnswerBody>, ProxyError> {
    if let Some(head) = unsent_head {
        writer.0.write(head).await.map_err(|error| broken(&error))?;
    }
    let sending = (!is_sent)
        .then(|| Sending(gateway.world.spawner.spawn("cluster-api hop", Box::pin(write_all(body, writer)))));
    let mut incoming = Incoming { sending, ..Incoming::new(reader) };
    let answer = tokio::select! {
        biased;
        answer = incoming.head::<ForwardedAnswer>() => answer.map_err(|error| broken(&*error))?,
        () = gateway.world.clock.sleep(head_time.saturating_add(ASK_TIME)) => {
            let message = format!("no answer within {head_time:?}");
            return Err(ProxyError::new(StatusCode::GATEWAY_TIMEOUT, Hop::Replica, message));
        }
    };
    match answer {
        ForwardedAnswer::Head { status, headers, has_trailers } => {
            incoming.is_in_pieces = has_trailers;
            let mut response = Response::new(incoming.body());
            *response.status_mut() = StatusCode::from_u16(status).map_err(|error| broken(&error))?;
            *response.headers_mut() = headers_from_list(headers);
            Ok(response)
        }
        ForwardedAnswer::Trouble(forwarded) => Err(ProxyError::from_forwarded(forwarded)),
    }
}

/// Takes the requests of other gateways to an agent, while one of its tunnels is open here.
pub(crate) fn accept(gateway: &Arc<Gateway>, session: &Arc<Session>) -> StreamHandler {
    let (serving, agent) = (Arc::clone(gateway), session.agent);
    Arc::new(move |context: RequestContext, mut stream: ByteStream| {
        let gateway = Arc::clone(&serving);
        Box::pin(async move {
            match context.actor {
                Actor::Service(_) => answer(&gateway, agent, stream).await,
                _ => stream.writer.0.reset("only gateways may request this").await,
            }
        })
    })
}

async fn answer(gateway: &Arc<Gateway>, agent: AgentId, stream: ByteStream) {
    let ByteStream { reader, mut writer } = stream;
    let mut incoming = Incoming::new(reader);
    let head = match incoming.head::<ForwardedRequest>().await {
        Ok(head) => head,
        Err(error) => return writer.0.reset(&error.to_string()).await,
    };
    let asking = asked(gateway, agent, head, incoming.body());
    let answered = tokio::select! {
        biased;
        answered = asking => answered,
        // Whoever asked is gone: nobody waits for the answer.
        () = writer.0.closed() => return,
    };
    let (head, body) = match answered {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let (status, headers) = (parts.status.as_u16(), headers_to_list(&parts.headers));
            let has_trailers = parts.headers.contains_key(TRAILER);
            let body = if has_trailers { in_pieces(body) } else { body };
            (ForwardedAnswer::Head { status, headers, has_trailers }, Some(body))
        }
        Err(error) => (error.into_forwarded(), None),
    };
    let Ok(head) = framed(&head) else { return writer.0.reset("the answer cannot be encoded").await };
    match body {
        Some(mut body) => {
            // What is there of the body already goes with its head, in one piece.
            let begun = body.frame().now_or_never();
            let begins = match &begun {
                Some(Some(Ok(frame))) => frame.data_ref().cloned().unwrap_or_default(),
                _ => Bytes::new(),
            };
            if writer.0.write(joined(head, &begins)).await.is_err() {
                return;
            }
            match begun {
                Some(Some(Err(error))) => writer.0.reset(&error.to_string()).await,
                Some(None) => drop(writer.0.finish().await),
                Some(Some(Ok(_))) | None => write_all(body, writer).await,
            }
        }
        None => {
            if writer.0.write(head).await.is_ok() {
                drop(writer.0.finish().await);
            }
        }
    }
}

/// A body and its trailers in bytes.
fn in_pieces(body: AnswerBody) -> AnswerBody {
    let piece = |frame: Frame<Bytes>| match frame.into_data() {
        Ok(data) => {
            // A frame is never as long.
            let length = u32::try_from(data.len()).unwrap_or(0);
            Frame::data(joined(Bytes::copy_from_slice(&length.to_be_bytes()), &data))
        }
        Err(rest) => {
            let trailers =
                framed(&headers_to_list(&rest.into_trailers().unwrap_or_default())).unwrap_or_default();
            Frame::data(joined(Bytes::copy_from_slice(&TRAILERS.to_be_bytes()), &trailers))
        }
    };
    body.map_frame(piece).boxed_unsync()
}

fn joined(head: Bytes, begins: &Bytes) -> Bytes {
    if begins.is_empty() { head } else { [&*head, begins].concat().into() }
}

async fn asked(
    gateway: &Arc<Gateway>,
    agent: AgentId,
    head: ForwardedRequest,
    body: RequestBody,
) -> Result<Response<AnswerBody>, ProxyError> {
    let bad = |error: http::Error| ProxyError::new(StatusCode::BAD_REQUEST, Hop::Replica, error.to_string());
    // Nothing else of an agent is another gateway's business.
    if !head.target.strip_prefix(wire::path::CLUSTER).is_some_and(|rest| rest.starts_with('/')) {
        return Err(ProxyError::new(
            StatusCode::BAD_REQUEST,
            Hop::Replica,
            "this is not a path of a cluster's API",
        ));
    }
    let uri = http::Uri::builder().scheme("http").authority("agent").path_and_query(head.target);
    let request = Request::builder().method(head.method.as_str()).uri(uri.build().map_err(bad)?);
    let mut request = request.body(body).map_err(bad)?;
    *request.headers_mut() = headers_from_list(head.headers);
    gateway.counts.cluster_hops.inc();
    let limit = Duration::from_millis(head.head_time_millis);
    let mut attempts = Attempts::default();
    loop {
        let connection = upstream::local(gateway, agent)?.ok_or_else(ProxyError::not_connected)?;
        match carry(connection, request, limit, &mut attempts).await? {
            Carried::Answered(answer) => return Ok(answer),
            Carried::Again(again) => request = *again,
        }
    }
}

/// Writes a body to its end, or says that it broke.
async fn write_all(mut body: RequestBody, mut writer: ByteWriter) {
    loop {
        let frame = tokio::select! {
            biased;
            () = writer.0.closed() => return,
            frame = body.frame() => frame,
        };
        let data = match frame {
            None => break,
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => return writer.0.reset(&error.to_string()).await,
        };
        if !data.is_empty() && writer.0.write(data).await.is_err() {
            return;
        }
    }
    drop(writer.0.finish().await);
}

/// What comes in: a head, then a body.
struct Incoming {
    reader: ByteReader,
    /// Read and not taken yet.
    rest: BytesMut,
    /// What goes the other way ends with it.
    sending: Option<Sending>,
    /// Its body comes so, as trailers may follow.
    is_in_pieces: bool,
}

/// A body that is being sent; dropping this resets what was not sent yet.
struct Sending(TaskHandle);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Incoming {
    fn new(reader: ByteReader) -> Self {
        Self { reader, rest: BytesMut::new(), sending: None, is_in_pieces: false }
    }

    async fn head<T: DeserializeOwned>(&mut self) -> Result<T, BoxError> {
        let length = self.read_up_to(4).await?.get_u32() as usize;
        if length > MAXIMUM_HEAD {
            return Err("the head is too large".into());
        }
        let head = self.read_up_to(length).await?;
        Ok(events::decode(&head)?)
    }

    async fn read_up_to(&mut self, bytes: usize) -> Result<BytesMut, BoxError> {
        while self.rest.len() < bytes {
            let piece = self.reader.0.read().await?.ok_or("it ended early")?;
            self.rest.extend_from_slice(&piece);
        }
        Ok(self.rest.split_to(bytes))
    }

    /// Of what is there whole no more than that: who reads on need not wait to see its end.
    fn body(mut self) -> RequestBody {
        if self.reader.0.has_ended() && self.sending.is_none() && !self.is_in_pieces {
            return tunnel::body::full(self.rest.split().freeze());
        }
        let pieces = stream::unfold(Some(self), |incoming| async {
            let mut incoming = incoming?;
            match incoming.frame().await {
                Ok(Some(frame)) => Some((Ok(frame), Some(incoming))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        StreamBody::new(pieces).boxed_unsync()
    }

    async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        while self.rest.is_empty() {
            match self.reader.0.read().await? {
                Some(piece) if self.is_in_pieces => self.rest.extend_from_slice(&piece),
                piece => return Ok(piece.map(Frame::data)),
            }
        }
        if !self.is_in_pieces {
            return Ok(Some(Frame::data(self.rest.split().freeze())));
        }
        let length = self.read_up_to(4).await?.get_u32();
        if length == TRAILERS {
            return Ok(Some(Frame::trailers(headers_from_list(self.head().await?))));
        }
        Ok(Some(Frame::data(self.read_up_to(length as usize).await?.freeze())))
    }
}

fn framed<T: Serialize>(head: &T) -> Result<Bytes, BoxError> {
    let head = events::encode(head)?;
    let length = u32::try_from(head.len())
        .ok()
        .filter(|_| head.len() <= MAXIMUM_HEAD)
        .ok_or("the head is too large")?;
    Ok([&length.to_be_bytes()[..], &head].concat().into())
}

fn headers_to_list(headers: &HeaderMap) -> Vec<(String, HeaderText)> {
    let text = |value: &HeaderValue| HeaderText(value.as_bytes().to_vec());
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// What was headers there is headers here.
fn headers_from_list(listed: Vec<(String, HeaderText)>) -> HeaderMap {
    let header = |(name, value): (String, HeaderText)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::try_from(value.0).ok()?))
    };
    let mut map = HeaderMap::new();
    for (name, value) in listed.into_iter().filter_map(header) {
        map.append(name, value);
    }
    map
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bus::{ReadBytes, StreamReset};
    use http_body::Body as _;

    use super::*;

    /// Everything at once, and nothing more.
    struct Whole(Option<Bytes>);

    #[async_trait]
    impl ReadBytes for Whole {
        async fn read(&mut self) -> Result<Option<Bytes>, StreamReset> {
            Ok(self.0.take())
        }

        fn has_ended(&self) -> bool {
            self.0.is_none()
        }
    }

    #[tokio::test]
    async fn the_length_of_what_is_there_whole_is_known() {
        for text in ["", "a body"] {
            let said = joined(framed(&"head").unwrap(), &Bytes::from(text));
            let mut incoming = Incoming::new(ByteReader(Box::new(Whole(Some(said)))));
            assert_eq!(incoming.head::<String>().await.unwrap(), "head");
            let body = incoming.body();
            assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
            assert_eq!(body.is_end_stream(), text.is_empty());
            assert_eq!(body.collect().await.unwrap().to_bytes(), text);
        }
    }

    fn came(said: &[u8], is_in_pieces: bool) -> Incoming {
        let reader = ByteReader(Box::new(Whole(Some(Bytes::copy_from_slice(said)))));
        Incoming { is_in_pieces, ..Incoming::new(reader) }
    }

    #[tokio::test]
    async fn trailers_survive_the_hop_behind_their_body() {
        let trailers = HeaderMap::from_iter([(TRAILER, HeaderValue::from_static("none"))]);
        let frames = [Frame::data(Bytes::from("one")), Frame::data("two".into()), Frame::trailers(trailers)];
        let frames = frames.map(Ok::<_, BoxError>);
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let said = in_pieces(body).collect().await.unwrap().to_bytes();
        let whole = came(&said, true).body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()[TRAILER], "none");
        assert_eq!(whole.to_bytes(), "onetwo");
        assert!(came(&said[..said.len() - 1], true).body().collect().await.is_err(), "it broke off");
        assert_eq!(came(&[], true).body().collect().await.unwrap().to_bytes(), "", "trailers may not come");
    }

    #[test]
    fn headers_survive_the_hop_each_with_all_its_values() {
        let mut headers = HeaderMap::new();
        headers.append("warning", HeaderValue::from_static("a"));
        headers.append("warning", HeaderValue::from_static("b"));
        headers.append("x-bytes", HeaderValue::from_bytes(&[0xe9]).unwrap());
        assert_eq!(headers_from_list(headers_to_list(&headers)), headers);
    }
}
