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
        /// Connections beside the tunnel, on which requests to the cluster's API come
        pub(crate) bulk_connections: Gauge,
        /// Times that the server was dialled
        pub(crate) dials: Counter { outcome: "`opened`, `refused` (the token is not good, or the server says no), `failed`" },
        /// This instance holds the agent's Lease (1) or not (0)
        pub(crate) lease_held: Gauge,
        /// Objects that are owned here, 0 on a standby
        pub(crate) objects: Gauge,
        /// Syncs that ended
        pub(crate) syncs: Counter { outcome: "`succeeded`, `unhealthy`, `failed`, `superseded`, `interrupted`" },
        /// Objects that were applied, in syncs and against drift
        pub(crate) applied_objects: Counter { outcome: "`created`, `changed`, `replaced`, `unchanged`, `failed`" },
        /// Objects on prune lists that were dealt with
        pub(crate) pruned_objects: Counter { outcome: "`deleted`, `gone` (already), `kept` (it is not ours, or something in it is not), `failed`" },
        /// Objects set right after somebody changed them
        pub(crate) drift_corrections: Counter,
        /// Observations that the server has not made durable yet
        pub(crate) queued_observations: Gauge,
        /// Observations that were left out because too many waited; the server is told of the gap
        pub(crate) dropped_observations: Counter,
        /// Attempts at requests to the API server; of a watch, its opening
        pub api_requests: Counter {
            kind: "`read`, `dry_run`, `write`, `watch`, `lease`",
            outcome: "`ok`, `refused` (it said no), `unreachable` (it did not answer, or nothing that can be read)",
        },
        /// How long the API server takes to answer
        pub(crate) api_request_seconds: Seconds { kind: "`read`, `dry_run`, `write`, `watch`, `lease`" },
        /// Requests to the API server that are under way, watches aside
        pub(crate) api_requests_in_flight: Gauge,
        /// Requests of people and jobs to the cluster's API
        pub cluster_api_requests: Counter { outcome: "`answered` (by the API server, whatever it said), `refused` (by the agent: no good pass, or no grant for it), `unreachable` (no API server), `late` (it did not answer in time)" },
        /// Requests of people and jobs to the cluster's API that are under way, with watches and connections into pods
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
        let outcome = match outcome {
            SyncOutcome::Succeeded => "succeeded",
            SyncOutcome::Unhealthy => "unhealthy",
            SyncOutcome::Failed => "failed",
            SyncOutcome::Superseded => "superseded",
            SyncOutcome::Interrupted => "interrupted",
        };
        self.syncs.with([outcome]).inc();
    }
}
