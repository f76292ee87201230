//! What is due when.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::TaskKey;

/// Something that is due.
pub(super) struct Timer {
    pub(super) at: Duration,
    number: u64,
    pub(super) what: Due,
}

/// What is done then.
pub(super) enum Due {
    Wake(Arc<Alarm>),
    Call(Box<dyn FnOnce() + Send>),
    Task(TaskKey),
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives its greatest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// A sleeper.
pub(super) struct Alarm {
    pub(super) rung: AtomicBool,
    pub(super) waker: Mutex<Option<Waker>>,
}

/// All that is due, the earliest first; of one moment, in the order in which it was added.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Timer>,
    number: u64,
}

impl Timers {
    pub(super) fn add(&mut self, at: Duration, what: Due) {
        self.number += 1;
        self.heap.push(Timer { at, number: self.number, what });
    }

    pub(super) fn next(&mut self) -> Option<Timer> {
        self.heap.pop()
    }
}
