//! What a control plane is asked to be.

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

/// How to start a [`crate::ControlPlane`]; the default is a whole one in a temporary folder without an audit log.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// A folder to keep, so that the next start finds the same cluster; `None` is a temporary one.
    pub directory: Option<PathBuf>,
    /// A fixed port for the API server; `None` is a free one.
    pub port: Option<u16>,
    /// What the API server writes down about requests.
    pub audit: Audit,
    /// Users besides `admin` (who may do everything). They hold no right until RBAC gives them one.
    pub users: Vec<User>,
    /// With controller manager and scheduler (`true`), or the bare API server, where nothing is collected, counted or
    /// aggregated: the roles `view`, `edit` and `admin` are empty there.
    pub workloads: bool,
    /// An address besides loopback under which nodes and pods reach the API server.
    pub reachable_at: Option<IpAddr>,
    /// More flags for the API server, such as `--feature-gates=...`.
    pub api_server_flags: Vec<String>,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            directory: None,
            port: None,
            audit: Audit::Off,
            users: Vec::new(),
            workloads: true,
            reachable_at: None,
            api_server_flags: Vec::new(),
        }
    }
}

/// A user that the API server knows by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// As RBAC names it.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// The groups that it is in.
    pub groups: Vec<String>,
}

impl User {
    /// A user with a token derived from its name.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.to_owned(), token: format!("token-of-{name}"), groups }
    }
}

/// The API server's audit policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Audit {
    /// No audit log.
    Off,
    /// Every request but those of the control plane itself: writes with request and response body, reads without.
    /// A watch stands there once it has ended.
    Requests,
    /// A policy of the caller's, as the object of `audit.k8s.io/v1`.
    Policy(Value),
}

impl Audit {
    pub(super) fn policy(&self) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::Policy(policy) => Some(policy.clone()),
            Self::Requests => Some(json!({
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived", "ResponseStarted"],
                "rules": [
                    {
                        "level": "None",
                        "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"],
                    },
                    {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
                    {
                        "level": "RequestResponse",
                        "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                    },
                    {"level": "Metadata"},
                ],
            })),
        }
    }
}
