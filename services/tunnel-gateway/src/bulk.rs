//! Connections beside tunnels, on which requests to clusters' APIs go, so that no watch, log or copy is in the way of what an agent is
//! to have and to say.
//!
//! An agent opens one when a gateway asks for it over the tunnel, and that is when what is there is nearly taken. It may come in at
//! another gateway, which then needs no hop. Requests go over the tunnel while there is none. One that nobody uses any more is closed,
//! and none is opened again before it is asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tunnel::wire::{Again, Farewell, path};

use crate::gateway::Gateway;
use crate::session::{self, Session};

/// More is asked for once there is room for fewer than so many requests.
const LITTLE_ROOM: usize = tunnel::settings::MAXIMUM_STREAMS as usize / 2;
/// How long an agent may take to open one.
const OPENING_TIME: Duration = Duration::from_secs(30);
/// Before one that did not come in here is asked for again, and to see which are used.
const PAUSE: Duration = Duration::from_secs(30);
/// A connection that was found unused so often is closed.
const LOOKS: u32 = 10;

/// Holds one until it ends; then it has left the registry. It stays listed to the very end, so that a token that is no longer good ends
/// what is still open on it.
pub(crate) async fn run(gateway: &Gateway, session: &Arc<Session>) {
    gateway.counts.bulk_connections.inc();
    tracing::debug!(agent = %session.agent, "connection beside a tunnel opened");
    let farewell = tokio::select! {
        biased;
        farewell = session::shut_out(gateway, session) => farewell,
        farewell = wanted(gateway, session) => farewell,
    };
    let now = || gateway.world.clock.monotonic();
    gateway.registry.offers_no_more(session, farewell.again, now());
    session.connection.close(&farewell).await;
    gateway.registry.leave(session, farewell.again, now());
    gateway.counts.bulk_connections.dec();
    tracing::debug!(agent = %session.agent, reason = farewell.reason, "connection beside a tunnel closed");
}

/// Returns once a connection is no longer wanted, and what was open on it has ended or had its time.
async fn wanted(gateway: &Gateway, session: &Arc<Session>) -> Farewell {
    let (farewell, time) = tokio::select! {
        biased;
        farewell = session.dismissed() => (farewell, None),
        reason = session.connection.closed() => {
            (Farewell { reason, again: Again::Later }, Some(session::DRAIN_OF_AGENT))
        }
        () = unused(gateway, session) => {
            (Farewell { reason: "nobody uses it".to_owned(), again: Again::Later }, None)
        }
    };
    gateway.registry.offers_no_more(session, farewell.again, gateway.world.clock.monotonic());
    session::drained(gateway, session, time).await;
    farewell
}

/// Returns once nobody has used a connection for long; or nobody does, and nobody gets any of it.
async fn unused(gateway: &Gateway, session: &Session) {
    let mut looks = 0;
    while looks < LOOKS {
        gateway.world.clock.sleep(PAUSE).await;
        looks = match session.room.was_used() {
            true => 0,
            false if session.room.is_closed() => LOOKS,
            false => looks + 1,
        };
    }
}

/// Has an agent open one more, if there is little room left here and nobody asks for it already.
pub(crate) fn ask_for_more(gateway: &Arc<Gateway>, tunnel: &Arc<Session>, free: usize) {
    if free >= LITTLE_ROOM || gateway.args.tunnel_bulk_per_agent == 0 {
        return;
    }
    let Some(arrival) = gateway.registry.begins_to_ask(tunnel.agent) else { return };
    let (gateway, tunnel) = (Arc::clone(gateway), Arc::clone(tunnel));
    let spawner = Arc::clone(&gateway.world.spawner);
    let asking = async move {
        let asked = tunnel.connection.ask(Method::POST, path::BULK, Bytes::new(), 0, OPENING_TIME).await;
        tracing::debug!(agent = %tunnel.agent, ?asked, "asked for a connection beside a tunnel");
        // What it dialled may come in elsewhere; or it is older, has enough, or cannot dial now.
        tokio::select! {
            biased;
            () = arrival.notified() => {}
            () = gateway.world.clock.sleep(PAUSE) => {}
        }
        gateway.registry.has_asked(tunnel.agent, &arrival);
    };
    spawner.spawn("bulk", Box::pin(asking));
}
