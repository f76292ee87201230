//! Many agents that come in at once, as after another gateway died: tunnels first, so that each cluster can be reached, and only then what each
//! agent is to have. Mostly it has that already.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use world::Clock;

/// It is over when fewer than so many are coming in.
const FEW: usize = 32;
/// Whoever came in waits no longer than this for others.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(crate) struct Rush {
    coming: AtomicUsize,
    over: Notify,
}

/// One that is coming in, for as long as this is held.
pub(crate) struct Coming<'a>(&'a Rush);

impl Rush {
    /// One comes in.
    pub(crate) fn comes(&self) -> Coming<'_> {
        self.coming.fetch_add(1, Ordering::AcqRel);
        Coming(self)
    }

    /// Returns once there is none, or it has lasted long.
    pub(crate) async fn passes(&self, clock: &dyn Clock) {
        // Made before the look, so that an end in between is not missed.
        let over = self.over.notified();
        if self.coming.load(Ordering::Acquire) < FEW {
            return;
        }
        tokio::select! {
            biased;
            () = over => {}
            () = clock.sleep(PATIENCE) => {}
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if self.0.coming.fetch_sub(1, Ordering::AcqRel) == FEW {
            self.0.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use world::World;

    use super::*;

    #[tokio::test]
    async fn who_is_in_waits_until_few_are_coming() {
        let (rush, world) = (Rush::default(), World::real());
        let mut all: Vec<_> = (1..FEW).map(|_| rush.comes()).collect();
        assert!(poll!(Box::pin(rush.passes(&*world.clock))).is_ready(), "these are few");
        all.push(rush.comes());
        all.push(rush.comes());
        let mut waiting = Box::pin(rush.passes(&*world.clock));
        assert!(poll!(&mut waiting).is_pending());
        all.pop();
        assert!(poll!(&mut waiting).is_pending());
        all.pop();
        assert!(poll!(&mut waiting).is_ready());
    }
}
