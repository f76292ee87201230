//! Scenario `simulation`: steps that the simulation makes on one core.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::figure::{Figure, Target};

/// Steps a second; each run is ten seeds.
pub fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("simulation");
    let output = Command::new(&program)
        .args(["--figures", "--seeds", &count.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| {
            format!("cannot start {}: `cargo build --release -p simulation`", program.display())
        })?;
    ensure!(output.status.success(), "the simulation ended: {}", output.status);
    let measured: Vec<f64> = serde_json::from_slice(&output.stdout).context("the simulation's figures")?;
    // No other program makes the same steps: the target stands alone.
    let runs = measured.into_iter().map(|steps| (steps, None)).collect();
    Ok(vec![Figure::of("simulation.steps", "steps/s", Target::AtLeast(20_000.0), runs)])
}
