//! What sends traffic to Services: Ingresses and the routes of the Gateway API.

use serde_json::Value;

use super::{Body, Key, Link, Relation, list, text};

const GATEWAY_API: &str = "gateway.networking.k8s.io";
/// An Ingress of before `networking.k8s.io/v1` names its backend in other fields.
const BACKENDS: [&str; 2] = ["/service/name", "/serviceName"];

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match (body.group, body.kind) {
        ("networking.k8s.io" | "extensions", "Ingress") => ingress(body, links),
        (GATEWAY_API, "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute") => route(body, links),
        _ => {}
    }
}

fn ingress(body: &Body<'_>, links: &mut Vec<Link>) {
    let of_rules = body.list("/spec/rules").flat_map(|rule| list(rule, "/http/paths"));
    let of_rules = of_rules.filter_map(|path| path.get("backend"));
    let defaults = ["/spec/defaultBackend", "/spec/backend"];
    let defaults = defaults.into_iter().filter_map(|pointer| body.value.pointer(pointer));
    for backend in of_rules.chain(defaults) {
        for name in BACKENDS.map(|pointer| text(backend, pointer)) {
            if !name.is_empty() {
                links.push(Link::to_key(Relation::RoutesTo, Key::new("", "Service", body.namespace, name)));
            }
        }
    }
    for tls in body.list("/spec/tls") {
        let secret = text(tls, "/secretName");
        if !secret.is_empty() {
            links.push(Link::to_key(Relation::Reads, Key::new("", "Secret", body.namespace, secret)));
        }
    }
}

fn route(body: &Body<'_>, links: &mut Vec<Link>) {
    for backend in body.list("/spec/rules").flat_map(|rule| list(rule, "/backendRefs")) {
        links.extend(reference(body, backend, Relation::RoutesTo, ("", "Service")));
    }
    for parent in body.list("/spec/parentRefs") {
        links.extend(reference(body, parent, Relation::Serves, (GATEWAY_API, "Gateway")));
    }
}

/// A reference of the Gateway API: what it leaves out has a default.
fn reference(
    body: &Body<'_>,
    reference: &Value,
    relation: Relation,
    (group, kind): (&str, &str),
) -> Option<Link> {
    let part = |name: &str, default| reference.get(name).and_then(Value::as_str).unwrap_or(default);
    let name = part("name", "");
    let key = Key::new(part("group", group), part("kind", kind), part("namespace", body.namespace), name);
    (!name.is_empty()).then(|| Link::to_key(relation, key))
}
