//! A plain TCP load balancer.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::background::{Server, accept, listen};
use crate::free_port;

/// Takes connections in turn to several addresses, past those where nobody listens. It ends with this handle.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    behind: Vec<SocketAddr>,
    _server: Server,
}

impl Balancer {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(upstreams: Vec<SocketAddr>) -> Result<Self> {
        Self::start_at(None, upstreams)
    }

    /// Starts one on a port of its own.
    ///
    /// # Errors
    /// When the port is taken, or there is none.
    pub fn start_at(port: Option<u16>, upstreams: Vec<SocketAddr>) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.map_or_else(free_port, Ok)?));
        let listener = listen(address)?;
        let behind = upstreams.clone();
        let mut turn = 0;
        let serve = move |client| {
            turn += 1;
            let mut upstreams = upstreams.clone();
            let first = turn % upstreams.len().max(1);
            upstreams.rotate_left(first);
            Some(carry(client, upstreams))
        };
        Ok(Self { address, behind, _server: Server::start(accept(listener, serve)) })
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where connections are taken to.
    #[must_use]
    pub fn behind(&self) -> &[SocketAddr] {
        &self.behind
    }
}

async fn carry(mut client: TcpStream, upstreams: Vec<SocketAddr>) {
    for upstream in upstreams {
        if let Ok(mut server) = TcpStream::connect(upstream).await {
            // A balancer holds nothing back; how a connection ends is its two sides' business.
            let _now = (client.set_nodelay(true), server.set_nodelay(true));
            let _ended = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
