//! `kasbah subscription …`.

use events::export::{EventFilter, TypePattern};
use events::requests::subscriptions::{
    ConsumerView, CreateSubscription, DeadLetterList, EventReaderView, NewSubscription, PauseSubscription,
    ReplaySubscription, ResendDeadLetters, ResumeSubscription, RotateSubscriptionSecret, SubscriptionList,
    SubscriptionState, SubscriptionView,
};
use events::subscription::WebhookFormat;
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::print::{Cell, Fields, Paint, Style, Table, age, one_line};
use crate::client::session::Session;

/// What to do with subscriptions.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Send events to a webhook, and print the secret that signs them, once; or have a program fetch them from NATS
    Create(Box<Create>),
    /// List subscriptions, and who follows events over HTTP now: how far each is
    #[command(visible_alias = "list")]
    Ls,
    /// Show a subscription, and how it stands
    Show {
        /// Name or id
        subscription: String,
    },
    /// Delete a subscription
    Delete {
        /// Name or id
        subscription: String,
    },
    /// Send nothing until the subscription is resumed; it stays where it is
    Pause {
        /// Name or id
        subscription: String,
    },
    /// Let a paused or parked subscription go on from where it is
    Resume {
        /// Name or id
        subscription: String,
    },
    /// Send events again
    Replay {
        /// Name or id
        subscription: String,
        /// Send again from here: a time such as 2026-01-31T12:00:00Z, the position of an event, or `start`; by default from where it is
        #[arg(long, value_name = "POSITION")]
        from: Option<String>,
    },
    /// Make another secret; the former one signs, too, for a day
    Rotate {
        /// Name or id
        subscription: String,
    },
    /// List the events that the receiver refused, or send them again
    DeadLetters {
        /// Name or id
        subscription: String,
        /// Send them again, once each
        #[arg(long)]
        resend: bool,
        /// Send again only the event of this number; may be given more than once
        #[arg(long = "number", value_name = "NUMBER", requires = "resend")]
        sequences: Vec<u64>,
    },
}

/// A new subscription.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// Name, unique in the organization: lower-case letters, digits and hyphens
    name: String,
    /// Address of the webhook
    #[arg(long, value_name = "URL", required_unless_present = "nats")]
    webhook: Option<String>,
    /// Make a durable consumer on NATS instead, from which a program with the organization's account fetches events
    #[arg(long, conflicts_with_all = ["webhook", "format", "project", "environment"])]
    nats: bool,
    /// Types of events, such as kasbah.sync.finished or 'kasbah.sync.*', separated by commas; by default all
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    types: Vec<TypePattern>,
    /// Only events about this environment: its id, or its name together with --project
    #[arg(long)]
    environment: Option<String>,
    /// Only events about this project: group/name, or id
    #[arg(long)]
    project: Option<String>,
    /// What to send to the webhook: events as they are, or messages for people; by default events
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Send from here: a time, the position of an event, or `start`; by default from now on
    #[arg(long, value_name = "POSITION")]
    from: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// CloudEvents in JSON
    CloudEvents,
    /// Messages for Slack and those that are compatible
    Slack,
    /// The same messages as JSON with their parts
    Message,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Create(wanted) => create(session, *wanted).await,
        Command::Ls => {
            let all: SubscriptionList = session.api.get(&["subscriptions"], &[]).await?;
            session.printer.show(&all, |all, style| table(&all.items, style) + &readers(&all.readers, style))
        }
        Command::Show { subscription } => {
            let one = session.api.get(&["subscriptions", &subscription], &[]).await?;
            session.printer.show(&one, details)
        }
        Command::Delete { subscription } => {
            let one: SubscriptionView = session.api.delete(&["subscriptions", &subscription]).await?;
            session.printer.show(&one, |one, _| format!("subscription {} is deleted\n", one.name))
        }
        Command::Pause { subscription } => {
            let path = ["subscriptions", &subscription, "pause"];
            let body = PauseSubscription { subscription: subscription.clone() };
            let one: SubscriptionView = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&one, details)
        }
        Command::Resume { subscription } => {
            let path = ["subscriptions", &subscription, "resume"];
            let body = ResumeSubscription { subscription: subscription.clone() };
            let one: SubscriptionView = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&one, details)
        }
        Command::Replay { subscription, from } => {
            let path = ["subscriptions", &subscription, "replay"];
            let body = ReplaySubscription { subscription: subscription.clone(), from };
            let one: SubscriptionView = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&one, details)
        }
        Command::Rotate { subscription } => {
            let path = ["subscriptions", &subscription, "secrets"];
            let body = RotateSubscriptionSecret { subscription: subscription.clone() };
            let new: NewSubscription = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&new, with_secret)
        }
        Command::DeadLetters { subscription, resend: true, sequences } => {
            let path = ["subscriptions", &subscription, "dead-letters", "resend"];
            let body = ResendDeadLetters { subscription: subscription.clone(), sequences };
            let one: SubscriptionView = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&one, details)
        }
        Command::DeadLetters { subscription, .. } => {
            let path = ["subscriptions", &subscription, "dead-letters"];
            let all: DeadLetterList = session.api.get(&path, &[]).await?;
            session.printer.show(&all, letters)
        }
    }
}

async fn create(session: &Session, wanted: Create) -> Result<(), Failure> {
    let format = wanted.format.map(|format| match format {
        Format::CloudEvents => WebhookFormat::CloudEvents,
        Format::Slack => WebhookFormat::Slack,
        Format::Message => WebhookFormat::Message,
    });
    let body = CreateSubscription {
        name: wanted.name,
        url: wanted.webhook,
        nats: wanted.nats,
        format,
        types: wanted.types,
        project: wanted.project,
        environment: wanted.environment,
        from: wanted.from,
    };
    let new: NewSubscription = session.api.send(Method::POST, &["subscriptions"], &body).await?;
    session.printer.show(&new, with_secret)
}

fn with_secret(new: &NewSubscription, style: Style) -> String {
    let details = details(&new.subscription, style);
    let Some(secret) = &new.secret else { return details };
    let secret = Fields::new().with("Secret", secret.as_str()).render(style);
    details + &secret + "The secret is shown only now. Receivers verify webhook-signature with it.\n"
}

const fn state(of: SubscriptionState) -> (&'static str, Paint) {
    match of {
        SubscriptionState::Active => ("active", Paint::Good),
        SubscriptionState::Retrying => ("retrying", Paint::Odd),
        SubscriptionState::Parked => ("parked", Paint::Bad),
        SubscriptionState::Paused => ("paused", Paint::Odd),
    }
}

fn types(filter: &EventFilter) -> String {
    match filter.types.as_slice() {
        [] => "all".to_owned(),
        types => types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn table(all: &[SubscriptionView], style: Style) -> String {
    let columns = ["NAME", "STATE", "TO", "TYPES", "BEHIND", "LAG", "DELIVERED", "DEAD LETTERS"];
    let mut table = Table::new(&columns);
    for one in all {
        let (word, paint) = state(one.state);
        let consumer = one.consumer.as_ref();
        let delivered = consumer.map_or(one.delivered_at, |consumer| consumer.acknowledged_at);
        let lag = one.oldest.map(|oldest| age(oldest, style.now));
        table.row([
            one.name.as_str().into(),
            Cell::painted(word, paint),
            one.url.as_deref().unwrap_or("NATS").into(),
            types(&one.filter).as_str().into(),
            Cell::or_dash(one.behind.map(|behind| behind.to_string()).as_deref()),
            Cell::or_dash(lag.as_deref()),
            Cell::or_dash(delivered.map(|at| age(at, style.now)).as_deref()),
            one.dead_letters.to_string().as_str().into(),
        ]);
    }
    table.render(style, "no subscription")
}

/// Who follows events over HTTP; nothing where nobody does.
fn readers(all: &[EventReaderView], style: Style) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["READER OF /api/events", "SINCE", "TYPES", "BEHIND", "LAG"]);
    for one in all {
        table.row([
            one.actor.to_string().as_str().into(),
            age(one.since, style.now).as_str().into(),
            types(&one.filter).as_str().into(),
            Cell::or_dash(one.behind.map(|behind| behind.to_string()).as_deref()),
            Cell::or_dash(one.oldest.map(|oldest| age(oldest, style.now)).as_deref()),
        ]);
    }
    format!("\n{}", table.render(style, ""))
}

fn details(one: &SubscriptionView, style: Style) -> String {
    let (word, paint) = state(one.state);
    let time = |at: Option<events::Timestamp>| at.map(|at| at.to_string());
    let consumer = one.consumer.as_ref();
    let oldest = one.oldest.map(|oldest| format!("{}, oldest event of {oldest}", age(oldest, style.now)));
    let letters = one.url.as_ref().map(|_| one.dead_letters.to_string());
    Fields::new()
        .with("Subscription", one.name.as_str())
        .with("State", Cell::painted(word, paint))
        .with_some("Why", Some(one_line(&one.reason)).filter(|reason| !reason.is_empty()).as_deref())
        .with_some("Since", time(one.since).as_deref())
        .with_some("Next attempt", time(one.retry_at).as_deref())
        .with_some("Webhook", one.url.as_deref())
        .with_some("Stream", consumer.map(|consumer| consumer.stream.as_str()))
        .with_some("Consumer", consumer.map(|consumer| consumer.name.as_str()))
        .with_some("Pending", consumer.map(|consumer| consumer.pending.to_string()).as_deref())
        .with_some("Unacknowledged", consumer.map(unacknowledged).as_deref())
        .with_some("Fetched", time(consumer.and_then(|consumer| consumer.fetched_at)).as_deref())
        .with_some("Acknowledged", time(consumer.and_then(|consumer| consumer.acknowledged_at)).as_deref())
        .with("Types", types(&one.filter).as_str())
        .with_some("Project", one.filter.project.map(|id| id.to_string()).as_deref())
        .with_some("Environment", one.filter.environment.map(|id| id.to_string()).as_deref())
        .with_some("Position", one.position.as_deref())
        .with_some("Behind", one.behind.map(|behind| format!("{behind} events")).as_deref())
        .with_some("Lag", oldest.as_deref())
        .with_some("Delivered", time(one.delivered_at).as_deref())
        .with_some("Dead letters", letters.as_deref())
        .render(style)
}

/// Events that a program has and did not acknowledge.
fn unacknowledged(consumer: &ConsumerView) -> String {
    match consumer.redelivered {
        0 => consumer.unacknowledged.to_string(),
        again => format!("{} ({again} given out more than once)", consumer.unacknowledged),
    }
}

fn letters(all: &DeadLetterList, style: Style) -> String {
    let mut table = Table::new(&["NUMBER", "TYPE", "GIVEN UP", "REASON", "EVENT"]);
    for letter in &all.items {
        table.row([
            letter.sequence.to_string().as_str().into(),
            letter.event_type.as_str().into(),
            age(letter.at, style.now).as_str().into(),
            one_line(&letter.reason).as_str().into(),
            letter.event.as_str().into(),
        ]);
    }
    let mut text = table.render(style, "no dead letter");
    if all.dropped > 0 {
        text += &format!("{} older ones were given up for good\n", all.dropped);
    }
    text
}
