//! What is counted.

use events::delivery::{DeliveryEvent, SyncOutcome};

chassis::metrics! {
    /// Delivery's metrics.
    pub struct Counts in "kasbah_delivery" {
        /// Events that delivery decided by itself and this process appended
        pub(crate) events: Counter { event: "its type, such as `kasbah.bundle.desired`, `kasbah.bundle.held`" },
        /// Syncs whose end this process recorded
        pub(crate) syncs: Counter { outcome: "`succeeded`, `unhealthy`, `failed`, `superseded`, `interrupted`" },
        /// Failed attempts at a source that are retried
        pub(crate) failures: Counter,
    }
}

impl Counts {
    pub(crate) fn recorded(&self, event: &DeliveryEvent) {
        self.events.with([event.event_type()]).inc();
        if let DeliveryEvent::SyncFinished(finished) = event {
            let outcome = match finished.outcome {
                SyncOutcome::Succeeded => "succeeded",
                SyncOutcome::Unhealthy => "unhealthy",
                SyncOutcome::Failed => "failed",
                SyncOutcome::Superseded => "superseded",
                SyncOutcome::Interrupted => "interrupted",
            };
            self.syncs.with([outcome]).inc();
        }
    }
}
