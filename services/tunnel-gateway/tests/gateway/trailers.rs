//! What follows an answer's body.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::harness::{Gateway, LIMIT, agent_id};
use super::people::{People, Second};

/// What a client sees that takes trailers.
async fn answered(clusters: SocketAddr) -> String {
    let mut connection = TcpStream::connect(clusters).await.unwrap();
    let request = format!(
        "GET /agents/{}/version?trailers HTTP/1.1\r\nhost: a\r\nauthorization: Bearer 1\r\nte: trailers\r\n\
         connection: close, te\r\n\r\n",
        agent_id(1)
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LIMIT, connection.read_to_string(&mut answer)).await.expect("an answer that ends").unwrap();
    answer
}

#[tokio::test]
async fn trailers_follow_the_answer_here_and_over_a_hop_but_ours() {
    let first = Gateway::start().await;
    first.register(1).await;
    let people = People::of(&first).await;
    people.let_in(1);
    let (near, far) = (Second::beside(&first).await, Second::beside(&first).await);
    let _agent = near.connect(&first, 1, 1).await;
    for clusters in [near.clusters, far.clusters] {
        let answer = answered(clusters).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("{}\n\r\n0\r\nx-sum: 5\r\n\r\n"), "{answer}");
    }
}
