//! Pages in browsers that use clusters' APIs: which pages, and how they show whose they are.
//!
//! A page's origin is let in by the operator, one by one (`origins`). It hands in a token once and gets a session: the token in a cookie that
//! no script can read, and a word that has to stand in a header of each request, which no other page knows (`session`). A browser sets no
//! headers for a WebSocket, so the page asks for a ticket first, which opens one WebSocket (`tickets`).
//!
//! No gateway keeps a session, so that each replica knows all of them; only tickets lie where they were issued, and are good for once.

mod origins;
mod session;
mod tickets;

pub use origins::{InvalidOrigin, Origin};
pub(super) use origins::{add_cors_headers, allowed, preflight};
pub(crate) use tickets::{Tickets, serve as serve_tickets};

use events::Sha256;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::AnswerBody;
use super::admission::bearer;
use super::error::{Hop, ProxyError};
use super::headers::TICKET_PROTOCOL;
use super::route::{RouteError, route};
use crate::gateway::Gateway;

const SESSIONS: &str = "/sessions";
const TICKETS: &str = "/tickets";

/// A request that is for a page's own session, and for no cluster.
#[derive(Clone, Copy)]
pub(super) enum PageEndpoint {
    Sessions,
    Tickets,
}

/// What a request is for, if it is for a page's session. Where no origin is let in, none is.
pub(super) fn page_endpoint<B>(gateway: &Gateway, request: &Request<B>) -> Option<PageEndpoint> {
    let endpoint = match request.uri().path() {
        SESSIONS => PageEndpoint::Sessions,
        TICKETS => PageEndpoint::Tickets,
        _ => return None,
    };
    let is_no_cluster = route(request, gateway.args.clusters_domain.as_deref()) == Err(RouteError::NoAgent);
    (is_no_cluster && !gateway.args.clusters_origins.is_empty()).then_some(endpoint)
}

/// Answers it.
pub(super) async fn answer(
    gateway: &Gateway,
    endpoint: PageEndpoint,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, ProxyError> {
    let origin = known_origin(gateway, request.headers())?.clone();
    match (endpoint, request.method()) {
        (PageEndpoint::Sessions, &Method::POST) => session::begin(&request),
        (PageEndpoint::Sessions, &Method::DELETE) => session::end(gateway, &request),
        (PageEndpoint::Tickets, &Method::POST) => tickets::issue(gateway, &origin, request).await,
        _ => {
            Err(ProxyError::new(StatusCode::METHOD_NOT_ALLOWED, Hop::Gateway, "POST, or DELETE of /sessions"))
        }
    }
}

/// The ticket that a page offers as a protocol of its WebSocket.
pub(super) fn ticket_offered(origins: &[Origin], headers: &HeaderMap) -> Option<HeaderValue> {
    let ticket = tickets::offered(headers).filter(|_| !origins.is_empty())?;
    HeaderValue::from_str(&format!("{TICKET_PROTOCOL}{ticket}")).ok()
}

/// A browser gives up a WebSocket for which it offered protocols and of which none was chosen (WebSockets Standard, "establish a WebSocket
/// connection"). An API server, which never sees a ticket, chooses none where it was offered nothing else.
pub(super) fn select_protocol(ticket: Option<HeaderValue>, answer: &mut HeaderMap) {
    if let Some(ticket) = ticket
        && !answer.contains_key(SEC_WEBSOCKET_PROTOCOL)
    {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, ticket);
    }
}

/// The hash of the token that a request shows: in its authorization, by a ticket, or by a session.
pub(super) async fn token_of<B>(
    gateway: &Gateway,
    request: &Request<B>,
    is_upgrade: bool,
) -> Result<Sha256, ProxyError> {
    let headers = request.headers();
    if headers.contains_key(AUTHORIZATION) || gateway.args.clusters_origins.is_empty() {
        return bearer(headers).map(|token| Sha256::of(token.as_bytes()));
    }
    if let Some(ticket) = tickets::offered(headers).filter(|_| is_upgrade) {
        let origin = known_origin(gateway, headers)?;
        return tickets::redeem(gateway, ticket, origin, request).await;
    }
    match session::token(request)? {
        Some(token) => session::checked(gateway, headers, token),
        None => bearer(headers).map(|token| Sha256::of(token.as_bytes())),
    }
}

/// The origin of a request's page, which has to be let in.
fn known_origin<'a>(gateway: &'a Gateway, headers: &HeaderMap) -> Result<&'a Origin, ProxyError> {
    allowed(&gateway.args.clusters_origins, headers).ok_or_else(|| {
        let message = "sessions and tickets are only for pages of origins in `--clusters-origins`; programs send a token as `Authorization: Bearer`";
        ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, message)
    })
}

/// An answer for a page itself: no cache may keep it.
fn json_answer(code: StatusCode, body: String) -> Response<AnswerBody> {
    let mut answer = Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
