//! What the observer has to tell of objects: in a queue of its own, so that a flood of changes displaces nothing that the applier tells.

use std::sync::Arc;

use events::observation::{Gone, Observation, Observed, ObservedKind};
use events::{ObjectIdentity, Sha256, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tunnel::wire::{Acknowledged, Batch};
use world::World;

use crate::model::known::Head;
use crate::model::object_queue::{ObjectQueue, ROOM_BYTES};
use crate::outbox::ObservationQueue;

/// See [`ObjectQueue`].
pub struct ObjectOutbox {
    world: World,
    queue: Mutex<ObjectQueue>,
    wake: watch::Sender<()>,
    freed: watch::Sender<()>,
}

impl ObjectOutbox {
    /// Empty, in epoch 0, in which nothing is reported.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self { world, queue: Mutex::default(), wake: watch::Sender::new(()), freed: watch::Sender::new(()) }
    }

    /// Starts an epoch: what the former one had not told is forgotten. In the same one all goes on.
    pub fn begin(&self, epoch: u64) {
        self.queue.lock().begin(epoch);
        self.wake.send_replace(());
    }

    /// The epoch, 0 when this process never observed.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.queue.lock().epoch()
    }

    /// Bytes that are not durable.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queue.lock().bytes()
    }

    /// See [`ObjectQueue::next_sequence`].
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.queue.lock().next_sequence()
    }

    /// Tells the newest state of an object.
    ///
    /// # Errors
    /// There is no room; it is given back.
    pub fn put(&self, of: &Arc<ObservedKind>, uid: &str, what: Observed) -> Result<(), Box<Observed>> {
        let at = self.now();
        self.queue.lock().put(of, uid, Observation { at, what })?;
        self.wake.send_replace(());
        Ok(())
    }

    /// Tells something of a kind.
    pub fn mark(&self, of: &Arc<ObservedKind>, what: Observed) {
        let at = self.now();
        self.queue.lock().mark(of, Observation { at, what });
        self.wake.send_replace(());
    }

    /// See [`ObjectQueue::settle`].
    pub fn settle(&self, what: Observed) {
        let at = self.now();
        self.queue.lock().settle(Observation { at, what });
        self.wake.send_replace(());
    }

    /// See [`ObjectQueue::is_settled`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.queue.lock().is_settled()
    }

    /// See [`ObjectQueue::gap`].
    pub fn gap(&self, of: &Arc<ObservedKind>, from: &str, to: &str, dropped: u64) {
        let at = self.now();
        self.queue.lock().gap(of, from, to, dropped, at);
        self.wake.send_replace(());
    }

    /// See [`ObjectQueue::drop_kind`].
    pub fn drop_kind(&self, of: &Arc<ObservedKind>, why: Gone, lost: impl Iterator<Item = Head>) {
        let at = self.now();
        self.queue.lock().drop_kind(of, why, lost, at);
        self.freed.send_replace(());
        self.wake.send_replace(());
    }

    /// See [`ObjectQueue::forget_kind`].
    pub fn forget_kind(&self, of: &Arc<ObservedKind>) {
        self.queue.lock().forget_kind(of);
        self.freed.send_replace(());
    }

    /// Returns once half of what may wait is free.
    pub async fn room(&self) {
        if self.bytes() <= ROOM_BYTES {
            return;
        }
        let mut freed = self.freed.subscribe();
        while self.bytes() > ROOM_BYTES {
            if freed.changed().await.is_err() {
                return;
            }
        }
    }

    /// See [`ObjectQueue::large`].
    #[must_use]
    pub fn large(&self, digest: &Sha256) -> Option<ObjectIdentity> {
        self.queue.lock().large(digest).cloned()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.world.clock.now_millis())
    }
}

impl ObservationQueue for ObjectOutbox {
    fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    fn acknowledge(&self, cursor: Acknowledged) {
        self.queue.lock().acknowledge(cursor);
        self.freed.send_replace(());
        self.wake.send_replace(());
    }

    fn unsent(&self) -> usize {
        self.queue.lock().unsent()
    }

    fn next(&self, after: Acknowledged) -> Option<Batch> {
        self.queue.lock().next(after)
    }
}
