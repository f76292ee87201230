//! Signing in with what an identity provider says.

use serde::{Deserialize, Serialize};

use super::{SecretToken, UserView};
use crate::actor::Actor;
use crate::id::OrganizationId;
use crate::request::request;

/// Whom an identity provider speaks of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// People.
    People,
    /// Jobs of GitLab CI.
    GitlabJobs,
    /// Jobs of GitHub Actions.
    GithubJobs,
}

/// An identity provider that the operator allows (OpenID Connect Core 1.0).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// What the operator calls it.
    pub name: String,
    /// Whom it speaks of.
    pub kind: ProviderKind,
    /// Its URL: what its tokens name as `iss`.
    pub issuer: String,
    /// For whom its tokens have to be: what they name as `aud`. Of people: the id that the client has there.
    pub audience: String,
    /// Of people: what a client asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Of people: what the provider wants of installed applications beside their id, though it is no secret (RFC 8252, section 8.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Of people: they may sign in with it on the web page.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_page: bool,
    /// PEM text of the authority that certified it, where that is not one of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// Whether the asker's organization believes it, and of whom; nothing to those who may not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<ProviderTrust>,
}

/// How an organization believes an identity provider.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProviderTrust {
    /// Of jobs: whose repositories' jobs are let in.
    pub owners: Vec<String>,
}

/// Lists the identity providers that the operator allows; everybody may know them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListProviders {}
request!(ListProviders => Vec<ProviderView>, "authz.list-providers");

/// Believes an identity provider from now on; asked again, it changes of whom.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustProvider {
    /// Its name.
    pub provider: String,
    /// Of jobs: whose repositories' jobs are let in, at least one: a group of GitLab with all below it, or an organization of GitHub.
    #[serde(default)]
    pub owners: Vec<String>,
}
request!(TrustProvider => ProviderView, "authz.trust-provider");

/// Believes an identity provider no more; answers of whom it was believed. Tokens that were issued for what it said live until they end.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistrustProvider {
    /// Its name.
    pub provider: String,
}
request!(DistrustProvider => ProviderTrust, "authz.distrust-provider");

/// Takes a user's account at an identity provider from them: the next who signs in there under their login name is them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlinkUser {
    /// Login name or id.
    pub user: String,
    /// Name of the provider.
    pub provider: String,
}
request!(UnlinkUser => UserView, "authz.unlink-user");

/// Signs a person or a job in with the ID token that an identity provider gave them, once.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// The ID token: a signed JWT.
    pub id_token: String,
    /// Name of the organization, for those who could be meant in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Of jobs: `group/name` or id of the project, where several have the job's repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}
request!(SignIn => SignedIn, "authz.sign-in");

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").field("organization", &self.organization).finish_non_exhaustive()
    }
}

/// Who was signed in.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedIn {
    /// Who.
    pub actor: Actor,
    /// Their organization.
    pub organization: OrganizationId,
    /// Its name.
    pub organization_name: String,
    /// Their token, shown once.
    pub token: SecretToken,
}

/// Where a page in a browser is to send somebody who signs in at an identity provider (OpenID Connect Core 1.0, section 3.1.2.1). Only
/// services may ask.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginSignIn {
    /// Name of the provider.
    pub provider: String,
    /// Where the provider is to send them back to.
    pub redirect: String,
    /// What it is to send back with them.
    pub state: String,
    /// What the ID token is to name.
    pub nonce: String,
    /// The challenge of the verifier with which the code is exchanged (RFC 7636, S256).
    pub challenge: String,
}
request!(BeginSignIn => SignInAddress, "authz.begin-sign-in");

/// See [`BeginSignIn`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInAddress {
    /// The address at the provider.
    pub url: String,
}

/// Exchanges the code with which a provider sent somebody back for their ID token, which is verified. Only services may ask.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeCode {
    /// Name of the provider that was asked.
    pub provider: String,
    /// Where it was to send them back to.
    pub redirect: String,
    /// The code.
    pub code: String,
    /// The verifier of the challenge.
    pub verifier: String,
    /// What the ID token has to name.
    pub nonce: String,
    /// What the provider calls itself beside the code, if it does (RFC 9207).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}
request!(ExchangeCode => ExchangedCode, "authz.exchange-code");

impl std::fmt::Debug for ExchangeCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeCode").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// See [`ExchangeCode`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangedCode {
    /// For [`SignIn`].
    pub id_token: String,
}

impl std::fmt::Debug for ExchangedCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangedCode").finish_non_exhaustive()
    }
}
