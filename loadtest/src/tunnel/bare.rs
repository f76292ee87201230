//! Programs that the tunnel is measured beside, each a child of this process: an API server that answers at once, and a proxy that does
//! nothing but pass on, by requests and by bytes.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::{CONNECTION, UPGRADE};
use http::uri::{Authority as Host, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::ServerName;
use testkit::Authority;
use tokio::io::{copy, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The argument that makes this program one of them, with its name behind it.
pub const ARGUMENT: &str = "--bare-program";
/// What `/bulk` answers.
pub const BULK_BYTES: usize = 256 * 1024 * 1024;
const PIECE: usize = 64 * 1024;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Where one listens, and who vouches for it.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// By requests, with HTTP/1.1 and HTTP/2.
    pub address: SocketAddr,
    /// By bytes, whatever they are; the same as the other where it has no such door.
    pub bytes: SocketAddr,
    /// PEM.
    pub authority: String,
}

/// One that runs.
pub struct Program {
    child: Child,
    pub place: Place,
}

impl Program {
    /// An API server, such as it is.
    pub fn upstream() -> anyhow::Result<Self> {
        Self::start(&["upstream".to_owned()])
    }

    /// A proxy in front of it.
    pub fn proxy(upstream: &Place) -> anyhow::Result<Self> {
        Self::start(&["proxy".to_owned(), serde_json::to_string(upstream)?])
    }

    fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a bare program")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let place = serde_json::from_str(&lines.next().context("a bare program says nothing")??)?;
        Ok(Self { child, place })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Is one of them, until standard input ends.
pub async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let authority = Authority::new("bare")?;
    let shown = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let mut tls = testkit::tls_showing(&shown)?;
    let bytes = TlsAcceptor::from(Arc::new(tls.clone()));
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let requests = TlsAcceptor::from(Arc::new(tls));
    let (by_requests, by_bytes) = (listener().await?, listener().await?);
    let place = Place {
        address: by_requests.local_addr()?,
        bytes: by_bytes.local_addr()?,
        authority: authority.certificate().to_owned(),
    };
    let upstream: Option<Place> = match arguments {
        [name, upstream] if name == "proxy" => Some(serde_json::from_str(upstream)?),
        _ => None,
    };
    println!("{}", serde_json::to_string(&place)?);
    match upstream {
        None => accept(by_requests, requests, serve_upstream),
        Some(upstream) => {
            let (client, host) = (client(&upstream)?, upstream.address.to_string().parse::<Host>()?);
            accept(by_requests, requests, move |stream| pass_on(stream, client.clone(), host.clone()));
            let connector =
                TlsConnector::from(Arc::new(testkit::tls_trusting(upstream.authority.as_bytes())?));
            accept(by_bytes, bytes, move |stream| copy_on(stream, connector.clone(), upstream.address));
        }
    }
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

async fn listener() -> anyhow::Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
}

fn accept<F>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    serve: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let serve = Arc::new(serve);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
            tokio::spawn(async move {
                let _now = connection.set_nodelay(true);
                let Ok(stream) = acceptor.accept(connection).await else { return };
                // It ends as its client likes.
                let _ended = serve(stream).await;
            });
        }
    });
}

async fn serve_upstream(stream: TlsStream<TcpStream>) -> anyhow::Result<()> {
    let answer = service_fn(async |request| Ok::<_, Infallible>(answer(request)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(250);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), answer);
    serving.await.map_err(anyhow::Error::from_boxed)
}

fn answer(mut request: Request<Incoming>) -> Response<Body> {
    if let Some(protocol) = request.headers().get(UPGRADE).cloned() {
        let upgrading = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(connection) = upgrading.await else { return };
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(connection));
            let _ended = copy(&mut reader, &mut writer).await;
        });
        let mut switching = Response::new(Full::default().boxed_unsync());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        switching.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
        switching.headers_mut().insert(UPGRADE, protocol);
        return switching;
    }
    let frames = |count: usize, piece: Bytes| {
        stream::iter(std::iter::repeat_n(piece, count)).map(|piece| Ok(Frame::data(piece)))
    };
    let body = match (request.uri().path(), request.uri().query()) {
        ("/bulk", _) => {
            let whole = frames(BULK_BYTES / PIECE, Bytes::from(vec![7; PIECE]));
            StreamBody::new(whole).boxed_unsync()
        }
        (_, Some("watch=1")) => {
            let begun = frames(1, Bytes::from_static(b"{}\n")).chain(stream::pending());
            StreamBody::new(begun).boxed_unsync()
        }
        _ => Full::from(r#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#).boxed_unsync(),
    };
    Response::new(body)
}

type Upstream = Client<hyper_rustls::HttpsConnector<HttpConnector>, Incoming>;

fn client(upstream: &Place) -> anyhow::Result<Upstream> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let tls = testkit::tls_trusting(upstream.authority.as_bytes())?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2();
    Ok(Client::builder(TokioExecutor::new()).http2_only(true).build(builder.wrap_connector(connector)))
}

async fn pass_on(stream: TlsStream<TcpStream>, client: Upstream, host: Host) -> anyhow::Result<()> {
    let pass = service_fn(move |mut request: Request<Incoming>| {
        let (client, host) = (client.clone(), host.clone());
        async move {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), Some(host));
            *request.uri_mut() = Uri::from_parts(parts)?;
            *request.version_mut() = http::Version::HTTP_2;
            request.headers_mut().remove(http::header::HOST);
            let mut answer = client.request(request).await?;
            *answer.version_mut() = http::Version::HTTP_11;
            anyhow::Ok(answer)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    builder.serve_connection(TokioIo::new(stream), pass).await.map_err(anyhow::Error::from_boxed)
}

async fn copy_on(
    mut near: TlsStream<TcpStream>,
    connector: TlsConnector,
    upstream: SocketAddr,
) -> anyhow::Result<()> {
    let connection = TcpStream::connect(upstream).await?;
    connection.set_nodelay(true)?;
    let mut far = connector.connect(ServerName::IpAddress(upstream.ip().into()), connection).await?;
    copy_bidirectional_with_sizes(&mut near, &mut far, PIECE, PIECE).await?;
    Ok(())
}
