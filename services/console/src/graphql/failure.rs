//! Refusals as GraphQL errors: the message, and in `extensions` the kind and the field, as the other routes answer them.

use async_graphql::{Error, ErrorExtensionValues, ErrorExtensions as _, Response, ServerError};
use events::{EncodeError, Refusal, RefusalKind};

const KIND: &str = "kind";

/// The name of a kind, as JSON has it.
fn name(kind: RefusalKind) -> String {
    let name = serde_json::to_value(kind).ok();
    name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("internal").to_owned()
}

/// The error of a field.
pub(super) fn error(refusal: &Refusal) -> Error {
    Error::new(refusal.message.clone()).extend_with(|_, extensions| {
        extensions.set(KIND, name(refusal.kind));
        if let Some(field) = &refusal.field {
            extensions.set("field", field.clone());
        }
    })
}

/// Whether the error of a field is of this kind.
pub(super) fn is(error: &Error, kind: RefusalKind) -> bool {
    let found = error.extensions.as_ref().and_then(|extensions| extensions.get(KIND));
    found == Some(&async_graphql::Value::from(name(kind)))
}

/// Whether it is, and is about this field of a request.
pub(super) fn is_of_field(error: &Error, kind: RefusalKind, field: &str) -> bool {
    let found = error.extensions.as_ref().and_then(|extensions| extensions.get("field"));
    is(error, kind) && found == Some(&async_graphql::Value::from(field))
}

/// A wrong argument.
pub(super) fn invalid(field: &str, message: impl Into<String>) -> Error {
    error(&Refusal::invalid(field, message))
}

/// Something that cannot happen with the types as they are.
pub(super) fn unencodable(cause: &EncodeError) -> Error {
    error(&Refusal::new(RefusalKind::Internal, cause.to_string()))
}

/// The error of a whole request.
pub(super) fn server_error(refusal: &Refusal) -> ServerError {
    let mut failed = ServerError::new(refusal.message.clone(), None);
    let mut extensions = ErrorExtensionValues::default();
    extensions.set(KIND, name(refusal.kind));
    failed.extensions = Some(extensions);
    failed
}

/// A limit is exceeded. The error names it, what it is, and what the request needs.
pub(super) fn limit(limit: &str, maximum: usize, needed: Option<usize>, advice: &str) -> ServerError {
    let needs = needed.map(|needed| format!(", and this request needs {needed}")).unwrap_or_default();
    let mut failed =
        ServerError::new(format!("limit `{limit}` exceeded: at most {maximum}{needs}; {advice}"), None);
    let mut extensions = ErrorExtensionValues::default();
    extensions.set(KIND, name(RefusalKind::Invalid));
    extensions.set("limit", limit);
    extensions.set("maximum", maximum);
    if let Some(needed) = needed {
        extensions.set("needed", needed);
    }
    failed.extensions = Some(extensions);
    failed
}

/// The same as the error of a field.
pub(super) fn limit_of_field(name: &str, maximum: usize, advice: &str) -> Error {
    let failed = limit(name, maximum, None, advice);
    Error { message: failed.message, source: None, extensions: failed.extensions }
}

/// Gives each error a kind: what the library says of a request is about the request.
pub(super) fn complete(mut response: Response) -> Response {
    for failed in &mut response.errors {
        if failed.message.starts_with("Subscriptions are not supported") {
            "a subscription needs a WebSocket, or `Accept: text/event-stream`"
                .clone_into(&mut failed.message);
        }
        let extensions = failed.extensions.get_or_insert_with(ErrorExtensionValues::default);
        if extensions.get(KIND).is_none() {
            extensions.set(KIND, name(RefusalKind::Invalid));
        }
    }
    response
}
