//! Requests of the server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use chassis::traces;
use events::desired::{DesiredSource, DesiredState};
use events::requests::rights::ReviewRights;
use events::{AgentId, InstanceId, Refusal, RefusalKind, Sha256, SourceId};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tokio::sync::watch;
use tower::BoxError;
use tracing::{Instrument as _, Span};
use tunnel::wire::{self, Acknowledged, AgentInfo, Objects, StaleRevision};

use super::events_answer;
use crate::applier::{self, Shared};
use crate::cluster_api::{ClusterApi, is_cluster_path};
use crate::desired::PutError;
use crate::observer::Observer;
use crate::outbox::ObservationQueue;

/// Body of an answer. One that fails resets its stream.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// A refusal on its way out.
type Refused = Box<Response<AnswerBody>>;
type Answered = Result<Response<AnswerBody>, Refused>;

/// Answers the server. Cheap to clone.
#[derive(Clone)]
pub struct AgentService {
    shared: Arc<Shared>,
    observer: Arc<Observer>,
    cluster_api: ClusterApi,
    agent: Arc<watch::Sender<Option<AgentId>>>,
    version: &'static str,
}

impl AgentService {
    /// Over the applier's state, the observer's and the cluster's API; `agent` learns who this agent is.
    #[must_use]
    pub const fn new(
        shared: Arc<Shared>,
        observer: Arc<Observer>,
        cluster_api: ClusterApi,
        agent: Arc<watch::Sender<Option<AgentId>>>,
        version: &'static str,
    ) -> Self {
        Self { shared, observer, cluster_api, agent, version }
    }

    /// Which process this is.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.shared.instance
    }

    /// The last epoch in which it applied.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.outbox.epoch()
    }

    /// The digest of the desired state that it has, as it was sent.
    #[must_use]
    pub fn desired(&self) -> Option<Sha256> {
        self.shared.desired.view().map(|view| view.digest)
    }

    /// Sets how many bytes the objects of all sources may take.
    pub fn set_capacity(&self, bytes: usize) {
        self.shared.desired.set_capacity(bytes);
    }

    /// The server said who this agent is.
    pub fn is_agent(&self, agent: AgentId) {
        self.agent.send_if_modified(|known| known.replace(agent) != Some(agent));
    }

    /// Answers one request.
    ///
    /// # Errors
    /// None: whatever is wrong is an answer.
    pub async fn answer<B>(self, request: Request<B>) -> Result<Response<AnswerBody>, Infallible>
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (span, is_head) = (span_of(&request), request.method() == Method::HEAD);
        let answer = self.answer_request(request).instrument(span.clone()).await;
        let answer = answer.unwrap_or_else(|refused| *refused);
        span.record("http.response.status_code", answer.status().as_u16());
        // A body behind the answer to HEAD breaks the stream off on HTTP/2.
        Ok(if is_head { answer.map(|_| full(Bytes::new())) } else { answer })
    }

    async fn answer_request<B>(self, request: Request<B>) -> Answered
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path().to_owned();
        if is_cluster_path(&path) {
            let agent = *self.agent.borrow();
            return Ok(self.cluster_api.answer(request, agent).await);
        }
        match (request.method(), path.as_str()) {
            (&Method::PUT, wire::path::DESIRED) => self.put_desired(request.into_body()).await,
            (&Method::PUT, wire::path::OBJECTS) => self.put_objects(request.into_body()).await,
            (&Method::GET, wire::path::EVENTS) => {
                self.told(self.shared.outbox.clone(), request.uri().query())
            }
            (&Method::PUT, wire::path::ACKNOWLEDGED) => {
                acknowledged(self.shared.outbox.as_ref(), request.into_body()).await
            }
            (&Method::GET, wire::path::OBJECT_CHANGES) => {
                self.told(self.observer.outbox(), request.uri().query())
            }
            (&Method::PUT, wire::path::OBJECT_CHANGES_ACKNOWLEDGED) => {
                acknowledged(self.observer.outbox().as_ref(), request.into_body()).await
            }
            (&Method::GET, path) if path.starts_with(wire::path::OBJECT_BODIES) => {
                self.body(path.strip_prefix(wire::path::OBJECT_BODIES).unwrap_or_default()).await
            }
            (&Method::POST, wire::path::RIGHTS) => self.review(request.into_body()).await,
            (&Method::GET, wire::path::INFO) => self.info(),
            (&Method::GET, wire::path::DEBUG_STATE) => self.debug(),
            (&Method::POST, path) if path.starts_with(wire::path::SOURCES) => {
                let rest = path.strip_prefix(wire::path::SOURCES).unwrap_or_default();
                match rest.strip_suffix("/diff").map(str::parse::<SourceId>) {
                    Some(Ok(source)) => self.diff(source, request.into_body()).await,
                    _ => Err(not_found("no such page of a source")),
                }
            }
            _ => Err(not_found("no such page")),
        }
    }

    async fn put_desired<B>(&self, body: B) -> Answered
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let bytes = read(body, wire::MAXIMUM_DESIRED_BYTES).await?;
        self.desire(bytes)
    }

    fn desire(&self, bytes: Bytes) -> Answered {
        let state: DesiredState = events::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
        let digest = Sha256::of(&bytes);
        drop(bytes);
        let known = *self.agent.borrow();
        if known.is_some_and(|known| known != state.agent) {
            return Err(invalid("the desired state is for another agent"));
        }
        self.is_agent(state.agent);
        match self.shared.desired.put(state, digest) {
            Ok(reply) => packed(StatusCode::OK, &reply),
            Err(PutError::Stale { revision }) => packed(StatusCode::CONFLICT, &StaleRevision { revision }),
            Err(error) => Err(invalid(&error.to_string())),
        }
    }

    async fn put_objects<B>(&self, body: B) -> Answered
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let bytes = read(body, wire::MAXIMUM_OBJECTS_BYTES).await?;
        let objects: Objects = events::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
        drop(bytes);
        self.shared.desired.put_contents(objects.contents);
        objects.desired.map_or_else(|| Ok(empty(StatusCode::NO_CONTENT)), |desired| self.desire(desired))
    }

    fn told(&self, queue: Arc<dyn ObservationQueue>, query: Option<&str>) -> Answered {
        let after = query
            .unwrap_or_default()
            .split('&')
            .find_map(|pair| pair.strip_prefix("after="))
            .unwrap_or("0,0")
            .replace("%2C", ",");
        let after: Acknowledged = after.parse().map_err(|_| invalid("after: expected <epoch>,<sequence>"))?;
        let body = events_answer::start(&self.shared, queue, after);
        let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(wire::MESSAGE_PACK));
        Ok(response)
    }

    async fn body(&self, digest: &str) -> Answered {
        let digest: Sha256 = digest.parse().map_err(|_| not_found("no such digest"))?;
        match self.observer.body(&digest).await {
            Ok(Some(body)) => Ok(json(body)),
            Ok(None) => Err(not_found("no object that is told of has this digest")),
            Err(error) => {
                Err(refusal(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, &error.to_string()))
            }
        }
    }

    fn info(&self) -> Answered {
        let Some(agent) = *self.agent.borrow() else {
            return Err(not_found("this agent does not know its identity yet"));
        };
        let info = AgentInfo {
            agent,
            instance: self.shared.instance,
            version: self.version.to_owned(),
            epoch: self.shared.outbox.epoch(),
            holds_lease: self.shared.holding.is_held(),
            revision: self.shared.desired.view().map_or(0, |view| view.revision),
        };
        packed(StatusCode::OK, &info)
    }

    async fn diff<B>(&self, source: SourceId, body: B) -> Answered
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let bytes = read(body, wire::MAXIMUM_DESIRED_BYTES).await?;
        let next: DesiredSource = events::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
        let view = self.shared.desired.view();
        let known = view.as_ref().and_then(|view| Some((view, view.source(source)?)));
        let Some((view, now)) = known.filter(|_| next.head.source == source) else {
            return Err(not_found("no such source"));
        };
        let looked = self.shared.desired.look(now, next).map_err(|error| invalid(&error.to_string()))?;
        let next = match looked {
            Ok(next) => Arc::new(next),
            Err(lacking) => return packed(StatusCode::CONFLICT, &lacking),
        };
        match applier::diff(&self.shared, view, &next).await {
            Ok(diff) => packed(StatusCode::OK, &diff),
            Err(error) => {
                Err(refusal(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, &error.to_string()))
            }
        }
    }

    async fn review<B>(&self, body: B) -> Answered
    where
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let bytes = read(body, ReviewRights::BYTES).await?;
        let question: ReviewRights = events::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
        let agent = *self.agent.borrow();
        match self.cluster_api.review(&question, agent).await {
            Ok(reviewed) => packed(StatusCode::OK, &reviewed),
            Err(failure) => {
                let kind = match failure.code() {
                    StatusCode::BAD_REQUEST => RefusalKind::Invalid,
                    StatusCode::FORBIDDEN => RefusalKind::Denied,
                    _ => RefusalKind::Unavailable,
                };
                Err(refusal(failure.code(), kind, &failure.to_string()))
            }
        }
    }

    fn debug(&self) -> Answered {
        let mut state = self.shared.describe();
        if let Some(state) = state.as_object_mut() {
            let view = self.shared.desired.view();
            state.insert("instance".to_owned(), self.shared.instance.to_string().into());
            state.insert("holds_lease".to_owned(), self.shared.holding.is_held().into());
            state.insert("epoch".to_owned(), self.shared.outbox.epoch().into());
            state.insert("revision".to_owned(), view.map_or(0, |view| view.revision).into());
            state.insert("unacknowledged".to_owned(), self.shared.outbox.pending().into());
            state.insert("requests_in_flight".to_owned(), self.shared.kube.in_flight().into());
            state.insert("observer".to_owned(), self.observer.describe());
        }
        Ok(json(state.to_string()))
    }
}

/// A request that is part of a trace has a span of it; the others, which come all the time, have none.
fn span_of<B>(request: &Request<B>) -> Span {
    let traceparent = request.headers().get(wire::TRACEPARENT).and_then(|value| value.to_str().ok());
    let Some(traceparent) = traceparent else { return Span::none() };
    let (method, path) = (request.method(), request.uri().path());
    let route = match path {
        path if path.starts_with(wire::path::SOURCES) => wire::path::SOURCES,
        path if path.starts_with(wire::path::OBJECT_BODIES) => wire::path::OBJECT_BODIES,
        path if is_cluster_path(path) => wire::path::CLUSTER,
        path => path,
    };
    let span = tracing::info_span!(
        "http",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    traces::set_parent_or_none(&span, Some(traceparent));
    span
}

async fn acknowledged<B>(queue: &dyn ObservationQueue, body: B) -> Answered
where
    B: BodyExt<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let bytes = read(body, 1024).await?;
    let cursor: Acknowledged = events::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
    queue.acknowledge(cursor);
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn read<B>(body: B, maximum: usize) -> Result<Bytes, Refused>
where
    B: BodyExt<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, maximum).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, RefusalKind::Invalid, "the body is too large"))
        }
        Err(error) => Err(invalid(&error.to_string())),
    }
}

fn json(text: String) -> Response<AnswerBody> {
    let mut response = Response::new(full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn full(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn empty(status: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn packed<T: serde::Serialize>(status: StatusCode, value: &T) -> Answered {
    encoded(status, value).map_err(|error| {
        refusal(StatusCode::INTERNAL_SERVER_ERROR, RefusalKind::Internal, &error.to_string())
    })
}

fn encoded<T: serde::Serialize>(
    status: StatusCode,
    value: &T,
) -> Result<Response<AnswerBody>, events::EncodeError> {
    let mut response = Response::new(full(events::encode(value)?));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(wire::MESSAGE_PACK));
    Ok(response)
}

fn invalid(message: &str) -> Refused {
    refusal(StatusCode::BAD_REQUEST, RefusalKind::Invalid, message)
}

fn not_found(message: &str) -> Refused {
    refusal(StatusCode::NOT_FOUND, RefusalKind::NotFound, message)
}

pub(super) fn refusal(status: StatusCode, kind: RefusalKind, message: &str) -> Refused {
    let refusal = Refusal::new(kind, message);
    Box::new(encoded(status, &refusal).unwrap_or_else(|_| empty(status)))
}
