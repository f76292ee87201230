//! The small-frame guard: an answer is read at once into a bounded queue of its own, so that a reader that stands still
//! keeps nobody else's bytes waiting, and a peer that sends dust loses that stream first. (Our own agent never does, see
//! [`super::Coalesced`]; one that goes on with it in many streams loses its own connection, as h2 counts what was in flight.)

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::Notify;
use world::World;
use world::spawn::TaskHandle;

use super::dust::Dust;

/// Pieces below this size are joined, up to about that size.
const JOIN_BELOW_BYTES: usize = 4096;
const JOIN_UP_TO_BYTES: usize = 32 * 1024;
/// Frames that are taken at once with an answer's head.
const FRAMES_WITH_HEAD: usize = 16;

/// Bounds of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Bytes that wait for a slow reader here; the stream's window holds as much again behind them.
    pub queue_bytes: usize,
    /// A reader that takes nothing for this long, with the queue full, loses the stream.
    pub stall: Duration,
    /// Frames below this many bytes are small.
    pub small_frame_bytes: usize,
    /// Small frames at once.
    pub small_burst: u32,
    /// Small frames a second for long.
    pub small_per_second: u32,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            queue_bytes: 256 * 1024,
            stall: Duration::from_secs(30),
            small_frame_bytes: 256,
            small_burst: 2000,
            small_per_second: 500,
        }
    }
}

/// An answer ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The agent, or the connection, ended it.
    #[error("the answer broke off: {detail}")]
    Broken {
        /// What happened.
        detail: String,
    },
    /// Its frames were too small for too long.
    #[error("the answer came in too many small frames")]
    SmallFrames,
    /// It was not read.
    #[error("the answer was not read for {stall:?}")]
    Stalled {
        /// For how long.
        stall: Duration,
    },
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
    end: Option<Result<(), BodyFault>>,
    reader: Option<Waker>,
}

struct Shared {
    queue: Mutex<Queue>,
    taken: Notify,
}

/// The body of an agent's answer. Dropping it resets the stream.
pub struct GuardedBody {
    shared: Arc<Shared>,
    pump: Option<TaskHandle>,
}

impl GuardedBody {
    pub(crate) fn new(world: &World, guard: Guard, mut stream: RecvStream) -> Self {
        let mut queue = Queue::default();
        queue.take_what_is_there(&mut stream, guard.queue_bytes);
        let is_whole = queue.end.is_some();
        let shared = Arc::new(Shared { queue: Mutex::new(queue), taken: Notify::new() });
        let pump = (!is_whole).then(|| {
            let pump = Pump { shared: Arc::clone(&shared), world: world.clone(), guard };
            world.spawner.spawn("tunnel-body", Box::pin(pump.run(stream)))
        });
        Self { shared, pump }
    }

    /// The next bytes; `None` at the end. Never empty.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, BodyFault>> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// All of it.
    ///
    /// # Errors
    /// When it breaks off, or is longer than `limit` bytes.
    pub async fn collect_up_to(mut self, limit: usize) -> Result<Bytes, BodyFault> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.chunk().await {
            let piece = piece?;
            if whole.len().saturating_add(piece.len()) > limit {
                return Err(BodyFault::Broken { detail: format!("longer than {limit} bytes") });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let mut queue = self.shared.queue.lock();
        let piece = match queue.pieces.pop_front() {
            Some(piece) => Some(piece),
            None if !queue.tail.is_empty() => Some(queue.tail.split().freeze()),
            None => None,
        };
        if let Some(piece) = piece {
            queue.bytes = queue.bytes.saturating_sub(piece.len());
            drop(queue);
            self.shared.taken.notify_one();
            return Poll::Ready(Some(Ok(piece)));
        }
        match &queue.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(fault)) => Poll::Ready(Some(Err(fault.clone()))),
            None => {
                queue.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.get_mut().poll_chunk(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        let queue = self.shared.queue.lock();
        queue.bytes == 0 && queue.end == Some(Ok(()))
    }
}

impl Queue {
    /// A small answer is mostly there with its head: then no task has to read it.
    fn take_what_is_there(&mut self, stream: &mut RecvStream, most_bytes: usize) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..FRAMES_WITH_HEAD {
            if self.end.is_some() || self.bytes >= most_bytes {
                return;
            }
            match poll_piece(stream, &mut context) {
                Poll::Pending => return,
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Ready(Some(Err(fault))) => self.end = Some(Err(fault)),
                Poll::Ready(Some(Ok(data))) => self.put(data),
            }
        }
    }

    fn put(&mut self, data: Bytes) {
        self.bytes = self.bytes.saturating_add(data.len());
        let small = data.len() < JOIN_BELOW_BYTES;
        if !self.tail.is_empty() && (!small || self.tail.len() >= JOIN_UP_TO_BYTES) {
            let tail = self.tail.split().freeze();
            self.pieces.push_back(tail);
        }
        if small {
            self.tail.extend_from_slice(&data);
        } else {
            self.pieces.push_back(data);
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        if let Some(pump) = &self.pump {
            pump.abort();
        }
    }
}

struct Pump {
    shared: Arc<Shared>,
    world: World,
    guard: Guard,
}

impl Pump {
    async fn run(self, mut stream: RecvStream) {
        let mut dust =
            Dust::new(self.guard.small_burst, self.guard.small_per_second, self.world.clock.monotonic());
        let end = loop {
            match poll_fn(|context| poll_piece(&mut stream, context)).await {
                None => break Ok(()),
                Some(Err(fault)) => break Err(fault),
                Some(Ok(data)) => {
                    if data.is_empty() {
                        continue;
                    }
                    if data.len() < self.guard.small_frame_bytes && !dust.allow(self.world.clock.monotonic())
                    {
                        break Err(BodyFault::SmallFrames);
                    }
                    if let Err(fault) = self.store(data).await {
                        break Err(fault);
                    }
                }
            }
        };
        let mut queue = self.shared.queue.lock();
        queue.end = Some(end);
        wake(&mut queue);
    }

    async fn store(&self, data: Bytes) -> Result<(), BodyFault> {
        {
            let mut queue = self.shared.queue.lock();
            queue.put(data);
            wake(&mut queue);
            if queue.bytes < self.guard.queue_bytes {
                return Ok(());
            }
        }
        self.wait_for_reader().await
    }

    /// Waits until the queue is half empty.
    async fn wait_for_reader(&self) -> Result<(), BodyFault> {
        while self.shared.queue.lock().bytes > self.guard.queue_bytes / 2 {
            let taken = self.shared.taken.notified();
            if crate::runtime::within(&self.world, self.guard.stall, taken).await.is_none() {
                return Err(BodyFault::Stalled { stall: self.guard.stall });
            }
        }
        Ok(())
    }
}

fn wake(queue: &mut Queue) {
    if let Some(reader) = queue.reader.take() {
        reader.wake();
    }
}

/// The next bytes of a stream, which has room for as many more at once.
fn poll_piece(stream: &mut RecvStream, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
    let piece = match ready!(stream.poll_data(context)) {
        Some(Ok(data)) => stream.flow_control().release_capacity(data.len()).map(|()| data),
        Some(Err(error)) => Err(error),
        None => return Poll::Ready(None),
    };
    Poll::Ready(Some(piece.map_err(|error| BodyFault::Broken { detail: error.to_string() })))
}
