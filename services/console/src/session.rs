//! Sessions of the page in a browser, at `/api/session`.
//!
//! A session is a personal token that is issued when somebody signs in, and lies in a cookie that no script reads; each request by it has the
//! token's word beside it (decisions 0027 and 0040). It is listed and revoked like every token, so no replica keeps anything of it.

mod cookie;
mod sign_in;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use chassis::server::PlainOnLoopback;
use chassis::session::{cookies, csrf_token, fits_cookie, has_csrf_token};
use events::id::derived_uuid;
use events::requests::authz::{IssueToken, ListOrganizations, Principal, RevokeToken, SecretToken, ShowUser};
use events::{Actor, CommitId, Refusal, RefusalKind, Sha256, Timestamp};
use serde::{Deserialize, Serialize};

use crate::app::{App, context, read_body};
use crate::problem;
use cookie::{Cookie, Kept, page_host};
use sign_in::Refused;

/// Where sessions are begun, shown and ended.
pub(crate) const PATH: &str = "/api/session";
/// All paths.
pub(crate) const PATHS: [&str; 3] = [PATH, sign_in::PATH, sign_in::CALLBACK];
/// What the token of a session is called.
const TOKEN_NAME: &str = "web page";
/// How long a session lasts, in seconds, if the organization allows as much.
const LIFETIME: u64 = 7 * 24 * 3600;
/// Largest body of a sign-in, in bytes.
const MAXIMUM_BODY: usize = 1024;
/// A browser says in it where a request comes from (Fetch Metadata).
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How somebody signs in. The token is in `Authorization`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Begin {
    /// The token was made to sign in once: it is good for one session, and revoked.
    once: bool,
}

/// A session, for the page that has it.
#[derive(Debug, Serialize)]
struct SessionView {
    /// Has to stand in `X-CSRF-Token` of each request.
    csrf_token: String,
    /// Who is signed in.
    actor: Actor,
    /// Their login name, if it is known.
    user: Option<String>,
    /// Name of their organization, if it is known.
    organization: Option<String>,
    /// When the session ends by itself.
    expires_at: Option<Timestamp>,
    /// Where this page asks clusters' APIs, with a session of its own there; absent where it cannot.
    clusters_url: Option<String>,
}

/// The answer to who is signed in; nobody is no error.
#[derive(Debug, Serialize)]
struct Shown {
    session: Option<SessionView>,
    /// Why the last sign-in at an identity provider failed, shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
}

/// Adds the routes.
pub(crate) fn add_to(router: Router<Arc<App>>) -> Router<Arc<App>> {
    sign_in::add_to(router.route(PATH, get(show).post(begin).delete(end)))
}

/// The token of a session, if the request has the session's word; `None` where there is no session.
///
/// # Errors
/// There are sessions, and the word is of none of them.
pub(crate) fn token(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut any = false;
    for name in Kept::Session.names(headers) {
        for token in cookies(headers, &name) {
            any = true;
            if has_csrf_token(headers, token) {
                return Ok(Some(token));
            }
        }
    }
    match any {
        false => Ok(None),
        true => {
            let message =
                "a request by a session has its word, which `GET /api/session` tells, as X-CSRF-Token";
            Err(Refusal::new(RefusalKind::Unauthenticated, message))
        }
    }
}

/// A request of a browser, as what is kept in the browser depends on it.
#[derive(Clone, Copy)]
struct Visit<'a> {
    app: &'a Arc<App>,
    headers: &'a HeaderMap,
    /// It came without TLS, on the loopback.
    is_plain: bool,
}

impl<'a> Visit<'a> {
    fn of(app: &'a Arc<App>, parts: &'a Parts) -> Self {
        let is_plain = parts.extensions.get::<PlainOnLoopback>().is_some();
        Self { app, headers: &parts.headers, is_plain }
    }
}

/// Issues the token of a session for a caller that shows a token, and puts it into a cookie.
async fn begin(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let visit = Visit::of(&app, &parts);
    let begun = match begun(&app, &parts.headers, body).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let (issued, principal) = begun;
    let cookie = match session_cookie(visit, &issued) {
        Ok(cookie) => cookie,
        Err(refusal) => return problem::response(&refusal),
    };
    let view = view(visit, &issued.secret, &principal, issued.view.expires_at).await;
    answer(StatusCode::CREATED, Json(Shown { session: Some(view), refused: None }).into_response(), cookie)
}

/// How a browser is to keep the token of a session.
fn session_cookie(visit: Visit<'_>, issued: &SecretToken) -> Result<String, Refusal> {
    if !fits_cookie(&issued.secret) {
        return Err(Refusal::new(RefusalKind::Internal, "the token fits into no cookie"));
    }
    let now = visit.app.world.clock.now_millis();
    let seconds = issued.view.expires_at.map(|end| end.0.saturating_sub(now).max(0) / 1000);
    Ok(Cookie::of(Kept::Session, visit).with(&issued.secret, seconds))
}

async fn begun(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(SecretToken, Principal), Response> {
    let refused = |refusal: Refusal| problem::response(&refusal);
    if !headers.contains_key(header::AUTHORIZATION) {
        let message = "send the token to sign in with as `Authorization: Bearer`";
        return Err(refused(Refusal::new(RefusalKind::Unauthenticated, message)));
    }
    let (_, principal) = app.callers.identify(&app.world, &*app.bus, headers).await.map_err(refused)?;
    let body = read_body(app, body, MAXIMUM_BODY).await?;
    let wanted: Begin = match body.is_empty() {
        true => Begin::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| refused(Refusal::invalid("body", error.to_string())))?,
    };
    let issued = issue(app, headers, &principal, wanted.once).await.map_err(refused)?;
    Ok((issued, principal))
}

/// Issues the token of a session. One that was made to sign in once gives one session, at whichever replica, and is revoked.
async fn issue(
    app: &Arc<App>,
    headers: &HeaderMap,
    principal: &Principal,
    once: bool,
) -> Result<SecretToken, Refusal> {
    let mut asking = context(&app.world, headers, principal);
    if once {
        let id = derived_uuid(&[b"session by a link", principal.token.0.as_bytes()]);
        asking.idempotency_key = CommitId(id);
    }
    let mut request = IssueToken {
        agent: None,
        user: None,
        name: TOKEN_NAME.to_owned(),
        lifetime_seconds: Some(LIFETIME),
        clusters_only: false,
    };
    let mut issued = bus::ask(&*app.bus, &asking, &request).await;
    if matches!(&issued, Err(refusal) if refusal.field.as_deref() == Some("lifetime_seconds")) {
        // The organization allows less: as long as its tokens live where nothing is said.
        request.lifetime_seconds = None;
        issued = bus::ask(&*app.bus, &asking, &request).await;
    }
    if once && matches!(&issued, Err(refusal) if refusal.kind == RefusalKind::Conflict) {
        let message = "this link was used already; ask for another";
        return Err(Refusal::new(RefusalKind::Unauthenticated, message));
    }
    let issued = issued?;
    if once {
        let context = context(&app.world, &HeaderMap::new(), principal);
        bus::ask(&*app.bus, &context, &RevokeToken { token: principal.token }).await?;
        app.callers.forget();
    }
    Ok(issued)
}

/// Who is signed in, and their word.
async fn show(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let visit = Visit::of(&app, &parts);
    let headers = visit.headers;
    if headers.get(SITE).is_some_and(|site| site != "same-origin") {
        let message = "a session is shown to its own page only";
        return problem::response(&Refusal::new(RefusalKind::Denied, message));
    }
    let mut shown = Shown { session: None, refused: Refused::of(headers) };
    for name in Kept::Session.names(headers) {
        for token in cookies(headers, &name) {
            match app.callers.holder(&app.world, &*app.bus, Sha256::of(token.as_bytes())).await {
                Ok(principal) => {
                    let end = principal.expires_at;
                    shown.session = Some(view(visit, token, &principal, end).await);
                }
                Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                    return problem::response(&refusal);
                }
                Err(_) => {}
            }
        }
    }
    let was_refused = shown.refused.is_some();
    let mut response = Json(shown).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if was_refused && let Ok(over) = Cookie::of(Kept::Refused, visit).ended().parse() {
        response.headers_mut().append(header::SET_COOKIE, over);
    }
    response
}

/// Revokes the token of a session, and has the browser forget it. A session that is over is only forgotten.
async fn end(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let visit = Visit::of(&app, &parts);
    let headers = visit.headers;
    match token(headers) {
        Ok(Some(_)) => {}
        Ok(None) => return StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => return problem::response(&refusal),
    }
    match app.callers.identify(&app.world, &*app.bus, headers).await {
        Ok((_, principal)) => {
            let context = context(&app.world, headers, &principal);
            let revoked = bus::ask(&*app.bus, &context, &RevokeToken { token: principal.token }).await;
            if let Err(refusal) = revoked {
                return problem::response(&refusal);
            }
            app.callers.forget();
        }
        Err(refusal) if refusal.kind == RefusalKind::Unauthenticated => {}
        Err(refusal) => return problem::response(&refusal),
    }
    let cookie = Cookie::of(Kept::Session, visit).ended();
    answer(StatusCode::NO_CONTENT, StatusCode::NO_CONTENT.into_response(), cookie)
}

async fn view(
    visit: Visit<'_>,
    token: &str,
    principal: &Principal,
    expires_at: Option<Timestamp>,
) -> SessionView {
    let Visit { app, headers, is_plain } = visit;
    let context = context(&app.world, headers, principal);
    let user = match principal.actor {
        Actor::User(user) => {
            let request = ShowUser { user: user.to_string() };
            bus::ask(&*app.bus, &context, &request).await.ok().and_then(|user| user.name)
        }
        _ => None,
    };
    let organizations = bus::ask(&*app.bus, &context, &ListOrganizations::default()).await;
    let organization = organizations.ok().and_then(|page| {
        page.items.into_iter().find(|one| one.id == principal.organization).map(|one| one.name)
    });
    let actor = principal.actor.clone();
    let clusters_url = app.clusters.as_ref().map(|clusters| clusters.for_page(page_host(headers), is_plain));
    SessionView { csrf_token: csrf_token(token), actor, user, organization, expires_at, clusters_url }
}

fn answer(code: StatusCode, mut response: Response, cookie: String) -> Response {
    *response.status_mut() = code;
    let Ok(mut cookie) = HeaderValue::from_str(&cookie) else {
        return problem::response(&Refusal::new(RefusalKind::Internal, "the session fits into no cookie"));
    };
    cookie.set_sensitive(true);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
