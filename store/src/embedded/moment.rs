//! Where a stream was at a moment.
//!
//! Within a partition the time of records never runs backwards; within the stream it may, in a copy that was taken partition by partition. So
//! each partition is searched by itself, stretch by stretch: between two marks lie few records.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::Timestamp;

use super::record::RecordHead;
use super::recovery::failed;
use super::scan::{Scanner, Step};
use super::stream::StreamCore;
use super::tally::Mark;
use crate::log::ReadError;

/// The last sequence of each partition that was recorded by then, 0 for none; blocks. What has left counts as recorded by then.
pub(super) fn sequences_at(core: &StreamCore, time: Timestamp) -> Result<Vec<u64>, ReadError> {
    core.while_nothing_leaves(|| {
        let mut search =
            Search { core, time, marks: core.marks_and_end(), begun: BTreeMap::new(), last: BTreeMap::new() };
        let partitions = search.marks.first().map_or(0, |first| first.sequences.len());
        (0..partitions).map(|partition| search.last_of(partition)).collect()
    })
}

/// A stretch begins at each mark but the last, which is the end.
struct Search<'a> {
    core: &'a StreamCore,
    time: Timestamp,
    marks: Vec<Mark>,
    /// Of stretches that were looked into: whether each partition's first record there was recorded by then.
    begun: BTreeMap<usize, Vec<bool>>,
    /// Of stretches that were read whole: each partition's last record there that was recorded by then, 0 for none.
    last: BTreeMap<usize, Vec<u64>>,
}

impl Search<'_> {
    fn last_of(&mut self, partition: usize) -> Result<u64, ReadError> {
        let stretches: Vec<usize> = (0..self.marks.len().saturating_sub(1))
            .filter(|stretch| self.before(stretch + 1, partition) > self.before(*stretch, partition))
            .collect();
        // Those before `low` had begun by then, those from `high` on had not.
        let (mut low, mut high) = (0, stretches.len());
        while low < high {
            let middle = low.midpoint(high);
            let Some(stretch) = stretches.get(middle) else { break };
            if self.had_begun(*stretch, partition)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match low.checked_sub(1).and_then(|last| stretches.get(last)) {
            Some(stretch) => self.last_in(*stretch, partition),
            None => Ok(self.before(0, partition)),
        }
    }

    /// The last sequence of a partition before a mark.
    fn before(&self, mark: usize, partition: usize) -> u64 {
        self.marks.get(mark).and_then(|mark| mark.sequences.get(partition)).copied().unwrap_or(0)
    }

    fn had_begun(&mut self, stretch: usize, partition: usize) -> Result<bool, ReadError> {
        if !self.begun.contains_key(&stretch) {
            let begun = self.firsts(stretch)?;
            self.begun.insert(stretch, begun);
        }
        Ok(self.begun.get(&stretch).and_then(|begun| begun.get(partition)).copied().unwrap_or(false))
    }

    fn last_in(&mut self, stretch: usize, partition: usize) -> Result<u64, ReadError> {
        if !self.last.contains_key(&stretch) {
            let last = self.lasts(stretch)?;
            self.last.insert(stretch, last);
        }
        Ok(self.last.get(&stretch).and_then(|last| last.get(partition)).copied().unwrap_or(0))
    }

    /// Reads until the first record of each partition that has any was met.
    fn firsts(&self, stretch: usize) -> Result<Vec<bool>, ReadError> {
        let partitions = self.marks.first().map_or(0, |first| first.sequences.len());
        let mut awaited: Vec<bool> = (0..partitions)
            .map(|partition| self.before(stretch + 1, partition) > self.before(stretch, partition))
            .collect();
        let mut missing = awaited.iter().filter(|awaited| **awaited).count();
        let mut begun = vec![false; partitions];
        self.each(stretch, |head| {
            let partition = usize::from(head.partition);
            if let (Some(awaited), Some(begun)) = (awaited.get_mut(partition), begun.get_mut(partition))
                && std::mem::take(awaited)
            {
                *begun = head.recorded_at <= self.time;
                missing = missing.saturating_sub(1);
            }
            missing > 0
        })?;
        Ok(begun)
    }

    fn lasts(&self, stretch: usize) -> Result<Vec<u64>, ReadError> {
        let partitions = self.marks.first().map_or(0, |first| first.sequences.len());
        let mut last = vec![0; partitions];
        self.each(stretch, |head| {
            if head.recorded_at <= self.time
                && let Some(last) = last.get_mut(usize::from(head.partition))
            {
                *last = head.sequence;
            }
            true
        })?;
        Ok(last)
    }

    /// Gives the heads of a stretch's records, in order, as long as more are wanted.
    fn each(&self, stretch: usize, mut wants_more: impl FnMut(&RecordHead) -> bool) -> Result<(), ReadError> {
        let (Some(begin), Some(end)) = (self.marks.get(stretch), self.marks.get(stretch + 1)) else {
            return Ok(());
        };
        let mut scanner = Scanner::until(Arc::clone(&self.core.segments), begin.at, end.at);
        loop {
            match scanner.next().map_err(failed)? {
                Step::Frame(_, frame) => {
                    if RecordHead::read(&frame).is_some_and(|head| !wants_more(&head)) {
                        return Ok(());
                    }
                }
                Step::End => return Ok(()),
                Step::Broken(broken) => return Err(broken.error(&self.core.segments)),
            }
        }
    }
}
