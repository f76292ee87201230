//! Who hears which notices.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use world::Spawner;

use crate::contract::Subscription;
use crate::queue::{Queue, hand_over};

/// The subscribers of all subjects.
#[derive(Clone, Default)]
pub(super) struct Notices {
    subjects: Arc<Mutex<BTreeMap<String, Vec<Arc<Queue>>>>>,
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
        let receiver = hand_over(Arc::clone(&queue), spawner);
        let guard = Guard { notices: self.clone(), subject: subject.to_owned(), queue };
        Subscription { receiver, guard: Box::new(guard) }
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
        self.queue.end();
    }
}
