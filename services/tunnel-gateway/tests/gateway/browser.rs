//! Pages in browsers: which are let in, with sessions and with tickets for WebSockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use events::requests::gateway::RedeemTicket;
use events::subject::Subject;
use events::{Refusal, RefusalKind, Request as _};
use http::header::{COOKIE, HOST, HeaderValue, ORIGIN, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::EventLog;
use testkit::eventually;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tunnel::agent::{LinkEnd, dial};
use tunnel::body::{EventSender, GuardedBody, event_body};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::cluster;
use tunnel_gateway::Args;
use uuid::Uuid;

use super::agent::TestAgent;
use super::clients::{Clients, Second};
use super::harness::{Gateway, LIMIT, agent_id, args, instance, secret, spawn};

const PAGE: &str = "https://console.example";
/// Let in where a test says so.
const SECOND_PAGE: &str = "https://dashboard.example";
const OTHER: &str = "https://evil.example";
const PODS: &str = "/api/v1/namespaces/a/pods";
/// Of a session, which the test's agent answers without an upgrade.
const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec?watch=1&command=sh";

struct Stage {
    gateway: Gateway,
    agent: TestAgent,
    clients: Clients,
    client: reqwest::Client,
}

fn with_page() -> Args {
    Args { clusters_origins: vec![PAGE.parse().unwrap()], ..args() }
}

type LiarsBody = UnsyncBoxBody<Bytes, Infallible>;

/// A page's session.
struct Session {
    cookie: String,
    word: String,
}

impl Stage {
    async fn start() -> Self {
        Self::start_with(with_page()).await
    }

    async fn start_with(args: Args) -> Self {
        let gateway = Gateway::start_with(args).await;
        gateway.register(1).await;
        let clients = Clients::of(&gateway).await;
        (1..=2).for_each(|number| clients.let_in(number));
        let agent = gateway.connect(1, 1).await;
        let client = clients.client().clone();
        Self { gateway, agent, client, clients }
    }

    fn request(&self, method: Method, path: &str, origin: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("http://{}{path}", self.gateway.clusters));
        match origin {
            Some(origin) => request.header(ORIGIN, origin),
            None => request,
        }
    }

    fn to_agent(&self, path: &str, origin: Option<&str>) -> reqwest::RequestBuilder {
        self.request(Method::GET, &format!("/agents/{}{path}", agent_id(1)), origin)
    }

    async fn session(&self, person: u128) -> Session {
        let begun = self.request(Method::POST, "/sessions", Some(PAGE)).bearer_auth(person.to_string());
        let begun = begun.send().await.unwrap();
        assert_eq!(begun.status(), 201);
        let cookie = begun.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        for attribute in ["__Host-", "Path=/", "Secure", "HttpOnly"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let told: Value = begun.json().await.unwrap();
        Session { cookie, word: told["csrf_token"].as_str().unwrap().to_owned() }
    }

    fn wish(&self, target: &str) -> reqwest::RequestBuilder {
        self.request(Method::POST, "/tickets", Some(PAGE)).json(&json!({"target": target}))
    }

    async fn ticket(&self, session: &Session, target: &str) -> String {
        let issued = shows(self.wish(target), session).send().await.unwrap();
        assert_eq!(issued.status(), 201);
        let issued: Value = issued.json().await.unwrap();
        issued["protocol"].as_str().unwrap().to_owned()
    }

    /// A WebSocket with these protocols.
    fn websocket(&self, at: SocketAddr, target: &str, protocols: &str) -> reqwest::RequestBuilder {
        let request = self.client.get(format!("http://{at}{target}"));
        request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", protocols)
    }

    /// The answer's status to a WebSocket with this ticket.
    async fn opens(&self, at: SocketAddr, path: &str, ticket: &str, origin: Option<&str>) -> StatusCode {
        let protocols = format!("v5.channel.k8s.io, {ticket}");
        let mut request = self.websocket(at, &format!("/agents/{}{path}", agent_id(1)), &protocols);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        request.send().await.unwrap().status()
    }

    /// Connects an agent that would have browsers keep what it says.
    async fn connect_liar(&self, number: u128) -> JoinHandle<LinkEnd> {
        self.gateway.register(number).await;
        let hello = Hello::control(instance(number), 0, "0.1.0");
        let token = Token::new(&secret(number));
        let link = dial(&self.gateway.world, &self.gateway.target(), &token, &hello).await.unwrap();
        let events: Arc<Mutex<Option<EventSender>>> = Arc::default();
        let of_service = Arc::clone(&events);
        let service = service_fn(move |request: Request<GuardedBody>| {
            let answer = lie(&request, &mut of_service.lock());
            async move { Ok::<_, hyper::Error>(answer) }
        });
        let link = spawn(link.serve(service, std::future::pending()));
        eventually(LIMIT, || async { events.lock().as_ref().map(drop).ok_or("it is not in yet") }).await;
        link
    }
}

/// An agent's answer that speaks for the whole host, and where it was asked for a WebSocket opens one that does not end.
fn lie(request: &Request<GuardedBody>, events: &mut Option<EventSender>) -> Response<LiarsBody> {
    if request.uri().path() == "/v1/events" {
        let (sender, body) = event_body(64);
        *events = Some(sender);
        return Response::new(body.boxed_unsync());
    }
    let is_websocket = request.headers().contains_key(cluster::UPGRADE);
    let body = if is_websocket {
        StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>()).boxed_unsync()
    } else {
        Full::new(Bytes::from_static(b"{}")).boxed_unsync()
    };
    let mut answer = Response::new(body);
    let said = answer.headers_mut();
    if is_websocket {
        said.insert(cluster::UPGRADE, HeaderValue::from_static("websocket"));
    }
    said.append(SET_COOKIE, HeaderValue::from_static("__Host-kasbah-session=x; Path=/; Secure"));
    said.append(SET_COOKIE, HeaderValue::from_static("theme=dark"));
    said.insert("clear-site-data", HeaderValue::from_static("\"*\""));
    said.insert("audit-id", HeaderValue::from_static("1"));
    answer
}

fn shows(request: reqwest::RequestBuilder, session: &Session) -> reqwest::RequestBuilder {
    request.header(COOKIE, format!("theme=dark; {}", session.cookie)).header("x-csrf-token", &session.word)
}

async fn code(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

fn lets_in(headers: &HeaderMap) -> Option<&str> {
    headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_shown_to_the_pages_that_are_let_in_and_to_no_others() {
    let stage = Stage::start().await;
    let path = format!("/agents/{}{PODS}", agent_id(1));
    let preflight = |origin| {
        let request = stage.request(Method::OPTIONS, &path, Some(origin));
        let request = request.header("access-control-request-method", "PATCH");
        request.header("access-control-request-headers", "content-type,x-csrf-token").send()
    };
    let may = preflight(PAGE).await.unwrap();
    assert_eq!((may.status().as_u16(), lets_in(may.headers())), (204, Some(PAGE)));
    let said = |name: &str| may.headers()[name].to_str().unwrap().to_owned();
    assert!(said("access-control-allow-methods").contains("PATCH"));
    assert_eq!(said("access-control-allow-headers"), "content-type,x-csrf-token");
    assert_eq!((said("access-control-allow-credentials"), said("vary")), ("true".into(), "Origin".into()));
    let may_not = preflight(OTHER).await.unwrap();
    assert_eq!((may_not.status().as_u16(), lets_in(may_not.headers())), (403, None));
    assert!(stage.agent.state.lock().asked_of_cluster.is_empty(), "it is the gateway's to answer");

    let answered = stage.to_agent(PODS, Some(PAGE)).bearer_auth("1").send().await.unwrap();
    assert_eq!((answered.status().as_u16(), lets_in(answered.headers())), (200, Some(PAGE)));
    let refused = stage.to_agent(PODS, Some(PAGE)).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), lets_in(refused.headers())), (401, Some(PAGE)));
    // A program that says it is a page and has a token gets what the token is good for.
    for origin in [Some(OTHER), None] {
        let answered = stage.to_agent(PODS, origin).bearer_auth("1").send().await.unwrap();
        assert_eq!((answered.status().as_u16(), lets_in(answered.headers())), (200, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_counts_with_its_word_from_its_page_and_not_otherwise() {
    let stage = Stage::start().await;
    let session = stage.session(1).await;
    assert_eq!(code(shows(stage.to_agent(PODS, Some(PAGE)), &session)).await, 200);
    let headers = stage.agent.state.lock().headers_of_cluster.pop().unwrap();
    for ours in ["cookie", "x-csrf-token", "origin", "authorization"] {
        assert!(!headers.contains_key(ours), "{ours} went on");
    }
    let others = Session { word: stage.session(2).await.word, cookie: session.cookie.clone() };
    for (request, why) in [
        (stage.to_agent(PODS, Some(PAGE)).header(COOKIE, &session.cookie), "without its word"),
        (shows(stage.to_agent(PODS, Some(PAGE)), &others), "with another's word"),
        (shows(stage.to_agent(PODS, Some(OTHER)), &session), "from another page"),
        (shows(stage.to_agent(PODS, None), &session), "from nowhere"),
        (shows(stage.to_agent(PODS, Some(PAGE)).header(ORIGIN, PAGE), &session), "from two pages"),
    ] {
        assert_eq!(code(request).await, 403, "{why}");
    }
    let twice = shows(stage.to_agent(PODS, Some(PAGE)), &session).header(COOKIE, &session.cookie);
    assert_eq!(code(twice).await, 400);
    // The token itself goes before the cookie.
    assert_eq!(code(shows(stage.to_agent(PODS, Some(PAGE)), &session).bearer_auth("none")).await, 401);
    for origin in [Some(OTHER), None] {
        assert_eq!(code(stage.request(Method::POST, "/sessions", origin).bearer_auth("1")).await, 403);
    }
    assert_eq!(code(stage.request(Method::POST, "/sessions", Some(PAGE))).await, 401);
    assert_eq!(code(stage.request(Method::GET, "/sessions", Some(PAGE))).await, 405);

    let ended = shows(stage.request(Method::DELETE, "/sessions", Some(PAGE)), &session).send().await.unwrap();
    assert_eq!(ended.status(), 204);
    assert!(ended.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let forged = Session { word: "AAAA".to_owned(), ..session };
    assert_eq!(code(shows(stage.request(Method::DELETE, "/sessions", Some(PAGE)), &forged)).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_rid_of_two_sessions_by_the_word_of_either() {
    let stage = Stage::start().await;
    let (one, another) = (stage.session(1).await, stage.session(2).await);
    for word in [&one.word, &another.word] {
        let first = Session { cookie: one.cookie.clone(), word: word.clone() };
        let both = |request| shows(request, &first).header(COOKIE, &another.cookie);
        assert_eq!(code(both(stage.to_agent(PODS, Some(PAGE)))).await, 400);
        let ended = both(stage.request(Method::DELETE, "/sessions", Some(PAGE))).send().await.unwrap();
        assert_eq!(ended.status(), 204);
        let cookies: Vec<&str> =
            ended.headers().get_all(SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap()).collect();
        assert!(cookies.iter().all(|cookie| cookie.contains("Max-Age=0")), "{cookies:?}");
        let partitioned = cookies.iter().filter(|cookie| cookie.contains("Partitioned")).count();
        assert_eq!((cookies.len(), partitioned), (2, 1), "{cookies:?}");
    }
    let forged = Session { word: "AAAA".to_owned(), ..one };
    let request = shows(stage.request(Method::DELETE, "/sessions", Some(PAGE)), &forged);
    assert_eq!(code(request.header(COOKIE, &another.cookie)).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_opens_one_websocket_of_its_page_once() {
    let stage = Stage::start().await;
    let session = stage.session(1).await;
    let at = stage.gateway.clusters;
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    let ticket = stage.ticket(&session, &target).await;
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(PAGE)).await, 200);
    let protocols = stage.agent.state.lock().headers_of_cluster.pop().unwrap();
    assert_eq!(protocols["sec-websocket-protocol"], "v5.channel.k8s.io");
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(PAGE)).await, 401, "a second time");
    for (origin, why) in [(Some(OTHER), "another page"), (None, "no page")] {
        let ticket = stage.ticket(&session, &target).await;
        assert_eq!(stage.opens(at, EXEC, &ticket, origin).await, 403, "{why}");
    }
    let ticket = stage.ticket(&session, &target).await;
    let elsewhere = EXEC.replace("sh", "rm");
    assert_eq!(stage.opens(at, &elsewhere, &ticket, Some(PAGE)).await, 403, "another command");
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(PAGE)).await, 401, "it was used for that");
    for forged in
        ["kasbah.ticket.", "kasbah.ticket.x.y", "kasbah.ticket.00000000000000000000000000000000.AAAA"]
    {
        assert_eq!(stage.opens(at, EXEC, forged, Some(PAGE)).await, 401, "{forged}");
    }
    let ticket = stage.ticket(&session, &target).await;
    let no_websocket = stage.to_agent(PODS, Some(PAGE)).header("sec-websocket-protocol", ticket);
    assert_eq!(code(no_websocket).await, 401);
    let cookie_alone = Session { word: String::new(), ..session };
    assert_eq!(code(shows(stage.wish(&target), &cookie_alone)).await, 403, "no ticket without the word");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_not_opened_by_the_cookie_that_a_browser_adds() {
    let stage = Stage::start().await;
    let session = stage.session(1).await;
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    for origin in [PAGE, OTHER] {
        let request = stage.websocket(stage.gateway.clusters, &target, "v5.channel.k8s.io");
        let request = request.header(ORIGIN, origin).header(COOKIE, &session.cookie);
        assert_eq!(code(request).await, 403, "{origin}");
    }
    assert!(stage.agent.state.lock().asked_of_cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_used_up_by_another_page_that_is_let_in() {
    let pages = [PAGE, SECOND_PAGE].map(|page| page.parse().unwrap());
    let stage = Stage::start_with(Args { clusters_origins: pages.into(), ..args() }).await;
    let session = stage.session(1).await;
    let at = stage.gateway.clusters;
    let ticket = stage.ticket(&session, &format!("/agents/{}{EXEC}", agent_id(1))).await;
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(OTHER)).await, 403, "one that is not uses nothing up");
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(SECOND_PAGE)).await, 403);
    assert_eq!(stage.opens(at, EXEC, &ticket, Some(PAGE)).await, 401);
    assert!(stage.agent.state.lock().asked_of_cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_for_one_agent_opens_nothing_of_another_with_the_same_paths() {
    let domain = "clusters.example";
    let stage = Stage::start_with(Args { clusters_domain: Some(domain.to_owned()), ..with_page() }).await;
    stage.gateway.register(2).await;
    let another = stage.gateway.connect(2, 2).await;
    let session = stage.session(1).await;
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    let opens_at = async |agent| {
        let protocols = format!("v5.channel.k8s.io, {}", stage.ticket(&session, &target).await);
        let request = stage.websocket(stage.gateway.clusters, &target, &protocols).header(ORIGIN, PAGE);
        code(request.header(HOST, format!("{}.{domain}", agent_id(agent)))).await
    };
    assert_eq!(opens_at(2).await, 403);
    assert!(another.state.lock().asked_of_cluster.is_empty());
    assert_eq!(opens_at(1).await, 200, "at the host of the agent that the path names");
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_for_those_whom_authz_knows_and_for_agents_and_not_too_many() {
    let stage = Stage::start().await;
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    assert_eq!(code(stage.wish(&target).bearer_auth("none")).await, 401);
    let long = format!("{target}{}", "x".repeat(16 * 1024));
    for bad in ["", "/", PODS, "/agents/x/api", "https://kasbah.example/agents", &long] {
        assert_eq!(code(stage.wish(bad).bearer_auth("1")).await, 400, "{bad}");
    }
    let nothing = stage.request(Method::POST, "/tickets", Some(PAGE)).bearer_auth("1").body("{}");
    assert_eq!(code(nothing).await, 400);

    let session = stage.session(1).await;
    let ticket = stage.ticket(&session, &target).await;
    for _ in 1..100 {
        stage.ticket(&session, &target).await;
    }
    let refused = shows(stage.wish(&target), &session).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    let seconds: u64 = refused.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
    assert!((1..=31).contains(&seconds), "{seconds}");
    stage.ticket(&stage.session(2).await, &target).await;
    assert_eq!(stage.opens(stage.gateway.clusters, EXEC, &ticket, Some(PAGE)).await, 200);
    stage.ticket(&session, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_of_a_gateway_that_cannot_be_asked_is_worth_another_try() {
    let stage = Stage::start().await;
    let replica = Uuid::from_u128(7);
    let ticket = format!("kasbah.ticket.{}.{}", replica.simple(), "A".repeat(43));
    assert_eq!(stage.opens(stage.gateway.clusters, EXEC, &ticket, Some(PAGE)).await, 401, "it is gone");
    let subject = Subject::replica_request(RedeemTicket::NAME, replica);
    let _away = bus::answer_under::<RedeemTicket, _>(&stage.gateway.bus, &subject, |_, _| {
        Box::pin(async { Err(Refusal::new(RefusalKind::Unavailable, "by the test")) })
    })
    .await
    .unwrap();
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    let request = stage.websocket(stage.gateway.clusters, &target, &ticket).header(ORIGIN, PAGE);
    let answered = request.send().await.unwrap();
    assert_eq!((answered.status().as_u16(), answered.headers()[RETRY_AFTER].as_bytes()), (503, &b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_agent_speaks_to_browsers_for_the_host_of_all_clusters() {
    let stage = Stage::start().await;
    let _liar = stage.connect_liar(2).await;
    let session = stage.session(1).await;
    let target = format!("/agents/{}{EXEC}", agent_id(2));
    let ticket = stage.ticket(&session, &target).await;
    let read =
        shows(stage.request(Method::GET, &format!("/agents/{}{PODS}", agent_id(2)), Some(PAGE)), &session);
    let websocket = stage.websocket(stage.gateway.clusters, &target, &ticket).header(ORIGIN, PAGE);
    for (request, expected) in [(read, 200), (websocket, 101)] {
        let answered = request.send().await.unwrap();
        assert_eq!(answered.status(), expected);
        assert_eq!(answered.headers()["audit-id"], "1", "the rest comes back");
        for of_the_host in ["set-cookie", "clear-site-data"] {
            assert!(!answered.headers().contains_key(of_the_host), "{expected}: {of_the_host}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_token_ends_its_session_and_what_is_open_of_it() {
    let stage = Stage::start().await;
    let _liar = stage.connect_liar(2).await;
    let (session, others) = (stage.session(1).await, stage.session(2).await);
    let target = format!("/agents/{}{EXEC}", agent_id(2));
    let unused = stage.ticket(&session, &target).await;
    let mut shells = Vec::new();
    for session in [&session, &others] {
        let ticket = stage.ticket(session, &target).await;
        let request = stage.websocket(stage.gateway.clusters, &target, &ticket).header(ORIGIN, PAGE);
        shells.push(request.send().await.unwrap().upgrade().await.unwrap());
    }
    stage.clients.shut_out(1);
    stage.gateway.revoke_of_user(1).await;

    // Sooner than the gateway would look by itself.
    let read = timeout(LIMIT / 3, shells[0].read_u8()).await.expect("the WebSocket ends");
    assert!(read.is_err(), "{read:?}");
    assert_eq!(code(shows(stage.to_agent(PODS, Some(PAGE)), &session)).await, 401);
    assert_eq!(code(shows(stage.wish(&target), &session)).await, 401);
    let request = stage.websocket(stage.gateway.clusters, &target, &unused).header(ORIGIN, PAGE);
    assert_eq!(code(request).await, 401);
    assert_eq!(code(shows(stage.to_agent(PODS, Some(PAGE)), &others)).await, 200);
    let is_open = futures::poll!(std::pin::pin!(shells[1].read_u8())).is_pending();
    assert!(is_open, "another's goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_good_at_each_gateway_and_for_once_at_all_of_them() {
    let stage = Stage::start().await;
    let log: Arc<dyn EventLog> = Arc::clone(&stage.gateway.store.log);
    let second = Second::with(&stage.gateway, with_page(), log).await;
    let session = stage.session(1).await;
    let target = format!("/agents/{}{EXEC}", agent_id(1));
    let ticket = stage.ticket(&session, &target).await;
    assert_eq!(stage.opens(second.clusters, EXEC, &ticket, Some(PAGE)).await, 200);
    assert_eq!(stage.opens(stage.gateway.clusters, EXEC, &ticket, Some(PAGE)).await, 401);
    assert_eq!(stage.opens(second.clusters, EXEC, &ticket, Some(PAGE)).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_page_is_let_in_there_are_no_sessions() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let clients = Clients::of(&gateway).await;
    clients.let_in(1);
    let _agent = gateway.connect(1, 1).await;
    let url = |path: &str| format!("http://{}{path}", gateway.clusters);
    let begin = clients.client().post(url("/sessions")).header(ORIGIN, PAGE).bearer_auth("1");
    assert_eq!(code(begin).await, 404);
    let request = clients.client().get(url(&format!("/agents/{}{PODS}", agent_id(1))));
    let request = request.header(ORIGIN, PAGE).header(COOKIE, "__Host-kasbah-session=1");
    let refused = request.send().await.unwrap();
    assert_eq!((refused.status().as_u16(), lets_in(refused.headers())), (401, None));
}
