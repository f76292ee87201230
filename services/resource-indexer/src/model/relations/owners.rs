//! Owners: `metadata.ownerReferences`, by UID. A name that was given again is another owner.

use serde_json::Value;

use super::{Body, Key, Link, Relation, Target, group_of, text};
use crate::model::record::Kind;
use crate::model::text::Text;

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    for owner in body.list("/metadata/ownerReferences") {
        let uid = text(owner, "/uid");
        if uid.is_empty() {
            continue;
        }
        let controls = owner.get("controller").and_then(Value::as_bool) == Some(true);
        let kind = Kind::new(group_of(text(owner, "/apiVersion")), text(owner, "/kind"));
        // Whether the owner is cluster-scoped stands nowhere; its UID says which object it is.
        let (namespace, name) = (Text::from(body.namespace), Text::from(text(owner, "/name")));
        links.push(Link {
            relation: if controls { Relation::Controls } else { Relation::Owns },
            target: Target::Uid(Text::from(uid), Key::of(kind, namespace, name)),
        });
    }
}

/// What OLM installed belongs to the group of operators that its annotation names.
pub(super) fn add_operator_group(body: &Body<'_>, links: &mut Vec<Link>) {
    let group = body.text("/metadata/annotations/olm.operatorGroup");
    if body.kind == "ClusterServiceVersion" && !group.is_empty() {
        let namespace = match body.text("/metadata/annotations/olm.operatorNamespace") {
            "" => body.namespace,
            namespace => namespace,
        };
        let group = Key::new("operators.coreos.com", "OperatorGroup", namespace, group);
        links.push(Link::to_key(Relation::Owns, group));
    }
}
