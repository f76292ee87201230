//! A TCP proxy that can be slow, lossy, silent, forgetful, shut or cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::background::{Server, accept, listen};
use crate::free_port;

/// The least that Linux waits before it sends a segment of TCP again (`TCP_RTO_MIN`).
const SENT_AGAIN_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Weather {
    delay: Duration,
    loses_one_of: usize,
    silent: bool,
    shut: bool,
    cuts: u64,
    forgotten: u64,
}

/// A proxy in front of one address. New and present connections follow its settings; it ends with this handle.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    accepted: Arc<AtomicU64>,
    carried: Arc<AtomicU64>,
    _server: Server,
}

impl Proxy {
    /// Starts one on a free loopback port.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let listener = listen(address)?;
        let (weather, seen) = watch::channel(Weather::default());
        let (accepted, carried) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (taken, counted) = (Arc::clone(&accepted), Arc::clone(&carried));
        let serve = move |client| {
            let open = !seen.borrow().shut;
            taken.fetch_add(u64::from(open), Ordering::Relaxed);
            open.then(|| serve(client, upstream, seen.clone(), Arc::clone(&counted)))
        };
        let server = Server::start(accept(listener, serve));
        Ok(Self { address, weather, accepted, carried, _server: server })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections served so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Bytes carried so far, both directions together.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Everything takes this much longer, each way. Order and bandwidth stay.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Each so-manieth piece comes as late, with all behind it, as when it was lost on the way and sent again. `0`: none.
    pub fn lose(&self, one_of: usize) {
        self.weather.send_modify(|weather| weather.loses_one_of = one_of);
    }

    /// Nothing is carried any more, and nobody is told: connections stay open, new ones are accepted. `false` goes on
    /// with what was held back.
    pub fn silence(&self, silent: bool) {
        self.weather.send_modify(|weather| weather.silent = silent);
    }

    /// Present connections carry nothing any more and nobody is told, as when a router on the way has forgotten them; new ones are
    /// served.
    pub fn forget(&self) {
        self.weather.send_modify(|weather| weather.forgotten += 1);
    }

    /// New connections are closed at once (`true`), or served again.
    pub fn shut(&self, shut: bool) {
        self.weather.send_modify(|weather| weather.shut = shut);
    }

    /// Closes all present connections; new ones are served.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.cuts += 1);
    }
}

/// Carries one connection until both sides are done or a cut comes.
async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    carried: Arc<AtomicU64>,
) {
    let cuts = weather.borrow_and_update().cuts;
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    // Small writes must not wait for one another: the proxy adds the delay that it was told, and no other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let up = carry(client_read, server_write, weather.clone(), &carried);
    let down = carry(server_read, client_write, weather.clone(), &carried);
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = weather.wait_for(|now| now.cuts != cuts) => {}
    }
}

/// One direction: each piece is written `delay` after it was read, and later if it was lost.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    carried: &AtomicU64,
) {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(256);
    let forgotten = weather.borrow().forgotten;
    let seen = weather.clone();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        let mut number = 0_usize;
        while let Ok(length) = from.read(&mut buffer).await {
            let piece = buffer.get(..length).unwrap_or_default().to_vec();
            number += 1;
            let Weather { delay, loses_one_of, .. } = *seen.borrow();
            let is_lost = number.checked_rem(loses_one_of) == Some(0);
            let due = Instant::now() + if is_lost { delay + SENT_AGAIN_AFTER } else { delay };
            if length == 0 || sender.send((due, piece)).await.is_err() {
                break;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if weather.wait_for(|now| !now.silent && now.forgotten == forgotten).await.is_err() {
                return;
            }
            // Before the other side can have it: who got an answer finds it counted.
            carried.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
