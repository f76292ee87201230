//! Scenario `console`: the web page of a large environment in a real browser, while it changes, beside a page that only receives the same bytes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use events::observation::Observed;
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{drive_chromium_for, free_port};

use crate::figure::{Figure, Target};
use crate::index::bodies::{BESIDE_PODS, Place, Pod};
use crate::index::crowd::Crowd;

const SCRIPT: &str = include_str!("console/measure.mjs");
/// The environment and its namespace.
const ENVIRONMENT: &str = "large";
/// Objects of an application, most of them pods: so an environment has a hundred of them, and not thousands.
const OF_APPLICATION: usize = 200;
/// Objects of an agent's record while the environment is filled.
const OF_RECORD: usize = 100;
/// Changes a second while everything is measured.
const RATE: f64 = 500.0;
const CHANGES_OF_RECORD: usize = 10;
/// Applications whose pods change: about as many pods as the page shows at most.
const CHANGING: usize = 10;
/// How long the browser may take for one run of all that is measured.
const RUN: Duration = Duration::from_secs(180);
/// How long memory is looked at, and how often.
const LONG: [u64; 2] = [600, 30];
const QUICK: [u64; 2] = [60, 10];
/// Within this a figure of memory is as it was.
const FLAT: f64 = 1.1;

/// The environment that is looked at.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ConsoleLoad {
    /// Objects of the environment that the page shows.
    #[arg(long, default_value_t = 20_000)]
    environment_objects: usize,
}

/// What the script has measured: each time the page and the one beside it, in milliseconds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    first_paint: Vec<(f64, f64)>,
    longest_task: Vec<(f64, f64)>,
    slow_key: Vec<(f64, f64)>,
    /// Bytes of the heap and nodes of documents at the end, and at the beginning.
    heap: (f64, f64),
    nodes: (f64, f64),
    /// What else is worth a line.
    remarks: Vec<String>,
}

/// Measures each so many times; memory once, for minutes if `is_long`.
pub async fn run(count: usize, load: ConsoleLoad, is_long: bool) -> anyhow::Result<Vec<Figure>> {
    let mut crowd = Crowd::start(1).await?;
    let pods = fill(&mut crowd, load.environment_objects).await.context("an environment to look at")?;
    let opened = crowd.kasbah.json(["open", "--no-open"])?;
    let [seconds, every] = if is_long { LONG } else { QUICK };
    let given = json!({
        "port": free_port()?,
        "link": opened.get("url").and_then(Value::as_str).context("no link that signs in")?,
        "environment": crowd.environments.get(ENVIRONMENT).context("no environment")?,
        "runs": count,
        "memory": {"seconds": seconds, "every": every},
    });
    let limit = RUN * u32::try_from(count)? + Duration::from_secs(2 * seconds);
    let seen = tokio::select! {
        seen = drive_chromium_for(limit, SCRIPT, &given) => seen?,
        ended = change(&mut crowd, &pods) => bail!("the changes ended: {ended:?}"),
    };
    figures(serde_json::from_value(seen)?)
}

fn figures(seen: Seen) -> anyhow::Result<Vec<Figure>> {
    for remark in &seen.remarks {
        println!("    {remark}");
    }
    ensure!(!seen.first_paint.is_empty(), "nothing was measured");
    let beside =
        |runs: Vec<(f64, f64)>| runs.into_iter().map(|(page, bare)| (page, Some(bare))).collect::<Vec<_>>();
    let [heap, nodes] = [(seen.heap, 1e6), (seen.nodes, 1.0)]
        .map(|((end, begin), unit)| vec![(end / unit, Some(begin / unit))]);
    Ok(vec![
        Figure::of("console.first-paint", "ms", Target::AtMost(1_000.0), beside(seen.first_paint)),
        Figure::of("console.longest-task", "ms", Target::AtMost(200.0), beside(seen.longest_task)),
        Figure::of("console.slow-key", "ms", Target::AtMost(1_000.0), beside(seen.slow_key)),
        Figure::of("console.heap", "MB", Target::RatioAtMost(FLAT), heap),
        Figure::of("console.nodes", "nodes", Target::RatioAtMost(FLAT), nodes),
    ])
}

/// Applications of many pods; those pods that are going to change.
async fn fill(crowd: &mut Crowd, objects: usize) -> anyhow::Result<Vec<Pod>> {
    let begun = Instant::now();
    let each = OF_APPLICATION.min(objects.max(BESIDE_PODS + 1));
    let places: Vec<Place> = (0..objects.div_ceil(each))
        .map(|number| Place {
            cluster: 0,
            namespace: ENVIRONMENT.to_owned(),
            name: format!("app-{number:05}"),
        })
        .collect();
    let pods = each - BESIDE_PODS;
    for place in &places {
        for some in place.objects_with(pods).chunks(OF_RECORD) {
            crowd.says(0, some.to_vec()).await?;
        }
    }
    crowd.follows().await?;
    crowd.deploy(ENVIRONMENT, 0, ENVIRONMENT).await?;
    println!("    {} applications of {each} objects after {:.1?}", places.len(), begun.elapsed());
    Ok(places.iter().take(CHANGING).flat_map(|place| place.first_pods(pods)).collect())
}

/// Pods crash and are ready again, in turns, until this is dropped.
async fn change(crowd: &mut Crowd, pods: &[Pod]) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut changes = 0_u32;
    for round in 1.. {
        for some in pods.chunks(CHANGES_OF_RECORD) {
            let words: Vec<Observed> = some.iter().map(|pod| pod.changed(round)).collect();
            changes += u32::try_from(words.len())?;
            crowd.says(0, words).await?;
            let due = Duration::from_secs_f64(f64::from(changes) / RATE);
            tokio::time::sleep_until((begun + due).into()).await;
        }
    }
    Ok(())
}
