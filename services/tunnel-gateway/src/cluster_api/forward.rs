//! One request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use chassis::traces::FOR_COLLECTORS;
use http::header::HeaderName;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::Instrument as _;
use tunnel::BoxError;
use tunnel::body::{Guard, Held, RequestBody};
use tunnel::gateway::{Again, Unanswered};
use tunnel::wire;

use super::admission::{AdmittedRequest, Forwarded, admit};
use super::error::{Hop, ProxyError};
use super::open_requests::OpenGuard;
use super::upstream::{self, Upstream};
use super::{AnswerBody, discovery_errors, headers, hop, upgrade};
use crate::gateway::Gateway;
use crate::tunnels::capacity::CapacityPermit;
use crate::tunnels::session::Session;

const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

/// Answers a request.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, ProxyError> {
    let traceparent =
        request.headers().get(&TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let is_discovery = headers::is_discovery(request.headers());
    let span = tracing::info_span!(
        target: FOR_COLLECTORS,
        "cluster request",
        otel.kind = "server",
        http.request.method = %request.method(),
        http.response.status_code = tracing::field::Empty,
    );
    chassis::traces::set_parent(&span, traceparent.as_deref());
    let trace = trace_of(gateway, &span);
    let answered = answer_traced(gateway, request, &trace, is_discovery).instrument(span.clone()).await;
    match answered {
        Ok(answer) => {
            span.record("http.response.status_code", answer.status().as_u16());
            Ok(answer)
        }
        Err(error) => {
            tracing::debug!(trace, error = error.describe(), "no answer of the API server");
            Err(error.with_trace(&trace).in_plain_text(is_discovery))
        }
    }
}

/// The trace that a request is part of, or where traces are not kept, a number for the logs.
fn trace_of(gateway: &Arc<Gateway>, span: &tracing::Span) -> String {
    let traceparent = chassis::traces::traceparent_of(span);
    let trace = traceparent.as_deref().and_then(|text| text.split('-').nth(1)).map(str::to_owned);
    trace.unwrap_or_else(|| gateway.world.new_uuid().simple().to_string())
}

async fn answer_traced(
    gateway: &Arc<Gateway>,
    mut request: Request<Incoming>,
    trace: &str,
    is_discovery: bool,
) -> Result<Response<AnswerBody>, ProxyError> {
    let wished = headers::upgrade(&request);
    let through = admit(gateway, &request, wished.as_ref(), trace).await?;
    if let Some(protocol) = wished {
        let upgraded = hyper::upgrade::on(&mut request);
        return upgrade::answer(gateway, through, protocol, upgraded).await;
    }
    let AdmittedRequest { guard, asked, below, .. } = through;
    let body = request.into_body();
    let body = match body.is_end_stream() {
        true => tunnel::body::empty(),
        false => BodyExt::boxed_unsync(guard.received(body.map_err(BoxError::from))),
    };
    let mut answer = ask_while_open(gateway, &guard, asked, body).await?;
    if is_discovery {
        let readable = discovery_errors::readable(answer).await;
        answer = readable.inspect_err(|error| guard.open.audit.failed(error.code()))?;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers = guard.check_redirect(parts.status, headers::answered(&parts.headers), below)?;
    guard.open.audit.answered(parts.status);
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, guard.sent(body).boxed_unsync()))
}

/// Asks the agent for as long as the request may be open; what goes wrong is recorded.
pub(super) async fn ask_while_open(
    gateway: &Arc<Gateway>,
    guard: &OpenGuard,
    asked: Forwarded,
    body: RequestBody,
) -> Result<Response<AnswerBody>, ProxyError> {
    let answer = tokio::select! {
        biased;
        // First: of a request that was ended before it was sent, nothing is.
        _end = guard.open.ended() => {
            let message = "the permission for the request was withdrawn, or the gateway is stopping; retry";
            Err(ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message))
        }
        answer = ask(gateway, asked, body) => answer,
    };
    answer.inspect_err(|error| guard.open.audit.failed(error.code()))
}

/// Asks the agent once there is a way to it; over another one, when that took nothing of the request, or was lost while it only read.
async fn ask(
    gateway: &Arc<Gateway>,
    mut asked: Forwarded,
    mut body: RequestBody,
) -> Result<Response<AnswerBody>, ProxyError> {
    let mut attempts = Attempts::default();
    loop {
        let (session, taken) = match upstream::find(gateway, &asked).await? {
            Upstream::Local(session, taken) => (session, taken),
            Upstream::Remote(opened) => return hop::ask(gateway, opened, body, asked.head_time).await,
        };
        let request = asked.head.map(|()| body);
        match carry((session, taken), request, asked.head_time, &mut attempts).await? {
            Carried::Answered(answer) => return Ok(answer),
            Carried::Again(request) => {
                let (parts, again) = request.into_parts();
                (asked.head, body) = (Request::from_parts(parts, ()), again);
            }
        }
    }
}

/// What became of a request that was to go over a connection.
pub(super) enum Carried {
    Answered(Response<AnswerBody>),
    /// The agent takes nothing over it any more, as when it stops, or it was lost; no request finds it now.
    Again(Box<Request<RequestBody>>),
}

/// Connections that one request has lost. An agent of which more are lost has another trouble.
#[derive(Default)]
pub(super) struct Attempts(usize);

/// The tunnel of an agent that left while its gateway stood still looks open until it is used.
const LOST: usize = 1;

/// Sends a request over a connection with room for it.
pub(super) async fn carry(
    (session, taken): (Arc<Session>, CapacityPermit),
    request: Request<RequestBody>,
    limit: Duration,
    attempts: &mut Attempts,
) -> Result<Carried, ProxyError> {
    match session.connection.try_request(request, limit, Guard::PATIENT).await {
        // The room is taken for as long as the answer goes on.
        Ok(answer) => Ok(Carried::Answered(
            answer.map(|body| Held::new(body, taken).map_err(Into::into).boxed_unsync()),
        )),
        Err(Unanswered { again: Some(Again::Unsent(request)), .. }) => Ok(Carried::Again(request)),
        Err(Unanswered { again: Some(Again::Lost(request)), .. }) if attempts.0 < LOST => {
            attempts.0 += 1;
            Ok(Carried::Again(request))
        }
        Err(Unanswered { error, .. }) => Err(ProxyError::from_tunnel(&error)),
    }
}
