//! `ShowNetwork`: which objects send traffic to which.

use std::collections::{BTreeMap, BTreeSet};

use events::requests::index::{Network, NetworkEdge, NetworkNode, NetworkRole, ShowNetwork};
use events::{AgentId, Refusal, RefusalKind};

use super::detail::{answered, known_key};
use super::mesh::security;
use crate::model::filter::Matcher;
use crate::model::index::Slot;
use crate::model::judge::{LEVELS, controller_of};
use crate::model::record::{Kind, Record};
use crate::model::relations::{Key, Link, Relation, Target};
use crate::model::view::View;

/// Objects that match which are looked at.
const LOOKED_AT: usize = 20_000;

/// Which of the objects that match send traffic to which.
///
/// # Errors
/// A filter that cannot be read, or matches too many.
pub fn network(request: &ShowNetwork, view: &View<'_>) -> Result<Network, Refusal> {
    let matcher = Matcher::read(&request.filter, view)?;
    let found = matcher.walk(view, None).filter_map(|record| view.index.by_uid(record.agent, &record.uid));
    let found: Vec<Slot> = found.take(LOOKED_AT.saturating_add(1)).collect();
    if found.len() > LOOKED_AT {
        let message = format!("more than {LOOKED_AT} objects match: name an environment or a namespace");
        return Err(Refusal::new(RefusalKind::Conflict, message));
    }
    let mut drawing = Drawing { view, nodes: BTreeMap::new(), edges: BTreeSet::new() };
    let node_of = |slot| Some((slot, drawing.node_of(slot, false)?));
    let nodes: Vec<(Slot, Place)> = found.into_iter().filter_map(node_of).collect();
    for (slot, place) in &nodes {
        drawing.relate(*slot, place);
    }
    Ok(drawing.finish())
}

/// What a kind does with traffic; `None` for pods, which count as their workloads, and for all that has nothing to do with it.
fn role_of(kind: &Kind) -> Option<NetworkRole> {
    let role = match (&*kind.group, &*kind.kind) {
        ("networking.k8s.io" | "extensions", "Ingress")
        | ("gateway.networking.k8s.io" | "networking.istio.io", "Gateway") => NetworkRole::Entry,
        ("gateway.networking.k8s.io", "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute")
        | ("networking.istio.io", "VirtualService")
        | ("split.smi-spec.io", "TrafficSplit") => NetworkRole::Route,
        ("", "Service") | ("networking.istio.io", "ServiceEntry") => NetworkRole::Service,
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet")
        | ("argoproj.io", "Rollout")
        | ("batch", "CronJob") => NetworkRole::Workload,
        ("networking.k8s.io", "NetworkPolicy")
        | ("security.istio.io", "AuthorizationPolicy" | "PeerAuthentication")
        | ("policy.linkerd.io", "Server" | "AuthorizationPolicy" | "ServerAuthorization") => {
            NetworkRole::Policy
        }
        _ => return None,
    };
    Some(role)
}

/// Whether a relation says where traffic goes, or which policies are for it.
const fn is_of_traffic(relation: Relation) -> bool {
    matches!(relation, Relation::RoutesTo | Relation::Serves | Relation::Selects | Relation::Protects)
}

type Place = (AgentId, Key);

struct Node {
    role: NetworkRole,
    slot: Option<Slot>,
    missing: bool,
    beside: bool,
    pods: BTreeSet<Slot>,
}

struct Drawing<'v, 'a> {
    view: &'v View<'a>,
    nodes: BTreeMap<Place, Node>,
    edges: BTreeSet<(Place, Place, Relation)>,
}

impl Drawing<'_, '_> {
    /// The node that an object counts as: a pod as the workload that controls it, whatever kind that is. None where it has nothing to do
    /// with traffic.
    fn node_of(&mut self, slot: Slot, beside: bool) -> Option<Place> {
        let record = self.view.there(slot)?;
        let (of, role, pod) = match role_of(&record.kind) {
            Some(role) => (slot, role, None),
            None if record.kind.is("", "Pod") => (self.workload_of(slot), NetworkRole::Workload, Some(slot)),
            None => return None,
        };
        let counted = self.view.index.get(of)?;
        let place = (counted.agent, counted.key());
        let node = self.nodes.entry(place.clone()).or_insert_with(|| Node {
            role,
            slot: Some(of),
            missing: false,
            beside: true,
            pods: BTreeSet::new(),
        });
        node.beside &= beside;
        node.pods.extend(pod);
        Some(place)
    }

    /// What controls a pod, the uppermost that the asker may see; a pod without a controller stands for itself.
    fn workload_of(&self, pod: Slot) -> Slot {
        let mut at = pod;
        for _ in 0..LEVELS {
            let above = self.view.index.get(at).and_then(|record| controller_of(self.view.index, record));
            match above.filter(|above| self.view.there(*above).is_some()) {
                Some(above) => at = above,
                None => break,
            }
        }
        at
    }

    /// The edges of an object that matches: to what it names, and from what names it.
    fn relate(&mut self, slot: Slot, from: &Place) {
        let Some(record) = self.view.index.get(slot) else { return };
        for link in record.links().filter(|link| is_of_traffic(link.relation)) {
            for to in self.targets(record, link) {
                self.connect(from, to, link.relation);
            }
        }
        for (relation, source) in self.view.index.sources(record) {
            if is_of_traffic(relation)
                && let Some(source) = self.node_of(source, true)
            {
                self.connect(&source, from.clone(), relation);
            }
        }
    }

    /// What a link leads to; where it names one object that is not there or not seen, a node stands for that.
    fn targets(&mut self, record: &Record, link: &Link) -> Vec<Place> {
        let view = self.view;
        let there = view.index.targets_of(record.agent, link);
        let found: Vec<Place> = there.filter_map(|slot| self.node_of(slot, true)).collect();
        let (Target::Key(key), []) = (&link.target, found.as_slice()) else { return found };
        let Some(role) = role_of(&key.kind) else { return found };
        let key = known_key(view, record, key);
        let missing = view.would_show(record.agent, &key);
        let place = (record.agent, key);
        let node = Node { role, slot: None, missing, beside: true, pods: BTreeSet::new() };
        self.nodes.entry(place.clone()).or_insert(node);
        vec![place]
    }

    /// `names` names `named`. Traffic goes that way but where the lower one names the upper one, as routes do their Gateway.
    fn connect(&mut self, names: &Place, named: Place, relation: Relation) {
        let (from, to) = if relation.names_upper() { (named, names.clone()) } else { (names.clone(), named) };
        if from != to {
            self.edges.insert((from, to, relation));
        }
    }

    fn finish(self) -> Network {
        let Self { view, nodes, edges } = self;
        let connected: BTreeSet<&Place> = edges.iter().flat_map(|(from, to, _)| [from, to]).collect();
        let mut order: Vec<(&Place, &Node)> = nodes.iter().collect();
        // Those with edges first, then by role; within these they stay by cluster and key.
        order.sort_by_cached_key(|(place, node)| (!connected.contains(place), node.role));
        let left_out = order.len().saturating_sub(ShowNetwork::NODES);
        order.truncate(ShowNetwork::NODES);
        let numbers: BTreeMap<&Place, u32> =
            order.iter().zip(0..).map(|((place, _), number)| (*place, number)).collect();
        let number = |place: &Place| numbers.get(place).copied();
        let shown = edges.iter().filter_map(|(from, to, relation)| {
            let relation = view.index.relation_name(from.0, *relation).to_owned();
            Some(NetworkEdge { from: number(from)?, to: number(to)?, relation })
        });
        let shown: Vec<NetworkEdge> = shown.take(ShowNetwork::EDGES).collect();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Network {
            edges_left_out: count(edges.len().saturating_sub(shown.len())),
            nodes: order.iter().map(|(place, node)| answer(view, place, node)).collect(),
            edges: shown,
            left_out: count(left_out),
            as_of: view.as_of.clone(),
        }
    }
}

fn answer(view: &View<'_>, (agent, key): &Place, node: &Node) -> NetworkNode {
    let record = node.slot.and_then(|slot| view.there(slot));
    let is_workload = node.role == NetworkRole::Workload;
    let of_workload = record.filter(|_| is_workload);
    NetworkNode {
        agent: *agent,
        key: answered(key),
        role: node.role,
        object: record.map(|record| view.line(record)),
        missing: node.missing,
        beside: node.beside,
        pods: is_workload.then(|| u32::try_from(node.pods.len()).unwrap_or(u32::MAX)),
        mesh: of_workload.and_then(|record| security(view, record)),
    }
}
