//! The server's HTTP API.

use std::path::Path;
use std::time::Duration;

use events::request::{Refusal, RefusalKind};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use world::World;

use super::failure::Failure;
use super::settings::{Settings, SettingsError};

mod cluster;
mod graphql;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const USER_AGENT: &str = concat!("kasbah/", env!("CARGO_PKG_VERSION"));
/// A dry run in a cluster takes its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// An endless answer shows every ten seconds that it lives.
const SILENCE: Duration = Duration::from_secs(35);
/// How often a request is sent when the server says that it is not ready.
const ATTEMPTS: u32 = 3;
/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: u64 = 5;

/// A connection to the API. Follows no redirect, so that the token reaches nobody else.
pub struct Api {
    http: Client,
    root: Url,
    server: String,
    host: String,
    /// Whose token it is, where a login keeps it.
    login: Option<String>,
    world: World,
}

/// Parameters of a query.
pub type Query<'a> = [(&'a str, String)];

impl Api {
    /// Makes ready to ask; dials nobody yet.
    ///
    /// # Errors
    /// When whom to trust cannot be read.
    pub fn new(settings: &Settings, world: &World) -> Result<Self, Failure> {
        let bearer = bearer(&settings.token)?;
        let mut api = Self::with(&settings.server, settings.ca_file.as_deref(), Some(bearer), world)?;
        api.login.clone_from(&settings.login);
        Ok(api)
    }

    /// The same for those who have no token yet: they may ask who is believed, and sign in.
    ///
    /// # Errors
    /// When whom to trust cannot be read.
    pub fn without_token(server: &Url, ca_file: Option<&Path>, world: &World) -> Result<Self, Failure> {
        Self::with(server, ca_file, None, world)
    }

    fn with(
        server: &Url,
        ca_file: Option<&Path>,
        bearer: Option<HeaderValue>,
        world: &World,
    ) -> Result<Self, Failure> {
        let tls = chassis::tls::client_config(world, ca_file, &[b"h2", b"http/1.1"])
            .map_err(SettingsError::from)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.extend(bearer.map(|bearer| (AUTHORIZATION, bearer)));
        let http = Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .user_agent(USER_AGENT)
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| {
                Failure::Unsuccessful(format!("cannot set up the connection: {}", root_cause(&error)))
            })?;
        let mut root = server.clone();
        if let Ok(mut path) = root.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1"]);
        }
        let host = server.host_str().unwrap_or_default().to_owned();
        let server = server.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http, root, server, host, login: None, world: world.clone() })
    }

    /// Reads.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &Query<'_>) -> Result<T, Failure> {
        self.ask::<(), T>(Method::GET, path, query, None).await
    }

    /// Sends, and reads the answer.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: &B,
    ) -> Result<T, Failure> {
        self.ask(method, path, &[], Some(body)).await
    }

    /// Deletes, and reads what was deleted.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        self.ask::<(), T>(Method::DELETE, path, &[], None).await
    }

    /// Reads an answer that may be endless.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn open(&self, path: &[&str], query: &Query<'_>) -> Result<Lines, Failure> {
        let response = self.accepted(self.http.get(self.url(path, query))).await?;
        let (world, server) = (self.world.clone(), self.server.clone());
        Ok(Lines { response, buffer: Vec::new(), server, world })
    }

    async fn ask<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &Query<'_>,
        body: Option<&B>,
    ) -> Result<T, Failure> {
        // The same for each attempt, so that what is sent twice is done once.
        let key = self.world.new_uuid().to_string();
        let mut attempt = 1;
        loop {
            let mut request =
                self.http.request(method.clone(), self.url(path, query)).timeout(ANSWER_TIMEOUT);
            if method != Method::GET {
                request = request.header("idempotency-key", &key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            match self.accepted(request).await {
                Ok(response) => return self.decoded(response).await,
                Err(Failure::Refused { retry_after: Some(seconds), .. })
                    if attempt < ATTEMPTS && seconds <= LONGEST_PAUSE =>
                {
                    attempt += 1;
                    self.world.clock.sleep(Duration::from_secs(seconds)).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn url(&self, path: &[&str], query: &Query<'_>) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn accepted(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.failure(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(response).await)
    }

    async fn decoded<T: DeserializeOwned>(&self, response: Response) -> Result<T, Failure> {
        let bytes = response.bytes().await.map_err(|error| self.failure(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Why an answer is no success.
    async fn refused(&self, response: Response) -> Failure {
        let status = response.status();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.bytes().await.unwrap_or_default();
        if let Ok(refusal) = serde_json::from_slice::<Refusal>(&body) {
            if let (RefusalKind::Unauthenticated, Some(login)) = (refusal.kind, &self.login) {
                return SettingsError::LoginEnded { login: login.clone() }.into();
            }
            return Failure::Refused { refusal, retry_after };
        }
        match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                let refusal = Refusal::new(RefusalKind::Unavailable, format!("{} is not ready", self.server));
                Failure::Refused { refusal, retry_after }
            }
            status => self.unreadable(format!("HTTP status {status} without a reason")),
        }
    }

    fn unreadable(&self, detail: String) -> Failure {
        Failure::Unreadable { server: self.server.clone(), detail }
    }

    fn failure(&self, error: &reqwest::Error) -> Failure {
        let server = self.server.clone();
        if let Some(trouble) = chassis::tls::explain(error, &self.host) {
            return Failure::Certificate(trouble);
        }
        if error.is_connect() {
            let detail = if error.is_timeout() { "no answer in 10 s".to_owned() } else { root_cause(error) };
            return Failure::Unreachable { server, detail, refused: is_refused(error) };
        }
        let detail = match error.is_timeout() {
            true => format!("did not answer in {} s", ANSWER_TIMEOUT.as_secs()),
            false => format!("ended the connection: {}", root_cause(error)),
        };
        Failure::Broken { server, detail }
    }
}

/// The header that shows a token.
fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| SettingsError::BadToken { origin: "the token".to_owned() })?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// The machine answered that nothing listens there.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let found = error.downcast_ref::<std::io::Error>();
        if found.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

/// What stands at the end of a chain of errors: the operating system's own words.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// The lines of an answer, as they come.
pub struct Lines {
    response: Response,
    buffer: Vec<u8>,
    server: String,
    world: World,
}

impl Lines {
    /// The next line without its end; `None` when the answer is over.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end.saturating_add(1));
                let line = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(String::from_utf8_lossy(line.trim_ascii_end()).into_owned()));
            }
            let broken = |detail: String| Failure::Broken { server: self.server.clone(), detail };
            let chunk = tokio::select! {
                chunk = self.response.chunk() => {
                    chunk.map_err(|error| broken(format!("ended the connection: {}", root_cause(&error))))?
                }
                () = self.world.clock.sleep(SILENCE) => return Err(broken("fell silent".to_owned())),
            };
            match chunk {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.is_empty() => return Ok(None),
                None => self.buffer.push(b'\n'),
            }
        }
    }
}
