//! What opens a link leaves in few pieces.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::agent::dial;
use tunnel::gateway::Acceptor;
use tunnel::handshake::Token;
use world::World;
use world::network::Connection;

use crate::ends::{Pki, agent_id, hello, spawn};

/// The pieces that were written to a socket.
type Pieces = Arc<Mutex<Vec<Vec<u8>>>>;

struct Recorded(Box<dyn Connection>, Pieces);

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.1.lock().unwrap().push(bytes.get(..count).unwrap().to_owned());
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(context, &pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// What a gateway has written by the time that its agent is let in, who is judged after others had their turn.
async fn written_until_let_in(pki: &Pki) -> Vec<Vec<u8>> {
    let world = World::real();
    let listener = world.network.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let address = listener.local_address().unwrap();
    let acceptor = Acceptor { tls: pki.server.clone(), ..Acceptor::default() };
    let pieces = Pieces::default();
    let recorded = Arc::clone(&pieces);
    let accepting = spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let judge = |_| async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            Ok((agent_id(), ()))
        };
        acceptor.accept(&world, Box::new(Recorded(socket, recorded)), judge).await
    });
    let link = dial(&World::real(), &pki.target(address), &Token::new("t"), &hello()).await.unwrap();
    let pieces = pieces.lock().unwrap().clone();
    drop((link, accepting.await.unwrap().unwrap_or_else(|error| panic!("{error}"))));
    pieces
}

#[tokio::test]
async fn the_answer_to_the_upgrade_leaves_with_the_first_frames_of_http2() {
    let pieces = written_until_let_in(&Pki::none()).await;
    let [piece] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
    assert!(piece.starts_with(b"HTTP/1.1 101 "));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let at = piece.windows(preface.len()).position(|window| window == preface).unwrap();
    let settings = &piece[at + preface.len()..];
    assert!(settings.len() > 9 && settings[3] == 4, "no frame of settings: {settings:?}");
}

#[tokio::test]
async fn the_last_words_of_tls_leave_with_the_answer_to_the_upgrade() {
    let pieces = written_until_let_in(&Pki::new()).await;
    assert_eq!(pieces.len(), 2, "the server's side of the handshake, and all the rest");
}
