//! Sockets.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
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

/// Where a server is, and as whom to sign in: `scheme://name:password@host:port`, name and password percent-encoded as in any URL.
pub struct Address {
    /// Without name and password: this may be shown.
    pub shown: String,
    /// Name and password.
    pub credentials: Option<(String, String)>,
}

impl Address {
    /// Takes it apart. What is no address stays as it is, for whoever parses it.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let apart = text.split_once("://").and_then(|(scheme, rest)| {
            let (signed_in, host) = rest.rsplit_once('@')?;
            Some((format!("{scheme}://{host}"), signed_in.split_once(':')))
        });
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match apart {
            Some((shown, pair)) => {
                Self { shown, credentials: pair.map(|(name, password)| (plain(name), plain(password))) }
            }
            None => Self { shown: text.to_owned(), credentials: None },
        }
    }
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

/// How long a peer may acknowledge or take nothing of what was sent to it, before its connection is given up. The kernel's own
/// limit is about a quarter of an hour for the one, and none for the other (tcp(7), `TCP_USER_TIMEOUT`).
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: std::time::Duration = std::time::Duration::from_secs(120);

/// Connections that wait to be accepted; the kernel lets no more wait than its own limit says, which is as much by default (listen(2)).
/// Who dials while so many wait is heard a second later, when its first packet is sent again.
const WAITING: u32 = 4096;

fn prepare(socket: &tokio::net::TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let limit = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(socket, limit)?;
    }
    socket.set_nodelay(true)
}

/// TCP of the machine, without Nagle's delay, and with an end to waiting for a peer that is gone.
#[derive(Debug, Clone, Copy)]
pub struct TcpNetwork;

struct TcpSocketListener(tokio::net::TcpListener);

#[async_trait]
impl Listener for TcpSocketListener {
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, SocketAddr)> {
        let (socket, peer) = self.0.accept().await?;
        prepare(&socket)?;
        Ok((Box::new(socket), peer))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[async_trait]
impl Network for TcpNetwork {
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let socket = match address {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
        };
        // As the standard library does where it is safe: a server that starts again gets its port.
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Box::new(TcpSocketListener(socket.listen(WAITING)?)))
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Connection>> {
        let socket = tokio::net::TcpStream::connect((host, port)).await?;
        prepare(&socket)?;
        Ok(Box::new(socket))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_address_holds_no_password() {
        let of = |text: &str| {
            let Address { shown, credentials } = Address::of(text);
            (shown, credentials)
        };
        let signed_in = Some(("kasbah".to_owned(), "p@ss:word".to_owned()));
        assert_eq!(of("nats://kasbah:p%40ss:word@nats-0:4222"), ("nats://nats-0:4222".to_owned(), signed_in));
        for plain in ["nats://nats-0:4222", "nats-0"] {
            assert_eq!(of(plain), (plain.to_owned(), None));
        }
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_given_up_long_before_the_kernel_would() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&socket).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(&socket).unwrap(), 120_000);
        assert!(socket.nodelay().unwrap());
    }
}
