//! Scenario `push`: from the start of the post-receive hook to visible in a watch, beside bare server-side applies.

mod bare;
mod footprint;
mod idle;
mod stage;
mod watch;

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use testkit::{ControlPlane, ControlPlaneOptions};

use crate::figure::{Figure, Target, percentile};
pub use stage::{AGENT, Kind, SOURCE, Stage, access, folder_bytes, options};
pub use watch::Watch;

/// Objects of the large source.
pub const MANY: usize = 1_000;
/// Deployments of the first sync.
const DEPLOYMENTS: usize = 200;
/// Changes of one object in a run.
const CHANGES: usize = 50;
/// After this long something is wrong.
pub const LIMIT: Duration = Duration::from_secs(120);

/// One run's values, each with its baseline where it has one.
#[derive(Default)]
struct Runs {
    one_of_many_p50: Vec<(f64, Option<f64>)>,
    one_of_many_p99: Vec<(f64, Option<f64>)>,
    one_of_one_p50: Vec<(f64, Option<f64>)>,
    first_config_maps: Vec<(f64, Option<f64>)>,
    first_deployments: Vec<(f64, Option<f64>)>,
    unchanged_writes: Vec<(f64, Option<f64>)>,
    footprint: footprint::Runs,
}

/// Measures every figure so many times; five idle minutes once, if wanted.
pub async fn run(count: usize, with_idle: bool) -> anyhow::Result<Vec<Figure>> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let mut runs = Runs::default();
    let mut idle = None;
    for number in 0..count {
        eprintln!("run {} of {count}", number + 1);
        many(&plane, &mut runs, (with_idle && number + 1 == count).then_some(&mut idle))
            .await
            .context("1,000 ConfigMaps")?;
        one(&plane, &mut runs).await.context("a source of one object")?;
        deployments(&plane, &mut runs).await.context("200 Deployments")?;
    }
    let mut figures = vec![
        Figure::of("push.one-of-1000-p50", "ms", Target::AddsAtMost(120.0), runs.one_of_many_p50),
        Figure::of("push.one-of-1000-p99", "ms", Target::AddsAtMost(300.0), runs.one_of_many_p99),
        Figure::of("push.one-of-1-p50", "ms", Target::AddsAtMost(60.0), runs.one_of_one_p50),
        Figure::of("push.first-1000-config-maps", "ms", Target::RatioAtMost(2.2), runs.first_config_maps),
        Figure::of("push.first-200-deployments", "ms", Target::RatioAtMost(2.2), runs.first_deployments),
        Figure::of("push.unchanged-writes", "requests", Target::AtMost(0.0), runs.unchanged_writes),
    ];
    figures.extend(idle.into_iter().flatten());
    figures.extend(runs.footprint.figures()?);
    Ok(figures)
}

/// The large source: first sync, single changes, a push that changes nothing, memory and disk.
async fn many(
    plane: &ControlPlane,
    runs: &mut Runs,
    idle: Option<&mut Option<Vec<Figure>>>,
) -> anyhow::Result<()> {
    let mut stage = Stage::start(plane).await?;
    let bare = bare::first_apply(plane, Kind::ConfigMap, MANY).await?;
    runs.first_config_maps.push((millis(stage.first_sync(Kind::ConfigMap, MANY).await?), Some(millis(bare))));
    runs.footprint.agent_after_first_sync(&mut stage)?;

    let disk = stage.settled_disk_bytes().await?;
    let changes = stage.changes(CHANGES).await?;
    runs.footprint.disk_per_push(disk, stage.settled_disk_bytes().await?, CHANGES);
    let bare = bare::changes(plane, CHANGES).await?;
    let at =
        |samples: &[Duration], percent| percentile(samples.iter().copied().map(millis).collect(), percent);
    runs.one_of_many_p50.push((at(&changes, 50.0), Some(at(&bare, 50.0))));
    runs.one_of_many_p99.push((at(&changes, 99.0), Some(at(&bare, 99.0))));

    runs.unchanged_writes.push((stage.writes_of_an_unchanged_push().await?, None));
    if let Some(idle) = idle {
        *idle = Some(idle::five_minutes(&mut stage).await?);
    }
    runs.footprint.idle(&mut stage)?;
    runs.footprint.restart_behind_many_events(&mut stage).await?;
    stage.end().await
}

async fn one(plane: &ControlPlane, runs: &mut Runs) -> anyhow::Result<()> {
    let mut stage = Stage::start(plane).await?;
    stage.first_sync(Kind::ConfigMap, 1).await?;
    let changes = stage.changes(CHANGES).await?;
    let bare = bare::changes(plane, CHANGES).await?;
    let at = |samples: &[Duration]| percentile(samples.iter().copied().map(millis).collect(), 50.0);
    runs.one_of_one_p50.push((at(&changes), Some(at(&bare))));
    stage.end().await
}

async fn deployments(plane: &ControlPlane, runs: &mut Runs) -> anyhow::Result<()> {
    let mut stage = Stage::start(plane).await?;
    let bare = bare::first_apply(plane, Kind::Deployment, DEPLOYMENTS).await?;
    let synced = stage.first_sync(Kind::Deployment, DEPLOYMENTS).await?;
    runs.first_deployments.push((millis(synced), Some(millis(bare))));
    stage.end().await
}

/// Milliseconds of a duration.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// Time from `start` to now on the wall clock, which the hook's time is told in.
pub fn since(start: SystemTime) -> Duration {
    SystemTime::now().duration_since(start).unwrap_or_default()
}
