//! Scenario `jetstream`: the log on one NATS server and on three, beside bare publishing and bare reading of the same messages.

mod blobs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_nats::client::Request;
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use events::Position;
use events::subject::partition_of_organization;
use futures::StreamExt as _;
use serde_json::{Value, json};
use store::jetstream::{JetStreamStore, Options};
use store::{MasterKey, ReadFilter};
use testkit::{NatsCluster, NatsServer};
use uuid::Uuid;
use world::World;
use world::network::Address;

use crate::figure::{Figure, Target};
use crate::log::{ORGANIZATION, REPLAYED, append_until, decoded, events_per_second, fill};

/// How long writers publish in one run.
const APPENDING: Duration = Duration::from_secs(2);
/// How long streams may take to be led by the same server.
const LEADERS: Duration = Duration::from_secs(60);
/// How long the bare consumer waits for a message.
const MESSAGE_TIME: Duration = Duration::from_secs(30);
/// As long as a stored commit of the scenario.
const PAYLOAD: usize = 320;
const FURTHER_HEADER: &str = "kasbah.token.used";

/// Measures appends with 1, 16 and 64 writers on one server and on three, blobs, and replay.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let server = NatsServer::start().await?;
    figures.extend(appends("r1", vec![server.account_url(0)], count).await?);
    figures.extend(blobs::run(server.account_url(1), count).await?);
    drop(server);
    let cluster = NatsCluster::start().await?;
    figures.extend(appends("r3", cluster.account_urls(0), count).await?);
    drop(cluster);
    let runs = replays(count).await?;
    figures.push(Figure::of("jetstream.replay", "commits/s", Target::RatioAtLeast(0.7), runs));
    Ok(figures)
}

async fn open(servers: Vec<String>, accept_weak_durability: bool) -> anyhow::Result<JetStreamStore> {
    let options = Options {
        servers,
        name: "loadtest".to_owned(),
        process: "kasbah".to_owned(),
        ca_file: None,
        makes_log: true,
        master_key: MasterKey::new([7; 32]),
        partitions: None,
        accept_weak_durability,
        created_by: "loadtest".to_owned(),
    };
    Ok(store::jetstream::open(&World::real(), options).await?)
}

async fn appends(servers: &str, mut urls: Vec<String>, count: usize) -> anyhow::Result<Vec<Figure>> {
    // Both by way of the same server.
    urls.truncate(1);
    let store = open(urls.clone(), false).await?;
    let bare = connect(&urls).await?;
    let stream = json!({ "name": "bare", "subjects": ["bare.>"], "storage": "file", "num_replicas": store.replicas,
        "deny_delete": true, "deny_purge": true, "allow_direct": true, "duplicate_window": 120_000_000_000_u64 });
    ask(&bare, "$JS.API.STREAM.CREATE.bare", &stream).await?;
    if store.replicas > 1 {
        let partition = partition_of_organization(ORGANIZATION, store.parts.log.partitions());
        lead_alike(&bare, "bare", &format!("kasbah-decisions-{partition}")).await?;
    }
    let mut figures = Vec::new();
    for writers in [1, 16, 64] {
        let mut runs = Vec::new();
        for _ in 0..count {
            let appended = together(writers, |end| append_until(Arc::clone(&store.parts.log), end)).await?;
            let published = together(writers, |end| publish_until(bare.clone(), end)).await?;
            runs.push((appended, Some(published)));
        }
        let name = format!("jetstream.append-{servers}-{writers}");
        figures.push(Figure::of(&name, "appends/s", Target::RatioAtLeast(0.85), runs));
    }
    Ok(figures)
}

/// Has the server that leads one stream lead the other one too: a server may be nearer than another.
async fn lead_alike(client: &Client, stream: &str, like: &str) -> anyhow::Result<()> {
    let end = Instant::now() + LEADERS;
    let mut alike = 0;
    // Twice: one that is on its way out still says that it leads.
    while alike < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (leader, wanted) = (leader(client, stream).await?, leader(client, like).await?);
        if leader.is_some() && leader == wanted {
            alike += 1;
            continue;
        }
        alike = 0;
        ensure!(Instant::now() < end, "{stream} is led by {leader:?}, {like} by {wanted:?}");
        if let (Some(_), Some(wanted)) = (leader, wanted) {
            let preferred = json!({ "placement": { "preferred": wanted } });
            let moved = ask(client, &format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"), &preferred).await;
            // It may be led by nobody, or by that one by now.
            drop(moved);
        }
    }
    Ok(())
}

async fn leader(client: &Client, stream: &str) -> anyhow::Result<Option<String>> {
    let info = ask(client, &format!("$JS.API.STREAM.INFO.{stream}"), &json!({})).await?;
    Ok(info.pointer("/cluster/leader").and_then(Value::as_str).map(str::to_owned))
}

/// Runs writers at the same time; what they did a second.
async fn together<F>(writers: usize, write: impl Fn(Instant) -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<u32>> + Send + 'static,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers).map(|_| tokio::spawn(write(start + APPENDING))).collect();
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

/// The same messages as the log's, by the bare client.
async fn publish_until(client: Client, end: Instant) -> anyhow::Result<u32> {
    let subject = format!("bare.{}.agent.{}", Uuid::now_v7(), Uuid::now_v7());
    let payload = Bytes::from(vec![0xa5; PAYLOAD]);
    let (mut published, mut last) = (0, 0_u64);
    while Instant::now() < end {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", "bare");
        headers.insert("Nats-Msg-Id", format!("{}.00000000", Uuid::now_v7()));
        headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
        headers.insert("Kasbah-Events", FURTHER_HEADER);
        let request = Request::new().headers(headers).payload(payload.clone());
        let answer = client.send_request(subject.clone(), request).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        let stored = answer.get("seq").and_then(Value::as_u64).filter(|seq| *seq > 0);
        last = stored.with_context(|| format!("not stored: {answer}"))?;
        published += 1;
    }
    Ok(published)
}

pub async fn connect(urls: &[String]) -> anyhow::Result<Client> {
    let servers: Vec<Address> = urls.iter().map(|url| Address::of(url)).collect();
    let shown: Vec<&str> = servers.iter().map(|server| server.shown.as_str()).collect();
    let first = servers.first().context("a server")?;
    let (user, password) = first.credentials.clone().context("an address with an account")?;
    let options = async_nats::ConnectOptions::new()
        .user_and_password(user, password)
        .custom_inbox_prefix(events::access::inbox("kasbah"))
        .subscription_capacity(1024 * 1024);
    Ok(options.connect(shown).await?)
}

pub async fn ask(client: &Client, subject: &str, question: &Value) -> anyhow::Result<Value> {
    let answer = client.request(subject.to_owned(), question.to_string().into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    ensure!(answer.get("error").is_none(), "{subject}: {answer}");
    Ok(answer)
}

/// Reads a partition of [`REPLAYED`] commits into types, and by a bare consumer that decodes nothing.
async fn replays(count: usize) -> anyhow::Result<Vec<(f64, Option<f64>)>> {
    let server = NatsServer::start_that_syncs_later().await?;
    let urls = vec![server.account_url(0)];
    let store = open(urls.clone(), true).await?;
    let log = &store.parts.log;
    fill(log, REPLAYED).await?;
    let position = log.position(&[events::position::Stream::Decisions]).await?;
    let (shard, _) = position.0.iter().next().context("one partition")?;
    let stream = format!("kasbah-decisions-{}", shard.1);
    let bare = connect(&urls).await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let mut reader = log.read(&Position::start(), &ReadFilter::decisions(&[])).await?;
        let mut commits = 0;
        while let Some(record) = reader.recv().await {
            decoded(record?.commit().context("decisions are commits")?)?;
            commits += 1;
        }
        ensure!(commits == REPLAYED, "{commits} were read");
        let replayed = events_per_second(REPLAYED, start);
        let start = Instant::now();
        consume(&bare, &stream).await?;
        runs.push((replayed, Some(events_per_second(REPLAYED, start))));
    }
    Ok(runs)
}

/// Reads a partition by an ordered consumer: without flow control the server cuts off who does not keep up.
async fn consume(client: &Client, stream: &str) -> anyhow::Result<()> {
    let inbox = client.new_inbox();
    let mut messages = client.subscribe(inbox.clone()).await?;
    let config = json!({ "deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "all",
        "replay_policy": "instant", "mem_storage": true, "num_replicas": 1,
        "flow_control": true, "idle_heartbeat": 5_000_000_000_u64 });
    let question = json!({ "stream_name": stream, "config": config });
    ask(client, &format!("$JS.API.CONSUMER.CREATE.{stream}"), &question).await?;
    let mut consumed = 0;
    while consumed < REPLAYED {
        let message = tokio::time::timeout(MESSAGE_TIME, messages.next()).await;
        let message = message.context("the consumer is silent")?.context("the consumer ended")?;
        match (message.status, message.reply) {
            (None, _) => consumed += 1,
            (Some(_), Some(whether_it_came)) => client.publish(whether_it_came, Bytes::new()).await?,
            (Some(_), None) => {}
        }
    }
    Ok(())
}
