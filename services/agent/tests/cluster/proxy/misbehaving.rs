//! API servers that misbehave.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ::tunnel::wire::cluster::ANSWERED_BY;
use agent::kubernetes::api_server::Expected;
use bytes::Bytes;
use events::pass::{AccessAs, Narrowing};
use futures::StreamExt as _;
use futures::future::join_all;
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use testkit::{Authority, ControlPlane, ControlPlaneOptions, Folder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use world::World;

use super::tunnel::{Tunnel, before, read, spawn, through, whole};
use crate::kubeconfig;
use crate::rig::{cluster, config_map};

/// Waits a sixtieth of what it should.
struct Hasty(world::clock::SystemClock);

#[async_trait::async_trait]
impl world::Clock for Hasty {
    fn now_millis(&self) -> i64 {
        self.0.now_millis()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration / 60).await;
    }
}

/// Reads the head of a request.
pub async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Whoever connects is first asked for the version, which makes it an API server that speaks HTTP/1.1.
pub async fn fake() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_does_not_answer_is_named_as_the_one_at_fault() {
    let (listener, address) = fake().await;
    let world = World { clock: Arc::new(Hasty(world::clock::SystemClock::new())), ..World::real() };
    let tunnel = before(world, &address).await;
    let says_its_version_alone = async {
        let (mut asked, _) = listener.accept().await.unwrap();
        head(&mut asked).await;
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        asked.write_all(answer.as_bytes()).await.unwrap();
        listener.accept().await.unwrap()
    };
    let (answer, silent) = tokio::join!(tunnel.get("/version"), says_its_version_alone);
    assert_eq!(answer.headers()[ANSWERED_BY], "api-server");
    let (status, _, body) = read(answer).await;
    assert_eq!((status, &body["reason"]), (StatusCode::GATEWAY_TIMEOUT, &json!("Timeout")));
    drop((silent, listener));
    let answer = tunnel.get("/version").await;
    assert_eq!(answer.headers()[ANSWERED_BY], "api-server");
    let (status, _, body) = read(answer).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}");
    assert!(body["message"].as_str().unwrap().contains("refused"), "{body}");
    assert_eq!(tunnel.counts.cluster_api_requests.with(["late"]).get(), 1);
    assert_eq!(tunnel.counts.cluster_api_requests.with(["unreachable"]).get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_does_not_end_in_order() {
    let (listener, address) = fake().await;
    let tunnel = before(World::real(), &address).await;
    let answers = async {
        let mut last = None;
        for answer in ["200 OK\r\ncontent-length: 2\r\n\r\n{}", "200 OK\r\ncontent-length: 99\r\n\r\nhalf"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            let answer =
                format!("HTTP/1.1 {}", answer.replace("\r\ncontent", "\r\nconnection: close\r\ncontent"));
            stream.write_all(answer.as_bytes()).await.unwrap();
            last = Some(stream);
        }
        last
    };
    let (answer, broken_off) = tokio::join!(tunnel.get("/version"), answers);
    assert_eq!(answer.status(), StatusCode::OK);
    drop(broken_off);
    assert!(answer.into_body().collect().await.is_err());
}

/// Says its version to whoever comes first, and this to the next one.
async fn says(listener: &TcpListener, said: &str) {
    let version = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    for said in [version, said] {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(said.as_bytes()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_before_an_answer_is_not_taken_for_it() {
    let (listener, address) = fake().await;
    let tunnel = before(World::real(), &address).await;
    let said = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let (answer, ()) = tokio::join!(tunnel.get("/version"), says(&listener, said));
    assert!(!answer.headers().contains_key("link"));
    let (status, _, body) = read(answer).await;
    assert_eq!((status, body), (StatusCode::OK, json!({})));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_head_says_a_length_and_has_no_body() {
    let (listener, address) = fake().await;
    let tunnel = before(World::real(), &address).await;
    let said = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n";
    let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
    let asking = tunnel.send(Request::head("/k8s/version"), &pass, whole(""));
    let (answer, ()) = tokio::join!(asking, says(&listener, said));
    assert_eq!(
        (answer.status(), &answer.headers()["content-length"]),
        (StatusCode::OK, &"99".parse().unwrap())
    );
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_come_back_behind_the_answer() {
    let (listener, address) = fake().await;
    let tunnel = before(World::real(), &address).await;
    let said = "transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\n{}\r\n0\r\nx-sum: 5\r\n\r\n";
    let said = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{said}");
    let (answer, ()) = tokio::join!(tunnel.get("/version"), says(&listener, &said));
    assert_eq!(answer.headers()["trailer"], "x-sum");
    let whole = answer.into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x-sum"], "5");
    assert_eq!(whole.to_bytes(), "{}");
}

const CLOSES: &str = "closes";

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

const SILENT: &str = "silent";

/// Says as much in its headers as the path's last segment asks for, in kilobytes; a watch says something and goes on. Or it closes the
/// connection instead, if that is HTTP/1.1 and it is asked to, or says nothing.
async fn says_much(request: Request<Incoming>) -> Result<Response<Body>, std::fmt::Error> {
    let last = request.uri().path().rsplit('/').next().unwrap();
    if last == SILENT {
        return std::future::pending().await;
    }
    if last == CLOSES && request.version() == Version::HTTP_11 {
        return Err(std::fmt::Error);
    }
    let mut answer = Response::new(Full::from("{}").boxed_unsync());
    if request.uri().query() == Some("watch=1") {
        let goes_on = futures::stream::pending();
        *answer.body_mut() = BodyExt::boxed_unsync(StreamBody::new(goes_on));
    }
    // One value, as what consists of small ones can be skipped.
    if let Ok(kilobytes) = last.parse::<usize>() {
        answer.headers_mut().insert("x-much", "x".repeat(kilobytes * 1000).parse().unwrap());
    }
    Ok(answer)
}

/// An API server that speaks HTTP/2, and HTTP/1.1 to whoever wants that.
async fn before_one_that_says_much(world: World) -> Tunnel {
    let folder = Folder::temporary().unwrap();
    let authority = Authority::new("much").unwrap();
    let shown = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let mut tls = testkit::tls_showing(&shown).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let accepting = world.clone();
    spawn(&world, async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            spawn(&accepting, async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = service_fn(says_much);
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    });
    let path = folder.path().join("kubeconfig");
    kubeconfig::of_authority(&cluster().await, &address, &authority, &path);
    Tunnel::open(world, &path, Some(super::tunnel::pinned())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_endless_headers_ends_no_other() {
    const PROXY: &str = "/api/v1/namespaces/a/pods/b/proxy";
    let tunnel = before_one_that_says_much(World::real()).await;
    let mut watch = tunnel.get("/api/v1/pods?watch=1").await;
    assert_eq!(watch.status(), StatusCode::OK);
    for much in
        ["/version/50".to_owned(), format!("{PROXY}/50"), "/version/150".to_owned(), format!("{PROXY}/150")]
    {
        let answer = tunnel.get(&much).await;
        assert_eq!(answer.status(), StatusCode::OK, "{much}");
        assert!(answer.headers()["x-much"].len() >= 50_000, "{much}");
    }
    for (too_much, says) in [
        ("/version/500".to_owned(), "headers take"),
        (format!("{PROXY}/300"), "headers take"),
        (format!("{PROXY}/9000"), "API server"),
    ] {
        let answer = tunnel.get(&too_much).await;
        assert_eq!(answer.headers()[ANSWERED_BY], "api-server", "{too_much}");
        let (status, _, body) = read(answer).await;
        assert_eq!(
            (status, &body["kind"]),
            (StatusCode::BAD_GATEWAY, &json!("Status")),
            "{too_much}: {body}"
        );
        assert!(body["message"].as_str().unwrap().contains(says), "{too_much}: {body}");
    }
    assert_eq!(tunnel.api_server.lanes(), [1]);
    let ended = tokio::time::timeout(Duration::ZERO, watch.body_mut().frame()).await;
    assert!(ended.is_err(), "the watch on the shared connection goes on: {ended:?}");
    assert_eq!(tunnel.get("/version").await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_whole_to_an_api_server_that_does_not_answer_is_not_waited_for_for_ever() {
    let world = World { clock: Arc::new(Hasty(world::clock::SystemClock::new())), ..World::real() };
    let tunnel = before_one_that_says_much(world).await;
    let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
    let request = Request::post(format!("/k8s/api/v1/namespaces/{SILENT}"));
    let (status, _, body) = read(tunnel.send(request, &pass, whole("{}")).await).await;
    assert_eq!((status, &body["reason"]), (StatusCode::GATEWAY_TIMEOUT, &json!("Timeout")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_reads_is_asked_again_when_a_connection_that_was_kept_closes() {
    let tunnel = before_one_that_says_much(World::real()).await;
    assert_eq!(read(tunnel.get("/version").await).await.0, StatusCode::OK);
    assert_eq!(tunnel.api_server.lanes(), [0; 0], "what is answered soon shares no connection");
    assert_eq!(read(tunnel.get(&format!("/version/{CLOSES}")).await).await.0, StatusCode::OK);
    assert_eq!(tunnel.api_server.lanes().len(), 1, "asked again over HTTP/2");
}

/// Longer than the agent lets anybody wait for an answer.
const IN_TIME: Duration = Duration::from_secs(120);

async fn in_time<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(IN_TIME, comes).await;
    came.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// As often as it lets itself be told to, so that clients come to other API servers behind the same address.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_closes_connections_in_order_loses_nothing_under_way() {
    const OFTEN: &str = "--goaway-chance=0.02";
    let options = ControlPlaneOptions {
        workloads: false,
        api_server_flags: vec![OFTEN.to_owned()],
        ..ControlPlaneOptions::default()
    };
    let plane = in_time("the control plane", ControlPlane::start(options)).await.unwrap();
    let namespace = in_time("its namespace", plane.namespace("goaway", false)).await.unwrap();
    let tunnel = in_time("the tunnel", through(&plane)).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
    let writes = futures::stream::iter(0..600).map(|number| {
        let (tunnel, pass, maps) = (&tunnel, &pass, &maps);
        async move {
            let request = Request::post(format!("/k8s{maps}")).header("content-type", "application/json");
            let map = config_map(&format!("m{number}"), "v").to_string();
            let answer =
                in_time(&format!("the answer to m{number}"), tunnel.send(request, pass, whole(map))).await;
            let (status, _, body) = in_time(&format!("the body of m{number}"), read(answer)).await;
            assert_eq!(status, StatusCode::CREATED, "{body}");
        }
    });
    writes.buffer_unordered(16).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_for_a_silent_api_server_hear_together_that_it_says_nothing() {
    const AT_ONCE: usize = 20;
    let (silent, address) = fake().await;
    let tunnel = before(World::real(), &address.replace("http:", "https:")).await;
    let ask = |_| tunnel.api_server.send(Request::get("/version").body(no_body()).unwrap(), Expected::Soon);
    // All of them have asked before any of them is waited for.
    let asked = join_all((0..AT_ONCE).map(ask));
    let ends = async { drop(silent.accept().await.unwrap()) };
    let (answers, ()) = tokio::join!(asked, ends);
    assert!(answers.iter().all(Result::is_err));
    let dialled = tokio::time::timeout(Duration::ZERO, silent.accept()).await;
    assert!(dialled.is_err(), "one of them dialled by itself");
}

fn no_body() -> UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Empty::new().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_after_a_silence_is_not_told_of_it() {
    let (listener, address) = fake().await;
    let world = World { clock: Arc::new(Hasty(world::clock::SystemClock::new())), ..World::real() };
    let tunnel = before(world, &address).await;
    let answer = tunnel.get("/version").await;
    let (silence, _) = listener.accept().await.unwrap();
    let (status, _, body) = read(answer).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}");
    assert!(body["message"].as_str().unwrap().contains("did not report its version"), "{body}");
    spawn(&tunnel.world, async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    assert_eq!(tunnel.get("/version").await.status(), StatusCode::OK);
    drop(silence);
}
