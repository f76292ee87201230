//! Storing commits together. A server that keeps one replica syncs each message by itself before it takes the next one, and an atomic
//! batch once (NATS ADR-50). So while some messages are under way others wait, and go as one batch. What the server does not take as
//! a batch goes message by message, and each hears what is said of it alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_nats::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::link::Link;
use super::{acknowledgement, headers, not_asked};
use crate::jetstream::server::{Ack, Publish, PublishError};

/// Requests under way for one stream before the next message waits.
const UNDER_WAY: usize = 8;
/// Messages that make a batch worth its while: the server keeps each batch in files of its own until it is whole.
const FEWEST: usize = 24;
/// Messages of one batch; a server takes 1,000.
const MOST: usize = 256;
/// Bytes of one batch, about.
const MOST_BYTES: usize = 4 * 1024 * 1024;

type Outcome = Result<Ack, PublishError>;

/// Messages that wait, by stream.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<String, Group>>);

#[derive(Default)]
struct Group {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    message: Publish,
    turn: oneshot::Sender<Turn>,
}

/// What becomes of a message that waited.
enum Turn {
    /// It went with others.
    Over(Outcome),
    /// It is to go alone.
    Alone(Box<Place>),
}

/// A place among the requests that are under way for a stream. When it is given back, it is the next one's.
struct Place {
    link: Link,
    groups: Arc<Groups>,
    stream: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = self.groups.0.lock().get_mut(&self.stream) {
            group.under_way -= 1;
        }
        fill_places(&self.link, &self.groups, &self.stream);
    }
}

impl Place {
    fn new(link: &Link, groups: &Arc<Groups>, stream: &str) -> Self {
        Self { link: link.clone(), groups: Arc::clone(groups), stream: stream.to_owned() }
    }

    /// One more, beyond what is under way at once otherwise.
    fn another(&self) -> Self {
        self.groups.0.lock().entry(self.stream.clone()).or_default().under_way += 1;
        Self::new(&self.link, &self.groups, &self.stream)
    }
}

/// Stores a message, together with others where many come at once.
pub(super) async fn publish(link: &Link, groups: &Arc<Groups>, message: &Publish) -> Outcome {
    let turn = groups.0.lock().entry(message.stream.clone()).or_default().enter(message);
    let _place = match turn {
        None => Place::new(link, groups, &message.stream),
        Some(turn) => match turn.await {
            Ok(Turn::Alone(place)) => *place,
            Ok(Turn::Over(outcome)) => return outcome,
            Err(_) => return Err(PublishError::Unknown("this process is going".to_owned())),
        },
    };
    link.publish_alone(message).await
}

impl Group {
    /// Takes a place, or waits for one.
    fn enter(&mut self, message: &Publish) -> Option<oneshot::Receiver<Turn>> {
        if self.under_way < UNDER_WAY && self.waiting.is_empty() {
            self.under_way += 1;
            return None;
        }
        let (turn, waits) = oneshot::channel();
        self.waiting.push_back(Waiting { message: message.clone(), turn });
        Some(waits)
    }

    /// Those whose turn it is, in a place that is free.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        // Whoever waited may have given up.
        while self.waiting.front().is_some_and(|first| first.turn.is_closed()) {
            self.waiting.pop_front();
        }
        if self.under_way >= UNDER_WAY || self.waiting.is_empty() {
            return None;
        }
        self.under_way += 1;
        let most = if self.waiting.len() < FEWEST { 1 } else { MOST };
        let mut bytes = 0;
        let fit = self.waiting.iter().take(most).take_while(|waiting| {
            bytes += waiting.message.payload.len();
            bytes <= MOST_BYTES
        });
        let count = fit.count().max(1);
        Some(self.waiting.drain(..count).collect())
    }
}

fn fill_places(link: &Link, groups: &Arc<Groups>, stream: &str) {
    loop {
        let next = groups.0.lock().get_mut(stream).and_then(Group::next);
        let Some(mut next) = next else { return };
        let place = Place::new(link, groups, stream);
        match (next.pop(), next.is_empty()) {
            (Some(only), true) => drop(only.turn.send(Turn::Alone(Box::new(place)))),
            (last, _) => {
                next.extend(last);
                let task = Box::pin(async move { store(&place, next).await });
                link.world.spawner.spawn("batch of commits", task);
            }
        }
    }
}

async fn store(place: &Place, batch: Vec<Waiting>) {
    let stored = publish_batch(&place.link, batch.iter().map(|waiting| &waiting.message)).await;
    for (number, waiting) in (0..).zip(batch) {
        let turn = match &stored {
            Ok(first) => Turn::Over(Ok(Ack { sequence: first + number, duplicate: false })),
            Err(error @ (PublishError::Away(_) | PublishError::Unknown(_))) => Turn::Over(Err(error.clone())),
            // Nothing of it is stored. Which message it was because of is heard by sending each alone.
            Err(_) => Turn::Alone(Box::new(place.another())),
        };
        drop(waiting.turn.send(turn));
    }
}

/// Stores all or nothing; gives the first one's sequence.
async fn publish_batch(
    link: &Link,
    messages: impl ExactSizeIterator<Item = &Publish>,
) -> Result<u64, PublishError> {
    let (id, count) = (link.world.new_uuid().simple().to_string(), messages.len());
    for (number, message) in (1..).zip(messages) {
        let mut headers: HeaderMap = headers(message);
        headers.insert("Nats-Batch-Id", id.as_str());
        headers.insert("Nats-Batch-Sequence", number.to_string());
        let (subject, payload) = (message.subject.as_str(), message.payload.clone());
        if number < count {
            let sent = link.publish_with_headers(subject, headers, payload).await;
            sent.map_err(|error| PublishError::Unknown(error.0))?;
            continue;
        }
        headers.insert("Nats-Batch-Commit", "1");
        let answer = link.ask(subject, Some(headers), payload).await;
        let last = match answer {
            Ok(answer) => acknowledgement(&answer.payload),
            Err(error) => Err(not_asked(error, &message.stream)),
        };
        link.heard_of(&last).await;
        return Ok(last?.sequence + 1 - count as u64);
    }
    Err(PublishError::Refused("a batch of nothing".to_owned()))
}
