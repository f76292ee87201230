//! From an HTTP request to a route and back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on, post};
use bus::Bus;
use bytes::Bytes;
use chassis::{Metrics, Shutdown, traces};
use events::id::derived_uuid;
use events::request::RequestContext;
use events::requests::authz::Principal;
use events::{Actor, AggregateKind, CommitId, Refusal, RefusalKind};
use http_body_util::{BodyExt, Limited};
use store::{EventLog, Followed, KeyRing, ReadFilter};
use tokio::sync::watch;
use tracing::Instrument as _;
use world::World;

use crate::caller::{self, Callers};
use crate::clusters::Clusters;
use crate::events_docs::EventsDocs;
use crate::graphql::{self, Graphql};
use crate::input::Input;
use crate::log::readers::Readers;
use crate::metrics::{self, Counts};
use crate::page::Page;
use crate::route::{Call, Route};
use crate::{events_docs, openapi, page, problem, routes, session, webhook};

/// Largest body of a request to the API, in bytes.
pub const MAXIMUM_BODY: usize = 256 * 1024;
/// How long a body may take to come in.
const BODY_DEADLINE: Duration = Duration::from_secs(15);
/// Where each answer says which chain it began.
const CORRELATION: HeaderName = HeaderName::from_static("kasbah-correlation-id");
/// Where the API's description is.
const DOCUMENT: &str = "/api/v1/openapi.json";
/// Where forges say that somebody pushed.
const HOOK: &str = "/hooks/v1/{project}";
/// A header that makes a repeated request the same request.
const IDEMPOTENCY: &str = "idempotency-key";

/// Where the server is reached.
pub struct Urls {
    /// The API, for users and forges.
    pub api: String,
    /// Clusters' APIs, for pages in browsers; `None` where they cannot use them.
    pub clusters: Option<Clusters>,
}

/// What requests share.
pub struct App {
    pub(crate) world: World,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) keys: Arc<dyn KeyRing>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) api_url: String,
    pub(crate) clusters: Option<Clusters>,
    pub(crate) page: Page,
    pub(crate) callers: Callers,
    pub(crate) shutdown: Shutdown,
    /// Moves whenever something about users, agents or their tokens changed.
    pub(crate) changes: watch::Sender<()>,
    pub(crate) counts: Counts,
    pub(crate) readers: Readers,
    pub(crate) graphql: Graphql,
    document: OnceLock<Bytes>,
    pub(crate) events: EventsDocs,
}

impl App {
    /// Makes it.
    #[must_use]
    pub fn new(
        world: World,
        log: Arc<dyn EventLog>,
        keys: Arc<dyn KeyRing>,
        bus: Arc<dyn Bus>,
        metrics: &Metrics,
        urls: Urls,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let counts = Counts::register(metrics);
        let (callers, graphql, document) = (Callers::default(), Graphql::default(), OnceLock::new());
        let changes = watch::Sender::new(());
        let page = Page::asking(urls.clusters.as_ref());
        Arc::new(Self {
            world,
            log,
            keys,
            bus,
            api_url: urls.api,
            clusters: urls.clusters,
            page,
            callers,
            shutdown,
            changes,
            counts,
            readers: Readers::default(),
            graphql,
            document,
            events: EventsDocs::default(),
        })
    }

    /// Forgets who callers are whenever something about users, agents or their tokens changes.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn watch_revocations(self: Arc<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        // Users are disabled by a commit of their organization, and jobs end with their project.
        let filter = ReadFilter::decisions(&[
            AggregateKind::Organization,
            AggregateKind::Project,
            AggregateKind::User,
            AggregateKind::Agent,
            AggregateKind::Job,
        ]);
        let mut changes = tokio::select! {
            () = shutdown.requested() => return Ok(()),
            begun = store::follow_from_now(&self.world, "console", &*self.log, &filter) => begun?,
        };
        self.callers.forget();
        loop {
            let change = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                change = changes.recv() => change,
            };
            match change {
                Some(Ok(Followed::Record(_))) => {
                    self.callers.forget();
                    self.changes.send_replace(());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => anyhow::bail!("the log ended"),
            }
        }
    }
}

/// The router over all routes.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new().route(DOCUMENT, get(document)).route(HOOK, post(webhook::receive));
    let mut paths = vec![DOCUMENT, HOOK];
    for route in routes::all() {
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let path = route.path;
        paths.push(path);
        let route = Arc::new(route);
        let handler = move |State(app): State<Arc<App>>, request: axum::extract::Request| {
            let route = Arc::clone(&route);
            async move { answer(app, route, request).await }
        };
        router = router.route(path, on(filter, handler));
    }
    router = events_docs::add_to(page::add_to(session::add_to(graphql::add_to(router))));
    paths.extend(events_docs::PATHS);
    paths.extend(graphql::PATHS);
    paths.extend(session::PATHS);
    paths.extend(page::PATHS);
    let (observing, paths) = (Arc::clone(&app), Arc::new(paths));
    let router = router.fallback(no_route).method_not_allowed_fallback(no_method);
    let router = router.layer(axum::middleware::from_fn(move |request: axum::extract::Request, next| {
        observed(Arc::clone(&observing), Arc::clone(&paths), request, next)
    }));
    router.with_state(app)
}

/// Answers a request in a span of the caller's trace, or of a new one, and counts it.
async fn observed(
    app: Arc<App>,
    paths: Arc<Vec<&'static str>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let matched = matched.and_then(|matched| paths.iter().find(|path| **path == matched.as_str()));
    let (method, route) = (metrics::method(request.method()), matched.copied().unwrap_or("none"));
    let began = app.world.clock.monotonic();
    let span = tracing::info_span!(
        "http",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    // Whoever tries out paths begins no trace.
    let caller = callers_trace(request.headers());
    let set = if matched.is_some() { traces::set_parent } else { traces::set_parent_or_none };
    set(&span, caller.as_deref());
    let response = next.run(request).instrument(span.clone()).await;
    let took = app.world.clock.monotonic().saturating_sub(began);
    app.counts.requests.with([method, route, metrics::status(response.status())]).inc();
    app.counts.request_seconds.with([method, route]).observe(took.as_secs_f64());
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        traces::failed(&span);
    }
    response
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let document = app.document.get_or_init(|| Bytes::from(openapi::document().to_string()));
    ([(header::CONTENT_TYPE, "application/json")], document.clone()).into_response()
}

async fn no_route(State(app): State<Arc<App>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(view) = app.page.view(&method, &uri, &headers) {
        return view;
    }
    let message = "no such path; /api/v1/openapi.json lists them";
    problem::response(&Refusal::new(RefusalKind::NotFound, message))
}

async fn no_method(method: Method) -> Response {
    let refusal = Refusal::new(RefusalKind::Invalid, format!("this path does not support {method}"));
    problem::with_status(StatusCode::METHOD_NOT_ALLOWED, &refusal)
}

async fn answer(app: Arc<App>, route: Arc<Route>, request: axum::extract::Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let identified = if route.is_open {
        Ok(caller::stranger())
    } else {
        app.callers.identify(&app.world, &*app.bus, &parts.headers).await
    };
    let (token, principal) = match identified {
        Ok(known) => known,
        Err(refusal) => return problem::response(&refusal),
    };
    let input = match input(&app, &route, &mut parts, body).await {
        Ok(input) => input,
        Err(response) => return response,
    };
    let context = context(&app.world, &parts.headers, &principal);
    let correlation = context.correlation_id;
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let server_sent = accept.contains("text/event-stream");
    let last_event = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let last_event = last_event.map(str::to_owned).filter(|id| !id.is_empty());
    let call = Call { input, context, principal, token, server_sent, last_event };
    let answered = (route.run)(Arc::clone(&app), call).await;
    let mut response = answered.unwrap_or_else(|refusal| {
        if refusal.kind == RefusalKind::Internal {
            tracing::error!(operation = route.operation, %correlation, error = %refusal, "request failed");
        }
        problem::response(&refusal)
    });
    if let Ok(value) = HeaderValue::from_str(&correlation.to_string()) {
        response.headers_mut().insert(CORRELATION, value);
    }
    response
}

async fn input(
    app: &Arc<App>,
    route: &Route,
    parts: &mut request::Parts,
    body: Body,
) -> Result<Input, Response> {
    let path = RawPathParams::from_request_parts(parts, app).await.map_err(IntoResponse::into_response)?;
    let path: Vec<_> = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = read_body(app, body, MAXIMUM_BODY).await?;
    let query = parts.uri.query().unwrap_or_default();
    let refuse = |refusal: Refusal| problem::response(&refusal);
    if route.has_query() {
        if !body.is_empty() {
            return Err(refuse(Refusal::invalid("body", "is not accepted here; use the query")));
        }
        return Input::new(b"", query, &path).map_err(refuse);
    }
    if !query.is_empty() {
        return Err(refuse(Refusal::invalid("query", "is not accepted here; use the body")));
    }
    Input::new(&body, "", &path).map_err(refuse)
}

/// The whole body, within size and time.
pub(crate) async fn read_body(app: &App, body: Body, limit: usize) -> Result<Bytes, Response> {
    let collected = tokio::select! {
        collected = Limited::new(body, limit).collect() => collected,
        () = app.world.clock.sleep(BODY_DEADLINE) => {
            let refusal = Refusal::invalid("body", "did not arrive in time");
            return Err(problem::with_status(StatusCode::REQUEST_TIMEOUT, &refusal));
        }
    };
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let refusal = Refusal::invalid("body", format!("is larger than {limit} bytes"));
            return problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, &refusal);
        }
        problem::response(&Refusal::invalid("body", "broke off"))
    })
}

pub(crate) fn context(world: &World, headers: &HeaderMap, principal: &Principal) -> RequestContext {
    let mut context = bus::context_for(world, principal.actor.clone(), principal.organization);
    context.traceparent = traceparent(headers);
    if let Some(key) = headers.get(IDEMPOTENCY).filter(|_| !matches!(principal.actor, Actor::Service(_))) {
        // Of one caller's own choosing, so that nobody repeats another's request.
        let actor = principal.actor.to_string();
        let id = derived_uuid(&[b"idempotency", actor.as_bytes(), key.as_bytes()]);
        context.idempotency_key = CommitId(id);
    }
    context
}

/// The trace in which a request is answered: of its span where traces are sent, else the caller's.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    traces::current_traceparent().or_else(|| callers_trace(headers))
}

/// The caller's trace context, if it has the form of one (W3C, version 00).
fn callers_trace(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let mut hexadecimal = |length: usize| {
        parts
            .next()
            .is_some_and(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let good =
        hexadecimal(2) && hexadecimal(32) && hexadecimal(16) && hexadecimal(2) && parts.next().is_none();
    good.then(|| text.to_owned())
}
