//! Scenario `tunnel`: clusters' APIs through the tunnel, beside the API server itself.
//!
//! The baseline sends the same impersonation over TLS and connections that stay open.

mod alone;
pub mod bare;
mod stage;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::json;

use crate::figure::{Figure, Target, percentile};
use crate::push::millis;
use alone::Alone;
use stage::{Client, Protocol, Stage, Way};

/// Requests one after the other, in turns of so many for each way.
const SEQUENTIAL: usize = 2_000;
const TURN: usize = 100;
/// Clients at once, and how long they ask.
const CLIENTS: usize = 32;
const ASKING: Duration = Duration::from_secs(5);
/// Changes of an object that is watched.
const CHANGES: usize = 200;
const LIMIT: Duration = Duration::from_secs(60);

type Runs = Vec<(f64, Option<f64>)>;

/// One run's values, each with its baseline.
#[derive(Default)]
struct Measured {
    get_p50: Runs,
    get_p99: Runs,
    hop_p50: Runs,
    hop_p99: Runs,
    many_http1: Runs,
    many_http2: Runs,
    list: Runs,
    list_gzip: Runs,
    watch: Runs,
    recorded_later: Runs,
    recorded_first: Runs,
}

/// Measures every figure so many times.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut stage = Stage::start().await?;
    let mut all = Measured::default();
    for number in 0..count {
        eprintln!("run {} of {count}", number + 1);
        let (near, far) = stage.gateways().await?;
        sequential(&stage, (Way::Direct, near), &mut all.get_p50, &mut all.get_p99).await.context("GET")?;
        sequential(&stage, (near, far), &mut all.hop_p50, &mut all.hop_p99)
            .await
            .context("GET over a hop")?;
        for (protocol, runs) in
            [(Protocol::Http1, &mut all.many_http1), (Protocol::Http2, &mut all.many_http2)]
        {
            let direct = many(&stage, Way::Direct, protocol).await.context("many, directly")?;
            runs.push((many(&stage, near, protocol).await.context("many")?, Some(direct)));
        }
        for (gzip, runs) in [(false, &mut all.list), (true, &mut all.list_gzip)] {
            let direct = list(&stage, Way::Direct, gzip).await.context("a list, directly")?;
            runs.push((list(&stage, near, gzip).await.context("a list")?, Some(direct)));
        }
        all.watch.push(watch(&stage, near).await.context("a watch")?);
        recorded(&mut stage, &mut all).await.context("records")?;
    }
    drop(stage);
    let mut alone = alone::Measured::default();
    for number in 0..count {
        eprintln!("run {} of {count}, before an API server that answers at once", number + 1);
        // Of its own each: what a process once held for ten thousand watches it keeps.
        Alone::start().await?.measure(&mut alone).await?;
    }
    let of_both = [figures(all), alone.figures()];
    Ok(of_both.into_iter().flatten().collect())
}

/// Small requests a second with records behind the requests, and before them, beside those without any.
async fn recorded(stage: &mut Stage, all: &mut Measured) -> anyhow::Result<()> {
    let near = stage.audits("fail-closed").await?;
    let without = many(stage, near, Protocol::Http1).await.context("many, without records")?;
    let near = stage.audits("all").await?;
    let later = many(stage, near, Protocol::Http1).await.context("many, recorded later")?;
    stage.records_first(near, true).await?;
    let first = many(stage, near, Protocol::Http1).await.context("many, recorded first")?;
    stage.records_first(near, false).await?;
    all.recorded_later.push((later, Some(without)));
    all.recorded_first.push((first, Some(without)));
    Ok(())
}

fn figures(all: Measured) -> Vec<Figure> {
    vec![
        Figure::of("tunnel.get-p50", "ms", Target::AddsAtMost(0.3), all.get_p50),
        Figure::of("tunnel.get-p99", "ms", Target::AddsAtMost(1.0), all.get_p99),
        Figure::of("tunnel.hop-p50", "ms", Target::AddsAtMost(0.4), all.hop_p50),
        Figure::of("tunnel.hop-p99", "ms", Target::AddsAtMost(1.5), all.hop_p99),
        Figure::of("tunnel.many-http1", "requests/s", Target::RatioAtLeast(0.6), all.many_http1),
        Figure::of("tunnel.many-http2", "requests/s", Target::RatioAtLeast(0.6), all.many_http2),
        Figure::of("tunnel.list", "MB/s", Target::RatioAtLeast(0.7), all.list),
        Figure::of("tunnel.list-gzip", "MB/s", Target::RatioAtLeast(0.7), all.list_gzip),
        Figure::of("tunnel.watch-event-p50", "ms", Target::AddsAtMost(0.3), all.watch),
        Figure::of("tunnel.recorded-later", "requests/s", Target::RatioAtLeast(0.9), all.recorded_later),
        Figure::of("tunnel.recorded-first", "requests/s", Target::RatioAtLeast(0.5), all.recorded_first),
    ]
}

/// `GET /version` one after the other, by one way and by another in turns.
async fn sequential(
    stage: &Stage,
    (baseline, measured): (Way, Way),
    p50: &mut Runs,
    p99: &mut Runs,
) -> anyhow::Result<()> {
    let clients = [stage.client(baseline, Protocol::Http1)?, stage.client(measured, Protocol::Http1)?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..SEQUENTIAL / TURN {
        for (client, times) in clients.iter().zip(&mut times) {
            // The first of a turn opens the connection again, if it has to.
            client.get("/version").await?;
            for _ in 0..TURN {
                let begun = Instant::now();
                client.get("/version").await?;
                times.push(millis(begun.elapsed()));
            }
        }
    }
    let [baseline, measured] = times;
    for (percent, runs) in [(50.0, p50), (99.0, p99)] {
        runs.push((percentile(measured.clone(), percent), Some(percentile(baseline.clone(), percent))));
    }
    Ok(())
}

/// Small requests a second of many clients at once.
async fn many(stage: &Stage, way: Way, protocol: Protocol) -> anyhow::Result<f64> {
    let clients = (0..CLIENTS).map(|_| stage.client(way, protocol)).collect::<anyhow::Result<Vec<_>>>()?;
    let (count, took) = many_of(&clients).await?;
    Ok(f64::from(count) / took.as_secs_f64())
}

/// How many small requests these clients have answered at once, and in which time.
async fn many_of(clients: &[Client]) -> anyhow::Result<(u32, Duration)> {
    try_join_all(clients.iter().map(|client| client.get("/version"))).await?;
    let begun = Instant::now();
    let asking = clients.iter().map(|client| async move {
        let mut count = 0_u32;
        while begun.elapsed() < ASKING {
            client.get("/version").await?;
            count += 1;
        }
        anyhow::Ok(count)
    });
    let counts = try_join_all(asking).await?;
    Ok((counts.iter().sum(), begun.elapsed()))
}

/// Megabytes a second of a large list, in its plain form.
async fn list(stage: &Stage, way: Way, gzip: bool) -> anyhow::Result<f64> {
    let client = stage.client(way, Protocol::Http2)?;
    let path = stage.large_list();
    let begun = Instant::now();
    let bytes = client.read(&path, gzip).await?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(bytes > 0, "the list is empty");
    Ok(stage.large_list_megabytes() / took)
}

/// How long it takes from a change to its event in a watch, beside a direct watch of the same changes.
async fn watch(stage: &Stage, way: Way) -> anyhow::Result<(f64, Option<f64>)> {
    let mut through = stage.client(way, Protocol::Http2)?.watch(&stage.watched_list()).await?;
    let mut direct = stage.client(Way::Direct, Protocol::Http2)?.watch(&stage.watched_list()).await?;
    let (mut times, mut baseline) = (Vec::new(), Vec::new());
    for number in 0..CHANGES {
        let value = format!("change-{number}");
        let begun = Instant::now();
        let change = json!({"data": {"value": value}});
        let content = "application/merge-patch+json";
        let path = stage.watched();
        let changed = stage.cluster().send(Method::PATCH, &path, Some((content, &change)));
        let (changed, through, direct) = tokio::time::timeout(LIMIT, async {
            tokio::join!(changed, through.sees(&value), direct.sees(&value))
        })
        .await
        .context("an event is missing")?;
        changed?;
        times.push(millis(through?.duration_since(begun)));
        baseline.push(millis(direct?.duration_since(begun)));
    }
    Ok((percentile(times, 50.0), Some(percentile(baseline, 50.0))))
}
