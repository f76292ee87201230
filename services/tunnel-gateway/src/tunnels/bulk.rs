//! Bulk connections beside tunnels: they carry requests to clusters' APIs, so that no watch, log or copy delays desired states and
//! observations.
//!
//! A gateway asks the agent for one over the tunnel when the capacity that is there is nearly used up. The agent may reach another
//! gateway, which then needs no hop. Requests go over the tunnel while there is none. An idle one is closed, and none is opened again
//! before it is asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tunnel::wire::{Again, Farewell, path};

use super::session::{self, Session};
use crate::gateway::Gateway;

/// One more is asked for when fewer permits than this are free.
const LOW_CAPACITY: usize = tunnel::settings::MAXIMUM_STREAMS as usize / 2;
/// How long an agent may take to open one.
const OPENING_TIME: Duration = Duration::from_secs(30);
/// How often idle ones are looked for, and one that did not come in here is asked for again.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// A connection that was found idle so often is closed.
const IDLE_CHECKS: u32 = 10;

/// Holds one until it ends; then it has left the registry. It stays listed to the very end, so that a token that is no longer good ends
/// what is still open on it.
pub(crate) async fn run(gateway: &Gateway, session: &Arc<Session>) {
    gateway.counts.bulk_connections.inc();
    tracing::debug!(agent = %session.agent, "bulk connection opened");
    let farewell = tokio::select! {
        biased;
        farewell = session::token_ended(gateway, session) => farewell,
        farewell = run_until_unwanted(gateway, session) => farewell,
    };
    let now = || gateway.world.clock.monotonic();
    gateway.registry.stop_offering(session, farewell.again, now());
    session.connection.close(&farewell).await;
    gateway.registry.leave(session, farewell.again, now());
    gateway.counts.bulk_connections.dec();
    tracing::debug!(agent = %session.agent, reason = farewell.reason, "bulk connection closed");
}

/// Returns once a connection is no longer wanted, and what was open on it has ended or had its time.
async fn run_until_unwanted(gateway: &Gateway, session: &Arc<Session>) -> Farewell {
    let (farewell, time) = tokio::select! {
        biased;
        farewell = session.dismissed() => (farewell, None),
        reason = session.connection.closed() => {
            (Farewell { reason, again: Again::Later }, Some(session::DRAIN_OF_AGENT))
        }
        () = wait_until_idle(gateway, session) => {
            (Farewell { reason: "it is unused".to_owned(), again: Again::Later }, None)
        }
    };
    gateway.registry.stop_offering(session, farewell.again, gateway.world.clock.monotonic());
    session::drain(gateway, session, time).await;
    farewell
}

/// Returns once nobody has used a connection for long; or nobody does, and nobody gets any of it.
async fn wait_until_idle(gateway: &Gateway, session: &Session) {
    let mut idle_checks = 0;
    while idle_checks < IDLE_CHECKS {
        gateway.world.clock.sleep(CHECK_INTERVAL).await;
        idle_checks = match session.capacity.was_used() {
            true => 0,
            false if session.capacity.is_closed() => IDLE_CHECKS,
            false => idle_checks + 1,
        };
    }
}

/// Asks an agent for one more connection when little capacity is free, unless a request for one is open.
pub(crate) fn request_more(gateway: &Arc<Gateway>, tunnel: &Arc<Session>, free: usize) {
    if free >= LOW_CAPACITY || gateway.args.tunnel_bulk_per_agent == 0 {
        return;
    }
    let Some(arrival) = gateway.registry.begin_bulk_request(tunnel.agent) else { return };
    let (gateway, tunnel) = (Arc::clone(gateway), Arc::clone(tunnel));
    let spawner = Arc::clone(&gateway.world.spawner);
    let asking = async move {
        let asked = tunnel.connection.ask(Method::POST, path::BULK, Bytes::new(), 0, OPENING_TIME).await;
        tracing::debug!(agent = %tunnel.agent, ?asked, "requested a bulk connection");
        // What it dialled may come in elsewhere; or it is older, has enough, or cannot dial now.
        tokio::select! {
            biased;
            () = arrival.notified() => {}
            () = gateway.world.clock.sleep(CHECK_INTERVAL) => {}
        }
        gateway.registry.end_bulk_request(tunnel.agent, &arrival);
    };
    spawner.spawn("bulk", Box::pin(asking));
}
