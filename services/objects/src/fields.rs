//! Paths to fields, and who manages which field.
//!
//! The API server keeps for each manager the set of fields that it wrote last (`metadata.managedFields`, in the
//! form `FieldsV1`). This module finds the managers of one field, so that a drift can be reported with its author
//! and a take-over with its former manager.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use thiserror::Error;

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Segment {
    /// A key of a mapping.
    Field(String),
    /// An item of a list, by fields that tell it from the others: `[name=web]`.
    Key(Vec<(String, Value)>),
    /// An item of a list, by its place: `[0]`.
    Index(usize),
}

/// A path to a field: `spec.template.spec.containers[name=web].image`. Keys that are not plain words are quoted:
/// `metadata.labels["app.kubernetes.io/name"]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FieldPath(pub Vec<Segment>);

/// A text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a field path at character {at}: {text}")]
pub struct ParsePathError {
    text: String,
    at: usize,
}

impl FieldPath {
    /// This path and one step more.
    #[must_use]
    pub fn child(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// The value at this path.
    #[must_use]
    pub fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, step)
    }
}

fn step<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match segment {
        Segment::Field(name) => value.as_object()?.get(name),
        Segment::Index(index) => value.as_array()?.get(*index),
        Segment::Key(pairs) => value
            .as_array()?
            .iter()
            .find(|item| pairs.iter().all(|(key, expected)| item.get(key) == Some(expected))),
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if is_word(name) => {
                    if place > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(name)?;
                }
                Segment::Field(name) => write!(f, "[{}]", Value::from(name.as_str()))?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(pairs) => {
                    f.write_str("[")?;
                    for (place, (key, value)) in pairs.iter().enumerate() {
                        let comma = if place > 0 { "," } else { "" };
                        match value.as_str().filter(|text| is_bare(text)) {
                            Some(text) => write!(f, "{comma}{key}={text}")?,
                            None => write!(f, "{comma}{key}={value}")?,
                        }
                    }
                    f.write_str("]")?;
                }
            }
        }
        Ok(())
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'))
}

/// Text that stands in a key without quotes: it cannot be taken for a number, a boolean or null.
fn is_bare(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
        && !matches!(text, "true" | "false" | "null")
}

impl FromStr for FieldPath {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut segments = Vec::new();
        let mut rest = text;
        let error = |rest: &str| ParsePathError { text: text.to_owned(), at: text.len() - rest.len() };
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (segment, after) = bracket(inner).ok_or_else(|| error(rest))?;
                segments.push(segment);
                rest = after;
                continue;
            }
            if !segments.is_empty() {
                rest = rest.strip_prefix('.').ok_or_else(|| error(rest))?;
            }
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (word, after) = rest.split_at_checked(end).ok_or_else(|| error(rest))?;
            if !is_word(word) {
                return Err(error(rest));
            }
            segments.push(Segment::Field(word.to_owned()));
            rest = after;
        }
        Ok(Self(segments))
    }
}

/// What stands between brackets, and the text after them.
fn bracket(text: &str) -> Option<(Segment, &str)> {
    if text.starts_with('"') {
        let (value, rest) = literal(text)?;
        return Some((Segment::Field(value.as_str()?.to_owned()), rest.strip_prefix(']')?));
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let (digits, rest) = text.split_once(']')?;
        return Some((Segment::Index(digits.parse().ok()?), rest));
    }
    let mut pairs = Vec::new();
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once('=')?;
        if !is_word(key) {
            return None;
        }
        let (value, after) = literal(after)?;
        pairs.push((key.to_owned(), value));
        if let Some(after) = after.strip_prefix(']') {
            return Some((Segment::Key(pairs), after));
        }
        rest = after.strip_prefix(',')?;
    }
}

/// A JSON scalar or bare text, and the text after it.
fn literal(text: &str) -> Option<(Value, &str)> {
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let used = values.byte_offset();
        return Some((value, text.get(used..)?));
    }
    let end = text.find([',', ']'])?;
    let (word, rest) = text.split_at_checked(end)?;
    let value = serde_json::from_str(word).unwrap_or_else(|_| Value::from(word));
    Some((value, rest))
}

/// Who wrote a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Its name, such as `kubectl-client-side-apply`.
    pub name: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The subresource that it wrote through, such as `status`; empty for the object itself.
    pub subresource: String,
    /// When it last wrote any field, RFC 3339; empty when the API server does not tell.
    pub time: String,
}

/// All managers of a field, or of anything below it, the one that wrote last first.
#[must_use]
pub fn managers_of(live: &Value, path: &FieldPath) -> Vec<Manager> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let mut managers: Vec<Manager> = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry.get("fieldsV1").is_some_and(|fields| owns(fields, Some(live), &path.0)))
        .map(manager)
        .collect();
    managers.sort_by(|left, right| right.time.cmp(&left.time));
    managers
}

/// The manager that last wrote a field, or anything below it.
#[must_use]
pub fn manager_of(live: &Value, path: &FieldPath) -> Option<Manager> {
    managers_of(live, path).into_iter().next()
}

fn manager(entry: &Value) -> Manager {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Manager {
        name: text("manager"),
        operation: text("operation"),
        subresource: text("subresource"),
        time: text("time"),
    }
}

/// Whether a set of fields holds the path. An empty set stands for the whole value there.
fn owns(fields: &Value, live: Option<&Value>, path: &[Segment]) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    let Some((segment, rest)) = path.split_first() else { return true };
    if fields.is_empty() {
        return true;
    }
    let here = live.and_then(|live| step(live, segment));
    match segment {
        Segment::Field(name) => fields.get(&format!("f:{name}")).is_some_and(|below| owns(below, here, rest)),
        Segment::Key(_) | Segment::Index(_) => {
            item_owner(fields, segment, here).is_some_and(|below| owns(below, here, rest))
        }
    }
}

/// The fields of the list item that a segment names: `k:` by key fields, `v:` by value, `i:` by place.
fn item_owner<'a>(
    fields: &'a Map<String, Value>,
    segment: &Segment,
    item: Option<&Value>,
) -> Option<&'a Value> {
    fields.iter().find_map(|(name, below)| {
        let (form, text) = name.split_at_checked(2)?;
        let told: Value = serde_json::from_str(text).ok()?;
        let matches = match form {
            "k:" => told.as_object()?.iter().all(|(key, expected)| match (item, segment) {
                (Some(item), _) => item.get(key) == Some(expected),
                (None, Segment::Key(pairs)) => {
                    pairs.iter().any(|(name, value)| name == key && value == expected)
                }
                (None, _) => false,
            }),
            "v:" => item == Some(&told),
            "i:" => matches!(segment, Segment::Index(index) if told.as_u64() == u64::try_from(*index).ok()),
            _ => false,
        };
        matches.then_some(below)
    })
}

#[cfg(test)]
mod tests;
