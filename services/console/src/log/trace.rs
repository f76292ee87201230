//! One chain: everything that a cause led to, from the first decision to the health of the last object.

use std::collections::BTreeSet;

use events::position::Stream;
use events::{CloudEvent, CorrelationId, OrganizationId, Position, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use store::{EventLog, ReadError, ReadFilter, Record};

use super::once::Once;

/// Most events that one answer holds: the first.
const MAXIMUM_EVENTS: usize = 5000;
/// How far the clock of who began a chain may be ahead of the log's.
const SKEW_MILLIS: i64 = 10 * 60 * 1000;

/// A chain's events.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trace {
    /// Which chain.
    pub correlationid: CorrelationId,
    /// When it began, where its id says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// Later events were left out.
    pub more: bool,
    /// Its events: decisions, then what agents saw and did, then what was refused, each in the order of the log.
    pub events: Vec<CloudEvent>,
}

/// Reads a chain. What agents say names the sync that they are at, and a chain its syncs. Keeps nothing but the chain.
///
/// # Errors
/// When the log cannot be read.
pub async fn trace(
    log: &dyn EventLog,
    organization: OrganizationId,
    correlation: CorrelationId,
) -> Result<Trace, ReadError> {
    let begun = correlation.made();
    let mut chain = Chain {
        syncs: BTreeSet::new(),
        once: Once::default(),
        trace: Trace { correlationid: correlation, begun, more: false, events: Vec::new() },
    };
    for stream in [Stream::Decisions, Stream::Observations, Stream::Refusals] {
        let filter =
            ReadFilter { streams: vec![stream], organization: Some(organization), kinds: Vec::new() };
        let mut records = log.read(&Position::start(), &filter).await?;
        while let Some(record) = records.recv().await {
            let record = record?;
            let earlier = begun.is_some_and(|begun| record.recorded_at < begun.plus_millis(-SKEW_MILLIS));
            if earlier || record.organization != organization {
                continue;
            }
            chain.take(&record);
            if chain.trace.more {
                return Ok(chain.trace);
            }
        }
    }
    Ok(chain.trace)
}

struct Chain {
    syncs: BTreeSet<String>,
    once: Once,
    trace: Trace,
}

impl Chain {
    fn take(&mut self, record: &Record) {
        // Nearly all commits are of other chains, and need not be made into JSON.
        let other = record.commit().is_some_and(|commit| commit.correlation_id != self.trace.correlationid);
        if other {
            return;
        }
        for event in record.cloud_events() {
            if !self.has(&event) || !self.once.is_new(&event) {
                continue;
            }
            self.syncs.extend(sync_of(&event).map(str::to_owned));
            if self.trace.events.len() >= MAXIMUM_EVENTS {
                self.trace.more = true;
                return;
            }
            self.trace.events.push(event);
        }
    }

    fn has(&self, event: &CloudEvent) -> bool {
        let named = event.data.get("correlation_id").and_then(Value::as_str);
        event.correlationid == Some(self.trace.correlationid)
            || named.is_some_and(|named| named.parse() == Ok(self.trace.correlationid))
            || sync_of(event).is_some_and(|sync| self.syncs.contains(sync))
    }
}

fn sync_of(event: &CloudEvent) -> Option<&str> {
    event.data.get("sync").and_then(Value::as_str)
}
