//! Reading a long stretch of a stream: by a consumer that is gone afterwards.
//!
//! A direct get makes the server write six headers for each message; a consumer puts the same into one subject.

use std::time::Duration;

use async_nats::{Message, Subscriber};
use events::Timestamp;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::link::Link;
use super::{ANSWER_TIME, ApiError, RECORDED_AT, check, recorded_at};
use crate::jetstream::server::{Piece, ServerError, Stored};

/// Messages that one request asks for; a second one is always under way.
const ASKED: u64 = 256;
/// Messages that are handed on together, and about how many bytes.
const TOGETHER: usize = 256;
const TOGETHER_BYTES: usize = 1024 * 1024;
/// What is handed on and not taken yet.
const WAITING: usize = 4;
/// How long a server keeps a consumer that asks for nothing.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Created {
    error: Option<ApiError>,
}

/// One consumer, and what was asked of it.
struct Replay {
    stream: String,
    consumer: String,
    inbox: String,
    messages: Subscriber,
    /// Messages that were asked for and did not come yet.
    owed: u64,
    /// Messages that came: what the consumer counts as well.
    came: u64,
    next: u64,
    to: u64,
}

impl Link {
    /// Begins to read; what is wrong later comes as the last thing that is handed on.
    pub(super) async fn replay_stretch(
        &self,
        stream: &str,
        from: u64,
        to: u64,
    ) -> Result<mpsc::Receiver<Piece>, ServerError> {
        let consumer = format!("replay-{}", self.world.new_uuid().simple());
        let config = json!({
            "name": consumer, "deliver_policy": "by_start_sequence", "opt_start_seq": from, "ack_policy": "none",
            "replay_policy": "instant", "mem_storage": true, "num_replicas": 1,
            "inactive_threshold": u64::try_from(FORGOTTEN_AFTER.as_nanos()).unwrap_or(0),
        });
        let question = json!({ "stream_name": stream, "config": config });
        let created: Created = self.api(&format!("CONSUMER.CREATE.{stream}.{consumer}"), &question).await?;
        check(created.error, stream)?;
        let inbox = self.new_inbox();
        let messages = self.subscribe(&inbox).await?;
        let stream = stream.to_owned();
        let mut replay = Replay { stream, consumer, inbox, messages, owed: 0, came: 0, next: from, to };
        let (hand_on, handed) = mpsc::channel(WAITING);
        let link = self.clone();
        let task = async move {
            let outcome = replay.run(&link, &hand_on).await;
            let gone = format!("CONSUMER.DELETE.{}.{}", replay.stream, replay.consumer);
            // A consumer that stays is forgotten by the server.
            let _deleted = link.api::<Created>(&gone, &json!({})).await;
            if let Err(error) = outcome {
                // Nobody may be waiting any more.
                let _unheard = hand_on.send(Err(error)).await;
            }
        };
        self.world.spawner.spawn("log-replay", Box::pin(task));
        Ok(handed)
    }
}

impl Replay {
    async fn run(&mut self, link: &Link, hand_on: &mpsc::Sender<Piece>) -> Result<(), ServerError> {
        let mut interruptions = link.interruptions();
        let mut together = Vec::new();
        let mut bytes = 0;
        while self.next <= self.to {
            if self.owed < ASKED {
                self.ask(link).await?;
            }
            let message = tokio::select! {
                biased;
                _ = interruptions.changed() => None,
                message = self.messages.next() => message,
                () = link.world.clock.sleep(ANSWER_TIME) => None,
            };
            let message =
                message.ok_or_else(|| ServerError(format!("the replay of {} broke off", self.stream)))?;
            if let Some(status) = message.status {
                return Err(ServerError(format!("the replay of {} ends with {status}", self.stream)));
            }
            let (stored, delivered) = of_consumer(message)?;
            self.came += 1;
            // What a server sent while nobody was connected does not come again.
            if delivered != self.came {
                return Err(ServerError(format!("the replay of {} has a gap", self.stream)));
            }
            self.owed = self.owed.saturating_sub(1);
            self.next = stored.sequence + 1;
            bytes += stored.payload.len();
            if stored.sequence <= self.to {
                together.push(stored);
            }
            if together.len() < TOGETHER && bytes < TOGETHER_BYTES {
                continue;
            }
            bytes = 0;
            if hand_on.send(Ok(std::mem::take(&mut together))).await.is_err() {
                return Ok(());
            }
        }
        if !together.is_empty() {
            // Whoever does not take it any more has gone.
            let _gone = hand_on.send(Ok(together)).await;
        }
        Ok(())
    }

    async fn ask(&mut self, link: &Link) -> Result<(), ServerError> {
        let question =
            json!({ "batch": ASKED, "expires": u64::try_from(FORGOTTEN_AFTER.as_nanos()).unwrap_or(0) });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.consumer);
        link.publish_with_reply(subject, self.inbox.clone(), question.to_string().into()).await?;
        self.owed += ASKED;
        Ok(())
    }
}

/// A message as a consumer gives it, and how many it gave with it. What the server adds stands in the subject for the
/// acknowledgement, which has nine tokens, or two more behind the second one.
fn of_consumer(message: Message) -> Result<(Stored, u64), ServerError> {
    let wrong = || ServerError(format!("a message of {} has no readable position", message.subject));
    let position = message.reply.as_ref().ok_or_else(wrong)?;
    let tokens: Vec<&str> = position.split('.').collect();
    let further = if tokens.len() > 9 { 2 } else { 0 };
    let number = |at: usize| tokens.get(at + further).and_then(|token| token.parse::<u64>().ok());
    let (sequence, delivered) = number(5).zip(number(6)).ok_or_else(wrong)?;
    let nanos = number(7).ok_or_else(wrong)?;
    let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
    let taken = Timestamp(i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX));
    let stored = Stored {
        sequence,
        recorded_at: recorded_at(header(RECORDED_AT), taken),
        id: header("Nats-Msg-Id").map(str::to_owned),
        subject: message.subject.into_string(),
        payload: message.payload,
    };
    Ok((stored, delivered))
}
