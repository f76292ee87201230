//! What is counted.

use chassis::Metrics;
use chassis::metrics::prometheus_client::metrics::counter::Counter;
use chassis::metrics::prometheus_client::metrics::gauge::Gauge;

/// The agent's metrics. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub(crate) api_reads: Counter,
    /// Dry runs at the API server, each attempt.
    pub api_dry_runs: Counter,
    pub(crate) api_writes: Counter,
    pub(crate) api_watches: Counter,
    pub(crate) api_lease_requests: Counter,
    pub(crate) api_failures: Counter,
    pub(crate) syncs: Counter,
    pub(crate) sync_failures: Counter,
    pub(crate) drift_corrections: Counter,
    pub(crate) objects: Gauge,
    pub(crate) lease_held: Gauge,
    pub(crate) tunnel_open: Gauge,
}

impl Counts {
    /// All of them, at nothing.
    #[must_use]
    pub fn register(metrics: &Metrics) -> Self {
        let counts = Self::default();
        let counters = [
            ("api_reads", "Reads of the API server", &counts.api_reads),
            ("api_dry_runs", "Dry runs at the API server", &counts.api_dry_runs),
            ("api_writes", "Writes to the API server", &counts.api_writes),
            ("api_watches", "Watches opened at the API server", &counts.api_watches),
            ("api_lease_requests", "Requests for the Lease", &counts.api_lease_requests),
            ("api_failures", "Requests refused or not answered, of all kinds", &counts.api_failures),
            ("syncs", "Syncs that ended, however", &counts.syncs),
            ("sync_failures", "Syncs that failed", &counts.sync_failures),
            ("drift_corrections", "Objects set right after somebody changed them", &counts.drift_corrections),
        ];
        for (name, help, counter) in counters {
            metrics.register(&format!("agent_{name}"), help, counter.clone());
        }
        let gauges = [
            ("objects", "Objects that are owned here, 0 on a standby", &counts.objects),
            ("lease_held", "This instance holds the Lease", &counts.lease_held),
            ("tunnel_open", "The tunnel to the server is open", &counts.tunnel_open),
        ];
        for (name, help, gauge) in gauges {
            metrics.register(&format!("agent_{name}"), help, gauge.clone());
        }
        counts
    }
}
