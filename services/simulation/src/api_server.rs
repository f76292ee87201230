//! A cluster's API server, as far as agents use it: discovery, lists with pages, watches, server-side apply with field managers,
//! preconditions, Leases. It keeps the laws that the real one keeps (`laws.rs`), and lets things go wrong as a real one does.

mod asked;
mod fields;
mod front;
mod kinds;
#[cfg(test)]
mod laws;
mod objects;
mod patch;
mod refusal;
mod specified;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::kubernetes::{AnswerBody, Answering, Channel, ChannelError};
use bytes::Bytes;
use events::Timestamp;
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::executor::{Executor, Life};
use crate::faults::Kind as Fault;
use crate::process::BEGIN_MILLIS;
use asked::{About, Asked, Place};
use fields::Writer;
pub(crate) use front::Front;
use kinds::{CONFIG_MAP, DEPLOYMENT, LEASE};
use objects::{Objects, Served};
use refusal::Refusal;
use specified::STATUS;
use watch::Watchers;

/// Longer than anybody waits for an answer.
const NEVER: Duration = Duration::from_secs(300);

/// A write that was done.
pub(crate) struct Written<'a> {
    /// Which instance of the agent did it by itself; nothing where somebody did it through one.
    pub(crate) by: Option<Life>,
    /// The object's kind.
    pub(crate) kind: &'static str,
    /// The object's name.
    pub(crate) name: &'a str,
    /// As it was; nothing if it was not there.
    pub(crate) before: Option<&'a Value>,
    /// As it is; nothing if it is gone.
    pub(crate) after: Option<&'a Value>,
}

/// Who looks at each write, Leases and what the cluster's own controllers say aside.
pub(crate) type WriteHook = Box<dyn FnMut(&ApiServer, &Written<'_>) + Send>;

struct State {
    objects: Objects,
    watchers: Watchers,
    warden: WriteHook,
    failing_until: Duration,
    slow_until: Duration,
    /// Answers to writes that will be lost.
    to_lose: u64,
    fired: BTreeMap<Fault, u64>,
    /// What was asked for and is not simulated.
    lacking: Option<String>,
}

impl State {
    fn fired(&mut self, fault: Fault) {
        *self.fired.entry(fault).or_default() += 1;
    }
}

/// An API server; cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiServer {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

/// What the server gives back.
enum Given {
    Answer(Response<AnswerBody>),
    /// The connection breaks.
    Broken,
    /// Nothing ever comes.
    Nothing,
}

type Give = oneshot::Sender<Result<Response<AnswerBody>, ChannelError>>;

impl ApiServer {
    /// That of a fresh cluster.
    pub(crate) fn new(executor: &Executor, warden: WriteHook) -> Self {
        let state = State {
            objects: Objects::new(),
            watchers: Watchers::default(),
            warden,
            failing_until: Duration::ZERO,
            slow_until: Duration::ZERO,
            to_lose: 0,
            fired: BTreeMap::new(),
            lacking: None,
        };
        Self { executor: executor.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// A process's way to it. `always_holds`: whatever becomes of its Lease, it is told that it has it.
    pub(crate) fn door(&self, life: Life, always_holds: bool) -> Arc<dyn Channel> {
        Arc::new(Door { server: self.clone(), life, always_holds })
    }

    /// All ConfigMaps and Deployments.
    pub(crate) fn contents(&self) -> Vec<Value> {
        let objects = &self.state.lock().objects;
        objects.of_kind(&CONFIG_MAP).chain(objects.of_kind(&DEPLOYMENT)).cloned().collect()
    }

    /// A controller of the cluster itself says how a Deployment is doing; nothing that goes wrong for others meets it.
    pub(crate) fn report(&self, namespace: &str, name: &str, status: Value) {
        let place = Place { kind: &DEPLOYMENT, namespace: namespace.to_owned(), name: name.to_owned() };
        let time = self.time();
        let writer = Writer { manager: "kube-controller-manager", time: &time, subresource: STATUS };
        let mut state = self.state.lock();
        let State { objects, watchers, .. } = &mut *state;
        let before = objects.revision();
        objects.report(&place, status, writer);
        objects.since(before).for_each(|change| watchers.tell(&self.executor, change));
    }

    /// A fault of the cluster took effect.
    pub(crate) fn note_fired(&self, fault: Fault) {
        self.state.lock().fired(fault);
    }

    /// Somebody who is no agent makes a ConfigMap.
    pub(crate) fn add_config_map(&self, namespace: &str, name: &str) {
        let place = Place { kind: &CONFIG_MAP, namespace: namespace.to_owned(), name: name.to_owned() };
        let time = self.time();
        self.state.lock().objects.create_in(place, json!({"data": {"theirs": "yes"}}), &time);
    }

    /// What was asked for and is not simulated.
    pub(crate) fn lacking(&self) -> Option<String> {
        self.state.lock().lacking.clone()
    }

    /// How often each fault took effect.
    pub(crate) fn fired(&self) -> BTreeMap<Fault, u64> {
        self.state.lock().fired.clone()
    }

    /// Every request fails for a while.
    pub(crate) fn fail(&self, time: Duration) {
        self.state.lock().failing_until = self.executor.now() + time;
    }

    /// Answers take long for a while.
    pub(crate) fn slow_down(&self, time: Duration) {
        self.state.lock().slow_until = self.executor.now() + time;
    }

    /// The answers to the next writes do not arrive.
    pub(crate) fn lose_answers(&self, count: u64) {
        self.state.lock().to_lose += count;
    }

    /// Ends all watches.
    pub(crate) fn cut_watches(&self) {
        let with_error = self.executor.roll(|dice| dice.permille(500));
        let mut state = self.state.lock();
        let cut = state.watchers.cut(&self.executor, with_error);
        for _ in 0..cut {
            state.fired(Fault::WatchesCut);
        }
    }

    /// Forgets what happened, so that versions that somebody has are too old.
    pub(crate) fn forget_versions(&self) {
        self.state.lock().objects.forget();
        self.cut_watches();
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        (state.failing_until, state.slow_until, state.to_lose) = (Duration::ZERO, Duration::ZERO, 0);
    }

    fn time(&self) -> String {
        let millis = i64::try_from(self.executor.now().as_millis()).unwrap_or(i64::MAX);
        let text = Timestamp(BEGIN_MILLIS.saturating_add(millis)).to_string();
        text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
    }

    /// Asks what arrives at once; what is answered is on its way by whoever asks.
    async fn ask(
        &self,
        by: Option<Life>,
        request: Request<Bytes>,
    ) -> Result<Response<AnswerBody>, ChannelError> {
        let (give, answer) = oneshot::channel();
        self.serve(by, request, Duration::ZERO, give);
        answer.await.unwrap_or_else(|_| Err(broken()))
    }

    fn serve(&self, by: Option<Life>, request: Request<Bytes>, back: Duration, give: Give) {
        let (given, slower) = self.state_of_affairs(by, request);
        let back = back + slower;
        match given {
            Given::Answer(response) => {
                self.executor.after(back, move || {
                    // Whoever asked may be gone.
                    let _unheard = give.send(Ok(response));
                });
            }
            Given::Broken => self.executor.after(back, move || drop(give)),
            Given::Nothing => self.executor.after(NEVER, move || drop(give)),
        }
    }

    /// What becomes of a request that arrives now, and how much longer the answer takes.
    fn state_of_affairs(&self, by: Option<Life>, request: Request<Bytes>) -> (Given, Duration) {
        let (now, roll) = (self.executor.now(), self.executor.roll(|dice| dice.below(1_000)));
        let mut state = self.state.lock();
        if state.failing_until > now {
            state.fired(Fault::ApiErrors);
            let refusal = match roll % 4 {
                0 => Refusal::too_many(),
                1 => Refusal::unavailable(),
                2 => Refusal::internal(),
                _ => return (Given::Broken, Duration::ZERO),
            };
            return (Given::Answer(refused(&refusal)), Duration::ZERO);
        }
        let mut slower = Duration::ZERO;
        if state.slow_until > now && roll % 2 == 0 {
            state.fired(Fault::ApiSlow);
            slower = Duration::from_millis(self.executor.roll(|dice| dice.between(200, 20_000)));
        }
        let (is_write, response) = self.answer(&mut state, by, request);
        if is_write && state.to_lose > 0 && response.status().is_success() {
            state.to_lose -= 1;
            state.fired(Fault::ApiAnswerLost);
            return (if roll < 700 { Given::Broken } else { Given::Nothing }, slower);
        }
        (Given::Answer(response), slower)
    }

    fn answer(
        &self,
        state: &mut State,
        by: Option<Life>,
        request: Request<Bytes>,
    ) -> (bool, Response<AnswerBody>) {
        let asked = match Asked::read(request) {
            Ok(asked) => asked,
            Err(refusal) => return (false, self.refuse(state, &refusal)),
        };
        let (before, is_write) = (state.objects.revision(), asked.is_write());
        let response = match state.objects.serve(&asked, &self.time()) {
            Ok(Served::Answer(status, body)) => said(status, &body, None),
            Ok(Served::Follow(followed)) => self.follow(state, &asked, followed),
            Err(refusal) => self.refuse(state, &refusal),
        };
        let State { objects, watchers, warden, .. } = state;
        for change in objects.since(before) {
            if *change.place.kind != LEASE {
                let (kind, name) = (change.place.kind.kind, &change.place.name);
                let (before, after) = (change.before.as_ref(), change.after.as_ref());
                warden(self, &Written { by, kind, name, before, after });
            }
            watchers.tell(&self.executor, change);
        }
        (is_write, response)
    }

    fn refuse(&self, state: &mut State, refusal: &Refusal) -> Response<AnswerBody> {
        if refusal.is_not_simulated() {
            state.lacking.get_or_insert_with(|| refusal.message().to_owned());
        }
        if refusal.code == StatusCode::GONE {
            state.fired(Fault::VersionsForgotten);
        }
        refused(refusal)
    }
}

fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    said(refusal.code, &refusal.body(), refusal.retry_after())
}

fn said(status: StatusCode, body: &Value, retry_after: Option<u64>) -> Response<AnswerBody> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_2;
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

/// A process's way to the server.
struct Door {
    server: ApiServer,
    life: Life,
    always_holds: bool,
}

impl Door {
    /// What whoever asks for a Lease is told, if it is to believe that it has it.
    fn belief(&self, request: &Request<Bytes>) -> Option<Response<AnswerBody>> {
        let path = request.uri().path();
        let about = About::read(path).ok().filter(|_| self.always_holds)?;
        let (About::Object(Place { kind, .. }) | About::Collection { kind, .. }) = about else { return None };
        if *kind != LEASE {
            return None;
        }
        if request.method() == Method::GET {
            return Some(refused(&Refusal::not_found(kind, "lease")));
        }
        let mut lease: Value = serde_json::from_slice(request.body()).ok()?;
        let metadata = lease.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("resourceVersion".to_owned(), Value::String("1".to_owned()));
        Some(said(StatusCode::OK, &lease, None))
    }
}

impl Channel for Door {
    /// What was sent is served although whoever sent it is gone.
    fn send(&self, request: Request<Bytes>) -> Answering {
        if let Some(told) = self.belief(&request) {
            return Box::pin(std::future::ready(Ok(told)));
        }
        let (give, answer) = oneshot::channel();
        let (server, life) = (self.server.clone(), self.life);
        let executor = &self.server.executor;
        let (there, back) = executor.roll(|dice| (dice.between(200, 3_000), dice.between(200, 3_000)));
        let back = Duration::from_micros(back);
        executor.after(Duration::from_micros(there), move || server.serve(Some(life), request, back, give));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(broken())) })
    }
}

fn broken() -> ChannelError {
    let error: Box<dyn std::error::Error + Send + Sync> = "connection reset".into();
    error.into()
}
