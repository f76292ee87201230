//! The OpenAPI 3.1 document, made from the routes and from the types that cross the bus.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::problem;
use crate::route::Route;
use crate::routes;
use events::{Refusal, RefusalKind};

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let refusal = reference::<Refusal>(&mut generator);
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let operation = operation(&route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_ascii_lowercase(), operation);
        }
    }
    paths.insert("/hooks/v1/{project}".to_owned(), webhook());
    let mut schemas: Vec<(String, Value)> = generator.take_definitions(true).into_iter().collect();
    schemas.sort_by(|one, other| one.0.cmp(&other.0));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Kasbah",
            "version": "v1",
            "description": "Everything is for the organization of the caller. Data of other organizations is not found. \
                Errors are a Refusal; its kind decides the status. Lists come in pages: `next` of one is the `cursor` of the following.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer", "description": "A personal token." } },
            "responses": refusals(&refusal),
            "schemas": Map::from_iter(schemas),
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let fields = fields(route, generator);
    let mut parameters: Vec<Value> = route
        .parameters()
        .map(|name| {
            let schema =
                fields.get(name).map_or_else(|| json!({ "type": "string" }), |field| field.schema.clone());
            parameter(name, "path", true, &text_of(&schema))
        })
        .collect();
    let rest: Vec<_> =
        fields.iter().filter(|(name, _)| !route.parameters().any(|path| path == *name)).collect();
    let mut body = None;
    if route.has_query() {
        parameters
            .extend(rest.iter().map(|(name, field)| parameter(name, "query", field.required, &field.schema)));
    } else if !rest.is_empty() {
        let required: Vec<&str> =
            rest.iter().filter(|(_, field)| field.required).map(|(name, _)| name.as_str()).collect();
        let properties: Map<String, Value> =
            rest.iter().map(|(name, field)| ((*name).clone(), field.schema.clone())).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        body = Some(json!({
            "required": !required.is_empty(),
            "content": { "application/json": { "schema": schema } },
        }));
    }
    let reply = (route.reply)(generator);
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route, &reply),
    });
    if let (true, Some(operation)) = (route.is_open, operation.as_object_mut()) {
        operation.insert("security".to_owned(), json!([]));
    }
    if let (Some(body), Some(operation)) = (body, operation.as_object_mut()) {
        operation.insert("requestBody".to_owned(), body);
    }
    operation
}

/// One field of a request.
struct Field {
    schema: Value,
    required: bool,
}

/// The fields of a request; their own types are added to the document's schemas.
fn fields(route: &Route, generator: &mut SchemaGenerator) -> std::collections::BTreeMap<String, Field> {
    let schema = (route.request)(generator);
    // The request's own schema is taken apart into parameters and body, and so does not stay among the schemas.
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let whole = match name {
        Some(name) => generator.definitions_mut().remove(name).unwrap_or_default(),
        None => schema.to_value(),
    };
    let required: Vec<&str> = whole
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = whole.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            (name.clone(), Field { schema: schema.clone(), required: required.contains(&name.as_str()) })
        })
        .collect()
}

/// A field in a path is text, whatever else the type may be.
fn text_of(schema: &Value) -> Value {
    let mut text = schema.clone();
    if let Some(text) = text.as_object_mut()
        && !text.contains_key("$ref")
    {
        text.insert("type".to_owned(), json!("string"));
    }
    text
}

fn parameter(name: &str, place: &str, required: bool, schema: &Value) -> Value {
    let mut parameter = json!({ "name": name, "in": place, "required": required, "schema": schema });
    let is_list = schema.get("type").is_some_and(|kind| kind == "array");
    if let (true, Some(parameter)) = (is_list, parameter.as_object_mut()) {
        // A field is said once: the items of a list have commas between them.
        parameter.insert("explode".to_owned(), json!(false));
    }
    parameter
}

/// Kinds of refusals with their name among the document's responses.
const REFUSALS: [(RefusalKind, &str, &str); 6] = [
    (RefusalKind::Invalid, "Invalid", "A field is invalid; the message names it."),
    (RefusalKind::Unauthenticated, "Unauthenticated", "No valid token."),
    (RefusalKind::Denied, "Denied", "Not allowed."),
    (RefusalKind::NotFound, "NotFound", "Not found, or not visible to you."),
    (RefusalKind::Conflict, "Conflict", "The state does not allow it, or the name is taken."),
    (RefusalKind::Unavailable, "Unavailable", "Not now; retry after the seconds in Retry-After."),
];

fn responses(route: &Route, reply: &Schema) -> Value {
    let mut responses = Map::new();
    let content = json!({ route.media: { "schema": reply } });
    responses.insert(route.status.as_str().to_owned(), json!({ "description": "Done.", "content": content }));
    for (kind, name, _) in REFUSALS {
        let reference = json!({ "$ref": format!("#/components/responses/{name}") });
        responses.insert(problem::status(kind).as_str().to_owned(), reference);
    }
    Value::Object(responses)
}

fn refusals(refusal: &Value) -> Map<String, Value> {
    REFUSALS.iter().map(|(_, name, words)| ((*name).to_owned(), refused(words, refusal))).collect()
}

fn refused(words: &str, refusal: &Value) -> Value {
    json!({ "description": words, "content": { "application/json": { "schema": refusal } } })
}

fn webhook() -> Value {
    let header = |name: &str| {
        let schema = json!({ "type": "string" });
        json!({ "name": name, "in": "header", "required": false, "schema": schema })
    };
    let mut parameters =
        vec![parameter("project", "path", true, &json!({ "type": "string", "format": "uuid" }))];
    parameters.extend(crate::webhook::HEADERS.iter().map(|name| header(name)));
    json!({ "post": {
        "operationId": "receiveWebhook",
        "summary": "Announces a push, or the end of a job that deploys; one of the headers must be right",
        "security": [],
        "parameters": parameters,
        "requestBody": { "content": { "application/json": { "schema": { "type": "object", "properties": {
            "ref": { "type": "string", "description": "The ref that moved, such as refs/heads/main." },
            "deployment": { "type": "string", "format": "uuid", "description": "The deployment that ended." },
            "job_url": { "type": "string", "description": "Instead of it: the page of the job whose deployments ended." },
            "status": { "type": "string", "enum": ["success", "failed"], "description": "How it ended." },
            "reason": { "type": "string", "description": "Why it failed." },
        } } } } },
        "responses": {
            "202": { "description": "Announced.", "content": { "application/json": { "schema": { "type": "object",
                "properties": {
                    "correlation_id": { "type": "string", "format": "uuid" },
                    "ended": { "type": "array", "items": { "type": "string", "format": "uuid" } },
                } } } } },
            "400": { "$ref": "#/components/responses/Invalid" },
            "401": { "$ref": "#/components/responses/Unauthenticated" },
            "503": { "$ref": "#/components/responses/Unavailable" },
        },
    } })
}

fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The document in `docs/reference` is this one.
    pub(crate) fn assert_checked_in(name: &str, document: &Value) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let path = folder.join(format!("{name}.json"));
        let fresh = serde_json::to_string_pretty(document).unwrap() + "\n";
        if std::env::var_os("KASBAH_WRITE_REFERENCE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &fresh).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == fresh,
            "docs/reference/{name}.json is stale: run KASBAH_WRITE_REFERENCE=1 cargo test -p console {name}"
        );
    }

    /// Every reference in a document leads somewhere.
    pub(crate) fn assert_references(document: &Value) {
        for part in document.to_string().split("\"$ref\":\"").skip(1) {
            let target = part.split('"').next().unwrap();
            let place = format!("/{}", target.trim_start_matches("#/"));
            assert!(document.pointer(&place).is_some(), "{target}");
        }
    }

    #[test]
    fn the_checked_in_document_is_this_one() {
        assert_checked_in("openapi", &document());
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
        assert_references(&document());
        let operations: BTreeSet<_> = routes::all().iter().map(|route| route.operation).collect();
        assert_eq!(operations.len(), routes::all().len());
    }

    #[test]
    fn every_path_parameter_is_a_field_of_its_request() {
        for route in routes::all() {
            let fields = fields(&route, &mut SchemaSettings::draft2020_12().into_generator());
            for parameter in route.parameters() {
                assert!(fields.contains_key(parameter), "{} has no field {parameter}", route.operation);
            }
        }
    }
}
