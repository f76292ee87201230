//! Notices that wait for one subscriber, bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use world::Spawner;

use crate::contract::{NOTICE_QUEUE, NOTICE_QUEUE_BYTES, Received};

/// Notices handed over but not read; the rest wait in the subscriber's queue.
const HANDED_OVER: usize = 16;

/// The queue of one subscriber.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Received>,
    bytes: usize,
    ended: bool,
}

/// Gives the queue's notices to a subscriber until the queue or the subscriber ends.
pub(crate) fn hand_over(queue: Arc<Queue>, spawner: &dyn Spawner) -> mpsc::Receiver<Received> {
    let (sender, receiver) = mpsc::channel(HANDED_OVER);
    let task = async move {
        while let Some(permit) = tokio::select! {
            biased;
            permit = sender.reserve() => permit.ok(),
            () = sender.closed() => None,
        } {
            let Some(notice) = queue.next().await else { return };
            permit.send(notice);
        }
    };
    spawner.spawn("bus subscription", Box::pin(task));
    receiver
}

impl Queue {
    pub(crate) fn push(&self, body: &Bytes) {
        let mut waiting = self.waiting.lock();
        if waiting.notices.len() >= NOTICE_QUEUE || waiting.bytes + body.len() > NOTICE_QUEUE_BYTES {
            waiting.lost();
        } else {
            waiting.bytes += body.len();
            waiting.notices.push_back(Received::Message(body.clone()));
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// At least one notice did not come this far.
    pub(crate) fn missed(&self) {
        self.waiting.lock().lost();
        self.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_one();
    }

    /// The next notice; `None` once the subscription ended.
    async fn next(&self) -> Option<Received> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.ended {
                    return None;
                }
                if let Some(notice) = waiting.notices.pop_front() {
                    if let Received::Message(body) = &notice {
                        waiting.bytes -= body.len();
                    }
                    return Some(notice);
                }
            }
            self.changed.notified().await;
        }
    }
}

impl Waiting {
    fn lost(&mut self) {
        match self.notices.back_mut() {
            Some(Received::Lost(count)) => *count += 1,
            _ => self.notices.push_back(Received::Lost(1)),
        }
    }
}
