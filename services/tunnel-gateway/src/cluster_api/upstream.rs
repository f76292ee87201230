//! The upstream of a request: a connection of the agent that is open here, or else one of another gateway's. A request waits for an agent
//! that was connected a moment ago, as it dials again at once; for any other it fails at once.
//!
//! Nothing of the request is sent, or read of its body, while an upstream is looked for.

use std::sync::Arc;
use std::time::Duration;

use events::AgentId;

use super::admission::Forwarded;
use super::error::ProxyError;
use super::hop::{self, Opened};
use crate::gateway::Gateway;
use crate::tunnels::bulk;
use crate::tunnels::capacity::CapacityPermit;
use crate::tunnels::reconnects::ReconnectWait;
use crate::tunnels::registry::ConnectionLookup;
use crate::tunnels::session::Session;

/// How long an agent is waited for.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// No notice says that an agent connected to another gateway: the others are asked after this time, then after twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// See the module.
pub(super) enum Upstream {
    /// A connection that is open here, with a permit on it.
    Local(Arc<Session>, CapacityPermit),
    /// A stream to a gateway that has one.
    Remote(Opened),
}

/// Finds an upstream within the time that the head of the answer may take.
pub(super) async fn find(gateway: &Arc<Gateway>, asked: &Forwarded) -> Result<Upstream, ProxyError> {
    if let Some(upstream) = lookup(gateway, asked).await? {
        return Ok(upstream);
    }
    let clock = &gateway.world.clock;
    let Some(waiting) = gateway.registry.reconnects().wait(asked.agent, clock.monotonic()) else {
        return Err(ProxyError::not_connected());
    };
    let patience = RECONNECT_TIMEOUT.min(asked.head_time);
    let found = tokio::select! {
        biased;
        upstream = wait_for_agent(gateway, asked, &waiting) => upstream,
        () = clock.sleep(patience) => {
            let upstream = lookup(gateway, asked).await?;
            upstream.ok_or_else(|| {
                // The next request for it fails at once.
                gateway.registry.reconnects().mark_gone(asked.agent);
                ProxyError::not_reconnected(patience)
            })
        }
    };
    let outcome = if found.is_ok() { "back" } else { "away" };
    gateway.counts.cluster_waits.with([outcome]).inc();
    found
}

async fn lookup(gateway: &Arc<Gateway>, asked: &Forwarded) -> Result<Option<Upstream>, ProxyError> {
    match local(gateway, asked.agent)? {
        Some((session, taken)) => Ok(Some(Upstream::Local(session, taken))),
        None => Ok(hop::open(gateway, asked).await?.map(Upstream::Remote)),
    }
}

/// A permit on a connection that is open here, on a bulk connection if there is one. Asks the agent for one more when capacity is low.
pub(super) fn local(
    gateway: &Arc<Gateway>,
    agent: AgentId,
) -> Result<Option<(Arc<Session>, CapacityPermit)>, ProxyError> {
    let (found, more) = gateway.registry.find_connection(agent);
    if let Some((tunnel, free)) = more {
        bulk::request_more(gateway, &tunnel, free);
    }
    match found {
        ConnectionLookup::Found(session, taken) => Ok(Some((session, taken))),
        ConnectionLookup::None => Ok(None),
        ConnectionLookup::Full => Err(ProxyError::no_capacity()),
    }
}

async fn wait_for_agent(
    gateway: &Arc<Gateway>,
    asked: &Forwarded,
    waiting: &ReconnectWait<'_>,
) -> Result<Upstream, ProxyError> {
    let mut pause = FIRST_PAUSE;
    let mut ask_others = gateway.world.clock.sleep(pause);
    loop {
        // Registered before the lookup, so that an agent that connects in between is not missed.
        let arrival = waiting.arrival.notified();
        if let Some((session, taken)) = local(gateway, asked.agent)? {
            return Ok(Upstream::Local(session, taken));
        }
        tokio::select! {
            biased;
            () = arrival => {}
            () = &mut ask_others => {
                if let Some(opened) = hop::open(gateway, asked).await? {
                    return Ok(Upstream::Remote(opened));
                }
                pause = pause.saturating_mul(2);
                ask_others = gateway.world.clock.sleep(pause);
            }
        }
    }
}
