//! One client's connection, as server and client know it.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::nats::wire::Message;
use tokio::sync::{oneshot, watch};

use super::Said;
use crate::executor::Life;

/// What one message takes behind another.
const EACH: Duration = Duration::from_micros(2);

/// A connection, or the lack of it.
pub(super) struct Conn {
    pub(super) life: Life,
    pub(super) connected: bool,
    /// How often it was lost.
    pub(super) epoch: u64,
    last_up: Duration,
    last_down: Duration,
    held_until: Duration,
    pub(super) interruptions: watch::Sender<u64>,
    pub(super) kept: Vec<Said>,
    pub(super) waiting: BTreeMap<u64, oneshot::Sender<Message>>,
}

impl Conn {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            connected: true,
            epoch: 0,
            last_up: Duration::ZERO,
            last_down: Duration::ZERO,
            held_until: Duration::ZERO,
            interruptions: watch::Sender::new(0),
            kept: Vec::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// When what is sent to the server now comes there, not before what was sent before.
    pub(super) fn up(&mut self, at: Duration) -> Duration {
        self.last_up = at.max(self.last_up + EACH).max(self.held_until);
        self.last_up
    }

    /// The same for what the server sends.
    pub(super) fn down(&mut self, at: Duration) -> Duration {
        self.last_down = at.max(self.last_down + EACH).max(self.held_until);
        self.last_down
    }

    pub(super) fn hold(&mut self, until: Duration) {
        self.held_until = self.held_until.max(until);
    }

    /// Loses the connection; whom to tell, unless it was lost already.
    pub(super) fn cut(&mut self) -> Option<watch::Sender<u64>> {
        if !self.connected {
            return None;
        }
        self.connected = false;
        self.epoch += 1;
        Some(self.interruptions.clone())
    }

    /// There is a connection again; what was kept for it.
    pub(super) fn come_back(&mut self) -> Option<Vec<Said>> {
        if self.connected {
            return None;
        }
        self.connected = true;
        Some(std::mem::take(&mut self.kept))
    }
}
