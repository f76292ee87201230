//! Places for requests, within what users, agents and organizations may use of this gateway.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use world::World;

use super::limits::{Exceeded, Limits, Who};
use crate::args::ClusterLimits;

/// All places of this gateway.
pub(crate) struct Places {
    world: World,
    limits: Mutex<Limits>,
}

impl Places {
    pub(crate) fn new(world: World, limits: ClusterLimits) -> Arc<Self> {
        Arc::new(Self { world, limits: Mutex::new(Limits::new(limits)) })
    }

    /// A place for one request.
    pub(super) fn take(self: &Arc<Self>, who: Who) -> Result<Arc<Place>, Exceeded> {
        self.limits.lock().enter(&who, self.world.clock.monotonic())?;
        Ok(Arc::new(Place { among: Arc::clone(self), who }))
    }
}

/// Of one request, for as long as this is held.
pub(super) struct Place {
    among: Arc<Places>,
    who: Who,
}

impl Place {
    /// Counts bytes that went through; gives what to wait for before more may, if there is something.
    pub(super) fn pace(&self, bytes: usize) -> Option<BoxFuture<'static, ()>> {
        let clock = Arc::clone(&self.among.world.clock);
        let pause = self.among.limits.lock().take(&self.who, bytes, clock.monotonic());
        (pause > Duration::ZERO).then(|| async move { clock.sleep(pause).await }.boxed())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.among.limits.lock().leave(&self.who);
    }
}
