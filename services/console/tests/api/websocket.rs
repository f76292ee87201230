//! GraphQL over WebSocket, as the protocol `graphql-transport-ws` has it.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use world::network::Connection;

use crate::serving::{Console, HOME};
use crate::subscriptions::QUERY;

const LIMIT: Duration = Duration::from_secs(30);

struct Socket(WebSocketStream<tokio_rustls::client::TlsStream<Box<dyn Connection>>>);

/// What came.
#[derive(Debug, PartialEq)]
enum Came {
    Message(Value),
    Closed(u16, String),
}

impl Socket {
    /// Opens one; the answer's first line where it is refused.
    async fn open(console: &Console, headers: &str) -> Result<Self, String> {
        let port = console.address.rsplit(':').next().unwrap().parse().unwrap();
        let dialled = console.world.network.dial("127.0.0.1", port).await.unwrap();
        let connector = TlsConnector::from(Arc::clone(&console.tls));
        let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), dialled).await.unwrap();
        let head = format!(
            "GET /api/graphql HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        if answer.starts_with("HTTP/1.1 101") {
            assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
            return Ok(Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await));
        }
        Err(answer.lines().next().unwrap_or_default().to_owned())
    }

    async fn introduced(console: &Console) -> Self {
        let mut socket = Self::open(console, PROTOCOL).await.unwrap();
        let payload = json!({ "Authorization": format!("Bearer {HOME}") });
        socket.say(json!({ "type": "connection_init", "payload": payload })).await;
        assert_eq!(socket.hear().await, Came::Message(json!({ "type": "connection_ack" })));
        socket
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn hear(&mut self) -> Came {
        loop {
            match tokio::time::timeout(LIMIT, self.0.next()).await.expect("something in time") {
                Some(Ok(Message::Text(text))) => return Came::Message(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Came::Closed(frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("the connection broke: {other:?}"),
            }
        }
    }

    async fn subscribe(&mut self, id: &str, query: &str) {
        self.say(json!({ "id": id, "type": "subscribe", "payload": { "query": query } })).await;
    }
}

const PROTOCOL: &str = "sec-websocket-protocol: graphql-transport-ws\r\n";

#[tokio::test]
async fn changes_come_over_a_websocket_until_the_client_has_enough() {
    let console = Console::start().await;
    let mut socket = Socket::introduced(&console).await;
    socket.say(json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await, Came::Message(json!({ "type": "pong" })));
    socket.subscribe("q", "{ __typename }").await;
    let answer = json!({ "id": "q", "type": "next", "payload": { "data": { "__typename": "Query" } } });
    assert_eq!(socket.hear().await, Came::Message(answer));
    assert_eq!(socket.hear().await, Came::Message(json!({ "id": "q", "type": "complete" })));
    // An answer to the second says that the first is followed by now: both begin in order, and the query behind them.
    socket.subscribe("s", QUERY).await;
    let lists = || console.behind.take().iter().any(|seen| seen.name == "resource-indexer.list-changes");
    testkit::eventually(LIMIT, || async { if lists() { Ok(()) } else { Err("not followed yet") } }).await;
    console.object_changes(console.home.organization, "first").await;
    let Came::Message(event) = socket.hear().await else { panic!("it was closed") };
    assert_eq!((&event["id"], &event["type"]), (&json!("s"), &json!("next")), "{event}");
    assert_eq!(event["payload"]["data"]["resourceChanges"]["change"]["name"], "first", "{event}");
    socket.say(json!({ "id": "s", "type": "complete" })).await;
    console.object_changes(console.home.organization, "second").await;
    socket.subscribe("s", "{ nothing }").await;
    let Came::Message(refused) = socket.hear().await else { panic!("it was closed") };
    assert_eq!((&refused["id"], &refused["type"]), (&json!("s"), &json!("error")), "{refused}");
    assert_eq!(refused["payload"][0]["extensions"]["kind"], "invalid", "{refused}");
    console.stop().await;
}

#[tokio::test]
async fn who_breaks_the_protocol_is_told_how() {
    let console = Console::start().await;
    for headers in ["", "sec-websocket-protocol: graphql-ws\r\n"] {
        assert!(Socket::open(&console, headers).await.err().unwrap().contains(" 400 "), "{headers}");
    }
    let unknown = format!("{PROTOCOL}authorization: Bearer kasbah_p_unknown\r\n");
    assert!(Socket::open(&console, &unknown).await.err().unwrap().contains(" 401 "));
    let init = |token: &str| json!({ "type": "connection_init", "payload": { "authorization": format!("Bearer {token}") } });
    let subscribe = json!({ "id": "s", "type": "subscribe", "payload": { "query": QUERY } });
    for (messages, code) in [
        (vec![subscribe.clone()], 4401),
        (vec![init("kasbah_p_unknown")], 4403),
        (vec![json!({ "type": "connection_init" })], 4403),
        (vec![init(HOME), init(HOME)], 4429),
        (vec![init(HOME), subscribe.clone(), subscribe], 4409),
        (vec![json!({ "type": "hello" })], 4400),
    ] {
        let mut socket = Socket::open(&console, PROTOCOL).await.unwrap();
        for message in &messages {
            socket.say(message.clone()).await;
        }
        let end = loop {
            if let Came::Closed(code, reason) = socket.hear().await {
                break (code, reason);
            }
        };
        assert_eq!(end.0, code, "{messages:?}: {end:?}");
    }
    console.stop().await;
}

#[tokio::test]
async fn the_token_may_be_a_header_and_the_server_says_when_it_stops() {
    let console = Console::start().await;
    let headers = format!("{PROTOCOL}authorization: Bearer {HOME}\r\n");
    let mut socket = Socket::open(&console, &headers).await.unwrap();
    socket.say(json!({ "type": "connection_init" })).await;
    assert_eq!(socket.hear().await, Came::Message(json!({ "type": "connection_ack" })));
    console.stop().await;
    assert_eq!(socket.hear().await, Came::Closed(1001, "the server stops".to_owned()));
}
