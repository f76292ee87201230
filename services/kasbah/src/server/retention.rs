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
use tunnel_gateway::Cursors;
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
    /// Minimum time to keep observations and refused commands; decisions are kept forever
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_observations: Duration,
    /// Maximum size in MiB; beyond it, older records are removed before that time
    #[arg(long, env = "KASBAH_KEEP_OBSERVATIONS_MIB", value_name = "MIB", default_value_t = 100 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_observations_mib: u64,
    /// Minimum time to keep audit records of users and jobs
    #[arg(long, env = "KASBAH_KEEP_AUDIT", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_audit: Duration,
    /// Maximum size in MiB; beyond it, older records are removed before that time
    #[arg(long, env = "KASBAH_KEEP_AUDIT_MIB", value_name = "MIB", default_value_t = 20 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_audit_mib: u64,
    /// Minimum time to keep recorded sessions
    #[arg(long, env = "KASBAH_KEEP_RECORDINGS", value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    pub keep_recordings: Duration,
    /// Maximum size in MiB; beyond it, older recordings are removed before that time
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Golden snapshots of a projection, by fold version: `tests/golden_snapshots/<projection>.v<version>.snapshot` of its crate. Files are only
    /// ever added.
    fn golden_snapshots(projection: &str) -> BTreeMap<u32, Vec<u8>> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folders = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
        let files =
            folders.filter_map(|folder| std::fs::read_dir(folder.join("tests/golden_snapshots")).ok());
        let mut golden = BTreeMap::new();
        for file in files.flatten() {
            let file: PathBuf = file.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            let Some((of, version)) = name.strip_suffix(".snapshot").and_then(|name| name.rsplit_once(".v"))
            else {
                panic!("{name} is no <projection>.v<version>.snapshot");
            };
            if of == projection {
                golden.insert(version.parse().unwrap(), std::fs::read(&file).unwrap());
            }
        }
        golden
    }

    #[test]
    fn each_projection_of_what_leaves_the_log_reads_its_former_version() {
        for anchored in &ANCHORED {
            let (name, newest) = (anchored.name(), anchored.fold_version());
            let golden = golden_snapshots(name);
            for version in newest.saturating_sub(1).max(1)..=newest {
                let snapshot = golden.get(&version);
                let snapshot = snapshot.unwrap_or_else(|| {
                    panic!("{name} has no golden snapshot of fold version {version}: add it with KASBAH_GOLDEN=add")
                });
                assert!(
                    anchored.reads(version, snapshot),
                    "{name} does not read fold version {version}, and what that was folded from may have left the log"
                );
            }
            assert!(
                !anchored.reads(newest + 1, &golden[&newest]),
                "{name} takes a newer version for its own"
            );
        }
    }
}
