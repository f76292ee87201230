//! A collector of traces: takes OTLP over HTTP, as any collector does, and shows what came.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpStream;

use crate::background::{Server, accept, listen};
use crate::free_port;

/// One span that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// `service.name` of the process.
    pub service: String,
    /// `service.instance.id` of the process.
    pub instance: String,
    /// Its name.
    pub name: String,
    /// Such as `server`, `client`, `internal`.
    pub kind: String,
    /// Its trace, in hexadecimal.
    pub trace_id: String,
    /// Its id, in hexadecimal.
    pub span_id: String,
    /// Its parent's id; empty when it has none.
    pub parent_id: String,
    /// Spans that it is linked with: trace and span.
    pub links: Vec<(String, String)>,
    /// Whether it says that it failed.
    pub failed: bool,
    /// What is said of it.
    pub attributes: BTreeMap<String, String>,
    /// What was said meanwhile: name and attributes.
    pub events: Vec<(String, BTreeMap<String, String>)>,
    /// Nanoseconds from its beginning to its end.
    pub nanoseconds: u64,
    begun: u64,
}

/// A running collector; it ends with this handle.
#[derive(Debug)]
pub struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    address: SocketAddr,
    _server: Server,
}

impl Collector {
    /// Starts one on a free port.
    pub fn start() -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let taking = Arc::clone(&spans);
        let serve = move |stream: TcpStream| {
            let taking = Arc::clone(&taking);
            let service = service_fn(move |request| answer(request, Arc::clone(&taking)));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            Some(async move {
                // Whoever breaks off has sent nothing.
                let _ended = connection.await;
            })
        };
        Ok(Self { spans, address, _server: Server::start(accept(listen(address)?, serve)) })
    }

    /// What `--otlp-endpoint` wants.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that came so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().clone()
    }

    /// What came of one trace, by its id in hexadecimal, in order of the spans' beginnings.
    #[must_use]
    pub fn trace(&self, trace_id: &str) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.trace_id == trace_id);
        spans.sort_by_key(|span| span.begun);
        spans
    }

    /// A trace as a tree, for people.
    #[must_use]
    pub fn tree(&self, trace_id: &str) -> String {
        let spans = self.trace(trace_id);
        let known = |id: &str| spans.iter().any(|span| span.span_id == id);
        let mut text = String::new();
        for root in spans.iter().filter(|span| !known(&span.parent_id)) {
            write_tree(&mut text, &spans, root, 0);
        }
        text
    }
}

fn write_tree(text: &mut String, spans: &[Span], span: &Span, depth: usize) {
    let Span { service, name, kind, nanoseconds, attributes, .. } = span;
    // Writing into a string does not fail.
    let _written = writeln!(
        text,
        "{:depth$}{name} ({service}, {kind}, {} µs) {attributes:?}{}",
        "",
        nanoseconds / 1000,
        if span.failed { " FAILED" } else { "" },
        depth = depth * 2
    );
    for child in spans.iter().filter(|child| child.parent_id == span.span_id) {
        write_tree(text, spans, child, depth + 1);
    }
}

async fn answer(
    request: Request<Incoming>,
    spans: Arc<Mutex<Vec<Span>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let of_traces = request.uri().path() == "/v1/traces";
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let decoded = body.ok().and_then(|body| ExportTraceServiceRequest::decode(body).ok());
    let (status, answer) = match decoded.filter(|_| of_traces) {
        Some(decoded) => {
            spans.lock().extend(decoded.resource_spans.into_iter().flat_map(spans_of));
            (StatusCode::OK, ExportTraceServiceResponse::default().encode_to_vec())
        }
        None => (StatusCode::BAD_REQUEST, Vec::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/x-protobuf"));
    Ok(response)
}

fn spans_of(of_process: ResourceSpans) -> Vec<Span> {
    let resource = attributes(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
    let said = |name: &str| resource.get(name).cloned().unwrap_or_default();
    let (service, instance) = (said("service.name"), said("service.instance.id"));
    let spans = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans
        .map(|span| Span {
            service: service.clone(),
            instance: instance.clone(),
            kind: SpanKind::try_from(span.kind)
                .map_or("", |kind| kind.as_str_name())
                .trim_start_matches("SPAN_KIND_")
                .to_lowercase(),
            trace_id: hex::encode(&span.trace_id),
            span_id: hex::encode(&span.span_id),
            parent_id: hex::encode(&span.parent_span_id),
            links: span
                .links
                .iter()
                .map(|link| (hex::encode(&link.trace_id), hex::encode(&link.span_id)))
                .collect(),
            failed: span.status.is_some_and(|status| status.code == SpanStatus::Error as i32),
            attributes: attributes(span.attributes),
            events: span.events.into_iter().map(|event| (event.name, attributes(event.attributes))).collect(),
            nanoseconds: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
            begun: span.start_time_unix_nano,
            name: span.name,
        })
        .collect()
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    all.into_iter().map(|one| (one.key, text(one.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    }
}
