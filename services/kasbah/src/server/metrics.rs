//! What the process counts of what its services share: bus, log, projections, NATS, its folder.

use std::path::PathBuf;

use bus::NatsBus;
use chassis::Metrics;
use chassis::metrics::Declared;
use chassis::tls::CertificateMetrics;
use chassis::traces::TraceMetrics;
use store::jetstream::Connection;
use world::World;

chassis::metrics! {
    /// Of the bus.
    pub struct BusMetrics in "kasbah_bus" {
        /// Requests between services, by the outcome at the caller
        pub(super) requests: Counter {
            request: "service and verb, such as `authz.decide`",
            outcome: "`ok`; a refusal: `invalid`, `unauthenticated`, `denied`, `not_found`, `conflict`, `unavailable`, `internal`; or the bus: `no_responder`, `deadline`, `too_large`, `bad_subject`, `away`",
        },
        /// Time that callers waited for an answer
        pub(super) request_seconds: Seconds { request: "service and verb, such as `authz.decide`" },
        /// Notices sent to subscribers
        pub(super) notices: Counter { notice: "such as `repository.pushed`", outcome: "`sent`, `failed`" },
    }
}

chassis::metrics! {
    /// Of the log.
    pub struct LogMetrics in "kasbah_log" {
        /// Attempts to append commits and batches
        pub(super) appends: Counter {
            stream: "`decisions`, `observations`, `objects`, `audit`, `refusals`, `recordings`, `exports`",
            outcome: "`appended`, `duplicate` (already recorded), `conflict` (another writer was faster), `unknown` (retried), `away`, `read_only`, `too_large`, `invalid`",
        },
        /// Time until the log acknowledges an append as durable
        pub(super) append_seconds: Seconds { stream: "`decisions`, `observations`, `objects`, `audit`, `refusals`, `recordings`, `exports`" },
        /// Records at the log's end that a projection of this process has not folded yet
        pub(super) projection_lag_records: Gauge { projection: "its name, such as `delivery`" },
    }
}

chassis::metrics! {
    /// Of what leaves the log.
    pub struct RetentionMetrics in "kasbah_retention" {
        /// Bytes over the maximum size that are kept, because no younger records are removed for their size or none could be yet
        pub(super) excess_bytes: Gauge { stream: "`observations` (with refusals), `objects`, `audit`, `recordings`, `exports`" },
    }
}

chassis::metrics! {
    /// Of the bus's connection to NATS, where there is NATS.
    pub struct NatsBusMetrics in "kasbah_nats_bus" {
        /// A NATS server is connected for the bus (1) or not (0)
        connected: Gauge,
        /// Times that the bus was connected
        connects: Counter,
    }
}

chassis::metrics! {
    /// Of the log's connection to NATS, where there is NATS.
    pub struct NatsLogMetrics in "kasbah_nats_log" {
        /// A NATS server is connected for the log (1) or not (0)
        connected: Gauge,
        /// Times that the log was connected
        connects: Counter,
    }
}

chassis::metrics! {
    /// Of the data folder.
    pub struct FolderMetrics in "kasbah_data_folder" {
        /// Free space on the disk of the data folder
        free_bytes: Gauge,
        /// Size of the disk of the data folder
        size_bytes: Gauge,
    }
}

/// Everything that a process of `kasbah up` may count, in the order in which people read of it.
pub const DECLARED: &[&[Declared]] = &[
    console::metrics::Counts::DECLARED,
    BusMetrics::DECLARED,
    LogMetrics::DECLARED,
    RetentionMetrics::DECLARED,
    repo_poller::metrics::Counts::DECLARED,
    delivery::metrics::Counts::DECLARED,
    tunnel_gateway::metrics::Counts::DECLARED,
    resource_indexer::metrics::Counts::DECLARED,
    event_relay::metrics::Counts::DECLARED,
    NatsBusMetrics::DECLARED,
    NatsLogMetrics::DECLARED,
    FolderMetrics::DECLARED,
    CertificateMetrics::DECLARED,
    TraceMetrics::DECLARED,
    chassis::metrics::BuildMetrics::DECLARED,
    chassis::metrics::ProcessMetrics::DECLARED,
    chassis::metrics::RuntimeMetrics::DECLARED,
];

/// Shows how the connection of the bus stands.
pub(super) fn watch_bus(metrics: &Metrics, bus: NatsBus) {
    let counts = NatsBusMetrics::register(metrics);
    metrics.before_shown(move || {
        counts.connected.set(i64::from(bus.is_connected()));
        counts.connects.inc_by(bus.connects().saturating_sub(counts.connects.get()));
    });
}

/// Shows how the connection of the log stands.
pub(super) fn watch_log(metrics: &Metrics, log: Connection) {
    let counts = NatsLogMetrics::register(metrics);
    metrics.before_shown(move || {
        counts.connected.set(i64::from(log.is_connected()));
        counts.connects.inc_by(log.connects().saturating_sub(counts.connects.get()));
    });
}

/// Shows how much room there is for the data folder.
pub(super) fn watch_folder(metrics: &Metrics, world: &World, folder: PathBuf) {
    let counts = FolderMetrics::register(metrics);
    let disk = std::sync::Arc::clone(&world.disk);
    metrics.before_shown(move || {
        if let Ok(space) = disk.space(&folder) {
            counts.free_bytes.set(i64::try_from(space.free).unwrap_or(i64::MAX));
            counts.size_bytes.set(i64::try_from(space.size).unwrap_or(i64::MAX));
        }
    });
}
