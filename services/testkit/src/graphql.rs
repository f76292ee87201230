//! Every query that a GraphQL schema allows, made from its introspection: what a new field shows is asked for by itself.

use std::collections::BTreeMap;

use serde_json::Value;

/// Asks a server for what [`Walk`] needs.
pub const INTROSPECTION: &str = "{ __schema { types { kind name fields { name args { name defaultValue type { ...Of } } type { ...Of } } } } }
fragment Of on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }";

/// Values of arguments, by their names.
pub type Arguments = BTreeMap<&'static str, Vec<Value>>;

/// A schema to walk through.
pub struct Walk {
    types: BTreeMap<String, Value>,
}

impl Walk {
    /// That of an answer to [`INTROSPECTION`].
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn of(answer: &Value) -> Self {
        let types = answer.pointer("/data/__schema/types").and_then(Value::as_array);
        let types = types.unwrap_or_else(|| panic!("no introspection: {answer}"));
        let name = |of: &Value| of["name"].as_str().unwrap_or_default().to_owned();
        Self { types: types.iter().map(|of| (name(of), of.clone())).collect() }
    }

    /// A query for each field of `Query` and each value of its first argument, with all fields below. Each is asked with the arguments that
    /// it needs, and again with those that it may have.
    ///
    /// # Panics
    /// When a field needs an argument without a value here: think of one.
    #[must_use]
    pub fn queries(&self, values: &Arguments) -> Vec<String> {
        let mut queries = Vec::new();
        for field in self.fields("Query") {
            let selected = self.selected(&field["type"], &mut Vec::new());
            for optional in [false, true] {
                for arguments in arguments(field, values, optional) {
                    let query =
                        format!("{{ {}{arguments}{selected} }}", field["name"].as_str().unwrap_or_default());
                    if !queries.contains(&query) {
                        queries.push(query);
                    }
                }
            }
        }
        queries
    }

    fn fields(&self, of: &str) -> impl Iterator<Item = &Value> {
        self.types.get(of).and_then(|of| of["fields"].as_array()).into_iter().flatten()
    }

    /// All fields of a type which need no argument, of lists one item; none of what leads to a type that is being selected.
    fn selected(&self, of: &Value, path: &mut Vec<String>) -> String {
        let named = named(of);
        let is_object = matches!(self.types.get(named).map(|of| &of["kind"]), Some(kind) if kind == "OBJECT");
        if !is_object {
            return String::new();
        }
        path.push(named.to_owned());
        let mut all = vec!["__typename".to_owned()];
        for field in self.fields(named) {
            let is_cycle = path.iter().any(|seen| seen == self::named(&field["type"]));
            if !is_cycle && needed(field).next().is_none() {
                let below = self.selected(&field["type"], path);
                let arguments = if has(field, "first") { "(first: 1)" } else { "" };
                all.push(format!("{}{arguments}{below}", field["name"].as_str().unwrap_or_default()));
            }
        }
        path.pop();
        format!(" {{ {} }}", all.join(" "))
    }
}

/// The type without lists and non-null.
fn named(of: &Value) -> &str {
    match of.get("ofType").filter(|inner| !inner.is_null()) {
        Some(inner) => named(inner),
        None => of["name"].as_str().unwrap_or_default(),
    }
}

fn has(field: &Value, argument: &str) -> bool {
    field["args"].as_array().is_some_and(|all| all.iter().any(|known| known["name"] == argument))
}

fn needed(field: &Value) -> impl Iterator<Item = &Value> {
    let all = field["args"].as_array().into_iter().flatten();
    let is_non_null =
        |argument: &Value| argument.pointer("/type/kind").is_some_and(|kind| kind == "NON_NULL");
    all.filter(move |argument| is_non_null(argument) && argument["defaultValue"].is_null())
}

/// The arguments of a field, once for each value of the first.
fn arguments(field: &Value, values: &Arguments, optional: bool) -> Vec<String> {
    let is_needed = |argument: &Value| needed(field).any(|needed| needed["name"] == argument["name"]);
    let mut given: Vec<(&str, &[Value])> = Vec::new();
    for argument in field["args"].as_array().into_iter().flatten() {
        let name = argument["name"].as_str().unwrap_or_default();
        match values.get(name) {
            Some(values) if is_needed(argument) || optional => given.push((name, values)),
            None => assert!(!is_needed(argument), "{}: no value for {name} to try it with", field["name"]),
            Some(_) => {}
        }
    }
    let Some(((first, tried), rest)) = given.split_first() else { return vec![String::new()] };
    let rest: String = rest
        .iter()
        .filter_map(|(name, values)| Some(format!(", {name}: {}", literal(values.first()?))))
        .collect();
    tried.iter().map(|value| format!("({first}: {}{rest})", literal(value))).collect()
}

/// A JSON value as GraphQL writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {}", literal(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_is_asked_with_all_below() {
        let text = json!({ "kind": "SCALAR", "name": "String", "ofType": null });
        let needed = json!({ "kind": "NON_NULL", "ofType": text });
        let argument = |name: &str, of: &Value| json!({ "name": name, "defaultValue": null, "type": of });
        let one = json!({ "kind": "OBJECT", "name": "One", "ofType": null });
        let fields = json!([
            { "name": "name", "args": [], "type": text },
            { "name": "self", "args": [], "type": one },
            { "name": "list", "args": [argument("first", &text)], "type": text },
        ]);
        let query = json!([
            { "name": "one", "args": [argument("id", &needed), argument("at", &text)], "type": one },
        ]);
        let schema = json!({ "data": { "__schema": { "types": [
            { "kind": "OBJECT", "name": "Query", "fields": query },
            { "kind": "OBJECT", "name": "One", "fields": fields },
            { "kind": "SCALAR", "name": "String", "fields": null },
        ] } } });
        let values =
            BTreeMap::from([("id", vec![json!("a"), json!("b")]), ("at", vec![json!({ "x": [1] })])]);
        let queries = Walk::of(&schema).queries(&values);
        assert_eq!(
            queries,
            [
                r#"{ one(id: "a") { __typename name list(first: 1) } }"#,
                r#"{ one(id: "b") { __typename name list(first: 1) } }"#,
                r#"{ one(id: "a", at: {x: [1]}) { __typename name list(first: 1) } }"#,
                r#"{ one(id: "b", at: {x: [1]}) { __typename name list(first: 1) } }"#,
            ]
        );
    }
}
