//! Coalesced writes: a peer counts DATA frames below 256 bytes that nobody read, also those of streams that were reset, and
//! ends the whole connection over a budget. So neither end sends small frames.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use world::World;

use super::small_frames::SmallFrames;
use crate::settings::{SMALL_FRAME_BYTES, SMALL_FRAMES_SENT};

/// Pieces of at least this size travel as they are.
const LARGE_BYTES: usize = 4096;
/// Small ones are joined up to about this size, the largest DATA frame.
const JOIN_UP_TO_BYTES: usize = 16 * 1024;
/// How long small frames wait for company once there were too many of them.
const WAIT: Duration = Duration::from_millis(1);

/// Joins small pieces that are there at once; those that trickle in are sent at once too, until they are too many: then they
/// wait for each other a little. Never gives an empty piece.
pub struct Coalesced<B: Body> {
    inner: Pin<Box<B>>,
    joined: BytesMut,
    next: Option<Result<Frame<Bytes>, B::Error>>,
    ended: bool,
    small_frames: SmallFrames,
    waiting: Option<BoxFuture<'static, ()>>,
    world: World,
}

impl<B> Coalesced<B>
where
    B: Body<Data = Bytes>,
{
    pub(crate) fn new(world: &World, inner: B) -> Self {
        Self {
            inner: Box::pin(inner),
            joined: BytesMut::new(),
            next: None,
            ended: false,
            small_frames: SmallFrames::new(SMALL_FRAMES_SENT, SMALL_FRAMES_SENT, world.clock.monotonic()),
            waiting: None,
            world: world.clone(),
        }
    }

    fn flush(&mut self) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.waiting = None;
        Poll::Ready(Some(Ok(Frame::data(self.joined.split().freeze()))))
    }

    /// Nothing more is there now.
    fn trickle(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.joined.is_empty() {
            return Poll::Pending;
        }
        if self.joined.len() >= SMALL_FRAME_BYTES {
            return self.flush();
        }
        if self.waiting.is_none() {
            if self.small_frames.allow(self.world.clock.monotonic()) {
                return self.flush();
            }
            let clock = std::sync::Arc::clone(&self.world.clock);
            self.waiting = Some(Box::pin(async move { clock.sleep(WAIT).await }));
        }
        match self.waiting.as_mut().map(|waiting| waiting.as_mut().poll(context)) {
            Some(Poll::Pending) => Poll::Pending,
            _ => self.flush(),
        }
    }
}

impl<B> Body for Coalesced<B>
where
    B: Body<Data = Bytes>,
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.ended || this.next.is_some() {
            return Poll::Ready(this.next.take());
        }
        loop {
            let last = match this.inner.as_mut().poll_frame(context) {
                Poll::Pending => return this.trickle(context),
                Poll::Ready(None) => None,
                Poll::Ready(Some(Err(error))) => Some(Err(error)),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Err(trailers) => Some(Ok(trailers)),
                    Ok(data) if data.len() >= LARGE_BYTES && this.joined.is_empty() => {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Ok(data) => {
                        this.joined.extend_from_slice(&data);
                        if this.joined.len() >= JOIN_UP_TO_BYTES {
                            return this.flush();
                        }
                        continue;
                    }
                },
            };
            this.ended = last.is_none();
            if this.joined.is_empty() {
                return Poll::Ready(last);
            }
            this.next = last;
            return this.flush();
        }
    }

    fn is_end_stream(&self) -> bool {
        self.joined.is_empty() && self.next.is_none() && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.joined.is_empty() { self.inner.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Empty, StreamBody};

    use super::*;

    fn pieces(sizes: &[usize]) -> impl Body<Data = Bytes, Error = Infallible> + use<> {
        let frames: Vec<_> =
            sizes.iter().map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).collect();
        StreamBody::new(futures::stream::iter(frames))
    }

    async fn sizes<B: Body<Data = Bytes, Error = Infallible> + Send>(body: B) -> Vec<usize> {
        let mut body = Coalesced::new(&World::real(), body);
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            sizes.push(frame.unwrap().into_data().unwrap().len());
        }
        sizes
    }

    #[tokio::test]
    async fn dust_that_is_there_is_joined_and_large_pieces_are_left_alone() {
        assert_eq!(sizes(pieces(&[1; 100])).await, [100]);
        assert_eq!(sizes(pieces(&[1; 40_000])).await, [16_384, 16_384, 7_232]);
        assert_eq!(sizes(pieces(&[5_000, 9_000, 3, 4])).await, [5_000, 9_000, 7]);
        assert_eq!(sizes(pieces(&[0, 0, 0])).await, [] as [usize; 0]);
        assert_eq!(sizes(pieces(&[0, 3, 0, 5_000])).await, [5_003]);
    }

    #[tokio::test]
    async fn an_empty_body_ends_with_its_head() {
        assert!(Coalesced::new(&World::real(), Empty::new()).is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn dust_that_trickles_in_waits_for_company_once_there_was_too_much() {
        const COUNT: u32 = 4 * SMALL_FRAMES_SENT;
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let trickle = async move {
            for _ in 0..COUNT {
                sender.send(Bytes::from_static(b"x")).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let stream = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
        });
        let ((), sizes) = futures::join!(trickle, sizes(StreamBody::new(stream)));
        assert_eq!(sizes.iter().sum::<usize>(), COUNT as usize, "nothing is lost");
        let small = sizes.iter().filter(|size| **size < SMALL_FRAME_BYTES).count();
        assert!(small <= SMALL_FRAMES_SENT as usize + 1, "{small} small pieces");
        assert_eq!(sizes.first(), Some(&1), "the first ones go as they come");
    }
}
