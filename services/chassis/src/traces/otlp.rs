//! Spans over OTLP/HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, TraceContextExt, TraceFlags, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, Sampler, SdkTracerProvider,
};
use tokio::runtime::Handle;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::{Layer, Registry};
use world::World;

use super::export::{Bounded, Counted, Tally};
use super::{Process, TraceError, TraceMetrics};

const TRACEPARENT: &str = "traceparent";
const SEND_DEADLINE: Duration = Duration::from_secs(5);
/// How long a span waits for others, at most.
const SEND_EVERY: Duration = Duration::from_secs(1);
const MAXIMUM_ANSWER_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Provider(SdkTracerProvider);

impl Provider {
    pub(super) fn new(
        world: &World,
        endpoint: &str,
        ratio: f64,
        process: &Process,
        counts: TraceMetrics,
    ) -> Result<(Self, Box<dyn Layer<Registry> + Send + Sync>), TraceError> {
        let wrong = |detail: String| TraceError::Exporter { endpoint: endpoint.to_owned(), detail };
        let runtime = Handle::try_current().map_err(|error| wrong(error.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client { world: world.clone(), runtime })
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let tally = Tally::new(counts);
        let exporter = Counted { inner: exporter, tally: Arc::clone(&tally) };
        let batches = BatchConfigBuilder::default().with_scheduled_delay(SEND_EVERY).build();
        let inner = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let resource = Resource::builder()
            .with_service_name(process.service)
            .with_attributes([
                KeyValue::new("service.version", process.version),
                KeyValue::new("service.instance.id", process.instance.clone()),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Bounded { inner, tally })
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_resource(resource)
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(process.service))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Ok((Self(provider), Box::new(layer.with_filter(LevelFilter::INFO))))
    }

    pub(super) fn finish(self) {
        if let Err(error) = self.0.shutdown() {
            tracing::debug!(%error, "last spans not sent");
        }
    }
}

/// The exporter calls from a thread of its own, outside the runtime; the request runs inside.
struct Client {
    world: World,
    runtime: Handle,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let world = self.world.clone();
        let task = async move {
            let sent = tokio::select! {
                biased;
                sent = send(&world, request) => sent,
                () = world.clock.sleep(SEND_DEADLINE) => Err(HttpError::from("the collector did not answer in time")),
            };
            // The exporter no longer waits when it is shut down.
            let _sent = answer.send(sent);
        };
        {
            let _inside = self.runtime.enter();
            self.world.spawner.spawn("trace export", Box::pin(task));
        }
        answered.await?
    }
}

async fn send(world: &World, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut parts, body) = request.into_parts();
    let host = parts.uri.host().ok_or("the endpoint has no host")?.to_owned();
    let authority = parts.uri.authority().map(ToString::to_string).unwrap_or_default();
    let connection = world.network.dial(&host, parts.uri.port_u16().unwrap_or(80)).await?;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
    let driver = world.spawner.spawn(
        "trace export connection",
        Box::pin(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "collector connection ended early");
            }
        }),
    );
    parts.headers.insert(http::header::HOST, authority.parse()?);
    parts.uri = parts.uri.path().parse()?;
    let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAXIMUM_ANSWER_BYTES).collect().await?.to_bytes();
    driver.abort();
    Ok(Response::from_parts(parts, body))
}

pub(super) fn traceparent_of(span: &tracing::Span) -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

fn context_of(traceparent: &str) -> Context {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    // Not on the current span's context, so that a malformed one names no trace.
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

pub(super) fn set_parent(span: &tracing::Span, traceparent: &str) {
    // A span that no layer records has no parent to set.
    let _set = span.set_parent(context_of(traceparent));
}

/// A span under a parent that is not sampled is not sampled either: the services called next join the trace, and nothing of it is sent.
pub(super) fn begin_no_trace(span: &tracing::Span) {
    let ids = RandomIdGenerator::default();
    let none = SpanContext::new(
        ids.new_trace_id(),
        ids.new_span_id(),
        TraceFlags::NOT_SAMPLED,
        true,
        TraceState::NONE,
    );
    // A span that no layer records has no parent to set.
    let _set = span.set_parent(Context::new().with_remote_span_context(none));
}

pub(super) fn add_link(span: &tracing::Span, traceparent: &str) {
    span.add_link(context_of(traceparent).span().span_context().clone());
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn process() -> Process {
        Process { service: "test", version: "0", instance: "one".to_owned() }
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traces(record: impl FnOnce()) {
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), record);
    }

    #[test]
    fn the_callers_word_on_sampling_counts_and_what_nobody_asked_for_is_in_no_trace() {
        traces(|| {
            let unwanted = tracing::info_span!("unwanted");
            super::super::set_parent(&unwanted, Some(&PARENT.replace("-01", "-00")));
            let told = super::super::traceparent_of(&unwanted).unwrap();
            assert!(told.starts_with(&PARENT[..36]) && told.ends_with("-00"), "{told}");

            let aside = tracing::info_span!("aside");
            super::super::set_parent_or_none(&aside, None);
            let below =
                aside.in_scope(|| tracing::info_span!("below").in_scope(super::super::current_traceparent));
            assert!(below.unwrap().ends_with("-00"));

            let begun = tracing::info_span!("begun");
            super::super::set_parent(&begun, None);
            assert!(super::super::traceparent_of(&begun).unwrap().ends_with("-01"));
        });
    }

    #[test]
    fn what_was_caused_long_ago_begins_a_trace_of_its_own() {
        traces(|| {
            let caused = |age| {
                let span = tracing::info_span!("sync");
                super::super::set_cause(&span, Some(PARENT), age);
                super::super::traceparent_of(&span).unwrap()
            };
            assert!(caused(super::super::CONTINUED_FOR).starts_with(&PARENT[..36]));
            let late = caused(super::super::CONTINUED_FOR * 2);
            assert!(!late.starts_with(&PARENT[..36]) && late.ends_with("-01"), "{late}");
        });
    }

    #[test]
    fn a_malformed_context_is_ignored() {
        traces(|| {
            let span = tracing::info_span!("span");
            super::super::set_parent(&span, Some("00-nothing-good-01"));
            assert!(super::super::traceparent_of(&span).unwrap().ends_with("-01"));
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_span_continues_its_callers_trace_and_reaches_the_collector() {
        let world = World::real();
        let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let port = listener.local_address().unwrap().port();
        let (provider, layer) = Provider::new(
            &world,
            &format!("http://127.0.0.1:{port}"),
            1.0,
            &process(),
            TraceMetrics::default(),
        )
        .unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let span = tracing::info_span!("push");
            super::super::set_parent(&span, Some(PARENT));
            let inside = span.in_scope(super::super::current_traceparent).unwrap();
            assert!(inside.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{inside}");
            assert_ne!(inside, PARENT, "it is a span of its own");
        });
        let finishing = tokio::task::spawn_blocking(|| provider.finish());
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.windows(4).any(|window| window == b"push") {
            assert_ne!(
                connection.read_buf(&mut received).await.unwrap(),
                0,
                "the request ended without the span"
            );
        }
        assert!(received.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        finishing.await.unwrap();
    }
}
