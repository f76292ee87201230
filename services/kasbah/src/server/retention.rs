//! What agents did and saw, what people did in clusters and what was refused is kept for a while; decisions for good.

use std::time::Duration;

use chassis::args::parse_duration;
use chassis::{Metrics, Shutdown};
use delivery::model::DeliveryState;
use events::Stream;
use events::access::Access;
use events::observation::STATED_WITHIN;
use store::Parts;
use store::Projection as _;
use store::retention::{Anchored, Limits, keep};
use tunnel_gateway::{ObjectCursors, ObservationCursors};
use world::World;

use super::metrics::RetentionMetrics;

/// The streams that records leave.
const LEFT: &[Stream] = &[
    Stream::Observations,
    Stream::Objects,
    Stream::Refusals,
    Stream::Audit,
    Stream::Recordings,
    Stream::Exports,
];
/// All projections that are folded from observations, in whichever service.
const OF_OBSERVATIONS: [Anchored; 2] =
    [Anchored::of::<DeliveryState>(), Anchored::of::<ObservationCursors>()];
/// The same of changes of objects. Projections on disk have no anchor: they may begin at the horizon, as agents state all that is there again
/// and again.
const OF_OBJECTS: [Anchored; 1] = [Anchored::of::<ObjectCursors>()];

/// What this may do on NATS, beside what authz may, in whose process it runs.
pub(super) const ACCESS: Access = Access {
    reads: LEFT,
    lets_go: LEFT,
    anchors: &[DeliveryState::NAME, ObservationCursors::NAME, ObjectCursors::NAME],
    ..Access::of("authz")
};

/// What is younger never leaves for its size: with it an index of objects can be made anew that lacks nothing.
const OBJECTS_LEAST: Duration = STATED_WITHIN.saturating_mul(2);

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
    /// Minimum time to keep the changes of objects in clusters, and so how far one can look back; 24h or longer
    #[arg(long, env = "KASBAH_KEEP_OBJECTS", value_name = "DURATION", default_value = "30d", value_parser = parse_keep_objects)]
    pub keep_objects: Duration,
    /// Maximum size in MiB; beyond it, changes older than 24h are removed before that time
    #[arg(long, env = "KASBAH_KEEP_OBJECTS_MIB", value_name = "MIB", default_value_t = 100 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_objects_mib: u64,
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
    /// Minimum time to keep exported events, and so how far a subscriber can go back
    #[arg(long, env = "KASBAH_KEEP_EXPORTS", value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    pub keep_exports: Duration,
    /// Maximum size in MiB; beyond it, older events are removed before that time
    #[arg(long, env = "KASBAH_KEEP_EXPORTS_MIB", value_name = "MIB", default_value_t = 10 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_exports_mib: u64,
}

impl RetentionArgs {
    /// Lets old records go until the process stops.
    pub(super) async fn run(
        self,
        parts: Parts,
        world: World,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let counts = RetentionMetrics::register(&metrics);
        let limits = |first, further: &[Stream], age, mib: u64| Limits {
            first,
            further: further.to_vec(),
            age,
            least_age: Duration::ZERO,
            bytes: mib.saturating_mul(1024 * 1024),
        };
        let observations = limits(
            Stream::Observations,
            &[Stream::Refusals],
            self.keep_observations,
            self.keep_observations_mib,
        );
        let objects = Limits {
            least_age: OBJECTS_LEAST,
            ..limits(Stream::Objects, &[], self.keep_objects, self.keep_objects_mib)
        };
        let too_much = |stream: Stream| {
            let excess = counts.excess_bytes.with([stream.as_str()]);
            move |bytes| {
                excess.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        };
        let audit = limits(Stream::Audit, &[], self.keep_audit, self.keep_audit_mib);
        let recordings = limits(Stream::Recordings, &[], self.keep_recordings, self.keep_recordings_mib);
        let exports = limits(Stream::Exports, &[], self.keep_exports, self.keep_exports_mib);
        tokio::join!(
            keep(
                &parts,
                &world,
                &observations,
                &OF_OBSERVATIONS,
                too_much(Stream::Observations),
                shutdown.requested()
            ),
            keep(&parts, &world, &objects, &OF_OBJECTS, too_much(Stream::Objects), shutdown.requested()),
            keep(&parts, &world, &audit, &[], too_much(Stream::Audit), shutdown.requested()),
            keep(&parts, &world, &recordings, &[], too_much(Stream::Recordings), shutdown.requested()),
            keep(&parts, &world, &exports, &[], too_much(Stream::Exports), shutdown.requested()),
        );
        Ok(())
    }
}

fn parse_keep_objects(text: &str) -> Result<Duration, String> {
    let kept = parse_duration(text).map_err(|error| error.to_string())?;
    if kept >= OBJECTS_LEAST {
        return Ok(kept);
    }
    let hours = OBJECTS_LEAST.as_secs() / 3_600;
    Err(format!(
        "the minimum is {hours}h: in that time agents state all objects, and an index that is made anew lacks nothing"
    ))
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
    fn changes_of_objects_are_not_kept_for_less_than_it_takes_to_state_all() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            retention: RetentionArgs,
        }
        let read = |age: &str| <Line as clap::Parser>::try_parse_from(["kasbah", "--keep-objects", age]);
        assert_eq!(read("24h").ok().map(|line| line.retention.keep_objects), Some(OBJECTS_LEAST));
        let refused = read("23h").err().expect("too short").to_string();
        assert!(refused.contains("--keep-objects") && refused.contains("24h"), "{refused}");
    }

    #[test]
    fn each_projection_of_what_leaves_the_log_reads_its_former_version() {
        for anchored in OF_OBSERVATIONS.iter().chain(&OF_OBJECTS) {
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
