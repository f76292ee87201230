use events::configuration::ObjectPatch;
use serde_json::json;

use super::*;

const KIND: &str = "group: example.com, kind: App, text: Stops it.";

#[test]
fn actions_are_read_and_what_is_wrong_is_said_at_its_field() {
    let file = |line: &str| format!("sources: []\nactions:\n  - {line}\n");
    let line = format!(
        "{{name: stop, {KIND}, when: '!spec.stopped', merge: {{spec: {{stopped: true, at: {{$cel: now}}}}}}}}"
    );
    let good = check(FILE, file(&line).as_bytes());
    assert_eq!((good.findings, good.warnings), (vec![], vec![]));
    let action = &good.draft.actions[0];
    let expected = ObjectPatch::Merge(json!({"spec": {"stopped": true, "at": {"$cel": "now"}}}));
    assert_eq!((&action.patch, action.when.as_deref()), (&expected, Some("!spec.stopped")));
    let merge = "merge: {spec: {a: 1}}";
    let role = "group: rbac.authorization.k8s.io, kind: Role, text: Gives all.";
    for (line, field, part) in [
        (format!("{{name: stop, {KIND}}}"), "actions[0]", "either 'merge'"),
        (format!("{{name: stop, {KIND}, {merge}, json: []}}"), "actions[0]", "either 'merge'"),
        (format!("{{name: Stop it, {KIND}, {merge}}}"), "actions[0].name", "no name of an action"),
        (format!("{{name: stop, {KIND}, {merge}, when: 'a +'}}"), "actions[0].when", "no usable expression"),
        (
            format!("{{name: stop, {KIND}, merge: {{spec: {{a: {{$cel: 'a +'}}}}}}}}"),
            "actions[0].merge",
            "no usable expression",
        ),
        (
            format!("{{name: stop, {KIND}, merge: {{kind: Secret}}}}"),
            "actions[0].merge",
            "changed by no action",
        ),
        (
            format!("{{name: stop, {KIND}, json: [{{op: move, path: /a, from: /b}}]}}"),
            "actions[0].json",
            "an operation is",
        ),
        (
            format!("{{name: stop, {KIND}, {merge}, subresource: exec}}"),
            "actions[0].subresource",
            "is not one of",
        ),
        (format!("{{name: give, {role}, {merge}}}"), "actions[0].kind", "do not change objects of this kind"),
        (
            format!("{{name: all, group: '*', kind: App, text: a, {merge}}}"),
            "actions[0].kind",
            "is for one kind",
        ),
        (format!("{{name: stop, {KIND}, {merge}, force: true}}"), "actions[0].force", ""),
    ] {
        let found = findings(&file(&line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].2 == field && found[0].3.contains(part), "{found:?}");
    }
    let twice = format!("{{name: stop, {KIND}, {merge}}}\n  - {{name: stop, {KIND}, {merge}}}");
    assert!(findings(&file(&twice))[0].3.contains("another action"));
}
