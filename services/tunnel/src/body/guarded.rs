//! What comes over a stream of HTTP/2 is read at once into a queue of its own, so that a reader that stands still keeps nobody else's bytes
//! waiting. A peer's h2 counts small frames that nobody has read, and closes the whole connection over a budget: none waits there. What
//! a slow reader leaves is bounded all the same, as its stream gets no more room until it has read. A peer that sends small frames all the time
//! loses that stream first. (Our own ends never do, see [`super::Coalesced`].)

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use h2::{FlowControl, RecvStream};
use http::HeaderMap;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::Notify;
use world::World;
use world::spawn::TaskHandle;

use super::small_frames::SmallFrames;
use crate::runtime::within;
use crate::settings::{SMALL_FRAME_BYTES, SMALL_FRAMES_AT_ONCE, SMALL_FRAMES_TAKEN};

/// Pieces below this size are joined, up to about that size.
const JOIN_BELOW_BYTES: usize = 4096;
const JOIN_UP_TO_BYTES: usize = 32 * 1024;
/// Frames that are taken at once with an answer's head.
const FRAMES_WITH_HEAD: usize = 16;

/// Bounds of one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// With so many bytes that nobody has read the stream gets no more room: what its window has left still comes.
    pub queue_bytes: usize,
    /// A reader that takes nothing for this long meanwhile loses the stream.
    pub stall: Duration,
    /// Frames below this many bytes are small.
    pub small_frame_bytes: usize,
    /// Small frames at once.
    pub small_burst: u32,
    /// Small frames a second for long.
    pub small_per_second: u32,
}

impl Guard {
    /// A reader may stand still for long, as a suspended `kubectl logs -f` does; its stream is all that it holds.
    pub const PATIENT: Self = Self {
        queue_bytes: 256 * 1024,
        stall: Duration::from_secs(3600),
        small_frame_bytes: SMALL_FRAME_BYTES,
        small_burst: SMALL_FRAMES_AT_ONCE,
        small_per_second: SMALL_FRAMES_TAKEN,
    };
}

impl Default for Guard {
    fn default() -> Self {
        Self { stall: Duration::from_secs(30), ..Self::PATIENT }
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

/// What has come, and what has not been read of it.
struct Queue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
    most_bytes: usize,
    /// Gives the stream room, until it has ended.
    room: Option<FlowControl>,
    /// What came and has not been given room for again.
    owed: usize,
    trailers: Option<HeaderMap>,
    end: Option<Result<(), BodyFault>>,
    reader: Option<Waker>,
}

struct Shared {
    queue: Mutex<Queue>,
    taken: Notify,
    /// The stream is to be reset, as its body breaks these bounds.
    given_up: Arc<Notify>,
}

/// The body of what comes over a link: an agent's answer, or a request to an agent. Dropping it resets the stream.
pub struct GuardedBody {
    shared: Arc<Shared>,
    pump: Option<TaskHandle>,
}

impl GuardedBody {
    pub(crate) fn new(world: &World, guard: Guard, mut stream: RecvStream) -> Self {
        let mut queue = Queue::new(guard.queue_bytes, stream.flow_control().clone());
        queue.take_what_is_there(&mut stream);
        let is_whole = queue.end.is_some();
        let shared =
            Arc::new(Shared { queue: Mutex::new(queue), taken: Notify::new(), given_up: Arc::default() });
        let pump = (!is_whole).then(|| {
            let pump = Pump { shared: Arc::clone(&shared), world: world.clone(), guard };
            world.spawner.spawn("tunnel-body", Box::pin(pump.run(stream)))
        });
        Self { shared, pump }
    }

    /// Returns once the body was given up because it, or its reader, breaks its bounds. Of a request that resets nothing yet: its stream is
    /// open as long as there may be an answer.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + Send + 'static {
        let given_up = Arc::clone(&self.shared.given_up);
        async move { given_up.notified().await }
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
        if let Some(piece) = queue.take() {
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
        let this = self.get_mut();
        match ready!(this.poll_chunk(context)) {
            Some(piece) => Poll::Ready(Some(piece.map(Frame::data))),
            None => {
                Poll::Ready(this.shared.queue.lock().trailers.take().map(|rest| Ok(Frame::trailers(rest))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let queue = self.shared.queue.lock();
        queue.bytes == 0 && queue.trailers.is_none() && queue.end == Some(Ok(()))
    }
}

impl Queue {
    fn new(most_bytes: usize, room: FlowControl) -> Self {
        Self {
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            bytes: 0,
            most_bytes,
            room: Some(room),
            owed: 0,
            trailers: None,
            end: None,
            reader: None,
        }
    }

    /// A small body is mostly there with its head: then no task has to read it.
    fn take_what_is_there(&mut self, stream: &mut RecvStream) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..FRAMES_WITH_HEAD {
            if self.end.is_some() || self.is_full() {
                return;
            }
            let Poll::Ready(frame) = poll_frame(stream, &mut context) else { return };
            self.put(frame);
        }
    }

    fn put(&mut self, frame: Came) {
        match frame {
            Came::Data(data) => self.put_data(data),
            Came::End(trailers) => {
                self.trailers = trailers;
                self.ends(Ok(()));
            }
            Came::Fault(fault) => self.ends(Err(fault)),
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn put_data(&mut self, data: Bytes) {
        self.bytes = self.bytes.saturating_add(data.len());
        self.owed = self.owed.saturating_add(data.len());
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
        self.give_room();
    }

    fn ends(&mut self, end: Result<(), BodyFault>) {
        if matches!(end, Err(BodyFault::Stalled { .. })) {
            // Nobody reads it.
            (self.pieces, self.tail, self.bytes) = (VecDeque::new(), BytesMut::new(), 0);
        }
        self.end = Some(end);
        // The last handle of a stream that has not ended resets it.
        self.room = None;
    }

    fn take(&mut self) -> Option<Bytes> {
        let tail = |tail: &mut BytesMut| (!tail.is_empty()).then(|| tail.split().freeze());
        let piece = self.pieces.pop_front().or_else(|| tail(&mut self.tail))?;
        self.bytes = self.bytes.saturating_sub(piece.len());
        self.give_room();
        Some(piece)
    }

    const fn is_full(&self) -> bool {
        self.bytes >= self.most_bytes
    }

    fn give_room(&mut self) {
        if self.is_full() || self.owed == 0 {
            return;
        }
        if let Some(room) = &mut self.room {
            // A stream that has ended needs none.
            let _ended = room.release_capacity(std::mem::take(&mut self.owed));
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
        let end = match self.read(&mut stream).await {
            // What came to its end is not kept for ever, either.
            Came::End(_) if self.is_stalled().await => self.stalled(),
            end => end,
        };
        let is_given_up = matches!(end, Came::Fault(BodyFault::SmallFrames | BodyFault::Stalled { .. }));
        self.shared.queue.lock().put(end);
        if is_given_up {
            self.shared.given_up.notify_one();
        }
    }

    /// Reads to the end, and gives that.
    async fn read(&self, stream: &mut RecvStream) -> Came {
        let mut small_frames = SmallFrames::new(
            self.guard.small_burst,
            self.guard.small_per_second,
            self.world.clock.monotonic(),
        );
        let mut full: Option<BoxFuture<'_, bool>> = None;
        loop {
            let frame = tokio::select! {
                biased;
                frame = poll_fn(|context| poll_frame(stream, context)) => frame,
                is_stalled = wait(&mut full), if full.is_some() => {
                    full = None;
                    if is_stalled {
                        return self.stalled();
                    }
                    continue;
                }
            };
            let Came::Data(data) = frame else { return frame };
            let is_small = data.len() < self.guard.small_frame_bytes;
            if data.is_empty() {
                continue;
            }
            if is_small && !small_frames.allow(self.world.clock.monotonic()) {
                return Came::Fault(BodyFault::SmallFrames);
            }
            let mut queue = self.shared.queue.lock();
            queue.put(Came::Data(data));
            if queue.is_full() && full.is_none() {
                full = Some(self.is_stalled().boxed());
            }
        }
    }

    const fn stalled(&self) -> Came {
        Came::Fault(BodyFault::Stalled { stall: self.guard.stall })
    }

    /// Waits until the queue is no longer full; or its reader has taken nothing for too long.
    async fn is_stalled(&self) -> bool {
        while self.shared.queue.lock().is_full() {
            let taken = self.shared.taken.notified();
            if within(&self.world, self.guard.stall, taken).await.is_none() {
                return true;
            }
        }
        false
    }
}

/// Waits for what there is to wait for.
async fn wait(what: &mut Option<BoxFuture<'_, bool>>) -> bool {
    match what {
        Some(what) => what.await,
        None => std::future::pending().await,
    }
}

/// What comes next over a stream.
enum Came {
    Data(Bytes),
    End(Option<HeaderMap>),
    Fault(BodyFault),
}

fn poll_frame(stream: &mut RecvStream, context: &mut Context<'_>) -> Poll<Came> {
    let fault = |error: h2::Error| Came::Fault(BodyFault::Broken { detail: error.to_string() });
    Poll::Ready(match ready!(stream.poll_data(context)) {
        Some(Ok(data)) => Came::Data(data),
        Some(Err(error)) => fault(error),
        None => ready!(stream.poll_trailers(context)).map_or_else(fault, Came::End),
    })
}

#[cfg(test)]
mod tests {
    use h2::client::SendRequest;
    use h2::server::SendResponse;
    use http::{Request, Response};
    use tokio::io::DuplexStream;
    use tokio::sync::oneshot;

    use super::*;

    const GUARD: Guard = Guard { queue_bytes: 1000, small_burst: u32::MAX, ..Guard::PATIENT };
    /// What h2 lets so many small frames wait.
    const FRAMES_UNREAD: usize = 100;

    /// Answers with one-byte frames, as many as the path says; `done` once all are sent.
    async fn small_frames(mut respond: SendResponse<Bytes>, count: usize, done: Option<oneshot::Sender<()>>) {
        let mut stream = respond.send_response(Response::new(()), count == 0).unwrap();
        for number in 1..=count {
            stream.send_data(Bytes::from_static(b"x"), number == count).unwrap();
            tokio::task::yield_now().await;
        }
        done.map(|done| done.send(()));
    }

    async fn serve(io: DuplexStream, done: oneshot::Sender<()>) {
        let mut done = Some(done);
        let mut connection = h2::server::handshake(io).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            let count = request.uri().path().trim_start_matches('/').parse().unwrap();
            let sending = small_frames(respond, count, done.take());
            World::real().spawner.spawn("answer", Box::pin(sending));
        }
    }

    /// A connection on which hardly any small frame may wait, and what says when the first answer is sent whole.
    async fn connected() -> (SendRequest<Bytes>, oneshot::Receiver<()>) {
        let (near, far) = tokio::io::duplex(256);
        let (done, is_sent) = oneshot::channel();
        World::real().spawner.spawn("server", Box::pin(serve(far, done)));
        let mut settings = h2::client::Builder::new();
        settings.data_frame_budget(FRAMES_UNREAD * SMALL_FRAME_BYTES);
        let (sender, connection) = settings.handshake(near).await.unwrap();
        World::real().spawner.spawn("client", Box::pin(async move { drop(connection.await) }));
        (sender, is_sent)
    }

    async fn get(sender: &mut SendRequest<Bytes>, count: usize) -> GuardedBody {
        let request = Request::get(format!("http://agent/{count}")).body(()).unwrap();
        let answer = sender.send_request(request, true).unwrap().0.await.unwrap();
        GuardedBody::new(&World::real(), GUARD, answer.into_body())
    }

    #[tokio::test]
    async fn small_frames_that_nobody_reads_wait_where_no_peer_counts_them() {
        const COUNT: usize = 9_000;
        let (mut sender, is_sent) = connected().await;
        let unread = get(&mut sender, COUNT).await;
        is_sent.await.unwrap();
        assert_eq!(get(&mut sender, 3).await.collect_up_to(3).await.unwrap(), "xxx");
        assert_eq!(unread.collect_up_to(COUNT).await.unwrap().len(), COUNT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_loses_its_stream_and_a_slow_one_does_not() {
        const MORE_THAN_ITS_WINDOW: usize = 70_000;
        let (mut sender, _) = connected().await;
        let mut still = get(&mut sender, MORE_THAN_ITS_WINDOW).await;
        let mut slow = get(&mut sender, MORE_THAN_ITS_WINDOW).await;
        let mut read = 0;
        while read < MORE_THAN_ITS_WINDOW {
            tokio::time::sleep(GUARD.stall / 2).await;
            read += slow.chunk().await.unwrap().unwrap().len();
        }
        let fault = loop {
            match still.chunk().await.unwrap() {
                Ok(_came) => {}
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault, BodyFault::Stalled { stall: GUARD.stall });
    }
}
