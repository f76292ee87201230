//! All event types: how a typed event becomes a body of the log and back.

use serde::{Deserialize, Serialize};

use crate::EncodeError;
use crate::configuration::ConfigurationEvent;
use crate::delivery::DeliveryEvent;
use crate::directory::DirectoryEvent;
use crate::environment::EnvironmentEvent;
use crate::repository::RepositoryEvent;
use crate::subscription::SubscriptionEvent;

/// Type, schema version and data of one event, as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBody {
    /// Such as `kasbah.agent.registered`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Version of the data's shape; from 1.
    pub schema_version: u16,
    /// The event's struct in MessagePack with named fields.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// A body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No event of this type is known: the writer was newer. Readers go read-only for the aggregate.
    #[error("unknown event type {event_type}")]
    UnknownType {
        /// The type.
        event_type: String,
    },
    /// The type is known, but not this version of it: the writer was newer.
    #[error("event type {event_type} has schema version {found}, newest known is {known}")]
    UnknownVersion {
        /// The type.
        event_type: String,
        /// The version in the log.
        found: u16,
        /// The newest version that is known here.
        known: u16,
    },
    /// The bytes do not have the shape of their version.
    #[error("malformed data: {detail}")]
    Malformed {
        /// What the decoder said.
        detail: String,
    },
}

/// Declares the events of one context: an enum of past-tense facts, each a struct of its own.
macro_rules! context {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $about:literal])* $variant:ident($payload:ty) = $type:literal v $version:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "events are moved rarely, matched often")]
        pub enum $name { $($(#[doc = $about])* $variant($payload),)* }

        impl $name {
            /// Type and newest schema version of each event of this context.
            pub const TYPES: &'static [(&'static str, u16)] = &[$(($type, $version),)*];

            /// What each event of this context says.
            pub const ABOUT: &'static [(&'static str, &'static str)] = &[$(($type, concat!($($about,)*)),)*];

            /// The JSON Schema of each event's data.
            #[cfg(feature = "schema")]
            pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($type, generator.subschema_for::<$payload>()),)*]
            }

            /// The event's type.
            #[must_use]
            pub const fn event_type(&self) -> &'static str {
                match self { $(Self::$variant(_) => $type,)* }
            }

            /// The event as it goes into the log.
            ///
            /// # Errors
            /// See [`crate::encode`].
            pub fn encode(&self) -> Result<$crate::catalogue::EventBody, $crate::EncodeError> {
                let (schema_version, data) = match self {
                    $(Self::$variant(payload) => ($version, $crate::encode(payload)?),)*
                };
                Ok($crate::catalogue::EventBody { event_type: self.event_type().to_owned(), schema_version, data })
            }

            /// The event that a body of the log holds, brought up to today's version.
            ///
            /// # Errors
            /// Unknown type or version, or malformed data.
            pub fn decode(body: &$crate::catalogue::EventBody) -> Result<Self, $crate::catalogue::DecodeError> {
                match body.event_type.as_str() {
                    $($type => $crate::upcast::current(body, $version)
                        .and_then(|data| $crate::decode(&data))
                        .map(Self::$variant),)*
                    _ => Err($crate::catalogue::DecodeError::UnknownType { event_type: body.event_type.clone() }),
                }
            }

            /// The data as JSON, for people.
            ///
            /// # Errors
            /// When the data cannot be expressed in JSON, which tests of the type show.
            pub fn to_json(&self) -> Result<serde_json::Value, $crate::EncodeError> {
                let json = match self { $(Self::$variant(payload) => serde_json::to_value(payload),)* };
                json.map_err(|error| $crate::EncodeError { detail: error.to_string() })
            }
        }
    };
}
pub(crate) use context;

macro_rules! all_contexts {
    ($($variant:ident($context:ty),)*) => {
        /// Any event of any context that decides.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "events are moved rarely, matched often")]
        #[allow(missing_docs, reason = "each variant is the context of its name")]
        pub enum Event { $($variant($context),)* }

        impl Event {
            /// The context tables, one after the other.
            #[must_use]
            pub fn types() -> Vec<(&'static str, u16)> {
                [$(<$context>::TYPES,)*].concat()
            }

            /// The JSON Schema of each event's data, one context after the other.
            #[cfg(feature = "schema")]
            pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, schemars::Schema)> {
                let mut all = Vec::new();
                $(all.extend(<$context>::schemas(generator));)*
                all
            }

            /// What each event says, one context after the other.
            #[must_use]
            pub fn about() -> Vec<(&'static str, &'static str)> {
                [$(<$context>::ABOUT,)*].concat()
            }

            /// The event's type.
            #[must_use]
            pub const fn event_type(&self) -> &'static str {
                match self { $(Self::$variant(event) => event.event_type(),)* }
            }

            /// See the contexts' `encode`.
            ///
            /// # Errors
            /// See [`crate::encode`].
            pub fn encode(&self) -> Result<EventBody, EncodeError> {
                match self { $(Self::$variant(event) => event.encode(),)* }
            }

            /// See the contexts' `decode`.
            ///
            /// # Errors
            /// Unknown type or version, or malformed data.
            pub fn decode(body: &EventBody) -> Result<Self, DecodeError> {
                $(if <$context>::TYPES.iter().any(|(known, _)| *known == body.event_type) {
                    return <$context>::decode(body).map(Self::$variant);
                })*
                Err(DecodeError::UnknownType { event_type: body.event_type.clone() })
            }

            /// See the contexts' `to_json`.
            ///
            /// # Errors
            /// When the data cannot be expressed in JSON, which tests of the type show.
            pub fn to_json(&self) -> Result<serde_json::Value, EncodeError> {
                match self { $(Self::$variant(event) => event.to_json(),)* }
            }
        }

        $(impl From<$context> for Event {
            fn from(event: $context) -> Self { Self::$variant(event) }
        })*
    };
}

all_contexts! {
    Directory(DirectoryEvent),
    Configuration(ConfigurationEvent),
    Repository(RepositoryEvent),
    Delivery(DeliveryEvent),
    Environment(EnvironmentEvent),
    Subscription(SubscriptionEvent),
}
