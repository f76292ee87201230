use events::configuration::{DeclaredAction, ObjectPatch};
use serde_json::{Value, json};

use super::{ActionError, MAXIMUM_OPERATIONS, MAXIMUM_PATCH, Offer, Seen, built_in, check_kind, check_patch};

const NOW: &str = "2026-01-31T12:00:00Z";

fn offer(action: &DeclaredAction, object: &Value) -> Offer {
    super::offer(action, &Seen::at(object.clone(), NOW))
}

fn action(when: Option<&str>, patch: ObjectPatch) -> DeclaredAction {
    DeclaredAction {
        name: "pause".to_owned(),
        group: "db.example.com".to_owned(),
        kind: "Database".to_owned(),
        text: "Stops it.".to_owned(),
        when: when.map(str::to_owned),
        patch,
        subresource: None,
    }
}

fn database(spec: Value) -> Value {
    json!({"apiVersion": "db.example.com/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec})
}

#[test]
fn values_are_literal_or_come_from_the_object_and_the_time() {
    let patch = json!({
        "metadata": {"annotations": {"example.com/asked": {"$cel": "now"}}},
        "spec": {"replicas": {"$cel": "spec.replicas + 1"}, "tags": [{"$cel": "metadata.name"}, "b"], "gone": null},
    });
    let offered = offer(&action(None, ObjectPatch::Merge(patch)), &database(json!({"replicas": 2})));
    let expected = json!({
        "metadata": {"annotations": {"example.com/asked": NOW}},
        "spec": {"replicas": 3, "tags": ["orders", "b"], "gone": null},
    });
    assert_eq!(offered, Offer::Patch(ObjectPatch::Merge(expected)));
    let operations =
        vec![json!({"op": "replace", "path": "/spec/paused", "value": {"$cel": "!spec.paused"}})];
    let offered = offer(&action(None, ObjectPatch::Json(operations)), &database(json!({"paused": true})));
    let expected = vec![json!({"op": "replace", "path": "/spec/paused", "value": false})];
    assert_eq!(offered, Offer::Patch(ObjectPatch::Json(expected)));
}

#[test]
fn an_action_is_offered_where_its_condition_holds_and_not_where_that_cannot_be_told() {
    let patch = || ObjectPatch::Merge(json!({"spec": {"paused": true}}));
    let pause = action(Some("!spec.paused"), patch());
    assert!(matches!(offer(&pause, &database(json!({"paused": false}))), Offer::Patch(_)));
    assert_eq!(offer(&pause, &database(json!({"paused": true}))), Offer::NotNow);
    let Offer::Failed(why) = offer(&pause, &database(json!({}))) else { panic!("offered") };
    assert!(why.contains("there is no field 'paused'"), "{why}");
}

#[test]
fn the_agents_own_objects_are_left_alone() {
    let mut own = database(json!({}));
    own["metadata"]["labels"] = json!({"app.kubernetes.io/name": "kasbah-agent"});
    let pause = action(None, ObjectPatch::Merge(json!({"spec": {"paused": true}})));
    assert_eq!(offer(&pause, &own), Offer::NotNow);
    assert!(matches!(offer(&pause, &database(json!({}))), Offer::Patch(_)));
}

#[test]
fn kinds_that_hold_secrets_or_give_rights_have_no_actions() {
    for (group, kind) in [
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ] {
        assert_eq!(check_kind(group, kind), Err(ActionError::Kind), "{kind}");
    }
    assert_eq!(check_kind("db.example.com", "Database"), Ok(()));
}

#[test]
fn a_patch_that_changes_more_than_the_object_or_is_none_is_refused() {
    let merge = |patch: Value| check_patch(&ObjectPatch::Merge(patch));
    let field = |name: &str| Err(ActionError::Field(name.to_owned()));
    assert_eq!(merge(json!({"kind": "Secret"})), field("kind"));
    assert_eq!(merge(json!({"metadata": {"finalizers": null}})), field("metadata.finalizers"));
    assert_eq!(
        merge(json!({"metadata": {"ownerReferences": {}}})),
        Ok(()),
        "an empty mapping changes nothing"
    );
    assert_eq!(
        merge(json!({"metadata": {"ownerReferences": {"a": 1}}})),
        field("metadata.ownerReferences.a")
    );
    assert_eq!(
        merge(json!({"metadata": {"labels": {"kasbah.dev/source": "x"}}})),
        field("metadata.labels.kasbah.dev/source")
    );
    assert_eq!(
        merge(json!({"metadata": {"annotations": {"$cel": "spec"}}})),
        field("metadata.annotations.$cel")
    );
    assert_eq!(merge(json!({"$cel": "self"})), field("$cel"));
    assert_eq!(merge(json!({})), Err(ActionError::Empty));
    assert!(matches!(merge(json!({"spec": {"$cel": "1 +"}})), Err(ActionError::Expression { .. })));
    assert!(matches!(merge(json!({"spec": {"$patch": "delete"}})), Err(ActionError::Shape(_))));
    let long = "x".repeat(MAXIMUM_PATCH);
    assert!(matches!(merge(json!({"spec": long})), Err(ActionError::Large(_))));
    let json = |operations: Vec<Value>| check_patch(&ObjectPatch::Json(operations));
    let remove = |path: &str| json!({"op": "remove", "path": path});
    assert_eq!(
        json(vec![remove("/metadata/labels/kasbah.dev~1source")]),
        field("metadata.labels.kasbah.dev/source")
    );
    assert_eq!(json(vec![remove("/metadata/labels")]), field("metadata.labels"));
    assert_eq!(json(vec![remove("/metadata/uid")]), field("metadata.uid"));
    assert!(matches!(json(vec![remove("")]), Err(ActionError::Shape(_))));
    let moved = json!({"op": "move", "path": "/spec/a", "from": "/spec/b"});
    assert!(matches!(json(vec![moved]), Err(ActionError::Shape(_))));
    assert_eq!(json(vec![remove("/spec/a"); MAXIMUM_OPERATIONS + 1]), Err(ActionError::Operations(21)));
    assert_eq!(
        json(vec![json!({"op": "test", "path": "/metadata/uid", "value": "1"}), remove("/spec/a")]),
        Ok(())
    );
}

#[test]
fn what_is_built_in_is_as_bounded_as_what_is_declared() {
    for (group, kind) in
        [("batch", "CronJob"), ("argoproj.io", "Rollout"), ("helm.toolkit.fluxcd.io", "HelmRelease")]
    {
        let all: Vec<&DeclaredAction> = built_in(group, kind).collect();
        assert!(all.len() > 1, "{kind}");
        for action in all {
            assert_eq!(check_patch(&action.patch), Ok(()), "{kind} {}", action.name);
            let object =
                json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"}});
            assert!(!matches!(offer(action, &object), Offer::Failed(_)), "{kind} {}", action.name);
        }
    }
    let suspended = json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"suspend": true}});
    let offered =
        built_in("batch", "CronJob").filter(|one| matches!(offer(one, &suspended), Offer::Patch(_)));
    assert_eq!(offered.map(|one| one.name.as_str()).collect::<Vec<_>>(), ["resume"]);
}
