//! Bytes that wait to be written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// See the module.
#[derive(Default)]
pub(crate) struct Waiting(Vec<u8>);

impl Waiting {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(crate) const fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(crate) fn push(&mut self, pieces: &[IoSlice<'_>]) {
        pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
    }

    /// Writes all of it.
    pub(crate) fn poll_write_to(
        &mut self,
        writer: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.0.is_empty() {
            let written = ready!(Pin::new(&mut *writer).poll_write(context, &self.0))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.0.drain(..written);
        }
        // An idle connection keeps no room for what it may write one day.
        self.0 = Vec::new();
        Poll::Ready(Ok(()))
    }
}
