//! The bus with traces and metrics: a request carries the trace of whoever asks, runs in a span of it where it is answered, and
//! is counted by how it ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, BusError, ByteStream, Handler, Opening, RequestError, Serving, StreamHandler, Subscription};
use bytes::Bytes;
use chassis::{Metrics, traces};
use events::request::RequestContext;
use events::subject::Subject;
use events::{Refusal, RefusalKind};
use parking_lot::Mutex;
use tracing::Instrument;
use world::World;

use super::metrics::BusMetrics;

/// How an encoded reply begins that is a refusal (`Result` with named fields); the refusal follows.
const REFUSED: &[u8] = b"\x81\xa3Err";
/// Different names that are counted apart; a program has fewer.
const NAMES: usize = 500;

/// See the module.
pub(super) struct ObservedBus {
    inner: Arc<dyn Bus>,
    world: World,
    counts: BusMetrics,
    names: Names,
}

impl ObservedBus {
    pub(super) fn new(inner: Arc<dyn Bus>, world: World, metrics: &Metrics) -> Self {
        Self { inner, world, counts: BusMetrics::register(metrics), names: Names::default() }
    }

    fn asked<T>(
        &self,
        subject: &Subject,
        began: Duration,
        answered: Result<T, RequestError>,
        fine: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, RequestError> {
        let name = self.names.of(subject);
        let outcome = answered.as_ref().map_or_else(|error| trouble(error), fine);
        let took = self.world.clock.monotonic().saturating_sub(began);
        self.counts.requests.with([name, outcome]).inc();
        self.counts.request_seconds.with([name]).observe(took.as_secs_f64());
        answered
    }

    /// The handler, each time in a span of its own.
    fn traced(&self, subject: &Subject, handler: Handler) -> Handler {
        let name = self.names.of(subject);
        Arc::new(move |mut context: RequestContext, body| {
            let organization = context.organization;
            let span =
                tracing::info_span!("request", otel.name = name, otel.kind = "server", name, %organization);
            traces::set_parent_or_none(&span, context.traceparent.as_deref());
            context.traceparent = traces::traceparent_of(&span).or(context.traceparent);
            let handling = span.in_scope(|| handler(context, body));
            Box::pin(handling.instrument(span))
        })
    }
}

/// Names of requests and notices as labels. They are kept for good: there are only as many as the program has.
#[derive(Default)]
struct Names(Mutex<BTreeSet<&'static str>>);

impl Names {
    fn of(&self, subject: &Subject) -> &'static str {
        let name = subject.name().unwrap_or("none");
        let mut known = self.0.lock();
        if let Some(known) = known.get(name) {
            return known;
        }
        if known.len() >= NAMES {
            return "other";
        }
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        known.insert(kept);
        kept
    }
}

fn trouble(error: &RequestError) -> &'static str {
    match error {
        RequestError::NoResponder { .. } => "no_responder",
        RequestError::Deadline { .. } => "deadline",
        RequestError::TooLarge { .. } => "too_large",
        RequestError::BadSubject { .. } => "bad_subject",
        RequestError::Away { .. } => "away",
    }
}

fn outcome(reply: &Bytes) -> &'static str {
    let Some(refusal) = reply.strip_prefix(REFUSED) else { return "ok" };
    match events::decode::<Refusal>(refusal).map_or(RefusalKind::Internal, |refusal| refusal.kind) {
        RefusalKind::Invalid => "invalid",
        RefusalKind::Unauthenticated => "unauthenticated",
        RefusalKind::Denied => "denied",
        RefusalKind::NotFound => "not_found",
        RefusalKind::Conflict => "conflict",
        RefusalKind::Unavailable => "unavailable",
        RefusalKind::Internal => "internal",
    }
}

/// The context with the current span's trace, or with that which it came with.
fn with_trace(context: &RequestContext) -> RequestContext {
    let mut context = context.clone();
    context.traceparent = traces::current_traceparent().or(context.traceparent);
    context
}

#[async_trait]
impl Bus for ObservedBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let began = self.world.clock.monotonic();
        let answered = self.inner.request(subject, &with_trace(context), body).await;
        self.asked(subject, began, answered, outcome)
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        self.inner.serve(subject, group, self.traced(subject, handler)).await
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        let published = self.inner.publish(subject, body).await;
        let outcome = if published.is_ok() { "sent" } else { "failed" };
        self.counts.notices.with([self.names.of(subject), outcome]).inc();
        published
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        self.inner.subscribe(subject).await
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        opening: Opening,
    ) -> Result<ByteStream, RequestError> {
        let began = self.world.clock.monotonic();
        let opened = self.inner.open_stream(subject, &with_trace(context), window, opening).await;
        self.asked(subject, began, opened, |_| "ok")
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        self.inner.serve_streams(subject, group, handler).await
    }

    async fn serve_together(
        &self,
        group: &str,
        requests: Vec<(Subject, Handler)>,
        streams: (&Subject, StreamHandler),
    ) -> Result<Serving, BusError> {
        let traced = requests.into_iter().map(|(subject, handler)| {
            let handler = self.traced(&subject, handler);
            (subject, handler)
        });
        self.inner.serve_together(group, traced.collect(), streams).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_bytes() {
        let refused = |kind| {
            let reply: Result<u32, Refusal> = Err(Refusal::new(kind, "no"));
            outcome(&Bytes::from(events::encode(&reply).unwrap()))
        };
        assert_eq!(refused(RefusalKind::NotFound), "not_found");
        assert_eq!(refused(RefusalKind::Internal), "internal");
        let fine: Result<u32, Refusal> = Ok(7);
        assert_eq!(outcome(&Bytes::from(events::encode(&fine).unwrap())), "ok");
    }

    #[test]
    fn names_do_not_grow_without_end() {
        let names = Names::default();
        assert_eq!(names.of(&Subject::request("authz.decide")), "authz.decide");
        for number in 0..NAMES {
            let _name = names.of(&Subject::request(&format!("made.up-{number}")));
        }
        assert_eq!(names.of(&Subject::request("one.too-many")), "other");
        assert_eq!(names.of(&Subject::request("authz.decide")), "authz.decide");
    }
}
