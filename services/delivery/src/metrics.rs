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
        /// Sources of the agents that are this process's own, by their headline
        pub(crate) sources: Gauge { state: "a state of [a source](../status.md), such as `in-sync`, `degraded`, `out-of-sync`" },
        /// Agents that are this process's own
        pub(crate) agents: Gauge { state: "`connected`, `rejected` (its newest configuration), `stale`, `unknown`" },
        /// Agents whose newest configuration was rejected
        pub(crate) rejected_configurations: Gauge,
        /// Since when a source fails, in seconds since 1970: of the 20 that fail longest
        pub(crate) failing_sources_since_timestamp_seconds: Top {
            organization: "the id of its organization",
            agent: "the name of its agent",
            source: "its name",
            state: "`degraded`, `out-of-sync`, `rejected`, `unknown`",
            reason: "the reason of its [headline](../status.md)",
        },
        /// Since when an agent fails, in seconds since 1970, with a series for each reason: of the 20 that fail longest
        pub(crate) failing_agents_since_timestamp_seconds: Top {
            organization: "the id of its organization",
            agent: "its name",
            state: "`rejected`, `stale`, `unknown`",
            reason: "such as `agent-gone`, `applier-gone`, `api-server-unreachable`, `configuration-rejected`",
        },
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
