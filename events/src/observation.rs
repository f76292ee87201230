//! Observations: what agents saw and did, and connections that gateways saw. Batches in a stream of their own, ordered by
//! (writer, epoch, sequence); duplicates are dropped in the fold.
//!
//! Each observation has a kind and a version. A reader that does not know them counts the observation in its sequence and carries it
//! on as it came ([`Observed::Unknown`]): it is never lost, and never misread.

mod encoding;
mod head;
mod object;

pub use head::BatchHead;
pub use object::{FieldWriter, Gone, ObjectBody, ObservedKind, SeenObject};

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{ObjectFailure, SyncCounts, SyncOutcome};
use crate::digest::Sha256;
use crate::id::{AgentId, CorrelationId, InstanceId, OrganizationId, SourceId, SyncId};
use crate::object::{GroupKind, ObjectIdentity, Text};
use crate::time::Timestamp;
use crate::value::AnyValue;

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

    /// The agent of a writer name; `None` for what is no agent's.
    #[must_use]
    pub fn agent_of_writer(writer: &str) -> Option<AgentId> {
        writer.strip_prefix("agent-")?.parse().ok()
    }

    /// The writer name of a gateway process.
    #[must_use]
    pub fn gateway_writer(instance: InstanceId) -> String {
        format!("gateway-{instance}")
    }
}

/// One thing seen or done, with its time by the writer's clock. Its text is `&str` where somebody only looks at it.
///
/// Its version stands between the two on the wire, where it is not 1. It is that of the kind: see [`Observed::KINDS`].
#[derive(Debug, Clone, PartialEq)]
pub struct Observation<S: Text = String> {
    /// When, as the writer claims.
    pub at: Timestamp,
    /// What.
    pub what: Observed<S>,
}

/// What was seen or done. A new kind gets a line in [`Observed::KINDS`] and a golden file; a kind whose meaning or shape changes gets a
/// new version there.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Observed"))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "Self")]
pub enum Observed<S: Text = String> {
    /// First word of a new applier: all that the agent owns in the cluster. Long statements come in parts.
    #[cfg_attr(feature = "schema", schemars(skip))]
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
    #[cfg_attr(feature = "schema", schemars(skip))]
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
    /// An object that Kubernetes removes by itself once it has run to its end, such as a Job with a TTL, has run to its end. From now on
    /// it may be gone, and its manifest is not applied again.
    ObjectFinished {
        /// Which source.
        source: SourceId,
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Its UID.
        uid: S,
        /// The manifest that ran.
        digest: Sha256,
        /// Why it failed; `None`: it succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<S>,
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
        /// No wait brings it about, so no sync waits for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        optional: bool,
    },
    /// Watches over a source's objects that do not work now: all of them, told anew when that changes; none: all work. An
    /// [`Observed::InventoryStated`] begins with none.
    #[cfg_attr(feature = "schema", schemars(skip))]
    WatchesBroken {
        /// Which source.
        source: SourceId,
        /// The first of them.
        broken: Vec<BrokenWatch<S>>,
        /// How many there are.
        all: u32,
    },
    /// What others added to an object and Git does not state: all of it, told anew when that changes; none: nothing. An
    /// [`Observed::InventoryStated`] begins with none.
    #[cfg_attr(feature = "schema", schemars(skip))]
    ExtraSeen {
        /// Which source.
        source: SourceId,
        /// Which object.
        identity: ObjectIdentity<S>,
        /// The first fields, and who added them.
        fields: Vec<TakenField<S>>,
        /// How many there are.
        all: u32,
    },
    /// A drift could not be corrected; nothing is said of syncs.
    #[cfg_attr(feature = "schema", schemars(skip))]
    CorrectionFailed {
        /// Which source.
        source: SourceId,
        /// What and why.
        failure: ObjectFailure<S>,
        /// When it is tried again.
        retry_at: Option<Timestamp>,
    },
    /// The applier does not reach its API server any more, or may not hold its Lease; said again when the reason changes.
    ApiServerLost {
        /// Why.
        reason: S,
    },
    /// The applier reaches its API server again.
    ApiServerReached {},
    /// A whole source cannot be worked on, and why (missing rights, service account, namespace).
    SourceBlocked {
        /// Which source.
        source: SourceId,
        /// What is missing and what to do.
        reason: S,
        /// The first rights that are missing, where it is for want of rights.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<MissingRight<S>>,
    },
    /// Observations were left out because the agent was over its budget.
    Gap {
        /// How many; none where a gateway left out what was not the agent's to say.
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
    #[cfg_attr(feature = "schema", schemars(skip))]
    TunnelRefused {
        /// Whose token it was, if that is known.
        agent: Option<AgentId>,
        /// Why.
        reason: S,
    },
    /// An object is so now: it was created, changed, or listed. In the stream of objects, as all that follow.
    #[cfg_attr(feature = "schema", schemars(skip))]
    ObjectSeen {
        /// As it is.
        object: Box<SeenObject<S>>,
    },
    /// An object is so still, by its digest: its body was sent before, or is sent when it is asked for.
    #[cfg_attr(feature = "schema", schemars(skip))]
    ObjectKept {
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Its UID.
        uid: S,
        /// See [`SeenObject::digest`].
        digest: Sha256,
    },
    /// An object is not there any more.
    #[cfg_attr(feature = "schema", schemars(skip))]
    ObjectGone {
        /// Which object.
        identity: ObjectIdentity<S>,
        /// Its UID.
        uid: S,
        /// Its last `metadata.resourceVersion`, where the API server gave one.
        resource_version: S,
        /// Why.
        why: Gone,
    },
    /// All of a kind was stated, objects that are as they were included: what was known of it and was not stated from `since` on is gone.
    /// It holds for the group and kind in any version. Where `of` names no namespace it holds for all of them, and takes the place of what was
    /// said of the kind in single ones, that it is blind there included. A kind that was blind sees again by it, with or without a new list.
    #[cfg_attr(feature = "schema", schemars(skip))]
    KindListed {
        /// Of which kind, and where.
        of: ObservedKind<S>,
        /// The list's `metadata.resourceVersion`, or the one up to which the kind was followed since.
        resource_version: S,
        /// Every object of the list was stated in this epoch with this sequence or a later one.
        since: u64,
        /// How many objects the list had.
        objects: u64,
    },
    /// Objects of a kind cannot be seen, or not any more: what was known of them may not be so, and stays until something else is said.
    #[cfg_attr(feature = "schema", schemars(skip))]
    KindBlind {
        /// Of which kind, and where.
        of: ObservedKind<S>,
        /// Why, in the API server's words.
        reason: S,
        /// The right that is missing, where it is for want of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<MissingRight<S>>,
    },
    /// A kind is not observed any more: it is not served, or the configuration leaves it out. What was known of it is gone.
    #[cfg_attr(feature = "schema", schemars(skip))]
    KindDropped {
        /// Of which kind, and where.
        of: ObservedKind<S>,
        /// Why.
        why: Gone,
    },
    /// In this epoch all kinds were told of, each by its objects or as blind. A reader drops, as with [`Gone::NotObserved`], each object that
    /// was stated in an older epoch last, unless before this and in this epoch a [`Observed::KindListed`] or [`Observed::KindBlind`] came
    /// that is about its group and kind, in its namespace or in all, or its group is silent. It drops what it keeps of kinds themselves by
    /// the same rule. May come again within an epoch, when groups speak again; then the rule is the same.
    #[cfg_attr(feature = "schema", schemars(skip))]
    KindsSettled {
        /// API groups whose own API server did not say which kinds it has: what was known of them stays.
        silent: Vec<S>,
    },
    /// Some states of objects of a kind were never seen, or left out; what follows is exact again.
    #[cfg_attr(feature = "schema", schemars(skip))]
    ObjectsGap {
        /// Of which kind, and where.
        of: ObservedKind<S>,
        /// The last `metadata.resourceVersion` before.
        from: S,
        /// The first one behind; empty where that is not known yet.
        to: S,
        /// How many states were left out; 0 where that is not known.
        dropped: u64,
    },
    /// A kind, or a version of a kind, that is not known here: its writer was newer.
    #[serde(skip)]
    Unknown(Box<UnknownObservation>),
}

/// See [`Observed::Unknown`].
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownObservation {
    /// Such as `object-applied`.
    pub kind: String,
    /// Version of the kind.
    pub version: u16,
    /// What was written.
    pub content: AnyValue,
}

macro_rules! kinds {
    ($($variant:ident = $kind:literal v $version:literal,)*) => {
        impl Observed {
            /// Every kind that is known here, with its newest version.
            pub const KINDS: &'static [(&'static str, u16)] = &[$(($kind, $version),)*];
        }

        /// The newest version of a kind that is known here.
        fn version_of(kind: &str) -> Option<u16> {
            match kind { $($kind => Some($version),)* _ => None }
        }

        impl<S: Text> Observed<S> {
            /// The kind, as it is written.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant { .. } => $kind,)*
                    Self::Unknown(unknown) => &unknown.kind,
                }
            }

            /// The version of the kind, as it is written.
            #[must_use]
            pub fn version(&self) -> u16 {
                match self {
                    $(Self::$variant { .. } => $version,)*
                    Self::Unknown(unknown) => unknown.version,
                }
            }
        }
    };
}

kinds! {
    InventoryStated = "inventory-stated" v 1,
    SyncStarted = "sync-started" v 1,
    ObjectApplied = "object-applied" v 1,
    ObjectPruned = "object-pruned" v 1,
    ObjectFailed = "object-failed" v 1,
    SyncWaiting = "sync-waiting" v 1,
    SyncFinished = "sync-finished" v 1,
    DriftSeen = "drift-seen" v 1,
    DriftCorrected = "drift-corrected" v 1,
    ObjectFinished = "object-finished" v 1,
    HealthChanged = "health-changed" v 1,
    WatchesBroken = "watches-broken" v 1,
    ExtraSeen = "extra-seen" v 1,
    CorrectionFailed = "correction-failed" v 1,
    ApiServerLost = "api-server-lost" v 1,
    ApiServerReached = "api-server-reached" v 1,
    SourceBlocked = "source-blocked" v 1,
    Gap = "gap" v 1,
    TunnelOpened = "tunnel-opened" v 1,
    TunnelClosed = "tunnel-closed" v 1,
    TunnelRefused = "tunnel-refused" v 1,
    ObjectSeen = "object-seen" v 1,
    ObjectKept = "object-kept" v 1,
    ObjectGone = "object-gone" v 1,
    KindListed = "kind-listed" v 1,
    KindBlind = "kind-blind" v 1,
    KindDropped = "kind-dropped" v 1,
    KindsSettled = "kinds-settled" v 1,
    ObjectsGap = "objects-gap" v 1,
}

impl<S: Text> Observed<S> {
    /// Whether it belongs in the stream of objects. What is not known here belongs where it came.
    #[must_use]
    pub const fn is_of_objects(&self) -> bool {
        matches!(
            self,
            Self::ObjectSeen { .. }
                | Self::ObjectKept { .. }
                | Self::ObjectGone { .. }
                | Self::KindListed { .. }
                | Self::KindBlind { .. }
                | Self::KindDropped { .. }
                | Self::KindsSettled { .. }
                | Self::ObjectsGap { .. }
        )
    }
}

/// Within this time an agent states every object again. The body of one that is only said to be as it was came half of this time earlier at
/// most: the observations of twice this time name all that there is, with its body.
pub const STATED_WITHIN: Duration = Duration::from_secs(12 * 3_600);

/// What a write did.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "OwnedObject"))]
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

/// A watch that does not work: what happens to objects of this kind is not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenWatch<S: Text = String> {
    /// API group of the kind.
    pub group: S,
    /// The kind.
    pub kind: S,
    /// The namespace, empty for all.
    pub namespace: S,
    /// Why, in the API server's words.
    pub reason: S,
    /// Since when.
    pub since: Timestamp,
    /// The right that is missing, where it is for want of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingRight<S>>,
}

/// A right that the API server's authorizer finds missing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MissingRight"))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MissingRight<S: Text = String> {
    /// Who lacks it, as the API server names them, such as `system:serviceaccount:shop:deployer`.
    pub user: S,
    /// Such as `list`.
    pub verb: S,
    /// API group of the resource, empty for the core group.
    pub group: S,
    /// Such as `deployments` or `pods/log`.
    pub resource: S,
    /// The namespace, empty for the whole cluster.
    pub namespace: S,
}

/// For people: `system:serviceaccount:shop:deployer may not list deployments.apps in namespace shop`.
impl<S: Text> fmt::Display for MissingRight<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [user, verb, group, resource, namespace] =
            [&self.user, &self.verb, &self.group, &self.resource, &self.namespace].map(AsRef::as_ref);
        write!(f, "{user} may not {verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        match namespace {
            "" => f.write_str(" in the whole cluster"),
            namespace => write!(f, " in namespace {namespace}"),
        }
    }
}

/// A field and who had it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "TakenField"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenField<S: Text = String> {
    /// Path, such as `spec.replicas`.
    pub path: S,
    /// Field manager, such as `kubectl-client-side-apply`.
    pub manager: S,
}
