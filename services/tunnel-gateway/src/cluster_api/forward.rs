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
use tunnel::gateway::Unanswered;
use tunnel::wire;

use super::admission::{Forwarded, LetThrough, let_through};
use super::open::Entered;
use super::trouble::{Hop, Trouble};
use super::way::{self, Way};
use super::{AnswerBody, headers, hop, upgrade, words};
use crate::gateway::Gateway;
use crate::room::Taken;
use crate::session::Session;

const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

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
    let answered = answer_traced(gateway, request, &trace, discovers).instrument(span.clone()).await;
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
    discovers: bool,
) -> Result<Response<AnswerBody>, Trouble> {
    let wished = headers::upgrade(&request);
    let through = let_through(gateway, &request, wished.as_ref(), trace).await?;
    if let Some(protocol) = wished {
        let upgraded = hyper::upgrade::on(&mut request);
        return upgrade::answer(gateway, through, protocol, upgraded).await;
    }
    let LetThrough { entered, asked, below, .. } = through;
    let body = request.into_body();
    let body = match body.is_end_stream() {
        true => tunnel::body::empty(),
        false => BodyExt::boxed_unsync(entered.received(body.map_err(BoxError::from))),
    };
    let mut answer = ask_while_open(gateway, &entered, asked, body).await?;
    if discovers {
        let readable = words::readable(answer).await;
        answer = readable.inspect_err(|trouble| entered.open.recorded.failed(trouble.code()))?;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers = entered.leads_inside(parts.status, headers::answered(&parts.headers), below)?;
    entered.open.recorded.answered(parts.status);
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

/// Asks the agent once there is a way to it; over another one, when that took nothing of the request.
async fn ask(
    gateway: &Arc<Gateway>,
    mut asked: Forwarded,
    mut body: RequestBody,
) -> Result<Response<AnswerBody>, Trouble> {
    loop {
        let (session, taken) = match way::find(gateway, &asked).await? {
            Way::Here(session, taken) => (session, taken),
            Way::There(opened) => return hop::ask(gateway, opened, body, asked.head_time).await,
        };
        match carry((session, taken), asked.head.map(|()| body), asked.head_time).await? {
            Carried::Answered(answer) => return Ok(answer),
            Carried::Unsent(request) => {
                let (parts, unsent) = request.into_parts();
                (asked.head, body) = (Request::from_parts(parts, ()), unsent);
            }
        }
    }
}

/// What became of a request that was to go over a connection.
pub(super) enum Carried {
    Answered(Response<AnswerBody>),
    /// The agent takes nothing over it any more, as when it stops; no request finds it now.
    Unsent(Box<Request<RequestBody>>),
}

/// Sends a request over a connection with room for it.
pub(super) async fn carry(
    (session, taken): (Arc<Session>, Taken),
    request: Request<RequestBody>,
    limit: Duration,
) -> Result<Carried, Trouble> {
    match session.connection.try_request(request, limit, Guard::PATIENT).await {
        // The room is taken for as long as the answer goes on.
        Ok(answer) => Ok(Carried::Answered(
            answer.map(|body| Held::new(body, taken).map_err(Into::into).boxed_unsync()),
        )),
        Err(Unanswered { unsent: Some(request), .. }) => Ok(Carried::Unsent(request)),
        Err(Unanswered { error, unsent: None }) => Err(Trouble::not_asked(&error)),
    }
}
