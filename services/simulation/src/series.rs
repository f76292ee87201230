//! Many seeds, one after another on each core.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::faults::Kind;
use crate::run::{Report, Setting, run};

/// How a series went.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Seeds that were run.
    pub seeds: usize,
    /// Steps of all of them.
    pub steps: u64,
    /// How often each fault took effect.
    pub fired: BTreeMap<&'static str, u64>,
    /// The longest time after the last push until everything was as it is wanted.
    pub settled: Duration,
    /// Those that failed.
    pub failed: Vec<Report>,
    /// Those with fewer steps or faults than they should have.
    pub short: Vec<Report>,
}

impl Series {
    /// Runs seeds on so many cores.
    #[must_use]
    pub fn run(seeds: &[u64], cores: usize) -> Self {
        let next = AtomicUsize::new(0);
        let series = Mutex::new(Self::default());
        std::thread::scope(|scope| {
            for _ in 0..cores.max(1) {
                scope.spawn(|| {
                    while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let report = run(Setting::of(*seed));
                        series.lock().take(report);
                    }
                });
            }
        });
        let mut series = series.into_inner();
        series.failed.sort_by_key(|report| report.seed);
        series.short.sort_by_key(|report| report.seed);
        series
    }

    fn take(&mut self, report: Report) {
        self.seeds += 1;
        self.steps += report.steps;
        self.settled = self.settled.max(report.settled.unwrap_or_default());
        for (name, count) in &report.fired {
            *self.fired.entry(name).or_default() += count;
        }
        if report.failure.is_some() {
            self.failed.push(report);
        } else if report.short_of().is_some() {
            self.short.push(report);
        }
    }

    /// Kinds of faults that never took effect.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let kinds = Kind::ALL.iter().map(|kind| kind.name());
        kinds.filter(|name| !self.fired.contains_key(name)).collect()
    }
}

/// Cores of this machine.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
