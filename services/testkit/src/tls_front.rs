//! TLS in front of a server that speaks plain text, as a load balancer does it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::background::{Server, accept, listen};
use crate::{Certified, free_port};

/// A front of one server; it ends with this handle.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    _server: Server,
}

impl TlsFront {
    /// Starts one on a free loopback port, which shows this certificate.
    pub fn start(upstream: SocketAddr, shown: &Certified) -> Result<Self> {
        let config = tls_showing(shown)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serve = move |stream| Some(carry(acceptor.clone(), stream, upstream));
        let server = Server::start(accept(listen(address)?, serve));
        Ok(Self { address, _server: server })
    }

    /// A plain URL of the server behind it, as it is reached through here under `host`.
    pub fn url(&self, plain: &str, host: &str) -> String {
        let path = plain.splitn(4, '/').nth(3).unwrap_or_default();
        format!("https://{host}:{}/{path}", self.address.port())
    }
}

/// What a server shows that has this certificate.
pub fn tls_showing(shown: &Certified) -> Result<ServerConfig> {
    let chain =
        CertificateDer::pem_slice_iter(shown.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(versions.with_no_client_auth().with_single_cert(chain, key)?)
}

async fn carry(acceptor: TlsAcceptor, stream: TcpStream, upstream: SocketAddr) {
    let (Ok(mut outside), Ok(mut inside)) =
        tokio::join!(acceptor.accept(stream), TcpStream::connect(upstream))
    else {
        return;
    };
    // Either side may end as it likes.
    let _ = copy_bidirectional(&mut outside, &mut inside).await;
}
