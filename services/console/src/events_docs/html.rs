//! The reference as a page that people read.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{DEFINITIONS, DOCUMENT, NO_DATA, STYLE};

/// The page over the schemas of all types.
pub(super) fn page(schemas: &BTreeMap<&'static str, Value>) -> String {
    let mut families: BTreeMap<&str, Vec<(&str, &Value)>> = BTreeMap::new();
    let mut definitions: BTreeMap<&str, &Value> = BTreeMap::new();
    for (name, schema) in schemas {
        families.entry(family(name)).or_default().push((name, schema));
        let own = schema.get("$defs").and_then(Value::as_object);
        definitions.extend(own.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema)));
    }
    let links: String =
        families.keys().map(|family| format!("<a href=\"#family-{family}\">{family}</a> ")).collect();
    let types: String =
        families.iter().map(|(family, types)| of_family(family, types, &definitions)).collect();
    let shared: String = definitions.iter().map(|(name, schema)| definition(name, schema)).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Kasbah events</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" href=\"{STYLE}\"></head><body>\
         <h1>Kasbah events</h1>\
         <p>What is decided and observed in your organization, as <a href=\"https://cloudevents.io\">CloudEvents 1.0</a> in JSON, from \
         <code>/api/events</code>, webhooks and NATS. Each event comes at least once, with the same id; the events of one subject come in their \
         order; <code>exportsequence</code> numbers the events of an organization without gaps. Types stay: new types and fields are added, and \
         none are removed.</p>\
         <p>The same for programs: <a href=\"{DOCUMENT}\">AsyncAPI 3</a>, and a JSON Schema of each type's <code>data</code>. Where data cannot be given, \
         <a href=\"#type-{NO_DATA}\">{NO_DATA}</a> stands in its place.</p>\
         <nav>{links}<a href=\"#types\">types of fields</a></nav>{types}<h2 id=\"types\">Types of fields</h2>{shared}</body></html>"
    )
}

/// Such as `sync` of `kasbah.sync.finished`.
fn family(name: &str) -> &str {
    name.split('.').nth(1).unwrap_or(name)
}

fn of_family(family: &str, types: &[(&str, &Value)], definitions: &BTreeMap<&str, &Value>) -> String {
    let mut html = format!("<h2 id=\"family-{family}\">{family}</h2>");
    for (name, schema) in types {
        let about = description(schema);
        let data = schema.pointer("/anyOf/0").unwrap_or(&Value::Null);
        let fields =
            fields(definition_of(data).and_then(|name| definitions.get(name).copied()).unwrap_or(data));
        html += &format!(
            "<details id=\"{name}\"><summary><b>{name}</b><span>{about}</span></summary>{fields}\
             <p><a href=\"/docs/events/schemas/{name}.json\">JSON Schema</a></p></details>"
        );
    }
    html
}

fn definition(name: &str, schema: &Value) -> String {
    let about = description(schema);
    let content = match schema.get("properties") {
        Some(_) => fields(schema),
        None => format!("<p>{}</p>", described(schema)),
    };
    format!("<section class=\"type\" id=\"type-{name}\"><h3>{name}</h3><p>{about}</p>{content}</section>")
}

fn description(schema: &Value) -> String {
    escaped(schema.get("description").and_then(Value::as_str).unwrap_or_default())
}

/// The name of the definition that a schema refers to.
fn definition_of(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str)?.strip_prefix(DEFINITIONS)
}

/// A table of an object's fields.
fn fields(schema: &Value) -> String {
    let Some(properties) =
        schema.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty())
    else {
        return "<p>No fields.</p>".to_owned();
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let row = |(name, field): (&String, &Value)| {
        let optional = if is_required(name) { "" } else { ", optional" };
        let (name, kind, about) = (escaped(name), shape(field), description(field));
        format!("<tr><td>{name}</td><td>{kind}{optional}</td><td>{about}</td></tr>")
    };
    let rows: String = properties.iter().map(row).collect();
    format!(
        "<div class=\"fields\"><table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>{rows}</table></div>"
    )
}

/// What a value of a schema looks like, with what each alternative means.
fn described(schema: &Value) -> String {
    let alternatives = ["oneOf", "anyOf"].iter().find_map(|name| schema.get(*name)?.as_array());
    let Some(alternatives) = alternatives else { return shape(schema) };
    let described = |one: &Value| {
        let about = description(one);
        if about.is_empty() { shape(one) } else { format!("{}: {about}", shape(one)) }
    };
    alternatives.iter().map(described).collect::<Vec<_>>().join("<br>")
}

/// What a value of a schema looks like, in a line.
fn shape(schema: &Value) -> String {
    if let Some(name) = definition_of(schema) {
        return format!("<a href=\"#type-{name}\">{name}</a>");
    }
    if let Some(constant) = schema.get("const") {
        return format!("<code>{}</code>", escaped(&constant.to_string()));
    }
    for name in ["oneOf", "anyOf", "allOf"] {
        if let Some(alternatives) = schema.get(name).and_then(Value::as_array) {
            return joined(alternatives.iter().map(shape));
        }
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return joined(values.iter().map(|value| format!("<code>{}</code>", escaped(&value.to_string()))));
    }
    match schema.get("type") {
        Some(Value::Array(types)) => {
            joined(types.iter().filter_map(Value::as_str).map(|name| typed(name, schema)))
        }
        Some(Value::String(name)) => typed(name, schema),
        _ => "anything".to_owned(),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.filter(|part| part != "null").collect::<Vec<_>>().join(" or ")
}

/// A value of one JSON type.
fn typed(name: &str, schema: &Value) -> String {
    match name {
        "array" => format!("list of {}", schema.get("items").map_or_else(|| "anything".to_owned(), shape)),
        "object" => {
            match (schema.get("properties").and_then(Value::as_object), schema.get("additionalProperties")) {
                (Some(fields), _) => object(fields),
                (None, Some(values @ Value::Object(_))) => format!("map of {}", shape(values)),
                (None, _) => "object".to_owned(),
            }
        }
        name => match schema.get("format").and_then(Value::as_str) {
            Some(format) => format!("{name} ({})", escaped(format)),
            None => name.to_owned(),
        },
    }
}

/// An object within a line.
fn object(fields: &Map<String, Value>) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, field)| format!("{}: {}", escaped(name), shape(field))).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::schemas;
    use super::*;

    #[test]
    fn every_link_within_the_page_leads_somewhere() {
        let page = page(&schemas());
        for part in page.split("href=\"#").skip(1) {
            let target = part.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
        assert!(page.contains("<td>dropped</td><td>integer (uint64)</td>"), "fields have types");
    }
}
