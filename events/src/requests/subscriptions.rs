//! What event-relay answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::actor::Actor;
use crate::export::{EventFilter, ExportPosition, TypePattern};
use crate::id::{OrganizationId, SubscriptionId};
use crate::request::request;
use crate::subscription::WebhookFormat;
use crate::time::Timestamp;

/// Has exported events sent to a webhook, or kept for a program that fetches them from NATS. The secret that signs what is sent is shown once.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateSubscription {
    /// The name, unique in the organization: lower-case letters, digits and hyphens.
    pub name: String,
    /// The webhook's address; not given where events are fetched from NATS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether a durable consumer on NATS is made, from which a program with the organization's account fetches, instead of a webhook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nats: bool,
    /// What it is sent; `cloud-events` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<WebhookFormat>,
    /// Types of events, such as `kasbah.sync.finished` or `kasbah.sync.*`; all, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypePattern>,
    /// Only about this project: `group/name` or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Only about this environment: its id, or its name together with `project`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// From where on: a time (RFC 3339), the position of an event, or `start`; from now on if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}
request!(CreateSubscription => NewSubscription, "event-relay.create-subscription");

/// A subscription, with the secret that signs what a webhook is sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSubscription {
    /// The subscription.
    pub subscription: SubscriptionView,
    /// The secret, as Standard Webhooks has it: `whsec_` and base64; none where events are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Lists all subscriptions of the organization.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListSubscriptions {}
request!(ListSubscriptions => SubscriptionList, "event-relay.list-subscriptions");

/// Subscriptions, by name. An organization has few.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionList {
    /// All of them.
    pub items: Vec<SubscriptionView>,
    /// Who reads `/api/events` now, and how far they are. They have no subscription.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<EventReaderView>,
}

/// Somebody who follows exported events over HTTP, and how far they are.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReaderView {
    /// Who.
    pub actor: Actor,
    /// Since when.
    pub since: Timestamp,
    /// Which events.
    pub filter: EventFilter,
    /// The position of the last event that was looked at for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// How many exported events were not looked at for them yet; absent until one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// When the log recorded the oldest event that waits for them to read on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
}

/// How far some of the readers are that a replica of the console serves. A notice under `exports.followed`, again and again while
/// they read: who is not named for a while reads no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReaders {
    /// Some of them.
    pub readers: Vec<EventReader>,
}

impl EventReaders {
    /// How many one notice names at most.
    pub const AT_ONCE: usize = 100;
    /// Between two notices about a reader.
    pub const EVERY: Duration = Duration::from_secs(5);
}

impl crate::Notice for EventReaders {
    const NAME: &'static str = "exports.followed";
}

/// How far a reader is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReader {
    /// This reading: whoever reconnects has another.
    pub id: Uuid,
    /// Whose events.
    pub organization: OrganizationId,
    /// Who reads.
    pub actor: Actor,
    /// Since when.
    pub since: Timestamp,
    /// Which events.
    pub filter: EventFilter,
    /// The last event that was looked at for them.
    pub position: Option<ExportPosition>,
    /// When the log recorded the oldest event that waits for them to read on.
    pub oldest: Option<Timestamp>,
}

/// Shows a subscription.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowSubscription {
    /// Its name or id.
    pub subscription: String,
}
request!(ShowSubscription => SubscriptionView, "event-relay.show-subscription");

/// Deletes a subscription.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteSubscription {
    /// Its name or id.
    pub subscription: String,
}
request!(DeleteSubscription => SubscriptionView, "event-relay.delete-subscription");

/// Sends events again, or lets a parked subscription go on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaySubscription {
    /// Its name or id.
    pub subscription: String,
    /// From where on: a time (RFC 3339), the position of an event, or `start`; from where it is if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}
request!(ReplaySubscription => SubscriptionView, "event-relay.replay-subscription");

/// Sends nothing, and gives nothing to programs that fetch from NATS, until somebody says `resume`. The subscription stays where it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseSubscription {
    /// Its name or id.
    pub subscription: String,
}
request!(PauseSubscription => SubscriptionView, "event-relay.pause-subscription");

/// Lets a paused or parked subscription go on from where it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeSubscription {
    /// Its name or id.
    pub subscription: String,
}
request!(ResumeSubscription => SubscriptionView, "event-relay.resume-subscription");

/// Makes another secret. The former one signs, too, for a day.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateSubscriptionSecret {
    /// Its name or id.
    pub subscription: String,
}
request!(RotateSubscriptionSecret => NewSubscription, "event-relay.rotate-subscription-secret");

/// Lists the events that a receiver refused.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDeadLetters {
    /// The subscription's name or id.
    pub subscription: String,
}
request!(ListDeadLetters => DeadLetterList, "event-relay.list-dead-letters");

/// Dead letters, the oldest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterList {
    /// Those that are kept.
    pub items: Vec<DeadLetter>,
    /// How many older ones were given up.
    pub dropped: u64,
}

/// An event that a receiver refused.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The event's number among the organization's exported events.
    pub sequence: u64,
    /// The event's position.
    pub position: String,
    /// The event's id.
    pub event: String,
    /// The event's type.
    pub event_type: String,
    /// When it was given up.
    pub at: Timestamp,
    /// What the receiver answered last.
    pub reason: String,
}

/// Sends dead letters again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendDeadLetters {
    /// The subscription's name or id.
    pub subscription: String,
    /// The numbers of the events; all, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<u64>,
}
request!(ResendDeadLetters => SubscriptionView, "event-relay.resend-dead-letters");

/// A subscription, and how it stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionView {
    /// Its id.
    pub id: SubscriptionId,
    /// Its name.
    pub name: String,
    /// Which events.
    pub filter: EventFilter,
    /// Where they are sent to, without path and query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<WebhookFormat>,
    /// Where they are fetched from, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<ConsumerView>,
    /// When it was created.
    pub created_at: Timestamp,
    /// How it stands.
    pub state: SubscriptionState,
    /// Why, in words; empty if it is active.
    pub reason: String,
    /// Since when it fails, is parked or is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the next attempt is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The position of the last event that was dealt with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// How many of the organization's exported events it has not dealt with, whether it wants them or not; absent until it has met one. Of a
    /// consumer on NATS, how many that it wants were not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// When the log recorded the oldest event that it wants and that was not sent; of a consumer on NATS, when the oldest one was exported that
    /// was not acknowledged. Absent where nothing waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// When the last event was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Dead letters that are kept.
    pub dead_letters: u32,
}

/// A durable consumer on NATS, and how far the programs that fetch from it are.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumerView {
    /// The stream that it is a consumer of.
    pub stream: String,
    /// Its name, which no other subscription has at the same time.
    pub name: String,
    /// Events that were not fetched yet.
    pub pending: u64,
    /// Events that were fetched and not acknowledged yet.
    pub unacknowledged: u64,
    /// Of those, how many were given out more than once.
    pub redelivered: u64,
    /// When an event was last fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    /// When an event was last acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_at: Option<Timestamp>,
}

/// How a subscription stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubscriptionState {
    /// Events are sent as they come.
    Active,
    /// The receiver does not take an event, or the consumer cannot be made; it is tried again.
    Retrying,
    /// The receiver took nothing for days, or said that it is gone: nothing is sent until somebody says `resume`.
    Parked,
    /// Somebody wants nothing to be sent, or fetched, until they say `resume`.
    Paused,
}
