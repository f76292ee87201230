//! People and their roles.

use serde::{Deserialize, Serialize};

use super::TokenView;
use crate::directory::{Role, Scope};
use crate::id::UserId;
use crate::request::request;

/// Creates a user.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateUser {
    /// Login name.
    pub name: String,
    /// First role.
    pub role: Role,
    /// Where; the organization if not given.
    pub scope: Option<Scope>,
}
request!(CreateUser => UserView, "authz.create-user");

/// Lists users.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListUsers {}
request!(ListUsers => Vec<UserView>, "authz.list-users");

/// Ends everything of a user at once: their tokens, those that they made, and what is open by any of these.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisableUser {
    /// Login name or id.
    pub user: String,
    /// Leaves agents' tokens that they made.
    #[serde(default)]
    pub keep_agents_tokens: bool,
}
request!(DisableUser => DisabledUser, "authz.disable-user");

/// The answer to [`DisableUser`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisabledUser {
    /// The user.
    pub user: UserView,
    /// Tokens of others that they made, which are dead now.
    pub ended: Vec<TokenView>,
    /// Agents' tokens that they made and that live on.
    pub kept: Vec<TokenView>,
}

/// Lets a user in again who was disabled. They have their roles, and no token of before.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableUser {
    /// Login name or id.
    pub user: String,
}
request!(EnableUser => UserView, "authz.enable-user");

/// Gives or takes a role.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignRole {
    /// Whose: login name or id.
    pub user: String,
    /// Which.
    pub role: Role,
    /// Where; the organization if not given.
    pub scope: Option<Scope>,
    /// Takes it instead of giving it.
    pub withdraw: bool,
}
request!(AssignRole => UserView, "authz.assign-role");

/// One user.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// Their id.
    pub id: UserId,
    /// Login name; `None` once erased.
    pub name: Option<String>,
    /// Roles and where they hold.
    pub roles: Vec<(Role, Scope)>,
    /// The identity providers at which they have an account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// They may do nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}
