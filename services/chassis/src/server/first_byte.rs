//! Whether a client speaks TLS, told by the first byte that it sends, which the next reader still gets.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use world::network::Connection;

/// A TLS record of a handshake begins with it (RFC 8446, section 5.1), and no method of HTTP does.
const HANDSHAKE: u8 = 22;

/// Whether a client begins a TLS handshake, and its connection as if nothing had been read.
///
/// # Errors
/// When the connection breaks or ends before its first byte.
pub(super) async fn looked_at(mut socket: Box<dyn Connection>) -> io::Result<(bool, Box<dyn Connection>)> {
    let first = socket.read_u8().await?;
    Ok((first == HANDSHAKE, Box::new(Begun { first: Some(first), socket })))
}

/// A connection of which the first byte was read.
struct Begun {
    first: Option<u8>,
    socket: Box<dyn Connection>,
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_first_byte_tells_tls_from_http_and_is_not_lost() {
        for (sent, is_tls) in
            [(&b"GET / HTTP/1.1"[..], false), (b"PRI * HTTP/2.0", false), (b"\x16\x03\x01", true)]
        {
            let (mut client, server) = tokio::io::duplex(64);
            client.write_all(sent).await.unwrap();
            drop(client);
            let (told, mut socket) = looked_at(Box::new(server)).await.unwrap();
            let mut read = Vec::new();
            socket.read_to_end(&mut read).await.unwrap();
            assert_eq!((told, read.as_slice()), (is_tls, sent));
        }
    }
}
