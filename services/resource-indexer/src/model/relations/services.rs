//! Services, their endpoints, and the pods behind them.
//!
//! A slice belongs to its Service by an owner or by a label: slices that somebody made by hand have the label alone. Which pods are
//! reached is what the slices say; the selector says which ones are meant.

use super::{Body, Key, Link, Relation, Target, list, text};
use crate::model::selector::Selector;
use crate::model::text::Text;

const SERVICE_NAME: &str = "/metadata/labels/kubernetes.io~1service-name";

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match (body.group, body.kind) {
        ("", "Service") => {
            if let Some(selector) = Selector::of_labels(body.value, "/spec/selector") {
                links.push(Link::to_pods(Relation::Selects, body, selector));
            }
        }
        ("", "Endpoints") => {
            let has_owner = body.list("/metadata/ownerReferences").next().is_some();
            if !has_owner {
                let service = Key::new("", "Service", body.namespace, body.name);
                links.push(Link::to_key(Relation::HasEndpoints, service));
            }
            let subsets = body.list("/subsets");
            let addresses = subsets
                .flat_map(|subset| list(subset, "/addresses").chain(list(subset, "/notReadyAddresses")));
            addresses.for_each(|address| add_pod(body, text(address, "/targetRef/kind"), address, links));
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            let service = body.text(SERVICE_NAME);
            if !service.is_empty() {
                let service = Key::new("", "Service", body.namespace, service);
                links.push(Link::to_key(Relation::HasEndpoints, service));
            }
            for endpoint in body.list("/endpoints") {
                add_pod(body, text(endpoint, "/targetRef/kind"), endpoint, links);
            }
        }
        _ => {}
    }
}

fn add_pod(body: &Body<'_>, kind: &str, endpoint: &serde_json::Value, links: &mut Vec<Link>) {
    if kind != "Pod" {
        return;
    }
    let (uid, name) = (text(endpoint, "/targetRef/uid"), text(endpoint, "/targetRef/name"));
    let key = Key::new("", "Pod", body.namespace, name);
    let target = if uid.is_empty() { Target::Key(key) } else { Target::Uid(Text::from(uid), key) };
    links.push(Link { relation: Relation::Reaches, target });
}
