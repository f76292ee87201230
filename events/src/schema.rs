//! JSON Schema of the types that have a text form of their own.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{Actor, BlobDigest, ChainHash, Sha256, Timestamp};

macro_rules! text {
    ($($type:ty, $name:literal, $schema:tt;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

text! {
    Timestamp, "Timestamp", {
        "description": "A moment, UTC.",
        "type": "string",
        "format": "date-time"
    };
    Actor, "Actor", {
        "description": "Who did it: an id, never a name.",
        "type": "string",
        "pattern": "^(user|agent|service):.+$"
    };
    Sha256, "Sha256", { "description": "SHA-256 in hexadecimal.", "type": "string", "pattern": "^[0-9a-f]{64}$" };
    BlobDigest, "BlobDigest", { "description": "Address of a blob.", "type": "string", "pattern": "^[0-9a-f]{64}$" };
    ChainHash, "ChainHash", { "description": "Link of a chain.", "type": "string", "pattern": "^[0-9a-f]{64}$" };
}
