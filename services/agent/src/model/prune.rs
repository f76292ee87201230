//! May an object of a prune list be deleted?

use std::collections::BTreeSet;

use events::ObjectIdentity;
use objects::ownership::OwnerMark;
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

/// Why a live object stays; `None`: it goes.
#[must_use]
pub fn keep_reason(request: Request<'_>, live: &LiveMark) -> Option<&'static str> {
    if live.uid != request.uid {
        return Some("another object has this name now");
    }
    match &live.owner {
        Some(owner) if owner == request.owner => {}
        Some(_) => return Some("it belongs to another source now"),
        None => return Some("it no longer carries our mark"),
    }
    if live.adopted && !request.prune_adopted {
        return Some("it was there before us and was adopted");
    }
    live.keep.then_some("its annotation kasbah.dev/prune says disabled")
}

/// Kinds whose deletion takes other objects with them.
#[must_use]
pub fn holds_others(identity: &ObjectIdentity) -> bool {
    matches!(
        (identity.group.as_str(), identity.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Whether an object found inside a namespace or under a definition is foreign: not marked by this agent, not owned by another object
/// there (which is judged itself), and not what Kubernetes makes by itself.
#[must_use]
pub fn is_foreign(live: &Value, identity: &ObjectIdentity, agent: &OwnerMark) -> bool {
    let mark = objects::ownership::mark_of_identity(live, identity);
    if mark.is_some_and(|mark| mark.organization == agent.organization && mark.agent == agent.agent) {
        return false;
    }
    !made_by_kubernetes(identity)
}

/// UIDs of the owners that an object names.
pub fn owners(live: &Value) -> impl Iterator<Item = &str> {
    let references = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten().filter_map(|reference| reference.get("uid")?.as_str())
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

/// Whether every owner of an object was a workload of its namespace and is gone: the garbage collector, which works its way down
/// from owner to owned, has not come to it yet. Other owners may be cluster-scoped, and then are not among those found.
fn is_being_collected(live: &Value, there: &BTreeSet<&str>) -> bool {
    let references = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.is_some_and(|references| {
        !references.is_empty()
            && references.iter().all(|reference| {
                let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
                matches!(
                    (text("apiVersion"), text("kind")),
                    ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
                        | ("batch/v1", "CronJob" | "Job")
                ) && !there.contains(text("uid"))
            })
    })
}

/// The first foreign object among those found, following ownerReferences among them: what a foreign object owns is foreign with it,
/// what one of ours owns is ours, also when its owner (`gone`, by UID) was deleted a moment ago.
#[must_use]
pub fn first_foreign<'a>(
    found: &'a [(ObjectIdentity, Value)],
    agent: &OwnerMark,
    gone: &BTreeSet<&'a str>,
) -> Option<&'a ObjectIdentity> {
    let uid = |live: &'a Value| live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let mut ours: BTreeSet<&str> = found
        .iter()
        .filter(|(identity, live)| !is_foreign(live, identity, agent))
        .map(|(_, live)| uid(live))
        .collect();
    ours.extend(gone);
    let there: BTreeSet<&str> = found.iter().map(|(_, live)| uid(live)).collect();
    ours.extend(found.iter().filter(|(_, live)| is_being_collected(live, &there)).map(|(_, live)| uid(live)));
    loop {
        let before = ours.len();
        for (_, live) in found {
            if owners(live).any(|owner| ours.contains(owner)) {
                ours.insert(uid(live));
            }
        }
        if ours.len() == before {
            break;
        }
    }
    found.iter().find(|(_, live)| !ours.contains(uid(live))).map(|(identity, _)| identity)
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
            keep_reason(Request { uid: "u", owner: &own, prune_adopted }, &live)
                .map(|reason| reason.split(' ').next_back().unwrap_or(""))
        };
        assert_eq!(reason(live(), false), None);
        assert_eq!(reason(LiveMark { uid: "v".into(), ..live() }, true), Some("now"));
        assert_eq!(reason(LiveMark { owner: None, ..live() }, true), Some("mark"));
        assert_eq!(reason(LiveMark { owner: Some(owner("t")), ..live() }, true), Some("now"));
        assert_eq!(reason(LiveMark { adopted: true, ..live() }, false), Some("adopted"));
        assert_eq!(reason(LiveMark { adopted: true, ..live() }, true), None);
        assert_eq!(reason(LiveMark { keep: true, ..live() }, true), Some("disabled"));
    }

    fn found(kind: &str, name: &str, uid: &str, marked: bool, owned_by: &[&str]) -> (ObjectIdentity, Value) {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
        };
        let references: Vec<Value> = owned_by.iter().map(|uid| json!({"uid": uid})).collect();
        let mut live = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "ownerReferences": references}});
        if marked {
            objects::ownership::mark(&mut live, &owner("other")).expect("marked");
        }
        (identity, live)
    }

    #[test]
    fn what_the_garbage_collector_has_not_come_to_yet_is_not_foreign() {
        let owned = |api_version: &str, kind: &str| {
            let (identity, mut live) = found("Pod", "web-1", "7", false, &[]);
            let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "web", "uid": "6"}]);
            live["metadata"]["ownerReferences"] = owner;
            (identity, live)
        };
        let is_foreign =
            |all: &[(ObjectIdentity, Value)]| first_foreign(all, &owner("other"), &BTreeSet::new()).is_some();
        assert!(!is_foreign(&[owned("apps/v1", "ReplicaSet")]));
        assert!(is_foreign(&[owned("v1", "Node")]), "a cluster-scoped owner is never among those found");
        let replicas = found("ReplicaSet", "web", "6", false, &[]);
        assert!(is_foreign(&[owned("apps/v1", "ReplicaSet"), replicas]), "its owner is there");
    }

    #[test]
    fn foreign_is_what_neither_is_ours_nor_hangs_on_ours_nor_comes_with_kubernetes() {
        let agent = owner("s");
        let harmless = vec![
            found("ConfigMap", "kube-root-ca.crt", "1", false, &[]),
            found("ServiceAccount", "default", "2", false, &[]),
            found("Event", "e", "3", false, &[]),
            found("Pod", "p", "6", false, &["5"]),
            found("ReplicaSet", "r", "5", false, &["4"]),
            found("Deployment", "d", "4", true, &[]),
        ];
        assert_eq!(first_foreign(&harmless, &agent, &BTreeSet::new()), None);
        for foreign in [
            found("ConfigMap", "settings", "9", false, &[]),
            found("ServiceAccount", "runner", "9", false, &[]),
            found("Pod", "q", "9", false, &["unknown"]),
        ] {
            let mut all = harmless.clone();
            all.push(foreign.clone());
            assert_eq!(first_foreign(&all, &agent, &BTreeSet::new()), Some(&foreign.0));
        }
        let orphan = [found("ReplicaSet", "r", "5", false, &["4"])];
        assert_eq!(
            first_foreign(&orphan, &agent, &BTreeSet::from(["4"])),
            None,
            "its owner was pruned just now"
        );
        let another = OwnerMark { agent: "b".into(), ..owner("s") };
        assert!(
            first_foreign(&harmless, &another, &BTreeSet::new()).is_some(),
            "another agent's objects are foreign"
        );
    }
}
