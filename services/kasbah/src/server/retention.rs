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
const LEFT: &[Stream] = &[Stream::Observations, Stream::Refusals, Stream::Audit, Stream::Recordings];
/// All projections that are folded from those, in whichever service: from observations.
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
    /// How long what agents saw and did, and commands that were refused, are kept at least; decisions are kept for good
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_observations: Duration,
    /// MiB of them from which on older ones go before their time
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS_MIB", value_name = "MIB", default_value_t = 100 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_observations_mib: u64,
    /// How long the records of what people and jobs did in clusters are kept at least
    #[arg(long, env = "KASBAH_KEEP_AUDIT", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_audit: Duration,
    /// MiB of them from which on older ones go before their time
    #[arg(long, env = "KASBAH_KEEP_AUDIT_MIB", value_name = "MIB", default_value_t = 20 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_audit_mib: u64,
    /// How long what went through recorded sessions is kept at least
    #[arg(long, env = "KASBAH_KEEP_RECORDINGS", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_recordings: Duration,
    /// MiB of it from which on older recordings go before their time
    #[arg(long, env = "KASBAH_KEEP_RECORDINGS_MIB", value_name = "MIB", default_value_t = 20 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_recordings_mib: u64,
}

impl RetentionArgs {
    /// Lets old records go until the process stops.
    pub(super) async fn run(self, parts: Parts, world: World, shutdown: Shutdown) -> anyhow::Result<()> {
        let limits = |first, further: &[Stream], age, mib: u64| Limits {
            first,
            further: further.to_vec(),
            age,
            bytes: mib.saturating_mul(1024 * 1024),
        };
        let observations = limits(
            Stream::Observations,
            &[Stream::Refusals],
            self.keep_observations,
            self.keep_observations_mib,
        );
        let audit = limits(Stream::Audit, &[], self.keep_audit, self.keep_audit_mib);
        let recordings = limits(Stream::Recordings, &[], self.keep_recordings, self.keep_recordings_mib);
        tokio::join!(
            keep(&parts, &world, &observations, &ANCHORED, shutdown.requested()),
            keep(&parts, &world, &audit, &[], shutdown.requested()),
            keep(&parts, &world, &recordings, &[], shutdown.requested()),
        );
        Ok(())
    }
}
