//! Byte streams between simulated processes: ordered, with latency and a bounded number of bytes under way; a peer that dies or a
//! connection that is cut gives an error.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use world::network::{Connection, Listener, Network};

use crate::executor::{Executor, Life};

/// Bytes of one direction that may be under way.
const UNDER_WAY: usize = 256 * 1024;
/// Of what was said first, so much is remembered: an agent shows its token there.
const OPENING: usize = 2048;

type Incoming = mpsc::UnboundedSender<(Box<dyn Connection>, SocketAddr)>;

#[derive(Default)]
struct State {
    listeners: BTreeMap<SocketAddr, (Life, Incoming)>,
    connections: BTreeMap<u64, Wire>,
    next_connection: u64,
    next_port: u16,
    stalled_until: Duration,
}

/// A connection.
struct Wire {
    dialled_by: Life,
    listening: Life,
    port: u16,
    to: Arc<Pipe>,
    from: Arc<Pipe>,
}

/// All connections of a run; cheap to clone.
#[derive(Clone)]
pub struct Internet {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

/// One direction of a connection.
struct Pipe {
    executor: Executor,
    net: Arc<Mutex<State>>,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    arrived: VecDeque<Bytes>,
    /// What is under way, with when it arrives.
    coming: VecDeque<(Duration, Bytes)>,
    /// Written and not read.
    bytes: usize,
    last_arrival: Duration,
    finished: bool,
    broken: bool,
    opening: Vec<u8>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeState {
    /// What was to arrive by then is there.
    fn arrive(&mut self, now: Duration) {
        while self.coming.front().is_some_and(|(at, _)| *at <= now) {
            self.arrived.extend(self.coming.pop_front().map(|(_, bytes)| bytes));
        }
    }
}

impl Pipe {
    fn new(internet: &Internet) -> Arc<Self> {
        let (executor, net) = (internet.executor.clone(), Arc::clone(&internet.state));
        Arc::new(Self { executor, net, state: Mutex::default() })
    }

    /// When what is sent now arrives.
    fn arrival(&self) -> Duration {
        let now = self.executor.now();
        let latency = Duration::from_micros(self.executor.roll(|dice| dice.between(100, 2_000)));
        let stalled = self.net.lock().stalled_until;
        let mut state = self.state.lock();
        state.last_arrival = (now + latency).max(state.last_arrival).max(stalled);
        state.last_arrival
    }

    fn change(&self, change: impl FnOnce(&mut PipeState)) {
        let (reader, writer) = {
            let mut state = self.state.lock();
            change(&mut state);
            (state.reader.take(), state.writer.take())
        };
        for waker in [reader, writer].into_iter().flatten() {
            waker.wake();
        }
    }

    fn break_off(&self) {
        self.change(|state| {
            state.broken = true;
            state.arrived.clear();
            state.coming.clear();
        });
    }

    fn send(self: &Arc<Self>, bytes: Bytes) {
        let at = self.arrival();
        let mut state = self.state.lock();
        state.bytes += bytes.len();
        let room = OPENING.saturating_sub(state.opening.len()).min(bytes.len());
        state.opening.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let is_alone = state.coming.back().is_none_or(|(other, _)| *other != at);
        state.coming.push_back((at, bytes));
        drop(state);
        if is_alone {
            let pipe = Arc::clone(self);
            self.executor.at(at, move || pipe.change(|state| state.arrive(at)));
        }
    }

    fn finish(self: &Arc<Self>) {
        let (at, pipe) = (self.arrival(), Arc::clone(self));
        self.executor.at(at, move || pipe.change(|state| state.finished = true));
    }
}

impl Internet {
    /// A network that nobody uses yet.
    #[must_use]
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), state: Arc::default() }
    }

    /// Breaks the connections to one of some ports; says how many.
    pub fn cut(&self, ports: impl Fn(u16) -> bool) -> usize {
        self.cut_those(|wire| ports(wire.port))
    }

    fn cut_those(&self, wanted: impl Fn(&Wire) -> bool) -> usize {
        let cut: Vec<Wire> = {
            let mut state = self.state.lock();
            let wanted = state.connections.iter().filter(|(_, wire)| wanted(wire));
            let ids: Vec<u64> = wanted.map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| state.connections.remove(id)).collect()
        };
        for Wire { to, from, .. } in &cut {
            to.break_off();
            from.break_off();
        }
        cut.len()
    }

    /// What was said first on each connection to a port that is open, by those who dialled.
    #[must_use]
    pub fn openings(&self, port: u16) -> Vec<Vec<u8>> {
        let state = self.state.lock();
        let wires = state.connections.values().filter(|wire| wire.port == port);
        wires.map(|wire| wire.to.state.lock().opening.clone()).collect()
    }

    /// A process died: nobody listens there, and its connections break.
    pub fn died(&self, life: Life) {
        self.state.lock().listeners.retain(|_, (listening, _)| *listening != life);
        self.cut_those(|wire| wire.dialled_by == life || wire.listening == life);
    }

    /// Nothing arrives for a while; says how many connections there are.
    pub fn stall(&self, time: Duration) -> usize {
        let until = self.executor.now() + time;
        let mut state = self.state.lock();
        state.stalled_until = state.stalled_until.max(until);
        state.connections.len()
    }
}

/// The network as one process sees it.
pub(crate) struct Endpoint {
    internet: Internet,
    life: Life,
}

impl Endpoint {
    pub(crate) const fn new(internet: Internet, life: Life) -> Self {
        Self { internet, life }
    }
}

struct Accepting {
    address: SocketAddr,
    internet: Internet,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<(Box<dyn Connection>, SocketAddr)>>,
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.internet.state.lock().listeners.remove(&self.address);
    }
}

#[async_trait]
impl Listener for Accepting {
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, SocketAddr)> {
        let came = self.incoming.lock().await.recv().await;
        came.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[async_trait]
impl Network for Endpoint {
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let mut state = self.internet.state.lock();
        let mut address = address;
        if address.port() == 0 {
            state.next_port += 1;
            address.set_port(1024 + state.next_port);
        }
        if state.listeners.contains_key(&address) {
            return Err(io::Error::from(io::ErrorKind::AddrInUse));
        }
        let (give, incoming) = mpsc::unbounded_channel();
        state.listeners.insert(address, (self.life, give));
        let (internet, incoming) = (self.internet.clone(), tokio::sync::Mutex::new(incoming));
        Ok(Box::new(Accepting { address, internet, incoming }))
    }

    /// Any name has an address, which is nobody's: what is dialled is the port.
    async fn resolve(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), port)])
    }

    /// Any name is that of all who listen on the port, as behind a balancer.
    async fn dial(&self, _host: &str, port: u16) -> io::Result<Box<dyn Connection>> {
        let executor = self.internet.executor.clone();
        let latency = executor.roll(|dice| dice.between(200, 4_000));
        executor.sleep(Duration::from_micros(latency)).await;
        let (listening, give) = {
            let state = self.internet.state.lock();
            let behind: Vec<&(Life, Incoming)> = state
                .listeners
                .iter()
                .filter(|(address, _)| address.port() == port)
                .map(|(_, l)| l)
                .collect();
            let chosen = executor.roll(|dice| dice.one_of(&behind).map(|(life, give)| (*life, give.clone())));
            chosen.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?
        };
        let (to, from) = (Pipe::new(&self.internet), Pipe::new(&self.internet));
        let id = {
            let mut state = self.internet.state.lock();
            state.next_connection += 1;
            let id = state.next_connection;
            let (to, from) = (Arc::clone(&to), Arc::clone(&from));
            state.connections.insert(id, Wire { dialled_by: self.life, listening, port, to, from });
            id
        };
        let end = |reading: &Arc<Pipe>, writing: &Arc<Pipe>| End {
            id,
            internet: self.internet.clone(),
            reading: Arc::clone(reading),
            writing: Arc::clone(writing),
        };
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
        give.send((Box::new(end(&to, &from)), peer))
            .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(Box::new(end(&from, &to)))
    }
}

/// One end of a connection.
struct End {
    id: u64,
    internet: Internet,
    reading: Arc<Pipe>,
    writing: Arc<Pipe>,
}

fn reset() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionReset)
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.reading.state.lock();
        if state.broken {
            return Poll::Ready(Err(reset()));
        }
        let Some(piece) = state.arrived.front_mut() else {
            if state.finished {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let count = piece.len().min(buffer.remaining());
        buffer.put_slice(piece.get(..count).unwrap_or_default());
        piece.advance(count);
        if piece.is_empty() {
            state.arrived.pop_front();
        }
        state.bytes -= count;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let room = {
            let mut state = self.writing.state.lock();
            if state.broken || state.finished {
                return Poll::Ready(Err(reset()));
            }
            let room = UNDER_WAY.saturating_sub(state.bytes);
            if room == 0 {
                state.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            room
        };
        let taken = Bytes::copy_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        let count = taken.len();
        self.writing.send(taken);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.writing.finish();
        self.reading.break_off();
        self.internet.state.lock().connections.remove(&self.id);
    }
}
