//! Watches: each change goes to those who follow, in order and a moment later.

use std::time::Duration;

use agent::kubernetes::{AnswerBody, ChannelError};
use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Response, StatusCode, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::asked::{Asked, Form};
use super::objects::{Change, Followed, Scope};
use super::refusal::Refusal;
use super::{ApiServer, Fault, State, broken};
use crate::executor::Executor;

/// How often who follows is told the newest version.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

type Line = Result<Frame<Bytes>, ChannelError>;

struct Watcher {
    number: u64,
    scope: Scope,
    lines: UnboundedSender<Line>,
    last: Duration,
}

impl Watcher {
    /// Sends something behind what was sent before.
    fn send(&mut self, executor: &Executor, line: Line) {
        let latency = executor.roll(|dice| dice.between(200, 3_000));
        self.last = self.last.max(executor.now() + Duration::from_micros(latency));
        let lines = self.lines.clone();
        executor.at(self.last, move || {
            // Whoever followed may be gone.
            let _unheard = lines.unbounded_send(line);
        });
    }

    fn tell(&mut self, executor: &Executor, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.send(executor, Ok(Frame::data(Bytes::from(line))));
    }
}

/// Those who follow.
#[derive(Default)]
pub(super) struct Watchers {
    all: Vec<Watcher>,
    next: u64,
}

impl Watchers {
    fn add(&mut self, scope: Scope) -> (u64, UnboundedReceiver<Line>) {
        self.next += 1;
        let (lines, body) = unbounded();
        self.all.push(Watcher { number: self.next, scope, lines, last: Duration::ZERO });
        (self.next, body)
    }

    fn find(&mut self, number: u64) -> Option<&mut Watcher> {
        self.all.iter_mut().find(|watcher| watcher.number == number)
    }

    fn end(&mut self, number: u64) {
        self.all.retain(|watcher| watcher.number != number);
    }

    /// Tells everybody whom it concerns.
    pub(super) fn tell(&mut self, executor: &Executor, change: &Change) {
        self.all.retain(|watcher| !watcher.lines.is_closed());
        for watcher in &mut self.all {
            if let Some((kind, object)) = watcher.scope.event(change) {
                watcher.tell(executor, kind, &object);
            }
        }
    }

    /// Ends all; says how many.
    pub(super) fn cut(&mut self, executor: &Executor, with_error: bool) -> usize {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|watcher| !watcher.lines.is_closed());
        for watcher in all.iter_mut().filter(|_| with_error) {
            watcher.send(executor, Err(broken()));
        }
        all.len()
    }
}

impl ApiServer {
    pub(super) fn follow(
        &self,
        state: &mut State,
        asked: &Asked,
        followed: Followed,
    ) -> Response<AnswerBody> {
        let Followed { scope, first, from } = followed;
        let (number, body) = state.watchers.add(scope);
        let State { objects, watchers, fired, .. } = state;
        if let Some(watcher) = watchers.find(number) {
            if from < objects.oldest() {
                let refusal = Refusal::too_old(from, objects.oldest());
                watcher.tell(&self.executor, "ERROR", &refusal.body());
                *fired.entry(Fault::VersionsForgotten).or_default() += 1;
                watchers.end(number);
            } else {
                for object in first {
                    watcher.tell(&self.executor, "ADDED", &object);
                }
                for change in objects.since(from) {
                    if let Some((kind, object)) = watcher.scope.event(change) {
                        watcher.tell(&self.executor, kind, &object);
                    }
                }
            }
        }
        let server = self.clone();
        let seconds = asked.query("timeoutSeconds").parse().unwrap_or(3_600);
        self.executor.after(Duration::from_secs(seconds), move || server.state.lock().watchers.end(number));
        if asked.query("allowWatchBookmarks") == "true" {
            self.bookmark_later(number);
        }
        let mut response = Response::new(StreamBody::new(body).boxed_unsync());
        *response.status_mut() = StatusCode::OK;
        *response.version_mut() = Version::HTTP_2;
        response
    }

    fn bookmark_later(&self, number: u64) {
        let server = self.clone();
        self.executor.after(BOOKMARK_EVERY, move || {
            let mut state = server.state.lock();
            let version = state.objects.revision().to_string();
            let Some(watcher) = state.watchers.find(number) else { return };
            let kind = match watcher.scope.form {
                Form::Whole => (watcher.scope.kind.kind.to_owned(), watcher.scope.kind.api_version()),
                Form::Metadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            };
            let object =
                json!({"kind": kind.0, "apiVersion": kind.1, "metadata": {"resourceVersion": version}});
            watcher.tell(&server.executor, "BOOKMARK", &object);
            drop(state);
            server.bookmark_later(number);
        });
    }
}
