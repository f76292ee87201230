//! Tokens that were revoked, and agents that were deleted, while their tunnels are open.

use std::sync::Arc;

use chassis::Shutdown;
use tunnel::wire::{Again, Farewell};

use super::model::Standing;
use crate::gateway::Gateway;

/// Ends the tunnels of tokens that were revoked and of agents that were deleted.
pub(crate) async fn run(gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut changes = gateway.standing.changes();
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            // The sender lives in the projection.
            _held = changes.changed() => {}
        }
        let revocations = gateway.standing.read(Standing::revocations);
        if revocations == seen {
            continue;
        }
        seen = revocations;
        for session in gateway.registry.connections() {
            let (agent, token) = (session.agent, session.token);
            if let Some(reason) = gateway.standing.read(|standing| standing.rejection_reason(agent, token)) {
                session.dismiss(Farewell { reason: reason.to_owned(), again: Again::Slowly });
            }
        }
    }
}
