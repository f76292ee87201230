//! The baseline: a server process that does nothing but accept TLS connections and hold them; or tunnels, to see what they cost
//! without anything behind them.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use events::AgentId;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use testkit::{Authority, Certified};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tunnel::agent::{Target, Transport};
use tunnel::body::empty;
use tunnel::gateway::Acceptor;
use tunnel::wire::path;
use world::World;

/// The argument that makes this program such a server.
pub const ARGUMENT: &str = "--hold-tls-connections";
const LIMIT: Duration = Duration::from_secs(120);

/// What such a server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Held {
    /// TLS connections.
    Connections,
    /// Tunnels, of which it opens the event stream as a gateway does.
    Tunnels,
}

impl Held {
    /// What is agreed on with TLS.
    const fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Connections => &[],
            Self::Tunnels => &[tunnel::settings::ALPN],
        }
    }
}

/// Accepts and holds until its standard input ends; says on its standard output where it listens, and whom to trust.
pub async fn hold(held: &str) -> anyhow::Result<()> {
    let held = <Held as clap::ValueEnum>::from_str(held, false).map_err(anyhow::Error::msg)?;
    let authority = Authority::new("bare")?;
    let tls = server(&authority, held)?;
    let listener = listener()?;
    println!("{}", listener.local_addr()?.port());
    println!("{}", serde_json::to_string(authority.certificate())?);
    let accept = async {
        loop {
            let (connection, _) = listener.accept().await?;
            let tls = Arc::clone(&tls);
            tokio::spawn(async move {
                match held {
                    Held::Connections => hold_connection(connection, tls).await,
                    Held::Tunnels => hold_tunnel(connection, tls).await,
                }
            });
        }
    };
    let parent = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        accepted = accept => accepted,
        _ended = parent => Ok(()),
    }
}

fn server(authority: &Authority, held: Held) -> anyhow::Result<Arc<ServerConfig>> {
    let Certified { certificate, key } = authority.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = held.protocols().iter().map(|protocol| protocol.to_vec()).collect();
    if held == Held::Tunnels {
        // As gateways do.
        config.ticketer = rustls::crypto::ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
    }
    Ok(Arc::new(config))
}

async fn hold_connection(connection: TcpStream, tls: Arc<ServerConfig>) {
    let Ok(mut held) = TlsAcceptor::from(tls).accept(connection).await else { return };
    // Ends with the client.
    let _end = held.read_u8().await;
}

async fn hold_tunnel(connection: TcpStream, tls: Arc<ServerConfig>) {
    let world = World::real();
    let acceptor = Acceptor { tls: Some(tls), ..Acceptor::default() };
    let agent = AgentId(world.new_uuid());
    let admit = move |_shown| async move { Ok((agent, ())) };
    let Ok(accepted) = acceptor.accept(&world, Box::new(connection), admit).await else { return };
    let to = format!("http://agent{}?after=0.0", path::EVENTS);
    let Ok(request) = http::Request::get(to).body(empty()) else { return };
    let events = accepted.connection.request(request, LIMIT).await;
    accepted.connection.closed().await;
    drop(events);
}

/// With a queue as long as the gateway's: otherwise a storm waits for SYNs to be sent again.
fn listener() -> anyhow::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(socket.listen(4096)?)
}

/// Trusts one authority, and resumes nothing. It asks for the cipher that the agent that ships asks for.
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
    /// One that holds such.
    pub fn start(held: Held) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = clap::ValueEnum::to_possible_value(&held).context("it has no name")?;
        command.args([ARGUMENT, name.get_name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the bare server")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let port = lines.next().context("the bare server says nothing")??.parse()?;
        let authority: String = serde_json::from_str(&lines.next().context("no authority")??)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { child, address, client: client(&authority, held.protocols())? })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As agents dial it.
    pub fn target(&self) -> Target {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        Target { host, port, transport: Transport::Tls(Arc::clone(&self.client)) }
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
