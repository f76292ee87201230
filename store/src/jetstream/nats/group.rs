//! Storing commits together. A server that keeps one replica syncs each message by itself before it takes the next one, and an atomic
//! batch once (NATS ADR-50). So where many come at once some wait while others are under way, and go as one batch. What the server does
//! not take as a batch goes message by message, and each hears what is said of it alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_nats::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::link::Link;
use super::{acknowledgement, headers, not_asked};
use crate::jetstream::server::{Ack, Publish, PublishError};

/// Requests under way for one stream while messages are gathered into batches.
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
    /// Requests.
    under_way: usize,
    /// Messages of these.
    messages: usize,
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
    messages: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = self.groups.0.lock().get_mut(&self.stream) {
            group.end(self.messages);
        }
        fill_places(&self.link, &self.groups, &self.stream);
    }
}

impl Place {
    fn new(link: &Link, groups: &Arc<Groups>, stream: &str, messages: usize) -> Self {
        Self { link: link.clone(), groups: Arc::clone(groups), stream: stream.to_owned(), messages }
    }

    /// One more, beyond what is under way at once otherwise.
    fn another(&self) -> Self {
        self.groups.0.lock().entry(self.stream.clone()).or_default().begin(1);
        Self::new(&self.link, &self.groups, &self.stream, 1)
    }
}

/// Stores a message, together with others where many come at once.
pub(super) async fn publish(link: &Link, groups: &Arc<Groups>, message: &Publish) -> Outcome {
    let turn = groups.0.lock().entry(message.stream.clone()).or_default().enter(message);
    let _place = match turn {
        None => Place::new(link, groups, &message.stream, 1),
        Some(turn) => match turn.await {
            Ok(Turn::Alone(place)) => *place,
            Ok(Turn::Over(outcome)) => return outcome,
            Err(_) => return Err(PublishError::Unknown("this process is stopping".to_owned())),
        },
    };
    link.publish_alone(message).await
}

impl Group {
    fn begin(&mut self, messages: usize) {
        self.under_way += 1;
        self.messages += messages;
    }

    fn end(&mut self, messages: usize) {
        self.under_way -= 1;
        self.messages -= messages;
    }

    /// For the first that waits, or for one that comes. Where too few come at once for a batch nobody waits.
    fn has_place(&self) -> bool {
        self.under_way < UNDER_WAY || self.messages + self.waiting.len().max(1) < UNDER_WAY + FEWEST
    }

    /// Takes a place, or waits for one.
    fn enter(&mut self, message: &Publish) -> Option<oneshot::Receiver<Turn>> {
        if self.waiting.is_empty() && self.has_place() {
            self.begin(1);
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
        if self.waiting.is_empty() || !self.has_place() {
            return None;
        }
        let most = if self.waiting.len() < FEWEST { 1 } else { MOST };
        let mut bytes = 0;
        let fit = self.waiting.iter().take(most).take_while(|waiting| {
            bytes += waiting.message.payload.len();
            bytes <= MOST_BYTES
        });
        let count = fit.count().max(1);
        self.begin(count);
        Some(self.waiting.drain(..count).collect())
    }
}

fn fill_places(link: &Link, groups: &Arc<Groups>, stream: &str) {
    loop {
        let next = groups.0.lock().get_mut(stream).and_then(Group::next);
        let Some(mut next) = next else { return };
        let place = Place::new(link, groups, stream, next.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Publish {
        Publish {
            stream: "decisions".to_owned(),
            subject: "a".to_owned(),
            id: None,
            expected: Some(0),
            copied: None,
            headers: Vec::new(),
            payload: bytes::Bytes::new(),
        }
    }

    #[test]
    fn nobody_waits_where_too_few_come_for_a_batch() {
        let mut group = Group::default();
        let alone = UNDER_WAY + FEWEST - 1;
        let waiting: Vec<_> = (0..alone).filter_map(|_| group.enter(&message())).collect();
        assert_eq!((waiting.len(), group.under_way, group.messages), (0, alone, alone));
    }

    #[test]
    fn many_go_in_batches_once_few_enough_are_under_way() {
        let mut group = Group::default();
        let waiting: Vec<_> = (0..100).filter_map(|_| group.enter(&message())).collect();
        assert!(group.next().is_none(), "all places are taken");
        let alone = 100 - waiting.len();
        for _ in UNDER_WAY..=alone {
            group.end(1);
        }
        let batch = group.next().unwrap();
        assert_eq!(
            (batch.len(), group.under_way, group.messages),
            (waiting.len(), UNDER_WAY, 7 + waiting.len())
        );
        assert!(group.next().is_none());
    }

    #[test]
    fn the_last_that_wait_go_alone_at_once() {
        let mut group = Group::default();
        let waiting: Vec<_> = (0..UNDER_WAY + FEWEST + 9).filter_map(|_| group.enter(&message())).collect();
        for _ in 0..waiting.len() {
            group.end(1);
        }
        let all: Vec<_> = std::iter::from_fn(|| group.next()).collect();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), vec![1; waiting.len()]);
    }
}
