use super::*;
use proptest::prelude::*;
use serde_json::json;

fn load(text: &str) -> Result<Vec<Document>, YamlError> {
    load_documents(text, &Limits::default())
}

fn one(text: &str) -> serde_json::Value {
    let documents = load(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(documents.len(), 1, "{text:?}");
    documents[0].root.to_json()
}

fn refusal(text: &str) -> YamlError {
    load(text).expect_err(text)
}

#[test]
fn plain_scalars_mean_what_kubectl_takes_them_for() {
    for (text, expected) in words().into_iter().chain(numbers()).chain(tagged()) {
        assert_eq!(one(&format!("a: {text}"))["a"], expected, "{text}");
    }
}

fn words() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("true", json!(true)),
        ("Yes", json!(true)),
        ("on", json!(true)),
        ("y", json!(true)),
        ("N", json!(false)),
        ("OFF", json!(false)),
        ("no", json!(false)),
        ("yEs", json!("yEs")),
        ("~", json!(null)),
        ("null", json!(null)),
        ("nULL", json!("nULL")),
        ("=", json!("=")),
        ("inf", json!("inf")),
        ("nan", json!("nan")),
        ("10.0.0.1", json!("10.0.0.1")),
        ("512Mi", json!("512Mi")),
        ("12:30:45", json!("12:30:45")),
        ("2001-12-14", json!("2001-12-14")),
        ("2001-12-14t21:59:43.10-05:00", json!("2001-12-14t21:59:43.10-05:00")),
        ("1.2.3", json!("1.2.3")),
    ]
}

fn numbers() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("0", json!(0)),
        ("-0", json!(0)),
        ("12", json!(12)),
        ("+12", json!(12)),
        ("-12", json!(-12)),
        ("1_000", json!(1000)),
        ("0777", json!(511)),
        ("0o14", json!(12)),
        ("0O14", json!(12)),
        ("0x1F", json!(31)),
        ("-0x10", json!(-16)),
        ("0b101", json!(5)),
        ("08", json!(8)),
        ("0x", json!("0x")),
        ("0b2", json!("0b2")),
        ("9223372036854775807", json!(9_223_372_036_854_775_807_i64)),
        ("-9223372036854775808", json!(-9_223_372_036_854_775_808_i64)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("+9223372036854775808", json!(9_223_372_036_854_775_808_f64)),
        ("18446744073709551616", json!(18_446_744_073_709_551_616_f64)),
        ("0xFFFFFFFFFFFFFFFFF", json!(295_147_905_179_352_825_855_f64)),
        ("1.5", json!(1.5)),
        ("1.10", json!(1.1)),
        ("1.0", json!(1)),
        ("1.", json!(1)),
        (".5", json!(0.5)),
        ("1e3", json!(1000)),
        ("1E-2", json!(0.01)),
        ("12e4567", json!("12e4567")),
        ("1e", json!("1e")),
        (".", json!(".")),
        ("-.5", json!(-0.5)),
    ]
}

fn tagged() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("\"yes\"", json!("yes")),
        ("'12'", json!("12")),
        ("|\n  12\n", json!("12\n")),
        ("!!str 12", json!("12")),
        ("!!int '12'", json!(12)),
        ("!!float 12", json!(12)),
        ("!!bool 'yes'", json!(true)),
        ("!!binary aGk=", json!("hi")),
        ("!own 12", json!("12")),
        ("! 12", json!("12")),
    ]
}

#[test]
fn what_json_cannot_hold_is_refused() {
    for text in ["a: .inf", "a: [-.Inf]", "a: .nan", "a: !!int x", "a: !!binary '*'", "? [1]\n: 2", "~: 1"] {
        let error = refusal(text);
        assert_eq!(error.line, 1, "{text}: {error}");
    }
}

#[test]
fn keys_become_text() {
    let object = one("5: a\n3.14: b\ntrue: c\nyes: d\n2001-12-14: e\n1e6: f\n.inf: g\n0.00001: h\n");
    let keys: Vec<&str> = object.as_object().expect("a mapping").keys().map(String::as_str).collect();
    assert_eq!(keys, ["5", "3.14", "true", "2001-12-14", "1e+06", ".inf", "1e-05"]);
}

#[test]
fn documents_are_cut_as_kubectl_cuts_them() {
    let rows: [(&str, serde_json::Value); 13] = [
        ("", json!([])),
        ("# nothing\n", json!([])),
        ("---\n---\n# x\n---\n", json!([])),
        ("null\n---\n~\n", json!([])),
        ("a: 1\n---\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("--- # first\na: 1\n---   \nb: 2", json!([{"a": 1}, {"b": 2}])),
        ("---\r\na: 1\r\n---\r\nb: |\r\n  x\r\n  y\r\n", json!([{"a": 1}, {"b": "x\ny\n"}])),
        ("\u{feff}a: 1\n", json!([{"a": 1}])),
        ("\u{feff}---\na: 1\n---\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("a: 1\n...\n", json!([{"a": 1}])),
        ("{\"a\": 1}\n{\"b\": 2}{\"c\": 3}\n", json!([{"a": 1}, {"b": 2}, {"c": 3}])),
        ("{\"a\": 1}\n---\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("  {a: 1, b: [x,],}\n", json!([{"a": 1, "b": ["x"]}])),
    ];
    for (text, expected) in rows {
        let documents = load(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let found: serde_json::Value = documents.iter().map(|document| document.root.to_json()).collect();
        assert_eq!(found, expected, "{text:?}");
    }
}

#[test]
fn errors_name_their_place() {
    let rows = [
        ("a: 1\n--- b: 2\n", 2, "separator"),
        ("a: 1\n...\nb: 2\n", 3, "after the end of the document"),
        ("a: 1\n---\nb: [1\nc: 2\n", 4, "not valid YAML"),
        ("a: 1\n---\n\nb:\n\t- 1\n", 5, "spaces, not tabs"),
        ("a: {{ .Values.x }}\n", 1, "template"),
        ("%YAML 1.2\n---\na: 1\n", 2, "directive"),
        ("{\"a\": 1}\n{\"b\": 2}\n{\"c\" 3}\n", 3, "not valid JSON"),
        ("{\"a\": \"x\n", 1, "not valid JSON"),
        ("a: {{ .Values.x }}: 1\n", 1, "template"),
        ("a: x\u{2028}y\n", 1, "U+2028"),
        ("a: |\n  x\u{85}y\n", 2, "U+0085"),
        ("a:\n  b: [\n]\n", 3, "closing brackets"),
        ("a:\n  b: 'x\ny'\n", 2, "continued lines"),
        ("a: *x\n", 1, "anchor"),
        ("a: &x [*x]\n", 1, "alias inside"),
        ("a: &x 1\nb:\n  <<: *x\n", 1, "'<<' needs"),
    ];
    for (text, line, fragment) in rows {
        let error = refusal(text);
        assert!(error.message.contains(fragment), "{text:?}: {error}");
        assert_eq!(error.line, line, "{text:?}: {error}");
    }
}

#[test]
fn anchors_aliases_and_merges() {
    assert_eq!(
        one("a: &x {b: 1}\nc: *x\nd: [*x, *x]\n"),
        json!({"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]})
    );
    assert_eq!(one("x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  b: 3\n")["z"], json!({"a": 1, "b": 3}));
    // Later counts, even when it is the merge: so kubectl's reader has it.
    assert_eq!(one("x: &x {a: 1}\nz:\n  a: 2\n  <<: *x\n")["z"], json!({"a": 1}));
    assert_eq!(
        one("x: &x {a: 1, b: 1}\nw: &y {a: 2}\nz:\n  <<: [*x, *y]\n")["z"],
        json!({"a": 1, "b": 1}),
        "of several, the earlier one counts"
    );
    assert_eq!(one("z:\n  \"<<\": 1\n")["z"], json!({"<<": 1}));
    let documents = load("x: &x {a: 1}\nw: {<<: *x, a: 2}\nz: {a: 1, <<: *x}\n").expect("YAML");
    assert_eq!(documents[0].duplicates, []);
}

#[test]
fn a_key_that_occurs_twice_is_listed_and_the_later_one_counts() {
    for text in [
        "spec:\n  a:\n  - x: 1\n    z: 2\n    x: 3\n",
        "{\"spec\":\n{\"a\":[\n{\"x\": 1,\n\"z\": 2,\n\"x\": 3}]}}",
    ] {
        let documents = load(text).expect("YAML");
        assert_eq!(documents[0].root.to_json(), json!({"spec": {"a": [{"x": 3, "z": 2}]}}));
        let [duplicate] = documents[0].duplicates.as_slice() else { panic!("{:?}", documents[0].duplicates) };
        assert_eq!((duplicate.key.as_str(), duplicate.line, duplicate.first_line), ("x", 5, 3));
        assert_eq!(duplicate.path, "spec.a[0]");
    }
}

#[test]
fn line_separators_are_text_in_quotes() {
    assert_eq!(one("a: \"x\u{2028}y\\N\"\n"), json!({"a": "x\u{2028}y\u{85}"}));
}

#[test]
fn values_know_their_place() {
    let documents = load("# c\n---\n\na:\n  b:\n  - é: 1\n    name: x\n").expect("YAML");
    let root = &documents[0].root;
    assert_eq!((root.line, root.column), (4, 1));
    let name = root.at(&["a", "b", "0", "name"]).expect("there");
    assert_eq!((name.line, name.column, name.as_str()), (7, 11, Some("x")));
    let (key, _) = root.at(&["a", "b", "0"]).expect("there").entry("name").expect("there");
    assert_eq!((key.line, key.column), (7, 5));
    assert_eq!(root.at(&["a", "b", "1"]), None);
    let documents = load("\u{feff}{\r\n  \"a\": {\"b\": [true]}}").expect("JSON");
    let b = documents[0].root.at(&["a", "b", "0"]).expect("there");
    assert_eq!((b.line, b.column, b.as_bool()), (2, 15, Some(true)));
    let documents = load("a: 1\r\n---\r\nb: 1\r\nc: |\r\n  x\r\nd: 2\r\n").expect("YAML");
    let d = documents[1].root.get("d").expect("there");
    assert_eq!((d.line, d.column), (6, 4));
}

#[test]
fn limits_hold() {
    let limits = Limits { bytes: 200, depth: 4, nodes_after_aliases: 60 };
    let refused = |text: &str| load_documents(text, &limits).expect_err(text).message;
    assert!(refused(&"a".repeat(201)).contains("201 bytes"));
    assert!(load_documents("a: [[[1]]]", &limits).is_ok());
    assert!(refused("a: [[[[1]]]]").contains("deeper"));
    assert!(load_documents("{\"a\": [[[1]]]}", &limits).is_ok());
    assert!(refused("{\"a\": [[[[1]]]]}").contains("deeper"));
    assert!(load_documents("a: &x [[1]]\nb: [*x]", &limits).is_ok());
    assert!(refused("a: &x [[1]]\nb: [[*x]]").contains("deeper"));
    let bomb = "a: &a [x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b]\n";
    assert!(refused(bomb).contains("too many values"));
    assert!(load_documents(&format!("[{}]", "x,".repeat(50)), &limits).is_ok());
    assert!(refused(&format!("[{}]", "x,".repeat(70))).contains("too many values"));
}

#[test]
fn json_text_is_read_exactly() {
    assert_eq!(
        one(
            r#"{"a": "\u00e9\ud83d\ude80\n\/\"\\", "b": -1.5e2, "c": [], "d": {}, "e": "\ud800x", "f": 1e2}"#
        ),
        json!({"a": "é🚀\n/\"\\", "b": -150, "c": [], "d": {}, "e": "\u{fffd}x", "f": 100})
    );
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        (-1e9..1e9).prop_map(|value: f64| serde_json::Value::from(value.fract())),
        ".{0,12}".prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        "(yes|no|on|0x1F|1_0|1e3|~|null|=|<<|- a|: b|#x|'|\"|[{}&*!%@`|>-])"
            .prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    /// JSON is read back as it was, by the reader for JSON (objects) and by the one for YAML (the same inside a
    /// list, where YAML's rules apply).
    #[test]
    fn json_survives(value in values()) {
        let canonical = crate::digest::canonicalize(value);
        let object = json!({ "a": canonical });
        prop_assert_eq!(&crate::digest::canonicalize(one(&object.to_string())), &object);
    }

    #[test]
    fn a_digest_does_not_depend_on_the_order_of_keys(value in values()) {
        fn reversed(value: &serde_json::Value) -> serde_json::Value {
            match value {
                serde_json::Value::Object(map) => serde_json::Value::Object(
                    map.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect(),
                ),
                serde_json::Value::Array(items) => items.iter().map(reversed).collect(),
                other => other.clone(),
            }
        }
        prop_assert_eq!(
            crate::digest::object_digest(&value),
            crate::digest::object_digest(&reversed(&value))
        );
        let bytes = crate::digest::canonical_bytes(&value);
        let back: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        prop_assert_eq!(crate::digest::canonical_bytes(&back), bytes);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ \\t\\n:a0'\"\\[\\]{},&*!|>%#?.\\-<é]{0,60}") {
        drop(load(&text));
        drop(load(&format!("{{{text}")));
    }
}
