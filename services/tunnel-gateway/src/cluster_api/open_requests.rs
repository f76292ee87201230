//! Requests that are open, so that each can be ended when its pass is revoked.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use events::attributes::Attributes;
use events::pass::AccessAs;
use events::recording::RecordSessions;
use events::{AgentId, OrganizationId, Timestamp};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};
use tunnel::BoxError;
use tunnel::body::Held;

use super::audit::RequestAudit;
use super::error::ProxyError;
use super::headers;
use super::passes::Key;
use super::redirects::rewrite_location;
use super::slots::RequestSlot;

/// Why a request is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// What let it through is gone, or the gateway itself.
    Cut(String),
    /// The gateway stops: who only watches may go on elsewhere.
    Drained,
}

/// What an open request is.
pub(super) struct RequestInfo {
    pub(super) key: Key,
    pub(super) organization: OrganizationId,
    pub(super) attributes: Attributes,
    pub(super) access_as: AccessAs,
    /// What is kept of it, where it is a session.
    pub(super) keeps: Option<RecordSessions>,
    pub(super) token_ends: Option<Timestamp>,
}

/// One of them.
pub(super) struct OpenRequest {
    pub(super) info: RequestInfo,
    pub(super) audit: RequestAudit,
    /// When authz last said that it is let through, on the monotonic clock.
    confirmed_at: Mutex<Duration>,
    end: SetOnce<End>,
    /// What is answered, which its end lets go of at once: who does not read keeps nothing open at the cluster.
    answer: OnceLock<Weak<dyn Release>>,
}

impl OpenRequest {
    /// authz said so again.
    pub(super) fn confirm(&self, now: Duration) {
        *self.confirmed_at.lock() = now;
    }

    /// For how long nobody has said so.
    pub(super) fn unconfirmed_for(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.confirmed_at.lock())
    }

    /// Ends it. The first word counts.
    pub(super) fn end(&self, end: End) {
        let _first = self.end.set(end);
        self.release();
    }

    /// The request is over then, also for whoever reads of it: a client that does not may stay for longer than this gateway.
    fn release(&self) {
        if let Some(answer) = self.answer.get() {
            answer.upgrade().iter().for_each(|answer| answer.release());
            self.audit.finish();
        }
    }

    /// What is answered from now on.
    fn answers<B>(&self, body: B) -> Answer<B>
    where
        B: Send + 'static,
    {
        let body = Arc::new(Mutex::new(Some(body)));
        let answer: Arc<dyn Release> = Arc::clone(&body) as _;
        // A request has one answer.
        let _first = self.answer.set(Arc::downgrade(&answer));
        if self.end.get().is_some() {
            self.release();
        }
        Answer(body)
    }

    /// Returns once it was ended.
    pub(super) fn ended(self: &Arc<Self>) -> BoxFuture<'static, End> {
        let open = Arc::clone(self);
        async move { open.end.wait().await.clone() }.boxed()
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct OpenRequests {
    entered: Notify,
    /// Nothing is to be open any more.
    closed: AtomicBool,
    open: Mutex<(u64, BTreeMap<u64, Arc<OpenRequest>>)>,
}

impl OpenRequests {
    /// Enters one; it is taken out when the guard is dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        info: RequestInfo,
        audit: RequestAudit,
        slot: Arc<RequestSlot>,
        now: Duration,
    ) -> OpenGuard {
        let open = Arc::new(OpenRequest {
            info,
            audit,
            confirmed_at: Mutex::new(now),
            end: SetOnce::new(),
            answer: OnceLock::new(),
        });
        let mut all = self.open.lock();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, Arc::clone(&open));
        drop(all);
        self.entered.notify_one();
        if self.closed.load(Ordering::Acquire) {
            open.end(End::Cut("the gateway is stopping".to_owned()));
        }
        OpenGuard { number, open, slot, requests: Arc::clone(self) }
    }

    /// All of them, or those of one organization.
    pub(super) fn list(&self, organization: Option<OrganizationId>) -> Vec<Arc<OpenRequest>> {
        let all = self.open.lock();
        let wanted =
            |open: &&Arc<OpenRequest>| organization.is_none_or(|wanted| open.info.organization == wanted);
        all.1.values().filter(wanted).cloned().collect()
    }

    /// Ends those whose tokens have ended by themselves.
    pub(super) fn end_expired(&self, now: Timestamp) {
        for open in self.list(None) {
            if open.info.token_ends.is_some_and(|end| end <= now) {
                open.end(End::Cut("the token has expired".to_owned()));
            }
        }
    }

    /// Returns once one was entered.
    pub(super) async fn entered(&self) {
        self.entered.notified().await;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().1.len()
    }

    /// Ends those that go on for ever: watches in order, so that their clients go on elsewhere.
    pub(super) fn drain(&self) {
        for open in self.list(None) {
            if open.info.attributes.verb == "watch" {
                open.end(End::Drained);
            }
        }
    }

    /// Ends all of them.
    pub(super) fn end_all(&self, reason: &str) {
        self.closed.store(true, Ordering::Release);
        for open in self.list(None) {
            open.end(End::Cut(reason.to_owned()));
        }
    }
}

/// An open request, for as long as this is held.
pub(super) struct OpenGuard {
    number: u64,
    pub(super) open: Arc<OpenRequest>,
    pub(super) slot: Arc<RequestSlot>,
    requests: Arc<OpenRequests>,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.requests.open.lock().1.remove(&self.number);
        self.open.audit.finish();
    }
}

/// A body of an open request, in either direction: its bytes are counted, it goes only as fast as whose it is may, and it ends when the
/// request is ended.
pub(super) struct OpenBody<B> {
    inner: B,
    /// Nothing once it was heard.
    ended: Option<BoxFuture<'static, End>>,
    is_over: bool,
    bytes: Arc<AtomicU64>,
    /// What of them goes on.
    trailers: fn(&HeaderMap) -> HeaderMap,
    slot: Arc<RequestSlot>,
    pause: Option<BoxFuture<'static, ()>>,
}

impl OpenGuard {
    /// The headers of an answer that leads nowhere else; one that does is recorded as what is said instead.
    pub(super) fn check_redirect(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        below: Option<AgentId>,
    ) -> Result<HeaderMap, ProxyError> {
        let kept = rewrite_location(status, headers, below);
        kept.inspect_err(|error| self.open.audit.failed(error.code()))
    }

    /// What the client sends.
    /// Without trailers: nothing in a cluster wants some.
    pub(super) fn received<B>(&self, inner: B) -> OpenBody<B> {
        self.body(inner, self.open.audit.received(), |_| HeaderMap::new())
    }

    /// What it is sent, which keeps the request open.
    pub(super) fn sent<B>(self, inner: B) -> Held<OpenBody<Answer<B>>, Self>
    where
        B: Send + 'static,
    {
        let body = self.body(self.open.answers(inner), self.open.audit.sent(), headers::answered);
        Held::new(body, self)
    }

    fn body<B>(&self, inner: B, bytes: Arc<AtomicU64>, trailers: fn(&HeaderMap) -> HeaderMap) -> OpenBody<B> {
        let (ended, slot) = (Some(self.open.ended()), Arc::clone(&self.slot));
        OpenBody { inner, ended, is_over: false, bytes, trailers, slot, pause: None }
    }
}

/// What can be let go of while nobody asks for more of it.
trait Release: Send + Sync {
    fn release(&self);
}

impl<B: Send> Release for Mutex<Option<B>> {
    fn release(&self) {
        let body = self.lock().take();
        drop(body);
    }
}

/// What a cluster answers, until it is let go of.
pub(super) struct Answer<B>(Arc<Mutex<Option<B>>>);

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.0.lock().as_mut() {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(Some(Err("the request was ended".into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// Nothing where nothing of them goes on.
fn with_trailers(frame: Frame<Bytes>, wanted: fn(&HeaderMap) -> HeaderMap) -> Option<Frame<Bytes>> {
    match frame.into_trailers() {
        Ok(trailers) => Some(wanted(&trailers)).filter(|wanted| !wanted.is_empty()).map(Frame::trailers),
        Err(data) => Some(data),
    }
}

impl<B> Body for OpenBody<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(Poll::Ready(end)) = this.ended.as_mut().map(|ended| ended.poll_unpin(context)) {
            this.ended = None;
            this.is_over = true;
            return Poll::Ready(match end {
                End::Cut(reason) => Some(Err(reason.into())),
                End::Drained => None,
            });
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(pause) = this.pause.as_mut() {
            ready!(pause.poll_unpin(context));
            this.pause = None;
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        let frame = match frame {
            Some(Ok(frame)) => with_trailers(frame, this.trailers).map(Ok),
            other => other,
        };
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            this.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            this.pause = this.slot.pace(data.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
