//! Which aggregates a log has.

use std::collections::BTreeMap;

use events::{AggregateKind, AggregateRef, OrganizationId, Position, Timestamp};

use crate::log::{EventLog, ReadError, ReadFilter};

/// Which aggregates are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListRequest {
    /// Only of this organization.
    pub organization: Option<OrganizationId>,
    /// Only of these kinds; of all when empty.
    pub kinds: Vec<AggregateKind>,
    /// Only those whose id begins so.
    pub prefix: String,
    /// Only those with a commit that was recorded then or later.
    pub since: Option<Timestamp>,
    /// Only those with a commit that was recorded before.
    pub until: Option<Timestamp>,
}

/// An aggregate, as far as its wanted commits say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Whose.
    pub organization: OrganizationId,
    /// Which.
    pub aggregate: AggregateRef,
    /// Its version after the last of them.
    pub version: u64,
    /// When the first of them was recorded.
    pub first: Timestamp,
    /// When the last of them was recorded.
    pub last: Timestamp,
    /// Type of the last event.
    pub event: String,
}

/// The aggregates that have commits such as are wanted, by organization, kind and id. Keeps no record: a log may be as long as it
/// wants.
///
/// # Errors
/// When the log cannot be read.
pub async fn list_aggregates(log: &dyn EventLog, wanted: &ListRequest) -> Result<Vec<Listed>, ReadError> {
    let filter = ReadFilter { organization: wanted.organization, ..ReadFilter::decisions(&wanted.kinds) };
    let mut records = log.read(&Position::start(), &filter).await?;
    let mut found: BTreeMap<(OrganizationId, AggregateRef), Listed> = BTreeMap::new();
    while let Some(record) = records.recv().await {
        let record = record?;
        let early = wanted.since.is_some_and(|since| record.recorded_at < since);
        let late = wanted.until.is_some_and(|until| record.recorded_at >= until);
        if late && wanted.organization.is_some() {
            // One organization is in one shard, whose time never runs backwards.
            break;
        }
        let Some(commit) = record
            .commit()
            .filter(|commit| !early && !late && commit.aggregate.id.starts_with(wanted.prefix.as_str()))
        else {
            continue;
        };
        let key = (commit.organization, commit.aggregate.clone());
        let listed = found.entry(key).or_insert_with(|| Listed {
            organization: commit.organization,
            aggregate: commit.aggregate.clone(),
            version: 0,
            first: record.recorded_at,
            last: record.recorded_at,
            event: String::new(),
        });
        listed.version = commit.version;
        listed.last = record.recorded_at;
        if let Some(event) = commit.events.last() {
            listed.event.clone_from(&event.body.event_type);
        }
    }
    Ok(found.into_values().collect())
}
