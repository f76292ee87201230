//! The link over TLS: observations a second from the agent until they are durable, in batches of 100, beside the same bytes
//! over bare TLS and into a synced file, grouped by what has arrived while the last sync ran. `cargo xtask bench link` runs it
//! and says what is short.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark fails loudly"
)]

#[path = "../tests/gateway/agent.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod agent;
#[path = "../tests/gateway/harness.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod harness;

use std::io::Write;
use std::time::Duration;

use events::observation::{Observation, Observed, OwnedObject, Write as Done};
use events::{Sha256, SyncId};
use harness::{Gateway, args, identity, objects, observation, source, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tunnel::wire::{Batch, EventFrame, encode_frame};
use uuid::Uuid;

const BATCHES: u64 = 2_000;
const PER_BATCH: u64 = 100;
const WAIT: Duration = Duration::from_secs(120);

fn applied(number: u64) -> Observation {
    let random = Sha256::of(&number.to_be_bytes());
    let object = OwnedObject {
        source: source(1),
        identity: identity(&format!("settings-{number}")),
        uid: Uuid::from_slice(&random.0[..16]).unwrap().to_string(),
        digest: Some(random),
        adopted: false,
    };
    let what = Observed::ObjectApplied {
        sync: Some(SyncId(Uuid::from_u128(7))),
        object,
        write: Done::Changed,
        taken_over: Vec::new(),
    };
    observation(number, what)
}

fn batches() -> Vec<Batch> {
    let batch = |index| {
        let first = index * PER_BATCH + 1;
        Batch { epoch: 1, first, observations: (first..first + PER_BATCH).map(applied).collect() }
    };
    (0..BATCHES).map(batch).collect()
}

/// Seconds until all is durable and acknowledged, and bytes on the wire.
async fn through_the_link() -> (f64, usize) {
    let gateway = Gateway::start_with(args()).await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    agent.lease().await;
    let delivery = std::sync::Arc::clone(&gateway.delivery);
    agent.until("not named", |_| (delivery.lock().namings == 1).then_some(())).await;
    let batches = batches();
    let events = agent.events().await;
    let started = Instant::now();
    let mut bytes = 0;
    for batch in batches {
        bytes += events.send(&EventFrame::Batch(batch)).await.unwrap();
    }
    agent.acknowledged(1, BATCHES * PER_BATCH).await;
    let seconds = started.elapsed().as_secs_f64();
    gateway.stop.request();
    (seconds, bytes)
}

/// Seconds for the same bytes over TLS and into a synced file.
async fn bare() -> f64 {
    let world = world::World::real();
    let (server, client) = harness::tls(&world, &harness::authority(&world));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let batches = batches();
    let frames: Vec<_> =
        batches.iter().map(|batch| encode_frame(&EventFrame::Batch(batch.clone())).unwrap()).collect();
    let records: Vec<Vec<u8>> = batches.iter().map(|batch| harness::record(1, batch)).collect();
    let (arrived, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
    let sizes: Vec<usize> = frames.iter().map(bytes::Bytes::len).collect();
    let receiver = spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = tokio_rustls::TlsAcceptor::from(server).accept(socket).await.unwrap();
        for (size, record) in sizes.into_iter().zip(records) {
            let mut frame = vec![0; size];
            stream.read_exact(&mut frame).await.unwrap();
            arrived.send(record).unwrap();
        }
        stream
    });
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("records")).unwrap();
    let writer = tokio::task::spawn_blocking(move || {
        while let Some(record) = waiting.blocking_recv() {
            let mut group = record;
            while let Ok(next) = waiting.try_recv() {
                group.extend(next);
            }
            file.write_all(&group).unwrap();
            file.sync_data().unwrap();
        }
    });
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(client).connect(name, socket).await.unwrap();
    let started = Instant::now();
    for frame in frames {
        stream.write_all(&frame).await.unwrap();
    }
    stream.flush().await.unwrap();
    let _held = receiver.await.unwrap();
    writer.await.unwrap();
    started.elapsed().as_secs_f64()
}

/// Milliseconds from the notice that one object of 1,000 changed until the agent took the state; median of 50.
async fn small_push() -> f64 {
    let gateway = Gateway::start_with(args()).await;
    gateway.register(1).await;
    let mut wanted = objects(1000, "first");
    gateway.desire(1, 1, &wanted, &[]).await;
    let agent = gateway.connect(1, 1).await;
    agent.revision(1).await;
    let mut taken = agent.state.lock().taken.subscribe();
    let mut times = Vec::new();
    for revision in 2..52 {
        wanted[5] = objects(6, &revision.to_string())[5].clone();
        let plan = gateway.plan(1, revision, &wanted, &[]).await;
        gateway.delivery.lock().plans.insert(harness::agent_id(1), plan);
        let started = Instant::now();
        gateway.notify(1).await;
        taken.wait_for(|taken| *taken == revision).await.unwrap();
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    gateway.stop.request();
    median(times)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The runs as JSON, each value beside its baseline; the argument says how many.
#[tokio::main]
async fn main() {
    let runs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1);
    let total = (BATCHES * PER_BATCH) as f64;
    let (mut observations, mut sizes, mut pushes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let measured = tokio::time::timeout(WAIT, through_the_link()).await.expect("the link got stuck");
        observations.push((total / measured.0, Some(total / bare().await)));
        sizes.push((measured.1 as f64 / total, None::<f64>));
        pushes.push((small_push().await, None::<f64>));
    }
    let figures = serde_json::json!({"observations": observations, "bytes": sizes, "small-push": pushes});
    println!("{figures}");
}
