//! Between the spans that end and the collector: a bound, and counters of what became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

use super::TraceMetrics;

/// Spans that wait, below what the processor itself would drop without a word.
const WAITING: usize = 2_000;

/// What waits, and what became of the rest.
#[derive(Debug)]
pub(super) struct Tally {
    waiting: AtomicUsize,
    /// The collector did not take the last ones.
    refused: AtomicBool,
    counts: TraceMetrics,
}

impl Tally {
    pub(super) fn new(counts: TraceMetrics) -> Arc<Self> {
        Arc::new(Self { waiting: AtomicUsize::new(0), refused: AtomicBool::new(false), counts })
    }

    /// Takes a place in the queue, if there is one.
    fn enter(&self) -> bool {
        let entered = self
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
                (waiting < WAITING).then_some(waiting + 1)
            })
            .is_ok();
        if !entered {
            self.counts.spans.with(["dropped"]).inc();
        }
        entered
    }

    fn left(&self, count: usize, result: &OTelSdkResult) {
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        let refused = result.is_err();
        let outcome = if refused { "refused" } else { "sent" };
        self.counts.spans.with([outcome]).inc_by(count as u64);
        if self.refused.swap(refused, Ordering::AcqRel) == refused {
            return;
        }
        match result {
            Err(error) => tracing::warn!(%error, "collector does not accept spans"),
            Ok(()) => tracing::info!("collector accepts spans again"),
        }
    }
}

/// A processor that takes only so many.
#[derive(Debug)]
pub(super) struct Bounded {
    pub(super) inner: BatchSpanProcessor,
    pub(super) tally: Arc<Tally>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.tally.enter() {
            self.inner.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter whose batches are counted.
#[derive(Debug)]
pub(super) struct Counted<E> {
    pub(super) inner: E,
    pub(super) tally: Arc<Tally>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.inner.export(batch).await;
        self.tally.left(count, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkError;

    use super::*;

    #[test]
    fn what_is_too_much_is_dropped_and_counted_and_so_is_what_nobody_took() {
        let counts = TraceMetrics::default();
        let tally = Tally::new(counts.clone());
        assert!((0..WAITING).all(|_| tally.enter()));
        assert!(!tally.enter(), "the queue is full");
        tally.left(500, &Ok(()));
        tally.left(300, &Err(OTelSdkError::Timeout(Duration::ZERO)));
        assert!((0..800).all(|_| tally.enter()) && !tally.enter(), "as many as left find room");
        let became = ["sent", "refused", "dropped"].map(|outcome| counts.spans.with([outcome]).get());
        assert_eq!(became, [500, 300, 2]);
    }
}
