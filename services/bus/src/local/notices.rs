//! Notices and their bounded queues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use world::Spawner;

use crate::contract::{Heard, NOTICE_QUEUE, NOTICE_QUEUE_BYTES, Subscription};

/// Notices handed over but not read; the rest wait in the subscriber's queue.
const HANDED_OVER: usize = 16;

/// The subscribers of all subjects.
#[derive(Clone, Default)]
pub(super) struct Notices {
    subjects: Arc<Mutex<BTreeMap<String, Vec<Arc<Queue>>>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Heard>,
    bytes: usize,
    ended: bool,
}

/// Ends a subscription when dropped.
struct Guard {
    notices: Notices,
    subject: String,
    queue: Arc<Queue>,
}

impl Notices {
    #[cfg(test)]
    pub(super) fn subjects(&self) -> Vec<String> {
        self.subjects.lock().keys().cloned().collect()
    }

    /// Under the lock of the subjects, so that all subscribers see one order.
    pub(super) fn publish(&self, subject: &str, body: &Bytes) {
        let subjects = self.subjects.lock();
        for queue in subjects.get(subject).into_iter().flatten() {
            queue.push(body);
        }
    }

    pub(super) fn subscribe(&self, subject: &str, spawner: &dyn Spawner) -> Subscription {
        let queue = Arc::new(Queue::default());
        self.subjects.lock().entry(subject.to_owned()).or_default().push(Arc::clone(&queue));
        let (sender, receiver) = mpsc::channel(HANDED_OVER);
        spawner.spawn("bus subscription", Box::pin(hand_over(Arc::clone(&queue), sender)));
        let guard = Guard { notices: self.clone(), subject: subject.to_owned(), queue };
        Subscription { receiver, guard: Box::new(guard) }
    }
}

async fn hand_over(queue: Arc<Queue>, sender: mpsc::Sender<Heard>) {
    while let Some(permit) = tokio::select! {
        permit = sender.reserve() => permit.ok(),
        () = sender.closed() => None,
    } {
        let Some(notice) = queue.next().await else { return };
        permit.send(notice);
    }
}

impl Queue {
    fn push(&self, body: &Bytes) {
        let mut waiting = self.waiting.lock();
        if waiting.notices.len() >= NOTICE_QUEUE || waiting.bytes + body.len() > NOTICE_QUEUE_BYTES {
            match waiting.notices.back_mut() {
                Some(Heard::Lost(count)) => *count += 1,
                _ => waiting.notices.push_back(Heard::Lost(1)),
            }
        } else {
            waiting.bytes += body.len();
            waiting.notices.push_back(Heard::Message(body.clone()));
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// The next notice; `None` once the subscription ended.
    async fn next(&self) -> Option<Heard> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.ended {
                    return None;
                }
                if let Some(notice) = waiting.notices.pop_front() {
                    if let Heard::Message(body) = &notice {
                        waiting.bytes -= body.len();
                    }
                    return Some(notice);
                }
            }
            self.changed.notified().await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut subjects = self.notices.subjects.lock();
        if let Some(queues) = subjects.get_mut(&self.subject) {
            queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
            if queues.is_empty() {
                subjects.remove(&self.subject);
            }
        }
        drop(subjects);
        self.queue.waiting.lock().ended = true;
        self.queue.changed.notify_one();
    }
}
