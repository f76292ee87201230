//! Traces: W3C trace context through Kasbah, and spans to a collector over OTLP/HTTP where one is configured.
//!
//! A trace begins with a request from outside, or with something found that nobody asked for; everything that follows from it
//! is part of it, in whichever process and however it got there. A caller's own trace is continued, and its word on whether it
//! is sampled counts. What runs by itself all the time (looks that find nothing, presence) is part of no trace.
//!
//! Spans wait in a queue for the collector. When it is full, because the collector is slow or away, they are dropped and
//! counted: nothing ever waits for a collector.
//!
//! Without the feature `otlp` no span is sent and no trace context begins here; one that a caller brought still travels in
//! requests and events.

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod otlp;

use std::time::Duration;

use tracing::Span;
use tracing_subscriber::{Layer, Registry};
use world::World;

use crate::Metrics;

/// How long after its beginning something still is part of the trace that caused it. Later it begins a trace of its own, with a
/// link: who keeps traces has long closed the old one.
pub const CONTINUED_FOR: Duration = Duration::from_secs(3600);

/// Where spans go.
#[derive(Debug, Clone, clap::Args)]
pub struct TraceArgs {
    /// OTLP/HTTP collector for traces, such as http://localhost:4318; by default no traces are sent
    #[cfg(feature = "otlp")]
    #[arg(long, env = "KASBAH_OTLP_ENDPOINT", value_name = "URL", value_parser = parse_endpoint)]
    pub otlp_endpoint: Option<String>,
    /// Fraction of the traces that begin here to send, from 0 to 1; a trace from another process keeps its own sampling decision
    #[cfg(feature = "otlp")]
    #[arg(
        long,
        env = "KASBAH_TRACE_RATIO",
        value_name = "RATIO",
        default_value = "1",
        value_parser = parse_ratio
    )]
    pub trace_ratio: f64,
}

/// Which process it is, as collectors tell processes apart.
#[derive(Debug, Clone)]
pub struct Process {
    /// `service.name`.
    pub service: &'static str,
    /// `service.version`.
    pub version: &'static str,
    /// `service.instance.id`: another one with each start.
    pub instance: String,
}

/// Traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The exporter refused its settings.
    #[error("cannot send traces to {endpoint}: {detail}")]
    Exporter {
        /// Where they were to go.
        endpoint: String,
        /// What the exporter said.
        detail: String,
    },
}

crate::metrics! {
    /// What became of spans.
    pub struct TraceMetrics in "kasbah_trace" {
        /// Ended spans, by result
        spans: Counter { outcome: "`sent`, `refused` (not accepted by the collector), `dropped` (too many were waiting)" },
    }
}

/// A layer over the registry.
pub(crate) type SpanLayer = Option<Box<dyn Layer<Registry> + Send + Sync>>;

/// Sends the last spans when finished.
#[derive(Debug)]
pub struct Traces {
    #[cfg(feature = "otlp")]
    provider: Option<otlp::Provider>,
}

impl Traces {
    #[cfg(feature = "otlp")]
    pub(crate) fn new(
        world: &World,
        args: &TraceArgs,
        process: &Process,
        metrics: &Metrics,
    ) -> Result<(Self, SpanLayer), TraceError> {
        let counts = TraceMetrics::register(metrics);
        let Some(endpoint) = &args.otlp_endpoint else { return Ok((Self { provider: None }, None)) };
        let (provider, layer) = otlp::Provider::new(world, endpoint, args.trace_ratio, process, counts)?;
        Ok((Self { provider: Some(provider) }, Some(layer)))
    }

    #[cfg(not(feature = "otlp"))]
    pub(crate) fn new(
        _: &World,
        _: &TraceArgs,
        _: &Process,
        _: &Metrics,
    ) -> Result<(Self, SpanLayer), TraceError> {
        Ok((Self {}, None))
    }

    /// Sends what is left. Blocks for up to a few seconds when the collector does not answer.
    pub fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(provider) = self.provider {
            provider.finish();
        }
    }
}

#[cfg(feature = "otlp")]
fn parse_endpoint(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    match uri.scheme_str() {
        Some("http") if uri.host().is_some() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("expected http://host:port".to_owned()),
    }
}

#[cfg(feature = "otlp")]
fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a number from 0 to 1, such as 0.1".to_owned())
}

/// Target of spans that collectors alone see. The log's lines would cost more than a small request's own work, and without a collector
/// such a span is none.
pub const FOR_COLLECTORS: &str = "kasbah_trace";

/// The trace context of the current span as a `traceparent` header's value; `None` when no trace is running.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// The trace context of a span; `None` when it is of no trace.
#[cfg_attr(not(feature = "otlp"), allow(unused_variables, reason = "without traces there is none"))]
#[must_use]
pub fn traceparent_of(span: &Span) -> Option<String> {
    #[cfg(feature = "otlp")]
    return otlp::traceparent_of(span);
    #[cfg(not(feature = "otlp"))]
    None
}

/// Makes a span part of the trace that a `traceparent` names; without one it begins a trace. Call before the span is entered. A
/// malformed one is ignored, as W3C Trace Context asks for.
#[cfg_attr(
    not(feature = "otlp"),
    allow(unused_variables, reason = "without traces a span has no parent elsewhere")
)]
pub fn set_parent(span: &Span, traceparent: Option<&str>) {
    #[cfg(feature = "otlp")]
    if let Some(traceparent) = traceparent {
        otlp::set_parent(span, traceparent);
    }
}

/// As [`set_parent`], but without a `traceparent` the span, and all below it, are part of no trace.
pub fn set_parent_or_none(span: &Span, traceparent: Option<&str>) {
    set_parent(span, traceparent);
    #[cfg(feature = "otlp")]
    if traceparent.is_none() {
        otlp::begin_no_trace(span);
    }
}

/// As [`set_parent_or_none`] for what was caused so long ago: after [`CONTINUED_FOR`] it begins a trace of its own, with a link.
pub fn set_cause(span: &Span, traceparent: Option<&str>, age: Duration) {
    match traceparent {
        Some(traceparent) if age > CONTINUED_FOR => add_link(span, traceparent),
        traceparent => set_parent_or_none(span, traceparent),
    }
}

/// Links a span with another that led to it too.
#[cfg_attr(
    not(feature = "otlp"),
    allow(unused_variables, reason = "without traces there is nothing to link")
)]
pub fn add_link(span: &Span, traceparent: &str) {
    #[cfg(feature = "otlp")]
    otlp::add_link(span, traceparent);
}

/// Says on a span that what it stands for failed.
pub fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}
