//! A watch on the API server that notes when each object was seen with which value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use testkit::Cluster;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::LIMIT;
use super::stage::Kind;

/// When an object was first seen with a value.
type Seen = HashMap<(String, String), SystemTime>;

/// Ends with this handle.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Watches the objects of a kind in a namespace from now on.
    pub async fn start(cluster: &Cluster, namespace: &str, kind: Kind) -> anyhow::Result<Self> {
        let path = format!("{}/namespaces/{namespace}/{}", kind.api(), kind.plural());
        let list = cluster.get(&path).await?;
        let version =
            list.pointer("/metadata/resourceVersion").and_then(Value::as_str).context("a list's version")?;
        let following = Following { cluster: cluster.clone(), kind, path, version: version.to_owned() };
        let answer = following.open().await?;
        let (seen, changed) = (Arc::new(Mutex::new(Seen::new())), Arc::new(Notify::new()));
        let task = tokio::spawn(note(following, answer, Arc::clone(&seen), Arc::clone(&changed)));
        Ok(Self { seen, changed, task })
    }

    /// Waits until an object has a value; answers when it was seen.
    pub async fn sees(&self, name: &str, value: &str) -> anyhow::Result<SystemTime> {
        let key = (name.to_owned(), value.to_owned());
        self.until(|seen| seen.get(&key).copied()).await.with_context(|| format!("{name} never has {value}"))
    }

    /// Waits until so many objects were seen with a value; answers when the last one was.
    pub async fn sees_many(&self, count: usize, value: &str) -> anyhow::Result<SystemTime> {
        let all = |seen: &Seen| {
            let times: Vec<SystemTime> =
                seen.iter().filter(|((_, with), _)| with == value).map(|(_, time)| *time).collect();
            (times.len() >= count).then(|| times.into_iter().max()).flatten()
        };
        self.until(all).await.with_context(|| format!("{count} objects are not seen with {value}"))
    }

    async fn until<T>(&self, find: impl Fn(&Seen) -> Option<T>) -> anyhow::Result<T> {
        let look = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = find(&self.seen.lock()) {
                    return found;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(LIMIT, look).await;
        found.with_context(|| if self.task.is_finished() { "the watch ended" } else { "not in time" })
    }
}

/// How far a watch has come.
struct Following {
    cluster: Cluster,
    kind: Kind,
    path: String,
    version: String,
}

impl Following {
    async fn open(&self) -> anyhow::Result<reqwest::Response> {
        let path = format!("{}?watch=true&resourceVersion={}", self.path, self.version);
        let answer = self.cluster.stream(&path).await?;
        ensure!(answer.status().is_success(), "watch: {}", answer.status());
        Ok(answer)
    }
}

/// Notes what a watch shows. An API server that has no time for a watch ends it, which is then resumed.
async fn note(
    mut following: Following,
    mut answer: reqwest::Response,
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
) -> anyhow::Result<()> {
    loop {
        let mut rest: Vec<u8> = Vec::new();
        while let Ok(Some(bytes)) = answer.chunk().await {
            let now = SystemTime::now();
            rest.extend_from_slice(&bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                ensure!(event.pointer("/type").and_then(Value::as_str) != Some("ERROR"), "watch: {event}");
                let text = |pointer: &str| {
                    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                following.version = text("/object/metadata/resourceVersion");
                let said = event.pointer("/object").and_then(|object| following.kind.value(object));
                let value = said.unwrap_or_default().to_owned();
                seen.lock().entry((text("/object/metadata/name"), value)).or_insert(now);
            }
            changed.notify_waiters();
        }
        answer = following.open().await?;
    }
}
