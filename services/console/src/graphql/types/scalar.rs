//! Times, moments, positions.

use async_graphql::{InputType, InputValueError, InputValueResult, Scalar, ScalarType, Value};
use events::Timestamp;

/// An instant, such as `2026-01-31T12:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Timestamp);

#[Scalar]
impl ScalarType for Time {
    fn parse(value: Value) -> InputValueResult<Self> {
        match &value {
            Value::String(text) => Timestamp::parse(text).map(Self).map_err(InputValueError::custom),
            _ => Err(InputValueError::expected_type(value)),
        }
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

/// A moment of the past: a time such as `2026-01-31T12:00:00Z`, how long ago such as `-15m`, or a `Position`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment(pub String);

#[Scalar]
impl ScalarType for Moment {
    fn parse(value: Value) -> InputValueResult<Self> {
        text(value).map(Self)
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.clone())
    }
}

/// A position of the log, as an answer, a command or an event gave it out. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(pub String);

#[Scalar]
impl ScalarType for Position {
    fn parse(value: Value) -> InputValueResult<Self> {
        text(value).map(Self)
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.clone())
    }
}

fn text<T: InputType>(value: Value) -> Result<String, InputValueError<T>> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(InputValueError::custom(format!("expected a text, found {other}"))),
    }
}
