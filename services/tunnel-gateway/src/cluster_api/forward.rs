//! One request, from its head to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::HeaderName;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::Instrument as _;
use tunnel::body::{Guard, RequestBody};
use tunnel::wire;

use super::admission::{LetThrough, let_through};
use super::open::OpenBody;
use super::trouble::{Hop, Trouble};
use super::{AnswerBody, headers, hop, upgrade};
use crate::gateway::Gateway;

const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

/// A reader may stand still for long, as a suspended `kubectl logs -f` does; its stream is all that it holds.
pub(super) const PATIENT: Guard = Guard {
    queue_bytes: 256 * 1024,
    stall: Duration::from_secs(3600),
    small_frame_bytes: 256,
    small_burst: 2000,
    small_per_second: 500,
};

/// Answers a request.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Trouble> {
    let traceparent =
        request.headers().get(&TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let discovers = headers::discovers(request.headers());
    let span = tracing::info_span!(
        "cluster request",
        otel.kind = "server",
        http.request.method = %request.method(),
        http.response.status_code = tracing::field::Empty,
    );
    chassis::traces::set_parent(&span, traceparent.as_deref());
    let trace = trace_of(&gateway, &span);
    let answered = answer_traced(gateway, request, &trace).instrument(span.clone()).await;
    match answered {
        Ok(answer) => {
            span.record("http.response.status_code", answer.status().as_u16());
            Ok(answer)
        }
        Err(trouble) => {
            tracing::debug!(trace, trouble = trouble.describe(), "no answer of the API server");
            Err(trouble.traced(&trace).in_plain_text(discovers))
        }
    }
}

/// The trace that a request is part of, or where traces are not kept, a number for the logs.
fn trace_of(gateway: &Gateway, span: &tracing::Span) -> String {
    let traceparent = chassis::traces::traceparent_of(span);
    let trace = traceparent.as_deref().and_then(|text| text.split('-').nth(1)).map(str::to_owned);
    trace.unwrap_or_else(|| gateway.world.new_uuid().simple().to_string())
}

async fn answer_traced(
    gateway: Arc<Gateway>,
    mut request: Request<Incoming>,
    trace: &str,
) -> Result<Response<AnswerBody>, Trouble> {
    let wished = headers::upgrade(&request);
    let through = let_through(&gateway, &request, wished.as_ref(), trace).await?;
    if let Some(protocol) = wished {
        let upgraded = hyper::upgrade::on(&mut request);
        return upgrade::answer(&gateway, through, protocol, upgraded).await;
    }
    let (received, _) = through.entered.open.recorded.counters();
    let body = counted(request.into_body(), received);
    let ended = through.entered.open.ended();
    let answer = tokio::select! {
        biased;
        answer = ask(&gateway, &through, body) => answer?,
        _end = ended => {
            let message = "what let the request through was withdrawn, or the gateway stops; retry";
            return Err(Trouble::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message));
        }
    };
    let (mut parts, body) = answer.into_parts();
    through.entered.open.recorded.answered(parts.status);
    parts.headers = headers::answered(parts.headers);
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, OpenBody::new(body, through.entered).boxed_unsync()))
}

/// Asks the agent, over a tunnel of its that is open here, or else over one of another gateway's.
pub(super) async fn ask(
    gateway: &Gateway,
    through: &LetThrough,
    body: RequestBody,
) -> Result<Response<AnswerBody>, Trouble> {
    let (parts, ()) = through.head.clone().into_parts();
    let request = Request::from_parts(parts, body);
    let sessions = gateway.registry.list(Some(through.agent));
    let Some(session) = sessions.into_iter().find(|session| !session.connection.is_closed()) else {
        return hop::ask(gateway, through.agent, request, through.head_time).await;
    };
    let answer = session.connection.request_guarded(request, through.head_time, PATIENT).await;
    let answer = answer.map_err(|error| Trouble::not_asked(&error))?;
    Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
}

/// A client's body, whose bytes are counted.
fn counted(body: Incoming, received: Arc<AtomicU64>) -> RequestBody {
    let counted = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            received.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        frame
    });
    counted.map_err(Into::into).boxed_unsync()
}
