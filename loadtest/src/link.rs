//! Scenario `link`: the gateway's own benchmark, which has its stand-ins beside it.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::figure::{Figure, Target};

type Runs = Vec<(f64, Option<f64>)>;

/// What the benchmark prints.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Measured {
    observations: Runs,
    bytes: Runs,
    small_push: Runs,
}

/// Observations a second from the agent to durable, their size, and the time that one changed object takes.
pub fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut command = testkit::cargo();
    command.args(["bench", "--quiet", "--locked", "--package", "tunnel-gateway", "--bench", "link", "--"]);
    let output =
        command.arg(count.to_string()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the benchmark ended: {}", output.status);
    let measured: Measured = serde_json::from_slice(&output.stdout).context("the benchmark's figures")?;
    Ok(vec![
        Figure::of("link.observations", "observations/s", Target::RatioAtLeast(0.4), measured.observations),
        Figure::of("link.bytes", "B/observation", Target::AtMost(150.0), measured.bytes),
        Figure::of("link.small-push", "ms", Target::AtMost(10.0), measured.small_push),
    ])
}
