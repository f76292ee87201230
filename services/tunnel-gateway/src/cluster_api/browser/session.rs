//! A page's session: its token in a cookie, and a word that stands in a header of each of its requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::Sha256;
use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::{Response, StatusCode};
use ring::hmac;
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
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
/// What of a token the word is made for.
const PURPOSE: &[u8] = b"kasbah csrf 1";

/// Puts the token that a page shows into a cookie, and tells the page its word. Whether the token is good is said with its first use.
pub(super) fn begin(headers: &HeaderMap) -> Result<Response<AnswerBody>, ProxyError> {
    let token = bearer(headers)?;
    // RFC 6265, section 4.1.1: `cookie-octet`.
    let fits = token.bytes().all(|byte| byte.is_ascii_graphic() && !br#"",;\"#.contains(&byte));
    if !fits {
        return Err(ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, "this token fits into no cookie"));
    }
    let body = json!({"csrf_token": csrf_token(token)}).to_string();
    with_cookie(StatusCode::CREATED, &format!("{NAME}={token}; {ATTRIBUTES}"), body)
}

/// Has the browser forget a session. Its token lives on until it ends or is revoked.
///
/// A browser that learned of `Partitioned` since may have two cookies of this name, and a page has no other way to be rid of them: the
/// word of one is enough, and both go.
pub(super) fn end(gateway: &Gateway, headers: &HeaderMap) -> Result<Response<AnswerBody>, ProxyError> {
    let mut checks =
        tokens(headers).filter(|token| !token.is_empty()).map(|token| checked(gateway, headers, token));
    if let Some(first) = checks.next() {
        first.or_else(|error| checks.find_map(Result::ok).ok_or(error))?;
    }
    let mut answer =
        with_cookie(StatusCode::NO_CONTENT, &format!("{NAME}=; Max-Age=0; {ATTRIBUTES}"), String::new())?;
    let of_before = format!("{NAME}=; Max-Age=0; {ATTRIBUTES_BEFORE}");
    answer.headers_mut().append(SET_COOKIE, cookie_value(&of_before)?);
    Ok(answer)
}

/// The token in the cookie, if there is one.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>, ProxyError> {
    let mut tokens = tokens(headers);
    let (token, another) = (tokens.next(), tokens.next());
    if another.is_some() {
        let message = "the request has two sessions; `DELETE /sessions` ends both, then begin another one";
        return Err(ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, message));
    }
    Ok(token.filter(|token| !token.is_empty()))
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == NAME).map(|(_, token)| token)
}

/// The hash of a session's token, if the page is one that has it.
pub(super) fn checked(gateway: &Gateway, headers: &HeaderMap, token: &str) -> Result<Sha256, ProxyError> {
    known_origin(gateway, headers)?;
    let shown =
        headers.get(CSRF_HEADER).and_then(|word| URL_SAFE_NO_PAD.decode(word).ok()).unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    if hmac::verify(&key, PURPOSE, &shown).is_err() {
        let message = "a request by a session has its word, which `POST /sessions` told, as X-CSRF-Token; a WebSocket has a ticket (`POST /tickets`)";
        return Err(ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, message));
    }
    Ok(Sha256::of(token.as_bytes()))
}

fn csrf_token(token: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    URL_SAFE_NO_PAD.encode(hmac::sign(&key, PURPOSE))
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
