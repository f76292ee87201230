//! One stream of the log: what its writer publishes, and how readers get at it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use events::Position;
use events::position::Stream;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::horizon;
use super::segments::{Cursor, FIRST, Segments};
use super::tally::Mark;
use super::writer::Request;

/// Bytes of the newest groups that stay in memory for live readers.
const TAIL_BYTES: usize = 512 * 1024;

/// Bytes of requests that one group takes at most.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// How often a writer looks for the next request before it sleeps. Whoever was just answered often comes again at once, and
/// to be woken takes a good part of a sync; where others want the processor, they get it.
const YIELDS: usize = 64;

/// Reason and fact of a log that takes no more writes: said once, until the process ends.
pub(super) type ReadOnly = OnceLock<String>;

/// What moves when something becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    pub(super) groups: u64,
    pub(super) closed: bool,
}

/// A group as it was written.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The stream's end before it.
    pub(super) behind: Cursor,
    /// Where its bytes begin.
    pub(super) start: Cursor,
    pub(super) bytes: Bytes,
}

impl Group {
    pub(super) fn end(&self) -> Cursor {
        self.start.plus(self.bytes.len() as u64)
    }
}

struct Published {
    end: Cursor,
    sequences: Vec<u64>,
    marks: Vec<Mark>,
    tail: VecDeque<Group>,
    tail_bytes: usize,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    closed: bool,
}

/// One stream.
pub(super) struct StreamCore {
    pub(super) stream: Stream,
    pub(super) segments: Arc<Segments>,
    published: Mutex<Published>,
    forgetting: Mutex<()>,
    progress: watch::Sender<Progress>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// What a live reader at a place has before it.
pub(super) enum Ahead {
    /// Nothing.
    Nothing,
    /// These groups, which begin at its place.
    Groups(Vec<Group>),
    /// More than memory holds: read the segments up to here.
    Segments(Cursor),
}

impl StreamCore {
    pub(super) fn new(
        stream: Stream,
        segments: Arc<Segments>,
        end: Cursor,
        sequences: Vec<u64>,
        marks: Vec<Mark>,
    ) -> Self {
        Self {
            stream,
            segments,
            published: Mutex::new(Published { end, sequences, marks, tail: VecDeque::new(), tail_bytes: 0 }),
            forgetting: Mutex::new(()),
            progress: watch::Sender::new(Progress::default()),
            queue: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// The durable end.
    pub(super) fn end(&self) -> Cursor {
        self.published.lock().end
    }

    /// The durable end, and the last sequence of each partition before it.
    pub(super) fn end_with_sequences(&self) -> (Cursor, Vec<u64>) {
        let published = self.published.lock();
        (published.end, published.sequences.clone())
    }

    /// Where to begin so that nothing behind `from` is missed, and the sequences before that place.
    pub(super) fn seek(&self, from: &Position) -> (Cursor, Vec<u64>) {
        let published = self.published.lock();
        let seen = |sequences: &[u64]| {
            sequences
                .iter()
                .zip(0_u16..)
                .all(|(sequence, partition)| *sequence <= from.sequence((self.stream, partition)))
        };
        if seen(&published.sequences) {
            return (published.end, published.sequences.clone());
        }
        let after = published.marks.partition_point(|mark| seen(&mark.sequences));
        // What lies before the first mark has left.
        match published.marks.get(after.saturating_sub(1)) {
            Some(mark) => (mark.at, mark.sequences.to_vec()),
            None => (self.segments.begin(), vec![0; published.sequences.len()]),
        }
    }

    /// What has left the stream.
    pub(super) fn horizon(&self) -> Position {
        let published = self.published.lock();
        let mut horizon = Position::start();
        let left = published.marks.first().into_iter().flat_map(|mark| (0_u16..).zip(mark.sequences.iter()));
        for (partition, sequence) in left.filter(|(_, sequence)| **sequence > 0) {
            horizon.advance((self.stream, partition), *sequence);
        }
        horizon
    }

    /// Looks at the stream; no segment leaves meanwhile. Blocks.
    pub(super) fn while_nothing_leaves<T>(&self, look: impl FnOnce() -> T) -> T {
        let _stays = self.forgetting.lock();
        look()
    }

    /// The places from which a reader can begin, in order, and the durable end as one more.
    pub(super) fn marks_and_end(&self) -> Vec<Mark> {
        let published = self.published.lock();
        let mut marks = published.marks.clone();
        if marks.is_empty() {
            let sequences = vec![0; published.sequences.len()].into();
            marks.push(Mark { at: self.segments.begin(), sequences });
        }
        marks.push(Mark { at: published.end, sequences: published.sequences.clone().into() });
        marks
    }

    /// Lets the segments leave in which nothing lies behind `until`; blocks.
    pub(super) fn forget(&self, until: &Position) -> io::Result<()> {
        let _one_at_a_time = self.forgetting.lock();
        let first = {
            let published = self.published.lock();
            let leaves = |mark: &Mark| {
                let sequences = mark.sequences.iter().zip(0_u16..);
                mark.at.offset == FIRST
                    && sequences
                        .into_iter()
                        .all(|(sequence, partition)| *sequence <= until.sequence((self.stream, partition)))
            };
            published.marks.iter().rev().find(|mark| leaves(mark)).map(|mark| mark.at.segment)
        };
        let Some(first) = first.filter(|first| *first > self.segments.first()) else { return Ok(()) };
        horizon::write(&self.segments, first)?;
        self.published.lock().marks.retain(|mark| mark.at.segment >= first);
        self.segments.remove_before(first)
    }

    /// What lies between a place and the durable end.
    pub(super) fn ahead(&self, at: Cursor) -> Ahead {
        let published = self.published.lock();
        if at >= published.end {
            return Ahead::Nothing;
        }
        match published.tail.iter().position(|group| group.behind == at) {
            Some(first) => Ahead::Groups(published.tail.iter().skip(first).cloned().collect()),
            None => Ahead::Segments(published.end),
        }
    }

    /// Wakes at each group and at the end.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Makes a durable group visible.
    pub(super) fn publish(&self, group: Group, sequences: Vec<u64>, marks: Vec<Mark>) {
        {
            let mut published = self.published.lock();
            published.end = group.end();
            published.sequences = sequences;
            published.marks.extend(marks);
            published.tail_bytes += group.bytes.len();
            published.tail.push_back(group);
            while published.tail_bytes > TAIL_BYTES && published.tail.len() > 1 {
                let oldest = published.tail.pop_front().map_or(0, |oldest| oldest.bytes.len());
                published.tail_bytes -= oldest;
            }
        }
        self.progress.send_modify(|progress| progress.groups += 1);
    }

    /// Puts a request into the queue; says whether it could, as the stream may be closed.
    pub(super) fn push(&self, request: Request) -> bool {
        let mut queue = self.queue.lock();
        if queue.closed {
            return false;
        }
        queue.requests.push_back(request);
        if queue.requests.len() == 1 {
            self.wake.notify_one();
        }
        true
    }

    /// Whether the next group has begun to gather.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.lock().requests.is_empty()
    }

    /// Waits for requests; takes as many as one group may have. `None` once closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Request>> {
        for _ in 0..YIELDS {
            if self.has_waiting() {
                break;
            }
            std::thread::yield_now();
        }
        let mut queue = self.queue.lock();
        while queue.requests.is_empty() && !queue.closed {
            self.wake.wait(&mut queue);
        }
        let mut bytes = 0;
        let fitting = queue.requests.iter().take_while(|request| {
            let first = bytes == 0;
            bytes += request.payload.len() + 128;
            first || bytes <= GROUP_BYTES
        });
        let count = fitting.count();
        (count > 0).then(|| queue.requests.drain(..count).collect())
    }

    /// Takes no more requests; the writer ends behind those that wait.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }

    /// Lets followers end.
    pub(super) fn ended(&self) {
        self.progress.send_modify(|progress| progress.closed = true);
    }
}
