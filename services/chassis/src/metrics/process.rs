//! What the process takes of its machine, under the names that Prometheus' own libraries use.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use world::World;
use world::disk::Disk;

use crate::Metrics;

crate::metrics! {
    /// What the process takes of its machine.
    pub struct ProcessMetrics in "process" {
        /// Processor time that the process has used
        cpu_seconds: Time,
        /// Resident memory of the process
        resident_memory_bytes: Gauge,
        /// Virtual memory of the process
        virtual_memory_bytes: Gauge,
        /// Files and sockets that are open
        open_fds: Gauge,
        /// Files and sockets that may be open at once
        max_fds: Gauge,
        /// Threads
        threads: Gauge,
        /// When the process started, in seconds since 1970
        start_time_seconds: Gauge,
    }
}

crate::metrics! {
    /// Which program it is.
    pub struct BuildMetrics in "kasbah" {
        /// Always 1: which version runs
        build_info: Gauge { version: "the program's version" },
    }
}

crate::metrics! {
    /// What the program does at once.
    pub struct RuntimeMetrics in "kasbah" {
        /// Tasks of the program that have not ended
        tasks: Gauge,
    }
}

/// Shows which version runs.
pub fn show_version(metrics: &Metrics, version: &'static str) {
    BuildMetrics::register(metrics).build_info.with([version]).set(1);
}

/// Shows them. Where the machine does not tell (it is not Linux), they stay at nothing. Call it inside a tokio runtime, whose tasks are
/// shown, too.
pub fn watch_process(metrics: &Metrics, world: &World) {
    let shown = ProcessMetrics::register(metrics);
    let ticks = rustix::param::clock_ticks_per_second();
    let disk = Arc::clone(&world.disk);
    let runtime = RuntimeMetrics::register(metrics);
    let tasks = Handle::try_current().map(|handle| handle.metrics());
    metrics.before_shown(move || {
        look(&shown, &*disk, ticks);
        if let Ok(tasks) = &tasks {
            runtime.tasks.set(i64::try_from(tasks.num_alive_tasks()).unwrap_or(i64::MAX));
        }
    });
}

fn look(shown: &ProcessMetrics, disk: &dyn Disk, ticks: u64) {
    let text =
        |path: &str| String::from_utf8(disk.read(Path::new(path)).unwrap_or_default()).unwrap_or_default();
    if let Some(stat) = Stat::read(&text("/proc/self/stat")) {
        #[expect(clippy::cast_precision_loss, reason = "centuries of processor time are exact")]
        let seconds = stat.cpu_ticks as f64 / ticks.max(1) as f64;
        shown.cpu_seconds.inc_by((seconds - shown.cpu_seconds.get()).max(0.0));
        shown.virtual_memory_bytes.set(stat.virtual_bytes);
        shown.threads.set(stat.threads);
        let since_boot = i64::try_from(stat.started_ticks / ticks.max(1)).unwrap_or(0);
        if let Some(boot) = field(&text("/proc/stat"), "btime ") {
            shown.start_time_seconds.set(boot.saturating_add(since_boot));
        }
    }
    if let Some(kilobytes) = field(&text("/proc/self/status"), "VmRSS:") {
        shown.resident_memory_bytes.set(kilobytes.saturating_mul(1024));
    }
    if let Some(most) = field(&text("/proc/self/limits"), "Max open files") {
        shown.max_fds.set(most);
    }
    let open = disk.list(Path::new("/proc/self/fd")).map_or(0, |files| files.len());
    shown.open_fds.set(i64::try_from(open).unwrap_or(i64::MAX));
}

/// The number behind a line's beginning.
fn field(text: &str, beginning: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What of `/proc/self/stat` is shown (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: i64,
    started_ticks: u64,
    virtual_bytes: i64,
}

impl Stat {
    /// The program's name, in parentheses, may hold anything; what follows has a fixed order.
    fn read(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let signed = |place: usize| i64::try_from(number(place)?).ok();
        Some(Self {
            cpu_ticks: number(11)?.saturating_add(number(12)?),
            threads: signed(17)?,
            started_ticks: number(19)?,
            virtual_bytes: signed(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_passed_over() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 9 0 1234 4096 10 184";
        let stat = Stat { cpu_ticks: 200, threads: 9, started_ticks: 1234, virtual_bytes: 4096 };
        assert_eq!(Stat::read(text), Some(stat));
        assert_eq!(Stat::read("7 (cut"), None);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn this_process_is_seen() {
        let (metrics, world) = (Metrics::new(), World::real());
        watch_process(&metrics, &world);
        let text = metrics.encode();
        for name in
            ["process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_threads"]
        {
            let value = field(&text, &format!("{name} ")).unwrap();
            assert!(value > 0, "{name} is {value}");
        }
        let task = world.spawner.spawn("endless", Box::pin(std::future::pending()));
        assert_eq!(field(&metrics.encode(), "kasbah_tasks "), Some(1));
        task.abort();
        let started = field(&text, "process_start_time_seconds ").unwrap();
        let age = world.clock.now_millis() / 1000 - started;
        assert!((-1..24 * 3600).contains(&age), "started {age} s ago");
    }
}
