//! Service meshes: Istio's and Linkerd's routes and policies, and what splits traffic.

use serde_json::Value;

use super::{Body, Key, Link, Relation, list, text};
use crate::model::record::Kind;
use crate::model::selector::Selector;

const ROUTING: &str = "networking.istio.io";
const LINKERD: &str = "policy.linkerd.io";
const GATEWAY_API: &str = "gateway.networking.k8s.io";

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match (body.group, body.kind) {
        (ROUTING, "VirtualService") => virtual_service(body, links),
        (ROUTING, "DestinationRule") => {
            links.extend(service_of_host(body, body.text("/spec/host"), Relation::Configures));
            select_pods(body, "/spec/workloadSelector/matchLabels", Relation::Configures, links);
        }
        (ROUTING, "ServiceEntry") => {
            select_pods(body, "/spec/workloadSelector/labels", Relation::Selects, links);
        }
        (ROUTING, "Sidecar" | "EnvoyFilter") => {
            select_pods(body, "/spec/workloadSelector/labels", Relation::Configures, links);
        }
        ("security.istio.io", _) => policy(body, links),
        (LINKERD, _) => linkerd(body, links),
        ("linkerd.io", "ServiceProfile") => {
            links.extend(service_of_host(body, body.name, Relation::Configures));
        }
        ("split.smi-spec.io", "TrafficSplit") => {
            for backend in body.list("/spec/backends") {
                links.extend(service_of_host(body, text(backend, "/service"), Relation::RoutesTo));
            }
            links.extend(service_of_host(body, body.text("/spec/service"), Relation::Configures));
        }
        _ => {}
    }
}

fn virtual_service(body: &Body<'_>, links: &mut Vec<Link>) {
    let routes = ["/spec/http", "/spec/tls", "/spec/tcp"].into_iter().flat_map(|kind| body.list(kind));
    for route in routes {
        let destinations = list(route, "/route").map(|to| text(to, "/destination/host"));
        let mirrors = list(route, "/mirrors").map(|to| text(to, "/destination/host"));
        let mirror = std::iter::once(text(route, "/mirror/host"));
        for host in destinations.chain(mirrors).chain(mirror) {
            links.extend(service_of_host(body, host, Relation::RoutesTo));
        }
    }
    for gateway in body.list("/spec/gateways").filter_map(Value::as_str).filter(|name| *name != "mesh") {
        let (namespace, name) = gateway.split_once('/').unwrap_or((body.namespace, gateway));
        links.push(Link::to_key(Relation::Serves, Key::new(ROUTING, "Gateway", namespace, name)));
    }
}

/// `web`, `web.shop` and `web.shop.svc.cluster.local` are Services; other hosts are elsewhere.
fn service_of_host(body: &Body<'_>, host: &str, relation: Relation) -> Option<Link> {
    let mut parts = host.split('.');
    let name = parts.next().filter(|name| !name.is_empty() && !name.contains('*'))?;
    let namespace = parts.next().unwrap_or(body.namespace);
    if parts.next().is_some_and(|part| part != "svc") {
        return None;
    }
    Some(Link::to_key(relation, Key::new("", "Service", namespace, name)))
}

fn select_pods(body: &Body<'_>, pointer: &str, relation: Relation, links: &mut Vec<Link>) {
    if let Some(selector) = Selector::of_labels(body.value, pointer) {
        links.push(Link::to_pods(relation, body, selector));
    }
}

/// Istio's policies: for what they name, else for the pods that they select; without both for all pods of their namespace.
fn policy(body: &Body<'_>, links: &mut Vec<Link>) {
    if !matches!(body.kind, "AuthorizationPolicy" | "PeerAuthentication" | "RequestAuthentication") {
        return;
    }
    let single = body.value.pointer("/spec/targetRef");
    let mut names_targets = false;
    for target in body.list("/spec/targetRefs").chain(single) {
        names_targets = true;
        links.extend(reference(body, target, Relation::Protects, GATEWAY_API));
    }
    if !names_targets {
        let selector = Selector::of_labels(body.value, "/spec/selector/matchLabels").unwrap_or_default();
        links.push(Link::to_pods(Relation::Protects, body, selector));
    }
}

fn linkerd(body: &Body<'_>, links: &mut Vec<Link>) {
    match body.kind {
        "Server" => {
            if let Some(selector) = Selector::of_object(body.value, "/spec/podSelector") {
                links.push(Link::to_pods(Relation::Protects, body, selector));
            }
        }
        "AuthorizationPolicy" => {
            let target = body.value.pointer("/spec/targetRef");
            links.extend(target.and_then(|target| reference(body, target, Relation::Protects, "")));
            for needed in body.list("/spec/requiredAuthenticationRefs") {
                links.extend(reference(body, needed, Relation::Uses, ""));
            }
        }
        "ServerAuthorization" => {
            let name = body.text("/spec/server/name");
            if !name.is_empty() {
                let server = Key::new(LINKERD, "Server", body.namespace, name);
                links.push(Link::to_key(Relation::Protects, server));
            }
            if let Some(selector) = Selector::of_object(body.value, "/spec/server/selector") {
                let server = Kind::new(LINKERD, "Server");
                links.push(Link::to_selected(Relation::Protects, server, body.namespace, selector));
            }
        }
        "MeshTLSAuthentication" => {
            for identity in body.list("/spec/identityRefs") {
                links.extend(reference(body, identity, Relation::GrantsTo, ""));
            }
        }
        "HTTPRoute" => {
            for parent in body.list("/spec/parentRefs") {
                links.extend(reference(body, parent, Relation::Configures, ""));
            }
        }
        _ => {}
    }
}

/// A reference by group, kind, name and perhaps namespace. A namespace itself is in none.
fn reference(body: &Body<'_>, to: &Value, relation: Relation, group: &str) -> Option<Link> {
    let part = |name: &str, default| to.get(name).and_then(Value::as_str).unwrap_or(default);
    let (kind, name) = (part("kind", ""), part("name", ""));
    let group = match part("group", group) {
        "core" => "",
        group => group,
    };
    let namespace = match (group, kind) {
        ("", "Namespace") | (GATEWAY_API, "GatewayClass") => "",
        _ => part("namespace", body.namespace),
    };
    let is_named = !kind.is_empty() && !name.is_empty();
    is_named.then(|| Link::to_key(relation, Key::new(group, kind, namespace, name)))
}
