//! What keeps an agent's connection going.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use tokio::sync::SetOnce;
use world::World;

use crate::gathered::Gathered;
use crate::http2::{Lost, is_close_in_order, keep_alive};
use crate::settings::Keepalive;

/// Why a connection takes no more requests, once it does not. The first word counts.
pub(super) type End = Arc<SetOnce<String>>;

/// How a connection fares.
pub(super) struct Driver {
    pub(super) world: World,
    pub(super) connection: Connection<Gathered<Box<dyn world::network::Connection>>, Bytes>,
    pub(super) sender: SendRequest<Bytes>,
    pub(super) keepalive: Keepalive,
    pub(super) end: End,
}

impl Driver {
    /// Until the connection has ended. Ended in order by the agent, it takes no more requests, while those that it has go on.
    pub(super) async fn run(self) {
        let Self { world, connection, mut sender, keepalive, end } = self;
        let why = {
            let mut alive = pin!(keep_alive(&world, connection, keepalive));
            poll_fn(|context| {
                let ended = alive.as_mut().poll(context);
                if ended.is_pending()
                    && !end.initialized()
                    && let Poll::Ready(Err(error)) = sender.poll_ready(context)
                {
                    let _first = end.set(describe(&error));
                }
                ended
            })
            .await
        };
        // Whoever hears of the end finds nothing open: the connection is dropped.
        let _first = end.set(match why {
            Ok(()) => BY_THE_AGENT.to_owned(),
            Err(Lost::Broken(error)) => describe(&error),
            Err(silent @ Lost::Silent { .. }) => silent.to_string(),
        });
    }
}

const BY_THE_AGENT: &str = "closed by the agent";

pub(super) fn describe(error: &h2::Error) -> String {
    if is_close_in_order(error) { BY_THE_AGENT.to_owned() } else { error.to_string() }
}
