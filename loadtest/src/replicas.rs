//! Scenario `replicas`: how soon others take over, and how soon a new one is ready.

mod history;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use store::jetstream::Options;
use testkit::{ControlPlane, ControlPlaneOptions, Installation, InstallationOptions, NatsServer, eventually};
use world::World;
use zeroize::Zeroizing;

use crate::figure::{Figure, Target};
use crate::push::{LIMIT, Stage, options};

/// Events behind a new replica: the half of them decided, the other half observed.
const EVENTS: usize = 1_000_000;
/// Processes of each service while one is killed.
const EACH: usize = 2;
const POLLERS: [&str; EACH] = ["repo-poller-1", "repo-poller-2"];
const MASTER_KEY: [u8; 32] = [7; 32];

/// Measures each so many times.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let (from_zero, from_snapshot) = new_replicas(count).await.context("new replicas")?;
    let killed = owners_killed(count).await.context("owners killed")?;
    Ok(vec![
        Figure::of("replicas.ready-from-zero", "s", Target::AtMost(10.0), from_zero),
        Figure::of("replicas.ready-from-snapshot", "s", Target::AtMost(3.0), from_snapshot),
        Figure::of("replicas.push-after-owner-killed", "s", Target::AtMost(5.0), killed),
    ])
}

type Runs = Vec<(f64, Option<f64>)>;

/// From the start of a process of all services to its readiness, with a million events behind it.
async fn new_replicas(count: usize) -> anyhow::Result<(Runs, Runs)> {
    let server = NatsServer::start_as_shipped().await?;
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("master.key");
    std::fs::write(&key, MASTER_KEY)?;
    let world = World::real();
    let store = Options {
        servers: vec![server.shipped_url("kasbah")],
        name: "loadtest".to_owned(),
        process: "kasbah".to_owned(),
        ca_file: None,
        makes_log: true,
        master_key: Zeroizing::new(MASTER_KEY),
        partitions: None,
        accept_weak_durability: false,
        created_by: "loadtest".to_owned(),
    };
    let log = store::jetstream::open(&world, store).await?.parts.log;
    history::write(&log, EVENTS).await.context("writing the history")?;
    let bare = crate::jetstream::connect(&[server.shipped_url("kasbah")]).await?;
    let (mut from_zero, mut from_snapshot) = (Runs::new(), Runs::new());
    for _ in 0..count {
        let purged =
            crate::jetstream::ask(&bare, "$JS.API.STREAM.PURGE.kasbah-snapshots", &json!({})).await?;
        let success = purged.get("success").and_then(serde_json::Value::as_bool);
        anyhow::ensure!(success == Some(true), "snapshots are not purged: {purged}");
        let zero = seconds_until_ready(&server, &key).await?;
        let snapshot = seconds_until_ready(&server, &key).await?;
        println!("    ready from zero after {zero:.1} s, from the snapshot after {snapshot:.1} s");
        from_zero.push((zero, None));
        from_snapshot.push((snapshot, None));
    }
    Ok((from_zero, from_snapshot))
}

/// It is stopped afterwards, and leaves snapshots.
async fn seconds_until_ready(server: &NatsServer, key: &Path) -> anyhow::Result<f64> {
    let nats = ["--nats", &server.shipped_url("kasbah"), "--master-key-file", &key.display().to_string()];
    let options = InstallationOptions { server: nats.map(str::to_owned).to_vec(), ..options() };
    let start = Instant::now();
    let mut replica = Installation::start(options).await?;
    let ready = start.elapsed();
    replica.stop_server()?;
    Ok(ready.as_secs_f64())
}

/// A push right after its repository's poller was killed, from the hook to the cluster. Which of the two has it, nobody outside
/// knows: each is killed, and the slower push counts.
async fn owners_killed(count: usize) -> anyhow::Result<Runs> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let server = NatsServer::start_as_shipped().await?;
    let replicated =
        InstallationOptions { each_service: Some((EACH, vec![server.shipped_url("kasbah")])), ..options() };
    let mut stage = Stage::start_as(replicated, &plane).await?;
    stage.changes(1).await?;
    let mut runs = Runs::new();
    for _ in 0..count {
        let mut slowest = Duration::ZERO;
        for poller in POLLERS {
            stage.kasbah.replicas()?.kill(poller)?;
            let times = stage.changes(1).await?;
            slowest = slowest.max(times.into_iter().max().unwrap_or_default());
            stage.kasbah.replicas()?.start_again(poller).await?;
            // The newcomer takes over what is its own before anybody else is killed.
            eventually(LIMIT, || async { stage.kasbah.json(["source", "list"]) }).await;
        }
        runs.push((slowest.as_secs_f64(), None));
    }
    stage.end().await?;
    Ok(runs)
}
