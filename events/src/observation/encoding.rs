//! How an observation is written and read: time, version and kind, so that a reader knows what it does not know.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{EnumAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, EnumAccess, Error as _, IgnoredAny, MapAccess, VariantAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeStruct as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Observation, Observed, UnknownObservation, version_of};
use crate::object::Text;
use crate::time::Timestamp;
use crate::value::AnyValue;

/// The version that an observation has when it names none.
const FIRST: u16 = 1;

impl<S: Text + Serialize> Serialize for Observation<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let version = self.what.version();
        let mut fields = serializer.serialize_struct("Observation", if version == FIRST { 2 } else { 3 })?;
        fields.serialize_field("at", &self.at)?;
        if version != FIRST {
            fields.serialize_field("version", &version)?;
        }
        fields.serialize_field("what", &self.what)?;
        fields.end()
    }
}

impl<S: Text + Serialize> Serialize for Observed<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let Self::Unknown(unknown) = self else {
            // What serde derives.
            return Self::serialize(self, serializer);
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&unknown.kind, &unknown.content)?;
        map.end()
    }
}

impl<'de, S: Text + Deserialize<'de>> Deserialize<'de> for Observation<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Observation", &["at", "version", "what"], Fields(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Field {
    At,
    Version,
    What,
    #[serde(other)]
    Other,
}

struct Fields<S>(PhantomData<S>);

impl<'de, S: Text + Deserialize<'de>> Visitor<'de> for Fields<S> {
    type Value = Observation<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an observation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Observation<S>, A::Error> {
        let (mut at, mut version, mut what) = (None::<Timestamp>, FIRST, None);
        while let Some(field) = fields.next_key()? {
            match field {
                Field::At => at = Some(fields.next_value()?),
                Field::Version if what.is_some() => {
                    return Err(A::Error::custom("the version of an observation stands behind its content"));
                }
                Field::Version => version = fields.next_value()?,
                Field::What => what = Some(fields.next_value_seed(Content { version, text: PhantomData })?),
                Field::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        let at = at.ok_or_else(|| A::Error::missing_field("at"))?;
        let what = what.ok_or_else(|| A::Error::missing_field("what"))?;
        Ok(Observation { at, what })
    }
}

/// Reads what was seen, in a version.
struct Content<S> {
    version: u16,
    text: PhantomData<S>,
}

impl<'de, S: Text + Deserialize<'de>> DeserializeSeed<'de> for Content<S> {
    type Value = Observed<S>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Observed<S>, D::Error> {
        deserializer.deserialize_enum("Observed", &[], self)
    }
}

impl<'de, S: Text + Deserialize<'de>> Visitor<'de> for Content<S> {
    type Value = Observed<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was seen, under its kind")
    }

    /// A kind that gets a second version is read in its first one here, in a type of its own, and brought to the newest.
    fn visit_enum<A: EnumAccess<'de>>(self, content: A) -> Result<Observed<S>, A::Error> {
        let (kind, content) = content.variant_seed(Kind)?;
        if version_of(&kind).is_some_and(|known| self.version == known) {
            return Observed::<S>::deserialize(EnumAccessDeserializer::new(OfKind { kind: &kind, content }));
        }
        let content = content.newtype_variant()?;
        let unknown = UnknownObservation { kind: kind.into_owned(), version: self.version, content };
        Ok(Observed::Unknown(Box::new(unknown)))
    }
}

/// Reads the kind, without a copy where it can be borrowed.
struct Kind;

impl<'de> DeserializeSeed<'de> for Kind {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for Kind {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kind of an observation")
    }

    fn visit_borrowed_str<E>(self, kind: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(kind))
    }

    fn visit_str<E>(self, kind: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(kind.to_owned()))
    }
}

/// Content whose kind was read already.
struct OfKind<'k, V> {
    kind: &'k str,
    content: V,
}

impl<'de, V: VariantAccess<'de>> EnumAccess<'de> for OfKind<'_, V> {
    type Error = V::Error;
    type Variant = V;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, V), V::Error> {
        Ok((seed.deserialize(StrDeserializer::new(self.kind))?, self.content))
    }
}

impl UnknownObservation {
    /// The content as a type of somebody who knows the kind.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, crate::DecodeError> {
        let encoded = crate::encode::<AnyValue>(&self.content);
        crate::decode(&encoded.map_err(|error| crate::DecodeError::Malformed { detail: error.detail })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An observation of a newer writer, as it is written.
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Newer<W> {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u16>,
        what: W,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "kebab-case")]
    enum What {
        DoorSeen { name: String, at: Vec<i64>, raw: Option<f64>, open: bool },
        Gap { left_out: u64 },
    }

    fn door() -> What {
        What::DoorSeen { name: "front".to_owned(), at: vec![-3, i64::MAX], raw: Some(0.5), open: true }
    }

    fn written(version: Option<u16>, what: What) -> Vec<u8> {
        crate::encode(&Newer { at: Timestamp(7), version, what }).unwrap()
    }

    #[test]
    fn an_unknown_kind_and_an_unknown_version_are_carried_as_they_came() {
        let cases = [
            (written(None, door()), "door-seen", 1),
            (written(Some(4), door()), "door-seen", 4),
            (written(Some(2), What::Gap { left_out: 7 }), "gap", 2),
        ];
        for (bytes, kind, version) in cases {
            let read: Observation = crate::decode(&bytes).unwrap();
            let Observed::Unknown(unknown) = &read.what else { panic!("{read:?}") };
            assert_eq!((read.at, unknown.kind.as_str(), unknown.version), (Timestamp(7), kind, version));
            assert_eq!(crate::encode(&read).unwrap(), bytes, "{kind}");
            let borrowed: Observation<&str> = rmp_serde::from_slice(&bytes).unwrap();
            assert_eq!(crate::encode(&borrowed).unwrap(), bytes, "{kind}, borrowed");
            let json = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<Observation>(&json).unwrap(), read, "{kind}, as JSON");
        }
        #[derive(Deserialize)]
        struct Door {
            name: String,
        }
        let Observed::Unknown(unknown) =
            crate::decode::<Observation>(&written(Some(4), door())).unwrap().what
        else {
            panic!("known")
        };
        assert_eq!(unknown.read::<Door>().unwrap().name, "front");
    }

    #[test]
    fn a_known_kind_with_another_shape_is_an_error() {
        let bytes = written(None, What::Gap { left_out: 7 });
        assert!(crate::decode::<Observation>(&bytes).is_err());
    }
}
