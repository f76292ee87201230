//! Gathered writes: what several tasks write for one connection in the same moment leaves it in one piece.
//!
//! Many who ask at once cost a record of TLS and a call of the system each, at both ends, and less together. Who asks alone only loses the
//! time: where nobody came, the next ones are not waited for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::waiting::Waiting;

/// So much is gathered at most; what is larger goes as it is.
const GATHERED_BYTES: usize = 4096;

/// After so many turns in which nobody came, one more flush goes by without a turn before the next one.
const PATIENCE: u8 = 8;

/// Whether something is held back, for whoever knows while somebody else writes.
pub(crate) type Hold = Arc<AtomicBool>;

/// Lets the other tasks have a turn before it sends what was written, and then sends what they wrote with it.
pub(crate) struct Gathered<T> {
    inner: T,
    waiting: Waiting,
    /// While it is set, nothing is sent before a read waits for the other side.
    hold: Hold,
    /// A flush began: what comes now came with it.
    is_flushing: bool,
    /// What was sent may not have left yet.
    owes_flush: bool,
    /// Flushes that go by until the next turn.
    without_turn: u8,
    /// Turns in which nobody came, since somebody did.
    in_vain: u8,
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    /// Sends nothing while `hold` is set, until its reader waits for the other side.
    pub(crate) fn new(inner: T, hold: Hold) -> Self {
        let waiting = Waiting::default();
        Self { inner, waiting, hold, is_flushing: false, owes_flush: false, without_turn: 0, in_vain: 0 }
    }

    /// What waits goes with what is written until a reader waits for the other side.
    pub(crate) fn hold(&self) {
        self.hold.store(true, Ordering::Relaxed);
    }

    fn is_held(&self) -> bool {
        self.hold.load(Ordering::Relaxed)
    }

    /// Whether others have a turn before what waits is sent: fewer and fewer times while nobody comes.
    fn gives_turn(&mut self) -> bool {
        if self.waiting.is_empty() || self.is_flushing {
            return false;
        }
        self.is_flushing = true;
        if let Some(left) = self.without_turn.checked_sub(1) {
            self.without_turn = left;
            return false;
        }
        self.without_turn = self.in_vain / PATIENCE;
        self.in_vain = self.in_vain.saturating_add(1);
        true
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting.poll_write_to(&mut self.inner, context)
    }

    fn poll_send_all(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.owes_flush = true;
        ready!(self.poll_send(context))?;
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.owes_flush = false;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_pending() && self.is_held() {
            if !self.waiting.is_empty() {
                // Whoever reads may still have something to write.
                self.hold.store(false, Ordering::Relaxed);
                context.waker().wake_by_ref();
            }
        } else if read.is_pending() && !self.is_flushing && (self.owes_flush || !self.waiting.is_empty()) {
            let _sent_later: Poll<()> = self.poll_send_all(context)?;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_flushing {
            (self.without_turn, self.in_vain) = (0, 0);
        }
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if self.waiting.len() + bytes > GATHERED_BYTES {
            ready!(self.poll_send(context))?;
        }
        if bytes > GATHERED_BYTES {
            return Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        }
        self.waiting.push(pieces);
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_held() {
            return Poll::Ready(Ok(()));
        }
        if self.gives_turn() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_send_all(context))?;
        self.is_flushing = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn released<T: AsyncWrite + Unpin>(inner: T) -> Gathered<T> {
        Gathered::new(inner, Hold::default())
    }

    fn held(inner: Writes) -> Gathered<Writes> {
        Gathered::new(inner, Arc::new(AtomicBool::new(true)))
    }

    /// Takes everything and keeps each write by itself; has something to read once, if it does.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>, Option<u8>);

    impl AsyncRead for Writes {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(byte) = self.1.take() else { return Poll::Pending };
            buffer.put_slice(&[byte]);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_owned());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_written_before_is_flushing_goes_with_it() {
        let mut gathered = released(Writes::default());
        gathered.write_all(b"head ").await.unwrap();
        assert!(poll!(Box::pin(gathered.flush())).is_pending());
        gathered.write_all(b"body").await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.inner.0, [b"head body"]);
        assert_eq!(gathered.waiting.capacity(), 0);
        gathered.write_all(b"next").await.unwrap();
        assert!(poll!(Box::pin(gathered.flush())).is_pending());
        gathered.flush().await.unwrap();
        assert_eq!(gathered.inner.0.last().unwrap(), b"next");
    }

    #[tokio::test]
    async fn who_writes_alone_hardly_ever_waits_until_others_come() {
        let mut gathered = released(Writes::default());
        let mut turns = Vec::new();
        for number in 0..10_000 {
            gathered.write_all(b"alone").await.unwrap();
            let mut flush = Box::pin(gathered.flush());
            if poll!(&mut flush).is_pending() {
                turns.push(number);
                flush.await.unwrap();
            }
        }
        assert_eq!(turns[..9], [0, 1, 2, 3, 4, 5, 6, 7, 8], "at first others are waited for");
        assert!(turns.len() < 500, "{} turns", turns.len());
        while {
            gathered.write_all(b"first").await.unwrap();
            poll!(Box::pin(gathered.flush())).is_ready()
        } {}
        gathered.write_all(b"second").await.unwrap();
        gathered.flush().await.unwrap();
        gathered.write_all(b"third").await.unwrap();
        assert!(poll!(Box::pin(gathered.flush())).is_pending(), "somebody came the last time");
    }

    #[tokio::test]
    async fn what_is_held_leaves_a_turn_after_its_reader_waits_and_with_what_came_in_that_turn() {
        let mut gathered = held(Writes(Vec::new(), Some(7)));
        gathered.write_all(b"settings ").await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.read_u8().await.unwrap(), 7);
        assert!(gathered.inner.0.is_empty(), "there was something to read");
        assert!(poll!(Box::pin(gathered.read_u8())).is_pending());
        gathered.write_all(b"answer").await.unwrap();
        assert!(gathered.inner.0.is_empty(), "whoever reads may have more");
        gathered.flush().await.unwrap();
        assert_eq!(gathered.inner.0, [b"settings answer"]);

        let mut gathered = held(Writes::default());
        gathered.write_all(b"settings").await.unwrap();
        gathered.flush().await.unwrap();
        assert!(poll!(Box::pin(gathered.read_u8())).is_pending());
        assert!(poll!(Box::pin(gathered.read_u8())).is_pending());
        assert_eq!(gathered.inner.0, [b"settings"], "nobody has to ask twice");
    }

    #[tokio::test]
    async fn what_is_held_again_goes_with_all_that_is_written_before_its_reader_waits() {
        let mut gathered = held(Writes::default());
        gathered.write_all(b"switching ").await.unwrap();
        gathered.flush().await.unwrap();
        assert!(poll!(Box::pin(gathered.read_u8())).is_pending());
        gathered.hold();
        gathered.write_all(b"preface ").await.unwrap();
        assert!(poll!(Box::pin(gathered.read_u8())).is_pending());
        gathered.write_all(b"settings").await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.inner.0, [b"switching preface settings"]);
    }

    #[tokio::test]
    async fn what_is_held_leaves_when_it_is_shut_down() {
        let mut gathered = held(Writes::default());
        gathered.write_all(b"refused").await.unwrap();
        gathered.shutdown().await.unwrap();
        assert_eq!(gathered.inner.0, [b"refused"]);
    }

    #[tokio::test]
    async fn what_is_large_goes_as_it_is_behind_what_waits() {
        let mut gathered = released(Writes::default());
        let large = vec![7; GATHERED_BYTES + 1];
        gathered.write_all(b"head").await.unwrap();
        gathered.write_all(&large).await.unwrap();
        gathered.write_all(b"tail").await.unwrap();
        gathered.shutdown().await.unwrap();
        assert_eq!(gathered.inner.0, [b"head".to_vec(), large, b"tail".to_vec()]);
    }

    #[tokio::test]
    async fn everything_arrives_in_order_through_a_narrow_pipe() {
        let (near, mut far) = tokio::io::duplex(7);
        let expected: Vec<u8> = (0..=255).cycle().take(50_000).collect();
        let sent = expected.clone();
        let writing = async move {
            let mut gathered = released(near);
            for (head, body) in sent.chunks(1000).map(|chunk| chunk.split_at(900)) {
                gathered.write_all(head).await.unwrap();
                gathered.flush().await.unwrap();
                gathered.write_all(body).await.unwrap();
            }
            gathered.shutdown().await.unwrap();
        };
        let mut arrived = Vec::new();
        let ((), read) = tokio::join!(writing, far.read_to_end(&mut arrived));
        read.unwrap();
        assert_eq!(arrived, expected);
    }
}
