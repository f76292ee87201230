//! The way to an agent: a connection that is open here, or else one of another gateway's. An agent that could be reached a moment ago is
//! waited for, as it dials again at once; any other is away, and that is said at once.
//!
//! Nothing of a request was sent, or read of its body, while a way is looked for.

use std::sync::Arc;
use std::time::Duration;

use events::AgentId;

use super::admission::Forwarded;
use super::hop::{self, Opened};
use super::trouble::Trouble;
use crate::bulk;
use crate::gateway::Gateway;
use crate::registry::ForRequest;
use crate::returns::Waiting;
use crate::room::Taken;
use crate::session::Session;

/// How long an agent is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nobody tells of an agent that came to another gateway: the others are asked after this time, then after twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// See the module.
pub(super) enum Way {
    /// A connection that is open here, with room on it.
    Here(Arc<Session>, Taken),
    /// A stream to a gateway that has one.
    There(Opened),
}

/// Finds a way within the time that the head of the answer may take.
pub(super) async fn find(gateway: &Arc<Gateway>, asked: &Forwarded) -> Result<Way, Trouble> {
    if let Some(way) = look(gateway, asked).await? {
        return Ok(way);
    }
    let clock = &gateway.world.clock;
    let Some(waiting) = gateway.registry.returns().wait(asked.agent, clock.monotonic()) else {
        return Err(Trouble::not_connected());
    };
    let patience = PATIENCE.min(asked.head_time);
    let found = tokio::select! {
        biased;
        way = come_back(gateway, asked, &waiting) => way,
        () = clock.sleep(patience) => {
            let way = look(gateway, asked).await?;
            way.ok_or_else(|| {
                // Whoever asks next hears at once that it is away.
                gateway.registry.returns().gone(asked.agent);
                Trouble::not_back(patience)
            })
        }
    };
    let outcome = if found.is_ok() { "back" } else { "away" };
    gateway.counts.cluster_waits.with([outcome]).inc();
    found
}

async fn look(gateway: &Arc<Gateway>, asked: &Forwarded) -> Result<Option<Way>, Trouble> {
    match here(gateway, asked.agent)? {
        Some((session, taken)) => Ok(Some(Way::Here(session, taken))),
        None => Ok(hop::open(gateway, asked).await?.map(Way::There)),
    }
}

/// Room on a connection that is open here, beside the agent's tunnel if something is. One too few is asked for on the way.
pub(super) fn here(gateway: &Arc<Gateway>, agent: AgentId) -> Result<Option<(Arc<Session>, Taken)>, Trouble> {
    let (found, more) = gateway.registry.for_request(agent);
    if let Some((tunnel, free)) = more {
        bulk::ask_for_more(gateway, &tunnel, free);
    }
    match found {
        ForRequest::Room(session, taken) => Ok(Some((session, taken))),
        ForRequest::None => Ok(None),
        ForRequest::Full => Err(Trouble::full()),
    }
}

async fn come_back(gateway: &Arc<Gateway>, asked: &Forwarded, waiting: &Waiting<'_>) -> Result<Way, Trouble> {
    let mut pause = FIRST_PAUSE;
    let mut ask_others = gateway.world.clock.sleep(pause);
    loop {
        // Made before the look, so that one who comes in between is not missed.
        let arrival = waiting.arrival.notified();
        if let Some((session, taken)) = here(gateway, asked.agent)? {
            return Ok(Way::Here(session, taken));
        }
        tokio::select! {
            biased;
            () = arrival => {}
            () = &mut ask_others => {
                if let Some(opened) = hop::open(gateway, asked).await? {
                    return Ok(Way::There(opened));
                }
                pause = pause.saturating_mul(2);
                ask_others = gateway.world.clock.sleep(pause);
            }
        }
    }
}
