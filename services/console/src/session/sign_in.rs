//! Signing in at an identity provider on the page: the authorization code flow with PKCE (OpenID Connect Core 1.0, section 3.1).
//!
//! Laws:
//! - No replica keeps anything between the beginning of a sign-in and its end. The browser keeps a secret in a cookie, of which `state`,
//!   `nonce` and the verifier are made; `state` is over all that the cookie holds, so none of it can change in between (decision 0049).
//! - Only the page itself begins a sign-in, and only the browser that began one ends it.
//! - Redirects lead to the provider's site and to this one, and to no other.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::session::cookies;
use events::requests::authz::{BeginSignIn, ExchangeCode, SecretToken, SignIn};
use events::{Refusal, RefusalKind, Sha256};
use ring::hmac;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cookie::{Cookie, Kept, host, page_host};
use super::{MAXIMUM_BODY, Visit, session_cookie};
use crate::app::{App, context, read_body};
use crate::caller::stranger;
use crate::problem;

/// Where the page begins a sign-in.
pub(super) const PATH: &str = "/api/session/provider";
/// Where a provider leads people back to.
pub(super) const CALLBACK: &str = "/api/session/callback";
/// How long a sign-in may take, in seconds.
const LIFETIME: i64 = 600;
/// How long the browser keeps the reason of a failure, in seconds; the page asks for it before.
const REFUSED_LIFETIME: i64 = 120;
/// Longest path to come back to, in bytes.
const LONGEST_PATH: usize = 1024;
/// What is shown of a provider's own words, in characters.
const SHOWN: usize = 300;

/// How somebody wants to sign in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    provider: String,
    /// Where they want to go: a path of the page.
    to: String,
    #[serde(default)]
    organization: Option<String>,
}

/// Where to go for it.
#[derive(Debug, Serialize)]
struct Begun {
    url: String,
}

/// A sign-in that was begun, as the browser keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    /// Known to this browser alone.
    secret: [u8; 32],
    begun: i64,
    provider: String,
    organization: Option<String>,
    to: String,
}

/// The values derived from an attempt that others learn.
struct Derived {
    state: String,
    nonce: String,
    verifier: String,
}

/// Why a sign-in failed, as the browser keeps it until the page asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Refused {
    message: String,
    /// Whether it needs the name of an organization.
    organization: bool,
}

/// The parameters with which a provider sends somebody back.
#[derive(Debug, Default)]
struct Answer {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

impl Attempt {
    /// `state` is over all of it, so that the end of a sign-in is that of its beginning.
    fn derived(&self, kept: &str) -> Derived {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let made = |purpose: &str, of: &str| {
            let tag = hmac::sign(&key, format!("kasbah sign-in {purpose} 1\n{of}").as_bytes());
            URL_SAFE_NO_PAD.encode(tag)
        };
        Derived { state: made("state", kept), nonce: made("nonce", ""), verifier: made("verifier", "") }
    }
}

impl Refused {
    /// The refusal that the browser keeps, if any.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Kept::Refused.names(headers).iter().flat_map(|name| cookies(headers, name)).find_map(unpacked)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let organization = refusal.field.as_deref() == Some("organization");
        Self { message: refusal.message, organization }
    }
}

/// Adds the routes.
pub(super) fn add_to(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route(PATH, post(begin)).route(CALLBACK, get(end))
}

fn packed<T: Serialize>(value: &T) -> Result<String, Refusal> {
    let text = serde_json::to_vec(value);
    let text = text.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(text))
}

fn unpacked<T: DeserializeOwned>(kept: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(kept).ok()?).ok()
}

/// Whether a text is a path of the page, and nothing that a browser could take for another site's address.
fn is_own_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let is_of_api = text == "/api" || text.starts_with("/api/");
    text.starts_with('/')
        && !text.starts_with("//")
        && !is_of_api
        && text.len() <= LONGEST_PATH
        && text.bytes().all(is_plain)
}

/// The origin of an address, as browsers write it (RFC 6454, section 6.2).
fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    let default = if scheme == "https" { ":443" } else { ":80" };
    Some(format!("{scheme}://{}", host.strip_suffix(default).unwrap_or(host)))
}

/// The origin of the page: on the loopback where the browser found it, else where people reach this server.
fn page_origin(visit: Visit<'_>) -> Option<String> {
    let Visit { app, headers, is_plain } = visit;
    let is_here = matches!(page_host(headers), "127.0.0.1" | "localhost" | "[::1]");
    match is_plain {
        true => is_here.then(|| origin_of(&format!("http://{}", host(headers)))).flatten(),
        false => origin_of(&app.api_url),
    }
}

/// The page's origin, if the page itself asks.
fn asked_by_page(visit: Visit<'_>) -> Result<String, Refusal> {
    let (origin, headers) = (page_origin(visit), visit.headers);
    let said = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_own = headers.get(super::SITE).is_none_or(|site| site == "same-origin");
    match origin {
        Some(origin) if is_own && said == Some(origin.as_str()) => Ok(origin),
        Some(origin) => {
            let message = format!("people sign in with an identity provider on the page at {origin} alone");
            Err(Refusal::new(RefusalKind::Denied, message))
        }
        None => Err(Refusal::new(RefusalKind::Denied, "the page has another address than this server")),
    }
}

/// Answers where to go, and has the browser keep the secret of the sign-in.
async fn begin(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let visit = Visit::of(&app, &parts);
    let body = match read_body(&app, body, 2 * MAXIMUM_BODY).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match begun(visit, &body).await {
        Ok((url, kept)) => {
            let cookie = Cookie::of(Kept::SignIn, visit);
            super::answer(
                StatusCode::OK,
                Json(Begun { url }).into_response(),
                cookie.with(&kept, Some(LIFETIME)),
            )
        }
        Err(refusal) => problem::response(&refusal),
    }
}

/// The address at the provider, and what the browser keeps.
async fn begun(visit: Visit<'_>, body: &[u8]) -> Result<(String, String), Refusal> {
    let (app, origin) = (visit.app, asked_by_page(visit)?);
    let wanted: Begin =
        serde_json::from_slice(body).map_err(|error| Refusal::invalid("body", error.to_string()))?;
    if !is_own_path(&wanted.to) {
        return Err(Refusal::invalid(
            "to",
            format!("must be a path of the page of at most {LONGEST_PATH} bytes"),
        ));
    }
    let mut secret = [0; 32];
    app.world.random.fill(&mut secret);
    let Begin { provider, to, organization } = wanted;
    let organization = organization.filter(|name| !name.is_empty());
    let begun = app.world.clock.now_millis();
    let attempt = Attempt { secret, begun, provider, organization, to };
    let kept = packed(&attempt)?;
    let Derived { state, nonce, verifier } = attempt.derived(&kept);
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::of(verifier.as_bytes()).0);
    let redirect = format!("{origin}{CALLBACK}");
    let request = BeginSignIn { provider: attempt.provider, redirect, state, nonce, challenge };
    let context = context(&app.world, visit.headers, &stranger().1);
    let address = bus::ask(&*app.bus, &context, &request).await?;
    Ok((address.url, kept))
}

/// Ends a sign-in: somebody comes back from the provider.
async fn end(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let visit = Visit::of(&app, &parts);
    let answer = answer_in(parts.uri.query().unwrap_or_default());
    let over = Cookie::of(Kept::SignIn, visit).ended();
    let Some((attempt, derived)) = begun_here(visit.headers, answer.state.as_deref()) else {
        // What this browser began, if anything, is another sign-in, and goes on.
        let message = "this browser began no such sign-in, or it was ended already";
        let refusal = Refusal::new(RefusalKind::Denied, message);
        return failed(visit, refusal.into(), "/", Vec::new());
    };
    let issued = signed_in(visit, &attempt, derived, answer).await;
    match issued.and_then(|issued| session_cookie(visit, &issued)) {
        Ok(session) => to(&attempt.to, vec![session, over]),
        Err(refusal) => failed(visit, refusal.into(), &attempt.to, vec![over]),
    }
}

/// The sign-in of this browser that has this state.
fn begun_here(headers: &HeaderMap, state: Option<&str>) -> Option<(Attempt, Derived)> {
    let names = Kept::SignIn.names(headers);
    names.iter().flat_map(|name| cookies(headers, name)).find_map(|kept| {
        let attempt: Attempt = unpacked(kept)?;
        let derived = attempt.derived(kept);
        let is_it =
            state.is_some_and(|state| Sha256::of(state.as_bytes()) == Sha256::of(derived.state.as_bytes()));
        (is_it && is_own_path(&attempt.to)).then_some((attempt, derived))
    })
}

async fn signed_in(
    visit: Visit<'_>,
    attempt: &Attempt,
    derived: Derived,
    answer: Answer,
) -> Result<SecretToken, Refusal> {
    let app = visit.app;
    let denied = |message: String| Refusal::new(RefusalKind::Denied, message);
    if app.world.clock.now_millis() > attempt.begun.saturating_add(LIFETIME * 1000) {
        return Err(denied(format!("the sign-in took longer than {} minutes", LIFETIME / 60)));
    }
    let Some(code) = answer.code else {
        let said = answer.error_description.or(answer.error).unwrap_or_else(|| "no code".to_owned());
        let said: String = said.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
        return Err(denied(format!("the identity provider {} answered: {said}", attempt.provider)));
    };
    let origin = page_origin(visit);
    let origin = origin.ok_or_else(|| denied("the page has another address than this server".to_owned()))?;
    let context = context(&app.world, visit.headers, &stranger().1);
    let request = ExchangeCode {
        provider: attempt.provider.clone(),
        redirect: format!("{origin}{CALLBACK}"),
        code,
        verifier: derived.verifier,
        nonce: derived.nonce,
        issuer: answer.iss,
    };
    let id_token = bus::ask(&*app.bus, &context, &request).await?.id_token;
    let request = SignIn { id_token, organization: attempt.organization.clone(), project: None };
    Ok(bus::ask(&*app.bus, &context, &request).await?.token)
}

/// Reads a provider's answer. Unknown parameters are ignored, as OAuth 2.0 requires.
fn answer_in(query: &str) -> Answer {
    let mut answer = Answer::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place = match &*name {
            "code" => &mut answer.code,
            "state" => &mut answer.state,
            "iss" => &mut answer.iss,
            "error" => &mut answer.error,
            "error_description" => &mut answer.error_description,
            _ => continue,
        };
        *place = Some(value.into_owned());
    }
    answer
}

/// Leads back to the page that signs people in, and has the browser keep the reason of the failure.
fn failed(visit: Visit<'_>, refused: Refused, wanted: &str, mut kept: Vec<String>) -> Response {
    let cookie = Cookie::of(Kept::Refused, visit);
    if let Ok(text) = packed(&refused) {
        kept.push(cookie.with(&text, Some(REFUSED_LIFETIME)));
    }
    let wanted: String = form_urlencoded::byte_serialize(wanted.as_bytes()).collect();
    to(&format!("/sign-in?to={wanted}"), kept)
}

/// Leads to a path of the page.
fn to(path: &str, kept: Vec<String>) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    let location = HeaderValue::from_str(path).unwrap_or_else(|_| HeaderValue::from_static("/"));
    headers.insert(header::LOCATION, location);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for cookie in kept {
        if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
            cookie.set_sensitive(true);
            headers.append(header::SET_COOKIE, cookie);
        }
    }
    response
}

#[cfg(test)]
mod tests;
