//! Expressions of the Common Expression Language over one object.
//!
//! The `cel` crate parses; evaluation is ours (`evaluate`), because that crate's has no limit of cost, copies what it looks at, and may
//! panic, which would end an agent. Here each step costs, text and lists that are made cost by their size, and nothing of the object is copied.
//!
//! What an expression sees: `self`, the whole object, and each top-level key by its name, as in Flux (`status.phase`). `metadata`, `spec`
//! and `status` are empty mappings where the object has none. A field that is not there is an error, as everywhere in the language:
//! `has(status.phase)` and `status.?phase.orValue('')` ask first.

mod compile;
mod evaluate;
mod functions;
mod macros;
mod operators;
mod value;

use serde_json::Value as Json;
use thiserror::Error;

use self::compile::Node;
use self::evaluate::{Fault, Run};
use self::value::Value;

/// Longest expression, in bytes.
pub const MAXIMUM_BYTES: usize = 2_000;
/// Deepest nesting of an expression.
const MAXIMUM_DEPTH: usize = 40;
/// What all expressions of one rule may cost together: about one for each step, each 64 bytes of text and each item that is looked at.
pub const BUDGET: u64 = 100_000;
/// Letters of a text that an expression gives which are kept.
const TEXT: usize = 1_000;

/// An expression that can be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    root: Node,
}

/// Why an expression cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ExpressionError {
    /// Line in the expression, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

/// Why an expression gave no answer for an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// It does not go with this object.
    #[error("column {column}: {message}")]
    Failed {
        /// Column in characters, from 1; of all lines together.
        column: u32,
        /// What is wrong.
        message: String,
    },
    /// It costs too much.
    #[error("it costs more than {BUDGET} steps")]
    Spent,
    /// It gives something else than what is asked for.
    #[error("it gives {given} where {wanted} is expected")]
    Wrong {
        /// What it gives.
        given: &'static str,
        /// What is expected.
        wanted: &'static str,
    },
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// One that is too long, too deep, not of the language, or names a function that is not there.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        compile::compile(text).map(|root| Self { root })
    }

    /// Whether it holds for an object. `budget` is what may still be spent, in steps.
    ///
    /// # Errors
    /// See [`EvaluationError`].
    pub fn holds(&self, object: &Json, budget: &mut u64) -> Result<bool, EvaluationError> {
        match self.evaluate(object, budget)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(EvaluationError::Wrong { given: other.type_name(), wanted: "true or false" }),
        }
    }

    /// The text that it gives for an object, cut after 1,000 letters. `budget` is what may still be spent, in steps.
    ///
    /// # Errors
    /// See [`EvaluationError`].
    pub fn text(&self, object: &Json, budget: &mut u64) -> Result<String, EvaluationError> {
        match self.evaluate(object, budget)? {
            Value::Text(text) => Ok(text.chars().take(TEXT).collect()),
            other => Err(EvaluationError::Wrong { given: other.type_name(), wanted: "a text" }),
        }
    }

    /// The texts that it gives for an object: one, a list of them, or none. `budget` is what may still be spent, in steps.
    ///
    /// # Errors
    /// See [`EvaluationError`].
    pub fn texts(&self, object: &Json, budget: &mut u64) -> Result<Vec<String>, EvaluationError> {
        let wrong = |value: &Value<'_>| EvaluationError::Wrong {
            given: value.type_name(),
            wanted: "a text or a list of texts",
        };
        match self.evaluate(object, budget)? {
            Value::Text(text) => Ok(vec![text.to_string()]),
            Value::Null | Value::Optional(None) => Ok(Vec::new()),
            list => {
                let length = list.length().ok_or_else(|| wrong(&list))?;
                let texts = (0..length).map(|place| match list.item(place) {
                    Some(Value::Text(text)) => Ok(text.to_string()),
                    _ => Err(wrong(&list)),
                });
                texts.collect()
            }
        }
    }

    /// The texts under names that it gives for an object, such as labels. `budget` is what may still be spent, in steps.
    ///
    /// # Errors
    /// See [`EvaluationError`].
    pub fn pairs(&self, object: &Json, budget: &mut u64) -> Result<Vec<(String, String)>, EvaluationError> {
        let value = self.evaluate(object, budget)?;
        let wrong = || EvaluationError::Wrong { given: value.type_name(), wanted: "a mapping of texts" };
        let pairs: Option<Vec<(String, String)>> = match &value {
            Value::Null | Value::Optional(None) => Some(Vec::new()),
            Value::JsonMap(map) => {
                map.iter().map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
            }
            Value::Map(entries) => entries
                .iter()
                .map(|entry| match entry {
                    (Value::Text(key), Value::Text(value)) => Some((key.to_string(), value.to_string())),
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        pairs.ok_or_else(wrong)
    }

    /// The value that it gives for an object, as JSON of about so many bytes at most. `budget` is what may still be spent, in steps.
    ///
    /// # Errors
    /// See [`EvaluationError`].
    pub fn json(&self, object: &Json, budget: &mut u64, most: usize) -> Result<Json, EvaluationError> {
        let value = self.evaluate(object, budget)?;
        let (given, wanted) = (value.type_name(), "a value for a patch, not too large,");
        value.to_json(&mut { most }).ok_or(EvaluationError::Wrong { given, wanted })
    }

    fn evaluate<'a>(&'a self, object: &'a Json, budget: &mut u64) -> Result<Value<'a>, EvaluationError> {
        let mut run = Run::new(object, *budget);
        let value = run.value(&self.root);
        *budget = run.left();
        value.map_err(|fault| match fault {
            Fault::Spent => EvaluationError::Spent,
            Fault::Failed { at, message } => {
                EvaluationError::Failed { column: at.saturating_add(1), message }
            }
        })
    }
}

#[cfg(test)]
mod tests;
