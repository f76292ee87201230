//! Processes: they start, stand still, are slow, end, and each has a clock of its own.

use std::time::Duration;

use futures::future::BoxFuture;

use super::wall_clock::WallClock;
use super::{Executor, SharedOutcome, end};

/// A process; a new incarnation each time that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// One start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// The process.
    pub node: NodeId,
    /// How often it was started before.
    pub incarnation: u64,
}

/// A process as the executor sees it.
pub(super) struct Node {
    pub(super) incarnation: u64,
    pub(super) alive: bool,
    /// Its tasks run no earlier.
    pub(super) paused_until: Duration,
    /// Each of its steps waits up to so many microseconds.
    pub(super) slow: u64,
    pub(super) clock: WallClock,
}

impl Executor {
    /// Starts a process, after it was stopped or for the first time.
    pub fn start(&self, node: NodeId) -> Life {
        let mut state = self.state.lock();
        let entry = state.nodes.entry(node).or_insert(Node {
            incarnation: 0,
            alive: false,
            paused_until: Duration::ZERO,
            slow: 0,
            clock: WallClock::default(),
        });
        entry.incarnation += 1;
        entry.alive = true;
        entry.paused_until = Duration::ZERO;
        entry.slow = 0;
        Life { node, incarnation: entry.incarnation }
    }

    /// Ends a process at once, with all its tasks.
    pub fn kill(&self, node: NodeId) {
        let doomed: Vec<(BoxFuture<'static, ()>, SharedOutcome)> = {
            let mut state = self.state.lock();
            if let Some(node) = state.nodes.get_mut(&node) {
                node.alive = false;
            }
            let of_it =
                state.slots.iter().enumerate().filter(|(_, slot)| slot.occupied && slot.life.node == node);
            let indexes: Vec<usize> = of_it.map(|(index, _)| index).collect();
            indexes.into_iter().filter_map(|index| state.release(index)).collect()
        };
        for (future, outcome) in doomed {
            drop(future);
            end(&outcome, Err("its process was killed".to_owned()));
        }
    }

    /// Ends all processes, and forgets what is due. Tasks hold what they run on: of what is left here, nothing would ever be freed.
    pub fn end(&self) {
        let nodes: Vec<NodeId> = self.state.lock().nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.kill(node));
        let forgotten = std::mem::take(&mut self.state.lock().timers);
        drop(forgotten);
    }

    /// Lets a process stand still for a while.
    pub fn pause(&self, node: NodeId, time: Duration) {
        let mut state = self.state.lock();
        let until = state.now + time;
        if let Some(node) = state.nodes.get_mut(&node) {
            node.paused_until = until;
        }
    }

    /// Makes each step of a process wait up to so many microseconds.
    pub fn slow(&self, node: NodeId, micros: u64) {
        if let Some(node) = self.state.lock().nodes.get_mut(&node) {
            node.slow = micros;
        }
    }

    /// Moves the wall clock of a process.
    pub fn move_clock(&self, node: NodeId, millis: i64) {
        let mut state = self.state.lock();
        let now = state.now;
        state.nodes.get_mut(&node).into_iter().for_each(|node| node.clock.shift(now, millis));
    }

    /// How far the wall clock of a process is off.
    #[must_use]
    pub fn clock_offset_millis(&self, node: NodeId) -> i64 {
        self.state.lock().nodes.get(&node).map_or(0, |node| node.clock.offset_millis())
    }

    /// From when to when, not before a moment, the wall clock of a process showed this time.
    pub fn when(&self, node: NodeId, wall_millis: i64, not_before: Duration) -> Option<(Duration, Duration)> {
        self.state.lock().nodes.get(&node)?.clock.when(wall_millis, not_before)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dice::Dice;

    #[test]
    fn of_what_ended_nothing_is_left() {
        let second = Duration::from_secs(1);
        let executor = Executor::new(Dice::new(1));
        let held = Arc::new(());
        let (sleeper, by_task, by_timer) = (executor.clone(), Arc::clone(&held), Arc::clone(&held));
        let task = async move {
            sleeper.sleep(second).await;
            drop(by_task);
        };
        executor.spawn(executor.start(NodeId(0)), "sleeps", Box::pin(task));
        executor.after(second, move || drop(by_timer));
        executor.step();
        assert_eq!(Arc::strong_count(&held), 3);
        executor.end();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
