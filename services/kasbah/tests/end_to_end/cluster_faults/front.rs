//! An API server that misbehaves on purpose: HTTPS in front of the real one. What is asked of objects with a fault's name is
//! answered wrongly, all else by the real one, so that the agent behind it works as any other does.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chassis::server::{Limits, Server};
use chassis::tls::ServerCertificate;
use chassis::{Shutdown, ShutdownTrigger};
use futures::stream;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::{Authority, Cluster};
use world::World;

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Fault>;

/// Between two frames of a log that drips.
const DRIP: Duration = Duration::from_millis(500);
/// More than the link takes.
const TOO_MANY_HEADERS: usize = 40;
const LONG_VALUE: usize = 6000;

/// It ends with this handle.
pub struct Front {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    trigger: ShutdownTrigger,
    _folder: tempfile::TempDir,
}

struct Shared {
    client: reqwest::Client,
    server: String,
    open: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
    received: AtomicU64,
}

/// An answer of a fault that goes on, counted while it does.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn begin(shared: &Shared) -> Self {
        shared.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&shared.open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Front {
    pub async fn start(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let its_authority = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
        let its_authority = STANDARD.decode(its_authority).unwrap();
        let authority = Authority::new("front").unwrap();
        let shown = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let world = World::real();
        let shown = ServerCertificate::from_pem(shown.certificate.as_bytes(), shown.key.as_bytes()).unwrap();
        let tls = Some(shown.config(&world, &[b"h2", b"http/1.1"]).unwrap());
        let listener = world.network.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let here = format!("https://{}", listener.local_address().unwrap());
        let entry = &mut config["clusters"][0]["cluster"];
        entry["server"] = here.into();
        entry["certificate-authority-data"] = STANDARD.encode(authority.certificate()).into();
        let kubeconfig = folder.path().join("kubeconfig");
        testkit::write_private(&kubeconfig, &config.to_string()).unwrap();
        let shared = Arc::new(Shared {
            client: testkit::client_trusting(&its_authority).unwrap(),
            server: cluster.server().to_owned(),
            open: Arc::default(),
            sent: Arc::default(),
            received: AtomicU64::new(0),
        });
        let limits = Limits { connections: 4096, head_bytes: 512 * 1024, streams: 250, ..Limits::default() };
        let server = Server { name: "front", world, listener, tls, plain_on_loopback: false, limits };
        let (trigger, shutdown) = ShutdownTrigger::new();
        tokio::spawn(serve(server, Arc::clone(&shared), shutdown));
        Self { kubeconfig, shared, trigger, _folder: folder }
    }

    /// The real cluster's, with this server's address and authority.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Answers of faults that go on.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Bytes of faults' answers so far, but for the smallest frames.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }

    /// Bytes that were uploaded so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Acquire)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.trigger.request();
    }
}

async fn serve(server: Server, shared: Arc<Shared>, shutdown: Shutdown) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(shared, request).await) }
    });
    server.serve(service, shutdown).await.unwrap();
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let name = request.uri().path().split('/').nth(6).unwrap_or_default().to_owned();
    let fault = name.strip_prefix("fault-").map(str::to_owned);
    let Some(fault) = fault else { return pass_on(&shared, request).await };
    // What follows the kind of fault tells those of a kind apart, or is its size.
    let (kind, detail) = fault.split_once('-').unwrap_or((&fault, ""));
    match kind {
        "flood" => going_on(&shared, detail.parse().unwrap(), Duration::ZERO),
        "drip" => going_on(&shared, detail.parse().unwrap(), DRIP),
        "silent" => {
            let _open = Open::begin(&shared);
            std::future::pending().await
        }
        "headless" => headless(&shared),
        "headers" => oversized_headers(),
        "upload" => take(&shared, request.into_body()).await,
        "echo" => echo(&shared, request),
        _ => text(StatusCode::OK, "not what was asked for"),
    }
}

async fn pass_on(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    parts.headers.remove(HOST);
    // Whoever asked has gone, and so is the answer.
    let Ok(body) = body.collect().await else { return text(StatusCode::BAD_REQUEST, "broken off") };
    let url = format!("{}{target}", shared.server);
    let asked = shared.client.request(parts.method, url).headers(parts.headers).body(body.to_bytes());
    match asked.send().await {
        Ok(answer) => {
            let mut answer = Response::<reqwest::Body>::from(answer);
            without_connection(answer.headers_mut());
            *answer.version_mut() = http::Version::HTTP_11;
            answer.map(|body| body.map_err(Fault::from).boxed_unsync())
        }
        Err(error) => text(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

fn without_connection(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

fn text(code: StatusCode, text: &str) -> Response<Body> {
    let body = Full::from(text.to_owned()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// Frames of one size without an end.
fn going_on(shared: &Shared, size: usize, pause: Duration) -> Response<Body> {
    let (open, sent) = (Open::begin(shared), Arc::clone(&shared.sent));
    let pauses = (!pause.is_zero()).then(|| tokio::time::interval(pause));
    let frames = stream::unfold((open, sent, pauses), move |(open, sent, mut pauses)| async move {
        match &mut pauses {
            Some(pauses) => drop(pauses.tick().await),
            None => tokio::task::yield_now().await,
        }
        // Smaller ones take very long to fill anything.
        if size >= 128 {
            sent.fetch_add(size as u64, Ordering::AcqRel);
        }
        let frame = Ok(Frame::data(Bytes::from(vec![b'x'; size])));
        Some((frame, (open, sent, pauses)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// A head that promises a body.
fn headless(shared: &Shared) -> Response<Body> {
    let open = Open::begin(shared);
    let never = stream::unfold(open, |open| async move {
        std::future::pending::<()>().await;
        Some((Ok(Frame::data(Bytes::new())), open))
    });
    let mut answer = Response::new(StreamBody::new(never).boxed_unsync());
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("1000"));
    answer
}

fn oversized_headers() -> Response<Body> {
    let mut answer = text(StatusCode::OK, "too much said before");
    for number in 0..TOO_MANY_HEADERS {
        let name = http::HeaderName::from_bytes(format!("x-long-{number}").as_bytes()).unwrap();
        answer.headers_mut().insert(name, HeaderValue::from_str(&"x".repeat(LONG_VALUE)).unwrap());
    }
    answer
}

/// Takes what is uploaded for as long as it comes.
async fn take(shared: &Shared, mut body: Incoming) -> Response<Body> {
    let _open = Open::begin(shared);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return text(StatusCode::BAD_REQUEST, "broken off") };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        shared.received.fetch_add(bytes as u64, Ordering::AcqRel);
    }
    text(StatusCode::CREATED, "{}")
}

/// Becomes another protocol, in which everything comes back.
fn echo(shared: &Shared, mut request: Request<Incoming>) -> Response<Body> {
    let open = Open::begin(shared);
    let protocol = request.headers().get(UPGRADE).cloned().unwrap();
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let _open = open;
        let Ok(connection) = upgrading.await else { return };
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(connection));
        // However the other side ends it.
        drop(tokio::io::copy(&mut reader, &mut writer).await);
    });
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.headers_mut().insert(UPGRADE, protocol);
    answer
}
