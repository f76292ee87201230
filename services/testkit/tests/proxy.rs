//! The proxy between a real client and a real server.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test of its own, with an echo server in it"
)]

use std::net::SocketAddr;
use std::time::Duration;

use testkit::{Proxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// A server that sends back what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut read, mut write) = stream.into_split();
            tokio::task::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
        }
    };
    tokio::task::spawn(serve);
    address
}

async fn round_trip(stream: &mut TcpStream, text: &[u8]) -> Vec<u8> {
    stream.write_all(text).await.unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn carries_counts_and_delays() {
    let proxy = Proxy::start(echo().await).unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(round_trip(&mut stream, b"hello").await, b"hello");
    assert_eq!(proxy.carried(), 10);
    proxy.delay(Duration::from_millis(60));
    let start = Instant::now();
    assert_eq!(round_trip(&mut stream, b"again").await, b"again");
    assert!(start.elapsed() >= Duration::from_millis(120), "both ways are delayed");
}

#[tokio::test]
async fn silence_holds_back_and_loses_nothing() {
    let proxy = Proxy::start(echo().await).unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(round_trip(&mut stream, b"hello").await, b"hello");
    proxy.silence(true);
    stream.write_all(b"late").await.unwrap();
    let mut answer = [0; 4];
    assert!(timeout(Duration::from_millis(100), stream.read_exact(&mut answer)).await.is_err());
    proxy.silence(false);
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"late");
}

#[tokio::test]
async fn a_cut_closes_present_connections_only() {
    let proxy = Proxy::start(echo().await).unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(round_trip(&mut stream, b"hello").await, b"hello");
    proxy.cut();
    let ended = stream.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(round_trip(&mut stream, b"hello").await, b"hello");
    proxy.shut(true);
    eventually(Duration::from_secs(10), || async {
        let mut refused = TcpStream::connect(proxy.address()).await.map_err(|error| error.to_string());
        match &mut refused {
            Ok(stream) => match stream.read(&mut [0; 1]).await {
                Ok(0) | Err(_) => Ok(()),
                Ok(_) => Err("served although shut".to_owned()),
            },
            Err(_) => Ok(()),
        }
    })
    .await;
}
