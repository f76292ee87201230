//! TLS of those who come in.

use std::io;
use std::sync::Arc;

use rustls::{HandshakeKind, ProtocolVersion, ServerConfig};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;
use world::network::Connection;

use crate::corked::Corked;

/// How TLS was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secured {
    /// Certificate and all.
    Full,
    /// With the ticket of a connection before.
    Resumed,
    /// Not at all: plain text.
    Not,
}

/// Agrees on TLS with whoever is at the other end.
pub(super) async fn secure(
    config: Arc<ServerConfig>,
    socket: Box<dyn Connection>,
) -> io::Result<(Box<dyn Connection>, Secured)> {
    match TlsAcceptor::from(config).accept(Corked::new(socket)).into_fallible().await {
        Ok(mut stream) => {
            let (socket, session) = stream.get_mut();
            socket.uncork();
            let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
            if session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
                // There the client says nothing before it has the server's last words.
                stream.flush().await?;
            }
            Ok((Box::new(stream), if is_resumed { Secured::Resumed } else { Secured::Full }))
        }
        Err((error, socket)) => {
            socket.flush_rest().await;
            Err(error)
        }
    }
}
