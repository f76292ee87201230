//! Actions: named patches of single objects, built in or declared in an agent's configuration.
//!
//! An action changes the object that it is offered for and nothing else: not what identifies or owns it, and no object that gives rights or
//! holds secrets. The person who uses it needs the right to patch that object, and the cluster decides.

mod built_in;
#[cfg(test)]
mod tests;

use events::configuration::{DeclaredAction, ObjectPatch};
use serde_json::{Map, Value};
use thiserror::Error;

pub use built_in::built_in;

use crate::expression::{BUDGET, EvaluationError, Expression};
use crate::health::is_known_by_metadata;

/// Most actions of one configuration.
pub const MAXIMUM_ACTIONS: usize = 100;
/// Largest patch, in bytes of JSON: as it is declared, and as it is offered.
pub const MAXIMUM_PATCH: usize = 4_096;
/// Most operations of a JSON patch.
pub const MAXIMUM_OPERATIONS: usize = 20;
/// Longest text of an action, in bytes.
pub const MAXIMUM_TEXT: usize = 500;
/// Subresources that can be patched.
pub const SUBRESOURCES: [&str; 2] = ["status", "scale"];
/// The key that stands for an expression.
const CEL: &str = "$cel";
/// What an expression finds the time in, such as `2026-01-31T12:00:00Z`.
const NOW: &str = "now";
/// The label of the agent's own objects.
const NAME_LABEL: &str = "app.kubernetes.io/name";
const AGENT: &str = "kasbah-agent";
/// Annotations and labels by which Kasbah knows whose an object is.
const OWN_PREFIX: &str = "kasbah.dev/";
/// Groups whose objects give rights, or decide about requests.
const FORBIDDEN_GROUPS: [&str; 5] = [
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "apiextensions.k8s.io",
];

/// What is wrong with an action.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ActionError {
    /// Objects of this kind are changed by no action.
    #[error(
        "actions do not change objects of this kind: Secrets, roles and what else gives rights, or of which only the metadata is read"
    )]
    Kind,
    /// It changes nothing.
    #[error("the patch is empty")]
    Empty,
    /// It is too large.
    #[error("a patch of {0} bytes; at most {MAXIMUM_PATCH} are allowed")]
    Large(usize),
    /// It has too many operations.
    #[error("{0} operations; at most {MAXIMUM_OPERATIONS} are allowed")]
    Operations(usize),
    /// It changes what no action may.
    #[error(
        "'{0}' is changed by no action: what identifies an object and whose it is stays; of metadata, labels and annotations can be changed"
    )]
    Field(String),
    /// It is no patch.
    #[error("{0}")]
    Shape(&'static str),
    /// An expression cannot be read.
    #[error("no usable expression '{text}': {why}")]
    Expression {
        /// The expression.
        text: String,
        /// Why.
        why: String,
    },
}

/// What an action comes to for one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Offer {
    /// This patch.
    Patch(ObjectPatch),
    /// Its condition does not hold.
    NotNow,
    /// It cannot be evaluated, and so is not offered.
    Failed(String),
}

/// Checks that actions may change objects of a kind.
///
/// # Errors
/// [`ActionError::Kind`].
pub fn check_kind(group: &str, kind: &str) -> Result<(), ActionError> {
    let is_forbidden = FORBIDDEN_GROUPS.contains(&group) || is_known_by_metadata(group, kind);
    if is_forbidden { Err(ActionError::Kind) } else { Ok(()) }
}

/// Checks a patch as it is declared.
///
/// # Errors
/// What is wrong with it.
pub fn check_patch(patch: &ObjectPatch) -> Result<(), ActionError> {
    check_with(patch, &|text| compile(text).map(|_| ()))
}

/// What checks the text of an expression.
type CheckExpression<'a> = &'a dyn Fn(&str) -> Result<(), ActionError>;

fn check_with(patch: &ObjectPatch, expression: CheckExpression<'_>) -> Result<(), ActionError> {
    check_size(patch)?;
    match patch {
        ObjectPatch::Merge(patch) => check_merge(patch, expression),
        ObjectPatch::Json(operations) => {
            if operations.is_empty() {
                return Err(ActionError::Empty);
            }
            if operations.len() > MAXIMUM_OPERATIONS {
                return Err(ActionError::Operations(operations.len()));
            }
            operations.iter().try_for_each(|operation| check_operation(operation, expression))
        }
    }
}

fn check_size(patch: &ObjectPatch) -> Result<(), ActionError> {
    let length = patch.document().to_string().len();
    if length > MAXIMUM_PATCH { Err(ActionError::Large(length)) } else { Ok(()) }
}

fn check_merge(patch: &Value, expression: CheckExpression<'_>) -> Result<(), ActionError> {
    let fields = patch.as_object().ok_or(ActionError::Shape("a merge patch is a mapping"))?;
    if fields.is_empty() {
        return Err(ActionError::Empty);
    }
    for (field, value) in fields {
        check_field(&[field.as_str()])?;
        if field != "metadata" {
            check_values(value, expression)?;
            continue;
        }
        let parts = value.as_object().ok_or_else(|| ActionError::Field("metadata".to_owned()))?;
        for (part, value) in parts {
            let entries = value.as_object().ok_or_else(|| ActionError::Field(format!("metadata.{part}")))?;
            for (key, value) in entries {
                check_field(&["metadata", part.as_str(), key.as_str()])?;
                check_values(value, expression)?;
            }
        }
    }
    Ok(())
}

fn check_operation(operation: &Value, expression: CheckExpression<'_>) -> Result<(), ActionError> {
    let shape = ActionError::Shape(
        "an operation is {op: add, remove, replace or test, path: /a/b, value: …}, without value where it removes",
    );
    let Some(parts) = operation.as_object() else { return Err(shape) };
    let text = |key: &str| parts.get(key).and_then(Value::as_str);
    let (Some(op), Some(path)) = (text("op"), text("path")) else { return Err(shape) };
    let needs_value = matches!(op, "add" | "replace" | "test");
    let keys = if needs_value { 3 } else { 2 };
    let is_whole = parts.len() == keys && (op == "remove" || needs_value && parts.contains_key("value"));
    let Some(pointer) = path.strip_prefix('/').filter(|_| is_whole) else { return Err(shape) };
    // `~1` and `~0` stand for `/` and `~` (RFC 6901).
    let fields: Vec<String> =
        pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    // A test changes nothing, so it may read any field.
    if op != "test" {
        check_field(&fields)?;
        let is_whole_metadata = matches!(fields.as_slice(), ["metadata"] | ["metadata", _]);
        if is_whole_metadata {
            return Err(ActionError::Field(fields.join(".")));
        }
    }
    parts.get("value").map_or(Ok(()), |value| check_values(value, expression))
}

/// Whether an action may change a field, by its path.
fn check_field(path: &[&str]) -> Result<(), ActionError> {
    let is_allowed = match path {
        ["apiVersion" | "kind" | "", ..] => false,
        [field, ..] if field.starts_with('$') => false,
        ["metadata", "labels" | "annotations", key, ..] => {
            !key.starts_with(OWN_PREFIX) && !key.starts_with('$')
        }
        ["metadata", "labels" | "annotations"] | ["metadata"] => true,
        ["metadata", ..] | [] => false,
        _ => true,
    };
    if is_allowed { Ok(()) } else { Err(ActionError::Field(path.join("."))) }
}

/// The expression that a value stands for.
fn expression_in(value: &Value) -> Result<Option<&str>, ActionError> {
    let Some(fields) = value.as_object() else { return Ok(None) };
    if !fields.keys().any(|key| key.starts_with('$')) {
        return Ok(None);
    }
    let text = fields.get(CEL).and_then(Value::as_str).filter(|_| fields.len() == 1);
    text.map(Some).ok_or(ActionError::Shape("a key with '$' is {$cel: EXPRESSION}, and stands alone"))
}

fn check_values(value: &Value, expression: CheckExpression<'_>) -> Result<(), ActionError> {
    if let Some(text) = expression_in(value)? {
        return expression(text);
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check_values(item, expression)),
        Value::Object(fields) => fields.values().try_for_each(|value| check_values(value, expression)),
        _ => Ok(()),
    }
}

fn compile(text: &str) -> Result<Expression, ActionError> {
    Expression::compile(text)
        .map_err(|why| ActionError::Expression { text: text.to_owned(), why: why.to_string() })
}

/// The actions for objects of a kind, with whether they are declared: a declared one replaces the built-in one of its name.
pub fn of_kind<'a>(
    declared: &'a [DeclaredAction],
    (group, kind): (&'a str, &'a str),
) -> impl Iterator<Item = (&'a DeclaredAction, bool)> {
    let own =
        move || declared.iter().filter(move |one| (one.group.as_str(), one.kind.as_str()) == (group, kind));
    let built_in = built_in(group, kind).filter(move |known| own().all(|one| one.name != known.name));
    built_in.map(|action| (action, false)).chain(own().map(|action| (action, true)))
}

/// Whether an object is one of the agent's own, for which no action is offered.
#[must_use]
pub fn is_of_agent(object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.and_then(|labels| labels.get(NAME_LABEL)?.as_str()) == Some(AGENT)
}

/// An object as the expressions of all its actions see it.
#[derive(Debug, Clone)]
pub struct Seen(Value);

impl Seen {
    /// An object at a time, which expressions find in `now`.
    #[must_use]
    pub fn at(mut object: Value, now: &str) -> Self {
        if let Some(fields) = object.as_object_mut() {
            fields.insert(NOW.to_owned(), Value::from(now));
        }
        Self(object)
    }
}

/// What an action comes to for an object.
#[must_use]
pub fn offer(action: &DeclaredAction, Seen(object): &Seen) -> Offer {
    if check_kind(&action.group, &action.kind).is_err() || is_of_agent(object) {
        return Offer::NotNow;
    }
    let mut budget = BUDGET;
    if let Some(when) = &action.when {
        match compile(when).map(|when| when.holds(object, &mut budget)) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Offer::NotNow,
            Ok(Err(why)) => return Offer::Failed(format!("'when' cannot be evaluated: {why}")),
            Err(why) => return Offer::Failed(why.to_string()),
        }
    }
    // An index may know less of the rules than the server that accepted the configuration. Expressions are compiled when they are evaluated.
    let checked = check_with(&action.patch, &|_| Ok(()));
    let filled = checked.and_then(|()| fill_patch(&action.patch, object, &mut budget));
    filled.map_or_else(|why| Offer::Failed(why.to_string()), Offer::Patch)
}

fn fill_patch(patch: &ObjectPatch, object: &Value, budget: &mut u64) -> Result<ObjectPatch, ActionError> {
    let mut fill = |value: &Value| filled(value, object, budget);
    let patch = match patch {
        ObjectPatch::Merge(patch) => ObjectPatch::Merge(fill(patch)?),
        ObjectPatch::Json(operations) => {
            ObjectPatch::Json(operations.iter().map(fill).collect::<Result<_, _>>()?)
        }
    };
    check_size(&patch)?;
    Ok(patch)
}

fn filled(value: &Value, object: &Value, budget: &mut u64) -> Result<Value, ActionError> {
    if let Some(text) = expression_in(value)? {
        let failed =
            |why: EvaluationError| ActionError::Expression { text: text.to_owned(), why: why.to_string() };
        return compile(text)?.json(object, budget, MAXIMUM_PATCH).map_err(failed);
    }
    Ok(match value {
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| filled(item, object, budget)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| Ok((key.clone(), filled(value, object, budget)?)));
            Value::Object(fields.collect::<Result<Map<_, _>, ActionError>>()?)
        }
        other => other.clone(),
    })
}
