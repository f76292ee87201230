//! Slots for requests, within what users, agents and organizations may use of this gateway.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use world::World;

use super::limits::{Exceeded, Limits, Requester};
use crate::args::ClusterLimits;

/// All slots of this gateway.
pub(crate) struct RequestSlots {
    world: World,
    limits: Mutex<Limits>,
}

impl RequestSlots {
    pub(crate) fn new(world: World, limits: ClusterLimits) -> Arc<Self> {
        Arc::new(Self { world, limits: Mutex::new(Limits::new(limits)) })
    }

    /// A slot for one request.
    pub(super) fn take(self: &Arc<Self>, requester: Requester) -> Result<Arc<RequestSlot>, Exceeded> {
        self.limits.lock().enter(&requester, self.world.clock.monotonic())?;
        Ok(Arc::new(RequestSlot { slots: Arc::clone(self), requester }))
    }
}

/// The slot of one request, taken while this is held.
pub(super) struct RequestSlot {
    slots: Arc<RequestSlots>,
    requester: Requester,
}

impl RequestSlot {
    /// Counts bytes that went through; gives what to wait for before more may, if there is something.
    pub(super) fn pace(&self, bytes: usize) -> Option<BoxFuture<'static, ()>> {
        let clock = Arc::clone(&self.slots.world.clock);
        let pause = self.slots.limits.lock().take(&self.requester, bytes, clock.monotonic());
        (pause > Duration::ZERO).then(|| async move { clock.sleep(pause).await }.boxed())
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.slots.limits.lock().leave(&self.requester);
    }
}
