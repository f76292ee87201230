//! Authentication, authorization and limits of one request.

use std::sync::Arc;
use std::time::Duration;

use chassis::server::bearer_token;
use events::attributes::{Attributes, Target};
use events::audit::{AuditMode, AuditPhase, AuditRecord};
use events::pass::AccessAs;
use events::{AgentId, Timestamp};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use objects::attributes::{attributes, is_long_running};
use objects::pass::check_pass;
use tunnel::wire::{self, cluster};

use super::audit::{RequestAudit, reason, shortened};
use super::error::{Hop, ProxyError};
use super::limits::{LimitKind, LimitScope, Requester};
use super::open_requests::{OpenGuard, RequestInfo};
use super::passes::HeldPass;
use super::recording::RecordingSpec;
use super::route::{Route, route};
use super::slots::RequestSlot;
use super::{browser, headers, recheck};
use crate::args::Audited;
use crate::gateway::Gateway;

/// The head of an answer has to be there within this time; the API server's own limit is a minute, and the agent waits a little longer
/// for that.
const HEAD_TIME: Duration = Duration::from_secs(120);
/// The same of what may take as long as it likes: the client goes when it has waited enough.
const LONG_RUNNING_HEAD_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest token that is looked at, in bytes.
const MAXIMUM_TOKEN: usize = 8192;
/// How much of what a client says that it is is recorded, in bytes.
const MAXIMUM_CLIENT: usize = 200;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const TRACEPARENT: HeaderName = HeaderName::from_static(wire::TRACEPARENT);

/// A request that was admitted.
pub(super) struct AdmittedRequest {
    pub(super) guard: OpenGuard,
    pub(super) asked: Forwarded,
    /// Whose paths begin with the agent, as the request named it by its path.
    pub(super) below: Option<AgentId>,
    /// How it is recorded, if it is.
    pub(super) recording: Option<RecordingSpec>,
}

/// What goes on to the agent.
pub(super) struct Forwarded {
    pub(super) agent: AgentId,
    /// The head of the answer has to be there within this time.
    pub(super) head_time: Duration,
    /// Method, path, query and headers as they travel to the agent.
    pub(super) head: Request<()>,
    /// Nothing follows the head.
    pub(super) is_whole: bool,
}

/// Admits a request, or records that it was refused.
pub(super) async fn admit(
    gateway: &Gateway,
    request: &Request<Incoming>,
    wished: Option<&HeaderValue>,
    trace: &str,
) -> Result<AdmittedRequest, ProxyError> {
    let bad = |message: String| ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, message);
    let Route { agent, path, query, by_path } = route(request, gateway.args.clusters_domain.as_deref())
        .map_err(|error| ProxyError::new(StatusCode::NOT_FOUND, Hop::Gateway, error.to_string()))?;
    let key = (browser::token_of(gateway, request, wished.is_some()).await?, agent);
    let attributes = attributes(request.method().as_str(), path, query, wished.is_some())
        .map_err(|error| bad(error.to_string()))?;
    let held = gateway.passes.of(gateway, key).await.map_err(ProxyError::from_refusal)?;
    let slot = take_slot(gateway, &held)?;
    let judged = judge(request, &held, &attributes);
    let is_long = judged.is_ok() && (wished.is_some() || is_long_running(&attributes));
    let keeps = (wished.is_some() && is_session(&attributes)).then_some(held.pass.record_sessions);
    let recording = keeps.filter(|keeps| !keeps.is_default() && judged.is_ok()).map(|keeps| RecordingSpec {
        session: gateway.world.new_uuid(),
        organization: held.pass.organization,
        agent,
        keeps,
    });
    gateway.audit.wait_for_capacity().await?;
    let input =
        RecordInput { attributes: &attributes, query, judged: &judged, recording: recording.as_ref(), trace };
    let record = record(gateway, request, &held, input);
    let organization = held.pass.organization;
    let audit = RequestAudit::new(&gateway.audit, organization, record, is_long);
    let is_first_recorded = held.pass.audit == AuditMode::FailClosed;
    let is_recorded = is_first_recorded || recording.is_some() || gateway.args.clusters_audit == Audited::All;
    let audit = if is_recorded { audit } else { audit.disabled() };
    let (access_as, _) = judged.map_err(|refusal| {
        audit.answered(StatusCode::FORBIDDEN);
        ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, refusal)
    })?;
    let head = head(request, path, query, &held, wished)?;
    if is_first_recorded {
        audit.begin_durably().await?;
    }
    let head_time = if is_long { LONG_RUNNING_HEAD_TIME } else { HEAD_TIME };
    let info = RequestInfo { key, organization, attributes, access_as, keeps, token_ends: held.token_ends };
    let guard = gateway.open_requests.enter(info, audit, slot, gateway.world.clock.monotonic());
    if gateway.passes.is_stale(&held) {
        // What was heard between the pass and now was acted on before this request was open.
        recheck::recheck(gateway, vec![Arc::clone(&guard.open)]).await;
    }
    let below = by_path.then_some(agent);
    Ok(AdmittedRequest {
        guard,
        asked: Forwarded { agent, head_time, head, is_whole: request.body().is_end_stream() },
        below,
        recording,
    })
}

/// What an audit record holds beside the holder of the pass.
struct RecordInput<'a> {
    attributes: &'a Attributes,
    query: Option<&'a str>,
    judged: &'a Result<(AccessAs, String), String>,
    recording: Option<&'a RecordingSpec>,
    trace: &'a str,
}

/// The record of a request that is not over.
fn record(
    gateway: &Gateway,
    request: &Request<Incoming>,
    held: &HeldPass,
    input: RecordInput<'_>,
) -> AuditRecord {
    let RecordInput { attributes, query, judged, recording, trace } = input;
    let because = match judged {
        Ok((_, place)) => reason(place),
        Err(refusal) => reason(refusal),
    };
    AuditRecord {
        id: recording.map_or_else(|| gateway.world.new_uuid(), |recording| recording.session),
        phase: AuditPhase::Whole,
        agent: held.pass.agent,
        holder: held.pass.holder.clone(),
        impersonated: held.pass.access_as != AccessAs::Agent,
        attributes: shortened(attributes),
        dry_run: is_dry_run(attributes, query),
        is_recorded: recording.is_some(),
        because,
        code: 0,
        began_at: Timestamp(gateway.world.clock.now_millis()),
        millis: 0,
        received: 0,
        sent: 0,
        client: client_of(request.headers()),
        trace: trace.to_owned(),
    }
}

/// A slot for a request of a pass's holder, unless that would exceed a limit. What is refused here has no record, so that a client over
/// its limits does not fill the log.
pub(super) fn take_slot(gateway: &Gateway, held: &HeldPass) -> Result<Arc<RequestSlot>, ProxyError> {
    let pass = &held.pass;
    let requester =
        Requester { user: pass.holder.clone(), agent: pass.agent, organization: pass.organization };
    gateway.request_slots.take(requester).map_err(|exceeded| {
        let whose = match exceeded.scope {
            LimitScope::User => "user",
            LimitScope::Agent => "agent",
            LimitScope::Organization => "organization",
        };
        let limit = match exceeded.kind {
            LimitKind::Open | LimitKind::OpenShare(_) => "open",
            LimitKind::Rate | LimitKind::RateShare => "rate",
        };
        gateway.counts.cluster_limited.with([whose, limit]).inc();
        ProxyError::over_limit(&exceeded)
    })
}

/// As whom the cluster sees a request, and by which entry; or why it is refused.
fn judge(
    request: &Request<Incoming>,
    held: &HeldPass,
    attributes: &Attributes,
) -> Result<(AccessAs, String), String> {
    if headers::impersonates(request.headers()) {
        let message =
            "user_access in the agent's configuration defines your identity in the cluster; remove --as";
        return Err(message.to_owned());
    }
    let through = check_pass(&held.pass, attributes).map_err(|error| error.to_string())?;
    Ok((through.access_as, through.place.to_owned()))
}

/// Whether a connection that becomes another protocol is a session with a container, or may be one: a node's own API has sessions, too.
fn is_session(attributes: &Attributes) -> bool {
    match &attributes.target {
        Target::Path(_) => false,
        Target::Resource(target) => matches!(
            (target.group.as_str(), target.resource.as_str(), target.subresource.as_str()),
            ("", "pods", "exec" | "attach") | ("", "nodes", "proxy")
        ),
    }
}

/// Whether a write was to change nothing. What deletes says so in its body, which nobody looks into.
fn is_dry_run(attributes: &Attributes, query: Option<&str>) -> bool {
    matches!(attributes.verb.as_str(), "create" | "update" | "patch")
        && query.is_some_and(|query| query.split('&').any(|pair| pair == "dryRun=All"))
}

fn client_of(headers: &HeaderMap) -> String {
    let client = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    client.chars().take(MAXIMUM_CLIENT).collect()
}

/// The head as it travels to the agent.
fn head(
    request: &Request<Incoming>,
    path: &str,
    query: Option<&str>,
    held: &HeldPass,
    wished: Option<&HeaderValue>,
) -> Result<Request<()>, ProxyError> {
    let unsendable =
        |error: http::Error| ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, error.to_string());
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
    forwarded.extend(held.roots.clone().map(|roots| (cluster::ROOTS, roots)));
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

/// The one bearer token.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, ProxyError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let message =
            "send one token as `Authorization: Bearer`; `kasbah kubeconfig` writes a kubeconfig that does";
        return Err(unauthenticated(message));
    };
    let token = bearer_token(value, MAXIMUM_TOKEN);
    token.ok_or_else(|| unauthenticated("the authorization header holds no bearer token"))
}

fn unauthenticated(message: &str) -> ProxyError {
    ProxyError::new(StatusCode::UNAUTHORIZED, Hop::Gateway, message)
}
