//! Runs every task of every simulated process on one thread: a step is one poll of a ready task that the seed chose, or one
//! thing that was due. When nothing is ready, time goes on to what is due next.

mod handles;
mod processes;
mod timers;
mod wall_clock;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use self::processes::Node;
use self::timers::{Due, Timers};
use crate::dice::Dice;

pub(crate) use handles::{AbortHandle, Joined, is_ended};
pub use processes::{Life, NodeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TaskKey {
    slot: usize,
    generation: u64,
}

/// What becomes of a task.
#[derive(Default)]
pub(crate) struct Outcome {
    ended: Option<Result<(), String>>,
    waiting: Vec<Waker>,
}

/// A started task's end, to be waited for.
pub(crate) type SharedOutcome = Arc<Mutex<Outcome>>;

struct Slot {
    generation: u64,
    life: Life,
    name: u64,
    label: &'static str,
    future: Option<BoxFuture<'static, ()>>,
    waker: Option<Waker>,
    queued: bool,
    occupied: bool,
    aborted: bool,
    outcome: SharedOutcome,
}

struct State {
    now: Duration,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: Vec<TaskKey>,
    timers: Timers,
    nodes: BTreeMap<NodeId, Node>,
    dice: Dice,
    steps: u64,
    trace: u64,
    panics: Vec<String>,
    recent: Option<Vec<String>>,
}

/// The executor; cheap to clone.
#[derive(Clone)]
pub struct Executor {
    state: Arc<Mutex<State>>,
}

struct TaskWaker {
    key: TaskKey,
    state: Arc<Mutex<State>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.state.lock().make_ready(self.key);
    }
}

/// Mixes a number into a hash.
const fn mix(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
}

/// A hash of a text.
pub(crate) fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| mix(hash, u64::from(byte)))
}

impl State {
    fn make_ready(&mut self, key: TaskKey) {
        let Some(slot) = self.slots.get_mut(key.slot) else { return };
        if slot.generation == key.generation && slot.occupied && !slot.queued {
            slot.queued = true;
            self.queue(key);
        }
    }

    /// In an order of its own: that in which tasks are woken is not always determined (a `watch` chooses by chance).
    fn queue(&mut self, key: TaskKey) {
        if let Err(place) = self.ready.binary_search(&key) {
            self.ready.insert(place, key);
        }
    }

    /// Frees the slot of a task that is over; gives what is left of it.
    fn release(&mut self, index: usize) -> Option<(BoxFuture<'static, ()>, SharedOutcome)> {
        let slot = self.slots.get_mut(index)?;
        slot.occupied = false;
        slot.generation += 1;
        slot.waker = None;
        slot.queued = false;
        self.free.push(index);
        Some((slot.future.take()?, Arc::clone(&slot.outcome)))
    }

    fn is_current(&self, life: Life) -> bool {
        self.nodes.get(&life.node).is_some_and(|node| node.alive && node.incarnation == life.incarnation)
    }

    fn note(&mut self, number: u64) {
        self.trace = mix(self.trace, number);
    }

    /// The next ready task; one whose process may not run now is put off.
    fn choose(&mut self) -> Option<TaskKey> {
        loop {
            if self.ready.is_empty() {
                return None;
            }
            let index = self.dice.index(self.ready.len());
            let key = self.ready.remove(index);
            let Some(slot) = self.slots.get_mut(key.slot) else { continue };
            if slot.generation != key.generation || !slot.occupied {
                continue;
            }
            let now = self.now;
            let Some(node) = self.nodes.get(&slot.life.node) else { return Some(key) };
            let until = if node.paused_until > now {
                node.paused_until
            } else if node.slow > 0 {
                let delay = self.dice.below(node.slow);
                if delay < node.slow / 2 {
                    return Some(key);
                }
                now + Duration::from_micros(delay)
            } else {
                return Some(key);
            };
            self.timers.add(until, Due::Task(key));
        }
    }
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something was done.
    Done,
    /// Nothing is left to do, ever.
    Idle,
}

impl Executor {
    /// An executor whose choices a seed makes.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        let state = State {
            now: Duration::ZERO,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            timers: Timers::default(),
            nodes: BTreeMap::new(),
            dice,
            steps: 0,
            trace: 0,
            panics: Vec::new(),
            recent: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Time since the run began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Steps that were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// What was done so far, in one number.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// Tasks that panicked, and with what.
    #[must_use]
    pub fn panics(&self) -> Vec<String> {
        self.state.lock().panics.clone()
    }

    /// Keeps what happens in words from now on.
    pub fn record_steps(&self) {
        self.state.lock().recent = Some(Vec::new());
    }

    /// Takes the words that were kept.
    #[must_use]
    pub fn take_steps(&self) -> Vec<String> {
        self.state.lock().recent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Chance.
    pub fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.state.lock().dice)
    }

    /// Does something later.
    pub fn after(&self, time: Duration, what: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let at = state.now + time;
        state.timers.add(at, Due::Call(Box::new(what)));
    }

    /// Does something at a moment.
    pub fn at(&self, at: Duration, what: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let at = at.max(state.now);
        state.timers.add(at, Due::Call(Box::new(what)));
    }

    /// Ends after a time.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        handles::Sleep::new(self.clone(), time)
    }

    /// Starts a task of a process; nothing, if that start of it is over.
    pub(crate) fn spawn(
        &self,
        life: Life,
        label: &'static str,
        future: BoxFuture<'static, ()>,
    ) -> (SharedOutcome, AbortHandle) {
        let outcome = SharedOutcome::default();
        let mut state = self.state.lock();
        if !state.is_current(life) {
            drop(state);
            drop(future);
            end(&outcome, Err("its process is gone".to_owned()));
            return (outcome, AbortHandle::new(self.clone(), None));
        }
        let index = state.free.pop().unwrap_or(state.slots.len());
        let generation = state.slots.get(index).map_or(0, |slot| slot.generation);
        let key = TaskKey { slot: index, generation };
        let waker = Waker::from(Arc::new(TaskWaker { key, state: Arc::clone(&self.state) }));
        let name = mix(hash_of(label), life.node.0 as u64);
        let slot = Slot {
            generation,
            life,
            name,
            label,
            future: Some(future),
            waker: Some(waker),
            queued: false,
            occupied: true,
            aborted: false,
            outcome: Arc::clone(&outcome),
        };
        match state.slots.get_mut(index) {
            Some(place) => *place = slot,
            None => state.slots.push(slot),
        }
        state.make_ready(key);
        (outcome, AbortHandle::new(self.clone(), Some(key)))
    }

    /// Makes one step.
    pub fn step(&self) -> Step {
        let mut state = self.state.lock();
        if let Some(key) = state.choose() {
            state.steps += 1;
            drop(state);
            self.poll(key);
            return Step::Done;
        }
        let Some(timer) = state.timers.next() else { return Step::Idle };
        state.now = state.now.max(timer.at);
        match timer.what {
            Due::Wake(alarm) => {
                drop(state);
                alarm.rung.store(true, Ordering::Relaxed);
                let waker = alarm.waker.lock().take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Due::Call(call) => {
                state.steps += 1;
                let at = u64::try_from(state.now.as_micros()).unwrap_or(u64::MAX);
                state.note(at);
                drop(state);
                call();
            }
            Due::Task(key) => {
                let alive = state
                    .slots
                    .get(key.slot)
                    .is_some_and(|slot| slot.occupied && slot.generation == key.generation);
                if alive {
                    state.queue(key);
                }
            }
        }
        Step::Done
    }

    fn poll(&self, key: TaskKey) {
        let (mut future, waker) = {
            let mut state = self.state.lock();
            let at = u64::try_from(state.now.as_micros()).unwrap_or(u64::MAX);
            let Some(slot) = state.slots.get_mut(key.slot) else { return };
            slot.queued = false;
            let (Some(future), Some(waker)) = (slot.future.take(), slot.waker.clone()) else { return };
            let (name, label, life) = (slot.name, slot.label, slot.life);
            state.note(name);
            state.note(at);
            if let Some(recent) = &mut state.recent {
                recent.push(format!("{at:>12} node {} life {} {label}", life.node.0, life.incarnation));
            }
            (future, waker)
        };
        let mut context = Context::from_waker(&waker);
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let ended = match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(())) => Some(Ok(())),
            Err(panic) => Some(Err(text(panic.as_ref()))),
        };
        let mut state = self.state.lock();
        let State { slots, panics, .. } = &mut *state;
        let Some(slot) = slots.get_mut(key.slot) else { return };
        let same = slot.occupied && slot.generation == key.generation;
        let gone = same && slot.aborted;
        if same && ended.is_none() && !gone {
            slot.future = Some(future);
            return;
        }
        let outcome = same.then(|| Arc::clone(&slot.outcome));
        if let Some(Err(panic)) = &ended {
            panics.push(format!("{} of node {}: {panic}", slot.label, slot.life.node.0));
        }
        if same {
            // It is being polled: what is left of it is here.
            let _nothing = state.release(key.slot);
        }
        drop(state);
        drop(future);
        if let Some(outcome) = outcome {
            end(&outcome, ended.unwrap_or_else(|| Err("it was aborted".to_owned())));
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&'static str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn end(outcome: &SharedOutcome, how: Result<(), String>) {
    let waiting = {
        let mut outcome = outcome.lock();
        outcome.ended.get_or_insert(how);
        std::mem::take(&mut outcome.waiting)
    };
    for waker in waiting {
        waker.wake();
    }
}
