//! What clients of HTTP/1.1 say and see beside heads and bodies, here and over a hop.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::agent::TestAgent;
use super::clients::{Clients, Second};
use super::harness::{Gateway, LIMIT, agent_id};

struct Stage {
    near: Second,
    far: Second,
    _agent: TestAgent,
    _people: Clients,
    _first: Gateway,
}

impl Stage {
    async fn start() -> Self {
        let first = Gateway::start().await;
        first.register(1).await;
        let clients = Clients::of(&first).await;
        clients.let_in(1);
        let (near, far) = (Second::beside(&first).await, Second::beside(&first).await);
        let agent = near.connect(&first, 1, 1).await;
        Self { near, far, _agent: agent, _people: clients, _first: first }
    }

    fn each(&self) -> [SocketAddr; 2] {
        [self.near.clusters, self.far.clusters]
    }
}

/// Says the head of a request.
async fn begin(clusters: SocketAddr, method: &str, path: &str, headers: &str) -> TcpStream {
    let mut connection = TcpStream::connect(clusters).await.unwrap();
    let head = format!(
        "{method} /agents/{}{path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer 1\r\n{headers}\r\n\r\n",
        agent_id(1)
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

async fn to_its_end(mut connection: TcpStream) -> String {
    let mut answer = String::new();
    timeout(LIMIT, connection.read_to_string(&mut answer)).await.expect("an answer that ends").unwrap();
    answer
}

#[tokio::test]
async fn trailers_follow_the_answer_but_ours() {
    let stage = Stage::start().await;
    for clusters in stage.each() {
        let headers = "te: trailers\r\nconnection: close, te";
        let answer = to_its_end(begin(clusters, "GET", "/version?trailers", headers).await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("{}\n\r\n0\r\nx-sum: 5\r\n\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn who_waits_to_be_told_to_go_on_is_told_so() {
    let stage = Stage::start().await;
    for clusters in stage.each() {
        let headers = "connection: close\r\nexpect: 100-continue\r\ncontent-length: 4";
        let mut connection = begin(clusters, "POST", "/api/v1/namespaces/a/pods", headers).await;
        let mut told = [0; 25];
        timeout(LIMIT, connection.read_exact(&mut told)).await.expect("a word").unwrap();
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        connection.write_all(b"sent").await.unwrap();
        let answer = to_its_end(connection).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("sent"), "{answer}");
    }
}
