//! Prometheus metrics.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
pub use prometheus_client;
use prometheus_client::registry::{Metric, Registry};

/// The process's metrics. Cheap to clone; what is registered stays.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// None yet. Names are given without `kasbah_`, which each gets in front, and counters without `_total`.
    #[must_use]
    pub fn new() -> Self {
        Self { registry: Arc::new(Mutex::new(Registry::with_prefix("kasbah"))) }
    }

    /// Registers a metric; keep a clone of it to change it. `name` is service, noun, unit; `help` has no final dot.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().register(name, help, metric);
    }

    /// All metrics in the text format of OpenMetrics.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a string fails only when a metric's own encoding does: what was written so far is still worth showing.
        let _written = prometheus_client::encoding::text::encode(&mut text, &self.registry.lock());
        text
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn a_registered_counter_is_shown_with_prefix_and_suffix() {
        let metrics = Metrics::new();
        let pushes: Counter = Counter::default();
        metrics.register("console_pushes", "Pushes announced by webhooks", pushes.clone());
        pushes.inc_by(3);
        assert!(metrics.encode().contains("kasbah_console_pushes_total 3\n"), "{}", metrics.encode());
    }
}
