//! What the next sync of a source would do.

use serde::{Deserialize, Serialize};

use super::delivery::RejectedBundle;
use crate::id::{AgentId, SourceId};
use crate::object::ObjectIdentity;
use crate::request::request;

/// What the next sync of a source would do: a server-side dry run in the cluster, of the bundle that is held, or waits for a
/// resume, or else of the desired one. Sent under
/// [`crate::subject::Subject::agent_request`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffSource {
    /// Whose source.
    pub agent: AgentId,
    /// Which source.
    pub source: SourceId,
}
request!(DiffSource => SourceDiff, "tunnel-gateway.diff-source");

/// The answer to [`DiffSource`]; also the answer to the link's `POST /v1/sources/<id>/diff`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceDiff {
    /// The commit that was compared; empty while the source has no good one.
    pub commit: String,
    /// Objects that do not simply stay as they are, with what would happen to each. Values of Secrets are redacted.
    pub objects: Vec<ObjectDiff>,
    /// How many more there are, beside those that are kept, that were left out because the answer would be too large.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// How many more objects left Git and are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_kept: u32,
    /// Objects that would stay as they are.
    pub unchanged: u32,
    /// Why the sync would not do all of this; absent when it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<DiffStop>,
    /// Fields that others added and Git does not state. They stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<ObjectExtra>,
    /// Why this commit is not delivered yet; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// The newest commit was rejected, and why: the newest good one was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedBundle>,
    /// Why the repository cannot be read, so that there may be newer commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_failure: Option<String>,
}

impl SourceDiff {
    /// Whether the cluster is other than Git has it, or Git asks for something that is refused. An object that left Git and is
    /// kept on purpose makes no difference: no sync changes anything about it.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.rejected.is_some()
            || self.stopped.is_some()
            || self.left_out > 0
            || self.objects.iter().any(|object| object.change != DiffChange::Keep)
    }
}

/// How far the sync would get, and why not further.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStop {
    /// What it would do all the same.
    pub extent: SyncExtent,
    /// Why it would do no more.
    pub message: String,
}

/// How much of a bundle a sync would bring.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncExtent {
    /// Nothing of it.
    Nothing,
    /// Namespaces and definitions only.
    Foundation,
    /// All that is to be applied; nothing would be pruned.
    AllButPrunes,
}

/// Fields of one object that others added.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectExtra {
    /// Which object.
    pub identity: ObjectIdentity,
    /// Path, and the field manager who added it.
    pub fields: Vec<(String, String)>,
}

/// One object that does not simply stay as it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDiff {
    /// Which object.
    pub identity: ObjectIdentity,
    /// The file in which it stands; empty for one that left Git.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line on which it begins, from 1; 0 for one that left Git.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: u32,
    /// What would happen.
    pub change: DiffChange,
    /// Why, as a stable code; absent where the change speaks for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DiffReason>,
    /// Why, in words: those of the API server where it refuses.
    #[serde(default, alias = "error", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who holds it, where that is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<ObjectHolder>,
    /// Fields that would change: path, before, after, as JSON text.
    pub fields: Vec<(String, Option<String>, Option<String>)>,
}

impl ObjectDiff {
    /// Nothing is said of why.
    #[must_use]
    pub const fn new(identity: ObjectIdentity, change: DiffChange) -> Self {
        Self {
            identity,
            file: String::new(),
            line: 0,
            change,
            reason: None,
            message: None,
            holder: None,
            fields: Vec::new(),
        }
    }

    /// The same with its place in Git.
    #[must_use]
    pub fn at(self, file: &str, line: u32) -> Self {
        Self { file: file.to_owned(), line, ..self }
    }

    /// The same with a reason.
    #[must_use]
    pub fn because(self, reason: DiffReason, message: impl Into<String>) -> Self {
        Self { reason: Some(reason), message: Some(message.into()), ..self }
    }

    /// The same with somebody who holds it.
    #[must_use]
    pub fn held_by(self, holder: Option<ObjectHolder>) -> Self {
        Self { holder, ..self }
    }
}

/// What would happen to an object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffChange {
    /// It would be created.
    Create,
    /// It would change.
    Change,
    /// It would be pruned.
    Prune,
    /// It left Git and would stay in the cluster.
    Keep,
    /// It cannot be applied yet, and would be once something else is so.
    Wait,
    /// It would be refused.
    Refused,
}

/// Why that would happen.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffReason {
    /// Nobody's object, or another tool's, would be taken over.
    Adopted,
    /// It comes from another source of the agent, which has dropped it.
    HandedOver,
    /// It would be deleted and created again, because a field cannot change.
    Replaced,
    /// Not verified: a webhook takes no part in dry runs.
    Unverified,
    /// Not verified: it needs something that this set creates first.
    NeedsOthers,
    /// It exists, and may not be taken over.
    AdoptionRefused,
    /// Another source of the agent holds it.
    HeldBySource,
    /// The agent's configuration does not let it.
    NotAllowed,
    /// It stands in the bundle twice, or its kind or manifest makes no sense.
    Invalid,
    /// A field cannot change.
    Immutable,
    /// Another field manager has a field, and the source does not take fields from others.
    Conflict,
    /// The API server refused the dry run.
    ApiServer,
    /// The API server does not serve its kind yet.
    KindAwaited,
    /// It is being deleted.
    BeingDeleted,
    /// The agent would keep it when it comes to the prune.
    Kept,
    /// The source's policies switch pruning off.
    PruningOff,
    /// It was there before the source, which prunes nothing that it adopted.
    AdoptedBefore,
    /// It may turn out to be another source's, which was not read yet.
    Withheld,
    /// Nothing is pruned before everything is applied.
    NotBeforeApplied,
    /// It cannot be pruned.
    NotPrunable,
}

/// Who holds an object that a source wants.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectHolder {
    /// Another tool, by its marks: a Helm release, Flux, Argo CD or kapp.
    Tool {
        /// In words.
        name: String,
    },
    /// Another source of the same agent.
    Source {
        /// Its id.
        source: String,
        /// Its name.
        name: String,
    },
    /// A source of another agent.
    Agent {
        /// The agent's organization.
        organization: String,
        /// The agent.
        agent: String,
        /// The source.
        source: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(change: DiffChange) -> ObjectDiff {
        let [group, version, kind, namespace, name] =
            ["", "v1", "ConfigMap", "shop", "web"].map(str::to_owned);
        ObjectDiff::new(ObjectIdentity { group, version, kind, namespace, name }, change)
    }

    #[test]
    fn what_is_kept_on_purpose_is_no_difference_and_all_else_is() {
        let with = |objects: Vec<ObjectDiff>| SourceDiff { objects, unchanged: 3, ..SourceDiff::default() };
        assert!(!with(Vec::new()).differs());
        assert!(!with(vec![object(DiffChange::Keep)]).differs());
        for change in
            [DiffChange::Create, DiffChange::Change, DiffChange::Prune, DiffChange::Wait, DiffChange::Refused]
        {
            assert!(with(vec![object(DiffChange::Keep), object(change)]).differs(), "{change:?}");
        }
        let stop = DiffStop { extent: SyncExtent::Nothing, message: "lockdown".into() };
        assert!(SourceDiff { stopped: Some(stop), ..SourceDiff::default() }.differs());
        let rejected =
            RejectedBundle { commit: "f".into(), findings: Vec::new(), more: 0, warnings: Vec::new() };
        assert!(SourceDiff { rejected: Some(rejected), ..SourceDiff::default() }.differs());
        assert!(SourceDiff { left_out: 1, ..SourceDiff::default() }.differs());
        let waits = SourceDiff { pending: Some("suspended".into()), ..SourceDiff::default() };
        assert!(!SourceDiff { more_kept: 1, ..SourceDiff::default() }.differs());
        assert!(!waits.differs(), "a commit that changes nothing is no difference, delivered or not");
    }

    #[test]
    fn the_answer_of_an_older_agent_can_be_read() {
        #[derive(Serialize)]
        struct Older {
            identity: ObjectIdentity,
            change: DiffChange,
            fields: Vec<(String, Option<String>, Option<String>)>,
            error: Option<String>,
        }
        let now = object(DiffChange::Refused);
        let error = Some("denied".to_owned());
        let older = Older { identity: now.identity.clone(), change: now.change, fields: Vec::new(), error };
        let read: ObjectDiff = crate::decode(&crate::encode(&older).unwrap()).unwrap();
        assert_eq!(read, ObjectDiff { message: Some("denied".into()), ..now });
    }
}
