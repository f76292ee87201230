//! One request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use events::pass::AccessAs;
use events::{AgentId, RefusalKind, Sha256};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use objects::attributes::{attributes, is_long_running};
use objects::pass::lets_through;
use tracing::Instrument as _;
use tunnel::body::{Guard, RequestBody};
use tunnel::wire::{self, cluster};

use super::meant::{Meant, meant};
use super::open::{Asked, Entered, OpenBody};
use super::passes::HeldPass;
use super::trouble::{Hop, Trouble};
use super::{AnswerBody, headers, upgrade};
use crate::gateway::Gateway;
use crate::session::Session;

/// The head of an answer has to be there within this time; the API server's own limit is a minute, and the agent waits a little longer
/// for that.
const HEAD_TIME: Duration = Duration::from_secs(120);
/// The same of what may take as long as it likes: the client goes when it has waited enough.
const LONGEST_HEAD_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest token that is looked at, in bytes.
const MAXIMUM_TOKEN: usize = 8192;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

/// A reader may stand still for long, as a suspended `kubectl logs -f` does; its stream is all that it holds.
pub(super) const PATIENT: Guard = Guard {
    queue_bytes: 256 * 1024,
    stall: Duration::from_secs(3600),
    small_frame_bytes: 256,
    small_burst: 2000,
    small_per_second: 500,
};

/// A request that was let through.
pub(super) struct LetThrough {
    pub(super) session: Arc<Session>,
    pub(super) entered: Entered,
    /// The head of the answer has to be there within this time.
    pub(super) head_time: Duration,
    /// Method, path, query and headers as they travel to the agent.
    pub(super) head: Request<()>,
}

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
    let answered = answer_traced(gateway, request).instrument(span.clone()).await;
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
) -> Result<Response<AnswerBody>, Trouble> {
    let wished = headers::upgrade(&request);
    let through = let_through(&gateway, &request, wished.as_ref()).await?;
    if let Some(protocol) = wished {
        let upgraded = hyper::upgrade::on(&mut request);
        return upgrade::answer(&gateway, through, protocol, upgraded).await;
    }
    let LetThrough { session, entered, head_time, head } = through;
    let (parts, ()) = head.into_parts();
    let body: RequestBody = request.into_body().map_err(Into::into).boxed_unsync();
    let request = Request::from_parts(parts, body);
    let asking = session.connection.request_guarded(request, head_time, PATIENT);
    let ended = entered.open.ended();
    let answer = tokio::select! {
        biased;
        answer = asking => answer.map_err(|error| Trouble::not_asked(&error))?,
        _end = ended => return Err(Trouble::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, "the request was ended; retry")),
    };
    let (mut parts, body) = answer.into_parts();
    parts.headers = headers::answered(parts.headers);
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, OpenBody::new(body, entered).boxed_unsync()))
}

/// Who asks for what, whether they may, and over which tunnel it goes.
async fn let_through(
    gateway: &Gateway,
    request: &Request<Incoming>,
    wished: Option<&HeaderValue>,
) -> Result<LetThrough, Trouble> {
    let bad = |message: String| Trouble::new(StatusCode::BAD_REQUEST, Hop::Gateway, message);
    let Meant { agent, path, query } = meant(request, gateway.args.clusters_domain.as_deref())
        .map_err(|error| Trouble::new(StatusCode::NOT_FOUND, Hop::Gateway, error.to_string()))?;
    let key = (token_hash(request.headers())?, agent);
    let attributes = attributes(request.method().as_str(), path, query, wished.is_some())
        .map_err(|error| bad(error.to_string()))?;
    let held = gateway.passes.of(gateway, key).await.map_err(Trouble::refused)?;
    if headers::impersonates(request.headers()) {
        let message = "as whom the cluster sees you is said by user_access in the agent's configuration; leave out --as";
        return Err(Trouble::new(StatusCode::FORBIDDEN, Hop::Gateway, message));
    }
    let access_as: AccessAs = match lets_through(&held.pass, &attributes) {
        Ok(through) => through.access_as,
        Err(error) => return Err(Trouble::new(StatusCode::FORBIDDEN, Hop::Gateway, error.to_string())),
    };
    let session = tunnel_of(gateway, agent)?;
    let head = head(request, path, query, &held, wished)?;
    let head_time = if is_long_running(&attributes) { LONGEST_HEAD_TIME } else { HEAD_TIME };
    let organization = held.pass.organization;
    let asked = Asked { key, organization, attributes, access_as, token_ends: held.token_ends };
    let entered = gateway.open_requests.enter(asked, gateway.world.clock.monotonic());
    Ok(LetThrough { session, entered, head_time, head })
}

fn tunnel_of(gateway: &Gateway, agent: AgentId) -> Result<Arc<Session>, Trouble> {
    let sessions = gateway.registry.list(Some(agent));
    let session = sessions.into_iter().find(|session| !session.connection.is_closed());
    session.ok_or_else(|| {
        let message = "the agent is not connected; see `kasbah agent show`";
        Trouble::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Tunnel, message).retry_after(5)
    })
}

/// The head as it travels to the agent.
fn head(
    request: &Request<Incoming>,
    path: &str,
    query: Option<&str>,
    held: &HeldPass,
    wished: Option<&HeaderValue>,
) -> Result<Request<()>, Trouble> {
    let unsendable =
        |error: http::Error| Trouble::new(StatusCode::BAD_REQUEST, Hop::Gateway, error.to_string());
    let target = match query {
        Some(query) => format!("{}{path}?{query}", wire::path::CLUSTER),
        None => format!("{}{path}", wire::path::CLUSTER),
    };
    let uri = Uri::builder()
        .scheme("http")
        .authority("agent")
        .path_and_query(target)
        .build()
        .map_err(unsendable)?;
    let mut head = Request::builder().method(request.method()).uri(uri).body(()).map_err(unsendable)?;
    let mut forwarded = headers::forwarded(request.headers());
    forwarded.insert(cluster::PASS, held.header.clone());
    if let Some(peer) = request.extensions().get::<chassis::server::Peer>()
        && let Ok(address) = HeaderValue::from_str(&peer.0.ip().to_string())
    {
        forwarded.insert(FORWARDED_FOR, address);
    }
    if let Some(traceparent) = chassis::traces::current_traceparent()
        && let Ok(traceparent) = HeaderValue::from_str(&traceparent)
    {
        forwarded.insert(TRACEPARENT, traceparent);
    }
    if let Some(protocol) = wished {
        headers::without_body(&mut forwarded);
        forwarded.insert(cluster::UPGRADE, protocol.clone());
    }
    *head.headers_mut() = forwarded;
    Ok(head)
}

/// The hash of the one bearer token.
fn token_hash(headers: &HeaderMap) -> Result<Sha256, Trouble> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let message =
            "send one token as `Authorization: Bearer`; `kasbah kubeconfig` writes a kubeconfig that does";
        return Err(unauthenticated(message));
    };
    let token = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAXIMUM_TOKEN)
        .map(|(_, token)| token.trim())
        .ok_or_else(|| unauthenticated("the authorization header holds no bearer token"))?;
    Ok(Sha256::of(token.as_bytes()))
}

fn unauthenticated(message: &str) -> Trouble {
    Trouble::refused(events::Refusal::new(RefusalKind::Unauthenticated, message))
}
