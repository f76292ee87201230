use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::Connection;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use world::World;

use crate::runtime::within;
use crate::settings::Keepalive;

/// A connection has ended, and not in order.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// It broke, or the other side closed it.
    #[error(transparent)]
    Broken(h2::Error),
    /// The other side is silent.
    #[error("keep-alive timed out: no answer to a PING within {timeout:?}")]
    Silent {
        /// The time that it had.
        timeout: Duration,
    },
}

/// Moves a connection's bytes until it has ended, and asks from time to time whether the other side is still there.
///
/// # Errors
/// When it ended otherwise than in order.
pub async fn keep_alive<T>(
    world: &World,
    mut connection: Connection<T, Bytes>,
    keepalive: Keepalive,
) -> Result<(), Lost>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pings = connection.ping_pong();
    let mut silence = pin!(silence(world, pings, keepalive));
    poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Ready(ended) => Poll::Ready(ended.map_err(Lost::Broken)),
        Poll::Pending => silence.as_mut().poll(context).map(Err),
    })
    .await
}

/// Returns once the other side has not answered a PING (RFC 9113, section 6.7) within the time that it has.
pub(super) async fn silence(
    world: &World,
    pings: Option<PingPong>,
    Keepalive { interval, timeout }: Keepalive,
) -> Lost {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        world.clock.sleep(interval).await;
        match within(world, timeout, pings.ping(Ping::opaque())).await {
            Some(Ok(_pong)) => {}
            // The connection has ended, and says itself why.
            Some(Err(_)) => std::future::pending().await,
            None => return Lost::Silent { timeout },
        }
    }
}
