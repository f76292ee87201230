//! The connection to the API server: HTTP/2, no client-side rate limit, bounded concurrency, bounded retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use http::response::Parts;
use http::{Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::Semaphore;
use world::World;

use super::api_server::ApiServer;
use super::call::{Answer, Call};
use super::connections::{AnswerBody, Channel, ChannelError, Connections, REQUESTS, UnderWay};
use super::status::{ApiError, ApiStatus};
use crate::lease::Holding;
use crate::metrics::Counts;
use crate::model::backoff::Backoff;

/// Requests in flight at once, watches aside. An API server takes 200 writes at once by default, and shares itself out among its
/// users where they are more; fewer would only leave more of it to the controllers that follow what was written first.
pub const CONCURRENCY: usize = REQUESTS;
const ATTEMPTS: u32 = 6;
/// How long an answer is waited for. The API server itself gives up after a minute.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
const RETRY_AFTER_MAXIMUM: Duration = Duration::from_secs(30);
const MAXIMUM_BODY: usize = 64 << 20;

/// The API server. Cheap to clone.
#[derive(Clone)]
pub struct Kube {
    connections: Arc<Connections>,
    world: World,
    permits: Arc<Semaphore>,
    writes: Arc<AtomicUsize>,
    counts: Counts,
}

impl Kube {
    /// Over these connections.
    #[must_use]
    pub fn new(connections: Connections, world: World, counts: Counts) -> Self {
        Self {
            connections: Arc::new(connections),
            world,
            permits: Arc::new(Semaphore::new(CONCURRENCY)),
            writes: Arc::default(),
            counts,
        }
    }

    /// The namespace of the configuration: the pod's own in a cluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.connections.namespace
    }

    /// The way to the API server for requests of others.
    #[must_use]
    pub fn api_server(&self) -> Option<Arc<ApiServer>> {
        self.connections.api_server()
    }

    /// Requests that are under way, watches aside.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        CONCURRENCY.saturating_sub(self.permits.available_permits())
    }

    /// Writes that are under way.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Acquire)
    }

    /// Sends a request that changes nothing, again where that may help.
    ///
    /// # Errors
    /// The API server's refusal, or that it did not answer.
    pub async fn read(&self, call: Call) -> Result<Answer, ApiError> {
        self.send(&call, None).await
    }

    /// Sends a request that may change the cluster, if this instance may.
    ///
    /// # Errors
    /// As [`Kube::read`]; and [`ApiError::NotHolding`].
    pub async fn write(&self, call: Call, holding: &Holding) -> Result<Answer, ApiError> {
        self.send(&call, Some(holding)).await
    }

    /// Sends a request for the Lease itself: one attempt, which waits behind no other request.
    ///
    /// # Errors
    /// As [`Kube::read`].
    pub async fn for_lease(&self, call: Call) -> Result<Answer, ApiError> {
        let answer = self.exchange(&self.connections.lease, &call);
        self.counted("lease", answer).await.map_err(|(error, _)| error)
    }

    /// Opens a watch; the body has one JSON document a line. `lane` spreads watches over connections.
    ///
    /// # Errors
    /// As [`Kube::read`], without further attempts.
    pub async fn watch(&self, call: &Call, lane: usize) -> Result<Response<AnswerBody>, ApiError> {
        self.watch_on(self.connections.for_watch(lane), call).await
    }

    /// As [`Kube::watch`], for the observer.
    ///
    /// # Errors
    /// As [`Kube::watch`].
    pub async fn feed(&self, call: &Call, lane: usize) -> Result<Response<AnswerBody>, ApiError> {
        self.watch_on(self.connections.for_feed(lane), call).await
    }

    /// Sends a request of the observer that changes nothing: one attempt, and no other request waits behind it.
    ///
    /// # Errors
    /// As [`Kube::read`].
    pub async fn look(&self, call: &Call) -> Result<Answer, ApiError> {
        let answer = self.exchange(self.connections.for_look(), call);
        self.counted("read", answer).await.map_err(|(error, _)| error)
    }

    async fn watch_on(
        &self,
        channel: &Arc<dyn Channel>,
        call: &Call,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let opened = self.open_watch(channel, call);
        self.counted("watch", async { opened.await.map_err(|error| (error, None)) })
            .await
            .map_err(|(error, _)| error)
    }

    async fn open_watch(
        &self,
        channel: &Arc<dyn Channel>,
        call: &Call,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let opened = channel.send(call.request()?);
        let response = self.within(async { opened.await.map_err(unreachable_by) }).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        Err(refused(&parts, &collect(body).await?))
    }

    async fn send(&self, call: &Call, holding: Option<&Holding>) -> Result<Answer, ApiError> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut attempt = 1;
        loop {
            let writing = call.is_write().then(|| UnderWay::begin(&self.writes));
            let (error, wait) = match self.attempt(call, holding).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            drop(writing);
            if attempt >= ATTEMPTS || !error.is_transient() {
                return Err(error);
            }
            let own = backoff.next(self.world.random.as_ref());
            let wait = wait.map_or(own, |wait| self.spread(wait.min(RETRY_AFTER_MAXIMUM)));
            tracing::debug!(path = call.path(), attempt, error = %error, wait_ms = wait.as_millis(), "request is retried");
            self.world.clock.sleep(wait).await;
            attempt += 1;
        }
    }

    /// As long as was told, and up to as long again: many were told at once, and must not all come back at once.
    fn spread(&self, told: Duration) -> Duration {
        let millis = u64::try_from(told.as_millis()).unwrap_or(u64::MAX);
        told + Duration::from_millis(self.world.random.below(millis.saturating_add(1)))
    }

    async fn attempt(
        &self,
        call: &Call,
        holding: Option<&Holding>,
    ) -> Result<Answer, (ApiError, Option<Duration>)> {
        let closed = |_| (ApiError::Impossible { detail: "closing".to_owned() }, None);
        let _permit = self.permits.acquire().await.map_err(closed)?;
        // Not before: the Lease may have been lost while others were in front.
        if call.is_write() && !holding.is_some_and(Holding::may_write) {
            return Err((ApiError::NotHolding, None));
        }
        let kind = match (call.is_read(), call.is_write()) {
            (true, _) => "read",
            (false, true) => "write",
            (false, false) => "dry_run",
        };
        let lane = self.connections.for_request();
        let _under_way = UnderWay::begin(&lane.requests);
        self.counted(kind, self.exchange(&lane.channel, call)).await
    }

    async fn counted<T>(
        &self,
        kind: &'static str,
        answer: impl Future<Output = Result<T, (ApiError, Option<Duration>)>>,
    ) -> Result<T, (ApiError, Option<Duration>)> {
        let began = self.world.clock.monotonic();
        let answer = answer.await;
        let took = self.world.clock.monotonic().saturating_sub(began);
        self.counts.asked(kind, took, answer.as_ref().err().map(|(error, _)| error));
        answer
    }

    async fn exchange(
        &self,
        channel: &Arc<dyn Channel>,
        call: &Call,
    ) -> Result<Answer, (ApiError, Option<Duration>)> {
        let request = call.request().map_err(|error| (error, None))?;
        let answer = async {
            let response = channel.send(request).await.map_err(unreachable_by)?;
            self.connections.learn(response.version());
            let (parts, body) = response.into_parts();
            Ok((parts, collect(body).await?))
        };
        let (parts, body) = self.within(answer).await.map_err(|error| (error, None))?;
        if parts.status.is_success() {
            return Ok(Answer { status: parts.status, body });
        }
        let refusal = refused(&parts, &body);
        let wait = refusal.retry_after();
        Err((refusal, wait))
    }

    async fn within<T>(&self, answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let late = self.world.clock.sleep(ANSWER_DEADLINE);
        match select(std::pin::pin!(answer), late).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                Err(ApiError::Unreachable { detail: format!("no answer within {ANSWER_DEADLINE:?}") })
            }
        }
    }
}

fn refused(parts: &Parts, body: &[u8]) -> ApiError {
    let mut status = ApiStatus::read(parts.status.as_u16(), body);
    let header = parts.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(seconds) = header {
        status.retry_after_is(seconds);
    }
    ApiError::Refused(Box::new(status))
}

async fn collect(body: AnswerBody) -> Result<bytes::Bytes, ApiError> {
    match Limited::new(body, MAXIMUM_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::Impossible { detail: format!("the answer is larger than {MAXIMUM_BODY} bytes") })
        }
        Err(error) => Err(ApiError::Unreachable { detail: chain(error.as_ref()) }),
    }
}

fn unreachable_by(error: ChannelError) -> ApiError {
    ApiError::Unreachable { detail: chain(&error) }
}

/// An error with its causes, each once.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use http::{Method, Request};
    use http_body_util::Empty;
    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::*;
    use crate::kubernetes::Answering;
    use crate::kubernetes::call::ApplyMode;

    /// Answers nothing before it is told to.
    struct Slow {
        asked: Mutex<Vec<Method>>,
        answers: watch::Receiver<bool>,
    }

    impl Channel for Slow {
        fn send(&self, request: Request<bytes::Bytes>) -> Answering {
            self.asked.lock().push(request.method().clone());
            let mut answers = self.answers.clone();
            Box::pin(async move {
                answers.wait_for(|answers| *answers).await.expect("the test goes on");
                let body = Empty::new().map_err(|never| match never {});
                Ok(Response::new(body.boxed_unsync()))
            })
        }
    }

    #[tokio::test]
    async fn a_write_that_waited_behind_others_is_not_sent_once_the_lease_is_lost() {
        let (answer, answers) = watch::channel(false);
        let slow = Arc::new(Slow { asked: Mutex::default(), answers });
        let channel: Arc<dyn Channel> = slow.clone();
        let world = World::real();
        let holding = Holding::new(Arc::clone(&world.clock));
        holding.set_named(true);
        holding.hold(Duration::from_secs(3_600));
        let kube = Kube::new(Connections::over(&channel, "shop"), world, Counts::default());
        let mut reads =
            std::pin::pin!(join_all((0..CONCURRENCY).map(|_| kube.read(Call::get("/api".to_owned())))));
        while slow.asked.lock().len() < CONCURRENCY {
            assert!(futures::poll!(&mut reads).is_pending());
            tokio::task::yield_now().await;
        }
        let apply = || Call::apply("/x", bytes::Bytes::new(), ApplyMode { dry_run: false, force: false });
        let mut late = std::pin::pin!(kube.write(apply(), &holding));
        assert!(futures::poll!(&mut late).is_pending());
        assert_eq!((slow.asked.lock().len(), kube.writes()), (CONCURRENCY, 1));
        holding.lose();
        answer.send_replace(true);
        let (_, late) = tokio::join!(reads, late);
        assert_eq!(late.err(), Some(ApiError::NotHolding));
        assert!(!slow.asked.lock().contains(&Method::PATCH));
        holding.hold(Duration::from_secs(3_600));
        kube.write(apply(), &holding).await.expect("the Lease is back");
        assert!(slow.asked.lock().contains(&Method::PATCH));
    }
}
