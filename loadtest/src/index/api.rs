//! The public API, as a program speaks to it: queries on a connection that stays open, and a subscription.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Installation, client_trusting};
use tokio::task::JoinHandle;

use crate::figure::percentile;
use crate::push::{LIMIT, millis};

pub struct Api {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Api {
    pub fn of(kasbah: &Installation, token: &str) -> anyhow::Result<Self> {
        let http = client_trusting(&std::fs::read(kasbah.authority())?)?;
        Ok(Self { http, url: kasbah.api(), token: token.trim().to_owned() })
    }

    async fn send(&self, accept: &str, query: &Value) -> anyhow::Result<reqwest::Response> {
        let request = self.http.post(format!("{}/api/graphql", self.url)).bearer_auth(&self.token);
        let answer = request.header("accept", accept).json(query).send().await?;
        ensure!(answer.status().is_success(), "{}: {}", answer.status(), answer.text().await?);
        Ok(answer)
    }

    /// What a query answers, with how long the whole of it took.
    pub async fn ask(&self, query: &str, variables: &Value) -> anyhow::Result<(Value, Duration)> {
        let begun = Instant::now();
        let body = json!({"query": query, "variables": variables});
        let answer = self.send("application/json", &body).await?.bytes().await?;
        let took = begun.elapsed();
        let mut answer: Value = serde_json::from_slice(&answer)?;
        if let Some(errors) = answer.get("errors") {
            bail!("{query}: {errors}");
        }
        Ok((answer.get_mut("data").map(Value::take).unwrap_or_default(), took))
    }

    /// Of so many askings one after the other, the time within which 95 of 100 were answered, in milliseconds.
    pub async fn p95(&self, asked: usize, query: &str, variables: &Value) -> anyhow::Result<f64> {
        let mut times = Vec::new();
        for _ in 0..asked {
            times.push(millis(self.ask(query, variables).await?.1));
        }
        Ok(percentile(times, 95.0))
    }

    /// A method of the HTTP API with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(path, self.http.post(format!("{}{path}", self.url)).json(body)).await
    }

    /// What the HTTP API shows.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(path, self.http.get(format!("{}{path}", self.url))).await
    }

    async fn call(&self, path: &str, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.bearer_auth(&self.token).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Follows the changes of a namespace's ConfigMaps from now on.
    pub async fn follow(&self, namespace: &str) -> anyhow::Result<Changes> {
        let query =
            "subscription($of: ResourceFilter) { resourceChanges(filter: $of) { change { name what } } }";
        let variables = json!({"of": {"namespace": namespace, "kind": "ConfigMap"}});
        let body = json!({"query": query, "variables": variables});
        let answer = self.send("text/event-stream", &body).await?;
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let task = tokio::spawn(note(answer, Arc::clone(&seen)));
        Ok(Changes { seen, task })
    }
}

/// When the first change of each object came. Ends with this handle.
pub struct Changes {
    seen: Arc<Mutex<HashMap<String, SystemTime>>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Changes {
    /// Waits until a change of an object came; answers when.
    pub async fn sees(&self, name: &str) -> SystemTime {
        testkit::eventually(LIMIT, || async {
            ensure!(!self.task.is_finished(), "the subscription ended");
            self.seen.lock().get(name).copied().with_context(|| format!("{name} never comes"))
        })
        .await
    }
}

async fn note(
    mut answer: reqwest::Response,
    seen: Arc<Mutex<HashMap<String, SystemTime>>>,
) -> anyhow::Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    while let Some(bytes) = answer.chunk().await? {
        let now = SystemTime::now();
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            let Ok(event) = serde_json::from_slice::<Value>(data) else { continue };
            if let Some(name) = event.pointer("/data/resourceChanges/change/name").and_then(Value::as_str) {
                seen.lock().entry(name.to_owned()).or_insert(now);
            }
        }
    }
    Ok(())
}
