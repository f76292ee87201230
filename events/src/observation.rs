//! Observations: what agents saw and did, and connections that gateways saw. Batches in a stream of their own, ordered by
//! (writer, epoch, sequence); duplicates are dropped in the fold.

use serde::{Deserialize, Serialize};

use crate::delivery::{ObjectFailure, SyncCounts, SyncOutcome};
use crate::digest::Sha256;
use crate::id::{AgentId, CorrelationId, InstanceId, OrganizationId, SourceId, SyncId};
use crate::object::{GroupKind, ObjectIdentity, Text};
use crate::time::Timestamp;

/// One record of the observations stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservationBatch<S: Text = String> {
    /// Whose.
    pub organization: OrganizationId,
    /// Who wrote it: `agent-<agent id>` or `gateway-<instance id>`.
    pub writer: String,
    /// The writer's epoch.
    pub epoch: u64,
    /// Sequence of the first observation; the others follow without gaps. From 1 in each epoch.
    pub first: u64,
    /// The observations, each an encoded [`Observation`].
    pub observations: Vec<Observation<S>>,
}

impl ObservationBatch {
    /// The writer name of an agent.
    #[must_use]
    pub fn agent_writer(agent: AgentId) -> String {
        format!("agent-{agent}")
    }

    /// The writer name of a gateway process.
    #[must_use]
    pub fn gateway_writer(instance: InstanceId) -> String {
        format!("gateway-{instance}")
    }
}

/// One thing seen or done, with its time by the writer's clock. Its text is `&str` where somebody only looks at it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation<S: Text = String> {
    /// When, as the writer claims.
    pub at: Timestamp,
    /// What.
    pub what: Observed<S>,
}

/// What was seen or done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observed<S: Text = String> {
    /// First word of a new applier: all that the agent owns in the cluster. Long statements come in parts.
    InventoryStated {
        /// Owned objects.
        objects: Vec<OwnedObject<S>>,
        /// No part follows.
        last: bool,
        /// In the last part: kinds that could not be listed wherever they may be. What was known of them stays.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unlisted: Vec<GroupKind>,
    },
    /// A sync began.
    SyncStarted {
        /// Which source.
        source: SourceId,
        /// Which sync.
        sync: SyncId,
        /// The chain that led to it.
        correlation_id: CorrelationId,
    },
    /// An object was created or changed by us, or was found as it should be for the first time.
    ObjectApplied {
        /// Which sync; absent for drift correction.
        sync: Option<SyncId>,
        /// The object, as owned from now on.
        object: OwnedObject<S>,
        /// What the write did.
        write: Write,
        /// Fields taken over, `path` of `manager`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        taken_over: Vec<TakenField<S>>,
    },
    /// An object was deleted by us, or was gone already.
    ObjectPruned {
        /// Which sync.
        sync: Option<SyncId>,
        /// Which source.
        source: SourceId,
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Its UID.
        uid: S,
        /// Why it was left in place instead, if it was: no longer marked, another UID, adopted, foreign objects inside.
        kept: Option<S>,
        /// It was left in place and is the source's still: it stays in the inventory. Agents from before this was said leave it out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stays_owned: bool,
    },
    /// An object could not be applied or pruned.
    ObjectFailed {
        /// Which sync.
        sync: SyncId,
        /// Which source.
        source: SourceId,
        /// What and why.
        failure: ObjectFailure<S>,
        /// When it is tried again, if it is.
        retry_at: Option<Timestamp>,
    },
    /// A sync waits; said when the reason changes, once a second at most.
    SyncWaiting {
        /// Which source.
        source: SourceId,
        /// Which sync.
        sync: SyncId,
        /// For what, such as `Deployment shop/web: 1 of 3 available`.
        reason: S,
    },
    /// A sync ended.
    SyncFinished {
        /// Which source.
        source: SourceId,
        /// Which sync.
        sync: SyncId,
        /// How.
        outcome: SyncOutcome,
        /// Counts.
        counts: SyncCounts,
        /// The first failures.
        failures: Vec<ObjectFailure<S>>,
    },
    /// Somebody changed or deleted an object of ours.
    DriftSeen {
        /// Which source.
        source: SourceId,
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Which fields, by whom.
        fields: Vec<TakenField<S>>,
        /// The object is gone.
        deleted: bool,
    },
    /// The drift was corrected.
    DriftCorrected {
        /// Which source.
        source: SourceId,
        /// Which object.
        identity: ObjectIdentity<S>,
    },
    /// An object's health changed. Of one that is created and healthy from the start nothing is told; of two words the one of the newer
    /// epoch counts, whichever comes later.
    HealthChanged {
        /// Which source.
        source: SourceId,
        /// The sync that the source is at; agents from before this was said leave it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sync: Option<SyncId>,
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Such as `healthy`, `degraded`.
        status: S,
        /// Why.
        message: S,
    },
    /// A whole source cannot be worked on, and why (missing rights, service account, namespace).
    SourceBlocked {
        /// Which source.
        source: SourceId,
        /// What is missing and what to do.
        reason: S,
    },
    /// Observations were left out because the agent was over its budget.
    Gap {
        /// How many.
        dropped: u64,
    },
    /// A tunnel opened.
    TunnelOpened {
        /// Whose.
        agent: AgentId,
        /// Which process.
        instance: InstanceId,
        /// The agent's version.
        version: S,
    },
    /// A tunnel closed.
    TunnelClosed {
        /// Whose.
        agent: AgentId,
        /// Which process.
        instance: InstanceId,
        /// Why.
        reason: S,
    },
    /// Somebody was turned away at the tunnel's door.
    TunnelRefused {
        /// Whose token it was, if that is known.
        agent: Option<AgentId>,
        /// Why.
        reason: S,
    },
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    /// Created.
    Created,
    /// Changed.
    Changed,
    /// Nothing: it was as it should be.
    Unchanged,
    /// Deleted and created again, by the object's own opt-in.
    Replaced,
}

/// An object that a source owns in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedObject<S: Text = String> {
    /// Whose it is.
    pub source: SourceId,
    /// Which object, with the namespace that it is really in.
    pub identity: ObjectIdentity<S>,
    /// Its UID.
    pub uid: S,
    /// Digest of the manifest that was applied last; absent for Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
    /// It existed before us and was taken over.
    #[serde(default)]
    pub adopted: bool,
}

/// A field and who had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenField<S: Text = String> {
    /// Path, such as `spec.replicas`.
    pub path: S,
    /// Field manager, such as `kubectl-client-side-apply`.
    pub manager: S,
}
