//! What an agent is to have: the answer of delivery that gateways carry to the agent.

use serde::{Deserialize, Serialize};

use crate::configuration::{HealthSettings, Mode, ObserveRules, ResourceRules, ServiceAccount, SyncPolicies};
use crate::delivery::{PruneEntry, WantedObject};
use crate::digest::{BlobDigest, Sha256};
use crate::id::{AgentId, CorrelationId, InstanceId, OrganizationId, SourceId, SyncId};
use crate::time::Timestamp;

/// Everything that one agent is to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Desired<Source> {
    /// Grows with each change; the agent ignores an older one.
    pub revision: u64,
    /// Whose.
    pub organization: OrganizationId,
    /// For whom.
    pub agent: AgentId,
    /// Its applier, if one was named.
    pub applier: Option<Applier>,
    /// How far the agent reaches.
    pub mode: Mode,
    /// Kinds that it may manage.
    pub resources: ResourceRules,
    /// What it observes.
    #[serde(default, skip_serializing_if = "ObserveRules::is_default")]
    pub observe: ObserveRules,
    /// How health is judged, beyond the built-in rules.
    #[serde(default, skip_serializing_if = "HealthSettings::is_default")]
    pub health: HealthSettings,
    /// Each request must impersonate a source's service account.
    pub lockdown: bool,
    /// Deleted agents whose name it has: what they applied is this agent's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<AgentId>,
    /// Why its newest configuration is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<ConfigurationRejection>,
    /// The sources.
    pub sources: Vec<Source>,
}

/// The newest configuration of an agent was rejected; what was in force before stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationRejection {
    /// Since when the newest configuration has been rejected.
    pub since: Timestamp,
    /// What is wrong with it, in one line.
    pub reason: String,
}

/// What delivery answers: bundles by the addresses of their blobs. The gateway resolves them and sends the agent
/// [`DesiredState`].
pub type DesiredPlan = Desired<PlannedSource>;

/// Body of `PUT /v1/desired`: bundles by the digests of their pages.
pub type DesiredState = Desired<DesiredSource>;

impl<Source> Desired<Source> {
    /// The same with other sources.
    #[must_use]
    pub fn with_sources<Other>(self, sources: Vec<Other>) -> Desired<Other> {
        Desired {
            revision: self.revision,
            organization: self.organization,
            agent: self.agent,
            applier: self.applier,
            mode: self.mode,
            resources: self.resources,
            observe: self.observe,
            health: self.health,
            lockdown: self.lockdown,
            replaces: self.replaces,
            rejected: self.rejected,
            sources,
        }
    }
}

/// The instance that applies, and its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applier {
    /// Which instance.
    pub instance: InstanceId,
    /// Its epoch.
    pub epoch: u64,
}

/// One source of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedSource {
    /// Bundle and prune list by address; `None` while the source never had a good bundle.
    pub bundle: Option<BlobDigest>,
    /// Prune list by address.
    pub prune: Option<BlobDigest>,
    /// Objects of the bundle that other sources hold, by address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<BlobDigest>,
    /// The rest.
    pub head: SourceHead,
}

/// What is said of a source besides its bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceHead {
    /// Which source.
    pub source: SourceId,
    /// Its name.
    pub name: String,
    /// The sync that brings the bundle.
    pub sync: SyncId,
    /// The sync was asked for by a person: each object is checked again although nothing changed.
    pub check_all: bool,
    /// The Git commit.
    pub commit: String,
    /// The chain that led to it.
    pub correlation_id: CorrelationId,
    /// W3C trace context of that chain.
    pub traceparent: Option<String>,
    /// Nothing is applied, no drift corrected.
    pub suspended: bool,
    /// The source left the configuration: only its prune list counts, and no bundle.
    pub removed: bool,
    /// Namespace for objects that name none.
    pub default_namespace: String,
    /// The service account to impersonate.
    pub service_account: Option<ServiceAccount>,
    /// Choices.
    pub policies: SyncPolicies,
    /// Objects that ran to their end under a manifest and are not applied again while that manifest stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedManifest>,
}

/// A manifest whose object ran to its end and may be gone since, as Kubernetes was asked to remove it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedManifest {
    /// The manifest.
    pub digest: Sha256,
    /// Why the object failed; `None`: it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// One source of [`DesiredState`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesiredSource {
    /// Pages of the bundle ([`crate::bundle::BundlePage`]); `None` while the source never had a good bundle: then nothing is
    /// applied and nothing pruned.
    pub pages: Option<Vec<Sha256>>,
    /// What to delete.
    pub prune: Vec<PruneEntry>,
    /// Objects of the bundle that other sources hold: they are neither applied nor deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<WantedObject>,
    /// The rest.
    pub head: SourceHead,
    /// Why the bundle could not be sent: the source stays as it was, and the agent reports this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl DesiredSource {
    /// A source whose bundle cannot be sent, for this reason.
    #[must_use]
    pub const fn refused(head: SourceHead, reason: String) -> Self {
        Self { pages: None, prune: Vec::new(), wanted: Vec::new(), head, refused: Some(reason) }
    }
}

/// Answer to `PUT /v1/desired`: pages and objects that the agent lacks. It takes the state over once nothing is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DesiredReply {
    /// Digests of what to send with `PUT /v1/objects`, before the state is put again.
    pub missing: Vec<Sha256>,
}
