//! The AsyncAPI 3 document of exported events, made from their types: where they come, and a JSON Schema of each.

use events::CloudEvent;
use events::export::exported_types;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::events_docs::{self, ABOUT_GAPS, NO_DATA};

const MEDIA: &str = "application/cloudevents+json";

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let envelope = generator.subschema_for::<CloudEvent>().to_value();
    let data = events_docs::data(&mut generator);
    let messages: Map<String, Value> = exported_types()
        .into_iter()
        .chain([ABOUT_GAPS])
        .map(|(name, about)| (name.to_owned(), message(name, about, &envelope, data.get(name))))
        .collect();
    let mut schemas: Vec<(String, Value)> = generator.take_definitions(true).into_iter().collect();
    schemas.push((NO_DATA.to_owned(), events_docs::no_data()));
    schemas.sort_by(|one, other| one.0.cmp(&other.0));
    let of_channel: Map<String, Value> = messages
        .keys()
        .map(|name| (name.clone(), json!({ "$ref": format!("#/components/messages/{name}") })))
        .collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Kasbah events",
            "version": "v1",
            "description": "What is decided and observed in an organization, as CloudEvents 1.0. Each event comes at least once, with the same id; \
                the events of one subject come in their order. exportsequence numbers the events of an organization without gaps.",
            "license": { "name": "Apache-2.0" },
        },
        "defaultContentType": MEDIA,
        "channels": {
            "server-sent-events": {
                "address": "/api/events",
                "description": "Server-sent events of what the caller may see. Last-Event-ID goes on exactly behind an event.",
                "messages": of_channel,
            },
            "nats": {
                "address": "kasbah.export.{organization}.{type}",
                "description": "Subjects in the account of the organization, where the installation has NATS.",
                "parameters": {
                    "organization": { "description": "Id of the organization" },
                    "type": { "description": "Type of the event; it consists of several tokens" },
                },
                "messages": of_channel,
            },
            "webhook": {
                "address": null,
                "description": "A POST to the address of a subscription, signed as Standard Webhooks has it.",
                "messages": of_channel,
            },
        },
        "operations": {
            "followEvents": { "action": "send", "channel": { "$ref": "#/channels/server-sent-events" } },
            "exportEvents": { "action": "send", "channel": { "$ref": "#/channels/nats" } },
            "sendWebhook": { "action": "send", "channel": { "$ref": "#/channels/webhook" } },
        },
        "components": { "messages": messages, "schemas": Map::from_iter(schemas) },
    })
}

fn message(name: &str, about: &str, envelope: &Value, data: Option<&Value>) -> Value {
    let mut properties = json!({ "type": { "const": name } });
    if let (Some(data), Some(properties)) = (data, properties.as_object_mut()) {
        let no_data = json!({ "$ref": format!("#/components/schemas/{NO_DATA}") });
        properties.insert("data".to_owned(), json!({ "anyOf": [data, no_data] }));
    }
    json!({
        "name": name,
        "summary": about,
        "contentType": MEDIA,
        "payload": { "allOf": [envelope, { "type": "object", "properties": properties }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::tests::{assert_checked_in, assert_references};

    #[test]
    fn the_checked_in_document_is_this_one() {
        assert_checked_in("asyncapi", &document());
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_exported_type_has_a_message() {
        let document = document();
        assert_references(&document);
        for (name, about) in exported_types() {
            let message = &document["components"]["messages"][name];
            assert_eq!(message["summary"], about, "{name}");
            assert!(message.pointer("/payload/allOf/1/properties/data").is_some(), "{name} has a schema");
        }
    }
}
