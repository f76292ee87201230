//! The real server, over one connection.

mod durability;
mod group;
mod link;
mod replay;
mod streams;

use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use events::Timestamp;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::server::{Ack, Extent, Live, Page, Piece, Publish, PublishError, Server, ServerError, Stored};
pub(super) use durability::{Promise, QUESTION};
pub(super) use link::{AskError, Link};
pub use streams::Difference;
pub(super) use streams::{Wanted, ensure, not_made};

/// How long a server may take for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
pub(super) const DIRECT_GET: &str = "$JS.API.DIRECT.GET.";
/// The header of a copied record that says when the original was taken, in milliseconds.
const RECORDED_AT: &str = "Kasbah-Recorded-At";
/// Stored messages that wait for a subscriber before some are dropped.
const WAITING: usize = 4096;
/// Bytes after which a server ends a page.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

const WRONG_LAST_SEQUENCE: u64 = 10071;
const WRONG_LAST_SEQUENCE_UNDER_WAY: u64 = 10164;
const DUPLICATE_UNDER_WAY: u64 = 10158;
const NO_MESSAGE: u64 = 10037;
/// The class of errors that pass.
const UNAVAILABLE: u16 = 503;

/// A server's complaint, as the JetStream API gives it.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct AckAnswer {
    error: Option<ApiError>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

#[derive(Deserialize)]
struct MessageAnswer {
    error: Option<ApiError>,
    message: Option<StoredMessage>,
}

/// As `STREAM.MSG.GET` gives it, bytes in base64.
#[derive(Deserialize)]
struct StoredMessage {
    subject: String,
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: String,
}

#[derive(Deserialize)]
struct InfoAnswer {
    error: Option<ApiError>,
    state: Option<StateAnswer>,
    cluster: Option<ClusterAnswer>,
}

#[derive(Deserialize)]
struct ClusterAnswer {
    #[serde(default)]
    leader: String,
}

#[derive(Deserialize)]
struct StateAnswer {
    first_seq: u64,
    last_seq: u64,
    bytes: u64,
}

impl Link {
    async fn publish_alone(&self, message: &Publish) -> Result<Ack, PublishError> {
        let answer = self.ask(&message.subject, Some(headers(message)), message.payload.clone()).await;
        let acknowledged = match answer {
            Ok(answer) => acknowledgement(&answer.payload),
            Err(error) => Err(not_asked(error, &message.stream)),
        };
        self.heard_of(&acknowledged).await;
        acknowledged
    }

    /// To be told what became of a message.
    async fn heard_of(&self, acknowledged: &Result<Ack, PublishError>) {
        let by_leader =
            matches!(acknowledged, Ok(_) | Err(PublishError::Expectation | PublishError::Refused(_)));
        self.note_leader(by_leader).await;
    }
}

fn headers(message: &Publish) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", message.stream.as_str());
    if let Some(id) = &message.id {
        headers.insert("Nats-Msg-Id", id.as_str());
    }
    if let Some(expected) = message.expected {
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
    }
    if let Some(copied) = message.copied {
        headers.insert("Nats-Expected-Last-Sequence", copied.behind.to_string());
        headers.insert(RECORDED_AT, copied.recorded_at.0.to_string());
    }
    for (name, value) in &message.headers {
        headers.insert(*name, value.as_str());
    }
    headers
}

fn not_asked(error: AskError, stream: &str) -> PublishError {
    match error {
        AskError::NotSent(detail) => PublishError::Away(detail),
        AskError::Nobody => PublishError::Away(format!("the stream {stream} has no leader")),
        AskError::NoAnswer(detail) => PublishError::Unknown(detail),
    }
}

#[async_trait]
impl Server for Link {
    async fn publish(&self, message: &Publish) -> Result<Ack, PublishError> {
        match &self.groups {
            // Of messages that expect nothing, such as one agent's observations, the order counts.
            Some(groups) if message.expected.is_some() && message.copied.is_none() => {
                group::publish(self, groups, message).await
            }
            _ => self.publish_alone(message).await,
        }
    }

    async fn newest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        let question = json!({ "last_by_subj": subject });
        let answer: Result<MessageAnswer, _> = self.api(&format!("STREAM.MSG.GET.{stream}"), &question).await;
        let newest = answer.and_then(|answer| match (answer.error, answer.message) {
            (Some(error), _) if error.err_code == NO_MESSAGE => Ok(None),
            (Some(error), _) => Err(refused(stream, &error)),
            (None, Some(message)) => message.read().map(Some),
            (None, None) => Ok(None),
        });
        self.note_leader(newest.is_ok()).await;
        newest
    }

    async fn nearest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        let question = json!({ "last_by_subj": subject }).to_string();
        let answer = self.ask(&format!("{DIRECT_GET}{stream}"), None, question.into()).await?;
        match answer.status {
            None => of_direct_get(answer).map(Some),
            Some(StatusCode::NOT_FOUND) => Ok(None),
            Some(status) => Err(ServerError(format!("the stream {stream} answers {status}"))),
        }
    }

    async fn page(&self, page: &Page) -> Piece {
        let mut question = json!({ "seq": page.from, "batch": page.most, "max_bytes": PAGE_BYTES });
        if let (Some(subject), Value::Object(question)) = (&page.subject, &mut question) {
            question.insert("next_by_subj".to_owned(), json!(subject));
        }
        let mut answers = self.ask_all(format!("{DIRECT_GET}{}", page.stream), &question).await?;
        let mut messages: Vec<Stored> = Vec::new();
        while let Some(answer) = answers.next(self).await? {
            // Each names the one before it, so that one which was lost is missed.
            let before = number(&answer, "Nats-Last-Sequence");
            if before.is_some_and(|before| before != messages.last().map_or(0, |last| last.sequence)) {
                return Err(ServerError(format!("a page of {} has a gap", page.stream)));
            }
            match answer.status {
                None => messages.push(of_direct_get(answer)?),
                Some(StatusCode::NO_RESPONDERS) => {
                    return Err(ServerError(format!("the stream {} does not answer", page.stream)));
                }
                // The end of the batch, or nothing found.
                Some(status) if [204, 404].contains(&status.as_u16()) => break,
                Some(status) => {
                    let why = answer.description.unwrap_or_default();
                    return Err(ServerError(format!("the stream {} answers {status} {why}", page.stream)));
                }
            }
        }
        Ok(messages)
    }

    async fn replay(&self, stream: &str, from: u64, to: u64) -> Result<mpsc::Receiver<Piece>, ServerError> {
        self.replay_stretch(stream, from, to).await
    }

    async fn extent(&self, stream: &str) -> Result<Extent, ServerError> {
        let answer: Result<InfoAnswer, _> = self.api(&format!("STREAM.INFO.{stream}"), &json!({})).await;
        let extent = answer.and_then(|answer| answer.extent(stream));
        self.note_leader(extent.is_ok()).await;
        extent
    }

    async fn purge(&self, stream: &str, filter: &str, before: u64) -> Result<(), ServerError> {
        let question = json!({ "filter": filter, "seq": before });
        let answer: InfoAnswer = self.api(&format!("STREAM.PURGE.{stream}"), &question).await?;
        check(answer.error, stream)
    }

    async fn stored(&self, filter: &str) -> Result<mpsc::Receiver<Live>, ServerError> {
        let mut subscriber = self.subscribe(filter).await?;
        let mut interruptions = self.interruptions();
        let (to, live) = mpsc::channel(WAITING);
        let task = async move {
            loop {
                let heard = tokio::select! {
                    biased;
                    () = to.closed() => return,
                    interrupted = interruptions.changed() => match interrupted {
                        Ok(()) => Live::Missed,
                        Err(_) => return,
                    },
                    message = subscriber.next() => match message.map(of_direct_get) {
                        Some(Ok(stored)) => Live::Stored(stored),
                        Some(Err(error)) => {
                            tracing::warn!(%error, "a stored message is not readable");
                            Live::Missed
                        }
                        None => return,
                    },
                };
                if to.send(heard).await.is_err() {
                    return;
                }
            }
        };
        self.world.spawner.spawn("stored messages", Box::pin(task));
        Ok(live)
    }

    fn is_connected(&self) -> bool {
        self.connected()
    }
}

fn acknowledgement(answer: &[u8]) -> Result<Ack, PublishError> {
    let answer: AckAnswer = serde_json::from_slice(answer)
        .map_err(|error| PublishError::Unknown(format!("the acknowledgement is not readable: {error}")))?;
    let Some(error) = answer.error else {
        return Ok(Ack { sequence: answer.seq, duplicate: answer.duplicate });
    };
    let detail = format!("{} ({})", error.description, error.err_code);
    Err(match (error.code, error.err_code) {
        (_, WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_UNDER_WAY) => PublishError::Expectation,
        (_, DUPLICATE_UNDER_WAY) => PublishError::UnderWay,
        (UNAVAILABLE, _) => PublishError::Unknown(detail),
        _ => PublishError::Refused(detail),
    })
}

impl InfoAnswer {
    fn extent(self, stream: &str) -> Result<Extent, ServerError> {
        check(self.error, stream)?;
        // A server that is parted from the others still tells what it knew.
        if self.cluster.is_some_and(|cluster| cluster.leader.is_empty()) {
            return Err(ServerError(format!("the stream {stream} has no leader")));
        }
        let state = self.state.ok_or_else(|| ServerError(format!("the stream {stream} has no state")))?;
        Ok(Extent { first: state.first_seq, last: state.last_seq, bytes: state.bytes })
    }
}

/// The error of an answer about a stream, if it has one.
pub(super) fn check(error: Option<ApiError>, stream: &str) -> Result<(), ServerError> {
    error.map_or(Ok(()), |error| Err(refused(stream, &error)))
}

fn refused(stream: &str, error: &ApiError) -> ServerError {
    ServerError(format!("the stream {stream}: {} ({})", error.description, error.err_code))
}

impl StoredMessage {
    fn read(self) -> Result<Stored, ServerError> {
        let wrong = |what: &str| ServerError(format!("a message of {} has no readable {what}", self.subject));
        let payload = STANDARD.decode(&self.data).map_err(|_| wrong("data"))?;
        let headers = STANDARD.decode(&self.hdrs).map_err(|_| wrong("headers"))?;
        let headers = String::from_utf8_lossy(&headers);
        let header = |name: &str| {
            headers.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let taken = Timestamp::parse(&self.time).map_err(|_| wrong("time"))?;
        Ok(Stored {
            sequence: self.seq,
            recorded_at: recorded_at(header(RECORDED_AT), taken),
            id: header("Nats-Msg-Id").map(str::to_owned),
            payload: Bytes::from(payload),
            subject: self.subject,
        })
    }
}

/// When a record was taken: by the log that it was copied from, or by this one. No record was taken by another log after it was
/// copied.
fn recorded_at(header: Option<&str>, taken: Timestamp) -> Timestamp {
    header.and_then(|text| text.parse().ok()).map_or(taken, |original| Timestamp(original).min(taken))
}

fn number(message: &Message, header: &str) -> Option<u64> {
    message.headers.as_ref()?.get(header)?.as_str().parse().ok()
}

/// As direct gets and republished messages give it: what the server adds stands in headers.
fn of_direct_get(message: Message) -> Result<Stored, ServerError> {
    let wrong = |what: &str| ServerError(format!("a message has no readable {what}"));
    let headers = message.headers.as_ref().ok_or_else(|| wrong("headers"))?;
    let header = |name: &str| headers.get(name).map(|value| value.as_str());
    let sequence = header("Nats-Sequence").and_then(|text| text.parse().ok());
    let time = header("Nats-Time-Stamp").and_then(|text| Timestamp::parse(text).ok());
    Ok(Stored {
        subject: header("Nats-Subject").ok_or_else(|| wrong("subject"))?.to_owned(),
        sequence: sequence.ok_or_else(|| wrong("sequence"))?,
        recorded_at: recorded_at(header(RECORDED_AT), time.ok_or_else(|| wrong("time"))?),
        id: header("Nats-Msg-Id").map(str::to_owned),
        payload: message.payload,
    })
}
