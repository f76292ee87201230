//! May an object of a prune list be deleted?

use std::collections::BTreeSet;

use events::ObjectIdentity;
use objects::ownership::{OwnerMark, mark_of_identity};
use serde_json::Value;

use super::manifest::LiveMark;

/// What is known before anything is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// UID in the list.
    pub uid: &'a str,
    /// The source that prunes.
    pub owner: &'a OwnerMark,
    /// Adopted objects may go.
    pub prune_adopted: bool,
}

/// Why a live object is not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// It is not the source's, or not any more: it leaves the inventory.
    NotOurs(&'static str),
    /// It is the source's, and stays in its inventory.
    Kept(&'static str),
}

/// Why a live object stays; `None`: it goes.
#[must_use]
pub fn spared(request: Request<'_>, live: &LiveMark) -> Option<Spared> {
    if live.uid != request.uid {
        return Some(Spared::NotOurs("another object has this name now"));
    }
    match &live.owner {
        Some(owner) if owner == request.owner => {}
        Some(_) => return Some(Spared::NotOurs("it belongs to another source now")),
        None => return Some(Spared::NotOurs("it no longer carries Kasbah's owner mark")),
    }
    if live.adopted && !request.prune_adopted {
        return Some(Spared::Kept("it existed before and was adopted"));
    }
    live.keep.then_some(Spared::Kept("its annotation kasbah.dev/prune is disabled"))
}

/// Kinds whose deletion takes other objects with them.
#[must_use]
pub fn holds_others(identity: &ObjectIdentity) -> bool {
    matches!(
        (identity.group.as_str(), identity.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// An object that was found in a namespace, or of a definition.
pub type Found = (ObjectIdentity, Value);

/// Why a namespace or a definition cannot be deleted now: an object in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle<'a> {
    /// It is being deleted, and not gone yet.
    Leaving(&'a Found),
    /// Nobody deletes it.
    Staying(&'a Found),
}

/// What Kubernetes puts into each namespace, or makes as a by-product of other objects.
fn made_by_kubernetes(identity: &ObjectIdentity) -> bool {
    match (identity.group.as_str(), identity.kind.as_str()) {
        ("", "ConfigMap") => identity.name == "kube-root-ca.crt",
        ("", "ServiceAccount") => identity.name == "default",
        ("", "Event" | "Endpoints")
        | ("events.k8s.io", "Event")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("metrics.k8s.io", _) => true,
        _ => false,
    }
}

fn uid(live: &Value) -> &str {
    live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

fn is_terminating(live: &Value) -> bool {
    live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// Whether the garbage collector takes an object, as each of its owners goes: it is one of these, or it was a workload of the
/// namespace and is not there any more, and the collector, which works its way down from owner to owned, has not come to the object
/// yet. Other owners may be cluster-scoped, and then are not among those that are there.
fn goes_with_its_owners(live: &Value, going: &BTreeSet<&str>, there: &BTreeSet<&str>) -> bool {
    let references = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.is_some_and(|references| {
        !references.is_empty()
            && references.iter().all(|reference| {
                let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
                let was_workload = matches!(
                    (text("apiVersion"), text("kind")),
                    ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
                        | ("batch/v1", "CronJob" | "Job")
                );
                going.contains(text("uid")) || (was_workload && !there.contains(text("uid")))
            })
    })
}

/// What of the objects found in a namespace, or of a definition, stands in the way of its deletion. Nothing does but what Kubernetes
/// itself makes there, and what is owned by objects that go: `deleted`, by UID, or by such that are going. An object that carries an owner mark
/// of its own, whoever's, is never one of these.
#[must_use]
pub fn obstacle<'a>(found: &'a [Found], deleted: &BTreeSet<&'a str>) -> Option<Obstacle<'a>> {
    let there: BTreeSet<&str> = found.iter().map(|(_, live)| uid(live)).collect();
    let is_leaving = |live: &Value| is_terminating(live) || deleted.contains(uid(live));
    let mut going = deleted.clone();
    going.extend(found.iter().filter(|(_, live)| is_leaving(live)).map(|(_, live)| uid(live)));
    let unmarked: Vec<&Found> =
        found.iter().filter(|(identity, live)| mark_of_identity(live, identity).is_none()).collect();
    loop {
        let before = going.len();
        for (_, live) in &unmarked {
            if goes_with_its_owners(live, &going, &there) {
                going.insert(uid(live));
            }
        }
        if going.len() == before {
            break;
        }
    }
    let is_harmless = |identity: &ObjectIdentity, live: &Value| {
        going.contains(uid(live))
            || (made_by_kubernetes(identity) && mark_of_identity(live, identity).is_none())
    };
    let staying = found.iter().find(|(identity, live)| !is_harmless(identity, live));
    let leaving = || found.iter().find(|(_, live)| is_leaving(live));
    staying.map(Obstacle::Staying).or_else(|| leaving().map(Obstacle::Leaving))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(source: &str) -> OwnerMark {
        OwnerMark { organization: "o".into(), agent: "a".into(), source: source.into() }
    }

    fn live() -> LiveMark {
        LiveMark {
            owner: Some(owner("s")),
            applied: None,
            adopted: false,
            uid: "u".into(),
            version: 1,
            terminating: false,
            keep: false,
        }
    }

    #[test]
    fn only_what_is_listed_marked_and_of_that_uid_goes() {
        let own = owner("s");
        let reason = |live: LiveMark, prune_adopted| {
            let last = |reason: &'static str| reason.split(' ').next_back().unwrap_or("");
            match spared(Request { uid: "u", owner: &own, prune_adopted }, &live)? {
                Spared::NotOurs(reason) => Some(("not ours", last(reason))),
                Spared::Kept(reason) => Some(("kept", last(reason))),
            }
        };
        assert_eq!(reason(live(), false), None);
        assert_eq!(reason(LiveMark { uid: "v".into(), ..live() }, true), Some(("not ours", "now")));
        assert_eq!(reason(LiveMark { owner: None, ..live() }, true), Some(("not ours", "mark")));
        assert_eq!(reason(LiveMark { owner: Some(owner("t")), ..live() }, true), Some(("not ours", "now")));
        assert_eq!(reason(LiveMark { adopted: true, ..live() }, false), Some(("kept", "adopted")));
        assert_eq!(reason(LiveMark { adopted: true, ..live() }, true), None);
        assert_eq!(reason(LiveMark { keep: true, ..live() }, true), Some(("kept", "disabled")));
    }

    fn found(kind: &str, name: &str, uid: &str) -> Found {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
        };
        let live = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": uid}});
        (identity, live)
    }

    fn marked((identity, mut live): (ObjectIdentity, Value), source: &str) -> (ObjectIdentity, Value) {
        objects::ownership::mark(&mut live, &owner(source)).expect("marked");
        (identity, live)
    }

    fn owned(
        (identity, mut live): (ObjectIdentity, Value),
        owners: &[(&str, &str, &str)],
    ) -> (ObjectIdentity, Value) {
        let references = owners.iter().map(|(api_version, kind, uid)| {
            json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": uid})
        });
        live["metadata"]["ownerReferences"] = references.collect();
        (identity, live)
    }

    fn leaving((identity, mut live): (ObjectIdentity, Value)) -> (ObjectIdentity, Value) {
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        (identity, live)
    }

    #[test]
    fn what_kubernetes_made_or_the_deleted_own_stands_in_no_way() {
        let harmless = vec![
            found("ConfigMap", "kube-root-ca.crt", "1"),
            found("ServiceAccount", "default", "2"),
            found("Event", "e", "3"),
            owned(found("ReplicaSet", "r", "5"), &[("apps/v1", "Deployment", "4")]),
            owned(found("Pod", "p", "6"), &[("apps/v1", "ReplicaSet", "5")]),
        ];
        let deleted = BTreeSet::from(["4"]);
        assert_eq!(obstacle(&harmless, &deleted), None);
        let alive = found("Deployment", "d", "4");
        let mut all = harmless.clone();
        all.push(alive.clone());
        assert_eq!(
            obstacle(&all, &BTreeSet::new()),
            Some(Obstacle::Staying(&all[3])),
            "it, and with it what it owns, was not deleted"
        );
        for (staying, why) in [
            (found("ConfigMap", "settings", "9"), "somebody's"),
            (found("ServiceAccount", "runner", "9"), "somebody's"),
            (marked(found("ConfigMap", "settings", "9"), "other"), "another source's of this agent"),
            (marked(found("ConfigMap", "settings", "9"), "s"), "the source's own, which was kept"),
            (marked(found("ServiceAccount", "default", "9"), "other"), "adopted"),
            (marked(found("Endpoints", "web", "9"), "other"), "from Git"),
            (owned(found("Pod", "q", "9"), &[("v1", "Node", "unknown")]), "of a cluster-scoped owner"),
            (
                marked(owned(found("ConfigMap", "c", "9"), &[("apps/v1", "Deployment", "4")]), "other"),
                "another source's, whoever owns it",
            ),
            (
                owned(found("ConfigMap", "c", "9"), &[("apps/v1", "Deployment", "4"), ("v1", "Node", "n")]),
                "only one of its owners goes",
            ),
        ] {
            let mut all = harmless.clone();
            all.push(staying);
            assert_eq!(obstacle(&all, &deleted), all.last().map(Obstacle::Staying), "{why}");
        }
    }

    #[test]
    fn what_was_deleted_and_is_there_still_is_waited_for() {
        let all = [marked(found("ConfigMap", "listed", "1"), "s")];
        let deleted = BTreeSet::from(["1"]);
        assert_eq!(obstacle(&all, &deleted), Some(Obstacle::Leaving(&all[0])));
        let all = [leaving(marked(found("ConfigMap", "anybodys", "1"), "other"))];
        assert_eq!(obstacle(&all, &BTreeSet::new()), Some(Obstacle::Leaving(&all[0])));
        let all = [all[0].clone(), found("ConfigMap", "theirs", "2")];
        assert_eq!(obstacle(&all, &BTreeSet::new()), Some(Obstacle::Staying(&all[1])), "said first");
    }

    #[test]
    fn what_the_garbage_collector_has_not_come_to_yet_stands_in_no_way() {
        let pod = |owners: &[(&str, &str, &str)]| owned(found("Pod", "web-1", "7"), owners);
        let is_in_the_way = |all: &[(ObjectIdentity, Value)]| obstacle(all, &BTreeSet::new()).is_some();
        assert!(!is_in_the_way(&[pod(&[("apps/v1", "ReplicaSet", "6")])]));
        assert!(
            is_in_the_way(&[pod(&[("v1", "Node", "6")])]),
            "a cluster-scoped owner is never among those found"
        );
        let replicas = found("ReplicaSet", "web", "6");
        assert!(is_in_the_way(&[pod(&[("apps/v1", "ReplicaSet", "6")]), replicas]), "its owner is there");
    }
}
