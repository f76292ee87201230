//! What is counted.

use chassis::Metrics;
use chassis::metrics::prometheus_client::metrics::counter::Counter;
use chassis::metrics::prometheus_client::metrics::gauge::Gauge;

/// The gateway's metrics.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) tunnels: Gauge,
    pub(crate) refusals: Counter,
    pub(crate) pushes: Counter,
    pub(crate) push_failures: Counter,
    pub(crate) objects_sent: Counter,
    pub(crate) observations: Counter,
    pub(crate) batches_refused: Counter,
}

impl Counts {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let counts = Self::default();
        let name = |noun: &str| format!("tunnel_gateway_{noun}");
        metrics.register(&name("tunnels"), "Tunnels that are open", counts.tunnels.clone());
        metrics.register(&name("refusals"), "Tunnels that were refused", counts.refusals.clone());
        metrics.register(&name("pushes"), "Desired states that agents took", counts.pushes.clone());
        metrics.register(
            &name("push_failures"),
            "Desired states that did not reach their agent",
            counts.push_failures.clone(),
        );
        metrics.register(
            &name("objects_sent"),
            "Pages and objects sent to agents",
            counts.objects_sent.clone(),
        );
        metrics.register(&name("observations"), "Observations made durable", counts.observations.clone());
        metrics.register(
            &name("batches_refused"),
            "Batches of observations refused",
            counts.batches_refused.clone(),
        );
        counts
    }
}
