//! `/api/graphql` over HTTP: queries by POST and GET, subscriptions by server-sent events, the way to a WebSocket, and the explorer.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::{Response as GraphqlResponse, ServerError};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use events::requests::authz::Principal;
use events::{Refusal, RefusalKind, Sha256};

use super::asker::Asker;
use super::request::GraphqlRequest;
use super::{explorer, failure, sse, websocket};
use crate::app::{App, MAXIMUM_BODY, context, read_body};
use crate::problem;

/// Where it is.
const PATH: &str = "/api/graphql";
/// Every path of this module.
pub(crate) const PATHS: [&str; 3] = [PATH, explorer::SCRIPT, explorer::STYLE];
/// How long the answer to a query may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Adds the routes.
pub(crate) fn add_to(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route(PATH, get(read).post(send))
        .route(explorer::SCRIPT, get(explorer::script))
        .route(explorer::STYLE, get(explorer::style))
}

/// A query in the address, a WebSocket, or the explorer.
async fn read(State(app): State<Arc<App>>, request: Request) -> Response {
    let headers = request.headers();
    if websocket::is_wanted(headers) {
        return websocket::accept(app, request).await;
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    if query.is_empty() && accepts(headers, "text/html") {
        return explorer::page();
    }
    let headers = headers.clone();
    match app.callers.identify(&app.world, &*app.bus, &headers).await {
        Ok(known) => run(&app, &headers, known, GraphqlRequest::of_query(&query)).await,
        Err(refusal) => problem::response(&refusal),
    }
}

/// A query in the body.
async fn send(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        return problem::response(&Refusal::invalid("query", "must be in the body of a POST"));
    }
    let known = match app.callers.identify(&app.world, &*app.bus, &parts.headers).await {
        Ok(known) => known,
        Err(refusal) => return problem::response(&refusal),
    };
    match read_body(&app, body, MAXIMUM_BODY).await {
        Ok(body) => run(&app, &parts.headers, known, GraphqlRequest::of_body(&body)).await,
        Err(response) => response,
    }
}

/// Whether the client names a media type as one that it takes.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|range| range.split(';').next().is_some_and(|name| name.trim() == media))
}

async fn run(
    app: &Arc<App>,
    headers: &HeaderMap,
    (token, principal): (Sha256, Principal),
    request: Result<GraphqlRequest, Refusal>,
) -> Response {
    let request = match request {
        Ok(request) => request,
        Err(refusal) => return problem::response(&refusal),
    };
    let request = match request.prepared() {
        Ok(request) => request,
        Err(errors) => return answer(GraphqlResponse::from_errors(errors), headers),
    };
    let resume = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let asker = Asker::new(Arc::clone(app), context(&app.world, headers, &principal), token, resume);
    if accepts(headers, "text/event-stream") {
        if let Err(refusal) = asker.start().await {
            return problem::response(&refusal);
        }
        return match app.graphql.slots.take(&principal.actor) {
            Ok(slot) => {
                let responses = app.graphql.schema.execute_stream(request.data(Arc::clone(&asker)));
                sse::answer(asker, slot, responses)
            }
            Err(full) => with_status(StatusCode::TOO_MANY_REQUESTS, vec![full], headers),
        };
    }
    let executed = app.graphql.schema.execute(request.data(asker));
    tokio::select! {
        response = executed => answer(response, headers),
        () = app.world.clock.sleep(DEADLINE) => {
            let message = format!("the answer takes longer than {} s; ask for less at once", DEADLINE.as_secs());
            problem::response(&Refusal::new(RefusalKind::Unavailable, message))
        }
    }
}

fn with_status(status: StatusCode, errors: Vec<ServerError>, headers: &HeaderMap) -> Response {
    let mut response = answer(GraphqlResponse::from_errors(errors), headers);
    *response.status_mut() = status;
    response
}

/// An answer in JSON. A request that was not executed at all has the status 400.
fn answer(response: GraphqlResponse, headers: &HeaderMap) -> Response {
    let response = failure::complete(response);
    let is_executed = response.errors.is_empty()
        || response.data != async_graphql::Value::Null
        || response.errors.iter().any(|error| !error.path.is_empty());
    let status = if is_executed { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let media = match accepts(headers, "application/graphql-response+json") {
        true => "application/graphql-response+json",
        false => "application/json",
    };
    let mut answered = (status, Json(response)).into_response();
    answered.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    answered.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answered
}
