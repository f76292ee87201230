//! What the parts of the bus share: the wire, and how its losses are noticed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use world::World;

use super::wire::{HeaderMap, Wire, WireError};
use crate::contract::BusError;

const SETTLE_TIME: Duration = Duration::from_secs(10);

/// A wire; cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) wire: Arc<dyn Wire>,
}

impl Link {
    /// Changes whenever messages may have been lost.
    pub(super) fn interruptions(&self) -> watch::Receiver<u64> {
        let mut interruptions = self.wire.interruptions();
        interruptions.mark_unchanged();
        interruptions
    }

    /// Ends when messages may have been lost from now on; an error when the connection is lost already.
    pub(super) fn lost(&self) -> Result<impl Future<Output = ()> + Send + use<>, BusError> {
        let mut interruptions = self.interruptions();
        if !self.wire.is_connected() {
            return Err(BusError::Away { detail: "no server is connected".to_owned() });
        }
        Ok(async move {
            // An error means that the client is gone, and with it the connection.
            let _gone = interruptions.changed().await;
        })
    }

    /// Waits until the server has heard all that was said so far: a question that nobody answers comes back from it.
    pub(super) async fn settled(&self, world: &World) -> Result<(), BusError> {
        let away = |detail: &str| BusError::Away { detail: detail.to_owned() };
        let lost = self.lost()?;
        let question = self.wire.request(self.wire.new_inbox(), HeaderMap::new(), Bytes::new());
        tokio::select! {
            biased;
            answer = question => match answer {
                Err(WireError::Failed(detail)) => Err(away(&detail)),
                Ok(_) | Err(WireError::Nobody) => Ok(()),
            },
            () = world.clock.sleep(SETTLE_TIME) => Err(away("the server does not answer")),
            () = lost => Err(away("the connection was lost")),
        }
    }
}
