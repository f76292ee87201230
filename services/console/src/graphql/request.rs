//! A GraphQL request as it comes: in a body, in a query, or in a message of a WebSocket.

use async_graphql::{ServerError, Variables};
use events::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::limits;
use crate::input::pairs;

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GraphqlRequest {
    /// The document.
    pub(super) query: String,
    /// Which of its operations.
    #[serde(default)]
    operation_name: Option<String>,
    /// Values of its variables.
    #[serde(default)]
    variables: Option<Map<String, Value>>,
    /// What clients add; nothing of it is known here.
    #[serde(default)]
    extensions: Option<Map<String, Value>>,
}

impl GraphqlRequest {
    /// That of a body.
    ///
    /// # Errors
    /// What is wrong, with its field.
    pub(super) fn of_body(body: &[u8]) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Refusal::invalid("body", format!("is not JSON: {error}")))?;
        if value.is_array() {
            return Err(Refusal::invalid("body", "must be one request: several at once are not supported"));
        }
        Self::of_value(value)
    }

    /// That of a JSON value.
    ///
    /// # Errors
    /// What is wrong, with its field.
    pub(super) fn of_value(value: Value) -> Result<Self, Refusal> {
        let has_query = value.get("query").is_some_and(Value::is_string);
        let is_persisted = value.pointer("/extensions/persistedQuery").is_some();
        if !has_query && is_persisted {
            return Err(Refusal::invalid("query", "is missing: persisted queries are not supported"));
        }
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." || path == "?" { "query".to_owned() } else { path };
            Refusal::invalid(&field, error.inner().to_string())
        })
    }

    /// That of the parameters of an address.
    ///
    /// # Errors
    /// What is wrong, with its field.
    pub(super) fn of_query(query: &str) -> Result<Self, Refusal> {
        let mut fields = Map::new();
        for (name, text) in pairs(query)? {
            let value = match name.as_str() {
                "variables" | "extensions" => serde_json::from_str(&text)
                    .map_err(|error| Refusal::invalid(&name, format!("is not JSON: {error}")))?,
                _ => Value::String(text),
            };
            if fields.insert(name.clone(), value).is_some() {
                return Err(Refusal::invalid(&name, "is given twice"));
            }
        }
        Self::of_value(Value::Object(fields))
    }

    /// As it is executed, if it is within the limits that its text shows.
    ///
    /// # Errors
    /// What is wrong with its text.
    pub(super) fn prepared(self) -> Result<async_graphql::Request, Vec<ServerError>> {
        let document = limits::parse(&self.query)?;
        let variables = Variables::from_json(Value::Object(self.variables.unwrap_or_default()));
        let mut request = async_graphql::Request::new(self.query).variables(variables);
        if let Some(name) = self.operation_name.filter(|name| !name.is_empty()) {
            request = request.operation_name(name);
        }
        request.set_parsed_query(document);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_names_its_field() {
        let field = |body: &str| GraphqlRequest::of_body(body.as_bytes()).unwrap_err().field.unwrap();
        assert_eq!(field("{"), "body");
        assert_eq!(field("[]"), "body");
        assert_eq!(field("{}"), "query");
        assert_eq!(field(r#"{"query": 7}"#), "query");
        assert_eq!(field(r#"{"query": "{ a }", "variables": 7}"#), "variables");
        assert_eq!(field(r#"{"extensions": {"persistedQuery": {"version": 1}}}"#), "query");
        let queried = GraphqlRequest::of_query("query=%7B%20a%20%7D&variables=%7B%22b%22%3A1%7D").unwrap();
        let body = br#"{"query": "{ a }", "variables": {"b": 1}, "operationName": null}"#;
        assert_eq!(queried, GraphqlRequest::of_body(body).unwrap());
        assert_eq!(GraphqlRequest::of_query("query=a&variables=b").unwrap_err().field.unwrap(), "variables");
    }
}
