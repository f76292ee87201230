//! Scenario `bus`: requests and byte streams over NATS, beside the bare client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bus::{Bus, ByteStream, Handler, NatsBus, NatsOptions, Opening, StreamHandler};
use bytes::Bytes;
use events::OrganizationId;
use events::subject::Subject;
use futures::{FutureExt as _, StreamExt as _};
use testkit::{NatsServer, eventually};
use tokio::sync::mpsc;
use world::World;

use crate::figure::{Figure, Target, percentile};
use crate::usage;

/// Requests of one run, one after another.
const REQUESTS: usize = 5_000;
/// Bytes of one run of the stream, and of each write.
const STREAMED: usize = 1024 * 1024 * 1024;
const CHUNK: usize = 64 * 1024;
/// How long the bare client waits for a chunk.
const CHUNK_TIME: Duration = Duration::from_secs(10);
const WINDOW: u32 = 4 * 1024 * 1024;
const BODY: &[u8] = &[0xa5; 256];

/// Measures requests and byte streams.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut server = NatsServer::start().await?;
    let pids = [std::process::id(), server.process().context("the server runs")?.pid()];
    let world = World::real();
    let connect = async |name: &str| {
        let options = NatsOptions {
            servers: vec![server.url()],
            name: name.to_owned(),
            process: name.to_owned(),
            ca_file: None,
        };
        NatsBus::connect(world.clone(), &options).await
    };
    let (here, there) = (connect("here").await?, connect("there").await?);
    let bare = (async_nats::connect(server.url()).await?, async_nats::connect(server.url()).await?);
    let (mut p50, mut p99, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let ours = requests(&world, &here, &there).await?;
        let theirs = bare_requests(&bare.0, &bare.1).await?;
        p50.push((percentile(ours.clone(), 50.0), Some(percentile(theirs.clone(), 50.0))));
        p99.push((percentile(ours, 99.0), Some(percentile(theirs, 99.0))));
        let ours = per_core(&pids, async || stream(&world, &here, &there).await).await?;
        streams.push((ours, Some(per_core(&pids, async || bare_chunks(&server).await).await?)));
    }
    Ok(vec![
        Figure::of("bus.request-p50", "us", Target::RatioAtMost(1.2), p50),
        Figure::of("bus.request-p99", "us", Target::RatioAtMost(1.2), p99),
        Figure::of("bus.stream", "Gb/s and core", Target::RatioAtLeast(0.7), streams),
    ])
}

async fn requests(world: &World, here: &NatsBus, there: &NatsBus) -> anyhow::Result<Vec<f64>> {
    let subject = Subject::request("loadtest.ask");
    let echo: Handler = Arc::new(|_, body| async move { body }.boxed());
    let _serving = there.serve(&subject, "loadtest", echo).await?;
    let context = bus::context_for_service(world, "loadtest", OrganizationId::SYSTEM);
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        here.request(&subject, &context, Bytes::from_static(BODY)).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}

async fn bare_requests(here: &async_nats::Client, there: &async_nats::Client) -> anyhow::Result<Vec<f64>> {
    let mut asked = there.queue_subscribe("bare.ask", "loadtest".to_owned()).await?;
    there.flush().await?;
    let answering = there.clone();
    let serving = tokio::spawn(async move {
        while let Some(message) = asked.next().await {
            if let Some(reply) = message.reply {
                answering.publish(reply, message.payload).await?;
            }
        }
        anyhow::Ok(())
    });
    // A flush sends the subscription; the server may still have to take it.
    eventually(CHUNK_TIME, || here.request("bare.ask", Bytes::from_static(BODY))).await;
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        here.request("bare.ask", Bytes::from_static(BODY)).await?;
        times.push(micros(start.elapsed()));
    }
    serving.abort();
    Ok(times)
}

/// Gigabits that were carried for a second of all processes' processor time.
async fn per_core(pids: &[u32], carry: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let before = usage::processor_time(pids)?;
    carry().await?;
    let time = usage::processor_time(pids)?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    let gigabits = STREAMED as f64 * 8.0 / 1e9;
    Ok(gigabits / time.as_secs_f64())
}

/// Carries all bytes through one byte stream.
async fn stream(world: &World, here: &NatsBus, there: &NatsBus) -> anyhow::Result<()> {
    let subject = Subject::request("loadtest.stream");
    let (streams, mut accepted) = mpsc::unbounded_channel::<ByteStream>();
    let accept: StreamHandler = Arc::new(move |_, stream| {
        let sent = streams.send(stream);
        async move { drop(sent) }.boxed()
    });
    let _serving = there.serve_streams(&subject, "loadtest", accept).await?;
    let context = bus::context_for_service(world, "loadtest", OrganizationId::SYSTEM);
    let mut near = here.open_stream(&subject, &context, WINDOW, Opening::default()).await?;
    let mut far = accepted.recv().await.context("a stream")?;
    let chunk = Bytes::from(vec![0xa5; CHUNK]);
    let writing = tokio::spawn(async move {
        for _ in 0..STREAMED / CHUNK {
            near.writer.0.write(chunk.clone()).await?;
        }
        near.writer.0.finish().await?;
        anyhow::Ok(near)
    });
    let mut read = 0;
    while let Some(bytes) = far.reader.0.read().await? {
        read += bytes.len();
    }
    drop(writing.await??);
    anyhow::ensure!(read == STREAMED, "{read} bytes came");
    Ok(())
}

/// Carries the same chunks by publishing and subscribing. Publishing goes no further ahead than the stream does,
/// because the server cuts off who does not read.
async fn bare_chunks(server: &NatsServer) -> anyhow::Result<()> {
    let here = async_nats::connect(server.url()).await?;
    let there = async_nats::connect(server.url()).await?;
    let mut chunks = there.subscribe("bare.chunks").await?;
    there.flush().await?;
    let publisher = here.clone();
    let chunk = Bytes::from(vec![0xa5; CHUNK]);
    let ahead = Arc::new(tokio::sync::Semaphore::new(usize::try_from(WINDOW)? / CHUNK));
    let permits = Arc::clone(&ahead);
    let publishing = tokio::spawn(async move {
        for _ in 0..STREAMED / CHUNK {
            permits.acquire().await?.forget();
            publisher.publish("bare.chunks", chunk.clone()).await?;
        }
        anyhow::Ok(())
    });
    let mut read = 0;
    while read < STREAMED {
        let chunk = tokio::time::timeout(CHUNK_TIME, chunks.next()).await;
        // Nothing is sent again after the server cut a client off, which it does where the machine is too busy.
        let chunk =
            chunk.context("the bare client lost chunks: measure on a machine that does nothing else")?;
        read += chunk.context("the subscription ended")?.payload.len();
        ahead.add_permits(1);
    }
    publishing.await??;
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
