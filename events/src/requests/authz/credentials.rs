//! Git credentials.

use serde::{Deserialize, Serialize};

use crate::id::{CredentialId, ProjectId};
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};

/// Puts a Git credential into the key ring.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateCredential {
    /// Its name.
    pub name: String,
    /// The one host that it may be sent to, with port where it is not the scheme's own.
    pub host: String,
    /// User name; `git` if not given.
    pub user: Option<String>,
    /// The secret; sealed before it is stored, never in an event.
    pub secret: String,
}
request!(CreateCredential => CredentialView, "authz.create-credential");

impl std::fmt::Debug for CreateCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateCredential")
            .field("name", &self.name)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// Lets a project use a credential, or revokes the credential as a whole.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantCredential {
    /// Its name or id.
    pub credential: String,
    /// `group/name` or id of the project.
    pub project: String,
}
request!(GrantCredential => CredentialView, "authz.grant-credential");

/// Destroys a credential's secret.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeCredential {
    /// Its name or id.
    pub credential: String,
}
request!(RevokeCredential => CredentialView, "authz.revoke-credential");

/// Lists credentials.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListCredentials {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListCredentials => CredentialView, by CredentialId, "authz.list-credentials");

/// One credential, without its secret.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialView {
    /// Its id.
    pub id: CredentialId,
    /// Its name.
    pub name: String,
    /// The one host that it may be sent to.
    pub host: String,
    /// Projects that may use it.
    pub projects: Vec<ProjectId>,
    /// Its secret was destroyed.
    pub revoked: bool,
}
