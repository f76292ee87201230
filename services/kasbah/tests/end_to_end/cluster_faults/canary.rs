//! Somebody else, who must notice nothing: small requests all the time, and a watch that is open all the time.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::Cluster;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stage::{Asker, Stage};
use crate::scene::LIMIT;

/// Between two requests, and between two changes.
const PACE: Duration = Duration::from_millis(50);
const LAST: &str = "last";

/// What a canary does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Song {
    /// Asks and watches.
    Whole,
    /// Only watches: for tunnels that are full.
    Watch,
}

/// One of them. Each has a ConfigMap of its own.
pub struct Canary {
    name: String,
    stop: watch::Sender<bool>,
    asking: JoinHandle<Result<usize>>,
    changing: JoinHandle<Result<u64>>,
    watching: JoinHandle<Result<Vec<String>>>,
}

impl Canary {
    /// Returns once it sings.
    pub async fn begin(stage: &Stage, name: &str, asker: Asker, song: Song) -> Self {
        let collection = stage.maps();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let made = stage.scene.cluster.create_object(&collection, &map).await.unwrap();
        let version = made["metadata"]["resourceVersion"].as_str().unwrap();
        let watched = format!(
            "{collection}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}&timeoutSeconds=3600"
        );
        let path = format!("{collection}/{name}");
        let own = asker.on_other_connections(&stage.scene.kasbah);
        testkit::eventually(LIMIT, || own.reads(&path)).await;
        let answer = asker.open(&watched).await.unwrap();
        assert_eq!(answer.status(), 200, "the canary's watch");
        let (stop, stopped) = watch::channel(false);
        let cluster = stage.scene.cluster.clone();
        Self {
            name: name.to_owned(),
            stop,
            watching: tokio::spawn(watches(answer)),
            changing: tokio::spawn(changes(cluster, path.clone(), stopped.clone())),
            asking: tokio::spawn(asks(own, path, (song == Song::Whole).then_some(stopped))),
        }
    }

    /// Nothing failed, and the watch had each change, in order.
    pub async fn noticed_nothing(self) {
        self.stop.send_replace(true);
        let ending = async {
            let made = self.changing.await?.context("changing")?;
            let asked = self.asking.await?.context("asking")?;
            let seen = self.watching.await?.context("watching")?;
            let mut expected: Vec<String> = (0..made).map(|number| number.to_string()).collect();
            expected.push(LAST.to_owned());
            ensure!(seen == expected, "changes are missing: {} of {}", seen.len(), expected.len());
            println!("{}: {asked} requests, {made} changes seen", self.name);
            anyhow::Ok(())
        };
        let ended = tokio::time::timeout(LIMIT, ending).await;
        ended.expect("the canary ends").unwrap_or_else(|error| panic!("{} noticed: {error:#}", self.name));
    }
}

async fn asks(asker: Asker, path: String, stopped: Option<watch::Receiver<bool>>) -> Result<usize> {
    let Some(stopped) = stopped else { return Ok(0) };
    let mut pace = tokio::time::interval(PACE);
    let mut asked = 0;
    while !*stopped.borrow() {
        pace.tick().await;
        asker.reads(&path).await.with_context(|| format!("request {asked}"))?;
        asked += 1;
    }
    Ok(asked)
}

async fn changes(cluster: Cluster, path: String, stopped: watch::Receiver<bool>) -> Result<u64> {
    let mut pace = tokio::time::interval(PACE);
    let change = async |value: String| {
        let patch = json!({"data": {"value": value}});
        let body = Some(("application/merge-patch+json", &patch));
        let answer = cluster.send(Method::PATCH, &path, body).await?;
        ensure!(answer.status.is_success(), "{}", answer.status);
        anyhow::Ok(())
    };
    let mut made = 0;
    while !*stopped.borrow() {
        pace.tick().await;
        change(made.to_string()).await?;
        made += 1;
    }
    change(LAST.to_owned()).await?;
    Ok(made)
}

/// The values of each event, up to the last one.
async fn watches(mut answer: reqwest::Response) -> Result<Vec<String>> {
    let (mut seen, mut unread) = (Vec::new(), Vec::new());
    loop {
        let piece = answer.chunk().await.with_context(|| format!("after {} changes", seen.len()))?;
        let Some(piece) = piece else { bail!("the watch ended after {} changes", seen.len()) };
        unread.extend_from_slice(&piece);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line)?;
            let value = event["object"]["data"]["value"].as_str().context("no value")?.to_owned();
            let is_last = value == LAST;
            seen.push(value);
            if is_last {
                return Ok(seen);
            }
        }
    }
}
