//! Runs seeds and says how they went: `cargo xtask sim`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, which times itself by the machine's clock"
)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Parser;
use simulation::{Series, Setting, cores, run};

/// Where failing seeds are kept, which the tests run first.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept_seeds.txt");

/// Run the services in a simulated world with faults. Failing seeds are kept in `services/simulation/tests/kept_seeds.txt`, which the
/// tests run first.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    seeds: u64,
    /// The first seed; by default one that was not run yet
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Run only this seed, with details; `RUST_LOG` shows the services' logs
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// File for each step of that seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    steps: Option<PathBuf>,
    /// Print only figures, as JSON
    #[arg(long, hide = true)]
    figures: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None if arguments.figures => figures(&arguments),
        None => many(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One seed; what the services log goes to standard error, as `RUST_LOG` wants it.
fn one(seed: u64, arguments: &Arguments) -> anyhow::Result<bool> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().without_time().with_writer(std::io::stderr).with_env_filter(filter).init();
    let mut report = run(Setting { words: arguments.steps.is_some(), ..Setting::of(seed) });
    if let Some(path) = &arguments.steps {
        std::fs::write(path, report.words.join("\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        report.words.clear();
    }
    println!("{report:#?}");
    // Who fails ends early.
    let short = report.short_of().filter(|_| report.failure.is_none());
    if let Some(short) = &short {
        println!("the seed is too short, {short}");
    }
    Ok(report.failure.is_none() && short.is_none())
}

fn many(arguments: &Arguments) -> anyhow::Result<bool> {
    let from = match arguments.from {
        Some(from) => from,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() * 1_000,
    };
    let seeds: Vec<u64> = (from..from.saturating_add(arguments.seeds)).collect();
    let began = Instant::now();
    let series = Series::run(&seeds, cores());
    let took = began.elapsed().as_secs_f64();
    println!("{} seeds from {from}, {} steps in {took:.1} s", series.seeds, series.steps);
    println!("as it is wanted at most {:.1?} after the last push", series.settled);
    for (name, count) in &series.fired {
        println!("{count:>8}  {name}");
    }
    let mut kept = String::new();
    for report in &series.short {
        let short = report.short_of().unwrap_or_default();
        println!("seed {} is too short, {short}", report.seed);
        println!("    again: cargo xtask sim --seed {}", report.seed);
    }
    for report in &series.failed {
        let why = report.failure.as_deref().unwrap_or_default();
        println!("seed {} fails: {why}", report.seed);
        println!("    again: cargo xtask sim --seed {}", report.seed);
        writeln!(kept, "{}", report.seed)?;
    }
    if !kept.is_empty() {
        let before = std::fs::read_to_string(KEPT).with_context(|| format!("cannot read {KEPT}"))?;
        std::fs::write(KEPT, before + &kept).with_context(|| format!("cannot write {KEPT}"))?;
    }
    let missing = series.missing();
    if series.seeds >= 20 && !missing.is_empty() {
        println!("these faults never took effect: {}", missing.join(", "));
        return Ok(false);
    }
    Ok(series.failed.is_empty() && series.short.is_empty())
}

/// Steps a second on one core, in each of some runs.
fn figures(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut measured = Vec::new();
    for number in 0..arguments.seeds {
        let began = Instant::now();
        let series = Series::run(&(number * 10 + 1..=number * 10 + 10).collect::<Vec<u64>>(), 1);
        anyhow::ensure!(series.failed.is_empty(), "a seed failed: {:?}", series.failed);
        // Exact for any number of steps that fits a run.
        measured
            .push(u32::try_from(series.steps).map_or(f64::MAX, f64::from) / began.elapsed().as_secs_f64());
    }
    println!("{}", serde_json::to_string(&measured)?);
    Ok(true)
}
