//! An agent that does what it is told, or, where a test says so, what it should not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use events::bundle::BundlePage;
use events::desired::{DesiredReply, DesiredSource, DesiredState};
use events::observation::Observation;
use events::requests::diff::SourceDiff;
use events::{InstanceId, Sha256};
use futures::StreamExt as _;
use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::Service;
use parking_lot::Mutex;
use testkit::eventually;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tunnel::agent::{LinkEnd, Target, dial};
use tunnel::body::{BodyFault, EventSender, GuardedBody, event_body};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::{Acknowledged, Batch, EventFrame, Objects};
use world::World;

use super::harness::{LIMIT, spawn};

#[derive(Default)]
pub struct State {
    pub desired: Option<DesiredState>,
    /// The digest of the state that was taken last, and whether its agent says so when it comes back.
    pub digest: Option<Sha256>,
    /// Revision of the state that was taken last.
    pub taken: watch::Sender<u64>,
    pub objects: BTreeMap<Sha256, Bytes>,
    pub objects_put: usize,
    pub desired_puts: usize,
    /// Requests that brought objects or states.
    pub requests: usize,
    pub acknowledged: Vec<Acknowledged>,
    /// The cursors of the event streams that were opened.
    pub opened: Vec<Acknowledged>,
    pub events: Option<EventSender>,
    /// It tells of objects: newer agents do.
    pub observes: bool,
    /// How often it was asked for changes of objects.
    pub asked_for_changes: usize,
    /// The stream of changes of objects: what was acknowledged, the cursors with which it was opened, where it is open.
    pub changes: ChangesState,
    /// Bodies that are too large for a frame, by the digest under which it gives them.
    pub bodies: BTreeMap<Sha256, Bytes>,
    /// So many times it cannot look for a body.
    pub blind_for_bodies: usize,
    /// Never answers a desired state.
    pub mute: bool,
    /// Knows nothing of states that travel with objects.
    pub old: bool,
    /// Says that it lacks this, whatever it has.
    pub greedy: Option<Sha256>,
    /// How often it was asked for a connection beside its tunnel; it opens none by itself.
    pub asked_for_bulk: usize,
    /// What it was asked of its cluster's API.
    pub asked_of_cluster: Vec<String>,
    /// The headers of each of those.
    pub headers_of_cluster: Vec<HeaderMap>,
    /// Slow answers of its cluster's API end once this is true.
    pub hurries: watch::Sender<bool>,
    /// What it answers to the question what somebody may list, and that question as it came; an older agent has no answer.
    pub rights: Option<(StatusCode, Vec<u8>)>,
    pub asked_for_rights: Vec<Bytes>,
    /// Pieces of floods that were sent.
    pub flooded: Arc<AtomicUsize>,
}

#[derive(Default)]
pub struct ChangesState {
    pub acknowledged: Vec<Acknowledged>,
    pub opened: Vec<Acknowledged>,
    pub events: Option<EventSender>,
}

pub struct TestAgent {
    pub state: Arc<Mutex<State>>,
    pub link: JoinHandle<LinkEnd>,
    pub drain: Arc<Notify>,
}

impl TestAgent {
    /// Connects, and waits until the gateway has taken the tunnel in: an agent hears of it a moment earlier.
    pub async fn connect(world: &World, target: &Target, secret: &str, instance: InstanceId) -> Self {
        let agent = Self::connect_with(world, target, secret, instance, State::default()).await;
        agent.events().await;
        agent
    }

    pub async fn connect_with(
        world: &World,
        target: &Target,
        secret: &str,
        instance: InstanceId,
        state: State,
    ) -> Self {
        let hello = Hello { desired: state.digest, ..Hello::control(instance, 0, "0.1.0") };
        Self::connect_as(world, target, secret, hello, state).await
    }

    /// A connection beside its tunnel.
    pub async fn connect_bulk(world: &World, target: &Target, secret: &str, instance: InstanceId) -> Self {
        Self::connect_as(world, target, secret, Hello::bulk(instance, "0.1.0"), State::default()).await
    }

    async fn connect_as(world: &World, target: &Target, secret: &str, hello: Hello, state: State) -> Self {
        let link =
            dial(world, target, &Token::new(secret), &hello).await.unwrap_or_else(|error| panic!("{error}"));
        let state = Arc::new(Mutex::new(state));
        let drain = Arc::new(Notify::new());
        let told = Arc::clone(&drain);
        let service = AgentService { state: Arc::clone(&state) };
        let link = spawn(link.serve(service, async move { told.notified().await }));
        Self { state, link, drain }
    }

    /// Waits until something holds of the agent's state.
    pub async fn until<T>(&self, what: &str, probe: impl Fn(&State) -> Option<T>) -> T {
        eventually(LIMIT, || async { probe(&self.state.lock()).ok_or_else(|| what.to_owned()) }).await
    }

    /// Answers of its cluster's API that have not ended.
    pub fn answering(&self) -> usize {
        self.state.lock().hurries.receiver_count()
    }

    /// Lets slow answers end.
    pub fn hurry(&self) {
        self.state.lock().hurries.send_replace(true);
    }

    /// The open event stream.
    pub async fn events(&self) -> EventSender {
        self.until("no event stream", |state| state.events.clone()).await
    }

    /// Sends a frame on the event stream that is open now.
    pub async fn send(&self, frame: EventFrame) {
        self.events().await.send(&frame).await.unwrap();
    }

    pub async fn lease(&self) {
        self.send(EventFrame::Lease { held: true }).await;
    }

    pub async fn report(&self, epoch: u64, first: u64, observations: Vec<Observation>) {
        self.send(EventFrame::Batch(Batch { epoch, first, observations })).await;
    }

    /// Waits until its stream of changes of objects was opened so many times; gives the cursor of the last time.
    pub async fn changes_opened(&self, times: usize) -> Acknowledged {
        let opened =
            |state: &State| (state.changes.opened.len() >= times).then(|| state.changes.opened[times - 1]);
        self.until(&format!("changes of objects are not asked for {times} times"), opened).await
    }

    pub async fn report_changes(&self, epoch: u64, first: u64, observations: Vec<Observation>) {
        let events = self.until("no stream of changes", |state| state.changes.events.clone()).await;
        events.send(&EventFrame::Batch(Batch { epoch, first, observations })).await.unwrap();
    }

    pub async fn changes_acknowledged(&self, epoch: u64, sequence: u64) {
        let wanted = Acknowledged { epoch, sequence };
        self.until(&format!("changes are not acknowledged up to {wanted}"), |state| {
            (state.changes.acknowledged.last() == Some(&wanted)).then_some(())
        })
        .await;
    }

    pub async fn acknowledged(&self, epoch: u64, sequence: u64) {
        let wanted = Acknowledged { epoch, sequence };
        self.until(&format!("not acknowledged up to {wanted}"), |state| {
            (state.acknowledged.last() == Some(&wanted)).then_some(())
        })
        .await;
    }

    pub async fn revision(&self, revision: u64) -> DesiredState {
        self.until(&format!("not at revision {revision}"), |state| {
            state.desired.clone().filter(|desired| desired.revision == revision)
        })
        .await
    }
}

/// Of a watch, a line and no end; of a flood, more and more; of what is slow, a line and later another; of what is late, nothing until then;
/// of what has trailers, those; else what was sent.
async fn cluster_answer(
    query: Option<&str>,
    body: GuardedBody,
    mut hurries: watch::Receiver<bool>,
    flooded: Arc<AtomicUsize>,
) -> Result<Response<AgentBody>, BodyFault> {
    let line = |line: &'static str| Ok(Frame::data(Bytes::from_static(line.as_bytes())));
    let first = futures::stream::iter([line("{}\n")]);
    if query.is_some_and(|query| query.contains("late")) {
        hurries.wait_for(|hurries| *hurries).await.unwrap();
    }
    if query.is_some_and(|query| query.contains("watch=")) {
        let endless = StreamBody::new(first.chain(futures::stream::pending()));
        return Ok(Response::new(endless.boxed_unsync()));
    }
    if query.is_some_and(|query| query.contains("flood")) {
        let pieces = futures::stream::repeat_with(move || {
            // Held for as long as it goes on.
            let _held = &hurries;
            flooded.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))
        });
        return Ok(Response::new(StreamBody::new(pieces).boxed_unsync()));
    }
    if query.is_some_and(|query| query.contains("trailers")) {
        let trailers = [("x-sum", "5"), ("kasbah-pass", "x")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let last = futures::stream::iter([Ok(Frame::trailers(trailers.into_iter().collect()))]);
        let mut answer = Response::new(StreamBody::new(first.chain(last)).boxed_unsync());
        answer.headers_mut().insert(TRAILER, HeaderValue::from_static("x-sum, kasbah-pass"));
        return Ok(answer);
    }
    if query.is_some_and(|query| query.contains("slow")) {
        let last = futures::stream::once(async move {
            hurries.wait_for(|hurries| *hurries).await.unwrap();
            line("the end")
        });
        return Ok(Response::new(StreamBody::new(first.chain(last)).boxed_unsync()));
    }
    let sent = body.collect().await?.to_bytes();
    Ok(answer(StatusCode::OK, sent.to_vec()))
}

#[derive(Clone)]
struct AgentService {
    state: Arc<Mutex<State>>,
}

type AgentBody = UnsyncBoxBody<Bytes, Infallible>;

fn answer(status: StatusCode, body: Vec<u8>) -> Response<AgentBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response
}

impl Service<Request<GuardedBody>> for AgentService {
    type Response = Response<AgentBody>;
    type Error = BodyFault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyFault>> + Send>>;

    fn call(&self, request: Request<GuardedBody>) -> Self::Future {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let path = parts.uri.path().to_owned();
            if parts.method == Method::GET && path == "/v1/events" {
                let (sender, body) = event_body(64);
                sender.send(&EventFrame::Lease { held: false }).await.unwrap();
                let mut state = state.lock();
                state.opened.push(cursor_of(&parts.uri));
                state.events = Some(sender);
                return Ok(Response::new(body.boxed_unsync()));
            }
            if parts.method == Method::GET && path == "/v1/object-changes" {
                return Ok(state.lock().open_changes(cursor_of(&parts.uri)));
            }
            if let Some(asked) = path.strip_prefix("/k8s") {
                let (hurries, flooded) = {
                    let mut state = state.lock();
                    state.asked_of_cluster.push(format!("{} {asked}", parts.method));
                    state.headers_of_cluster.push(parts.headers);
                    (state.hurries.subscribe(), Arc::clone(&state.flooded))
                };
                return cluster_answer(parts.uri.query(), body, hurries, flooded).await;
            }
            let body = body.collect().await?.to_bytes();
            if path == "/v1/desired" && state.lock().mute {
                std::future::pending::<()>().await;
            }
            Ok(state.lock().take(&path, body))
        })
    }
}

fn cursor_of(uri: &http::Uri) -> Acknowledged {
    uri.query().unwrap().strip_prefix("after=").unwrap().parse().unwrap()
}

impl State {
    fn open_changes(&mut self, after: Acknowledged) -> Response<AgentBody> {
        self.asked_for_changes += 1;
        if !self.observes {
            return answer(StatusCode::NOT_FOUND, Vec::new());
        }
        let (sender, body) = event_body(64);
        self.changes.opened.push(after);
        self.changes.events = Some(sender);
        Response::new(body.boxed_unsync())
    }

    fn take(&mut self, path: &str, body: Bytes) -> Response<AgentBody> {
        match path {
            "/v1/objects" => {
                self.requests += 1;
                let objects: Objects = events::decode(&body).unwrap();
                self.objects_put += objects.contents.len();
                for content in objects.contents {
                    self.objects.insert(Sha256::of(&content), content);
                }
                match objects.desired.filter(|_| !self.old) {
                    Some(desired) => self.desire(&desired),
                    None => answer(StatusCode::NO_CONTENT, Vec::new()),
                }
            }
            "/v1/desired" => {
                self.requests += 1;
                self.desire(&body)
            }
            "/v1/acknowledged" => {
                self.acknowledged.push(events::decode(&body).unwrap());
                answer(StatusCode::NO_CONTENT, Vec::new())
            }
            "/v1/object-changes/acknowledged" => {
                self.changes.acknowledged.push(events::decode(&body).unwrap());
                answer(StatusCode::NO_CONTENT, Vec::new())
            }
            path if path.starts_with("/v1/object-changes/bodies/") => {
                let digest = path.rsplit('/').next().unwrap().parse().unwrap();
                if self.blind_for_bodies > 0 {
                    self.blind_for_bodies -= 1;
                    return answer(StatusCode::SERVICE_UNAVAILABLE, Vec::new());
                }
                match self.bodies.get(&digest) {
                    Some(body) => answer(StatusCode::OK, body.to_vec()),
                    None => answer(StatusCode::NOT_FOUND, Vec::new()),
                }
            }
            "/v1/rights" => {
                self.asked_for_rights.push(body);
                let (status, said) = self.rights.clone().unwrap_or((StatusCode::NOT_FOUND, Vec::new()));
                answer(status, said)
            }
            "/v1/bulk" => {
                self.asked_for_bulk += 1;
                answer(StatusCode::NO_CONTENT, Vec::new())
            }
            path if path.ends_with("/diff") => {
                let next: DesiredSource = events::decode(&body).unwrap();
                let missing = self.missing([&next]);
                if !missing.is_empty() {
                    return answer(StatusCode::CONFLICT, events::encode(&DesiredReply { missing }).unwrap());
                }
                let diff = SourceDiff { commit: next.head.commit, ..SourceDiff::default() };
                answer(StatusCode::OK, events::encode(&diff).unwrap())
            }
            _ => answer(StatusCode::NOT_FOUND, Vec::new()),
        }
    }

    fn desire(&mut self, body: &[u8]) -> Response<AgentBody> {
        self.desired_puts += 1;
        let desired: DesiredState = events::decode(body).unwrap();
        let missing = self.missing(&desired.sources);
        if missing.is_empty() {
            self.taken.send_replace(desired.revision);
            self.desired = Some(desired);
            self.digest = Some(Sha256::of(body));
        }
        answer(StatusCode::OK, events::encode(&DesiredReply { missing }).unwrap())
    }

    fn missing<'a>(&self, sources: impl IntoIterator<Item = &'a DesiredSource>) -> Vec<Sha256> {
        let mut missing = Vec::new();
        for page in sources.into_iter().flat_map(|source| source.pages.iter().flatten()) {
            match self.objects.get(page) {
                None => missing.push(*page),
                Some(content) => {
                    let page: BundlePage = events::decode(content).unwrap();
                    let lacking = page.entries.iter().map(|entry| entry.digest);
                    missing.extend(lacking.filter(|digest| !self.objects.contains_key(digest)));
                }
            }
        }
        missing.extend(self.greedy);
        missing
    }
}
