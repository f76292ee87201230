//! Whether a workload is in a service mesh, and whether connections to it are encrypted.

use std::collections::BTreeSet;

use events::AgentId;
use events::requests::index::{MeshSecurity, PortSecurity};

use crate::model::facts::Special;
use crate::model::index::{Index, Slot};
use crate::model::judge::LEVELS;
use crate::model::mesh::{Mtls, PeerAuthentication, Proxy};
use crate::model::record::{Kind, Record};
use crate::model::relations::Relation;
use crate::model::text::Text;
use crate::model::view::View;

/// Istio's root namespace, whose policies without a selector are for the whole mesh.
const ROOT: &str = "istio-system";
/// Pods of one workload that are looked at.
const PODS: usize = 100;

/// What one pod's proxy lets in, why, and where ports differ.
struct Inbound {
    mtls: Mtls,
    reason: String,
    ports: Vec<(u16, Mtls)>,
}

/// How connections to an object's pods are secured: a pod's, a workload's, a Service's. `None` where it has no pods that can be seen, or no
/// mesh is known in its cluster.
#[must_use]
pub fn security(view: &View<'_>, record: &Record) -> Option<MeshSecurity> {
    let pods = pods_of(view, record);
    let proxies: Vec<(&Record, Option<Proxy>)> = pods.into_iter().map(|pod| (pod, proxy_of(pod))).collect();
    if proxies.is_empty() || !(proxies.iter().any(|(_, proxy)| proxy.is_some()) || has_mesh(view, record)) {
        return None;
    }
    let mesh = proxies.iter().find_map(|(_, proxy)| *proxy).map_or("none", Proxy::mesh);
    // The weakest counts: a client does not choose the pod.
    let mut weakest: Option<Inbound> = None;
    let mut is_unknown = false;
    for (pod, proxy) in &proxies {
        let inbound = match proxy {
            None => Some(Inbound {
                mtls: Mtls::Off,
                reason: format!("pod {} has no proxy of a mesh", pod.name),
                ports: Vec::new(),
            }),
            Some(Proxy::Linkerd(mtls)) => Some(Inbound {
                mtls: *mtls,
                reason: "what Linkerd's proxy lets in where no Server says otherwise".to_owned(),
                ports: Vec::new(),
            }),
            Some(Proxy::Istio | Proxy::Ambient) => of_istio(view, pod),
        };
        match inbound {
            None => is_unknown = true,
            Some(inbound) if weakest.as_ref().is_none_or(|known| inbound.mtls < known.mtls) => {
                weakest = Some(inbound);
            }
            Some(_) => {}
        }
    }
    let (mtls, reason, ports) = match weakest {
        Some(Inbound { mtls, reason, ports }) if !is_unknown => (mtls.as_str(), reason, ports),
        _ => ("unknown", "policies decide that you may not see".to_owned(), Vec::new()),
    };
    let ports = ports.into_iter().map(|(port, mtls)| PortSecurity { port, mtls: mtls.as_str().to_owned() });
    Some(MeshSecurity { mesh: mesh.to_owned(), mtls: mtls.to_owned(), reason, ports: ports.collect() })
}

/// Whether an object says how connections in the whole mesh are secured.
#[must_use]
pub fn is_mesh_wide(record: &Record) -> bool {
    record.kind.is("security.istio.io", "PeerAuthentication") && &*record.namespace == ROOT
}

/// Those objects of a cluster.
pub fn mesh_wide_policies(index: &Index, agent: AgentId) -> impl Iterator<Item = Slot> + '_ {
    let all = index.of_kind(agent, &Kind::new("security.istio.io", "PeerAuthentication"));
    all.filter(move |slot| index.get(*slot).is_some_and(is_mesh_wide))
}

fn proxy_of(pod: &Record) -> Option<Proxy> {
    match pod.special() {
        Some(Special::Meshed(proxy)) => Some(*proxy),
        _ => None,
    }
}

/// Whether a kind of a mesh is listed in the object's cluster.
fn has_mesh(view: &View<'_>, record: &Record) -> bool {
    let mut kinds = view.observed.get(&record.agent).into_iter().flat_map(|observed| observed.kinds.keys());
    kinds.any(|place| matches!(place.group.as_str(), "security.istio.io" | "policy.linkerd.io"))
}

/// The pods that an object is, controls or selects, as far as they are there and can be seen.
fn pods_of<'v>(view: &'v View<'_>, record: &'v Record) -> Vec<&'v Record> {
    let is_pod = |record: &Record| record.kind.is("", "Pod");
    if is_pod(record) {
        return vec![record];
    }
    let selected = view.index.targets(record);
    let selected = selected.filter(|(how, _)| *how == Relation::Selects && record.kind.is("", "Service"));
    let mut pods: BTreeSet<Slot> = selected.map(|(_, slot)| slot).take(PODS).collect();
    let mut owners = vec![record];
    for _ in 0..LEVELS {
        let mut below = Vec::new();
        for (how, slot) in owners.iter().flat_map(|owner| view.index.caused_how(owner)) {
            let Some(child) = view.there(slot).filter(|_| how == Relation::Controls) else { continue };
            if is_pod(child) {
                pods.insert(slot);
            } else {
                below.push(child);
            }
        }
        owners = below;
        if pods.len() >= PODS {
            break;
        }
    }
    pods.into_iter().take(PODS).filter_map(|slot| view.there(slot)).filter(|pod| is_pod(pod)).collect()
}

/// Of Istio's policies the closest with a mode counts: for the pod, for its namespace, for the mesh; of several the oldest. `None` where
/// they cannot be seen.
fn of_istio(view: &View<'_>, pod: &Record) -> Option<Inbound> {
    let kind = Kind::new("security.istio.io", "PeerAuthentication");
    let root = Text::from(ROOT);
    if [&pod.namespace, &root].into_iter().any(|namespace| !view.sees_kind(pod.agent, &kind, namespace)) {
        return None;
    }
    let in_namespace = policies(view, pod, &kind, &pod.namespace);
    let selecting = in_namespace
        .iter()
        .filter(|(_, policy)| policy.selector.as_ref().is_some_and(|selector| selector.selects(&pod.facts)));
    let whole = in_namespace.iter().filter(|(_, policy)| policy.selector.is_none());
    let of_mesh = policies(view, pod, &kind, &root);
    let of_mesh = of_mesh.iter().filter(|(_, policy)| policy.selector.is_none());
    let levels = [selecting.min_by_key(age), whole.min_by_key(age), of_mesh.min_by_key(age)];
    let ports = levels.first().copied().flatten().map(|(_, policy)| policy.ports.to_vec());
    let decisive = levels.into_iter().flatten().find_map(|(record, policy)| Some((record, policy.mode?)));
    let (mtls, reason) = match decisive {
        Some((record, mtls)) => (mtls, format!("PeerAuthentication {}/{}", record.namespace, record.name)),
        None => (Mtls::Permissive, "no PeerAuthentication says otherwise".to_owned()),
    };
    Some(Inbound { mtls, reason, ports: ports.unwrap_or_default() })
}

fn age((record, _): &&(&Record, &PeerAuthentication)) -> (Option<events::Timestamp>, Text) {
    (record.facts.created_at.time(), record.name.clone())
}

fn policies<'v>(
    view: &'v View<'_>,
    pod: &Record,
    kind: &Kind,
    namespace: &Text,
) -> Vec<(&'v Record, &'v PeerAuthentication)> {
    let all = view.index.in_namespace(pod.agent, kind, namespace);
    let records = all.filter_map(|slot| view.index.get(slot)).filter(|record| record.is_there());
    records
        .filter_map(|record| match record.special() {
            Some(Special::PeerAuthentication(policy)) => Some((record, policy)),
            _ => None,
        })
        .collect()
}
