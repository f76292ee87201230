//! Both ends over real sockets with real TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "link/ends.rs"]
mod ends;
#[path = "link/opening.rs"]
mod opening;

use std::time::Duration;

use bytes::Bytes;
use ends::{Ends, LIMIT, Pki, TestService, agent_id, hello, refused_by, spawn};
use events::RefusalKind;
use http::{Method, StatusCode};
use testkit::{Proxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::agent::{DialError, LinkEnd, Target, Transport, dial, dial_within};
use tunnel::gateway::{AcceptError, Acceptor, AskError, Rejection};
use tunnel::handshake::Token;
use tunnel::settings::Keepalive;
use tunnel::wire::{Again, Farewell};
use world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_turn_round_over_tls() {
    let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
    assert_eq!(ends.welcome.agent, agent_id());
    let answer = ends.get("/hello").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"hello"[..]));
    let large = Bytes::from(vec![7_u8; 3_000_000]);
    let echoed = ends.connection.ask(Method::PUT, "/echo", large.clone(), 4_000_000, LIMIT).await.unwrap();
    assert_eq!(echoed.body, large);
    assert_eq!(ends.get("/nothing-here").await.unwrap().status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_text_works_when_it_was_asked_for() {
    let ends = Ends::open(&Pki::none(), Acceptor::default()).await;
    assert_eq!(ends.get("/hello").await.unwrap().status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_arrives_with_its_status_and_its_words() {
    let cases = [
        (Rejection::unauthenticated("the token was revoked"), StatusCode::UNAUTHORIZED, None),
        (Rejection::denied("not an agent's token"), StatusCode::FORBIDDEN, None),
        (
            Rejection::unavailable("draining", Duration::from_secs(7)),
            StatusCode::SERVICE_UNAVAILABLE,
            Some(Duration::from_secs(7)),
        ),
    ];
    for (rejection, expected, after) in cases {
        let words = rejection.refusal.message.clone();
        match refused_by(&Pki::new(), rejection).await {
            (DialError::Refused { status, refusal, retry_after }, AcceptError::Rejected(_)) => {
                assert_eq!((status, refusal.message, retry_after), (expected, words, after));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_link_is_refused_with_409() {
    let pki = Pki::new();
    let (address, gateway) = ends::gateway(&pki, Acceptor::default(), |_| Ok(agent_id())).await;
    let hello = tunnel::handshake::Hello { protocol: 2, ..hello() };
    let error = dial(&World::real(), &pki.target(address), &Token::new("t"), &hello).await.unwrap_err();
    match error {
        DialError::Refused { status, refusal, .. } => {
            assert_eq!((status, refusal.kind), (StatusCode::CONFLICT, RefusalKind::Conflict));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(gateway.await.unwrap(), Err(AcceptError::Rejected(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_certificate_is_refused() {
    let pki = Pki::new();
    for pki in [
        pki.trusting_another_authority(),
        pki.with_expired_certificate(),
        pki.with_future_certificate(),
        pki.with_certificate_for("elsewhere.example"),
    ] {
        let (address, gateway) = ends::gateway(&pki, Acceptor::default(), |_| Ok(agent_id())).await;
        let error = dial(&World::real(), &pki.target(address), &Token::new("t"), &hello()).await.unwrap_err();
        let DialError::Tls { source: rustls::Error::InvalidCertificate(_), .. } = &error else {
            panic!("{error:?}")
        };
        let Some(AcceptError::Tls(heard)) = gateway.await.unwrap().err() else { panic!("a tunnel") };
        assert!(heard.to_string().contains("fatal alert"), "the gateway is told why: {heard}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_or_without_a_tunnel_is_told_apart() {
    let world = World::real();
    let (address, _gateway) = ends::gateway(&Pki::none(), Acceptor::default(), |_| Ok(agent_id())).await;
    let error = dial(&world, &Pki::new().target(address), &Token::new("t"), &hello()).await.unwrap_err();
    assert!(matches!(error, DialError::Tls { source: rustls::Error::InvalidMessage(_), .. }), "{error:?}");

    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = web.local_addr().unwrap();
    let served = spawn(async move {
        let (mut socket, _) = web.accept().await.unwrap();
        let mut request = [0; 64];
        let _ = socket.read(&mut request).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        socket.shutdown().await.unwrap();
    });
    let error = dial(&world, &Pki::none().target(address), &Token::new("t"), &hello()).await.unwrap_err();
    assert!(error.to_string().contains("is not a gateway"), "{error}");
    served.await.unwrap();

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = dial(&world, &Pki::none().target(closed), &Token::new("t"), &hello()).await.unwrap_err();
    assert!(matches!(error, DialError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_dial_ends_although_nobody_answers() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap();
    let held = spawn(async move {
        let mut sockets = Vec::new();
        while let Ok((socket, _)) = mute.accept().await {
            sockets.push(socket);
        }
    });
    for (pki, step) in [(Pki::new(), "securing"), (Pki::none(), "asking")] {
        let limit = Duration::from_millis(200);
        let (world, target, token) = (World::real(), pki.target(address), Token::new("t"));
        let error = dial_within(&world, &target, &token, &hello(), limit).await.unwrap_err();
        assert!(matches!(error, DialError::TimedOut { .. }) && error.to_string().contains(step), "{error}");
    }
    held.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_head_is_refused_and_a_slow_one_is_cut_off() {
    let acceptor = Acceptor {
        head_timeout: Duration::from_millis(300),
        timeout: Duration::from_secs(5),
        ..Acceptor::default()
    };
    let (address, gateway) = ends::gateway(&Pki::none(), acceptor.clone(), |_| Ok(agent_id())).await;
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("GET /v1/tunnel HTTP/1.1\r\nHost: x\r\nKasbah-Version: {}\r\n", "v".repeat(40_000));
    // The gateway may close before all of it is written.
    let _ = socket.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert!(matches!(gateway.await.unwrap(), Err(AcceptError::Broken(_))));

    let (address, gateway) = ends::gateway(&Pki::none(), acceptor, |_| Ok(agent_id())).await;
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /v1/tunnel HTT").await.unwrap();
    assert!(matches!(gateway.await.unwrap(), Err(AcceptError::TimedOut { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_before_tls_is_cut_off() {
    let acceptor = Acceptor { head_timeout: Duration::from_millis(200), ..Acceptor::default() };
    let (address, gateway) = ends::gateway(&Pki::new(), acceptor, |_| Ok(agent_id())).await;
    let _socket = tokio::net::TcpStream::connect(address).await.unwrap();
    assert!(matches!(gateway.await.unwrap(), Err(AcceptError::TimedOut { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_readers_of_any_frame_size_stall_nobody_else() {
    for size in [1, 32, 128, 65_536] {
        let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let path = format!("/endless?{size}");
            let request = ends::request(&path);
            stalled.push(ends.connection.request(request, LIMIT).await.unwrap().into_body());
        }
        // Long enough for each stalled stream to fill whatever it can fill.
        for _ in 0..50 {
            let answer = ends.get("/hello").await.unwrap_or_else(|error| panic!("frames of {size}: {error}"));
            assert_eq!(answer.status, StatusCode::OK);
        }
        ends.written_stops_growing().await;
        assert_eq!(ends.get("/hello").await.unwrap().status, StatusCode::OK, "frames of {size}");
        assert!(!ends.connection.is_closed());
        drop(stalled);
        assert_eq!(ends.get("/hello").await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dust_costs_its_own_stream_only() {
    let connection = ends::rogue().await;
    let mut body = connection.request(ends::request("/endless?1"), LIMIT).await.unwrap().into_body();
    let fault = loop {
        match body.chunk().await {
            Some(Ok(_)) => {}
            Some(Err(fault)) => break fault,
            None => panic!("an endless answer ended"),
        }
    };
    assert_eq!(fault, tunnel::body::BodyFault::SmallFrames);
    let answer = connection.ask(Method::GET, "/hello", Bytes::new(), 100, LIMIT).await;
    assert_eq!(answer.unwrap().status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_found_dead_by_both_ends() {
    let pki = Pki::new();
    let keepalive = Keepalive { interval: Duration::from_millis(100), timeout: Duration::from_millis(300) };
    let (address, gateway) =
        ends::gateway(&pki, Acceptor { keepalive, ..Acceptor::default() }, |_| Ok(agent_id())).await;
    let proxy = Proxy::start(address).unwrap();
    let link = dial(&World::real(), &pki.target(proxy.address()), &Token::new("t"), &hello()).await.unwrap();
    let accepted = gateway.await.unwrap().unwrap();
    let agent = spawn(link.with_keepalive(keepalive).serve(TestService::default(), std::future::pending()));
    assert_eq!(
        accepted.connection.ask(Method::GET, "/hello", Bytes::new(), 100, LIMIT).await.unwrap().status,
        StatusCode::OK
    );
    proxy.silence(true);
    let why = tokio::time::timeout(LIMIT, accepted.connection.closed()).await.expect("the gateway noticed");
    assert!(why.contains("keep-alive"), "{why}");
    match tokio::time::timeout(LIMIT, agent).await.expect("the agent noticed").unwrap() {
        LinkEnd::Lost { detail } => assert!(detail.contains("keep-alive"), "{detail}"),
        other => panic!("{other:?}"),
    }
    let asked = accepted.connection.ask(Method::GET, "/hello", Bytes::new(), 100, LIMIT).await;
    assert!(matches!(asked, Err(AskError::Closed { .. })), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_never_answers_costs_its_asker_a_deadline_and_others_nothing() {
    let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
    let limit = Duration::from_millis(200);
    let asked = ends.connection.ask(Method::GET, "/never", Bytes::new(), 100, limit).await;
    assert_eq!(asked, Err(AskError::TimedOut { limit }));
    assert_eq!(ends.get("/hello").await.unwrap().status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_longer_than_its_limit_is_cut() {
    let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
    let asked = ends.connection.ask(Method::GET, "/endless?65536", Bytes::new(), 100_000, LIMIT).await;
    assert!(matches!(asked, Err(AskError::Answer(_))), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_farewell_reaches_the_agent_and_ends_open_streams() {
    let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
    let mut open = ends.connection.request(ends::request("/endless?65536"), LIMIT).await.unwrap().into_body();
    let farewell = Farewell { reason: "the token was revoked".to_owned(), again: Again::Slowly };
    ends.connection.close(&farewell).await;
    assert!(ends.connection.is_closed());
    assert_eq!(ends.connection.closed().await, "the token was revoked");
    let end = tokio::time::timeout(LIMIT, ends.agent).await.unwrap().unwrap();
    assert_eq!(end, LinkEnd::Farewell(farewell));
    while let Some(piece) = open.chunk().await {
        if piece.is_err() {
            return;
        }
    }
    panic!("an open stream ended as if it were whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_finishes_what_runs_and_takes_nothing_new() {
    let ends = Ends::open(&Pki::new(), Acceptor::default()).await;
    let connection = ends.connection.clone();
    let slow = spawn(async move { connection.ask(Method::GET, "/gate", Bytes::new(), 100, LIMIT).await });
    let waiting = ends.service.clone();
    eventually(LIMIT, || async { if waiting.at_the_gate() == 1 { Ok(()) } else { Err("not there yet") } })
        .await;
    ends.drain.notify_one();
    let connection = ends.connection.clone();
    eventually(LIMIT, || async {
        match connection.ask(Method::GET, "/hello", Bytes::new(), 100, LIMIT).await {
            Err(_) => Ok(()),
            Ok(_) => Err("still takes requests"),
        }
    })
    .await;
    ends.service.open_the_gate();
    assert_eq!(slow.await.unwrap().unwrap().status, StatusCode::OK);
    assert_eq!(tokio::time::timeout(LIMIT, ends.agent).await.unwrap().unwrap(), LinkEnd::Drained);
    tokio::time::timeout(LIMIT, ends.connection.closed()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_in_no_error() {
    let secret = "kasbah_a_very-secret";
    let target = Target { host: "127.0.0.1".to_owned(), port: 1, transport: Transport::PlainText };
    let error = dial(&World::real(), &target, &Token::new(secret), &hello()).await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains(secret));
    let odd = Token::new("kasbah_a_very-secret\u{7}x");
    let (address, _gateway) = ends::gateway(&Pki::none(), Acceptor::default(), |_| Ok(agent_id())).await;
    let error = dial(&World::real(), &Pki::none().target(address), &odd, &hello()).await.unwrap_err();
    assert!(matches!(error, DialError::Hello(_)) && !format!("{error:?}").contains(secret), "{error:?}");
}
