//! A connection whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use chassis::metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use world::network::Connection;

use crate::metrics::Counts;

/// See the module.
pub(crate) struct Metered {
    inner: Box<dyn Connection>,
    received: Counter,
    sent: Counter,
}

impl Metered {
    pub(crate) fn new(inner: Box<dyn Connection>, counts: &Counts) -> Self {
        let (received, sent) = (counts.tunnel_bytes.with(["received"]), counts.tunnel_bytes.with(["sent"]));
        Self { inner, received, sent }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.received.inc_by((buffer.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, pieces))?;
        self.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_goes_through_is_counted_in_its_direction() {
        let counts = Counts::default();
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Metered::new(Box::new(near), &counts);
        near.write_all(b"12345").await.unwrap();
        far.write_all(b"123").await.unwrap();
        drop(far);
        near.read_to_end(&mut Vec::new()).await.unwrap();
        let bytes = |direction| counts.tunnel_bytes.with([direction]).get();
        assert_eq!((bytes("sent"), bytes("received")), (5, 3));
    }
}
