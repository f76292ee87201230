use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::redact::REDACTED;

/// By way of a tree.
fn by_tree(text: &str, api_version: &str, kind: &str) -> Observed {
    let mut object: Value = serde_json::from_str(text).unwrap();
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    observe(object)
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = || {
        prop_oneof![
            "[a-c]{0,2}",
            any::<String>(),
            Just(COPIES[0].to_owned()),
            Just("metadata".to_owned()),
            Just("managedFields".to_owned()),
            Just("resourceVersion".to_owned()),
            Just("annotations".to_owned()),
            Just("labels".to_owned()),
            Just("owner".to_owned()),
            Just("helm".to_owned()),
            Just("kind".to_owned()),
            Just("data".to_owned()),
        ]
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1_000.0..1_000.0_f64).prop_map(|number| Value::from(number.round())),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn kinds() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        Just(("v1", "ConfigMap")),
        Just(("v1", "Secret")),
        Just(("apps/v1", "Deployment")),
        Just(("example.com/v1", "Secret")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn one_pass_gives_what_a_tree_gives(
        fields in prop::collection::vec(("[a-z]{1,3}|metadata|data|kind|items", any_value()), 0..5),
        metadata in prop::collection::vec(("[a-z]{1,3}|labels|annotations|resourceVersion|managedFields|name", any_value()), 0..6),
        has_metadata: bool,
        (api_version, kind) in kinds(),
    ) {
        let mut object: serde_json::Map<String, Value> = fields.into_iter().collect();
        if has_metadata {
            object.insert("metadata".to_owned(), Value::Object(metadata.into_iter().collect()));
        }
        let text = Value::Object(object).to_string();
        let observed = observe_text(text.as_bytes(), api_version, kind).unwrap();
        prop_assert_eq!(observed, by_tree(&text, api_version, kind));
    }
}

#[test]
fn a_usual_object_takes_one_pass_and_gives_what_a_tree_gives() {
    let text = r#"{"kind":"Other","apiVersion":"v9","metadata":{"name":"web","uid":"u","resourceVersion":"7",
        "labels":{"b":"1","a":"é\n\"","owner":"me"},"annotations":{"z":"1","kapp.k14s.io/original":"{}","a":""},
        "managedFields":[{"manager":"a","operation":"Apply","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{}}},
            {"manager":"b","subresource":"status","time":"2026-01-01T00:00:01Z"},{"manager":"c"}]},
        "spec":{"replicas":2.0,"ratio":0.1,"big":18446744073709551615,"small":-9007199254740993,
            "list":[[],{},null,true,[1,"x"]],"b":{},"a":{"z":1,"y":2}}}"#;
    let observed = in_one_pass(text.as_bytes(), "apps/v1", "Deployment").unwrap();
    assert_eq!(observed, by_tree(text, "apps/v1", "Deployment"));
    assert_eq!(observed.writers.iter().map(|by| by.manager.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    // Of fields of the same name the last one counts, as it does in a tree.
    for twice in [
        r#"{"b":1,"metadata":{},"a":{"x":1},"a":{"y":2},"b":3}"#,
        r#"{"metadata":{"annotations":{"a":"1","a":"2"}}}"#,
        r#"{"metadata":{"annotations":{}},"a":[]}"#,
    ] {
        let observed = in_one_pass(twice.as_bytes(), "v1", "Pod").unwrap();
        assert_eq!(observed, by_tree(twice, "v1", "Pod"), "{twice}");
    }
    let odd = r#"{"metadata":{"managedFields":[["a"],["a","b","c",null,"e"],{"manager":5},null,7,{"manager":"m","x":[1]}]}}"#;
    let observed = observe_text(odd.as_bytes(), "v1", "Pod").unwrap();
    assert_eq!(observed, by_tree(odd, "v1", "Pod"));
}

#[test]
fn values_of_secrets_are_redacted_wherever_they_stand() {
    let secret = r#"{"data":{"password":"aHVudGVyMg=="},"metadata":{"name":"db"}}"#;
    let helm = r#"{"data":{"release":"aHVudGVyMg=="},"metadata":{"labels":{"name":"shop","owner":"helm"}}}"#;
    let escaped = helm.replace("owner", "\\u006fwner");
    for (kind, text) in [("Secret", secret), ("ConfigMap", helm), ("ConfigMap", &escaped)] {
        let observed = observe_text(text.as_bytes(), "v1", kind).unwrap();
        assert!(observed.body.contains(REDACTED) && !observed.body.contains("aHVu"), "{}", observed.body);
    }
    assert!(observe_text(b"no", "v1", "Pod").is_err());
    assert!(observe_text(b"{} {}", "v1", "Pod").is_err());
}
