//! What agents saw, what people did in clusters and what was refused is kept for a while; decisions for good.

use std::time::Duration;

use chassis::Shutdown;
use chassis::args::parse_duration;
use delivery::model::DeliveryState;
use events::Stream;
use events::access::Access;
use store::Parts;
use store::Projection as _;
use store::retention::{Anchored, Limits, keep};
use tunnel_gateway::model::Cursors;
use world::World;

/// The streams that records leave.
const LEFT: &[Stream] = &[Stream::Observations, Stream::Refusals, Stream::Audit];
/// All projections that are folded from those, in whichever service.
const ANCHORED: [Anchored; 2] = [Anchored::of::<DeliveryState>(), Anchored::of::<Cursors>()];

/// What this may do on NATS, beside what authz may, in whose process it runs.
pub(super) const ACCESS: Access = Access {
    reads: LEFT,
    lets_go: LEFT,
    anchors: &[DeliveryState::NAME, Cursors::NAME],
    ..Access::of("authz")
};

/// How long records are kept that need not be kept for good.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct RetentionArgs {
    /// How long what agents saw and did, what people did in clusters, and commands that were refused, are kept at least; decisions are kept for good
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_observations: Duration,
    /// MiB of them from which on older ones go before their time
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS_MIB", value_name = "MIB", default_value_t = 100 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_observations_mib: u64,
}

impl RetentionArgs {
    /// Lets old records go until the process stops.
    pub(super) async fn run(self, parts: Parts, world: World, shutdown: Shutdown) -> anyhow::Result<()> {
        let bytes = self.keep_observations_mib.saturating_mul(1024 * 1024);
        let limits = Limits { streams: LEFT.to_vec(), age: self.keep_observations, bytes };
        keep(&parts, &world, &limits, &ANCHORED, shutdown.requested()).await;
        Ok(())
    }
}
