//! What a request says: path, query and body in one JSON object, which becomes a type.

use events::Refusal;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The object that a request makes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    fields: Map<String, Value>,
}

impl Input {
    /// Puts body, query and path together. A field of the path may be said again in the body if it says the same.
    ///
    /// # Errors
    /// When the body is no JSON object, or says something else than the path.
    pub fn new(body: &[u8], query: &str, path: &[(String, String)]) -> Result<Self, Refusal> {
        let mut fields = if body.trim_ascii().is_empty() { Map::new() } else { object(body)? };
        for (name, text) in pairs(query)? {
            if fields.insert(name.clone(), Value::String(text)).is_some() {
                return Err(Refusal::invalid(&name, "is given twice"));
            }
        }
        for (name, text) in path {
            let said = fields.insert(name.clone(), Value::String(text.clone()));
            if said.is_some_and(|said| said != Value::String(text.clone())) {
                return Err(Refusal::invalid(name, "differs from the path"));
            }
        }
        Ok(Self { fields })
    }

    /// A text field.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// Replaces a field by text.
    pub fn set(&mut self, name: &str, value: String) {
        self.set_value(name, Value::String(value));
    }

    /// Replaces a field.
    pub fn set_value(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    /// The input as a type. Fields that the type does not have are refused: a typing error must not be silently ignored.
    ///
    /// # Errors
    /// What is wrong, with the field.
    pub fn parse<T: DeserializeOwned + JsonSchema>(self) -> Result<T, Refusal> {
        let known = properties::<T>();
        if let Some(unknown) = self.fields.keys().find(|name| !known.contains(name)) {
            let message = if known.is_empty() {
                "is not known; there are no fields here".to_owned()
            } else {
                format!("is not known; known are {}", known.join(", "))
            };
            return Err(Refusal::invalid(unknown, message));
        }
        serde_path_to_error::deserialize(Value::Object(self.fields)).map_err(|error| {
            let path = error.path().to_string();
            let message = error.inner().to_string();
            let field = if path == "." { missing(&message).unwrap_or(path) } else { path };
            Refusal::invalid(&field, message)
        })
    }
}

/// The names of a type's fields.
fn properties<T: JsonSchema>() -> Vec<String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

/// The name in serde's "missing field `name`".
fn missing(message: &str) -> Option<String> {
    message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()).map(str::to_owned)
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Refusal::invalid("body", "must be a JSON object")),
        Err(error) => Err(Refusal::invalid("body", format!("is not JSON: {error}"))),
    }
}

/// The parameters of a query.
///
/// # Errors
/// When an escape is broken.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((unescape(name)?, unescape(value)?))
        })
        .collect()
}

fn unescape(text: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::invalid("query", "has a broken escape");
    let mut bytes = text.bytes();
    let mut clear = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        clear.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next().ok_or_else(wrong)?, bytes.next().ok_or_else(wrong)?];
                let mut decoded = [0_u8];
                hex::decode_to_slice(digits, &mut decoded).map_err(|_| wrong())?;
                u8::from_be_bytes(decoded)
            }
            other => other,
        });
    }
    String::from_utf8(clear).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use events::requests::authz::{CreateProject, ListTokens, SetProject};

    use super::*;

    fn field(refusal: &Refusal) -> &str {
        refusal.field.as_deref().unwrap_or_default()
    }

    #[test]
    fn body_and_path_make_one_request() {
        let path = [("project".to_owned(), "shop/front".to_owned())];
        let input = Input::new(br#"{"repository":"https://git.example/a.git"}"#, "", &path).unwrap();
        let set: SetProject = input.parse().unwrap();
        assert_eq!(
            (set.project.as_str(), set.repository.as_deref()),
            ("shop/front", Some("https://git.example/a.git"))
        );
        let other = Input::new(br#"{"project":"shop/back"}"#, "", &path).unwrap_err();
        assert_eq!(field(&other), "project");
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let parse = |body: &str| {
            Input::new(body.as_bytes(), "", &[]).and_then(Input::parse::<CreateProject>).unwrap_err()
        };
        assert_eq!(field(&parse(r#"{"path":"a/b"}"#)), "repository");
        assert_eq!(
            field(&parse(r#"{"path":"a/b","repository":"r","external_id":"seventeen"}"#)),
            "external_id"
        );
        assert_eq!(
            field(&parse(r#"{"path":"a/b","repository":"r","defualt_branch":"main"}"#)),
            "defualt_branch"
        );
        assert_eq!(field(&parse("[1]")), "body");
        assert_eq!(field(&parse("{")), "body");
    }

    #[test]
    fn a_query_is_unescaped_and_checked() {
        let tokens: ListTokens =
            Input::new(b"", "agent=shop%2Ffront%3Acluster", &[]).unwrap().parse().unwrap();
        assert_eq!(tokens.agent.as_deref(), Some("shop/front:cluster"));
        assert_eq!(
            field(&Input::new(b"", "agnet=x", &[]).unwrap().parse::<ListTokens>().unwrap_err()),
            "agnet"
        );
        assert!(Input::new(b"", "agent=%zz", &[]).is_err());
        assert!(Input::new(b"", "agent=a&agent=b", &[]).is_err());
    }
}
