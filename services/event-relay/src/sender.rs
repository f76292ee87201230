//! Sends one message to a webhook. It looks at each address before it dials it, dials exactly that address, follows no redirect, and
//! reads of an answer no more than it needs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chassis::address::is_private;
use chassis::tls::client_config;
use http::{HeaderMap, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use world::World;
use world::network::Connection;

/// How long dialling and the TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the whole exchange may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of an answer's head, and of the body of a refusal, that are read.
const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_BODY: usize = 8 * 1024;
/// Letters of a refusal that are kept.
const LONGEST_REASON: usize = 300;
/// Longest pause that a receiver may ask for.
const LONGEST_PAUSE: u64 = 3600;

/// Sends messages.
pub(crate) struct Sender {
    world: World,
    allow_private: bool,
    allow_plain: bool,
    tls: Arc<rustls::ClientConfig>,
}

/// What came of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The receiver has it.
    Delivered,
    /// It may take it later.
    NotNow {
        /// Why, for people.
        reason: String,
        /// How long the receiver wants to be left alone.
        pause: Option<Duration>,
    },
    /// The receiver does not want this message.
    Refused(String),
    /// The receiver wants no messages any more.
    Gone,
}

impl Sent {
    pub(crate) fn not_now(reason: impl Into<String>) -> Self {
        Self::NotNow { reason: reason.into(), pause: None }
    }
}

impl Sender {
    pub(crate) fn new(
        world: &World,
        allow_private: bool,
        allow_plain: bool,
        authorities: Option<&std::path::Path>,
    ) -> anyhow::Result<Self> {
        let tls = match authorities {
            Some(path) => {
                let pem = world.disk.read(path)?;
                chassis::tls::client_config_trusting_also(world, Some(&pem), &[b"http/1.1"])?
            }
            // A machine without authorities sends to nobody over TLS, and says so then.
            None => client_config(world, None, &[b"http/1.1"])
                .or_else(|_| chassis::tls::client_config_trusting_also(world, None, &[b"http/1.1"]))?,
        };
        Ok(Self { world: world.clone(), allow_private, allow_plain, tls })
    }

    /// Whether an address can be one of a webhook at all.
    pub(crate) fn check(&self, url: &str) -> Result<(), String> {
        let uri: Uri = url.parse().map_err(|_| "is no URL".to_owned())?;
        let host = uri.host().unwrap_or_default();
        if host.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("must name a host, and neither user nor password".to_owned());
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.allow_plain => {}
            Some("http") => {
                return Err("must begin with https://, or the operator allows plain HTTP (--webhooks-allow-plain-http)".to_owned());
            }
            _ => return Err("must begin with https://".to_owned()),
        }
        let address = host.trim_matches(['[', ']']).parse();
        if !self.allow_private && (host == "localhost" || address.is_ok_and(is_private)) {
            return Err(private(host));
        }
        Ok(())
    }

    /// Sends a message, once.
    pub(crate) async fn send(&self, url: &str, headers: HeaderMap, body: Bytes) -> Sent {
        if let Err(error) = self.check(url) {
            return Sent::not_now(format!("the address {error}"));
        }
        let exchanged = tokio::select! {
            biased;
            exchanged = self.exchange(url, headers, body) => exchanged,
            () = self.world.clock.sleep(ANSWER_TIMEOUT) => {
                Err(format!("the receiver did not answer within {} s", ANSWER_TIMEOUT.as_secs()))
            }
        };
        exchanged.unwrap_or_else(Sent::not_now)
    }

    async fn exchange(&self, url: &str, headers: HeaderMap, body: Bytes) -> Result<Sent, String> {
        let uri: Uri = url.parse().map_err(|_| "the address is no URL".to_owned())?;
        let connection = tokio::select! {
            biased;
            connection = self.connect(&uri) => connection?,
            () = self.world.clock.sleep(CONNECT_TIMEOUT) => return Err("the receiver cannot be reached in time".to_owned()),
        };
        let mut client = http1::Builder::new();
        client.max_buf_size(LONGEST_HEAD);
        let broke = |error: hyper::Error| format!("the connection broke: {error}");
        let (mut sender, connection) = client.handshake(TokioIo::new(connection)).await.map_err(broke)?;
        let task = self.world.spawner.spawn(
            "webhook-connection",
            Box::pin(async move {
                let _ended = connection.await;
            }),
        );
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut request = Request::post(path).body(Full::new(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let host = host.parse().map_err(|_| "the address has no host".to_owned())?;
        request.headers_mut().insert(header::HOST, host);
        let answered = sender.send_request(request).await.map_err(broke);
        let sent = match answered {
            Ok(response) => Ok(judge(response).await),
            Err(error) => Err(error),
        };
        // The rest of the answer is not read.
        task.abort();
        sent
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Connection>, String> {
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let addresses = self.world.network.resolve(host, port).await;
        let addresses = addresses.map_err(|error| format!("{host} cannot be resolved: {error}"))?;
        let allowed = |address: &&SocketAddr| self.allow_private || !is_private(address.ip());
        let address = addresses.iter().find(allowed).ok_or_else(|| match addresses.is_empty() {
            true => format!("{host} has no address"),
            false => format!("the address {}", private(host)),
        })?;
        // Exactly the address that was looked at: another answer of the name server changes nothing.
        let socket = self.world.network.dial(&address.ip().to_string(), address.port()).await;
        let socket = socket.map_err(|error| format!("{host} port {port} cannot be reached: {error}"))?;
        if !secure {
            return Ok(socket);
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let tls = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await;
        let tls = tls.map_err(|error| format!("{host} cannot be trusted: {error}"))?;
        Ok(Box::new(tls))
    }
}

fn private(host: &str) -> String {
    format!("{host} is private, which the operator must allow (--webhooks-allow-private-addresses)")
}

/// What an answer means. The body of a success is not read at all, and of a refusal only the beginning.
async fn judge(response: http::Response<Incoming>) -> Sent {
    let status = response.status();
    if status.is_success() {
        return Sent::Delivered;
    }
    if status.is_redirection() {
        return Sent::not_now(format!(
            "the receiver answered {status}: redirects are not followed; name the final address"
        ));
    }
    if status == http::StatusCode::GONE {
        return Sent::Gone;
    }
    let pause = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let pause = pause.map(|seconds| Duration::from_secs(seconds.min(LONGEST_PAUSE)));
    let said = beginning(response.into_body()).await;
    let reason = match said.is_empty() {
        true => format!("the receiver answered {status}"),
        false => format!("the receiver answered {status}: {said}"),
    };
    let passes = matches!(status.as_u16(), 408 | 425 | 429) || !status.is_client_error();
    if passes { Sent::NotNow { reason, pause } } else { Sent::Refused(reason) }
}

/// The first letters of a body, without what a terminal would obey.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        bytes.extend_from_slice(data.get(..data.len().min(LONGEST_BODY)).unwrap_or_default());
        if bytes.len() >= LONGEST_REASON {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(LONGEST_REASON)
        .collect::<String>()
        .trim()
        .to_owned()
}
