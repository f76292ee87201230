//! Who is given which role, and which Services the API server calls.

use super::{Body, Key, Link, Relation, text};
use crate::model::record::Kind;
use crate::model::selector::Selector;

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match (body.group, body.kind) {
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => binding(body, links),
        (RBAC, "ClusterRole") => {
            let selectors = body.list("/aggregationRule/clusterRoleSelectors");
            for selector in selectors.filter_map(|selector| Selector::of_object(selector, "")) {
                links.push(Link::to_selected(Relation::Binds, Kind::new(RBAC, "ClusterRole"), "", selector));
            }
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            for webhook in body.list("/webhooks") {
                let service = |part: &str| text(webhook, &format!("/clientConfig/service/{part}"));
                add_service(links, service("namespace"), service("name"));
            }
        }
        ("apiregistration.k8s.io", "APIService") => {
            add_service(links, body.text("/spec/service/namespace"), body.text("/spec/service/name"));
        }
        _ => {}
    }
}

fn binding(body: &Body<'_>, links: &mut Vec<Link>) {
    let (kind, name) = (body.text("/roleRef/kind"), body.text("/roleRef/name"));
    if !name.is_empty() {
        let namespace = if kind == "ClusterRole" { "" } else { body.namespace };
        links.push(Link::to_key(Relation::Binds, Key::new(RBAC, kind, namespace, name)));
    }
    for subject in body.list("/subjects") {
        let name = text(subject, "/name");
        if text(subject, "/kind") == "ServiceAccount" && !name.is_empty() {
            let namespace = match text(subject, "/namespace") {
                "" => body.namespace,
                namespace => namespace,
            };
            let account = Key::new("", "ServiceAccount", namespace, name);
            links.push(Link::to_key(Relation::GrantsTo, account));
        }
    }
}

fn add_service(links: &mut Vec<Link>, namespace: &str, name: &str) {
    if !name.is_empty() {
        links.push(Link::to_key(Relation::Calls, Key::new("", "Service", namespace, name)));
    }
}
