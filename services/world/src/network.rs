//! Sockets.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Where connections come in.
#[async_trait]
pub trait Listener: Send + Sync {
    /// The next connection and who dialled it.
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, SocketAddr)>;

    /// The address that is listened on.
    fn local_address(&self) -> io::Result<SocketAddr>;
}

/// Dials and listens.
#[async_trait]
pub trait Network: Send + Sync {
    /// Listens on an address; port 0 takes a free one.
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// The addresses of `host:port`, so that a caller can look at them before it dials one. Callers bound the time.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let _ = port;
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("cannot resolve {host} in this world")))
    }

    /// Dials `host:port`. Callers bound the time.
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Connection>>;
}

/// TCP of the machine, without Nagle's delay.
#[derive(Debug, Clone, Copy)]
pub struct TcpNetwork;

struct TcpSocketListener(tokio::net::TcpListener);

#[async_trait]
impl Listener for TcpSocketListener {
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, SocketAddr)> {
        let (socket, peer) = self.0.accept().await?;
        socket.set_nodelay(true)?;
        Ok((Box::new(socket), peer))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[async_trait]
impl Network for TcpNetwork {
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(TcpSocketListener(tokio::net::TcpListener::bind(address).await?)))
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Connection>> {
        let socket = tokio::net::TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        Ok(Box::new(socket))
    }
}
