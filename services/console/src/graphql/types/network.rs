//! Who sends traffic to whom.

use async_graphql::{Enum, ID, Result, SimpleObject};
use events::requests::index;

use super::super::asker::Asker;
use super::resource::{AsOf, Mesh, Resource};

/// What a node of a network does with traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "index::NetworkRole")]
pub enum NetworkRole {
    /// Lets it in: an Ingress, a Gateway.
    Entry,
    /// Leads it on: a route, a VirtualService.
    Route,
    /// Stands for workloads: a Service, a ServiceEntry.
    Service,
    /// Receives and sends it.
    Workload,
    /// Allows, refuses or encrypts it.
    Policy,
}

/// Who sends traffic to whom.
#[derive(Debug, Clone, SimpleObject)]
pub struct Network {
    /// The nodes: those with edges first. Pods count as the workloads that control them.
    #[graphql(complexity = "index::ShowNetwork::NODES * child_complexity")]
    nodes: Vec<NetworkNode>,
    /// The edges.
    #[graphql(complexity = "index::ShowNetwork::NODES * child_complexity")]
    edges: Vec<NetworkEdge>,
    /// How many nodes were left out.
    left_out: u64,
    /// How many edges were left out, those of nodes that were left out included.
    edges_left_out: u64,
    /// Of which state of the index.
    as_of: AsOf,
}

/// One node of a network.
#[derive(Debug, Clone, SimpleObject)]
pub struct NetworkNode {
    /// Id of the agent in whose cluster it is.
    agent: ID,
    /// Its API group, empty for the core group.
    group: String,
    /// Its kind.
    kind: String,
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
    /// What it does with traffic.
    role: NetworkRole,
    /// The object; null where it is not there, or you may not see it.
    resource: Option<Resource>,
    /// It is known not to be there: something names it.
    missing: bool,
    /// It does not match itself: an object that matches is related to it.
    beside: bool,
    /// How many pods of a workload can be seen; null for other nodes.
    pods: Option<u32>,
    /// How a service mesh secures connections to a workload; null where no mesh is known.
    mesh: Option<Mesh>,
}

/// One edge of a network, in the direction of the traffic; from a policy to what it is for.
#[derive(Debug, Clone, SimpleObject)]
pub struct NetworkEdge {
    /// Place of the one node in the list.
    from: u32,
    /// Place of the other node.
    to: u32,
    /// How they are related, such as `routes-to`.
    relation: String,
}

impl From<index::NetworkNode> for NetworkNode {
    fn from(node: index::NetworkNode) -> Self {
        let index::NetworkNode { agent, key, role, object, missing, beside, pods, mesh } = node;
        Self {
            agent: agent.to_string().into(),
            group: key.group,
            kind: key.kind,
            namespace: key.namespace,
            name: key.name,
            role: role.into(),
            resource: object.map(Resource::from),
            missing,
            beside,
            pods,
            mesh: mesh.map(Mesh::from),
        }
    }
}

impl Network {
    /// As it leaves the server.
    ///
    /// # Errors
    /// When the key ring is away.
    pub async fn sealed(asker: &Asker, network: index::Network) -> Result<Self> {
        let edges = network.edges.into_iter();
        Ok(Self {
            as_of: AsOf::sealed(asker, &network.as_of).await?,
            nodes: network.nodes.into_iter().map(NetworkNode::from).collect(),
            edges: edges
                .map(|index::NetworkEdge { from, to, relation }| NetworkEdge { from, to, relation })
                .collect(),
            left_out: network.left_out,
            edges_left_out: network.edges_left_out,
        })
    }
}
