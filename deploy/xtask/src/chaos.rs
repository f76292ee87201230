//! `cargo xtask chaos`: real processes, killed, stopped and cut off from one another while they are worked with; then it is quiet,
//! and everything must be as if nothing had happened.

mod checks;
mod scene;
mod strikes;
mod work;

use std::time::Duration;

use anyhow::Result;
use testkit::Dice;

use crate::report::{spent, step};
use crate::testbed;
use checks::Usage;
use scene::Scene;
use strikes::Strikes;
use work::Work;

#[derive(clap::Args)]
pub struct Arguments {
    /// Duration of the run.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seed of the faults and the work; by default a new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for logs and data; by default a temporary folder.
    #[arg(long)]
    state: Option<std::path::PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    testbed::build(&[testbed::Part::Nats])?;
    crate::demo::build()?;
    let seed = arguments.seed.unwrap_or_else(Dice::fresh_seed);
    println!("==> chaos with seed {seed} for {} s", arguments.seconds);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        println!("==> three NATS servers, two of each service, four agents");
        let mut scene = Scene::start(arguments.state.as_deref()).await?;
        let begin = Usage::of(&scene).await?;
        let mut dice = Dice::new(seed);
        let work = Work::start(&scene, dice.clone());
        let mut strikes = Strikes::default();
        strikes.run(&mut scene, &mut dice, Duration::from_secs(arguments.seconds)).await?;
        println!("    {strikes}");
        println!("==> quiet");
        let quiet = std::time::Instant::now();
        strikes.undo_all(&mut scene).await?;
        let done = work.stop().await?;
        println!("    all runs again after {}", spent(quiet.elapsed()));
        checks::all(&mut scene, &done, &begin).await?;
        step("stopping everything", || scene.replicas.stop_all())
    })
}
