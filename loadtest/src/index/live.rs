//! From a change in the API server to a subscription, beside the same change in a bare watch.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use futures::StreamExt as _;
use serde_json::Value;
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, eventually};

use super::api::Api;
use crate::figure::{Figure, Target, percentile};
use crate::push::{Kind, LIMIT, Stage, Watch, millis};

/// Changes a second.
pub const RATE: u32 = 200;
/// Changes of a run.
const CHANGES: usize = 4_000;
/// Changes before it is measured: connections are open then, and programs in memory.
const FIRST: usize = 200;
/// Requests under way at the same time.
const AT_ONCE: usize = 64;

/// Measures the delays so many times.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let (mut half, mut most) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let [ours, bare] = delays(&plane).await?;
        let at = |percent| (percentile(ours.clone(), percent), Some(percentile(bare.clone(), percent)));
        half.push(at(50.0));
        most.push(at(99.0));
    }
    Ok(vec![
        Figure::of("index.change-p50", "ms", Target::AddsAtMost(50.0), half),
        Figure::of("index.change-p99", "ms", Target::AddsAtMost(250.0), most),
    ])
}

/// Milliseconds from the answer to each request until the change is seen, by a subscription and by a watch.
async fn delays(plane: &ControlPlane) -> anyhow::Result<[Vec<f64>; 2]> {
    let stage = Stage::start(plane).await?;
    let token = std::fs::read_to_string(stage.kasbah.data().join("owner-token"))?;
    let api = Api::of(&stage.kasbah, &token)?;
    create(plane, stage.namespace(), 0..1).await?;
    observes(&api, stage.namespace()).await;
    let changes = api.follow(stage.namespace()).await?;
    let watch = Watch::start(plane, stage.namespace(), Kind::ConfigMap).await?;
    let done = create(plane, stage.namespace(), 1..FIRST).await?;
    for (name, _) in &done {
        changes.sees(name).await;
    }
    let done = create(plane, stage.namespace(), FIRST..FIRST + CHANGES).await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for (name, asked) in done {
        let since = |seen: SystemTime| millis(seen.duration_since(asked).unwrap_or_default());
        ours.push(since(changes.sees(&name).await));
        bare.push(since(watch.sees(&name, VALUE).await?));
    }
    drop((changes, watch));
    stage.end().await?;
    Ok([ours, bare])
}

const VALUE: &str = "there";

/// Waits until the index knows something of the namespace.
async fn observes(api: &Api, namespace: &str) {
    let query = "query($of: ResourceFilter) { resources(filter: $of, first: 1) { nodes { name } } }";
    let variables = serde_json::json!({"of": {"namespace": namespace, "kind": "ConfigMap"}});
    eventually(LIMIT, || async {
        let (answer, _) = api.ask(query, &variables).await?;
        let known = answer.pointer("/resources/nodes/0/name").and_then(Value::as_str);
        known.map(str::to_owned).context("the index knows nothing of the namespace")
    })
    .await;
}

/// Creates ConfigMaps at [`RATE`]; their names, and when each was asked for.
pub async fn create(
    cluster: &Cluster,
    namespace: &str,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<(String, SystemTime)>> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let begun = Instant::now();
    let first = numbers.start;
    let asked = futures::stream::iter(numbers).map(|number| {
        let path = &path;
        async move {
            let due = Duration::from_secs(1) / RATE * u32::try_from(number - first).unwrap_or(u32::MAX);
            tokio::time::sleep_until((begun + due).into()).await;
            let asked = SystemTime::now();
            cluster.create_object(path, &Kind::ConfigMap.object(number, VALUE)).await?;
            anyhow::Ok((Kind::ConfigMap.name(number), asked))
        }
    });
    let all: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    all.into_iter().collect()
}
