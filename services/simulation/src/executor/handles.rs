//! What whoever started a task, or sleeps, holds of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;

use super::timers::{Alarm, Due};
use super::{Executor, SharedOutcome, TaskKey, end};

/// Ends a task.
pub(crate) struct AbortHandle {
    executor: Executor,
    key: Option<TaskKey>,
}

impl AbortHandle {
    pub(super) const fn new(executor: Executor, key: Option<TaskKey>) -> Self {
        Self { executor, key }
    }

    pub(crate) fn abort(&self) {
        let Some(key) = self.key else { return };
        let doomed = {
            let mut state = self.executor.state.lock();
            let Some(slot) = state.slots.get_mut(key.slot) else { return };
            if slot.generation != key.generation || !slot.occupied {
                return;
            }
            // One that is being polled ends itself.
            slot.aborted = slot.future.is_none();
            if slot.aborted { None } else { state.release(key.slot) }
        };
        if let Some((future, outcome)) = doomed {
            drop(future);
            end(&outcome, Err("it was aborted".to_owned()));
        }
    }
}

/// Waits for a task's end.
pub(crate) struct Joined(pub(crate) SharedOutcome);

impl Future for Joined {
    type Output = Result<(), String>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.lock();
        match &outcome.ended {
            Some(ended) => Poll::Ready(ended.clone()),
            None => {
                outcome.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

pub(crate) fn is_ended(outcome: &SharedOutcome) -> bool {
    outcome.lock().ended.is_some()
}

/// Ends when its time has passed.
pub(super) struct Sleep {
    executor: Executor,
    time: Duration,
    alarm: Option<Arc<Alarm>>,
}

impl Sleep {
    pub(super) const fn new(executor: Executor, time: Duration) -> Self {
        Self { executor, time, alarm: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &self.alarm {
            Some(alarm) if alarm.rung.load(Ordering::Relaxed) => return Poll::Ready(()),
            Some(alarm) => {
                let mut waker = alarm.waker.lock();
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            None if self.time.is_zero() => return Poll::Ready(()),
            None => {}
        }
        let alarm = Arc::new(Alarm {
            rung: AtomicBool::new(false),
            waker: Mutex::new(Some(context.waker().clone())),
        });
        {
            let mut state = self.executor.state.lock();
            let at = state.now.saturating_add(self.time);
            state.timers.add(at, Due::Wake(Arc::clone(&alarm)));
        }
        self.alarm = Some(alarm);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            alarm.waker.lock().take();
        }
    }
}
