//! Passes: what somebody may do with a cluster's API, as whom, and for how long.

use std::collections::BTreeMap;
use std::fmt;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::audit::AuditMode;
use crate::catalogue::DecodeError;
use crate::id::{AgentId, OrganizationId};
use crate::object::is_empty;
use crate::recording::RecordSessions;
use crate::time::Timestamp;

/// What a pass is good for. It is part of what is signed, so that a pass for one is none for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Requests to the cluster's API.
    Requests,
    /// The question what its holder may list ([`crate::requests::rights::ReviewRights`]), and no request.
    Review,
}

impl Purpose {
    /// Stands in front of what is signed, so that a signature over a pass is one over nothing else.
    const fn signed_as(self) -> &'static [u8] {
        match self {
            Self::Requests => b"kasbah pass 1\0",
            Self::Review => b"kasbah review 1\0",
        }
    }
}

/// A grant's short-lived form that travels with a request. authz signs it; whoever lets the request through verifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// In which organization.
    pub organization: OrganizationId,
    /// The agent whose cluster is meant.
    pub agent: AgentId,
    /// Whom it was given to.
    pub holder: Actor,
    /// As whom the cluster sees the requests, with the groups that are lent for all of them.
    pub access_as: AccessAs,
    /// What lets them through: any one of these.
    pub grants: Vec<PassGrant>,
    /// What becomes of a request that cannot be recorded.
    #[serde(default, skip_serializing_if = "AuditMode::is_default")]
    pub audit: AuditMode,
    /// What of sessions is kept.
    #[serde(default, skip_serializing_if = "RecordSessions::is_default")]
    pub record_sessions: RecordSessions,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// What one entry of a configuration lets through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassGrant {
    /// What of the API may be used.
    #[serde(default, skip_serializing_if = "Narrowing::is_empty")]
    pub narrowing: Narrowing,
    /// Groups that are lent to what it lets through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Which entry of which file.
    pub place: String,
}

/// A pass as it travels.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedPass {
    /// The encoded [`Pass`].
    #[serde(with = "serde_bytes")]
    pub pass: Vec<u8>,
    /// Ed25519 over [`SignedPass::signed_text`], 64 bytes.
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

/// Whoever sees it may use it while it lives.
impl fmt::Debug for SignedPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignedPass(..)")
    }
}

/// A pass is not one that the root signed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Somebody else made or changed it.
    #[error("the pass is not signed by the root key that is pinned here")]
    Signature,
    /// It is of another version.
    #[error("the pass cannot be read")]
    Malformed(#[source] DecodeError),
}

impl SignedPass {
    /// What is signed of an encoded pass.
    #[must_use]
    pub fn signed_text(purpose: Purpose, pass: &[u8]) -> Vec<u8> {
        [purpose.signed_as(), pass].concat()
    }

    /// The pass, if this root key (its public half, 32 bytes) signed it for this. Whether it still lives is the caller's to see.
    ///
    /// # Errors
    /// See [`PassError`].
    pub fn verified(&self, root: &[u8], purpose: Purpose) -> Result<Pass, PassError> {
        let key = UnparsedPublicKey::new(&ED25519, root);
        let signed = Self::signed_text(purpose, &self.pass);
        key.verify(&signed, &self.signature).map_err(|_| PassError::Signature)?;
        self.unverified()
    }

    /// What stands in it, whoever signed it: for those who got it from authz themselves.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn unverified(&self) -> Result<Pass, PassError> {
        crate::decode(&self.pass).map_err(PassError::Malformed)
    }
}

/// As whom a cluster sees requests.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessAs {
    /// As the agent's own service account.
    Agent,
    /// As somebody whom the agent impersonates.
    Impersonated(Impersonated),
}

/// Whom an agent impersonates (Kubernetes: "user impersonation").
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impersonated {
    /// User name, such as `kasbah:user:ann`.
    pub username: String,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Unique id; empty for none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub uid: String,
    /// Further fields, each with its values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Impersonated {
    /// The agent through which somebody comes.
    pub const AGENT: &str = "kasbah.dev/agent";
    /// The project of a job.
    pub const PROJECT: &str = "kasbah.dev/project";
    /// What a job is called.
    pub const CI_JOB: &str = "kasbah.dev/ci-job";
    /// The pipeline of a job.
    pub const CI_PIPELINE: &str = "kasbah.dev/ci-pipeline";
    /// What a job deploys to.
    pub const ENVIRONMENT: &str = "kasbah.dev/environment";
    /// The tier of what it deploys to.
    pub const ENVIRONMENT_TIER: &str = "kasbah.dev/environment-tier";
    /// Every key of [`Impersonated::extra`] that Kasbah sets by itself.
    pub const EXTRAS: &'static [&'static str] = &[
        Self::AGENT,
        Self::PROJECT,
        Self::CI_JOB,
        Self::CI_PIPELINE,
        Self::ENVIRONMENT,
        Self::ENVIRONMENT_TIER,
    ];
}

/// What of a grant may be used; an empty list leaves everything.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Narrowing {
    /// Only in these namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only these verbs of Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Only these resources, such as `pods`, `pods/log` or `deployments.apps`; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}

impl Narrowing {
    /// Whether it leaves everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.verbs.is_empty() && self.resources.is_empty()
    }
}
