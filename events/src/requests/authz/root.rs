//! The root that signs passes.

use serde::{Deserialize, Serialize};

use crate::request::request;
use crate::time::Timestamp;

/// Shows the root that signs passes now; operators alone.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowRoot {}
request!(ShowRoot => RootView, "authz.show-root");

/// Makes another root and has it sign from now on; operators alone. Agents come to it by the former one's signature.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateRoot {}
request!(RotateRoot => RootView, "authz.rotate-root");

/// The root that signs passes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootView {
    /// The installation's first one is 0.
    pub number: u32,
    /// Its public half, as agents pin it: standard base64.
    pub public_key: String,
    /// Since when it signs; nothing of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}
