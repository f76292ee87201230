//! Any value of the encoding, kept as it came: of what this version does not know.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value whose type is not known here. Encodes to what it was decoded from.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyValue {
    /// Nothing.
    Nil,
    /// Yes or no.
    Bool(bool),
    /// A number that is not negative.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A fraction in 32 bits.
    Single(f32),
    /// A fraction.
    Double(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<AnyValue>),
    /// Fields, in their order.
    Map(Vec<(AnyValue, AnyValue)>),
}

impl Serialize for AnyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Single(value) => serializer.serialize_f32(*value),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| list.serialize_element(value))?;
                list.end()
            }
            Self::Map(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = AnyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<AnyValue, E> {
        Ok(AnyValue::Nil)
    }

    fn visit_none<E>(self) -> Result<AnyValue, E> {
        Ok(AnyValue::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnyValue, D::Error> {
        AnyValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<AnyValue, E> {
        Ok(AnyValue::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<AnyValue, E> {
        Ok(AnyValue::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<AnyValue, E> {
        Ok(u64::try_from(value).map_or(AnyValue::Signed(value), AnyValue::Unsigned))
    }

    fn visit_f32<E>(self, value: f32) -> Result<AnyValue, E> {
        Ok(AnyValue::Single(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<AnyValue, E> {
        Ok(AnyValue::Double(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<AnyValue, E> {
        Ok(AnyValue::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<AnyValue, E> {
        Ok(AnyValue::Bytes(value.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<AnyValue, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(AnyValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<AnyValue, A::Error> {
        let mut map = Vec::new();
        while let Some(field) = fields.next_entry()? {
            map.push(field);
        }
        Ok(AnyValue::Map(map))
    }
}
