//! Subscriptions: what is decided of them. Pure.

use std::collections::BTreeSet;

use events::export::EventFilter;
use events::subscription::{
    DeadLettersResent, LETTERS_AT_ONCE, LONGEST_NAME, SUBSCRIPTIONS_PER_ORGANIZATION, SendFrom,
    SubscriptionCreated, SubscriptionDeleted, SubscriptionEvent, SubscriptionPaused, SubscriptionReplayed,
    SubscriptionResumed, SubscriptionSecretRotated, Webhook, WebhookFormat,
};
use events::{
    Actor, AggregateKind, AggregateRef, Commit, ConsumerName, OrganizationId, Refusal, RefusalKind,
    SubscriptionId, Timestamp,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Decides, Draft, ReadSet};

use super::State;

/// How long the former secret signs, too.
const BOTH_SECRETS_MILLIS: i64 = 24 * 3_600_000;
/// Wishes to send dead letters again that are remembered.
const MOST_RESENDS: usize = 32;

/// A way out for events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Whose.
    pub organization: OrganizationId,
    version: u64,
    /// Its name.
    pub name: String,
    /// Which events.
    pub filter: EventFilter,
    /// How they get out.
    pub way: Way,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its creator: messages about environments say only what the creator may see.
    pub created_by: Actor,
    /// From where on events are sent, where nobody knows how far they were.
    pub from: SendFrom,
    /// The version with which it was last said from where events are sent.
    pub placed: u64,
    /// The version with which a parked subscription was last told to go on.
    pub resumed: u64,
    /// Somebody wants nothing to be sent or fetched now: since when, and who.
    pub paused: Option<(Timestamp, Actor)>,
    /// The number of the secret.
    pub secret: u32,
    /// Until when the former secret signs, too.
    pub former_until: Option<Timestamp>,
    /// Dead letters that are to be sent again, each wish with the version that it came with; all of them, if none is named.
    pub resends: Vec<(u64, Vec<u64>)>,
}

/// How events get out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// They are sent to a webhook.
    Webhook(Webhook),
    /// A program fetches them from a consumer on NATS.
    Consumer(ConsumerName),
}

/// How events are to get out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WantedWay {
    /// They are to be sent to a webhook.
    Webhook(Webhook),
    /// They are to be fetched from NATS.
    Consumer,
}

/// What a decision is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Given {
    /// Create it.
    Create {
        /// Whose.
        organization: OrganizationId,
        /// Its name.
        name: String,
        /// Which events.
        filter: EventFilter,
        /// How they are to get out.
        way: WantedWay,
        /// From where on.
        from: SendFrom,
    },
    /// Make another secret.
    Rotate {
        /// Of which.
        subscription: SubscriptionId,
        /// Now.
        at: Timestamp,
    },
    /// Send events again.
    Replay {
        /// Of which.
        subscription: SubscriptionId,
        /// From where on.
        from: Option<SendFrom>,
    },
    /// Send nothing, and give nothing to programs that fetch, for a while.
    Pause {
        /// Of which.
        subscription: SubscriptionId,
    },
    /// Go on from where it is.
    Resume {
        /// Which.
        subscription: SubscriptionId,
    },
    /// Send dead letters again.
    Resend {
        /// Of which.
        subscription: SubscriptionId,
        /// Which of them; all, if empty.
        sequences: Vec<u64>,
    },
    /// Send nothing any more.
    Delete {
        /// Which.
        subscription: SubscriptionId,
    },
}

impl Subscription {
    /// Whether it sends messages about environments that are degraded, instead of each event.
    #[must_use]
    pub fn alerts(&self) -> bool {
        self.format() != WebhookFormat::CloudEvents && self.filter.types.is_empty()
    }

    /// What is sent.
    #[must_use]
    pub fn format(&self) -> WebhookFormat {
        self.webhook().map(|webhook| webhook.format).unwrap_or_default()
    }

    /// Where events are sent to, unless they are fetched.
    #[must_use]
    pub const fn webhook(&self) -> Option<&Webhook> {
        match &self.way {
            Way::Webhook(webhook) => Some(webhook),
            Way::Consumer(_) => None,
        }
    }

    /// Where events are fetched from, unless they are sent.
    #[must_use]
    pub const fn consumer(&self) -> Option<ConsumerName> {
        match &self.way {
            Way::Webhook(_) => None,
            Way::Consumer(name) => Some(*name),
        }
    }
}

impl State {
    /// All subscriptions.
    pub fn subscriptions(&self) -> impl Iterator<Item = (SubscriptionId, &Subscription)> {
        self.subscriptions.iter().map(|(id, subscription)| (*id, subscription))
    }

    /// A subscription.
    #[must_use]
    pub fn subscription(&self, id: SubscriptionId) -> Option<&Subscription> {
        self.subscriptions.get(&id)
    }

    /// Grows with each event of a subscription.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn apply_subscription(&mut self, commit: &Commit, event: SubscriptionEvent) {
        self.revision += 1;
        let version = commit.version;
        match event {
            SubscriptionEvent::SubscriptionCreated(created) => self.apply_created(commit, created),
            SubscriptionEvent::SubscriptionDeleted(deleted) => {
                self.subscriptions.remove(&deleted.subscription);
                self.deleted.insert(deleted.subscription, version);
            }
            SubscriptionEvent::SubscriptionSecretRotated(rotated) => {
                if let Some(known) = self.subscriptions.get_mut(&rotated.subscription) {
                    (known.version, known.secret) = (version, rotated.secret);
                    known.former_until = Some(rotated.former_until);
                }
            }
            SubscriptionEvent::SubscriptionReplayed(replayed) => {
                if let Some(known) = self.subscriptions.get_mut(&replayed.subscription) {
                    (known.version, known.resumed) = (version, version);
                    if let Some(from) = replayed.from {
                        (known.from, known.placed) = (from, version);
                    }
                }
            }
            SubscriptionEvent::SubscriptionPaused(paused) => {
                if let Some(known) = self.subscriptions.get_mut(&paused.subscription) {
                    known.version = version;
                    known.paused = Some((commit.occurred_at, commit.actor.clone()));
                }
            }
            SubscriptionEvent::SubscriptionResumed(resumed) => {
                if let Some(known) = self.subscriptions.get_mut(&resumed.subscription) {
                    (known.version, known.resumed, known.paused) = (version, version, None);
                }
            }
            SubscriptionEvent::DeadLettersResent(resent) => {
                if let Some(known) = self.subscriptions.get_mut(&resent.subscription) {
                    known.version = version;
                    known.resends.push((version, resent.sequences));
                    let surplus = known.resends.len().saturating_sub(MOST_RESENDS);
                    known.resends.drain(..surplus);
                }
            }
        }
    }

    fn apply_created(&mut self, commit: &Commit, created: SubscriptionCreated) {
        let version = commit.version;
        let SubscriptionCreated { subscription, name, filter, webhook, consumer, from } = created;
        let number = consumer.unwrap_or_default();
        let organization = commit.organization;
        let way = webhook.map_or(Way::Consumer(ConsumerName { organization, number }), Way::Webhook);
        self.deleted.remove(&subscription);
        let known = Subscription {
            organization,
            version,
            name,
            filter,
            way,
            created_at: commit.occurred_at,
            created_by: commit.actor.clone(),
            from,
            placed: version,
            resumed: version,
            paused: None,
            // One that is created again has another secret.
            secret: u32::try_from(version).unwrap_or(u32::MAX),
            former_until: None,
            resends: Vec::new(),
        };
        self.subscriptions.insert(subscription, known);
    }

    fn create(
        &self,
        given: SubscriptionCreated,
        organization: OrganizationId,
    ) -> Result<Option<Draft>, Refusal> {
        check_name(&given.name)?;
        if self.subscriptions.contains_key(&given.subscription) {
            let message =
                format!("the organization already has a subscription {:?}; choose another name", given.name);
            return Err(Refusal {
                field: Some("name".to_owned()),
                ..Refusal::new(RefusalKind::Conflict, message)
            });
        }
        let own = self.subscriptions.values().filter(|known| known.organization == organization).count();
        if own >= SUBSCRIPTIONS_PER_ORGANIZATION {
            let message = format!("the organization already has {own} subscriptions; delete some");
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let expected = self.deleted.get(&given.subscription).copied().unwrap_or(0);
        let id = given.subscription;
        Ok(Some(draft(organization, id, expected, SubscriptionEvent::SubscriptionCreated(given))))
    }

    fn known(&self, id: SubscriptionId) -> Result<&Subscription, Refusal> {
        self.subscriptions.get(&id).ok_or_else(|| Refusal::not_found("subscription"))
    }

    /// A subscription whose events are sent.
    fn sent(&self, id: SubscriptionId) -> Result<&Subscription, Refusal> {
        let known = self.known(id)?;
        if known.consumer().is_some() {
            let message = "events of this subscription are fetched from NATS, and not sent";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        Ok(known)
    }

    /// The lowest number of a consumer that no subscription of the organization has.
    fn free_consumer(&self, organization: OrganizationId) -> Result<u8, Refusal> {
        let own: BTreeSet<ConsumerName> =
            self.subscriptions.values().filter_map(Subscription::consumer).collect();
        let free = ConsumerName::all(organization).find(|name| !own.contains(name));
        free.map(|name| name.number).ok_or_else(|| {
            let most = ConsumerName::PER_ORGANIZATION;
            let message = format!("the organization already has {most} subscriptions on NATS; delete some");
            Refusal::new(RefusalKind::Conflict, message)
        })
    }

    fn change(&self, id: SubscriptionId, event: SubscriptionEvent) -> Result<Option<Draft>, Refusal> {
        let known = self.known(id)?;
        Ok(Some(draft(known.organization, id, known.version, event)))
    }
}

fn draft(organization: OrganizationId, id: SubscriptionId, expected: u64, event: SubscriptionEvent) -> Draft {
    let aggregate = AggregateRef::new(AggregateKind::Subscription, id);
    Draft { organization, aggregate, expected, events: vec![event.into()] }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_some_and(|byte| byte != b'-');
    if begins && name.len() <= LONGEST_NAME && name.bytes().all(fine) {
        return Ok(());
    }
    let message = format!(
        "must have 1 to {LONGEST_NAME} lower-case letters, digits and hyphens, and begin with no hyphen"
    );
    Err(Refusal::invalid("name", message))
}

impl Decides for State {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Subscription];

    type Given = Given;

    fn make(&self, given: &Given) -> Result<Option<Draft>, Refusal> {
        match given.clone() {
            Given::Create { organization, name, filter, way, from } => {
                let subscription = SubscriptionId::derive(organization, &name);
                let (webhook, consumer) = match way {
                    WantedWay::Webhook(webhook) => (Some(webhook), None),
                    WantedWay::Consumer => (None, Some(self.free_consumer(organization)?)),
                };
                let created = SubscriptionCreated { subscription, name, filter, webhook, consumer, from };
                self.create(created, organization)
            }
            Given::Rotate { subscription, at } => {
                let secret = self.sent(subscription)?.secret.saturating_add(1);
                let former_until = at.plus_millis(BOTH_SECRETS_MILLIS);
                let rotated = SubscriptionSecretRotated { subscription, secret, former_until };
                self.change(subscription, SubscriptionEvent::SubscriptionSecretRotated(rotated))
            }
            Given::Replay { subscription, from: None } if self.known(subscription)?.paused.is_some() => {
                let message = "the subscription is paused; resume it";
                Err(Refusal::new(RefusalKind::Conflict, message))
            }
            Given::Replay { subscription, from } => {
                let replayed = SubscriptionReplayed { subscription, from };
                self.change(subscription, SubscriptionEvent::SubscriptionReplayed(replayed))
            }
            // It is as it should be already.
            Given::Pause { subscription } if self.known(subscription)?.paused.is_some() => Ok(None),
            Given::Pause { subscription } => {
                let paused = SubscriptionPaused { subscription };
                self.change(subscription, SubscriptionEvent::SubscriptionPaused(paused))
            }
            Given::Resume { subscription } => {
                let resumed = SubscriptionResumed { subscription };
                self.change(subscription, SubscriptionEvent::SubscriptionResumed(resumed))
            }
            Given::Resend { subscription, sequences } => {
                if sequences.len() > LETTERS_AT_ONCE {
                    let message = format!("names more than {LETTERS_AT_ONCE}; name none to send all again");
                    return Err(Refusal::invalid("sequences", message));
                }
                self.sent(subscription)?;
                let resent = DeadLettersResent { subscription, sequences };
                self.change(subscription, SubscriptionEvent::DeadLettersResent(resent))
            }
            Given::Delete { subscription } => {
                let deleted = SubscriptionDeleted { subscription };
                self.change(subscription, SubscriptionEvent::SubscriptionDeleted(deleted))
            }
        }
    }

    fn read_set(&self, given: &Given) -> ReadSet {
        let organization = match given {
            Given::Create { organization, .. } => Some(*organization),
            Given::Rotate { subscription, .. }
            | Given::Replay { subscription, .. }
            | Given::Pause { subscription }
            | Given::Resume { subscription }
            | Given::Resend { subscription, .. }
            | Given::Delete { subscription } => {
                self.subscriptions.get(subscription).map(|known| known.organization)
            }
        };
        organization.map(ReadSet::decisions_of).unwrap_or_default()
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        let Ok(id) = aggregate.id.parse::<SubscriptionId>() else { return 0 };
        let known = self.subscriptions.get(&id).map(|known| known.version);
        known.or_else(|| self.deleted.get(&id).copied()).unwrap_or(0)
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        match aggregate.kind {
            AggregateKind::Subscription => Some(yaml(self.subscriptions.get(&aggregate.id.parse().ok()?)?)),
            _ => None,
        }
    }
}
