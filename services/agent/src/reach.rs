//! Whether this instance reaches its API server, as whoever keeps the Lease finds out every few seconds; and whoever doubts it has it
//! asked at once.

use std::sync::Arc;

use events::observation::Observed;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::kubernetes::ApiError;
use crate::outbox::Outbox;

/// See the module.
pub struct ApiServerReach {
    outbox: Arc<Outbox>,
    is_lost: Mutex<bool>,
    doubt: Notify,
}

impl ApiServerReach {
    /// Reached, as far as is known.
    #[must_use]
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, is_lost: Mutex::new(false), doubt: Notify::new() }
    }

    /// It answered.
    pub fn found(&self) {
        if std::mem::take(&mut *self.is_lost.lock()) {
            self.outbox.report(Observed::ApiServerReached {});
        }
    }

    /// It did not answer, or not as whoever applies needs it.
    pub fn lost(&self, error: &ApiError) {
        // It answers, and is busy.
        if matches!(error.code(), 409 | 429) {
            return;
        }
        if !std::mem::replace(&mut *self.is_lost.lock(), true) {
            self.outbox.report(Observed::ApiServerLost { reason: error.to_string() });
        }
    }

    /// Something did not get through to it.
    pub fn doubts(&self, error: &ApiError) {
        if error.status().is_none() {
            self.doubt.notify_one();
        }
    }

    /// Returns once somebody doubts.
    pub async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use chassis::metrics::Counter;
    use tunnel::wire::Acknowledged;
    use world::World;

    use super::*;

    #[tokio::test]
    async fn each_change_is_told_once() {
        let outbox = Arc::new(Outbox::new(World::real(), Counter::default()));
        outbox.begin(1);
        let reach = ApiServerReach::new(Arc::clone(&outbox));
        let refused = ApiError::Unreachable { detail: "refused".to_owned() };
        reach.found();
        reach.lost(&refused);
        reach.lost(&refused);
        reach.found();
        reach.found();
        let batch = outbox.next(Acknowledged { epoch: 0, sequence: 0 }).expect("a batch");
        let told: Vec<Observed> = batch.observations.into_iter().map(|one| one.what).collect();
        let lost = Observed::ApiServerLost { reason: refused.to_string() };
        assert_eq!(told, [lost, Observed::ApiServerReached {}]);
    }

    #[tokio::test]
    async fn a_doubt_is_kept_until_somebody_asks() {
        let outbox = Arc::new(Outbox::new(World::real(), Counter::default()));
        let reach = ApiServerReach::new(outbox);
        reach.doubts(&ApiError::Unreachable { detail: "refused".to_owned() });
        reach.doubted().await;
    }
}
