//! Events as CloudEvents 1.0 in JSON: the one place where what the log holds becomes what programs outside read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::{AuditBatch, AuditRecord};
use crate::observation::{Observation, ObservationBatch};
use crate::position::Stream;
use crate::request::RefusedCommand;
use crate::{
    Actor, AgentId, Commit, CorrelationId, DecodeError, Envelope, EnvironmentId, Event, EventId,
    OrganizationId, ProjectId, Sha256, Timestamp,
};

/// One event as a CloudEvent. Names of extensions are those of the envelope, without underscores.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    pub time: Timestamp,
    /// Media type of the data.
    pub datacontenttype: String,
    /// Who caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// From the first cause to the last effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlationid: Option<CorrelationId>,
    /// The event that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causationid: Option<EventId>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Version of the data's shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemaversion: Option<u16>,
    /// The aggregate's version after the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregateversion: Option<u64>,
    /// When the log took it.
    pub recordedat: Timestamp,
    /// Where to go on from: give it as `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// The project that it is about; in what is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// The agent that it is about; in what is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The environment that it is about; in what is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentId>,
    /// The log in which it was exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exportlog: Option<uuid::Uuid>,
    /// Its number among the exported events of its organization: dense, so that a missing number is a missing event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exportsequence: Option<u64>,
    /// Who exported it: counts only between the `kasbah.export.began` of this run and the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exportrun: Option<uuid::Uuid>,
    /// What happened.
    #[serde(default)]
    pub data: Value,
}

/// A record of the log, as its store gives it.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// In which stream.
    pub stream: Stream,
    /// When the log took it.
    pub recorded_at: Timestamp,
    /// Whose.
    pub organization: OrganizationId,
    /// The stored bytes.
    pub bytes: &'a [u8],
    /// What they are, in the stream of decisions.
    pub commit: Option<&'a Commit>,
}

impl CloudEvent {
    /// As it is exported.
    ///
    /// # Errors
    /// When it is no event.
    pub fn from_json(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// As it is exported.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Its fields have names that are text.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The events of one record, in order.
#[must_use]
pub fn of_record(record: &Recorded<'_>) -> Vec<CloudEvent> {
    match record.stream {
        Stream::Decisions => match record.commit {
            Some(commit) => of_commit(record, commit),
            None => vec![unreadable(record, "commit")],
        },
        Stream::Observations | Stream::Objects => match crate::decode::<ObservationBatch>(record.bytes) {
            Ok(batch) => of_batch(record, &batch),
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
        Stream::Refusals => match crate::decode::<RefusedCommand>(record.bytes) {
            Ok(refused) => vec![of_refusal(record, &refused)],
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
        // What is sealed has a route of its own.
        Stream::Recordings => Vec::new(),
        Stream::Exports => match CloudEvent::from_json(record.bytes) {
            Ok(event) => vec![event],
            Err(detail) => vec![unreadable(record, &detail)],
        },
        Stream::Audit => match crate::decode::<AuditBatch>(record.bytes) {
            Ok(batch) => batch.records.iter().map(|audited| of_audit(record, audited)).collect(),
            Err(error) => vec![unreadable(record, &error.to_string())],
        },
    }
}

fn bare(record: &Recorded<'_>, id: String, event_type: String, subject: String, data: Value) -> CloudEvent {
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
        project: None,
        agent: None,
        environment: None,
        exportlog: None,
        exportsequence: None,
        exportrun: None,
        data,
    }
}

fn of_commit(record: &Recorded<'_>, commit: &Commit) -> Vec<CloudEvent> {
    commit.envelopes().map(|envelope| of_envelope(record, commit.version, envelope)).collect()
}

fn of_envelope(record: &Recorded<'_>, version: u64, envelope: Envelope) -> CloudEvent {
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

fn of_batch(record: &Recorded<'_>, batch: &ObservationBatch) -> Vec<CloudEvent> {
    let sequences = batch.first..;
    sequences
        .zip(&batch.observations)
        .map(|(sequence, observation)| {
            let id = format!("{}/{}/{sequence}", batch.writer, batch.epoch);
            of_observation(record, id, &batch.writer, observation)
        })
        .collect()
}

fn of_observation(record: &Recorded<'_>, id: String, writer: &str, observation: &Observation) -> CloudEvent {
    let what = serde_json::to_value(&observation.what).unwrap_or_default();
    // An observation is an object with one field, its kind, or just its kind.
    let (kind, data) = match what {
        Value::Object(fields) => {
            let (kind, data) = fields.into_iter().next().unwrap_or_default();
            (kind, without_body(data))
        }
        Value::String(kind) => (kind, Value::Null),
        other => ("unknown".to_owned(), other),
    };
    let event = bare(record, id, format!("kasbah.observed.{kind}"), writer.to_owned(), data);
    CloudEvent { time: observation.at, schemaversion: Some(observation.what.version()), ..event }
}

/// Who reads the log may not be let into every cluster: what an object holds is not said here, only what became of it.
fn without_body(mut data: Value) -> Value {
    if let Some(object) = data.get_mut("object").and_then(Value::as_object_mut) {
        object.remove("body");
    }
    data
}

fn of_refusal(record: &Recorded<'_>, refused: &RefusedCommand) -> CloudEvent {
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
fn of_audit(record: &Recorded<'_>, audited: &AuditRecord) -> CloudEvent {
    let id = format!("{}/{}", audited.id, audited.phase.as_str());
    let data = serde_json::to_value(audited).unwrap_or_default();
    let event = bare(record, id, "kasbah.cluster.used".to_owned(), format!("agent/{}", audited.agent), data);
    CloudEvent { time: audited.began_at, actor: Some(audited.holder.clone()), ..event }
}

fn unreadable(record: &Recorded<'_>, detail: &str) -> CloudEvent {
    let id = Sha256::of(record.bytes).to_string();
    let data = serde_json::json!({ "unreadable": detail });
    bare(record, id, "kasbah.log.unreadable".to_owned(), record.stream.as_str().to_owned(), data)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ObjectIdentity;
    use crate::observation::{ObjectBody, Observed, SeenObject};

    #[test]
    fn a_change_of_an_object_is_an_event_without_what_the_object_holds() {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let seen: SeenObject = SeenObject {
            identity,
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            digest: Sha256::of(b"{}"),
            body: ObjectBody::Json("{\"data\":\"private\"}".to_owned()),
            writers: Vec::new(),
        };
        let what = Observed::ObjectSeen { object: Box::new(seen) };
        let organization = OrganizationId(Uuid::from_u128(1));
        let writer = ObservationBatch::agent_writer(AgentId(Uuid::from_u128(2)));
        let observations = vec![Observation { at: Timestamp(5), what }];
        let batch =
            ObservationBatch { organization, writer: writer.clone(), epoch: 3, first: 9, observations };
        let bytes = crate::encode(&batch).unwrap();
        let stream = Stream::Objects;
        let record =
            Recorded { stream, recorded_at: Timestamp(6), organization, bytes: &bytes, commit: None };
        let events = of_record(&record);
        let event = &events[0];
        assert_eq!((events.len(), &*event.event_type), (1, "kasbah.observed.object-seen"));
        assert_eq!((&event.subject, &event.id), (&writer, &format!("{writer}/3/9")));
        assert_eq!(event.data["object"]["identity"]["name"], "web");
        assert!(!serde_json::to_string(event).unwrap().contains("private"), "{event:?}");
    }
}
