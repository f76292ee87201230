//! What is counted.

chassis::metrics! {
    /// The relay's metrics.
    pub struct Counts in "kasbah_event_relay" {
        /// Events that this process exported
        pub(crate) exported: Counter,
        /// Exports that were given up and begun again, because another replica took over or the log failed
        pub(crate) restarts: Counter,
        /// Seconds between the last exported event's record and its export; of the process that exports
        pub(crate) export_lag_seconds: Gauge,
        /// Attempts to send an event to a webhook
        pub(crate) attempts: Counter {
            outcome: "`delivered`, `retried`, `refused` (the receiver does not want the event), `dead_letter` (given up), `parked` (nothing is sent any more)",
        },
        /// Time that receivers took
        pub(crate) attempt_seconds: Seconds,
        /// Subscribers that are this process's own
        pub(crate) subscriptions: Gauge {
            way: "how events get out: `webhook`, `nats`, `sse` (readers of `/api/events`)",
            state: "`active`, `retrying`, `parked`, `paused`",
        },
        /// Age of the oldest event that a subscriber wants and that was not sent, or not acknowledged on NATS, in seconds: of the 20 that lag most
        pub(crate) subscription_lag_seconds: Top {
            organization: "the id of its organization",
            subscription: "its name; of a reader who it is, such as `user:<id>`",
            way: "`webhook`, `nats`, `sse`",
            state: "`active`, `retrying`, `parked`, `paused`",
        },
        /// Events that a subscriber is behind: of the 20 that are most behind
        pub(crate) subscription_lag_events: Top {
            organization: "the id of its organization",
            subscription: "its name; of a reader who it is, such as `user:<id>`",
            way: "`webhook`, `nats`, `sse`",
            state: "`active`, `retrying`, `parked`, `paused`",
        },
    }
}
