//! Traces: W3C trace context through Kasbah, and spans to a collector over OTLP/HTTP where one is configured.
//!
//! Without the feature `otlp` no span is sent and no trace context begins here; one that a caller brought still travels in
//! requests and events.

#[cfg(feature = "otlp")]
mod otlp;

use tracing_subscriber::{Layer, Registry};
use world::World;

/// Where spans go.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TraceArgs {
    /// OTLP/HTTP collector for traces, such as http://localhost:4318; none are sent if not given
    #[cfg(feature = "otlp")]
    #[arg(long, env = "KASBAH_OTLP_ENDPOINT", value_name = "URL", value_parser = parse_endpoint)]
    pub otlp_endpoint: Option<String>,
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

/// A layer over the registry.
pub(crate) type SpanLayer = Option<Box<dyn Layer<Registry> + Send + Sync>>;

/// Sends the last spans when dropped.
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
        service: &'static str,
    ) -> Result<(Self, SpanLayer), TraceError> {
        let Some(endpoint) = &args.otlp_endpoint else { return Ok((Self { provider: None }, None)) };
        let (provider, layer) = otlp::Provider::new(world, endpoint, service)?;
        Ok((Self { provider: Some(provider) }, Some(layer)))
    }

    #[cfg(not(feature = "otlp"))]
    pub(crate) fn new(_: &World, _: &TraceArgs, _: &'static str) -> Result<(Self, SpanLayer), TraceError> {
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

/// The trace context of the current span as a `traceparent` header's value; `None` when no trace is running.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    #[cfg(feature = "otlp")]
    return otlp::traceparent_of(&tracing::Span::current());
    #[cfg(not(feature = "otlp"))]
    None
}

/// Makes a span part of the trace that a `traceparent` names. Call before the span is entered. A malformed one is ignored, as
/// W3C Trace Context asks for.
#[cfg_attr(
    not(feature = "otlp"),
    allow(unused_variables, reason = "without traces a span has no parent elsewhere")
)]
pub fn set_parent(span: &tracing::Span, traceparent: Option<&str>) {
    #[cfg(feature = "otlp")]
    if let Some(traceparent) = traceparent {
        otlp::set_parent(span, traceparent);
    }
}
