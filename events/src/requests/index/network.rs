//! What resource-indexer answers on who sends traffic to whom.

use serde::{Deserialize, Serialize};

use super::{AsOf, IndexedObject, MeshSecurity, Moment, ObjectFilter};
use crate::id::AgentId;
use crate::object::ObjectKey;
use crate::request::request;

/// Who sends traffic to whom among the objects that match, and the objects beside them: what lets traffic in, routes, Services, workloads, and
/// the policies that are for these. Pods count as the workloads that control them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShowNetwork {
    /// Which objects.
    #[serde(flatten)]
    pub filter: ObjectFilter,
    /// As of which moment: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a position; now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Moment>,
}
request!(ShowNetwork => Network, "resource-indexer.show-network");

impl ShowNetwork {
    /// Most nodes of an answer; the rest is counted.
    pub const NODES: usize = 400;
    /// Most edges of an answer; the rest is counted.
    pub const EDGES: usize = 2_000;
}

/// The answer to [`ShowNetwork`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The nodes: those with edges first, then by their role, namespace, kind and name.
    pub nodes: Vec<NetworkNode>,
    /// The edges.
    pub edges: Vec<NetworkEdge>,
    /// How many nodes were left out.
    pub left_out: u64,
    /// How many edges were left out, those of nodes that were left out included.
    pub edges_left_out: u64,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// What a node does with traffic.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkRole {
    /// Lets it in: an Ingress, a Gateway.
    Entry,
    /// Leads it on: a route, a `VirtualService`.
    Route,
    /// Stands for workloads: a Service, a `ServiceEntry`.
    Service,
    /// Receives and sends it.
    Workload,
    /// Allows, refuses or encrypts it.
    Policy,
}

/// One node of a [`Network`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNode {
    /// In which agent's cluster.
    pub agent: AgentId,
    /// Which object.
    pub key: ObjectKey,
    /// What it does with traffic.
    pub role: NetworkRole,
    /// The object, where it is there and the asker may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<IndexedObject>,
    /// It is known not to be there: something names it. Without this and the object it is only not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// It does not match itself: one that matches is related to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// How many pods of a workload can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<u32>,
    /// How a service mesh secures connections to a workload; absent where no mesh is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<MeshSecurity>,
}

/// One edge of a [`Network`], in the direction of the traffic; from a policy to what it is for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkEdge {
    /// Place of the one node in the list.
    pub from: u32,
    /// Place of the other node.
    pub to: u32,
    /// How they are related, such as `routes-to`.
    pub relation: String,
}
