//! Attempts to get into a cluster by requests that two readers may understand differently, that never end, or with tokens that are
//! not for it. Each is refused, nobody else notices, and no token is in a log.

mod wire;

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use testkit::{InstallationOptions, eventually};
use wire::{Fate, Headers, Wire};

use crate::cluster_api::let_in;
use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// What a smuggled request would make in the cluster.
const SMUGGLED: &str = "smuggled";
/// Between two bytes of who sends as slowly as it can.
const DRIP: Duration = Duration::from_millis(200);
/// Who sends slowly, at once.
const SLOW: usize = 40;
/// An agent that lets nobody in.
const CLOSED: &str = "closed";

/// Whoever tries.
struct Attacker {
    scene: Scene,
    address: String,
    authority: Vec<u8>,
    /// Path of the agent.
    agent: String,
    /// The same of the agent that lets nobody in.
    closed: String,
    token: String,
    http: reqwest::Client,
}

impl Attacker {
    async fn begin() -> Self {
        let server = vec!["--log-level=debug".to_owned()];
        let options = InstallationOptions { server, ..InstallationOptions::default() };
        let cluster = testkit::shared_control_plane().await.unwrap();
        let scene = Scene::start_as(options, cluster, "").await;
        scene.kasbah.register_agent(CLOSED, PROJECT).unwrap();
        let_in(&scene, "").await;
        let [agent, closed] = [AGENT, CLOSED].map(|agent| format!("/agents/{}", scene.agent_id(agent)));
        let authority = std::fs::read(scene.kasbah.authority()).unwrap();
        let token = std::fs::read_to_string(scene.kasbah.data().join("owner-token")).unwrap();
        let attacker = Self {
            address: scene.kasbah.clusters().trim_start_matches("https://").to_owned(),
            http: testkit::client_trusting(&authority).unwrap(),
            authority,
            agent,
            closed,
            token: token.trim().to_owned(),
            scene,
        };
        eventually(LIMIT, || attacker.reads()).await;
        attacker
    }

    /// Somebody who asks for what they may see.
    async fn reads(&self) -> Result<(), String> {
        let url = format!("https://{}{}{}", self.address, self.agent, self.maps());
        let answer = self.http.get(url).bearer_auth(&self.token).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status() == 200 { Ok(()) } else { Err(answer.text().await.unwrap_or_default()) }
    }

    fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.scene.namespace)
    }

    /// What stands in a request: `AGENT`, `CLOSED`, `MAPS`, `TOKEN`, and `SMUGGLED` for a whole request with its own head.
    fn filled_in(&self, request: &str) -> String {
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SMUGGLED}}).to_string();
        let smuggled = format!(
            "POST MAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nImpersonate-User: kasbah:user:owner\r\nContent-Type: \
             application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len(),
        );
        let request = request.replace("SMUGGLED", &smuggled).replace("MAPS", &self.maps());
        let request = request.replace("AGENT", &self.agent).replace("CLOSED", &self.closed);
        // Last, as any letters may stand in it.
        request.replace("TOKEN", &self.token)
    }

    fn dial(&self, protocol: &str) -> Wire {
        Wire::dial(&self.address, &self.authority, protocol.as_bytes())
    }

    /// The codes of all answers to these bytes.
    fn codes(&self, request: &str) -> Vec<u16> {
        let mut wire = self.dial("http/1.1");
        wire.send(self.filled_in(request).as_bytes());
        let answers = wire.read_to_the_end();
        let codes = answers.match_indices("HTTP/1.1 ").filter_map(|(at, start)| {
            let code = answers.get(at + start.len()..)?.get(..3)?;
            code.parse().ok()
        });
        codes.collect()
    }

    async fn nothing_was_smuggled(&self) {
        let path = format!("{}/{SMUGGLED}", self.maps());
        let found = self.scene.cluster.send(Method::GET, &path, None).await.unwrap();
        assert_eq!(found.status, 404, "it is in the cluster");
        self.reads().await.unwrap();
    }

    /// Fails when one of these stands in what any process said.
    fn is_in_no_log(&mut self, secrets: &[String]) {
        let kasbah = &mut self.scene.kasbah;
        let server = kasbah.server().unwrap().log().to_owned();
        let agent = kasbah.agent("agent").unwrap().log().to_owned();
        let read = |log: &std::path::Path| String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned();
        assert!(read(&server).contains("DEBUG"), "everything is logged");
        for log in [server, agent] {
            for line in read(&log).lines() {
                let tells = secrets.iter().any(|secret| line.contains(secret.as_str()));
                assert!(!tells, "a token is in {}: {line}", log.display());
            }
        }
    }
}

/// Each says two things of where a request ends, or of whose it is; with the only codes that may be answered.
const AMBIGUOUS: &[(&str, &str, &[u16])] = &[
    (
        "a length and chunks",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 5\r\nTransfer-Encoding: \
         chunked\r\n\r\n0\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "chunks and a length: what follows is no one's",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\nContent-Length: \
         5\r\n\r\n0\r\n\r\nSMUGGLED",
        &[400, 404, 415],
    ),
    (
        "two lengths",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 0\r\nContent-Length: \
         500\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "two lengths in one",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 0, 500\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "a length that is no number",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Length: +0\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "something that is nearly chunks",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "chunks that are not last",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: chunked, \
         identity\r\n\r\n0\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "a space before the colon",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding : \
         chunked\r\n\r\n0\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "a header on two lines",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nX: a\r\n Content-Length: \
         500\r\n\r\nSMUGGLED",
        &[400],
    ),
    (
        "a carriage return in a value",
        "GET AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nX: a\rImpersonate-User: root\r\n\r\n",
        &[400],
    ),
    (
        "a nought in a value",
        "GET AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nX: a\0b\r\n\r\n",
        &[400],
    ),
    (
        "a chunk whose size is none",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: \
         chunked\r\n\r\n-1\r\n\r\nSMUGGLED",
        &[400, 415, 502],
    ),
    (
        "a chunk whose size is beyond all numbers",
        "POST AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: \
         chunked\r\n\r\n10000000000000000\r\n\r\nSMUGGLED",
        &[400, 415, 502],
    ),
    (
        "two hosts",
        "GET AGENTMAPS HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\nAuthorization: Bearer TOKEN\r\n\r\n",
        &[404],
    ),
    (
        "another host in its first line",
        "GET https://kubernetes.default.svcAGENTMAPS HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer \
         TOKEN\r\n\r\n",
        &[404],
    ),
    (
        "a way to another host",
        "CONNECT kubernetes.default.svc:443 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer TOKEN\r\n\r\n",
        &[404],
    ),
    (
        "another agent's path behind one's own",
        "GET AGENT/../..CLOSED/api HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer TOKEN\r\n\r\n",
        &[400],
    ),
    (
        "the same, encoded",
        "GET AGENT/%2e%2e/%2e%2eCLOSED/api HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer \
         TOKEN\r\n\r\n",
        &[400],
    ),
    (
        "another agent's path below one's own",
        "GET AGENTCLOSED/api HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer TOKEN\r\n\r\n",
        &[403, 404],
    ),
    (
        "an agent that lets nobody in",
        "GET CLOSEDMAPS HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer TOKEN\r\n\r\n",
        &[403],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_two_readers_would_understand_differently_is_refused() {
    let mut attacker = Attacker::begin().await;
    for (what, request, allowed) in AMBIGUOUS {
        let codes = attacker.codes(request);
        let refused = codes.iter().all(|code| allowed.contains(code));
        assert!(refused && !codes.is_empty(), "{what}: {codes:?}");
        println!("{what}: {codes:?}");
        attacker.nothing_was_smuggled().await;
    }
    let token = attacker.token.clone();
    attacker.is_in_no_log(&[token]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_http2_that_would_be_two_over_http1_is_refused() {
    let mut attacker = Attacker::begin().await;
    let path = format!("{}{}", attacker.agent, attacker.maps());
    let (bearer, smuggled) = (format!("Bearer {}", attacker.token), attacker.filled_in("SMUGGLED"));
    let plain: Vec<(&[u8], &[u8])> = vec![
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"a"),
        (b":path", path.as_bytes()),
        (b"authorization", bearer.as_bytes()),
    ];
    let fate = attacker.dial("h2").ask_over_http2(&plain, None);
    assert!(fate.is_success(), "without anything wrong: {fate:?}");
    // What is the body of a request to read stays it.
    let fate = attacker.dial("h2").ask_over_http2(&plain, Some(smuggled.as_bytes()));
    assert_ne!(fate, Fate::Ended, "a body of a request to read");
    attacker.nothing_was_smuggled().await;
    let value = format!("a\r\n\r\n{smuggled}");
    let line = format!("{path} HTTP/1.1\r\nHost: a\r\n\r\n{smuggled}");
    let several: &[(&str, Headers<'_>)] = &[
        ("lines in a value", &[(b"x", value.as_bytes())]),
        ("lines in a name", &[(b"x: a\r\nimpersonate-user", b"root")]),
        ("a capital in a name", &[(b"X-Letter", b"a")]),
        ("chunks", &[(b"transfer-encoding", b"chunked")]),
        ("headers of the connection", &[(b"connection", b"keep-alive")]),
        ("another protocol", &[(b"upgrade", b"SPDY/3.1")]),
        ("a length that is not its", &[(b"content-length", b"5")]),
        ("two lengths", &[(b"content-length", b"0"), (b"content-length", b"5")]),
        ("a second path", &[(b":path", b"/api")]),
        ("a path behind the headers", &[(b"x", b"a"), (b":path", b"/api")]),
        ("another host", &[(b"host", b"b")]),
        ("impersonation", &[(b"impersonate-user", b"root")]),
    ];
    for (what, more) in several {
        let fate = attacker.dial("h2").ask_over_http2(&[&plain[..], more].concat(), None);
        assert!(!fate.is_success(), "{what}: {fate:?}");
        println!("{what}: {fate:?}");
    }
    let paths: Headers<'_> = &[(b":path", line.as_bytes()), (b":path", b""), (b":path", b"api")];
    for wrong in paths {
        let mut headers = plain.clone();
        headers[3] = *wrong;
        let fate = attacker.dial("h2").ask_over_http2(&headers, None);
        assert!(!fate.is_success(), "{:?}: {fate:?}", String::from_utf8_lossy(wrong.1));
    }
    attacker.nothing_was_smuggled().await;
    let token = attacker.token.clone();
    attacker.is_in_no_log(&[token]);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_without_end_are_refused_and_slow_ones_cut_off_while_others_are_served() {
    let attacker = Attacker::begin().await;
    let of = |headers: &str| {
        format!("GET AGENTMAPS HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n{headers}\r\n")
    };
    let many: String = (0..2000).map(|number| format!("x-{number}: a\r\n")).collect();
    let long = format!("x: {}\r\n", "a".repeat(100_000));
    for (what, request) in [
        ("many headers", of(&many)),
        ("a long header", of(&long)),
        ("a long path", format!("GET AGENT/{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100_000))),
    ] {
        let codes = attacker.codes(&request);
        assert!(codes.iter().all(|code| matches!(code, 400 | 414 | 431)), "{what}: {codes:?}");
        println!("{what}: {codes:?}");
    }
    let long = vec![b'a'; 15_000];
    let path = format!("{}{}", attacker.agent, attacker.maps());
    let mut headers: Vec<(&[u8], &[u8])> = vec![
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"a"),
        (b":path", path.as_bytes()),
    ];
    headers.push((b"x", &long));
    let fate = attacker.dial("h2").ask_over_http2(&headers, None);
    assert_ne!(fate, Fate::Ended, "one header is no flood");
    slow_ones_are_cut_off(&attacker).await;
    attacker.reads().await.unwrap();
}

/// They send a byte now and then, and never a whole head.
async fn slow_ones_are_cut_off(attacker: &Attacker) {
    let mut slow: Vec<Wire> = (0..SLOW).map(|_| attacker.dial("http/1.1")).collect();
    for wire in &mut slow {
        assert!(wire.send(attacker.filled_in("GET AGENTMAPS HTTP/1.1\r\nHost: a\r\nX: ").as_bytes()));
    }
    let mut drip = tokio::time::interval(DRIP);
    let dripping = async {
        while !slow.is_empty() {
            drip.tick().await;
            slow.retain_mut(|wire| wire.send(b"a"));
            attacker.reads().await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, dripping).await.expect("each is cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_for_it_open_nothing_and_are_in_no_log() {
    let mut attacker = Attacker::begin().await;
    let kasbah = &attacker.scene.kasbah;
    let issued =
        kasbah.json(["token", "issue", "--user", "owner", "--name", "gone", "--expires", "1h"]).unwrap();
    let revoked = issued["secret"].as_str().unwrap().to_owned();
    let id = issued.pointer("/view/id").and_then(serde_json::Value::as_str).unwrap().to_owned();
    kasbah.cli(["token", "revoke", &id]).unwrap();
    let issued =
        kasbah.json(["token", "issue", "--user", "owner", "--name", "short", "--expires", "1s"]).unwrap();
    let expired = issued["secret"].as_str().unwrap().to_owned();
    let agents = std::fs::read_to_string(kasbah.token_file(AGENT)).unwrap().trim().to_owned();
    let cut = attacker.token[..attacker.token.len() - 1].to_owned();
    let secrets = [revoked, expired, agents, cut, attacker.token.to_uppercase()];
    let url = format!("https://{}{}{}", attacker.address, attacker.agent, attacker.maps());
    for secret in &secrets {
        eventually(LIMIT, || async {
            let code = attacker.http.get(&url).bearer_auth(secret).send().await?.status();
            // An agent is somebody, but nobody whom a cluster lets in.
            anyhow::ensure!(matches!(code.as_u16(), 401 | 403), "{code}");
            Ok(())
        })
        .await;
    }
    let in_the_query = ["access_token", "token", "bearer", "authorization"]
        .map(|name| format!("{url}?{name}={}", attacker.token));
    for url in in_the_query {
        assert_eq!(attacker.http.get(&url).send().await.unwrap().status(), 401);
        // Beside a good one, it goes on to the cluster and nowhere else.
        attacker.http.get(&url).bearer_auth(&attacker.token).send().await.unwrap();
    }
    let secrets = [&secrets[..], std::slice::from_ref(&attacker.token)].concat();
    attacker.is_in_no_log(&secrets);
}
