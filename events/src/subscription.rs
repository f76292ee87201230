//! Events of subscriptions: which exported events are sent where. Where each stands is not decided, but a checkpoint.

use serde::{Deserialize, Serialize};

use crate::catalogue::context;
use crate::export::{EventFilter, ExportPosition};
use crate::id::SubscriptionId;
use crate::time::Timestamp;

/// Most subscriptions of an organization.
pub const SUBSCRIPTIONS_PER_ORGANIZATION: usize = 100;
/// Longest name of a subscription.
pub const LONGEST_NAME: usize = 63;
/// Longest address of a webhook.
pub const LONGEST_URL: usize = 2048;
/// Most dead letters that one request sends again by their numbers.
pub const LETTERS_AT_ONCE: usize = 100;

context! {
    /// What event-relay decided.
    SubscriptionEvent {
        /// Events are sent to a webhook from now on, or wait for a program that fetches them from NATS.
        SubscriptionCreated(SubscriptionCreated) = "kasbah.subscription.created" v 2,
        /// The webhook's secret is another one; the former counts for a while, too.
        SubscriptionSecretRotated(SubscriptionSecretRotated) = "kasbah.subscription.secret-rotated" v 1,
        /// Events are sent again, from a moment or behind an event; a parked subscription goes on.
        SubscriptionReplayed(SubscriptionReplayed) = "kasbah.subscription.replayed" v 1,
        /// Somebody wants nothing to be sent, or fetched from NATS, for a while.
        SubscriptionPaused(SubscriptionPaused) = "kasbah.subscription.paused" v 1,
        /// A paused or parked subscription goes on from where it is.
        SubscriptionResumed(SubscriptionResumed) = "kasbah.subscription.resumed" v 1,
        /// Events that the receiver had refused are sent to it again.
        DeadLettersResent(DeadLettersResent) = "kasbah.subscription.dead-letters-resent" v 1,
        /// Nothing is sent any more.
        SubscriptionDeleted(SubscriptionDeleted) = "kasbah.subscription.deleted" v 1,
    }
}

/// Where events are sent to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its address as people may see it: without path and query, which often hold a secret.
    pub shown: String,
    /// Its address, sealed with the organization's key, in base64.
    pub sealed: String,
    /// What is sent.
    pub format: WebhookFormat,
}

/// What a webhook is sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookFormat {
    /// Each event as it is.
    #[default]
    CloudEvents,
    /// A message for people about the event, as Slack and those that are compatible take it.
    Slack,
    /// The same message as a JSON document with its parts.
    Message,
}

/// From where on events are sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendFrom {
    /// What was recorded at this time or later.
    Time(Timestamp),
    /// What was exported behind this event.
    Behind(ExportPosition),
}

/// See [`SubscriptionEvent::SubscriptionCreated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionCreated {
    /// Its id: [`SubscriptionId::derive`].
    pub subscription: SubscriptionId,
    /// Its name, unique in the organization.
    pub name: String,
    /// Which events.
    pub filter: EventFilter,
    /// Where they are sent to, unless they are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// The number of the consumer from which they are fetched: [`crate::ConsumerName::number`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<u8>,
    /// From where on.
    pub from: SendFrom,
}

/// See [`SubscriptionEvent::SubscriptionSecretRotated`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionSecretRotated {
    /// Which.
    pub subscription: SubscriptionId,
    /// The number of the new secret, which derives from it.
    pub secret: u32,
    /// Until then messages are also signed with the one before.
    pub former_until: Timestamp,
}

/// See [`SubscriptionEvent::SubscriptionReplayed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionReplayed {
    /// Which.
    pub subscription: SubscriptionId,
    /// From where on; `None`: from where it is, so that a parked one goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SendFrom>,
}

/// See [`SubscriptionEvent::SubscriptionPaused`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionPaused {
    /// Which.
    pub subscription: SubscriptionId,
}

/// See [`SubscriptionEvent::SubscriptionResumed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionResumed {
    /// Which.
    pub subscription: SubscriptionId,
}

/// See [`SubscriptionEvent::DeadLettersResent`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLettersResent {
    /// Which.
    pub subscription: SubscriptionId,
    /// The numbers of the events; all, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<u64>,
}

/// See [`SubscriptionEvent::SubscriptionDeleted`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionDeleted {
    /// Which.
    pub subscription: SubscriptionId,
}
