//! Pages in browsers: which are let in, with sessions and with tickets for WebSockets.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{COOKIE, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use store::EventLog;
use tunnel_gateway::Args;

use super::agent::TestAgent;
use super::harness::{Gateway, agent_id, args};
use super::people::{People, Second};

const PAGE: &str = "https://console.example";
const OTHER: &str = "https://evil.example";
const PODS: &str = "/api/v1/namespaces/a/pods";
/// Of a session, which the test's agent answers without an upgrade.
const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec?watch=1&command=sh";

struct Stage {
    gateway: Gateway,
    agent: TestAgent,
    _people: People,
    client: reqwest::Client,
}

fn with_page() -> Args {
    Args { clusters_origins: vec![PAGE.parse().unwrap()], ..args() }
}

/// A page's session.
struct Session {
    cookie: String,
    word: String,
}

impl Stage {
    async fn start() -> Self {
        let gateway = Gateway::start_with(with_page()).await;
        gateway.register(1).await;
        let people = People::of(&gateway).await;
        (1..=2).for_each(|number| people.let_in(number));
        let agent = gateway.connect(1, 1).await;
        let client = people.client().clone();
        Self { gateway, agent, client, _people: people }
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

    async fn ticket(&self, session: &Session, target: &str) -> String {
        let wish = self.request(Method::POST, "/tickets", Some(PAGE)).json(&json!({"target": target}));
        let issued = shows(wish, session).send().await.unwrap();
        assert_eq!(issued.status(), 201);
        let issued: Value = issued.json().await.unwrap();
        issued["protocol"].as_str().unwrap().to_owned()
    }

    /// The answer's status to a WebSocket with this ticket.
    async fn opens(&self, at: SocketAddr, path: &str, ticket: &str, origin: Option<&str>) -> StatusCode {
        let url = format!("http://{at}/agents/{}{path}", agent_id(1));
        let mut request = self
            .client
            .get(url)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", format!("v5.channel.k8s.io, {ticket}"));
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        request.send().await.unwrap().status()
    }
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
    let wish = stage.request(Method::POST, "/tickets", Some(PAGE)).json(&json!({"target": target}));
    assert_eq!(code(shows(wish, &cookie_alone)).await, 403, "no ticket without the word");
    let wish = stage.request(Method::POST, "/tickets", Some(PAGE)).bearer_auth("1").body("{}");
    assert_eq!(code(wish).await, 400);
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
    let people = People::of(&gateway).await;
    people.let_in(1);
    let _agent = gateway.connect(1, 1).await;
    let url = |path: &str| format!("http://{}{path}", gateway.clusters);
    let begin = people.client().post(url("/sessions")).header(ORIGIN, PAGE).bearer_auth("1");
    assert_eq!(code(begin).await, 404);
    let request = people.client().get(url(&format!("/agents/{}{PODS}", agent_id(1))));
    let request = request.header(ORIGIN, PAGE).header(COOKIE, "__Host-kasbah-session=1");
    let refused = request.send().await.unwrap();
    assert_eq!((refused.status().as_u16(), lets_in(refused.headers())), (401, None));
}
