//! Events as CloudEvents 1.0 in JSON.

use events::audit::{AuditBatch, AuditRecord};
use events::observation::{Observation, ObservationBatch};
use events::position::Stream;
use events::request::RefusedCommand;
use events::{Commit, DecodeError, Envelope, Event};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use store::Record;

/// One event as a CloudEvent. Names of extensions are those of the envelope, without underscores.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CloudEvent {
    /// Version of CloudEvents.
    pub specversion: String,
    /// The event's id; of an observation `<writer>/<epoch>/<sequence>`.
    pub id: String,
    /// Whose: `/organizations/<id>`.
    pub source: String,
    /// Such as `kasbah.agent.registered`, or `kasbah.observed.object-applied`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The aggregate, or the writer of an observation.
    pub subject: String,
    /// When it happened, as its writer claims.
    pub time: events::Timestamp,
    /// Media type of the data.
    pub datacontenttype: String,
    /// Who caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<events::Actor>,
    /// From the first cause to the last effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlationid: Option<events::CorrelationId>,
    /// The event that led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causationid: Option<events::EventId>,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Version of the data's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemaversion: Option<u16>,
    /// The aggregate's version after the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregateversion: Option<u64>,
    /// When the log took it.
    pub recordedat: events::Timestamp,
    /// Where to go on from: give it as `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// What happened.
    pub data: Value,
}

/// The events of one record, in order.
#[must_use]
pub fn of_record(record: &Record) -> Vec<CloudEvent> {
    match record.shard.0 {
        Stream::Decisions => match record.commit() {
            Some(commit) => of_commit(record, commit),
            None => vec![unreadable(record, "commit")],
        },
        Stream::Observations => match events::decode::<ObservationBatch>(&record.bytes) {
            Ok(batch) => of_batch(record, &batch),
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
        Stream::Refusals => match events::decode::<RefusedCommand>(&record.bytes) {
            Ok(refused) => vec![of_refusal(record, &refused)],
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
        // What is sealed has a route of its own.
        Stream::Recordings => Vec::new(),
        Stream::Audit => match events::decode::<AuditBatch>(&record.bytes) {
            Ok(batch) => batch.records.iter().map(|audited| of_audit(record, audited)).collect(),
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
    }
}

fn bare(record: &Record, id: String, event_type: String, subject: String, data: Value) -> CloudEvent {
    CloudEvent {
        specversion: "1.0".to_owned(),
        id,
        source: format!("/organizations/{}", record.organization),
        event_type,
        subject,
        time: record.recorded_at,
        datacontenttype: "application/json".to_owned(),
        actor: None,
        correlationid: None,
        causationid: None,
        traceparent: None,
        schemaversion: None,
        aggregateversion: None,
        recordedat: record.recorded_at,
        position: None,
        data,
    }
}

fn of_commit(record: &Record, commit: &Commit) -> Vec<CloudEvent> {
    commit.envelopes().map(|envelope| of_envelope(record, commit.version, envelope)).collect()
}

fn of_envelope(record: &Record, version: u64, envelope: Envelope) -> CloudEvent {
    let decoded = Event::decode(&envelope.body).map_err(|error| match error {
        DecodeError::UnknownType { .. }
        | DecodeError::UnknownVersion { .. }
        | DecodeError::Malformed { .. } => error.to_string(),
    });
    let data = decoded.and_then(|event| event.to_json().map_err(|error| error.to_string()));
    let data = data.unwrap_or_else(|error| serde_json::json!({ "unreadable": error }));
    let event_type = envelope.body.event_type;
    CloudEvent {
        time: envelope.occurred_at,
        actor: Some(envelope.actor),
        correlationid: Some(envelope.correlation_id),
        causationid: envelope.causation_id,
        traceparent: envelope.traceparent,
        schemaversion: Some(envelope.body.schema_version),
        aggregateversion: Some(version),
        ..bare(record, envelope.id.to_string(), event_type, envelope.aggregate.to_string(), data)
    }
}

fn of_batch(record: &Record, batch: &ObservationBatch) -> Vec<CloudEvent> {
    let sequences = batch.first..;
    sequences
        .zip(&batch.observations)
        .map(|(sequence, observation)| {
            let id = format!("{}/{}/{sequence}", batch.writer, batch.epoch);
            of_observation(record, id, &batch.writer, observation)
        })
        .collect()
}

fn of_observation(record: &Record, id: String, writer: &str, observation: &Observation) -> CloudEvent {
    let what = serde_json::to_value(&observation.what).unwrap_or_default();
    // An observation is an object with one field, its kind, or just its kind.
    let (kind, data) = match what {
        Value::Object(fields) => fields.into_iter().next().unwrap_or_default(),
        Value::String(kind) => (kind, Value::Null),
        other => ("unknown".to_owned(), other),
    };
    let event = bare(record, id, format!("kasbah.observed.{kind}"), writer.to_owned(), data);
    CloudEvent { time: observation.at, schemaversion: Some(observation.what.version()), ..event }
}

fn of_refusal(record: &Record, refused: &RefusedCommand) -> CloudEvent {
    let id = format!("{}/{}", refused.correlation_id, refused.request);
    let data = serde_json::json!({ "request": refused.request, "refusal": refused.refusal });
    let event = bare(record, id, "kasbah.command.refused".to_owned(), refused.request.clone(), data);
    CloudEvent {
        time: refused.at,
        actor: Some(refused.actor.clone()),
        correlationid: Some(refused.correlation_id),
        ..event
    }
}

/// A request may be told of twice, when it begins and when it ends: both have its id, and their phase behind it.
fn of_audit(record: &Record, audited: &AuditRecord) -> CloudEvent {
    let id = format!("{}/{}", audited.id, audited.phase.as_str());
    let data = serde_json::to_value(audited).unwrap_or_default();
    let event = bare(record, id, "kasbah.cluster.used".to_owned(), format!("agent/{}", audited.agent), data);
    CloudEvent { time: audited.began_at, actor: Some(audited.holder.clone()), ..event }
}

fn unreadable(record: &Record, detail: &str) -> CloudEvent {
    let id = events::Sha256::of(&record.bytes).to_string();
    let data = serde_json::json!({ "unreadable": detail });
    bare(record, id, "kasbah.log.unreadable".to_owned(), record.shard.0.as_str().to_owned(), data)
}
