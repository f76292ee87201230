//! YAML and JSON with positions, read the way `kubectl apply -f` reads them.
//!
//! What is accepted, and what each scalar means, follows the reader that kubectl uses rather than the YAML 1.2
//! core schema, so that a file means the same here and there: plain `yes`, `no`, `on`, `off`, `y` and `n` are
//! booleans, `0755` and `0o755` are octal, `1_000` is an integer, dates stay text, a later `<<` overrides an
//! earlier key, a text that starts with `{` is read as JSON first, and a line that starts with `---` ends a
//! document. Stricter than kubectl, on purpose: content after a `...` line is refused (kubectl drops it without
//! a word), so is an invisible line separator outside of quotes, and a key that occurs twice is listed in
//! [`Document::duplicates`] (kubectl lets the last one win without a word), and text without quotes that ends in `---` in
//! [`Document::false_separators`] (kubectl takes it for text, and the document behind it for a part of this one). Stricter because the parser is one for
//! YAML 1.2: lines that continue quoted text or a bracketed list further left than the keys around them are refused.
//! More lenient for the same reason: `\/` in double quotes, tabs after `-` and on otherwise empty lines are read.

mod build;
mod json;
mod scalar;
mod split;

use serde_json::{Map, Number};
use thiserror::Error;

pub use self::scalar::int_as_number;

/// What a text may cost before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest text, in bytes.
    pub bytes: usize,
    /// Deepest nesting of mappings and sequences. Keep it below 128, the depth that `serde_json` reads back.
    pub depth: usize,
    /// Most nodes in one text, counting what every alias repeats.
    pub nodes_after_aliases: usize,
}

impl Default for Limits {
    /// 16 MiB, 100 levels, two million nodes.
    fn default() -> Self {
        Self { bytes: 16 * 1024 * 1024, depth: 100, nodes_after_aliases: 2_000_000 }
    }
}

/// Why a text could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    /// Line in the whole text, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl YamlError {
    pub(crate) fn new(line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into() }
    }
}

/// A value and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Line in the whole text, from 1. For what an alias repeats: where the anchor wrote it.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value as JSON will know it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing at all.
    Null,
    /// A boolean, in any of YAML 1.1's words.
    Bool(bool),
    /// An integer that fits `i64`.
    Int(i64),
    /// An integer above `i64::MAX` that fits `u64`.
    UInt(u64),
    /// A finite number.
    Float(f64),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the order of the text. A key is always a [`Value::String`]: numbers and booleans are
    /// converted as kubectl does. No key occurs twice.
    Mapping(Vec<(Node, Node)>),
}

/// A key that was written twice in one mapping: the later value counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// Where the mapping stands, such as `spec.template.spec`; empty at the top.
    pub path: String,
    /// The key.
    pub key: String,
    /// Line of the later occurrence, which counts.
    pub line: u32,
    /// Column of the later occurrence.
    pub column: u32,
    /// Line of the earlier occurrence, which is dropped.
    pub first_line: u32,
}

/// One document of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its content, never [`Value::Null`].
    pub root: Node,
    /// Keys that occur twice, in the order of the text.
    pub duplicates: Vec<Duplicate>,
    /// Line and column of text without quotes that ends as a document separator would look.
    pub false_separators: Vec<(u32, u32)>,
}

/// Reads all documents of a YAML or JSON text. Documents without content (nothing, comments, `null`) are left out.
///
/// # Errors
/// A text that is over a limit or that is not YAML; the position is that of the whole text.
pub fn load_documents(text: &str, limits: &Limits) -> Result<Vec<Document>, YamlError> {
    if text.len() > limits.bytes {
        return Err(YamlError::new(
            1,
            1,
            format!("the file has {} bytes, more than the maximum of {}", text.len(), limits.bytes),
        ));
    }
    let mut nodes_left = limits.nodes_after_aliases;
    if text.trim_start().starts_with('{') {
        return load_json(text, limits, &mut nodes_left);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    load_yaml(text, 0, limits, &mut nodes_left)
}

/// Reads one JSON object after the other. A text of one object or none may still turn out to be YAML.
fn load_json(text: &str, limits: &Limits, nodes_left: &mut usize) -> Result<Vec<Document>, YamlError> {
    let mut documents = Vec::new();
    let mut reader = json::Reader::new(text, limits.depth);
    loop {
        reader.skip_whitespace();
        if reader.at_end() {
            return Ok(documents);
        }
        let (offset, lines_before) = reader.mark();
        match reader.document(nodes_left) {
            Ok(document) => documents.extend(with_content(document)),
            Err(error) if documents.len() > 1 => return Err(error),
            Err(error) => {
                let rest = text.get(offset..).unwrap_or_default();
                let more = load_yaml(rest, lines_before, limits, nodes_left).map_err(|other| {
                    // A separator after the first object means YAML; without one it was meant as JSON.
                    if rest.starts_with("---") { other } else { error }
                })?;
                documents.extend(more);
                return Ok(documents);
            }
        }
    }
}

fn load_yaml(
    text: &str,
    lines_before: u32,
    limits: &Limits,
    nodes_left: &mut usize,
) -> Result<Vec<Document>, YamlError> {
    let mut documents = Vec::new();
    for chunk in split::documents(text, lines_before)? {
        let document = build::document(&chunk, limits.depth, nodes_left)?;
        documents.extend(document.and_then(with_content));
    }
    Ok(documents)
}

fn with_content(document: Document) -> Option<Document> {
    (document.root.value != Value::Null).then_some(document)
}

impl Node {
    /// The value as JSON. Integral floats become integers, as they do on the way through kubectl.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => serde_json::Value::Bool(*value),
            Value::Int(value) => serde_json::Value::Number((*value).into()),
            Value::UInt(value) => serde_json::Value::Number((*value).into()),
            Value::Float(value) => int_as_number(*value)
                .or_else(|| Number::from_f64(*value))
                .map_or(serde_json::Value::Null, serde_json::Value::Number),
            Value::String(value) => serde_json::Value::String(value.clone()),
            Value::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Value::Mapping(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    map.insert(key.as_str().unwrap_or_default().to_owned(), value.to_json());
                }
                serde_json::Value::Object(map)
            }
        }
    }

    /// The value of a key of this mapping.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|(_, value)| value)
    }

    /// A key of this mapping with its value, for the key's position.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<(&Self, &Self)> {
        let entries = self.as_mapping()?;
        entries.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(name, value)| (name, value))
    }

    /// The value under a path of keys and, for sequences, indices: `["spec", "containers", "0", "image"]`.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match &node.value {
            Value::Sequence(items) => items.get(step.parse::<usize>().ok()?),
            _ => node.get(step),
        })
    }

    /// The text, if it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The integer, if it is one that fits `i64`.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self.value {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The keys and values, if it is a mapping.
    #[must_use]
    pub fn as_mapping(&self) -> Option<&[(Self, Self)]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items, if it is a sequence.
    #[must_use]
    pub fn as_sequence(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// Whether there is no value.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// What the value is, in a word for messages: "text", "a list".
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Float(_) => "a number",
            Value::String(_) => "text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }
}

#[cfg(test)]
mod tests;
