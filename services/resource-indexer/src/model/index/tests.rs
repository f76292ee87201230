use serde_json::json;

use super::*;
use crate::model::given::{AGENT, Given, below, config, gone, object, pod, seen};
use crate::model::relations::Relation;

/// Who points at an object, and how.
fn naming(given: &Given, uid: &str) -> Vec<String> {
    let slot = given.fold.index.by_uid(AGENT, uid).unwrap();
    let record = given.fold.index.get(slot).unwrap();
    let sources = given.fold.index.sources(record).into_iter();
    let mut found: Vec<String> = sources
        .map(|(how, slot)| format!("{} {}", how.as_str(), given.fold.index.get(slot).unwrap().name))
        .collect();
    found.sort();
    found
}

#[test]
fn children_that_came_before_their_parent_are_found_once_it_is_there() {
    let mut given = Given::agents();
    given.says(vec![seen(&below(pod("shop/web-1", json!({})), "apps/v1", "ReplicaSet", "web"))]);
    given.says(vec![seen(&object("apps/v1", "ReplicaSet", "shop/web", json!({})))]);
    assert_eq!(naming(&given, "uid-web"), ["controls web-1"]);
    let slot = given.fold.index.by_uid(AGENT, "uid-web-1").unwrap();
    let record = given.fold.index.get(slot).unwrap();
    let (how, owner) = given.fold.index.targets(record).next().unwrap();
    assert_eq!((how, &*given.fold.index.get(owner).unwrap().name), (Relation::Controls, "web"));
}

#[test]
fn an_owner_of_the_same_name_and_another_uid_owns_nothing() {
    let mut given = Given::agents();
    given.says(vec![seen(&below(pod("shop/web-1", json!({})), "apps/v1", "ReplicaSet", "web"))]);
    let again = object("apps/v1", "ReplicaSet", "shop/web", json!({"metadata": {"uid": "uid-again"}}));
    given.says(vec![seen(&again)]);
    assert!(naming(&given, "uid-again").is_empty());
}

#[test]
fn selectors_are_answered_anew_when_either_side_changes() {
    let mut given = Given::agents();
    let service =
        |app: &str| object("v1", "Service", "shop/front", json!({"spec": {"selector": {"app": app}}}));
    let labelled = |app: &str| pod("shop/p", json!({"metadata": {"labels": {"app": app}}}));
    given.says(vec![seen(&service("web")), seen(&labelled("db"))]);
    assert!(naming(&given, "uid-p").is_empty());
    given.says(vec![seen(&labelled("web"))]);
    assert_eq!(naming(&given, "uid-p"), ["selects front"]);
    given.says(vec![seen(&service("db"))]);
    assert!(naming(&given, "uid-p").is_empty());
    given.says(vec![seen(&service("web")), gone(&service("web"))]);
    assert!(naming(&given, "uid-p").is_empty(), "a Service that is gone selects nothing");
}

#[test]
fn what_is_removed_is_found_nowhere() {
    let mut given = Given::agents();
    let body = config("shop/a", json!({"metadata": {"labels": {"x": "y"}}}));
    given.says(vec![seen(&body)]);
    let slot = given.fold.index.by_uid(AGENT, "uid-a").unwrap();
    given.fold.index.remove(slot);
    assert!(given.fold.index.is_empty() && given.fold.index.agents().next().is_none());
    assert!(given.fold.index.labelled(AGENT, &("x".into(), "y".into())).next().is_none());
    given.says(vec![seen(&config("shop/b", json!({})))]);
    assert_eq!((given.fold.index.len(), given.there().len()), (1, 1), "its slot is used again");
}

#[test]
fn verdicts_that_change_with_time_are_due_at_their_time() {
    let mut given = Given::agents();
    let waiting = pod(
        "shop/p",
        json!({"metadata": {"creationTimestamp": "1970-01-01T00:16:40Z"}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "no nodes", "lastTransitionTime": "1970-01-01T00:16:40Z"}]}}),
    );
    given.says(vec![seen(&waiting)]);
    let at = given.fold.index.next_deadline().unwrap();
    assert_eq!(given.fold.index.due(at.plus_millis(-1)).count(), 0);
    assert_eq!(given.fold.index.due(at).count(), 1);
    given.says(vec![gone(&waiting)]);
    assert_eq!(given.fold.index.next_deadline(), None);
}

#[test]
fn an_index_of_a_moment_answers_as_one_of_now() {
    let mut given = Given::agents();
    let labels = json!({"metadata": {"labels": {"app": "web"}}});
    let web = below(pod("shop/web-1", labels.clone()), "apps/v1", "ReplicaSet", "web");
    let service = object("v1", "Service", "shop/front", json!({"spec": {"selector": {"app": "web"}}}));
    let user = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}});
    let set = object("apps/v1", "ReplicaSet", "shop/web", json!({}));
    let user = pod("shop/user", user);
    let bodies = [web, service, config("shop/settings", labels), set, user];
    given.says(bodies.iter().map(seen).collect());
    let now = &given.fold.index;
    let mut then = Index::of_a_moment(Declarations::default());
    let slots = then.put_all(now.slots().filter_map(|slot| now.shared(slot)).collect::<Vec<_>>());
    let mut related = 0;
    for (slot, of_now) in slots.iter().zip(now.slots()) {
        let (record, known) = (then.get(*slot).unwrap(), now.get(of_now).unwrap());
        let names = |index: &Index, found: Vec<(Relation, Slot)>| {
            let of = |(how, slot)| (how, index.get(slot).unwrap().uid.clone());
            let mut found: Vec<_> = found.into_iter().map(of).collect();
            found.sort();
            found
        };
        assert_eq!(
            names(&then, then.caused_how(record)),
            names(now, now.caused_how(known)),
            "{}",
            record.name
        );
        let sources = names(&then, then.sources(record));
        assert_eq!(sources, names(now, now.sources(known)), "{}", record.name);
        related += sources.len();
        assert_eq!(
            names(&then, then.targets(record).collect()),
            names(now, now.targets(known).collect()),
            "{}",
            record.name
        );
    }
    assert!(related > 2, "{related}");
    let label = ("app".into(), "web".into());
    assert_eq!(then.labelled(AGENT, &label).count(), 2);
    then.remove(slots[0]);
    assert_eq!(then.labelled(AGENT, &label).count(), now.labelled(AGENT, &label).count() - 1);
}
