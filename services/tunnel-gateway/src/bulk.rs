//! Connections beside tunnels, on which requests to clusters' APIs go, so that no watch, log or copy is in the way of what an agent is
//! to have and to say.
//!
//! An agent opens one when a gateway asks for it over the tunnel, and that is when what is there is nearly taken. It may come in at
//! another gateway, which then needs no hop. Requests go over the tunnel while there is none. One that nobody uses any more is closed,
//! and none is opened again before it is asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tunnel::wire::{Again, Farewell, path};

use crate::gateway::Gateway;
use crate::session::{self, Session};

/// More is asked for once there is room for fewer than so many requests.
const LITTLE_ROOM: usize = tunnel::settings::MAXIMUM_STREAMS as usize / 2;
/// How long an agent may take to open one.
const OPENING_TIME: Duration = Duration::from_secs(30);
/// After one that was not opened, and to see which are used.
const PAUSE: Duration = Duration::from_secs(30);
/// A connection that was found unused so often is closed.
const LOOKS: u32 = 10;

/// Holds one until it ends; then it has left the registry.
pub(crate) async fn run(gateway: &Gateway, session: &Arc<Session>) {
    gateway.counts.bulk_connections.inc();
    tracing::debug!(agent = %session.agent, "connection beside a tunnel opened");
    let closed = tokio::select! {
        biased;
        farewell = session.dismissed() => Some(farewell),
        () = session::expired(gateway, session) => {
            Some(Farewell { reason: "the token has expired".to_owned(), again: Again::Slowly })
        }
        _reason = session.connection.closed() => None,
        () = unused(gateway, session) => {
            Some(Farewell { reason: "nobody uses it".to_owned(), again: Again::Later })
        }
    };
    let again = closed.as_ref().map_or(Again::Later, |farewell| farewell.again);
    gateway.registry.leave(session, again, gateway.world.clock.monotonic());
    if let Some(farewell) = closed {
        session.connection.close(&farewell).await;
    }
    gateway.counts.bulk_connections.dec();
    tracing::debug!(agent = %session.agent, "connection beside a tunnel closed");
}

/// Returns once nobody has used a connection for long, and nobody will: it is out of the registry by then.
async fn unused(gateway: &Gateway, session: &Arc<Session>) {
    let mut looks = 0;
    while looks < LOOKS {
        gateway.world.clock.sleep(PAUSE).await;
        looks = if session.room.is_unused() { looks + 1 } else { 0 };
    }
    gateway.registry.leave(session, Again::Later, gateway.world.clock.monotonic());
    // Whoever came in between goes on to the end.
    while !session.room.is_unused() {
        gateway.world.clock.sleep(PAUSE).await;
    }
}

/// Has an agent open one more, if there is little room left here and nobody asks for it already.
pub(crate) fn ask_for_more(gateway: &Arc<Gateway>, tunnel: &Arc<Session>, free: usize) {
    if free >= LITTLE_ROOM || gateway.args.tunnel_bulk_per_agent == 0 || !tunnel.begins_to_ask() {
        return;
    }
    let (gateway, tunnel) = (Arc::clone(gateway), Arc::clone(tunnel));
    let spawner = Arc::clone(&gateway.world.spawner);
    let asking = async move {
        let asked = tunnel.connection.ask(Method::POST, path::BULK, Bytes::new(), 0, OPENING_TIME).await;
        if !asked.is_ok_and(|asked| asked.status == StatusCode::NO_CONTENT) {
            // An agent that is older, has enough, or cannot dial now.
            gateway.world.clock.sleep(PAUSE).await;
        }
        tunnel.has_asked();
    };
    spawner.spawn("bulk", Box::pin(asking));
}
