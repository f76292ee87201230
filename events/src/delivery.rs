//! Events of delivery: what each agent is to have, and the syncs.

use serde::{Deserialize, Serialize};

use crate::catalogue::context;
use crate::digest::{BlobDigest, Sha256};
use crate::id::{AgentId, InstanceId, SourceId, SyncId};
use crate::object::{ObjectIdentity, ObjectKey, Text};

context! {
    /// What delivery decided.
    DeliveryEvent {
        /// An agent is to have a bundle.
        BundleDesired(BundleDesired) = "kasbah.bundle.desired" v 1,
        /// A bundle waits for a person's confirmation.
        BundleHeld(BundleHeld) = "kasbah.bundle.held" v 1,
        /// A person confirmed a held bundle.
        BundleConfirmed(BundleConfirmed) = "kasbah.bundle.confirmed" v 1,
        /// A source was suspended: nothing new is delivered, drift is not corrected.
        SourceSuspended(SourceSuspended) = "kasbah.source.suspended" v 1,
        /// A source goes on.
        SourceResumed(SourceResumed) = "kasbah.source.resumed" v 1,
        /// A source was pinned to a commit.
        SourcePinned(SourcePinned) = "kasbah.source.pinned" v 1,
        /// A source follows its ref again.
        SourceUnpinned(SourceUnpinned) = "kasbah.source.unpinned" v 1,
        /// A source left its agent's configuration.
        SourceRemoved(SourceRemoved) = "kasbah.source.removed" v 1,
        /// A person wants each object of a source checked again.
        SyncRequested(SyncRequested) = "kasbah.sync.requested" v 1,
        /// A sync began in the cluster.
        SyncStarted(SyncStarted) = "kasbah.sync.started" v 1,
        /// A sync ended.
        SyncFinished(SyncFinished) = "kasbah.sync.finished" v 1,
        /// An instance of an agent is the applier; the aggregate's version is its epoch.
        ApplierNamed(ApplierNamed) = "kasbah.applier.named" v 1,
    }
}

/// See [`DeliveryEvent::BundleDesired`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleDesired {
    /// Which source.
    pub source: SourceId,
    /// Whose.
    pub agent: AgentId,
    /// The sync that is to bring it.
    pub sync: SyncId,
    /// The Git commit.
    pub commit: String,
    /// The bundle.
    pub bundle: BlobDigest,
    /// How many objects it has.
    pub objects: u32,
    /// What is to be deleted: a blob of `Vec<`[`PruneEntry`]`>`; absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<BlobDigest>,
    /// How many objects are to be deleted.
    #[serde(default)]
    pub prunes: u32,
    /// Objects of the bundle that other sources of the agent hold; absent when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedList>,
    /// How many more left the source, and are not deleted while a source of the agent that may have them was not read yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withheld: u32,
    /// Which files the bundle was made of, as [`crate::repository::SourceAdvanced`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Sha256>,
}

/// Objects of a bundle that other sources of the agent hold, so that they are not applied for the bundle's source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedList {
    /// All of them: a blob of `Vec<`[`WantedObject`]`>`.
    pub list: BlobDigest,
    /// How many they are.
    pub objects: u32,
    /// The first of them, [`WantedObject::FIRST`] at most, for people.
    pub first: Vec<WantedObject>,
}

/// An object that a source wants and another source of the same agent holds. It is not applied for the source that wants it, and never
/// pruned, until the holder drops it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WantedObject {
    /// The object, with the namespace that the manifest of the source that wants it has.
    pub object: ObjectKey,
    /// The source that holds it.
    pub holder: SourceId,
    /// That source's name.
    pub holder_name: String,
}

impl WantedObject {
    /// So many are named in events and views; the others are counted.
    pub const FIRST: usize = 20;

    /// Why the object is not applied, and what changes that.
    #[must_use]
    pub fn reason(&self) -> String {
        format!(
            "source {} of this agent holds it; it is handed over once that source drops it",
            self.holder_name
        )
    }
}

/// An object that the agent is to delete, if it is still marked and has this UID.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneEntry {
    /// Which object.
    pub identity: ObjectIdentity,
    /// Its UID when we applied it.
    pub uid: String,
}

/// Why a bundle is held.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldReason {
    /// The bundle has no objects while the inventory has some.
    Empty,
    /// More than half of the inventory and more than ten objects would be pruned.
    LargePrune {
        /// How many would go.
        prunes: u32,
        /// Out of how many.
        inventory: u32,
    },
}

/// See [`DeliveryEvent::BundleHeld`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleHeld {
    /// Which source.
    pub source: SourceId,
    /// Whose.
    pub agent: AgentId,
    /// The Git commit.
    pub commit: String,
    /// The bundle.
    pub bundle: BlobDigest,
    /// How many objects it has.
    pub objects: u32,
    /// Why.
    pub reason: HoldReason,
}

/// See [`DeliveryEvent::BundleConfirmed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleConfirmed {
    /// Which source.
    pub source: SourceId,
    /// The Git commit that was held.
    pub commit: String,
    /// The bundle that was confirmed; absent in events from before confirmations belonged to a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BlobDigest>,
}

/// What stands for the commit of a source that was withdrawn: it is pinned to a bundle without objects, which is of no commit.
pub const NO_COMMIT: &str = "none";

/// See [`DeliveryEvent::SourceSuspended`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSuspended {
    /// Which source.
    pub source: SourceId,
    /// What the person gave as reason.
    #[serde(default)]
    pub reason: String,
}

/// See [`DeliveryEvent::SourceResumed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceResumed {
    /// Which source.
    pub source: SourceId,
}

/// See [`DeliveryEvent::SourcePinned`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePinned {
    /// Which source.
    pub source: SourceId,
    /// The Git commit, in full.
    pub commit: String,
    /// The bundle of that commit.
    pub bundle: BlobDigest,
    /// How many objects it has.
    pub objects: u32,
}

/// See [`DeliveryEvent::SourceUnpinned`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceUnpinned {
    /// Which source.
    pub source: SourceId,
}

/// See [`DeliveryEvent::SourceRemoved`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRemoved {
    /// Which source.
    pub source: SourceId,
    /// Whose.
    pub agent: AgentId,
    /// The sync that prunes its objects, when they are to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncId>,
    /// What is to be deleted, when the source's objects are to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<BlobDigest>,
}

/// See [`DeliveryEvent::SyncRequested`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRequested {
    /// Which source.
    pub source: SourceId,
    /// The sync that is to do it.
    pub sync: SyncId,
}

/// See [`DeliveryEvent::SyncStarted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStarted {
    /// Which source.
    pub source: SourceId,
    /// Which sync.
    pub sync: SyncId,
    /// Which run of this sync, from 1: a sync that failed is tried again.
    pub run: u32,
    /// By which applier.
    pub epoch: u64,
}

/// How a sync ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncOutcome {
    /// Everything is applied and healthy.
    Succeeded,
    /// Everything is applied; not all of it became healthy in time.
    Unhealthy,
    /// Something could not be applied; nothing was pruned.
    Failed,
    /// A newer bundle took its place.
    Superseded,
    /// Its applier died or lost its place.
    Interrupted,
}

/// See [`DeliveryEvent::SyncFinished`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncFinished {
    /// Which source.
    pub source: SourceId,
    /// Which sync.
    pub sync: SyncId,
    /// Which run of it.
    pub run: u32,
    /// How it ended.
    pub outcome: SyncOutcome,
    /// Counts over all objects.
    pub counts: SyncCounts,
    /// The first few failures, for people; all of them are observations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ObjectFailure>,
}

/// Counts of one sync.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SyncCounts {
    /// Objects that were as they should be.
    pub unchanged: u32,
    /// Objects created.
    pub created: u32,
    /// Objects changed.
    pub changed: u32,
    /// Objects pruned.
    pub pruned: u32,
    /// Objects that could not be applied or pruned.
    pub failed: u32,
    /// Objects that are not healthy.
    pub unhealthy: u32,
    /// Objects that were not tried, because the API server does not serve their kinds yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: u32,
}

const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One object that could not be applied, pruned, or become healthy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ObjectFailure"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFailure<S: Text = String> {
    /// Which object.
    pub identity: ObjectIdentity<S>,
    /// File it stands in; empty when it stands in none (prune).
    #[serde(default, skip_serializing_if = "crate::object::is_empty")]
    pub file: S,
    /// Line on which it begins.
    #[serde(default)]
    pub line: u32,
    /// What went wrong, in the API server's words where it spoke.
    pub message: S,
}

/// How the message of an object begins that was not tried because nothing serves its kind.
const AWAITS_KIND: &str = "waits for its kind: ";

impl ObjectFailure {
    /// The message of an object that was not tried, and why nothing serves its kind.
    #[must_use]
    pub fn awaiting_kind(why: &str) -> String {
        format!("{AWAITS_KIND}{why}")
    }

    /// Why nothing serves its kind, where that is all that is wrong with the object.
    #[must_use]
    pub fn awaits_kind(&self) -> Option<&str> {
        self.message.strip_prefix(AWAITS_KIND)
    }
}

/// See [`DeliveryEvent::ApplierNamed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplierNamed {
    /// Whose applier.
    pub agent: AgentId,
    /// Which instance.
    pub instance: InstanceId,
}
