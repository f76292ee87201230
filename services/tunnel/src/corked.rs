//! A socket below TLS, while both ends agree on keys: what is written leaves it once nothing more comes without it.
//!
//! The last words of a handshake of TLS 1.3 (the client's Finished, the server's ticket) are for nobody to wait for. They go with what is said
//! first under TLS: a call of the system, a segment and a wake-up less at each end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::waiting::Waiting;

/// More does not wait.
const CORKED_BYTES: usize = 16 * 1024;

/// See the module.
pub(crate) struct Corked<T> {
    inner: T,
    waiting: Waiting,
    is_corked: bool,
}

impl<T: AsyncWrite + Unpin> Corked<T> {
    /// What is written leaves when a read waits for the other side.
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, waiting: Waiting::default(), is_corked: true }
    }

    /// From now on what is flushed leaves; what waits goes with it.
    pub(crate) const fn uncork(&mut self) {
        self.is_corked = false;
    }

    /// Lets what waits leave, such as why a handshake failed.
    pub(crate) async fn flush_rest(mut self) {
        self.uncork();
        // The other side may not wish to hear it.
        let _heard = self.flush().await;
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting.poll_write_to(&mut self.inner, context)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Corked<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_pending() && self.is_corked {
            let _sent_later: Poll<()> = self.poll_send(context)?;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_corked || !self.waiting.is_empty() {
            let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            if self.waiting.len() + bytes <= CORKED_BYTES {
                self.waiting.push(pieces);
                return Poll::Ready(Ok(bytes));
            }
            ready!(self.poll_send(context))?;
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_corked {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_corked_leaves_when_a_read_waits() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut corked = Corked::new(near);
        corked.write_all(b"hello").await.unwrap();
        corked.flush().await.unwrap();
        far.write_all(b"1").await.unwrap();
        assert_eq!(corked.read_u8().await.unwrap(), b'1');
        assert!(poll!(Box::pin(far.read_u8())).is_pending(), "there was something to read");
        assert!(poll!(Box::pin(corked.read_u8())).is_pending());
        let mut arrived = [0; 5];
        far.read_exact(&mut arrived).await.unwrap();
        assert_eq!(&arrived, b"hello");
    }

    #[tokio::test]
    async fn the_last_words_go_with_the_first_ones_behind_them() {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let mut corked = Corked::new(near);
        corked.write_all(b"finished ").await.unwrap();
        corked.uncork();
        corked.write_all(b"request ").await.unwrap();
        assert!(poll!(Box::pin(far.read_u8())).is_pending());
        corked.flush().await.unwrap();
        let mut arrived = [0; 64];
        assert_eq!(far.read(&mut arrived).await.unwrap(), 17, "in one piece");

        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let mut corked = Corked::new(near);
        corked.write_all(b"finished ").await.unwrap();
        corked.uncork();
        let large = vec![7; CORKED_BYTES];
        corked.write_all(&large).await.unwrap();
        corked.shutdown().await.unwrap();
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).await.unwrap();
        assert_eq!(arrived, [b"finished ".as_slice(), &large].concat());
    }

    #[tokio::test]
    async fn why_a_handshake_failed_is_said() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut corked = Corked::new(near);
        corked.write_all(b"alert").await.unwrap();
        corked.flush_rest().await;
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).await.unwrap();
        assert_eq!(arrived, b"alert");
    }
}
