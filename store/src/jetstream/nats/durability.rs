//! What the servers' settings promise about a message that they acknowledged.

use serde_json::{Value, json};

use super::link::Link;
use crate::jetstream::server::ServerError;

/// The system account must let the log's account ask this.
pub(in crate::jetstream) const QUESTION: &str = "$SYS.REQ.SERVER.PING.JSZ";

/// What the servers say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::jetstream) struct Promise {
    /// Servers of the cluster, those that are down included.
    pub(in crate::jetstream) servers: usize,
    /// Those that acknowledge before they sync, each with its interval.
    pub(in crate::jetstream) late: Vec<String>,
}

impl Promise {
    /// Asks all servers. `None` when the account may not ask.
    pub(in crate::jetstream) async fn of(link: &Link) -> Result<Option<Self>, ServerError> {
        let mut answers = link.ask_all(QUESTION.to_owned(), &json!({})).await?;
        let mut promise = Self { servers: 0, late: Vec::new() };
        let mut expected = 1;
        while promise.servers < expected {
            let answer = match answers.next(link).await {
                Ok(Some(answer)) => answer,
                // One that is down says nothing; it is as the others, or else refused when it starts something itself.
                Ok(None) | Err(_) if promise.servers * 2 > expected => break,
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            };
            if answer.status.is_some() {
                return Ok(None);
            }
            let answer: Value = serde_json::from_slice(&answer.payload)
                .map_err(|error| ServerError(format!("the answer to {QUESTION} is not readable: {error}")))?;
            let size = answer.pointer("/data/meta_cluster/cluster_size").and_then(Value::as_u64);
            expected = expected.max(size.and_then(|size| usize::try_from(size).ok()).unwrap_or(1));
            promise.add(&answer);
        }
        promise.servers = promise.servers.max(expected);
        Ok(Some(promise))
    }

    fn add(&mut self, answer: &Value) {
        if answer.pointer("/data/disabled") == Some(&Value::Bool(true)) {
            return;
        }
        self.servers += 1;
        if answer.pointer("/data/config/sync_always") != Some(&Value::Bool(true)) {
            let name = answer.pointer("/server/name").and_then(Value::as_str).unwrap_or("a server");
            let nanos = answer.pointer("/data/config/sync_interval").and_then(Value::as_u64).unwrap_or(0);
            self.late.push(format!("{name} syncs every {} s", nanos / 1_000_000_000));
        }
    }
}
