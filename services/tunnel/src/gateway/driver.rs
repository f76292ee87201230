//! What keeps an agent's connection going: it moves its bytes, and asks from time to time whether the agent is still there.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong, Reason};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::SetOnce;
use world::World;

use crate::runtime::within;
use crate::settings::Keepalive;

/// Why a connection takes no more requests, once it does not. The first word counts.
pub(super) type End = Arc<SetOnce<String>>;

/// How a connection fares.
pub(super) struct Driver {
    pub(super) world: World,
    pub(super) connection: Connection<TokioIo<Upgraded>, Bytes>,
    pub(super) sender: SendRequest<Bytes>,
    pub(super) keepalive: Keepalive,
    pub(super) end: End,
}

impl Driver {
    /// Until the connection has ended. Ended in order by the agent, it takes no more requests, while those that it has go on.
    pub(super) async fn run(self) {
        let Self { world, mut connection, mut sender, keepalive, end } = self;
        let pings = connection.ping_pong();
        let mut silence = pin!(silence(&world, pings, keepalive));
        let why = poll_fn(|context| {
            let ended = match Pin::new(&mut connection).poll(context) {
                Poll::Ready(Ok(())) => Poll::Ready(BY_THE_AGENT.to_owned()),
                Poll::Ready(Err(error)) => Poll::Ready(describe(&error)),
                Poll::Pending => silence.as_mut().poll(context),
            };
            if ended.is_pending()
                && !end.initialized()
                && let Poll::Ready(Err(error)) = sender.poll_ready(context)
            {
                let _first = end.set(describe(&error));
            }
            ended
        })
        .await;
        // Whoever hears of the end finds nothing open.
        drop(connection);
        let _first = end.set(why);
    }
}

const BY_THE_AGENT: &str = "closed by the agent";

pub(super) fn describe(error: &h2::Error) -> String {
    let is_in_order = error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
    if is_in_order { BY_THE_AGENT.to_owned() } else { error.to_string() }
}

/// Returns, with words for it, once the agent has not answered a PING (RFC 9113, section 6.7) within the time that it has.
async fn silence(
    world: &World,
    pings: Option<PingPong>,
    Keepalive { interval, timeout }: Keepalive,
) -> String {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        world.clock.sleep(interval).await;
        match within(world, timeout, pings.ping(Ping::opaque())).await {
            Some(Ok(_pong)) => {}
            // The connection has ended, and says itself why.
            Some(Err(_)) => std::future::pending().await,
            None => return format!("keep-alive timed out: no answer to a PING within {timeout:?}"),
        }
    }
}
