//! An API server in memory: lists in pages, watches, forgets its history and breaks off.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use objects::observed::observe;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kubernetes::{AnswerBody, Answering, Channel, ChannelError};

/// What the fold of a receiver has to equal: the digest of each object by kind and UID.
pub type Objects = BTreeMap<(String, String), String>;

type Line = Result<Frame<Bytes>, ChannelError>;

#[derive(Default)]
pub struct FakeServer(Mutex<State>);

#[derive(Default)]
struct State {
    version: u64,
    /// History up to here is forgotten.
    forgotten: u64,
    uids: u128,
    /// By plural and name.
    objects: BTreeMap<(String, String), Value>,
    history: Vec<(u64, String, &'static str, Value)>,
    watches: Vec<(String, mpsc::UnboundedSender<Line>)>,
    snapshots: BTreeMap<String, (u64, Vec<Value>)>,
    served: Vec<&'static str>,
    forbidden: Vec<&'static str>,
    /// Of these only single namespaces may be seen.
    narrow: Vec<&'static str>,
    /// Happens when something is forbidden, before the answer is on its way, and allows it.
    when_forbidden: Option<Box<dyn FnOnce() + Send>>,
    /// The codes that the next watches are answered with.
    trouble: VecDeque<u16>,
    /// The code of each answer to a request for one object.
    refusal: Option<u16>,
    /// The version in which widgets are served.
    widgets: &'static str,
    /// What the next looks at kinds do not show.
    hidden: VecDeque<&'static str>,
    is_cut_off: bool,
    lists: usize,
    largest_page: usize,
    /// How many objects of a kind are streamed before it breaks off; it does not stream if there is none.
    streams: Option<usize>,
    streamed: usize,
}

/// The kinds that there are: plural and kind.
pub const KINDS: [(&str, &str); 4] =
    [("configmaps", "ConfigMap"), ("secrets", "Secret"), ("widgets", "Widget"), ("events", "Event")];

fn kind_of(plural: &str) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == plural).unwrap().1
}

impl FakeServer {
    pub fn new() -> Arc<Self> {
        let server = Self::default();
        {
            let mut state = server.0.lock();
            (state.served, state.widgets) = (vec!["configmaps", "secrets"], "v1");
        }
        Arc::new(server)
    }

    /// Creates an object, or changes it.
    pub fn write(&self, plural: &str, name: &str, content: &str) {
        self.put(plural, name, json!({"data": {"content": content}}));
    }

    /// Something happened to an object, so many times.
    pub fn happens(&self, name: &str, to: &str, count: u32) {
        self.put("events", name, json!({"involvedObject": {"uid": to}, "count": count}));
    }

    fn put(&self, plural: &str, name: &str, mut object: Value) {
        let mut state = self.0.lock();
        state.version += 1;
        let version = state.version;
        let key = (plural.to_owned(), name.to_owned());
        let known = state.objects.get(&key).map(|object| object["metadata"]["uid"].clone());
        let event = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = known.unwrap_or_else(|| {
            state.uids += 1;
            json!(uuid::Uuid::from_u128(state.uids).to_string())
        });
        object["metadata"] = json!({"name": name, "namespace": "shop", "uid": uid,
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "test", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]});
        state.objects.insert(key, object.clone());
        state.happened(plural, event, object);
    }

    pub fn delete(&self, plural: &str, name: &str) {
        let mut state = self.0.lock();
        let Some(mut object) = state.objects.remove(&(plural.to_owned(), name.to_owned())) else { return };
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.happened(plural, "DELETED", object);
    }

    /// Ends all watches, in order or not.
    pub fn cut(&self, in_order: bool) {
        for (_, watch) in self.0.lock().watches.drain(..) {
            if !in_order {
                let broken = std::io::Error::other("cut");
                let _sent = watch.unbounded_send(Err(ChannelError::from(Box::<
                    dyn std::error::Error + Send + Sync,
                >::from(broken))));
            }
        }
    }

    /// Forgets its history, and the lists that are under way.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        state.version += 1;
        state.forgotten = state.version;
        state.history.clear();
        state.snapshots.clear();
    }

    /// Answers nothing, or does again.
    pub fn cut_off(&self, is_cut_off: bool) {
        self.0.lock().is_cut_off = is_cut_off;
        if is_cut_off {
            self.cut(false);
        }
    }

    pub fn serve(&self, plural: &'static str, is_served: bool) {
        if !is_served {
            let of_kind = |(of, name): &(String, String)| (of == plural).then(|| name.clone());
            let names: Vec<String> = self.0.lock().objects.keys().filter_map(of_kind).collect();
            names.iter().for_each(|name| self.delete(plural, name));
        }
        let mut state = self.0.lock();
        state.served.retain(|known| *known != plural);
        if is_served {
            state.served.push(plural);
        } else {
            state.watches.retain(|(of, _)| of != plural);
        }
    }

    pub fn forbid(&self, plural: &'static str, is_forbidden: bool) {
        let mut state = self.0.lock();
        state.forbidden.retain(|known| *known != plural);
        if is_forbidden {
            state.forbidden.push(plural);
        }
    }

    /// Of a kind only single namespaces may be seen, or all.
    pub fn narrow(&self, plural: &'static str, is_narrow: bool) {
        let mut state = self.0.lock();
        state.narrow.retain(|known| *known != plural);
        if is_narrow {
            state.narrow.push(plural);
        }
    }

    pub fn when_forbidden(&self, happens: impl FnOnce() + Send + 'static) {
        self.0.lock().when_forbidden = Some(Box::new(happens));
    }

    /// The next watches are answered with these codes.
    pub fn trouble(&self, codes: &[u16]) {
        self.0.lock().trouble.extend(codes);
    }

    /// Each request for one object is answered with this code.
    pub fn refuse(&self, code: Option<u16>) {
        self.0.lock().refusal = code;
    }

    /// The next look at kinds does not show one.
    pub fn hide(&self, plural: &'static str) {
        self.0.lock().hidden.push_back(plural);
    }

    /// Widgets are preferred in another version from now on.
    pub fn prefer(&self, version: &'static str) {
        self.0.lock().widgets = version;
    }

    /// Streams everything there is, and breaks off behind so many objects.
    pub fn stream(&self, most: usize) {
        self.0.lock().streams = Some(most);
    }

    /// How often everything of a kind was streamed to its end.
    pub fn streamed(&self) -> usize {
        self.0.lock().streamed
    }

    /// Watches over a kind that are open.
    pub fn watches(&self, plural: &str) -> usize {
        let state = self.0.lock();
        state.watches.iter().filter(|(of, watch)| of == plural && !watch.is_closed()).count()
    }

    /// Objects of the largest page that was given.
    pub fn largest_page(&self) -> usize {
        self.0.lock().largest_page
    }

    pub fn lists(&self) -> usize {
        self.0.lock().lists
    }

    pub fn version(&self) -> String {
        self.0.lock().version.to_string()
    }

    pub fn objects(&self) -> Objects {
        let state = self.0.lock();
        let served = state.objects.iter().filter(|((plural, _), _)| state.served.contains(&plural.as_str()));
        let objects = served.map(|((plural, _), object)| {
            let mut object = object.clone();
            object["apiVersion"] = json!(state.api_version(plural));
            object["kind"] = json!(kind_of(plural));
            let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
            ((kind_of(plural).to_owned(), uid), observe(object).digest.to_string())
        });
        objects.collect()
    }
}

fn line(event: &str, object: &Value) -> Line {
    Ok(Frame::data(Bytes::from(format!("{}\n", json!({"type": event, "object": object})))))
}

impl State {
    fn api_version(&self, plural: &str) -> String {
        if plural == "widgets" { format!("example.com/{}", self.widgets) } else { "v1".to_owned() }
    }

    /// The object of a path.
    fn object(&self, path: &str) -> Option<Value> {
        let mut parts = path.rsplit('/').map(str::to_owned);
        let (name, plural) = (parts.next()?, parts.next()?);
        let mut object = self.objects.get(&(plural.clone(), name))?.clone();
        object["apiVersion"] = json!(self.api_version(&plural));
        object["kind"] = json!(kind_of(&plural));
        Some(object)
    }

    fn is_forbidden(&self, path: &str, plural: &str) -> bool {
        let is_narrow = self.narrow.contains(&plural) && !path.contains("/namespaces/");
        is_narrow || self.forbidden.contains(&plural)
    }

    fn happened(&mut self, plural: &str, event: &'static str, object: Value) {
        for (_, watch) in self.watches.iter().filter(|(of, _)| of == plural) {
            let _sent = watch.unbounded_send(line(event, &object));
        }
        self.history.push((self.version, plural.to_owned(), event, object));
    }

    fn answer(&mut self, path: &str, query: &BTreeMap<String, String>) -> (u16, AnswerBody) {
        if let Some(object) = self.object(path) {
            return self.refusal.map_or_else(|| whole(200, &object), |code| whole(code, &status(code, "no")));
        }
        let plural = path.rsplit('/').next().unwrap();
        match path {
            "/api" => return whole(200, &self.discovery(false)),
            "/apis" => return whole(200, &self.discovery(true)),
            _ if !self.served.contains(&plural) => return whole(404, &status(404, "no such kind")),
            _ if self.is_forbidden(path, plural) => {
                if let Some(happens) = self.when_forbidden.take() {
                    happens();
                    self.forbidden.retain(|known| *known != plural);
                }
                let message = format!(
                    "{plural} is forbidden: User \"agent\" cannot list resource \"{plural}\" in API group \"\" at the cluster scope"
                );
                return whole(403, &status(403, &message));
            }
            _ => {}
        }
        if query.contains_key("sendInitialEvents") {
            return self.stream(plural);
        }
        if query.contains_key("watch") { self.watch(plural, query) } else { self.list(plural, query) }
    }

    fn discovery(&mut self, named: bool) -> Value {
        // The second answer of a look.
        let hidden = if named { self.hidden.pop_front() } else { None };
        let resources: Vec<Value> = self
            .served
            .iter()
            .filter(|plural| (**plural == "widgets") == named && hidden != Some(**plural))
            .map(|plural| {
                json!({"resource": plural, "responseKind": {"kind": kind_of(plural)}, "scope": "Namespaced",
                    "verbs": ["list", "watch"]})
            })
            .collect();
        let group = if named { json!({"name": "example.com"}) } else { json!({}) };
        let version = if named { self.widgets } else { "v1" };
        json!({"items": [{"metadata": group, "versions": [{"version": version, "resources": resources}]}]})
    }

    fn list(&mut self, plural: &str, query: &BTreeMap<String, String>) -> (u16, AnswerBody) {
        let limit: usize = query["limit"].parse().unwrap();
        let (version, rest) = match query.get("continue").filter(|token| !token.is_empty()) {
            Some(token) => match self.snapshots.remove(token) {
                Some(snapshot) => snapshot,
                None => return whole(410, &status(410, "the token is too old")),
            },
            None => {
                self.lists += 1;
                // It has no states of the past.
                if query.get("resourceVersion").is_some_and(|version| *version != self.version.to_string()) {
                    return whole(410, &status(410, "too old"));
                }
                let all = self.objects.iter().filter(|((of, _), _)| of == plural);
                (self.version, all.map(|(_, object)| object.clone()).collect())
            }
        };
        let mut page = rest;
        let rest = page.split_off(limit.min(page.len()));
        self.largest_page = self.largest_page.max(page.len());
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if !rest.is_empty() {
            let token = format!("{plural}-{version}-{}", rest.len());
            metadata["continue"] = json!(token);
            self.snapshots.insert(token, (version, rest));
        }
        whole(200, &json!({"metadata": metadata, "items": page}))
    }

    /// Everything of a kind, and a bookmark that says so.
    fn stream(&mut self, plural: &str) -> (u16, AnswerBody) {
        let Some(most) = self.streams else {
            return whole(422, &status(422, "sendInitialEvents is forbidden"));
        };
        let all: Vec<&Value> =
            self.objects.iter().filter(|((of, _), _)| of == plural).map(|(_, object)| object).collect();
        let mut lines: Vec<Line> = all.iter().take(most).map(|object| line("ADDED", object)).collect();
        if all.len() <= most {
            self.streamed += 1;
            lines.push(line(
                "BOOKMARK",
                &json!({"metadata": {"resourceVersion": self.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"}}}),
            ));
        }
        (200, BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(lines))))
    }

    fn watch(&mut self, plural: &str, query: &BTreeMap<String, String>) -> (u16, AnswerBody) {
        if let Some(code) = self.trouble.pop_front() {
            return whole(code, &status(code, "in trouble"));
        }
        let (sender, lines) = mpsc::unbounded();
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < self.forgotten {
            let _sent = sender.unbounded_send(line("ERROR", &status(410, "too old resource version")));
        } else {
            let missed = self.history.iter().filter(|(version, of, ..)| *version > from && of == plural);
            for (_, _, event, object) in missed {
                let _sent = sender.unbounded_send(line(event, object));
            }
            self.watches.push((plural.to_owned(), sender));
        }
        (200, BodyExt::boxed_unsync(StreamBody::new(lines.boxed())))
    }
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "code": code, "message": message})
}

fn whole(code: u16, body: &Value) -> (u16, AnswerBody) {
    let body =
        Full::new(Bytes::from(body.to_string())).map_err(|never: std::convert::Infallible| match never {});
    (code, body.boxed_unsync())
}

impl Channel for FakeServer {
    fn send(&self, request: Request<Bytes>) -> Answering {
        let mut state = self.0.lock();
        if state.is_cut_off {
            let lost = std::io::Error::other("cut off");
            let lost: Box<dyn std::error::Error + Send + Sync> = Box::new(lost);
            return Box::pin(std::future::ready(Err(ChannelError::from(lost))));
        }
        let query = request.uri().query().unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let (code, body) = state.answer(request.uri().path(), &query);
        let mut response = Response::new(body);
        *response.status_mut() = code.try_into().unwrap();
        Box::pin(std::future::ready(Ok(response)))
    }
}
