//! Consumers of exports, as JetStream keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use events::export::TypePattern;
use events::position::Stream;
use events::subject::{Subject, partition_of_organization};
use events::{ConsumerName, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::nats::{ApiError, Link, check};
use super::records::stream_name;
use super::server::{Page, Server as _, ServerError};
use crate::consumers::{Consumer, ConsumerError, ExportConsumers, NewConsumer};

/// After this an event that was given out and not acknowledged is given out again: long enough for a program that calls others, short
/// enough that one which died holds up nothing for long.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);
/// Events that are given out and not acknowledged; the server remembers each. With the largest events these are 128 MiB.
const MOST_UNACKNOWLEDGED: u64 = 256;
/// Requests that wait for events: programs of one organization that fetch at once.
const MOST_WAITING: u64 = 64;
/// How long one request may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Where a consumer says what it was made for.
const PURPOSE: &str = "kasbah-purpose";
const NO_CONSUMER: u64 = 10014;
/// Until when a consumer is paused: until somebody lets it go on. The servers want a time, and count no further than 292 years.
const FOR_GOOD: &str = "2200-01-01T00:00:00Z";

/// What a program outside may publish to use one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSubjects {
    /// To fetch events.
    pub fetch: String,
    /// To acknowledge them.
    pub acknowledge: String,
}

impl ConsumerSubjects {
    /// Of a consumer on a log with so many partitions.
    #[must_use]
    pub fn of(name: ConsumerName, partitions: u16) -> Self {
        let stream = exports_of(name, partitions);
        Self {
            fetch: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
            // The longer form, which names the server's domain before the stream, cannot be granted: it matches acknowledgements of others.
            acknowledge: format!("$JS.ACK.{stream}.{name}.>"),
        }
    }
}

/// The stream that has the exports of a consumer's organization.
fn exports_of(name: ConsumerName, partitions: u16) -> String {
    stream_name((Stream::Exports, partition_of_organization(name.organization, partitions)))
}

/// Consumers of exports on the servers.
pub(super) struct JetStreamConsumers {
    pub(super) link: Arc<Link>,
    pub(super) partitions: u16,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ListAnswer {
    error: Option<ApiError>,
    #[serde(default)]
    total: usize,
    #[serde(default)]
    consumers: Vec<Info>,
}

#[derive(Deserialize)]
struct InfoAnswer {
    error: Option<ApiError>,
    #[serde(flatten)]
    info: Option<Info>,
}

#[derive(Deserialize)]
struct Info {
    stream_name: String,
    name: String,
    config: Config,
    delivered: Reached,
    ack_floor: Reached,
    #[serde(default)]
    num_ack_pending: u64,
    #[serde(default)]
    num_redelivered: u64,
    #[serde(default)]
    num_pending: u64,
    #[serde(default)]
    paused: bool,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    opt_start_seq: u64,
    #[serde(default)]
    filter_subject: String,
    #[serde(default)]
    filter_subjects: Vec<String>,
}

#[derive(Deserialize)]
struct Reached {
    #[serde(default)]
    stream_seq: u64,
    last_active: Option<String>,
}

impl Reached {
    fn at(&self) -> Option<Timestamp> {
        self.last_active.as_deref().and_then(|text| Timestamp::parse(text).ok())
    }
}

impl From<Info> for Consumer {
    fn from(info: Info) -> Self {
        Self {
            stream: info.stream_name,
            purpose: info.config.metadata.get(PURPOSE).cloned().unwrap_or_default(),
            paused: info.paused,
            pending: info.num_pending,
            unacknowledged: info.num_ack_pending,
            redelivered: info.num_redelivered,
            fetched_at: info.delivered.at(),
            acknowledged_at: info.ack_floor.at(),
        }
    }
}

impl From<ServerError> for ConsumerError {
    fn from(error: ServerError) -> Self {
        Self { detail: error.0 }
    }
}

impl JetStreamConsumers {
    /// A consumer of a stream, unless there is none.
    async fn info(&self, name: ConsumerName) -> Result<Option<Info>, ServerError> {
        let stream = exports_of(name, self.partitions);
        let answer: InfoAnswer = self.link.api(&format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await?;
        match answer.error {
            Some(error) if error.err_code == NO_CONSUMER => Ok(None),
            error => check(error, &stream).map(|()| answer.info),
        }
    }

    /// When the oldest event was exported that was not acknowledged.
    async fn oldest_of(&self, info: &Info) -> Result<Option<Timestamp>, ServerError> {
        let Config { opt_start_seq, filter_subject, filter_subjects, .. } = &info.config;
        let filters = filter_subjects.iter().chain(Some(filter_subject).filter(|filter| !filter.is_empty()));
        let mut oldest: Option<(u64, Timestamp)> = None;
        for filter in filters {
            let page = Page {
                stream: info.stream_name.clone(),
                from: (info.ack_floor.stream_seq + 1).max(*opt_start_seq),
                most: 1,
                subject: Some(filter.clone()),
            };
            for stored in self.link.page(&page).await? {
                let found = (stored.sequence, stored.recorded_at);
                oldest = Some(oldest.map_or(found, |before| before.min(found)));
            }
        }
        Ok(oldest.map(|(_, at)| at))
    }
}

#[async_trait]
impl ExportConsumers for JetStreamConsumers {
    async fn list(&self) -> Result<BTreeMap<ConsumerName, Consumer>, ConsumerError> {
        let mut all = BTreeMap::new();
        for partition in 0..self.partitions {
            let stream = stream_name((Stream::Exports, partition));
            let mut offset = 0;
            loop {
                let question = json!({ "offset": offset });
                let answer: ListAnswer = self.link.api(&format!("CONSUMER.LIST.{stream}"), &question).await?;
                check(answer.error, &stream)?;
                let (count, total) = (answer.consumers.len(), answer.total);
                for info in answer.consumers {
                    if let Ok(name) = info.name.parse() {
                        all.insert(name, Consumer::from(info));
                    }
                }
                offset += count;
                if count == 0 || offset >= total {
                    break;
                }
            }
        }
        Ok(all)
    }

    async fn find(&self, name: ConsumerName) -> Result<Option<Consumer>, ConsumerError> {
        Ok(self.info(name).await?.map(Consumer::from))
    }

    async fn oldest(&self, name: ConsumerName) -> Result<Option<Timestamp>, ConsumerError> {
        let Some(info) = self.info(name).await? else { return Ok(None) };
        match info.num_pending > 0 || info.num_ack_pending > 0 {
            true => Ok(self.oldest_of(&info).await?),
            false => Ok(None),
        }
    }

    async fn pause(&self, name: ConsumerName, pause: bool) -> Result<(), ConsumerError> {
        let stream = exports_of(name, self.partitions);
        let question = if pause { json!({ "pause_until": FOR_GOOD }) } else { json!({}) };
        let answer: Answer = self.link.api(&format!("CONSUMER.PAUSE.{stream}.{name}"), &question).await?;
        unless_gone(answer, &stream)
    }

    async fn make(&self, wanted: &NewConsumer) -> Result<(), ConsumerError> {
        self.delete(wanted.name).await?;
        let stream = exports_of(wanted.name, self.partitions);
        let question = json!({ "stream_name": stream, "config": config(wanted, self.partitions) });
        let name = format!("CONSUMER.CREATE.{stream}.{}", wanted.name);
        let answer: Answer = self.link.api(&name, &question).await?;
        Ok(check(answer.error, &stream)?)
    }

    async fn delete(&self, name: ConsumerName) -> Result<(), ConsumerError> {
        let stream = exports_of(name, self.partitions);
        let answer: Answer = self.link.api(&format!("CONSUMER.DELETE.{stream}.{name}"), &json!({})).await?;
        unless_gone(answer, &stream)
    }
}

/// An answer to what may well be about a consumer that is not there.
fn unless_gone(answer: Answer, stream: &str) -> Result<(), ConsumerError> {
    match answer.error {
        Some(error) if error.err_code == NO_CONSUMER => Ok(()),
        error => Ok(check(error, stream)?),
    }
}

/// A consumer's settings. It has no threshold of inactivity: event-relay deletes it with its subscription, and what it costs while nobody
/// fetches is bounded by what is given out at once.
fn config(wanted: &NewConsumer, partitions: u16) -> Value {
    let partition = partition_of_organization(wanted.name.organization, partitions);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let subject = |rest: &str| Subject::exported(partition, wanted.name.organization, rest).to_string();
    let filters: Vec<String> = filters(&wanted.types).iter().map(|rest| subject(rest)).collect();
    let name = wanted.name.to_string();
    json!({
        "name": name,
        "durable_name": name,
        "description": "exported events of an organization",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": wanted.behind.sequence((Stream::Exports, partition)) + 1,
        "ack_policy": "explicit",
        "ack_wait": nanos(ACKNOWLEDGED_WITHIN),
        "max_ack_pending": MOST_UNACKNOWLEDGED,
        "max_waiting": MOST_WAITING,
        "max_batch": MOST_UNACKNOWLEDGED,
        "max_expires": nanos(LONGEST_WAIT),
        "filter_subjects": filters,
        "metadata": { PURPOSE: wanted.purpose },
        "pause_until": wanted.paused.then_some(FOR_GOOD),
    })
}

/// What follows the organization in the subjects of these types. No filter may have what another one has.
fn filters(types: &[TypePattern]) -> Vec<String> {
    if types.is_empty() {
        return vec![">".to_owned()];
    }
    let texts: Vec<String> = types.iter().map(ToString::to_string).collect();
    let covers = |wide: &str, narrow: &str| {
        wide != narrow && wide.strip_suffix('*').is_some_and(|prefix| narrow.starts_with(prefix))
    };
    let mut kept: Vec<&String> =
        texts.iter().filter(|text| !texts.iter().any(|other| covers(other, text))).collect();
    kept.sort();
    kept.dedup();
    let filter =
        |text: &String| text.strip_suffix('*').map_or_else(|| text.clone(), |prefix| format!("{prefix}>"));
    kept.into_iter().map(filter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_do_not_overlap() {
        let filters = |types: &[&str]| {
            let types: Vec<TypePattern> = types.iter().map(|text| text.parse().unwrap()).collect();
            filters(&types)
        };
        assert_eq!(filters(&[]), [">"]);
        assert_eq!(filters(&["*", "kasbah.sync.*", "kasbah.sync.finished"]), [">"]);
        assert_eq!(
            filters(&["kasbah.sync.finished", "kasbah.sync.*", "kasbah.token.issued", "kasbah.token.issued"]),
            ["kasbah.sync.>", "kasbah.token.issued"]
        );
    }
}
