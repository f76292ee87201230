//! A live object's text made canonical and pruned in one pass, without a tree of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::{Observed, Writer, newest_first, observe};
use crate::digest::{digest_of, write_number, write_text};
use crate::redact::{CONFIG_MAPS, COPIES, SECRETS};

/// What [`observe`] gives of a live object that is of this kind, whatever its text says of that.
///
/// # Errors
/// When the text is no JSON.
pub fn observe_text(text: &[u8], api_version: &str, kind: &str) -> Result<Observed, serde_json::Error> {
    if let Some(observed) = in_one_pass(text, api_version, kind) {
        return Ok(observed);
    }
    let mut object: Value = serde_json::from_slice(text)?;
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), Value::String(api_version.to_owned()));
        object.insert("kind".to_owned(), Value::String(kind.to_owned()));
    }
    Ok(observe(object))
}

/// `None` where values have to be redacted, or the text is not as the API server writes it.
fn in_one_pass(text: &[u8], api_version: &str, kind: &str) -> Option<Observed> {
    if SECRETS.contains(&kind) {
        return None;
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let (mut out, mut found) = (Vec::with_capacity(text.len()), Found::default());
    let live = Live { out: &mut out, found: &mut found, api_version, kind };
    live.deserialize(&mut deserializer).and_then(|()| deserializer.end()).ok()?;
    if found.may_hold_release && CONFIG_MAPS.contains(&kind) {
        return None;
    }
    let digest = digest_of(&out);
    let body = String::from_utf8(out).ok()?;
    Some(Observed { body, digest, writers: newest_first(found.writers) })
}

/// What is noted on the way.
#[derive(Default)]
struct Found {
    writers: Vec<Writer>,
    /// A ConfigMap like this one may hold a release of Helm.
    may_hold_release: bool,
}

/// The fields of one JSON object, as they are written: sorted at its end if they have to be.
struct Fields<'de> {
    begin: usize,
    fields: Vec<(Cow<'de, str>, usize, usize)>,
}

impl<'de> Fields<'de> {
    fn begin(out: &mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { begin: out.len(), fields: Vec::with_capacity(8) }
    }

    /// Begins a field; its value is to be written next. Gives where to [`Self::end_field`] it.
    #[expect(clippy::ptr_arg, reason = "what is borrowed had no escapes")]
    fn field(&self, key: &Cow<'de, str>, out: &mut Vec<u8>) -> usize {
        if !self.fields.is_empty() {
            out.push(b',');
        }
        let start = out.len();
        match key {
            Cow::Borrowed(plain) => write_plain(plain, out),
            Cow::Owned(text) => write_text(text, out),
        }
        out.push(b':');
        start
    }

    fn end_field(&mut self, key: Cow<'de, str>, start: usize, out: &[u8]) {
        self.fields.push((key, start, out.len()));
    }

    /// Takes a field back that was begun.
    fn leave_out(&self, start: usize, out: &mut Vec<u8>) {
        out.truncate(start - usize::from(!self.fields.is_empty()));
    }

    fn text(&mut self, key: &'static str, value: &str, out: &mut Vec<u8>) {
        let key = Cow::Borrowed(key);
        let start = self.field(&key, out);
        write_text(value, out);
        self.end_field(key, start, out);
    }

    fn value<E>(
        &mut self,
        key: Cow<'de, str>,
        out: &mut Vec<u8>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.field(&key, out);
        value(out)?;
        self.end_field(key, start, out);
        Ok(())
    }

    fn end(mut self, out: &mut Vec<u8>) {
        let is_sorted = self.fields.windows(2).all(|pair| matches!(pair, [left, right] if left.0 < right.0));
        if !is_sorted {
            let written = out.split_off(self.begin);
            self.fields.sort_by(|left, right| left.0.cmp(&right.0));
            for (place, (key, start, end)) in self.fields.iter().enumerate() {
                // Of two of the same name the later one counts.
                if self.fields.get(place + 1).is_some_and(|(next, ..)| next == key) {
                    continue;
                }
                if out.len() > self.begin {
                    out.push(b',');
                }
                let field = written.get(start - self.begin..end - self.begin);
                out.extend_from_slice(field.unwrap_or_default());
            }
        }
        out.push(b'}');
    }
}

/// A text that stood in JSON without an escape, and so needs none.
fn write_plain(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// The name of a field.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Any value, written canonically.
struct Canonical<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Canonical<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        write_number(&Number::from(value), self.0);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        write_number(&Number::from(value), self.0);
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        write_number(&number, self.0);
        Ok(())
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<(), E> {
        write_plain(value, self.0);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        write_text(value, self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let out = self.0;
        out.push(b'[');
        let begin = out.len();
        loop {
            let end = out.len();
            if end > begin {
                out.push(b',');
            }
            if items.next_element_seed(Canonical(out))?.is_none() {
                out.truncate(end);
                out.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let out = self.0;
        let mut fields = Fields::begin(out);
        while let Some(key) = map.next_key_seed(Key)? {
            fields.value(key, out, |out| map.next_value_seed(Canonical(out)))?;
        }
        fields.end(out);
        Ok(())
    }
}

/// A JSON object that is written with what a rule of its own makes of each field.
macro_rules! object {
    ($name:ident, $expected:literal) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_map(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
                self.write(map)
            }
        }
    };
}

struct Live<'o> {
    out: &'o mut Vec<u8>,
    found: &'o mut Found,
    api_version: &'o str,
    kind: &'o str,
}

object!(Live, "a live object");

impl Live<'_> {
    fn write<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, found, api_version, kind } = self;
        let mut fields = Fields::begin(out);
        while let Some(key) = map.next_key_seed(Key)? {
            match key.as_ref() {
                "apiVersion" | "kind" => {
                    map.next_value::<IgnoredAny>()?;
                }
                "metadata" => {
                    fields.value(key, out, |out| map.next_value_seed(Metadata { out, found }))?;
                }
                _ => {
                    // Of a list, each item may.
                    found.may_hold_release |= key == "items";
                    fields.value(key, out, |out| map.next_value_seed(Canonical(out)))?;
                }
            }
        }
        fields.text("apiVersion", api_version, out);
        fields.text("kind", kind, out);
        fields.end(out);
        Ok(())
    }
}

struct Metadata<'o> {
    out: &'o mut Vec<u8>,
    found: &'o mut Found,
}

object!(Metadata, "metadata");

impl Metadata<'_> {
    fn write<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, found } = self;
        let mut fields = Fields::begin(out);
        while let Some(key) = map.next_key_seed(Key)? {
            match key.as_ref() {
                "resourceVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                "managedFields" => found.writers = map.next_value::<Option<_>>()?.unwrap_or_default(),
                "annotations" => {
                    let start = fields.field(&key, out);
                    let mut is_empty = true;
                    map.next_value_seed(Annotations { out, is_empty: &mut is_empty })?;
                    if is_empty {
                        fields.leave_out(start, out);
                    } else {
                        fields.end_field(key, start, out);
                    }
                }
                "labels" => fields.value(key, out, |out| map.next_value_seed(Labels { out, found }))?,
                _ => fields.value(key, out, |out| map.next_value_seed(Canonical(out)))?,
            }
        }
        fields.end(out);
        Ok(())
    }
}

struct Annotations<'o> {
    out: &'o mut Vec<u8>,
    is_empty: &'o mut bool,
}

object!(Annotations, "annotations");

impl Annotations<'_> {
    fn write<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut fields = Fields::begin(self.out);
        while let Some(key) = map.next_key_seed(Key)? {
            if COPIES.contains(&key.as_ref()) {
                map.next_value::<IgnoredAny>()?;
            } else {
                fields.value(key, self.out, |out| map.next_value_seed(Canonical(out)))?;
            }
        }
        *self.is_empty = fields.fields.is_empty();
        fields.end(self.out);
        Ok(())
    }
}

struct Labels<'o> {
    out: &'o mut Vec<u8>,
    found: &'o mut Found,
}

object!(Labels, "labels");

impl Labels<'_> {
    fn write<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, found } = self;
        let mut fields = Fields::begin(out);
        while let Some(key) = map.next_key_seed(Key)? {
            let start = out.len();
            fields.value(key, out, |out| map.next_value_seed(Canonical(out)))?;
            let written = out.get(start..).unwrap_or_default();
            found.may_hold_release |= written.ends_with(br#""owner":"helm""#);
        }
        fields.end(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
