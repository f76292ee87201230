//! HTTP in front of `git http-backend`.

use std::convert::Infallible;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use bytes::Bytes;
use futures::TryStreamExt;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::io::ReaderStream;

use super::{Fault, GitRequest, Settings, State, webhook};
use crate::background::runtime;

type Body = BoxBody<Bytes, std::io::Error>;

pub(super) async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path().starts_with(webhook::HOOK_PATH) {
        return Ok(webhook::receive(&state, request).await.map_or_else(|error| failed(&error), empty));
    }
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let mut entry = GitRequest {
        method: request.method().to_string(),
        path,
        status: 0,
        user: None,
        protocol: header(request.headers(), "git-protocol"),
    };
    let response = serve(&state, request, &mut entry).await.unwrap_or_else(|error| failed(&error));
    entry.status = response.status().as_u16();
    state.requests.lock().push(entry);
    Ok(response)
}

async fn serve(
    state: &Arc<State>,
    request: Request<Incoming>,
    entry: &mut GitRequest,
) -> Result<Response<Body>> {
    let Some((name, settings)) = repository_of(state, request.uri().path()) else {
        return Ok(empty(StatusCode::NOT_FOUND));
    };
    match settings.fault {
        None => {}
        Some(Fault::Status(status)) => return Ok(empty(StatusCode::from_u16(status)?)),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Slow(delay)) => tokio::time::sleep(delay).await,
        Some(Fault::Redirect(to)) => {
            let rest = entry.path.strip_prefix(&format!("/{name}.git")).unwrap_or_default();
            let mut response = empty(StatusCode::FOUND);
            response.headers_mut().insert(LOCATION, format!("{to}{rest}").parse()?);
            return Ok(response);
        }
    }
    if let Some(login) = &settings.login {
        if !allowed(request.headers(), login) {
            let mut response = empty(StatusCode::UNAUTHORIZED);
            response.headers_mut().insert(WWW_AUTHENTICATE, "Basic realm=\"git\"".parse()?);
            return Ok(response);
        }
        entry.user = Some(login.0.clone());
    }
    run_backend(state, request, entry).await
}

fn repository_of(state: &State, path: &str) -> Option<(String, Settings)> {
    let (name, _) = path.strip_prefix('/')?.split_once(".git/")?;
    let settings = state.repositories.lock().get(name).cloned()?;
    Some((name.to_owned(), settings))
}

fn allowed(headers: &HeaderMap, (user, password): &(String, String)) -> bool {
    let expected = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    header(headers, AUTHORIZATION.as_str()).is_some_and(|given| given == format!("Basic {expected}"))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Starts the program, feeds it the request's body, and streams its answer.
async fn run_backend(
    state: &State,
    request: Request<Incoming>,
    entry: &GitRequest,
) -> Result<Response<Body>> {
    let mut child = backend(state, &request, entry).spawn().context("cannot start git http-backend")?;
    let stdin = child.stdin.take().context("no standard input")?;
    let mut stdout = BufReader::new(child.stdout.take().context("no standard output")?);
    runtime().spawn(feed(request.into_body(), stdin));
    let mut response = Response::builder();
    loop {
        let mut line = String::new();
        let read = stdout.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            anyhow::ensure!(read > 0, "git http-backend ended without an answer");
            break;
        };
        response = if name.eq_ignore_ascii_case("status") {
            response.status(value.split(' ').next().unwrap_or("500"))
        } else {
            response.header(name, value)
        };
    }
    let body = StreamBody::new(ReaderStream::new(stdout).map_ok(Frame::data));
    runtime().spawn(reap(child));
    Ok(response.body(BodyExt::boxed(body))?)
}

fn backend(state: &State, request: &Request<Incoming>, entry: &GitRequest) -> Command {
    let mut command = Command::new("git");
    command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_PROJECT_ROOT", state.folder.path()).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REQUEST_METHOD", request.method().as_str());
    command.env("PATH_INFO", request.uri().path());
    command.env("QUERY_STRING", request.uri().query().unwrap_or_default());
    command.env("REMOTE_ADDR", "127.0.0.1").env("REMOTE_USER", entry.user.as_deref().unwrap_or("anonymous"));
    for (name, variable) in [
        (CONTENT_TYPE.as_str(), "CONTENT_TYPE"),
        (CONTENT_LENGTH.as_str(), "CONTENT_LENGTH"),
        (CONTENT_ENCODING.as_str(), "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = header(request.headers(), name) {
            command.env(variable, value);
        }
    }
    command
}

async fn feed(mut body: Incoming, mut stdin: ChildStdin) {
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        // A program that has read enough closes its end; what it answers tells the rest.
        if stdin.write_all(&data).await.is_err() {
            return;
        }
    }
}

async fn reap(mut child: Child) {
    let _ = child.wait().await;
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn failed(error: &anyhow::Error) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(format!("{error:#}\n"))));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}
