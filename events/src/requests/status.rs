//! The one status of a source, and the status of an agent: what delivery answers of how they stand.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, InstanceId, SourceId};
use crate::object::{ObjectIdentity, ObjectKey};
use crate::observation::{MissingRight, TakenField, Write};
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

/// How a source stands, in a word. Of several conditions the one with the greatest state is the headline: they are in the fixed order of
/// precedence, the least first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The cluster is at the commit that it should be at, and all of it is well.
    InSync,
    /// On its way.
    Progressing,
    /// Applied, but something of it is not well.
    Degraded,
    /// The cluster is not as it should be, and that does not end by itself at once.
    OutOfSync,
    /// A bundle waits for a person's confirmation.
    Held,
    /// A person stopped it.
    Suspended,
    /// The newest commit was rejected; the last good one stays.
    Rejected,
    /// Its agent is gone: what was known last may not be so any more.
    Stale,
    /// Cannot be told.
    Unknown,
}

impl State {
    /// All, the least first.
    pub const ALL: [Self; 9] = [
        Self::InSync,
        Self::Progressing,
        Self::Degraded,
        Self::OutOfSync,
        Self::Held,
        Self::Suspended,
        Self::Rejected,
        Self::Stale,
        Self::Unknown,
    ];

    /// In words, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::InSync => "in sync",
            Self::Progressing => "progressing",
            Self::Degraded => "degraded",
            Self::OutOfSync => "out of sync",
            Self::Held => "held",
            Self::Suspended => "suspended",
            Self::Rejected => "rejected",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }

    /// The code, as JSON has it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InSync => "in-sync",
            Self::Progressing => "progressing",
            Self::Degraded => "degraded",
            Self::OutOfSync => "out-of-sync",
            Self::Held => "held",
            Self::Suspended => "suspended",
            Self::Rejected => "rejected",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a source or an agent stands as it does: a code that stays the same while the words around it change. Of conditions that make the same
/// state, the one whose reason stands first here is the headline.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The agent is connected and applies.
    Connected,
    /// In sync with the commit that it is pinned to, which is not the newest.
    Pinned,
    /// Its syncs are not recorded as deployments, because another project's environment does not let them.
    NotRecorded,
    /// In sync.
    InSync,
    /// The sync runs.
    Syncing,
    /// The sync waits for something to become healthy.
    Waiting,
    /// The sync was interrupted and begins again.
    Interrupted,
    /// The agent has not begun with the desired commit.
    NotBegun,
    /// Kinds of some objects are not served yet; the objects wait for them.
    KindAwaited,
    /// An object is on its way.
    ObjectProgressing,
    /// A commit is about to be delivered to the agent.
    Delivering,
    /// The poller fetches a new commit.
    Fetching,
    /// An object is stopped on purpose.
    ObjectSuspended,
    /// An object is degraded.
    ObjectDegraded,
    /// An object's health cannot be told.
    ObjectUnknown,
    /// An object did not become healthy in time.
    ObjectUnhealthy,
    /// The globs take no file, so that nothing is kept applied.
    NoFile,
    /// The whole source cannot be worked on.
    Blocked,
    /// An object could not be applied or pruned.
    SyncFailed,
    /// A drift could not be corrected.
    CorrectionFailed,
    /// An object was changed or deleted by somebody else.
    Drift,
    /// Another source of the agent holds an object that this one wants as well.
    Wanted,
    /// A bundle is held because it is empty or prunes much.
    Held,
    /// Suspended.
    Suspended,
    /// The newest commit was rejected.
    CommitRejected,
    /// The agent's newest configuration was rejected; the one before it stays in force.
    ConfigurationRejected,
    /// No instance of the agent is connected.
    AgentGone,
    /// Instances are connected, but not the one that applies.
    ApplierGone,
    /// The agent never connected.
    NeverConnected,
    /// No commit was read yet.
    NoCommit,
    /// The applier does not reach its API server.
    ApiServerUnreachable,
    /// The applier has not said yet what it finds in the cluster.
    NotStated,
    /// Observations were left out; the agent states all of it anew.
    ObservationsLost,
    /// Some kinds cannot be watched, so drift and health of their objects are not seen.
    WatchBroken,
    /// The repository cannot be fetched, so its newest commit is not known.
    FetchFailed,
}

impl Reason {
    /// All, in their order.
    pub const ALL: [Self; 35] = [
        Self::Connected,
        Self::Pinned,
        Self::NotRecorded,
        Self::InSync,
        Self::Syncing,
        Self::Waiting,
        Self::Interrupted,
        Self::NotBegun,
        Self::KindAwaited,
        Self::ObjectProgressing,
        Self::Delivering,
        Self::Fetching,
        Self::ObjectSuspended,
        Self::ObjectDegraded,
        Self::ObjectUnknown,
        Self::ObjectUnhealthy,
        Self::NoFile,
        Self::Blocked,
        Self::SyncFailed,
        Self::CorrectionFailed,
        Self::Drift,
        Self::Wanted,
        Self::Held,
        Self::Suspended,
        Self::CommitRejected,
        Self::ConfigurationRejected,
        Self::AgentGone,
        Self::ApplierGone,
        Self::NeverConnected,
        Self::NoCommit,
        Self::ApiServerUnreachable,
        Self::NotStated,
        Self::ObservationsLost,
        Self::WatchBroken,
        Self::FetchFailed,
    ];

    /// The code, as JSON has it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Pinned => "pinned",
            Self::NotRecorded => "not-recorded",
            Self::InSync => "in-sync",
            Self::Syncing => "syncing",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::NotBegun => "not-begun",
            Self::KindAwaited => "kind-awaited",
            Self::ObjectProgressing => "object-progressing",
            Self::Delivering => "delivering",
            Self::Fetching => "fetching",
            Self::ObjectSuspended => "object-suspended",
            Self::ObjectDegraded => "object-degraded",
            Self::ObjectUnknown => "object-unknown",
            Self::ObjectUnhealthy => "object-unhealthy",
            Self::NoFile => "no-file",
            Self::Blocked => "blocked",
            Self::SyncFailed => "sync-failed",
            Self::CorrectionFailed => "correction-failed",
            Self::Drift => "drift",
            Self::Wanted => "wanted",
            Self::Held => "held",
            Self::Suspended => "suspended",
            Self::CommitRejected => "commit-rejected",
            Self::ConfigurationRejected => "configuration-rejected",
            Self::AgentGone => "agent-gone",
            Self::ApplierGone => "applier-gone",
            Self::NeverConnected => "never-connected",
            Self::NoCommit => "no-commit",
            Self::ApiServerUnreachable => "api-server-unreachable",
            Self::NotStated => "not-stated",
            Self::ObservationsLost => "observations-lost",
            Self::WatchBroken => "watch-broken",
            Self::FetchFailed => "fetch-failed",
        }
    }
}

/// One thing that is so.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What it makes of the source.
    pub state: State,
    /// The stable code.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it is tried again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

impl Condition {
    /// Its place among all that is so: what weighs most comes first.
    const fn rank(&self) -> (Reverse<State>, Reason) {
        (Reverse(self.state), self.reason)
    }
}

/// The status of a source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The headline.
    pub state: State,
    /// Its stable code.
    pub reason: Reason,
    /// Why, in one line.
    pub message: String,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it is tried again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// All that is so, what weighs most first; the first is the headline.
    pub conditions: Vec<Condition>,
    /// All objects, in numbers.
    pub objects: ObjectCounts,
    /// The first objects that are not well, the worst first; [`Self::OBJECTS`] at most, and none in a list of sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_well: Vec<ObjectStatus>,
}

impl Status {
    /// Objects that stand in a status at most.
    pub const OBJECTS: usize = 100;

    /// The status that these conditions make; the same conditions make the same, in whatever order.
    #[must_use]
    pub fn of(mut conditions: Vec<Condition>, objects: ObjectCounts, not_well: Vec<ObjectStatus>) -> Self {
        conditions.sort_by_key(Condition::rank);
        let headline = Self::headline(&conditions);
        let Condition { state, reason, message, since, retry_at } = headline;
        Self { state, reason, message, since, retry_at, conditions, objects, not_well }
    }

    /// The condition that weighs most.
    #[must_use]
    pub fn headline(conditions: &[Condition]) -> Condition {
        let headline = conditions.iter().min_by_key(|condition| condition.rank()).cloned();
        headline.unwrap_or_else(|| Condition {
            state: State::Unknown,
            reason: Reason::NoCommit,
            message: "its status is unknown".to_owned(),
            since: None,
            retry_at: None,
        })
    }

    /// One condition more is so.
    pub fn add(&mut self, condition: Condition) {
        let mut conditions = std::mem::take(&mut self.conditions);
        conditions.push(condition);
        *self = Self::of(conditions, self.objects, std::mem::take(&mut self.not_well));
    }

    /// What the cluster alone makes of the source, whatever Git has by now and people decided.
    #[must_use]
    pub fn of_cluster(&self) -> Self {
        let is_of_cluster = |condition: &&Condition| {
            !matches!(
                condition.reason,
                Reason::CommitRejected
                    | Reason::NoFile
                    | Reason::Held
                    | Reason::Suspended
                    | Reason::FetchFailed
                    | Reason::Fetching
                    | Reason::Delivering
            )
        };
        let conditions = self.conditions.iter().filter(is_of_cluster).cloned().collect();
        Self::of(conditions, self.objects, self.not_well.clone())
    }

    /// Why it is not simply in sync; `None` when it is.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        (self.reason != Reason::InSync).then(|| self.message.clone())
    }

    /// Whether everything that waiting brings about is there: nothing of it is pushed, applied or becomes healthy any more. What holds no
    /// sync, such as a failed run of a CronJob, does not count.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let holds_nothing =
            |reason: Reason| matches!(reason, Reason::ObjectDegraded | Reason::ObjectSuspended);
        match self.state {
            State::InSync => true,
            State::Degraded => {
                self.objects.holding == 0
                    && self.conditions.iter().all(|condition| {
                        condition.state <= State::Degraded && holds_nothing(condition.reason)
                            || condition.state == State::InSync
                    })
            }
            _ => false,
        }
    }
}

/// The objects of a source in numbers. An object counts once, for what is worst of it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectCounts {
    /// All that the source owns.
    pub owned: u32,
    /// Could not be applied, pruned or corrected.
    pub failed: u32,
    /// Changed or deleted by somebody else, and not corrected yet.
    pub drifted: u32,
    /// Degraded, missing, or of unknown health.
    pub degraded: u32,
    /// On their way.
    pub progressing: u32,
    /// Stopped on purpose.
    pub suspended: u32,
    /// Of those that are degraded or on their way: a sync waits for them.
    pub holding: u32,
}

/// One object of a source, as far as the server knows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// Which object.
    pub identity: ObjectIdentity,
    /// What it makes of its source.
    pub state: State,
    /// How it is doing; absent when nothing is wrong with it, or it has no health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ObjectHealth>,
    /// Somebody touched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<ObjectDrift>,
    /// It could not be applied, pruned or corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ObjectTrouble>,
    /// The last write of ours, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<(Write, Timestamp)>,
    /// It is in the source's inventory.
    pub owned: bool,
    /// It existed before us.
    #[serde(default)]
    pub adopted: bool,
    /// Why it was left in place when it was to be pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The first fields that others added and Git does not state, where objects are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<TakenField>,
}

/// See [`ObjectStatus::health`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectHealth {
    /// Such as `degraded`.
    pub status: String,
    /// Why, from the object or its pods.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// No sync waits for it.
    #[serde(default)]
    pub optional: bool,
}

/// See [`ObjectStatus::drift`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDrift {
    /// Since when.
    pub since: Timestamp,
    /// The object is gone.
    pub deleted: bool,
    /// The first fields, and who has them.
    pub fields: Vec<TakenField>,
}

/// See [`ObjectStatus::failure`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTrouble {
    /// The API server's words.
    pub message: String,
    /// The file, empty when it stands in none any more.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// Since when.
    pub since: Timestamp,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// The objects of a source, in the order of their keys.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListObjects {
    /// Which source.
    pub source: SourceId,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListObjects => ObjectStatus, by ObjectKey, "delivery.list-objects");

/// How agents stand: of one, or of all that the actor may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListAgentStatuses {
    /// Which agent.
    pub agent: Option<AgentId>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListAgentStatuses => AgentStatus, by AgentId, "delivery.list-agent-statuses");

/// How an agent stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Which agent.
    pub agent: AgentId,
    /// [`State::InSync`] when it applies and sees all that it should, else as its sources are at best.
    pub state: State,
    /// All that is so, what weighs most first.
    pub conditions: Vec<Condition>,
    /// Its instances that are connected.
    pub instances: Vec<AgentInstance>,
    /// When the last of them left, while none is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<Timestamp>,
    /// The instance that applies, or applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applier: Option<InstanceId>,
    /// Whether the applier reaches its API server; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_reachable: Option<bool>,
    /// The first rights that the agent or its service accounts lack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_rights: Vec<MissingRight>,
    /// Its sources by state.
    pub sources: BTreeMap<State, u32>,
}

/// A connected instance of an agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInstance {
    /// Which process.
    pub instance: InstanceId,
    /// Connected since.
    pub since: Timestamp,
    /// Its version.
    pub version: String,
    /// It applies.
    pub applier: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.code());
        }
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.code());
        }
        assert!(Reason::ALL.is_sorted(), "in their order");
    }
}
