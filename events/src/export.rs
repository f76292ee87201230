//! What programs outside get: which events are exported, how they are numbered, filtered, and gone on with.
//!
//! The exports of an organization are numbered without gaps. A replica that exports begins a run with an event of its own
//! ([`BEGAN`]): from there on, only what this run exports counts. So two replicas that export by accident never share a number, and
//! every reader comes to the same list ([`ExportLane`]).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalogue::Event;
use crate::cloud_event::CloudEvent;
use crate::id::{EnvironmentId, ProjectId};
use crate::request::Refusal;
use crate::time::Timestamp;

/// Type of the event with which a run of exports begins. Readers count it, and do not show it.
pub const BEGAN: &str = "kasbah.export.began";
/// Type of the event that says which events a reader missed for good.
pub const GAP: &str = "kasbah.export.gap";
/// How much earlier than its event a log may say that the event was exported: clocks of servers differ.
const SKEW_MILLIS: i64 = 60_000;
/// Longest pattern of types.
const LONGEST_PATTERN: usize = 100;
/// Most patterns of one filter.
pub const MOST_PATTERNS: usize = 32;

/// Decisions that are of no use outside.
const INTERNAL: [&str; 4] =
    ["kasbah.name.claimed", "kasbah.token.used", "kasbah.applier.named", "kasbah.root.rotated"];

/// Observations that are exported. Their types never change; further ones are only added.
const OBSERVED: [(&str, &str); 15] = [
    ("kasbah.observed.sync-started", "An agent began a sync."),
    (
        "kasbah.observed.object-applied",
        "An agent created or changed an object, or found it as it should be for the first time.",
    ),
    ("kasbah.observed.object-pruned", "An agent deleted an object, or left it in place for a reason."),
    ("kasbah.observed.object-failed", "An agent could not apply or prune an object."),
    ("kasbah.observed.sync-finished", "An agent ended a sync."),
    ("kasbah.observed.drift-seen", "Somebody changed or deleted an object of a source."),
    ("kasbah.observed.drift-corrected", "An agent corrected a drift."),
    ("kasbah.observed.object-finished", "An object that Kubernetes removes by itself ran to its end."),
    ("kasbah.observed.health-changed", "The health of an object changed."),
    ("kasbah.observed.api-server-lost", "An agent lost its API server."),
    ("kasbah.observed.api-server-reached", "An agent reaches its API server again."),
    ("kasbah.observed.source-blocked", "A source cannot be applied."),
    ("kasbah.observed.gap", "Observations of an agent were lost."),
    ("kasbah.observed.tunnel-opened", "An instance of an agent connected."),
    ("kasbah.observed.tunnel-closed", "An instance of an agent disconnected."),
];

/// Every type that is exported, with what it says, sorted.
#[must_use]
pub fn exported_types() -> Vec<(&'static str, &'static str)> {
    let decided = Event::about().into_iter().filter(|(name, _)| !INTERNAL.contains(name));
    let mut all: Vec<_> = decided.map(|(name, about)| (name, about.trim())).chain(OBSERVED).collect();
    all.sort_unstable();
    all
}

/// The JSON Schema of the data of each type that is exported.
#[cfg(feature = "schema")]
pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, serde_json::Value)> {
    let observed = <crate::observation::Observed as schemars::JsonSchema>::json_schema(generator).to_value();
    let kinds = observed.get("oneOf").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let of_kind = |name: &str| {
        let kind = name.strip_prefix("kasbah.observed.")?;
        kinds.iter().find_map(|one| one.get("properties")?.get(kind)).cloned()
    };
    let mut all: Vec<_> = OBSERVED.iter().filter_map(|(name, _)| Some((*name, of_kind(name)?))).collect();
    let decided = Event::schemas(generator).into_iter().filter(|(name, _)| is_exported(name));
    all.extend(decided.map(|(name, schema)| (name, schema.to_value())));
    all
}

/// Whether events of this type are exported.
#[must_use]
pub fn is_exported(event_type: &str) -> bool {
    let is = |(name, _): &(&str, &str)| *name == event_type;
    OBSERVED.iter().any(is)
        || (!INTERNAL.contains(&event_type) && Event::types().iter().any(|(name, _)| *name == event_type))
}

/// Families of events that show who may do what: only readers of the whole log get them.
const ADMINISTRATIVE: [&str; 12] = [
    "organization",
    "group",
    "project",
    "user",
    "identity-provider",
    "token",
    "token-lifetimes",
    "role",
    "credential",
    "job",
    "root",
    "subscription",
];

/// Whether an event is only for those who may read the whole log, whatever it is about.
#[must_use]
pub fn is_administrative(event_type: &str) -> bool {
    let family = event_type.strip_prefix("kasbah.").and_then(|rest| rest.split('.').next());
    family.is_none_or(|family| ADMINISTRATIVE.contains(&family))
}

/// Types of events: one, or all that begin so, as in `kasbah.sync.*`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypePattern(String);

/// A text is no pattern of types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} must be a type such as kasbah.sync.finished, or all that begin so, such as kasbah.sync.*; {1}"
)]
pub struct ParsePatternError(String, &'static str);

impl TypePattern {
    /// Whether any event that is exported today has such a type.
    #[must_use]
    pub fn is_of_use(&self) -> bool {
        exported_types().iter().any(|(name, _)| self.has(name))
    }

    /// Whether an event's type is one of them.
    #[must_use]
    pub fn has(&self, event_type: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => event_type == self.0,
        }
    }
}

impl FromStr for TypePattern {
    type Err = ParsePatternError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why| ParsePatternError(text.chars().take(LONGEST_PATTERN).collect(), why);
        let pattern = Self(text.to_owned());
        let prefix = text.strip_suffix('*').unwrap_or(text);
        let fine =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        if text.is_empty() || text.len() > LONGEST_PATTERN || !prefix.bytes().all(fine) {
            return Err(wrong("use lower-case letters, digits, dots and hyphens, and * at the end only"));
        }
        if prefix.len() < text.len() && !prefix.is_empty() && !prefix.ends_with('.') {
            return Err(wrong("* stands behind a dot"));
        }
        Ok(pattern)
    }
}

impl TryFrom<String> for TypePattern {
    type Error = ParsePatternError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TypePattern> for String {
    fn from(pattern: TypePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which exported events somebody wants.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventFilter {
    /// Of these types; of all, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypePattern>,
    /// Only about this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// Only about this environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentId>,
}

impl EventFilter {
    /// Whether an event is wanted. A gap passes every filter.
    #[must_use]
    pub fn wants(&self, event: &CloudEvent) -> bool {
        let of_type = self.types.is_empty() || self.types.iter().any(|types| types.has(&event.event_type));
        event.event_type == GAP
            || of_type
                && self.project.is_none_or(|project| event.project == Some(project))
                && self.environment.is_none_or(|environment| event.environment == Some(environment))
    }

    /// The environment that a text names: an id, or a name in the project.
    ///
    /// # Errors
    /// When it is a name, and there is no project.
    pub fn parse_environment(text: &str, project: Option<ProjectId>) -> Result<EnvironmentId, Refusal> {
        if let Ok(environment) = text.parse() {
            return Ok(environment);
        }
        project
            .map(|project| EnvironmentId::derive(project, text))
            .ok_or_else(|| Refusal::invalid("environment", "must be an id, or a name together with project"))
    }
}

/// Where a reader of an organization's exports stands: behind the event of this number, which this log exported. It means the same in
/// each copy of the log. The time says where to look.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPosition {
    /// The log that exported the event.
    pub log: Uuid,
    /// The event's number.
    pub sequence: u64,
    /// When the log recorded what the event says.
    pub at: Timestamp,
}

impl ExportPosition {
    /// Behind an event; `None` when it was not exported.
    #[must_use]
    pub fn of(event: &CloudEvent) -> Option<Self> {
        Some(Self { log: event.exportlog?, sequence: event.exportsequence?, at: event.recordedat })
    }

    /// From when on the log has to be read to go on from here.
    #[must_use]
    pub const fn read_since(&self) -> Timestamp {
        self.at.plus_millis(-SKEW_MILLIS)
    }
}

impl fmt::Display for ExportPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.log.simple(), self.sequence, self.at.0)
    }
}

/// A text is no position of exports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a position of exported events: use the id of an event that was received")]
pub struct ParseExportPositionError;

impl FromStr for ExportPosition {
    type Err = ParseExportPositionError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(ParseExportPositionError);
        let (log, sequence, at) = (next()?, next()?, next()?);
        let position = Self {
            log: Uuid::try_parse(log).map_err(|_| ParseExportPositionError)?,
            sequence: sequence.parse().map_err(|_| ParseExportPositionError)?,
            at: Timestamp(at.parse().map_err(|_| ParseExportPositionError)?),
        };
        if parts.next().is_some() { Err(ParseExportPositionError) } else { Ok(position) }
    }
}

/// The exports of one organization, as a reader of the stream counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExportLane {
    /// Whose exports count.
    pub run: Option<Uuid>,
    /// Number of the last event that counts.
    pub sequence: u64,
}

/// What a record of the exports comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// A run began.
    Began,
    /// The next event.
    Event,
    /// Exported by somebody who had been replaced, or twice: it is no event.
    Void,
}

impl ExportLane {
    /// Takes the next record of the organization.
    pub fn take(&mut self, event: &CloudEvent) -> Counted {
        let sequence = event.exportsequence.unwrap_or(0);
        if event.event_type == BEGAN {
            self.run = event.exportrun;
            self.sequence = self.sequence.max(sequence);
            return Counted::Began;
        }
        // A reader may begin anywhere, and knows nothing of the run until the next one begins.
        let is_other = self.run.is_some_and(|run| event.exportrun != Some(run));
        if is_other || sequence <= self.sequence {
            return Counted::Void;
        }
        self.sequence = sequence;
        Counted::Event
    }
}

/// How a reader goes on from a position: what it has is left out, and what it misses for good is said.
#[derive(Debug, Clone, Copy)]
pub struct Resume {
    lane: ExportLane,
    from: Option<ExportPosition>,
    /// The log that is read.
    log: Uuid,
    /// The number of the last event that the reader has, or that a gap covered.
    has: Option<u64>,
    /// An event of the position's log was met.
    met: bool,
}

/// What a reader gets for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// Nothing.
    Skip,
    /// The event.
    Give,
    /// First that these events, both included, are gone; then the event. Without numbers where they are not known.
    GiveBehindGap(Option<(u64, u64)>),
}

impl Resume {
    /// From a position, in this log; without one from wherever reading begins.
    #[must_use]
    pub fn new(from: Option<ExportPosition>, log: Uuid) -> Self {
        Self { lane: ExportLane::default(), from, log, has: from.map(|from| from.sequence), met: false }
    }

    /// What came before the first record that is read.
    #[must_use]
    pub const fn behind(self, lane: ExportLane) -> Self {
        Self { lane, ..self }
    }

    /// What was read so far.
    #[must_use]
    pub const fn lane(&self) -> ExportLane {
        self.lane
    }

    /// Takes the next record of the organization.
    pub fn take(&mut self, event: &CloudEvent) -> Resumed {
        if self.lane.take(event) != Counted::Event {
            return Resumed::Skip;
        }
        let (log, sequence) = (event.exportlog, event.exportsequence.unwrap_or(0));
        let is_news = match self.from {
            None => true,
            Some(from) if log == Some(from.log) => {
                self.met = true;
                sequence > from.sequence
            }
            // Behind the position's log come those of its copies.
            Some(from) => self.met || sequence > from.sequence || log == Some(self.log),
        };
        if !is_news {
            return Resumed::Skip;
        }
        let gap = match self.has {
            Some(has) if sequence > has.saturating_add(1) => {
                Some(Some((has.saturating_add(1), sequence.saturating_sub(1))))
            }
            // In the copy, the numbers that the original gave later are others.
            Some(has) if sequence <= has && !self.met => Some(None),
            _ => None,
        };
        self.has = Some(sequence);
        self.from = None;
        gap.map_or(Resumed::Give, Resumed::GiveBehindGap)
    }
}

/// The event that says what a reader missed for good, before this event.
#[must_use]
pub fn gap_before(event: &CloudEvent, missed: Option<(u64, u64)>) -> CloudEvent {
    let data = match missed {
        Some((first, last)) => {
            serde_json::json!({ "first": first, "last": last, "events": last - first + 1 })
        }
        None => serde_json::json!({}),
    };
    let exportsequence = event.exportsequence.map(|sequence| sequence.saturating_sub(1));
    let gap = about_exports(event, GAP, format!("gap/{}", event.id), data);
    CloudEvent { exportsequence, ..gap }
}

/// The event with which a run begins, before its first event.
#[must_use]
pub fn began_before(event: &CloudEvent, id: String) -> CloudEvent {
    about_exports(event, BEGAN, id, serde_json::json!({}))
}

/// An event about the exports themselves, at the time and place of the event behind it.
fn about_exports(event: &CloudEvent, event_type: &str, id: String, data: serde_json::Value) -> CloudEvent {
    CloudEvent {
        id,
        event_type: event_type.to_owned(),
        subject: "exports".to_owned(),
        actor: None,
        correlationid: None,
        causationid: None,
        traceparent: None,
        schemaversion: None,
        aggregateversion: None,
        position: None,
        project: None,
        agent: None,
        environment: None,
        data,
        ..event.clone()
    }
}

#[cfg(test)]
mod tests;
