//! Waiting by the world's clock.

use std::future::Future;
use std::time::Duration;

use world::World;

/// Waits for `future`, but not longer than `limit`; `None` when the time is over.
pub(crate) async fn within<F: Future>(world: &World, limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = world.clock.sleep(limit) => None,
    }
}
