//! What the language promises, what Flux offers besides, what it may cost, and what hostile text does.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn object() -> Json {
    json!({
        "apiVersion": "example.com/v1", "kind": "Dock",
        "metadata": {"name": "dry", "generation": 3, "labels": {"app.kubernetes.io/name": "dock"}},
        "spec": {"metres": 12, "share": 0.5, "large": 18_446_744_073_709_551_615_u64, "names": ["a", "b"], "nothing": null},
        "status": {"phase": "Ready", "conditions": [
            {"type": "Ready", "status": "True", "message": "it is", "observedGeneration": 3},
            {"type": "Flooded", "status": "False", "message": ""},
        ]},
    })
}

fn holds(text: &str) -> Result<bool, EvaluationError> {
    let expression = Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut budget = BUDGET;
    expression.holds(&object(), &mut budget)
}

/// What holds of the object.
const HOLDS: &[&str] = &[
    "status.phase == 'Ready'",
    "self.status.phase == \"Ready\"",
    "has(self.status) && has(status.phase) && !has(status.other)",
    "has(status)",
    "!has(data)",
    "status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "status.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True')",
    "status.conditions.filter(c, c.type == 'Absent').all(c, false)",
    "status.conditions.exists_one(c, c.status == 'True')",
    "status.conditions.map(c, c.type) == ['Ready', 'Flooded']",
    "status.conditions.map(c, c.status == 'True', c.type) == ['Ready']",
    "metadata.labels['app.kubernetes.io/name'] == 'dock'",
    "'app.kubernetes.io/name' in metadata.labels",
    "metadata.labels.exists(key, key.startsWith('app.'))",
    "self.?status.?conditions.orValue([]).size() == 2",
    "status.?other.?deeper.orValue('none') == 'none'",
    "status.?phase.hasValue() && !status[?'other'].hasValue()",
    "status.?phase.optMap(p, p + '!').orValue('') == 'Ready!'",
    "optional.none().or(optional.of(3)).value() == 3",
    "spec.metres == 12.0 && spec.metres > 11.5 && spec.metres < 13u",
    "spec.large > 9223372036854775807 && spec.large == 18446744073709551615u",
    "spec.share * 2.0 == 1.0 && 7 / 2 == 3 && 7 % 4 == 3 && -(3) == 0 - 3",
    "spec.nothing == null && spec.metres != 'twelve'",
    "size(spec.names) == 2 && spec.names[1] == 'b' && 'a' in spec.names",
    "'a,b'.split(',') == spec.names && spec.names.join('-') == 'a-b'",
    "' Ready '.trim().lowerAscii() == 'ready' && 'x'.upperAscii() == 'X'",
    "'Ready'.contains('ead') && 'Ready'.endsWith('dy')",
    "int('12') == spec.metres && string(12) == '12' && double('1.5') == 1.5 && bool('true')",
    "timestamp('2026-01-01T00:00:00Z') - timestamp('2025-12-31T23:00:00Z') == duration('1h')",
    "timestamp('2026-01-01T00:00:00Z') + duration('90s') > timestamp('2026-01-01T00:01:00Z')",
    "sets.contains(['a', 'b', 'c'], spec.names) && sets.intersects(spec.names, ['b', 'z'])",
    "sets.equivalent(spec.names, ['b', 'a', 'a'])",
    "{'a': [1, 2u, 3.0]} == {'a': [1, 2, 3]} && {'a': 1}.a == 1 && {'a': 1, ?'b': optional.none()} == {'a': 1}",
    "(status.other == 'x' || true) && !(status.other == 'x' && false)",
    "status.conditions.exists(c, c.observedGeneration == 3)",
    "status.phase == 'Ready' ? true : status.other",
    "double('NaN') != double('NaN') && !(double('NaN') < 1.0)",
];

#[test]
fn what_holds() {
    for text in HOLDS {
        assert_eq!(holds(text), Ok(true), "{text}");
    }
}

/// What the evaluation of the `cel` crate does not know, as it is built here: sets, times, `has` of a top-level key, and that nothing is
/// less than what is not a number.
const ONLY_HERE: &[&str] = &["sets.", "timestamp(", "has(status)", "has(data)", "'NaN'"];

#[test]
fn another_implementation_agrees() {
    let mut environment = cel::Env::stdlib();
    environment.add_extension(cel::extensions::strings).expect("an extension");
    let environment = std::sync::Arc::new(environment);
    let asked = HOLDS.iter().filter(|text| !ONLY_HERE.iter().any(|part| text.contains(part)));
    let mut context = cel::Context::with_env(std::sync::Arc::clone(&environment));
    let object = object();
    context.add_variable_from_value("self", cel::to_value(&object).expect("a value"));
    for (key, value) in object.as_object().expect("a mapping") {
        context.add_variable_from_value(key.as_str(), cel::to_value(value).expect("a value"));
    }
    let answers = asked.map(|text| {
        let program = environment.compile(text).map_err(|error| error.to_string());
        let answer = program.and_then(|program| program.execute(&context).map_err(|error| error.to_string()));
        (text, answer)
    });
    let differing: Vec<_> = answers.filter(|(_, answer)| *answer != Ok(cel::Value::Bool(true))).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn what_does_not_go_with_the_object_says_where() {
    for (text, column, part) in [
        ("status.other == 'x'", 7, "no field 'other'"),
        ("true && data.ready", 9, "no field 'data'"),
        ("status.phase > 3", 14, "a text cannot be compared with an integer"),
        ("status.conditions.all(c, c.observedGeneration == 3)", 27, "no field 'observedGeneration'"),
        ("spec.names[7] == 'x'", 11, "no item 7"),
        ("status.phase && true", 7, "a text where true or false is expected"),
        ("9223372036854775807 + 1 > 0", 21, "too large"),
        ("spec.metres / 0 == 1", 13, "too large"),
        ("int('twelve') == 12", 4, "int does not take a text"),
        ("status.phase.exists(c, true)", 7, "a list or a mapping is expected"),
        ("{'a': 1, 'a': 2} == {}", 10, "twice"),
    ] {
        let error = holds(text).expect_err(text);
        let EvaluationError::Failed { column: at, message } = &error else { panic!("{text}: {error}") };
        assert!(message.contains(part), "{text}: {error}");
        assert_eq!(*at, column, "{text}: {error}");
    }
    assert_eq!(
        holds("status.phase").expect_err("a text").to_string(),
        "it gives a text where true or false is expected"
    );
}

#[test]
fn what_is_no_expression_says_where() {
    for (text, line, column, part) in [
        ("", 1, 1, "empty"),
        ("status.phase ==", 1, 16, "<EOF>"),
        ("true &&\n status.phase.reverse() == 'x'", 2, 22, "no function 'reverse'"),
        ("size(1, 2) == 3", 1, 5, "another number of arguments"),
        ("'é' == 'é' && unheard(3)", 1, 22, "no function 'unheard'"),
        ("has(3)", 1, 4, "has() takes a field"),
        ("[1].map(3, true)", 1, 9, "a variable's name"),
        ("Dock{metres: 3}.metres == 3", 1, 5, "messages cannot be made"),
        ("b'abc' == b'abc'", 1, 1, "bytes are not supported"),
    ] {
        let error = Expression::compile(text).expect_err(text);
        assert!(error.message.contains(part), "{text}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
    let long = format!("'{}' == ''", "x".repeat(MAXIMUM_BYTES));
    assert!(Expression::compile(&long).expect_err("long").message.contains("at most 2000"));
}

#[test]
fn what_costs_too_much_is_given_up_whatever_stands_beside_it() {
    let many: Vec<Json> =
        (0..1000).map(|number| json!({"number": number, "text": "x".repeat(100)})).collect();
    let object = json!({"metadata": {"name": "x"}, "many": many});
    let doubled = "[many].map(a, a + a)".to_owned() + &".map(a, a + a)".repeat(20) + " == []";
    let long_text = "[many[0].text]".to_owned() + &".map(a, a + a)".repeat(35) + " == ['']";
    for text in [
        "many.all(a, many.all(b, many.all(c, a.number + b.number + c.number >= 0)))",
        "true || many.all(a, many.all(b, a == b || true))",
        "many.all(a, many.all(b, a.number >= 0)) || true",
        "!many.map(a, many.map(b, a.text + b.text)).exists(x, false)",
        doubled.as_str(),
        long_text.as_str(),
    ] {
        let expression = Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut budget = BUDGET;
        let outcome = expression.holds(&object, &mut budget);
        if text.starts_with("true ||") {
            assert_eq!(outcome, Ok(true), "the left side decides");
            continue;
        }
        assert_eq!(outcome, Err(EvaluationError::Spent), "{text}");
        assert_eq!(budget, 0, "{text}");
    }
    let mut budget = BUDGET;
    let plain = Expression::compile("many.exists(a, a.number == 999)").expect("an expression");
    assert_eq!(plain.holds(&object, &mut budget), Ok(true));
    assert!(budget > BUDGET / 2, "{budget}");
}

#[test]
fn what_nests_too_deeply_is_refused_by_a_thread_with_little_room() {
    let deep = [
        "(".repeat(900) + "1" + &")".repeat(900),
        "(".repeat(1900),
        "[".repeat(900) + &"]".repeat(900),
        "{1:".repeat(400) + "1" + &"}".repeat(400),
        "a?b:".repeat(400) + "c",
        "size(".repeat(300) + "1" + &")".repeat(300),
        "1".to_owned() + &"+1".repeat(900),
        "a".to_owned() + &".b".repeat(900),
        "a".to_owned() + &"[0]".repeat(600),
        "a".to_owned() + &"==a".repeat(600),
        "$".repeat(1900),
        "'".repeat(1900),
    ];
    // Signs do not nest: the parser counts them.
    let flat = [
        "!".repeat(1900) + "a",
        "-".repeat(1900) + "a",
        "! ".repeat(900) + "a",
        "a".to_owned() + &"||a".repeat(600),
    ];
    for (text, is_deep) in deep.into_iter().map(|text| (text, true)).chain(flat.map(|text| (text, false))) {
        // As much as a thread has that a server makes.
        let small = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
        let compiled = small.spawn(move || (Expression::compile(&text).is_err(), text));
        let (is_refused, text) = compiled.expect("a thread").join().expect("no panic");
        assert!(is_refused || !is_deep, "{text}");
    }
    let flat = "true".to_owned() + &" && true".repeat(200);
    assert_eq!(holds(&flat), Ok(true), "what is wide is not deep");
}

/// What the language is made of, and what is not.
const WORDS: &[&str] = &[
    "self",
    "status",
    "spec",
    "metadata",
    ".",
    "phase",
    "conditions",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "?",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    " in ",
    "'a'",
    "\"b\"",
    "'",
    "\\",
    "1",
    "2u",
    "3.5",
    "1e999",
    "-9223372036854775808",
    "true",
    "false",
    "null",
    "has(",
    "size(",
    ".exists(c,",
    ".all(c,",
    ".map(c,",
    ".filter(c,",
    ".orValue(",
    ".?",
    "[?",
    "c",
    ".startsWith(",
    ".split(",
    "timestamp(",
    "duration('1h')",
    "int(",
    "sets.contains(",
    "optional.of(",
    "é",
    "\u{0}",
    "\n",
    "//",
    "b'x'",
    "r'",
    "'''",
];

/// Text that looks like the language.
fn almost_expressions() -> impl Strategy<Value = String> {
    let words = prop::sample::select(WORDS);
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Neither reading nor evaluating ends in a panic, and nothing is evaluated beyond its budget.
    #[test]
    fn no_text_does_harm(text in prop_oneof![almost_expressions(), ".{0,200}"]) {
        if let Ok(expression) = Expression::compile(&text) {
            for object in [object(), Json::Null, json!([1]), json!({"status": "text", "spec": {"a": [null, {}]}})] {
                let mut budget = 2_000;
                let _whatever = expression.holds(&object, &mut budget);
                let _whatever = expression.text(&object, &mut budget);
                prop_assert!(budget <= 2_000);
            }
        }
    }

    /// Numbers compare by their value, whatever their type.
    #[test]
    fn numbers_have_one_order(left in any::<i64>(), right in any::<f64>()) {
        let object = json!({"left": left, "right": right});
        let ask = |text: &str| {
            let mut budget = BUDGET;
            Expression::compile(text).expect("an expression").holds(&object, &mut budget).expect("an answer")
        };
        if right.is_finite() {
            let (less, same, more) = (ask("left < right"), ask("left == right"), ask("left > right"));
            prop_assert_eq!(u8::from(less) + u8::from(same) + u8::from(more), 1);
            prop_assert_eq!(ask("right > left"), less);
        }
    }
}
