//! Some hundreds of seeds, in pieces that run side by side.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use simulation::{Series, Setting, run};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Seeds of one piece, and where tests may take long: enough that each fault takes effect in it.
const PIECE: u64 = 40;
const LONG_PIECE: u64 = 200;

fn piece(number: u64) {
    let size = if testkit::tests_are_long() { LONG_PIECE } else { PIECE };
    let seeds: Vec<u64> = (number * size..(number + 1) * size).map(|seed| 1_000 + seed).collect();
    let series = Series::run(&seeds, 1);
    for report in &series.failed {
        println!("seed {} fails, again: cargo xtask sim --seed {}: {report:#?}", report.seed, report.seed);
    }
    assert!(series.failed.is_empty(), "{} of {} seeds fail", series.failed.len(), series.seeds);
    assert_eq!(series.missing(), Vec::<&str>::new(), "these faults never took effect");
    let short: Vec<_> = series.short.iter().map(|report| (report.seed, report.short_of())).collect();
    assert!(short.is_empty(), "too few steps or faults: {short:?}");
}

#[test]
fn seeds_that_failed_once_hold() {
    let kept = include_str!("kept_seeds.txt");
    for seed in kept.lines().filter(|line| !line.starts_with('#')) {
        let report = run(Setting::of(seed.trim().parse().unwrap()));
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

/// Everything that was logged.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Said {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn no_secret_is_in_a_line_of_a_log_or_in_a_span() {
    for seed in 1..=10 {
        let said = Said::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_writer(said.clone())
            .finish();
        let report = tracing::subscriber::with_default(subscriber, || run(Setting::of(seed)));
        assert_eq!(report.failure, None, "seed {seed}");
        let said = String::from_utf8(std::mem::take(&mut *said.0.lock().unwrap())).unwrap();
        assert!(said.contains("tunnel opened"), "seed {seed}: {} bytes", said.len());
        for secret in &report.secrets {
            let line = said.lines().find(|line| line.contains(secret.as_str()));
            assert_eq!(line, None, "seed {seed}");
        }
        assert!(report.secrets.len() >= 2, "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again_and_another_one_another() {
    for seed in 1..=3 {
        let (one, again) = (run(Setting::of(seed)), run(Setting::of(seed)));
        assert_eq!(one, again);
        assert_ne!(one.trace, run(Setting::of(seed + 100)).trace);
    }
}

/// It takes nothing, answers with errors or not at all, and takes everything afterwards, although nobody does anything about it. Meanwhile
/// others are sent everything at once.
#[test]
fn a_receiver_of_webhooks_that_is_in_trouble_for_an_hour_misses_nothing_and_holds_up_nobody() {
    for seed in 1..=3 {
        let report = run(Setting { outage: Duration::from_secs(3_600), ..Setting::of(seed) });
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(report.time > Duration::from_secs(3_600), "seed {seed}: {:?}", report.time);
    }
}

#[test]
fn seeds_of_the_first_piece_hold() {
    piece(0);
}

#[test]
fn seeds_of_the_second_piece_hold() {
    piece(1);
}

#[test]
fn seeds_of_the_third_piece_hold() {
    piece(2);
}
