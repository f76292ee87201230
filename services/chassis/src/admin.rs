//! The admin listener: `/healthz`, `/readyz` and `/metrics` over plain HTTP, for probes and scrapers on the same machine or
//! pod network. It shows no secrets and takes no commands.
//!
//! `/readyz` has a line for each check that does not pass, and the verdict on the last line; with `?verbose` a line for each check;
//! with `Accept: application/json` all of them as JSON.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use world::World;
use world::network::{Connection, Listener};

use crate::readiness::{Check, Outcome};
use crate::{Metrics, Readiness, Shutdown};

/// A client that does not send its request within this time is disconnected.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// Connections served at once; those above wait in the listener's queue.
const MAXIMUM_CONNECTIONS: usize = 64;

/// Serves until shutdown is asked for.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    world: World,
    listener: Box<dyn Listener>,
    readiness: Readiness,
    metrics: Metrics,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let permits = Arc::new(tokio::sync::Semaphore::new(MAXIMUM_CONNECTIONS));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await?;
        let connection = tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => connection,
                Err(error) => {
                    tracing::warn!(%error, "admin connection not accepted");
                    world.clock.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (readiness, metrics) = (readiness.clone(), metrics.clone());
        let task = async move {
            serve_connection(connection, readiness, metrics).await;
            drop(permit);
        };
        world.spawner.spawn("admin connection", Box::pin(task));
    }
}

async fn serve_connection(connection: Box<dyn Connection>, readiness: Readiness, metrics: Metrics) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = respond(&request, &readiness, &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .serve_connection(TokioIo::new(connection), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended early");
    }
}

fn respond<B>(request: &Request<B>, readiness: &Readiness, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned());
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "text/plain", "alive\n".to_owned()),
        "/readyz" => ready(request, &readiness.checks()),
        "/metrics" => text(
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            metrics.encode(),
        ),
        _ => {
            text(StatusCode::NOT_FOUND, "text/plain", "there is /healthz, /readyz and /metrics\n".to_owned())
        }
    }
}

/// `/readyz` as JSON.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    checks: &'a [Check],
}

fn ready<B>(request: &Request<B>, checks: &[Check]) -> Response<Full<Bytes>> {
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check.finding.outcome == Outcome::Failed)
        .map(|check| check.name)
        .collect();
    let status = if failed.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("application/json")) {
        let ready = Ready { ready: failed.is_empty(), checks };
        if let Ok(json) = serde_json::to_string(&ready) {
            return text(status, "application/json", json + "\n");
        }
    }
    let query = request.uri().query().unwrap_or_default();
    let is_verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let is_shown = |check: &&Check| {
        is_verbose || (check.finding.outcome != Outcome::Passed && !check.finding.message.is_empty())
    };
    let mut lines: String = checks.iter().filter(is_shown).map(|check| format!("{check}\n")).collect();
    if failed.is_empty() {
        lines.push_str("ready\n");
    } else {
        lines.push_str(&format!("not ready: {}\n", failed.join(", ")));
    }
    text(status, "text/plain; charset=utf-8", lines)
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ShutdownTrigger;
    use crate::readiness::Finding;

    async fn get(world: &World, port: u16, path: &str) -> String {
        get_as(world, port, path, "*/*").await
    }

    async fn get_as(world: &World, port: u16, path: &str, accept: &str) -> String {
        let mut connection = world.network.dial("127.0.0.1", port).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn says_what_is_not_ready() {
        let world = World::real();
        let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let port = listener.local_address().unwrap().port();
        let readiness = Readiness::new();
        let log = readiness.register("log");
        let gateway = readiness.register("gateway");
        let (trigger, shutdown) = ShutdownTrigger::new();
        let server = serve(world.clone(), listener, readiness, Metrics::new(), shutdown);
        let client = async {
            gateway.set(true);
            let answer = get(&world, port, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.ends_with("not ready: log\n"), "{answer}");
            assert!(get(&world, port, "/healthz").await.starts_with("HTTP/1.1 200"));
            log.report(Finding::failed("disk is full"));
            let answer = get(&world, port, "/readyz").await;
            assert!(answer.ends_with("\r\n\r\nlog failed: disk is full\nnot ready: log\n"), "{answer}");
            let answer = get(&world, port, "/readyz?verbose").await;
            assert!(
                answer.ends_with("log failed: disk is full\ngateway passed\nnot ready: log\n"),
                "{answer}"
            );
            let answer = get_as(&world, port, "/readyz", "application/json").await;
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            let json = r#"{"ready":false,"checks":[{"name":"log","outcome":"failed","message":"disk is full"},{"name":"gateway","outcome":"passed","message":""}]}"#;
            assert!(answer.ends_with(&format!("\r\n\r\n{json}\n")), "{answer}");
            log.report(Finding::warning("disk is slow"));
            let answer = get(&world, port, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nlog warning: disk is slow\nready\n"), "{answer}");
            log.set(true);
            assert!(get(&world, port, "/readyz").await.ends_with("\r\n\r\nready\n"));
            assert!(get(&world, port, "/metrics").await.ends_with("# EOF\n"));
            assert!(get(&world, port, "/other").await.starts_with("HTTP/1.1 404"));
            trigger.request();
        };
        let (served, ()) = tokio::join!(server, client);
        served.unwrap();
    }
}
