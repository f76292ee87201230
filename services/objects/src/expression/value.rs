//! Values while an expression is evaluated: what the object holds is borrowed from it.

use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::evaluate::{Fault, Meter};

/// A value. Copies are cheap: what is large is shared or borrowed.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    List(Rc<[Value<'a>]>),
    Map(Rc<[(Value<'a>, Value<'a>)]>),
    /// A list of the object.
    JsonList(&'a [Json]),
    /// A mapping of the object.
    JsonMap(&'a serde_json::Map<String, Json>),
    Optional(Option<Rc<Value<'a>>>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
}

/// A text, of the object or made.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// A text, where there is room for it.
fn taken<'t>(text: &'t str, left: &mut usize) -> Option<&'t str> {
    *left = left.checked_sub(text.len())?;
    Some(text)
}

impl<'a> Value<'a> {
    pub(super) fn of(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Self::Int(value),
                (None, Some(value)) => Self::Uint(value),
                (None, None) => number.as_f64().map_or(Self::Null, Self::Double),
            },
            Json::String(text) => Self::borrowed(text),
            Json::Array(items) => Self::JsonList(items),
            Json::Object(map) => Self::JsonMap(map),
        }
    }

    pub(super) const fn borrowed(text: &'a str) -> Self {
        Self::Text(Text::Borrowed(text))
    }

    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Shared(text.into()))
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(items.into())
    }

    pub(super) const fn none() -> Self {
        Self::Optional(None)
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// As JSON, with times as text. `None` for durations, for an optional value that is none, and where a key is no text; also where the
    /// result is larger than `left`, counted in bytes of text and in values: parts may be shared, so a short expression can give much.
    pub(super) fn to_json(&self, left: &mut usize) -> Option<Json> {
        *left = left.checked_sub(1)?;
        Some(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::from(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => Json::Number(serde_json::Number::from_f64(*value)?),
            Self::Text(text) => Json::from(taken(text, left)?),
            Self::List(items) => {
                Json::Array(items.iter().map(|item| item.to_json(left)).collect::<Option<_>>()?)
            }
            Self::JsonList(items) => {
                Json::Array(items.iter().map(|item| Self::of(item).to_json(left)).collect::<Option<_>>()?)
            }
            Self::JsonMap(map) => {
                let mut entry = |(key, value): (&String, &'a Json)| {
                    Some((taken(key, left)?.to_owned(), Self::of(value).to_json(left)?))
                };
                Json::Object(map.iter().map(&mut entry).collect::<Option<_>>()?)
            }
            Self::Map(entries) => {
                let mut entry = |(key, value): &(Self, Self)| match key {
                    Self::Text(key) => Some((taken(key, left)?.to_owned(), value.to_json(left)?)),
                    _ => None,
                };
                Json::Object(entries.iter().map(&mut entry).collect::<Option<_>>()?)
            }
            Self::Optional(value) => return value.as_ref()?.to_json(left),
            Self::Timestamp(time) => Json::from(time.to_string()),
            Self::Duration(_) => return None,
        })
    }

    /// For messages.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Uint(_) => "an integer",
            Self::Double(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) | Self::JsonList(_) => "a list",
            Self::Map(_) | Self::JsonMap(_) => "a mapping",
            Self::Optional(_) => "an optional value",
            Self::Timestamp(_) => "a timestamp",
            Self::Duration(_) => "a duration",
        }
    }

    /// How many items a list has, or keys a mapping.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::JsonList(items) => Some(items.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::JsonMap(map) => Some(map.len()),
            _ => None,
        }
    }

    /// What a macro goes over: the items of a list, the keys of a mapping.
    pub(super) fn item(&self, place: usize) -> Option<Self> {
        match self {
            Self::List(items) => items.get(place).cloned(),
            Self::JsonList(items) => items.get(place).map(Self::of),
            Self::Map(entries) => entries.get(place).map(|(key, _)| key.clone()),
            _ => None,
        }
    }

    /// All of that, at the cost of one step each.
    pub(super) fn items(&self, meter: &mut Meter) -> Result<Option<Vec<Self>>, Fault> {
        let Some(length) = self.length() else { return Ok(None) };
        meter.spend(length)?;
        Ok(Some(match self {
            Self::JsonMap(map) => map.keys().map(|key| Self::borrowed(key)).collect(),
            _ => (0..length).filter_map(|place| self.item(place)).collect(),
        }))
    }

    /// The value under a key of a mapping.
    pub(super) fn entry(&self, key: &Self, meter: &mut Meter) -> Result<Option<Self>, Fault> {
        match (self, key) {
            (Self::JsonMap(map), Self::Text(key)) => Ok(map.get(&**key).map(Self::of)),
            (Self::Map(entries), _) => {
                for (known, value) in &**entries {
                    if known.equals(key, meter)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Whether two values are the same: numbers by their value, whatever their type, lists and mappings by what is in them. Values of two
    /// types are never the same.
    pub(super) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Fault> {
        meter.spend(1)?;
        match (self, other) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::Bool(left), Self::Bool(right)) => Ok(left == right),
            (Self::Text(left), Self::Text(right)) => {
                meter.spend_text(left.len().min(right.len()))?;
                Ok(**left == **right)
            }
            (Self::Optional(left), Self::Optional(right)) => match (left, right) {
                (None, None) => Ok(true),
                (Some(left), Some(right)) => left.equals(right, meter),
                _ => Ok(false),
            },
            (Self::Map(_) | Self::JsonMap(_), Self::Map(_) | Self::JsonMap(_)) => {
                self.has_same_entries(other, meter)
            }
            (Self::List(_) | Self::JsonList(_), Self::List(_) | Self::JsonList(_)) => {
                self.has_same_items(other, meter)
            }
            _ => Ok(self.order(other) == Some(Ordering::Equal)),
        }
    }

    fn has_same_items(&self, other: &Self, meter: &mut Meter) -> Result<bool, Fault> {
        let (length, others) = (self.length().unwrap_or(0), other.length().unwrap_or(0));
        if length != others {
            return Ok(false);
        }
        for place in 0..length {
            let (Some(left), Some(right)) = (self.item(place), other.item(place)) else { return Ok(false) };
            if !left.equals(&right, meter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_same_entries(&self, other: &Self, meter: &mut Meter) -> Result<bool, Fault> {
        if self.length() != other.length() {
            return Ok(false);
        }
        for key in self.items(meter)?.unwrap_or_default() {
            let (left, right) = (self.entry(&key, meter)?, other.entry(&key, meter)?);
            let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
            if !left.equals(&right, meter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How two values of types that have an order compare; `None` of others, and of what is no number.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some((**left).cmp(&**right)),
            (Self::Timestamp(left), Self::Timestamp(right)) => Some(left.cmp(right)),
            (Self::Duration(left), Self::Duration(right)) => Some(left.cmp(right)),
            _ => match (self.whole(), other.whole()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => order_of_numbers(self, other),
            },
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    /// Whether a text, a list or a mapping is empty, or a number or truth zero.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Optional(None) => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::Text(text) => text.is_empty(),
            Self::Optional(Some(_)) | Self::Timestamp(_) => false,
            Self::Duration(value) => value.is_zero(),
            Self::List(_) | Self::Map(_) | Self::JsonList(_) | Self::JsonMap(_) => self.length() == Some(0),
        }
    }
}

/// Compares numbers of which one at least is a double.
fn order_of_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let double = |value: &Value<'_>| match value {
        Value::Double(value) => Some(*value),
        _ => None,
    };
    match (double(left), left.whole(), double(right), right.whole()) {
        (Some(left), _, Some(right), _) => left.partial_cmp(&right),
        (Some(left), _, _, Some(right)) => double_with_whole(left, right),
        (_, Some(left), Some(right), _) => double_with_whole(right, left).map(Ordering::reverse),
        _ => None,
    }
}

/// Beyond 2⁵³ a double is not every integer: the integer is not rounded to one.
fn double_with_whole(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    const LIMIT: f64 = 1e30;
    if double.abs() > LIMIT {
        return Some(if double > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let floor = double.floor();
    #[expect(clippy::cast_possible_truncation, reason = "whole, and below the limit")]
    let of_floor = (floor as i128).cmp(&whole);
    Some(if of_floor == Ordering::Equal && double > floor { Ordering::Greater } else { of_floor })
}
