//! The reference of exported events, made of their types: a page for people, the AsyncAPI document, and a JSON Schema of each type's data.

mod html;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use events::export::{self, GAP, exported_types};
use events::{Refusal, RefusalKind};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::page::standalone;
use crate::{asyncapi, problem};

const PAGE: &str = "/docs/events";
const STYLE: &str = "/docs/events/style.css";
const DOCUMENT: &str = "/docs/events/asyncapi.json";
const SCHEMA: &str = "/docs/events/schemas/{file}";
/// Every path of this module.
pub(crate) const PATHS: [&str; 4] = [PAGE, STYLE, DOCUMENT, SCHEMA];
/// The page has no script, loads its own style only, and stands in no other page.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The event that every reader may get beside those that it wants.
pub(crate) const ABOUT_GAPS: (&str, &str) =
    (GAP, "Events are missing here for good: they had left the server before they could be sent.");
/// The name of [`no_data`] among the definitions.
pub(crate) const NO_DATA: &str = "NoData";
/// Where the definitions of a schema are.
const DEFINITIONS: &str = "#/$defs/";

/// What is served, made at the first request for it.
#[derive(Default)]
pub(crate) struct EventsDocs {
    document: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
    schemas: OnceLock<BTreeMap<&'static str, Value>>,
}

impl EventsDocs {
    fn schemas(&self) -> &BTreeMap<&'static str, Value> {
        self.schemas.get_or_init(schemas)
    }
}

/// Adds the routes.
pub(crate) fn add_to(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route(PAGE, get(page))
        .route(STYLE, get(style))
        .route(DOCUMENT, get(document))
        .route(SCHEMA, get(schema))
}

async fn page(State(app): State<Arc<App>>) -> Response {
    let text = app.events.page.get_or_init(|| Bytes::from(html::page(app.events.schemas())));
    standalone("text/html; charset=utf-8", POLICY, text.clone())
}

async fn style() -> Response {
    let text = Bytes::from_static(include_bytes!("events_docs/style.css"));
    standalone("text/css; charset=utf-8", POLICY, text)
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let text = app.events.document.get_or_init(|| Bytes::from(asyncapi::document().to_string()));
    standalone("application/json", POLICY, text.clone())
}

async fn schema(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match name.strip_suffix(".json").and_then(|name| app.events.schemas().get(name)) {
        Some(schema) => standalone("application/schema+json", POLICY, Bytes::from(schema.to_string())),
        None => problem::response(&Refusal::new(RefusalKind::NotFound, "no exported event has this type")),
    }
}

/// The JSON Schema of each type's data as the types have it, gaps included.
pub(crate) fn data(generator: &mut SchemaGenerator) -> BTreeMap<&'static str, Value> {
    let mut all: BTreeMap<_, _> = export::schemas(generator).into_iter().collect();
    let number = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
    let gap = json!({
        "type": "object",
        "properties": {
            "first": number("The number of the first event that is missing; absent where it is not known."),
            "last": number("The number of the last one."),
            "events": number("How many there are."),
        },
    });
    all.insert(GAP, gap);
    all
}

/// The JSON Schema of what stands in place of data that cannot be given.
pub(crate) fn no_data() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    json!({
        "description": "In place of the data, where it cannot be given.",
        "type": "object",
        "properties": {
            "left_out": text("The data is larger than 512 KiB."),
            "bytes": { "type": "integer", "description": "How large it is." },
            "unreadable": text("The server that exported the event is older than the event."),
        },
        "anyOf": [{ "required": ["left_out"] }, { "required": ["unreadable"] }],
        "additionalProperties": false,
    })
}

/// A whole JSON Schema of each type's data.
fn schemas() -> BTreeMap<&'static str, Value> {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let data = data(&mut generator);
    let mut definitions = generator.take_definitions(true);
    definitions.insert(NO_DATA.to_owned(), no_data());
    let described = exported_types().into_iter().chain([ABOUT_GAPS]);
    described
        .filter_map(|(name, about)| {
            let alternatives = json!([data.get(name)?, { "$ref": format!("{DEFINITIONS}{NO_DATA}") }]);
            let schema = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": name,
                "description": about,
                "$defs": needed(&alternatives, &definitions),
                "anyOf": alternatives,
            });
            Some((name, schema))
        })
        .collect()
}

/// The definitions that a schema refers to, and those to which these do.
fn needed(schema: &Value, definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut names = BTreeSet::new();
    let mut next = vec![schema];
    while let Some(schema) = next.pop() {
        match schema {
            Value::Object(fields) => {
                let target = fields.get("$ref").and_then(Value::as_str);
                let target = target.and_then(|target| target.strip_prefix(DEFINITIONS));
                if let Some(definition) = target.and_then(|name| definitions.get_key_value(name))
                    && names.insert(definition.0.clone())
                {
                    next.push(definition.1);
                }
                next.extend(fields.values());
            }
            Value::Array(items) => next.extend(items),
            _ => {}
        }
    }
    let found = |name: String| definitions.get(&name).map(|schema| (name.clone(), schema.clone()));
    names.into_iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::openapi::tests::assert_references;

    #[test]
    fn every_exported_type_has_a_schema_that_is_whole() {
        let schemas = schemas();
        for (name, _) in exported_types() {
            let schema = schemas.get(name).unwrap_or_else(|| panic!("{name} has no schema"));
            assert_references(schema);
            jsonschema::meta::validate(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Files of golden events or records, decoded.
    fn golden(folder: &str) -> Vec<(String, Value)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/tests").join(folder);
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| {
            let content: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            (path.file_name().unwrap().to_string_lossy().into_owned(), content)
        };
        files.map(read).collect()
    }

    fn assert_valid(
        schemas: &BTreeMap<&'static str, Value>,
        event_type: &str,
        data: &Value,
        file: &str,
    ) -> bool {
        let Some(schema) = schemas.get(event_type) else { return false };
        let of_data = json!({ "$defs": schema["$defs"], "allOf": [schema["anyOf"][0]] });
        for schema in [schema, &of_data] {
            let validator = jsonschema::validator_for(schema).unwrap();
            let errors: Vec<_> = validator.iter_errors(data).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{file}: {errors:?}\n{data}");
        }
        true
    }

    #[test]
    fn the_golden_event_of_each_type_is_as_its_schema_says() {
        let schemas = schemas();
        let mut seen = BTreeSet::new();
        for (file, content) in golden("golden") {
            let event_type = content["type"].as_str().unwrap();
            if assert_valid(&schemas, event_type, &content["json"], &file) {
                seen.insert(event_type.to_owned());
            }
        }
        for (file, content) in golden("golden_records") {
            let Some(fields) = content["json"]["what"].as_object() else { continue };
            let (kind, data) = fields.iter().next().unwrap();
            let event_type = format!("kasbah.observed.{kind}");
            if assert_valid(&schemas, &event_type, data, &file) {
                seen.insert(event_type);
            }
        }
        let missing: Vec<_> =
            exported_types().into_iter().filter(|(name, _)| !seen.contains(*name)).collect();
        assert!(missing.is_empty(), "no golden event of {missing:?}");
    }

    #[test]
    fn data_of_another_shape_is_none() {
        let schema = &schemas()["kasbah.observed.gap"];
        let validator = jsonschema::validator_for(schema).unwrap();
        assert!(validator.is_valid(&json!({ "dropped": 1 })));
        assert!(validator.is_valid(&json!({ "left_out": "the data is too large", "bytes": 600_000 })));
        for wrong in [json!({}), json!({ "dropped": "1" }), json!(null), json!([])] {
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
    }
}
