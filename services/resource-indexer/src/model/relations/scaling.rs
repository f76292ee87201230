//! What changes the number of pods, or limits what may happen to them.

use super::{Body, Key, Link, Relation, group_of};
use crate::model::selector::Selector;

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match (body.group, body.kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => {
            scales(body, "/spec/scaleTargetRef", ("", ""), links);
        }
        ("policy", "PodDisruptionBudget") => protects(body, "/spec/selector", links),
        ("networking.k8s.io" | "extensions", "NetworkPolicy") => protects(body, "/spec/podSelector", links),
        ("autoscaling.k8s.io", "VerticalPodAutoscaler") => scales(body, "/spec/targetRef", ("", ""), links),
        ("keda.sh", "ScaledObject") => {
            scales(body, "/spec/scaleTargetRef", ("apps/v1", "Deployment"), links);
        }
        _ => {}
    }
}

/// What a reference names; what it leaves out has a default: its `apiVersion`, and its kind.
fn scales(body: &Body<'_>, pointer: &str, (version, kind): (&str, &str), links: &mut Vec<Link>) {
    let part = |part: &str, default| match body.text(&format!("{pointer}/{part}")) {
        "" => default,
        found => found,
    };
    let name = part("name", "");
    if !name.is_empty() {
        let group = group_of(part("apiVersion", version));
        let key = Key::new(group, part("kind", kind), body.namespace, name);
        links.push(Link::to_key(Relation::Scales, key));
    }
}

/// The pods of the same namespace that a selector selects, an empty one all.
fn protects(body: &Body<'_>, pointer: &str, links: &mut Vec<Link>) {
    if let Some(selector) = Selector::of_object(body.value, pointer) {
        links.push(Link::to_pods(Relation::Protects, body, selector));
    }
}
