//! Notices that desired states changed.

use std::sync::Arc;

use bus::Received;
use chassis::Shutdown;
use events::Notice as _;
use events::requests::delivery::DesiredChanged;
use events::subject::Subject;

use super::model::refresh;
use crate::gateway::Gateway;

/// Wakes the sessions of agents whose desired states changed, and each agent's from time to time, until shutdown is asked for.
pub(crate) async fn run(gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut subscription = gateway.bus.subscribe(&Subject::notice(DesiredChanged::NAME)).await?;
    let mut round = 0;
    let mut refresh_timer = gateway.world.clock.sleep(refresh::INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            heard = subscription.receiver.recv() => match heard {
                Some(Received::Message(body)) => match events::decode::<DesiredChanged>(&body) {
                    Ok(DesiredChanged { agents }) => gateway.registry.announce(&agents),
                    Err(error) => {
                        tracing::warn!(%error, "notice is not readable, refreshing all agents");
                        gateway.registry.mark_changed(None);
                    }
                },
                Some(Received::Lost(count)) => {
                    tracing::info!(count, "notices were lost, refreshing all agents");
                    gateway.registry.mark_changed(None);
                }
                None => anyhow::bail!("the bus ended the subscription"),
            },
            () = &mut refresh_timer => {
                refresh_timer = gateway.world.clock.sleep(refresh::INTERVAL);
                gateway.registry.mark_changed_where(|agent| refresh::is_due(agent, round));
                round += 1;
            }
        }
    }
}
