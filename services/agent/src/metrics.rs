//! What is counted.

use std::time::Duration;

use chassis::metrics::Declared;
use chassis::traces::TraceMetrics;
use events::delivery::SyncOutcome;
use events::observation::Write;

use crate::kubernetes::ApiError;

chassis::metrics! {
    /// The agent's metrics. Cheap to clone.
    pub struct Counts in "kasbah_agent" {
        /// The tunnel to the server is open (1) or not (0)
        pub(crate) tunnel_open: Gauge,
        /// Bulk connections, which carry requests to the cluster's API
        pub(crate) bulk_connections: Gauge,
        /// Attempts to connect to the server
        pub(crate) dials: Counter { outcome: "`opened`, `refused` (invalid token, or refused by the server), `failed`" },
        /// This instance holds the agent's Lease (1) or not (0)
        pub(crate) lease_held: Gauge,
        /// Objects that are owned here, 0 on a standby
        pub(crate) objects: Gauge,
        /// Syncs that ended
        pub(crate) syncs: Counter { outcome: "`succeeded`, `unhealthy`, `failed`, `superseded`, `interrupted`" },
        /// Objects that were applied, in syncs and against drift
        pub(crate) applied_objects: Counter { outcome: "`created`, `changed`, `replaced`, `unchanged`, `failed`" },
        /// Processed objects of prune lists
        pub(crate) pruned_objects: Counter { outcome: "`deleted`, `gone` (already), `kept` (it, or an object in it, does not belong to the source), `failed`" },
        /// Objects that were corrected after drift
        pub(crate) drift_corrections: Counter,
        /// Observations that the server has not made durable yet
        pub(crate) queued_observations: Gauge,
        /// Observations that were dropped because too many were waiting; the server receives a gap marker
        pub(crate) dropped_observations: Counter,
        /// Objects that are observed here, 0 on a standby
        pub(crate) observed_objects: Gauge,
        /// Feeds of the observer: kinds in all namespaces, or in one
        pub(crate) object_feeds: Gauge,
        /// Feeds that see nothing now, for want of rights or because the API server does not answer for that kind
        pub(crate) blind_kinds: Gauge,
        /// Bytes of object changes that the server has not made durable yet
        pub(crate) queued_object_bytes: Gauge,
        /// Kinds that were listed again because states of objects may have been missed; the server receives a gap marker
        pub(crate) object_relists: Counter,
        /// Request attempts to the API server; a watch counts once, when it opens
        pub api_requests: Counter {
            kind: "`read`, `dry_run`, `write`, `watch`, `lease`",
            outcome: "`ok`, `refused`, `unreachable` (no answer, or an unreadable one)",
        },
        /// Time until the API server answers
        pub(crate) api_request_seconds: Seconds { kind: "`read`, `dry_run`, `write`, `watch`, `lease`" },
        /// Open requests to the API server, without watches
        pub(crate) api_requests_in_flight: Gauge,
        /// Requests of users and jobs to the cluster's API
        pub cluster_api_requests: Counter { outcome: "`answered` (by the API server, with any status), `refused` (by the agent: invalid pass, or no grant), `unreachable` (no API server), `late` (no answer in time)" },
        /// Open requests of users and jobs to the cluster's API, including watches and connections into pods
        pub cluster_api_streams: Gauge,
    }
}

/// Everything that an agent may count, in the order in which people read of it.
pub const DECLARED: &[&[Declared]] = &[
    Counts::DECLARED,
    TraceMetrics::DECLARED,
    chassis::metrics::BuildMetrics::DECLARED,
    chassis::metrics::ProcessMetrics::DECLARED,
    chassis::metrics::RuntimeMetrics::DECLARED,
];

impl Counts {
    pub(crate) fn asked(&self, kind: &'static str, took: Duration, failed: Option<&ApiError>) {
        let outcome = match failed {
            None => "ok",
            Some(ApiError::Refused(_)) => "refused",
            Some(_) => "unreachable",
        };
        self.api_requests.with([kind, outcome]).inc();
        self.api_request_seconds.with([kind]).observe(took.as_secs_f64());
    }

    pub(crate) fn applied(&self, write: Option<Write>) {
        let outcome = match write {
            Some(Write::Created) => "created",
            Some(Write::Changed) => "changed",
            Some(Write::Replaced) => "replaced",
            Some(Write::Unchanged) => "unchanged",
            None => "failed",
        };
        self.applied_objects.with([outcome]).inc();
    }

    pub(crate) fn synced(&self, outcome: SyncOutcome) {
        self.syncs.with([outcome_name(outcome)]).inc();
    }
}

/// A sync's outcome, in metrics and logs.
pub(crate) fn outcome_name(outcome: SyncOutcome) -> &'static str {
    match outcome {
        SyncOutcome::Succeeded => "succeeded",
        SyncOutcome::Unhealthy => "unhealthy",
        SyncOutcome::Failed => "failed",
        SyncOutcome::Superseded => "superseded",
        SyncOutcome::Interrupted => "interrupted",
    }
}
