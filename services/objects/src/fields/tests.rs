use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn paths_are_written_and_read() {
    let field = |name: &str| Segment::Field(name.to_owned());
    let rows = [
        ("spec.replicas", vec![field("spec"), field("replicas")]),
        ("metadata.labels[\"a.b/c\"]", vec![field("metadata"), field("labels"), field("a.b/c")]),
        ("a[0][\"\"]", vec![field("a"), Segment::Index(0), field("")]),
        ("a[name=web].b", vec![field("a"), Segment::Key(vec![("name".into(), json!("web"))]), field("b")]),
        (
            "a[port=80,protocol=TCP,name=\"80\",x=\"a]b\"]",
            vec![
                field("a"),
                Segment::Key(vec![
                    ("port".into(), json!(80)),
                    ("protocol".into(), json!("TCP")),
                    ("name".into(), json!("80")),
                    ("x".into(), json!("a]b")),
                ]),
            ],
        ),
    ];
    for (text, segments) in rows {
        assert_eq!(FieldPath(segments.clone()).to_string(), text);
        assert_eq!(text.parse(), Ok(FieldPath(segments)), "{text}");
    }
    for wrong in [".a", "a.", "a..b", "a[", "a[]", "a[x]", "a[x=1", "a]b", "a[0]b", "a[\"x]"] {
        assert!(wrong.parse::<FieldPath>().is_err(), "{wrong}");
    }
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let scalar = prop_oneof![any::<i64>().prop_map(Value::from), ".{0,6}".prop_map(Value::from)];
    let segment = prop_oneof![
        ".{0,8}".prop_map(Segment::Field),
        any::<usize>().prop_map(Segment::Index),
        prop::collection::vec(("[a-zA-Z_]{1,6}", scalar), 1..3).prop_map(Segment::Key),
    ];
    prop::collection::vec(segment, 0..6)
}

proptest! {
    #[test]
    fn any_path_survives_being_written(segments in segments()) {
        let path = FieldPath(segments);
        prop_assert_eq!(path.to_string().parse::<FieldPath>(), Ok(path));
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        if let Ok(path) = text.parse::<FieldPath>() {
            prop_assert_eq!(path.to_string().parse::<FieldPath>(), Ok(path));
        }
    }
}

fn live() -> Value {
    json!({
        "metadata": {
            "finalizers": ["a", "b"],
            "managedFields": [
                {"manager": "old", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {
                    "f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
                    "f:spec": {
                        "f:selector": {},
                        "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:targetPort": {}}},
                    },
                }},
                {"manager": "new", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {
                    "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:targetPort": {}}}},
                }},
                {"manager": "status", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:x": {}}}},
            ],
        },
        "spec": {
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
        "status": {"x": 1},
    })
}

#[test]
fn the_managers_of_a_field_are_found() {
    let rows = [
        ("spec.selector.app", vec!["old"]),
        ("spec.selector", vec!["old"]),
        ("spec", vec!["new", "old"]),
        // The list's own key is port and protocol; the path may name the item by anything.
        ("spec.ports[name=http].targetPort", vec!["new", "old"]),
        ("spec.ports[0].port", vec!["old"]),
        ("spec.ports[port=80,protocol=TCP]", vec!["new", "old"]),
        ("spec.ports[0].name", vec![]),
        ("metadata.finalizers[0]", vec!["old"]),
        ("metadata.finalizers[1]", vec![]),
        ("status.x", vec!["status"]),
        ("spec.type", vec![]),
        // An item that is no longer there is found by its key fields.
        ("spec.ports[port=81,protocol=TCP].port", vec![]),
    ];
    for (path, expected) in rows {
        let path: FieldPath = path.parse().expect("a path");
        let names: Vec<String> =
            managers_of(&live(), &path).into_iter().map(|manager| manager.name).collect();
        assert_eq!(names, expected, "{path}");
    }
    let mut without_item = live();
    without_item["spec"]["ports"] = json!([]);
    let path: FieldPath = "spec.ports[port=80,protocol=TCP].port".parse().expect("a path");
    assert_eq!(manager_of(&without_item, &path).map(|manager| manager.name), Some("old".to_owned()));
    assert_eq!(manager_of(&json!({}), &path), None);
}
