//! One request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use chassis::traces::FOR_COLLECTORS;
use http::header::HeaderName;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::Instrument as _;
use tunnel::BoxError;
use tunnel::body::{Guard, Held, RequestBody};
use tunnel::wire;

use super::admission::{Forwarded, LetThrough, let_through};
use super::open::Entered;
use super::trouble::{Hop, Trouble};
use super::way::{self, Way};
use super::{AnswerBody, headers, hop, upgrade};
use crate::gateway::Gateway;
use crate::room::Taken;
use crate::session::Session;

const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

/// A reader may stand still for long, as a suspended `kubectl logs -f` does; its stream is all that it holds.
const PATIENT: Guard = Guard {
    queue_bytes: 256 * 1024,
    stall: Duration::from_secs(3600),
    small_frame_bytes: 256,
    small_burst: 2000,
    small_per_second: 500,
};

/// Answers a request.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Trouble> {
    let traceparent =
        request.headers().get(&TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let discovers = headers::discovers(request.headers());
    let span = tracing::info_span!(
        target: FOR_COLLECTORS,
        "cluster request",
        otel.kind = "server",
        http.request.method = %request.method(),
        http.response.status_code = tracing::field::Empty,
    );
    chassis::traces::set_parent(&span, traceparent.as_deref());
    let trace = trace_of(gateway, &span);
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
fn trace_of(gateway: &Arc<Gateway>, span: &tracing::Span) -> String {
    let traceparent = chassis::traces::traceparent_of(span);
    let trace = traceparent.as_deref().and_then(|text| text.split('-').nth(1)).map(str::to_owned);
    trace.unwrap_or_else(|| gateway.world.new_uuid().simple().to_string())
}

async fn answer_traced(
    gateway: &Arc<Gateway>,
    mut request: Request<Incoming>,
    trace: &str,
) -> Result<Response<AnswerBody>, Trouble> {
    let wished = headers::upgrade(&request);
    let through = let_through(gateway, &request, wished.as_ref(), trace).await?;
    if let Some(protocol) = wished {
        let upgraded = hyper::upgrade::on(&mut request);
        return upgrade::answer(gateway, through, protocol, upgraded).await;
    }
    let LetThrough { entered, asked } = through;
    let body = BodyExt::boxed_unsync(entered.received(request.into_body().map_err(BoxError::from)));
    let answer = ask_while_open(gateway, &entered, asked, body).await?;
    entered.open.recorded.answered(answer.status());
    let (mut parts, body) = answer.into_parts();
    parts.headers = headers::answered(&parts.headers);
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, entered.sent(body).boxed_unsync()))
}

/// Asks the agent for as long as the request may be open; what goes wrong is recorded.
pub(super) async fn ask_while_open(
    gateway: &Arc<Gateway>,
    entered: &Entered,
    asked: Forwarded,
    body: RequestBody,
) -> Result<Response<AnswerBody>, Trouble> {
    let answer = tokio::select! {
        biased;
        // First: of a request that was ended before it was sent, nothing is.
        _end = entered.open.ended() => {
            let message = "what let the request through was withdrawn, or the gateway stops; retry";
            Err(Trouble::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message))
        }
        answer = ask(gateway, asked, body) => answer,
    };
    answer.inspect_err(|trouble| entered.open.recorded.failed(trouble.code()))
}

/// Asks the agent once there is a way to it.
async fn ask(
    gateway: &Arc<Gateway>,
    Forwarded { agent, head_time, head }: Forwarded,
    body: RequestBody,
) -> Result<Response<AnswerBody>, Trouble> {
    let request = head.map(|()| body);
    match way::find(gateway, agent, head_time).await? {
        Way::Here(session, taken) => carry((session, taken), request, head_time).await,
        Way::There(stream) => hop::ask(gateway, stream, request, head_time).await,
    }
}

/// Sends a request over a connection with room for it.
pub(super) async fn carry(
    (session, taken): (Arc<Session>, Taken),
    request: Request<RequestBody>,
    limit: Duration,
) -> Result<Response<AnswerBody>, Trouble> {
    let answer = session.connection.request_guarded(request, limit, PATIENT).await;
    let answer = answer.map_err(|error| Trouble::not_asked(&error))?;
    // The room is taken for as long as the answer goes on.
    Ok(answer.map(|body| Held::new(body, taken).map_err(Into::into).boxed_unsync()))
}
