//! A gateway, an agent and certificates for the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use events::{AgentId, InstanceId};
use futures::stream::{self, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::service::Service;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tunnel::BoxError;
use tunnel::agent::{DialError, LinkEnd, Target, Transport, dial};
use tunnel::gateway::{
    AcceptError, Accepted, Acceptor, AgentConnection, AgentReply, AskError, Presented, Rejection,
};
use tunnel::handshake::{Hello, Token, Welcome};
use world::World;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A task of a test.
#[allow(clippy::disallowed_methods, reason = "tests have no supervisor")]
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task)
}

pub fn agent_id() -> AgentId {
    AgentId(uuid::Uuid::from_u128(0xa))
}

pub fn hello() -> Hello {
    Hello::control(InstanceId(uuid::Uuid::from_u128(0xb)), 0, "0.1.0")
}

/// What both ends trust.
pub struct Pki {
    pub server: Option<Arc<rustls::ServerConfig>>,
    client: Option<Arc<rustls::ClientConfig>>,
}

type Issued = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn authority() -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().der().clone();
    (certificate, Issuer::new(params, key))
}

fn issue(issuer: &Issuer<'static, KeyPair>, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    change(&mut params);
    let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
    (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn pki(trusted: CertificateDer<'static>, (certificate, key): Issued) -> Pki {
    let server = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![tunnel::settings::ALPN.to_vec()];
    Pki { server: Some(Arc::new(server)), client: Some(Arc::new(client)) }
}

impl Pki {
    pub fn new() -> Self {
        let (certificate, issuer) = authority();
        pki(certificate, issue(&issuer, |_| ()))
    }

    /// Plain text at both ends.
    pub fn none() -> Self {
        Self { server: None, client: None }
    }

    pub fn trusting_another_authority(&self) -> Self {
        Self { server: self.server.clone(), client: Self::new().client }
    }

    pub fn with_expired_certificate(&self) -> Self {
        let (certificate, issuer) = authority();
        pki(
            certificate,
            issue(&issuer, |params| {
                params.not_before = rcgen::date_time_ymd(2020, 1, 1);
                params.not_after = rcgen::date_time_ymd(2020, 1, 2);
            }),
        )
    }

    pub fn with_future_certificate(&self) -> Self {
        let (certificate, issuer) = authority();
        pki(
            certificate,
            issue(&issuer, |params| {
                params.not_before = rcgen::date_time_ymd(2200, 1, 1);
                params.not_after = rcgen::date_time_ymd(2201, 1, 1);
            }),
        )
    }

    pub fn with_certificate_for(&self, name: &str) -> Self {
        let (certificate, issuer) = authority();
        pki(
            certificate,
            issue(&issuer, |params| {
                params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
            }),
        )
    }

    pub fn target(&self, address: SocketAddr) -> Target {
        let transport = self.client.clone().map_or(Transport::PlainText, Transport::Tls);
        Target { host: address.ip().to_string(), port: address.port(), transport }
    }
}

pub type AcceptResult = Result<Accepted<()>, AcceptError>;

/// Takes one connection.
pub async fn gateway(
    pki: &Pki,
    acceptor: Acceptor,
    judge: impl FnOnce(Presented) -> Result<AgentId, Rejection> + Send + 'static,
) -> (SocketAddr, JoinHandle<AcceptResult>) {
    let world = World::real();
    let listener = world.network.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let address = listener.local_address().unwrap();
    let acceptor = Acceptor { tls: pki.server.clone(), ..acceptor };
    let accepting = spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        acceptor
            .accept(&world, socket, move |presented| async move { judge(presented).map(|agent| (agent, ())) })
            .await
    });
    (address, accepting)
}

pub async fn refused_by(pki: &Pki, rejection: Rejection) -> (DialError, AcceptError) {
    let (address, gateway) = gateway(pki, Acceptor::default(), |_| Err(rejection)).await;
    let error = dial(&World::real(), &pki.target(address), &Token::new("t"), &hello()).await.unwrap_err();
    let refused = match gateway.await.unwrap() {
        Err(error) => error,
        Ok(_) => panic!("let in"),
    };
    (error, refused)
}

/// An open tunnel with both of its ends.
pub struct Ends {
    pub connection: AgentConnection,
    pub welcome: Welcome,
    pub service: TestService,
    pub drain: Arc<Notify>,
    pub agent: JoinHandle<LinkEnd>,
}

impl Ends {
    pub async fn open(pki: &Pki, acceptor: Acceptor) -> Self {
        let (address, gateway) = gateway(pki, acceptor, |_| Ok(agent_id())).await;
        let link = dial(&World::real(), &pki.target(address), &Token::new("t"), &hello()).await.unwrap();
        assert!(link.clock_skew_millis().abs() < 60_000);
        let welcome = link.welcome();
        let service = TestService::default();
        let drain = Arc::new(Notify::new());
        let told = Arc::clone(&drain);
        let agent = spawn(link.serve(service.clone(), async move { told.notified().await }));
        let accepted = gateway.await.unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(accepted.hello, hello());
        Self { connection: accepted.connection, welcome, service, drain, agent }
    }

    pub async fn get(&self, path: &str) -> Result<AgentReply, AskError> {
        self.connection.ask(Method::GET, path, Bytes::new(), 1000, LIMIT).await
    }

    /// Waits until the agent's endless answers are all blocked or reset.
    pub async fn written_stops_growing(&self) {
        let written = Arc::clone(&self.service.state);
        let last = AtomicU64::new(u64::MAX);
        testkit::eventually(LIMIT, || async {
            let before = written.written.load(Ordering::Relaxed);
            // A whole request round in between: time in which a stream that can go on goes on.
            self.get("/hello").await.map_err(|error| error.to_string())?;
            let now = written.written.load(Ordering::Relaxed);
            if now == before && last.swap(now, Ordering::Relaxed) == now {
                Ok(())
            } else {
                Err(format!("{now} frames"))
            }
        })
        .await;
    }
}

/// A tunnel to an agent that does not keep our rules: it sends its frames as they come.
pub async fn rogue() -> AgentConnection {
    let (address, gateway) = gateway(&Pki::none(), Acceptor::default(), |_| Ok(agent_id())).await;
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut head = "GET /v1/tunnel HTTP/1.1\r\nHost: gateway\r\n".to_owned();
    for (name, value) in &hello().to_headers(&Token::new("t")).unwrap() {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    let executor = hyper_util::rt::TokioExecutor::new();
    let served = hyper::server::conn::http2::Builder::new(executor)
        .serve_connection(hyper_util::rt::TokioIo::new(socket), TestService::default());
    spawn(async move {
        let _ = served.await;
    });
    gateway.await.unwrap().unwrap_or_else(|error| panic!("{error}")).connection
}

pub fn request(path: &str) -> Request<tunnel::body::RequestBody> {
    Request::get(format!("http://agent{path}")).body(tunnel::body::empty()).unwrap()
}

#[derive(Default)]
struct State {
    written: AtomicU64,
    waiting: AtomicUsize,
    gate: Notify,
}

/// `/hello`, `/echo`, `/endless?<frame size>`, `/never`, `/gate`.
#[derive(Clone, Default)]
pub struct TestService {
    state: Arc<State>,
}

type TestBody = UnsyncBoxBody<Bytes, BoxError>;

impl TestService {
    pub fn at_the_gate(&self) -> usize {
        self.state.waiting.load(Ordering::SeqCst)
    }

    pub fn open_the_gate(&self) {
        self.state.gate.notify_one();
    }
}

impl<B> Service<Request<B>> for TestService
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
            match request.uri().path() {
                "/hello" => Ok(Response::new(whole(Bytes::from_static(b"hello")))),
                "/echo" => Ok(Response::new(whole(
                    request.into_body().collect().await.map_err(Into::into)?.to_bytes(),
                ))),
                "/endless" => {
                    let size: usize = request.uri().query().unwrap().parse()?;
                    let frames = stream::repeat(Bytes::from(vec![b'x'; size])).map(move |piece| {
                        state.written.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, BoxError>(Frame::data(piece))
                    });
                    Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
                }
                "/never" => std::future::pending().await,
                "/gate" => {
                    state.waiting.fetch_add(1, Ordering::SeqCst);
                    state.gate.notified().await;
                    Ok(Response::new(whole(Bytes::new())))
                }
                _ => {
                    let mut response = Response::new(whole(Bytes::new()));
                    *response.status_mut() = StatusCode::NOT_FOUND;
                    Ok(response)
                }
            }
        })
    }
}
