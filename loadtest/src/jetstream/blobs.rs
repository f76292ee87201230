//! Blobs in a stream of ours beside the same bytes in an object store, as clients of NATS keep one (ADR-20): pieces and a message that
//! describes them in a stream, read by a consumer each. Nothing is sealed or hashed there.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use async_nats::client::Request;
use async_nats::{Client, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};
use store::KeyName;
use store::jetstream::JetStreamStore;
use uuid::Uuid;

use super::{MESSAGE_TIME, ask, connect, open};
use crate::figure::{Figure, Target};
use crate::log::ORGANIZATION;

/// As long as a packed bundle of some hundred objects.
const BLOB: usize = 48 * 1024;
const BLOBS: usize = 200;
const BUCKET: &str = "OBJ_bare";

/// Measures putting and getting, one after the other.
pub async fn run(url: String, count: usize) -> anyhow::Result<Vec<Figure>> {
    let store = open(vec![url.clone()], false).await?;
    store.parts.keys.get_or_create(KeyName::Organization(ORGANIZATION)).await?;
    let bare = connect(&[url]).await?;
    let stream = json!({ "name": BUCKET, "subjects": ["$O.bare.C.>", "$O.bare.M.>"], "storage": "file", "discard": "new",
        "allow_rollup_hdrs": true, "allow_direct": true });
    ask(&bare, &format!("$JS.API.STREAM.CREATE.{BUCKET}"), &stream).await?;
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let blobs: Vec<Bytes> = (0..BLOBS).map(|_| blob()).collect();
        let (put, got) = ours(&store, &blobs).await?;
        let (bare_put, bare_got) = object_store(&bare, &blobs).await?;
        puts.push((put, Some(bare_put)));
        gets.push((got, Some(bare_got)));
    }
    Ok(vec![
        Figure::of("jetstream.blob-put", "blobs/s", Target::RatioAtLeast(1.0), puts),
        Figure::of("jetstream.blob-get", "blobs/s", Target::RatioAtLeast(1.0), gets),
    ])
}

/// Another one each time: what is there already is not stored again.
fn blob() -> Bytes {
    let begin = Uuid::now_v7();
    Bytes::from(begin.as_bytes().iter().copied().cycle().take(BLOB).collect::<Vec<u8>>())
}

#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
fn a_second(start: Instant) -> f64 {
    BLOBS as f64 / start.elapsed().as_secs_f64()
}

async fn ours(store: &JetStreamStore, blobs: &[Bytes]) -> anyhow::Result<(f64, f64)> {
    let kept = &store.parts.blobs;
    let start = Instant::now();
    let mut digests = Vec::new();
    for blob in blobs {
        digests.extend(kept.put(ORGANIZATION, vec![blob.clone()]).await?);
    }
    let put = a_second(start);
    let start = Instant::now();
    for (digest, blob) in digests.into_iter().zip(blobs) {
        ensure!(kept.get(ORGANIZATION, digest).await? == *blob, "another blob came back");
    }
    Ok((put, a_second(start)))
}

async fn object_store(client: &Client, blobs: &[Bytes]) -> anyhow::Result<(f64, f64)> {
    let start = Instant::now();
    let mut names = Vec::new();
    for blob in blobs {
        names.push(put_object(client, blob).await?);
    }
    let put = a_second(start);
    let start = Instant::now();
    for (name, blob) in names.iter().zip(blobs) {
        ensure!(get_object(client, name).await? == *blob, "another object came back");
    }
    Ok((put, a_second(start)))
}

fn described_by(name: &str) -> String {
    format!("$O.bare.M.{}", URL_SAFE.encode(name))
}

async fn put_object(client: &Client, blob: &Bytes) -> anyhow::Result<String> {
    let name = Uuid::now_v7().to_string();
    let known = ask_for(client, &described_by(&name)).await?;
    ensure!(known.is_none(), "{name} is there already");
    store_message(client, format!("$O.bare.C.{name}"), HeaderMap::new(), blob.clone()).await?;
    let description =
        json!({ "name": name, "bucket": "bare", "nuid": name, "size": blob.len(), "chunks": 1 });
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Rollup", "sub");
    store_message(client, described_by(&name), headers, description.to_string().into()).await?;
    Ok(name)
}

async fn store_message(
    client: &Client,
    to: String,
    headers: HeaderMap,
    payload: Bytes,
) -> anyhow::Result<()> {
    let answer = client.send_request(to, Request::new().headers(headers).payload(payload)).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    ensure!(answer.get("seq").is_some(), "not stored: {answer}");
    Ok(())
}

/// The last message under a subject.
async fn ask_for(client: &Client, subject: &str) -> anyhow::Result<Option<Bytes>> {
    let question = format!("$JS.API.DIRECT.GET.{BUCKET}.{subject}");
    let answer = client.request(question, Bytes::new()).await?;
    Ok(answer.status.is_none().then_some(answer.payload))
}

async fn get_object(client: &Client, name: &str) -> anyhow::Result<Bytes> {
    let described = ask_for(client, &described_by(name)).await?.context("no such object")?;
    let described: Value = serde_json::from_slice(&described)?;
    let nuid = described.get("nuid").and_then(Value::as_str).context("no nuid")?;
    let inbox = client.new_inbox();
    let mut pieces = client.subscribe(inbox.clone()).await?;
    let config = json!({ "deliver_subject": inbox, "filter_subject": format!("$O.bare.C.{nuid}"), "ack_policy": "none",
        "deliver_policy": "all", "replay_policy": "instant", "mem_storage": true, "num_replicas": 1, "max_deliver": 1,
        "flow_control": true, "idle_heartbeat": 5_000_000_000_u64 });
    let question = json!({ "stream_name": BUCKET, "config": config });
    let made = ask(client, &format!("$JS.API.CONSUMER.CREATE.{BUCKET}"), &question).await?;
    let piece = tokio::time::timeout(MESSAGE_TIME, pieces.next()).await.context("the consumer is silent")?;
    let consumer = made.get("name").and_then(Value::as_str).context("no name")?;
    client.request(format!("$JS.API.CONSUMER.DELETE.{BUCKET}.{consumer}"), Bytes::new()).await?;
    Ok(piece.context("the consumer ended")?.payload)
}
