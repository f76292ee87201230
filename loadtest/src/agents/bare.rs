//! The baseline: a server process that does nothing but accept TLS connections and hold them.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use testkit::{Authority, Certified};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The argument that makes this program such a server.
pub const ARGUMENT: &str = "--hold-tls-connections";
const LIMIT: Duration = Duration::from_secs(120);

/// Accepts and holds until its standard input ends; says on its standard output where it listens, and whom to trust.
pub async fn hold() -> anyhow::Result<()> {
    let authority = Authority::new("bare")?;
    let Certified { certificate, key } = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = listener()?;
    println!("{}", listener.local_addr()?.port());
    println!("{}", serde_json::to_string(authority.certificate())?);
    let accept = async {
        loop {
            let (connection, _) = listener.accept().await?;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut held) = acceptor.accept(connection).await else { return };
                // Ends with the client.
                let _end = held.read_u8().await;
            });
        }
    };
    let parent = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        accepted = accept => accepted,
        _ended = parent => Ok(()),
    }
}

/// With a queue as long as the gateway's: otherwise a storm waits for SYNs to be sent again.
fn listener() -> anyhow::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(socket.listen(4096)?)
}

/// Trusts one authority, and resumes nothing: agents are processes that know nothing of one another.
pub fn client(authority: &str, protocols: &[&[u8]]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut config = testkit::tls_trusting(authority.as_bytes())?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Such a server as a child of this process.
pub struct Holder {
    child: Child,
    address: SocketAddr,
    client: Arc<ClientConfig>,
}

impl Holder {
    pub fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the bare server")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let port = lines.next().context("the bare server says nothing")??.parse()?;
        let authority: String = serde_json::from_str(&lines.next().context("no authority")??)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { child, address, client: client(&authority, &[])? })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// So many connections at once, spread over the servers; how long until all are open.
pub async fn storm(
    holders: &[Holder],
    count: usize,
) -> anyhow::Result<(Duration, Vec<TlsStream<TcpStream>>)> {
    let start = Instant::now();
    let dials = (0..count).zip(holders.iter().cycle()).map(|(_, holder)| {
        let (address, connector) = (holder.address, TlsConnector::from(Arc::clone(&holder.client)));
        tokio::spawn(async move {
            let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
            let connection = TcpStream::connect(address).await?;
            connector.connect(name, connection).await
        })
    });
    let dials: Vec<_> = dials.collect();
    let mut open = Vec::new();
    for dial in dials {
        open.push(tokio::time::timeout(LIMIT, dial).await.context("a bare connection hangs")???);
    }
    ensure!(open.len() == count, "{} of {count} bare connections", open.len());
    Ok((start.elapsed(), open))
}
