//! A page's session: its token in a cookie, and a word that stands in a header of each of its requests.

use chassis::server::PlainOnLoopback;
use chassis::session::{cookies, csrf_token, fits_cookie, has_csrf_token};
use events::Sha256;
use http::header::{HOST, HeaderMap, HeaderValue, SET_COOKIE};
use http::{Request, Response, StatusCode};
use serde_json::json;

use super::super::AnswerBody;
use super::super::admission::bearer;
use super::super::error::{Hop, ProxyError};
use super::known_origin;
use crate::gateway::Gateway;

/// With this beginning a browser takes it from this host alone, over TLS, for all paths (RFC 6265bis, section 4.1.3.2).
const NAME: &str = "__Host-kasbah-session";
/// The page may be of another site. What a cookie like this alone would let others do, the word and the origin do not.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=None; Partitioned";
/// What a browser made of them that did not know the last one.
const ATTRIBUTES_BEFORE: &str = "Path=/; Secure; HttpOnly; SameSite=None";
/// On the loopback there is no TLS, and the page is of the same site. Cookies ignore ports, so the cookie of each server of a machine has a name of its own.
const PLAIN_NAME: &str = "kasbah-session";
const PLAIN_ATTRIBUTES: &str = "Path=/; HttpOnly; SameSite=Strict";

/// Puts the token that a page shows into a cookie, and tells the page its word. Whether the token is good is said with its first use.
pub(super) fn begin<B>(request: &Request<B>) -> Result<Response<AnswerBody>, ProxyError> {
    let token = bearer(request.headers())?;
    if !fits_cookie(token) {
        return Err(ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, "this token fits into no cookie"));
    }
    let body = json!({"csrf_token": csrf_token(token)}).to_string();
    let name = name(request);
    let attributes = if is_plain(request) { PLAIN_ATTRIBUTES } else { ATTRIBUTES };
    with_cookie(StatusCode::CREATED, &format!("{name}={token}; {attributes}"), body)
}

/// Has the browser forget a session. Its token lives on until it ends or is revoked.
///
/// A browser that learned of `Partitioned` since may have two cookies of this name, and a page has no other way to be rid of them: the
/// word of one is enough, and both go.
pub(super) fn end<B>(gateway: &Gateway, request: &Request<B>) -> Result<Response<AnswerBody>, ProxyError> {
    let (headers, name) = (request.headers(), name(request));
    let mut checks = cookies(headers, &name).map(|token| checked(gateway, headers, token));
    if let Some(first) = checks.next() {
        first.or_else(|error| checks.find_map(Result::ok).ok_or(error))?;
    }
    let ended = |attributes: &str| format!("{name}=; Max-Age=0; {attributes}");
    if is_plain(request) {
        return with_cookie(StatusCode::NO_CONTENT, &ended(PLAIN_ATTRIBUTES), String::new());
    }
    let mut answer = with_cookie(StatusCode::NO_CONTENT, &ended(ATTRIBUTES), String::new())?;
    answer.headers_mut().append(SET_COOKIE, cookie_value(&ended(ATTRIBUTES_BEFORE))?);
    Ok(answer)
}

/// The token in the cookie, if there is one.
pub(super) fn token<B>(request: &Request<B>) -> Result<Option<&str>, ProxyError> {
    let name = name(request);
    let mut tokens = cookies(request.headers(), &name);
    let (token, another) = (tokens.next(), tokens.next());
    if another.is_some() {
        let message = "the request has two sessions; `DELETE /sessions` ends both, then begin another one";
        return Err(ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, message));
    }
    Ok(token)
}

fn is_plain<B>(request: &Request<B>) -> bool {
    request.extensions().get::<PlainOnLoopback>().is_some()
}

/// The name of the cookie in which a session of this connection's kind lies.
fn name<B>(request: &Request<B>) -> String {
    if !is_plain(request) {
        return NAME.to_owned();
    }
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80_u16);
    format!("{PLAIN_NAME}-{port}")
}

/// The hash of a session's token, if the page is one that has it.
pub(super) fn checked(gateway: &Gateway, headers: &HeaderMap, token: &str) -> Result<Sha256, ProxyError> {
    known_origin(gateway, headers)?;
    if !has_csrf_token(headers, token) {
        let message = "a request by a session has its word, which `POST /sessions` told, as X-CSRF-Token; a WebSocket has a ticket (`POST /tickets`)";
        return Err(ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, message));
    }
    Ok(Sha256::of(token.as_bytes()))
}

fn with_cookie(code: StatusCode, cookie: &str, body: String) -> Result<Response<AnswerBody>, ProxyError> {
    let mut answer = super::json_answer(code, body);
    answer.headers_mut().insert(SET_COOKIE, cookie_value(cookie)?);
    Ok(answer)
}

fn cookie_value(cookie: &str) -> Result<HeaderValue, ProxyError> {
    let cookie = HeaderValue::from_str(cookie);
    let mut cookie =
        cookie.map_err(|error| ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, error.to_string()))?;
    cookie.set_sensitive(true);
    Ok(cookie)
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    fn request(plain: bool) -> Request<()> {
        let request = Request::builder().header(HOST, "localhost:8443").header("authorization", "Bearer t");
        let request = request.header(COOKIE, "__Host-kasbah-session=over-tls; kasbah-session-8443=plain");
        let mut request = request.body(()).unwrap();
        if plain {
            request.extensions_mut().insert(PlainOnLoopback);
        }
        request
    }

    #[test]
    fn a_session_of_the_loopback_has_a_name_for_its_port_and_counts_there_only() {
        assert_eq!(token(&request(false)).unwrap(), Some("over-tls"));
        assert_eq!(token(&request(true)).unwrap(), Some("plain"));
        let cookie = |plain: bool| {
            let answer = begin(&request(plain)).unwrap();
            answer.headers()[SET_COOKIE].to_str().unwrap().to_owned()
        };
        assert_eq!(cookie(false), format!("__Host-kasbah-session=t; {ATTRIBUTES}"));
        assert_eq!(cookie(true), "kasbah-session-8443=t; Path=/; HttpOnly; SameSite=Strict");
    }
}
