//! Readers: from a position to the end, and on for ever.
//!
//! A follower has one path only: from its place to the durable end, out of the segments when it is far behind, out of the
//! newest groups in memory when it is not. So there is nothing between catching up and live in which a record could be
//! lost or doubled, and a slow follower holds up nobody.

use std::sync::Arc;

use events::Position;
use futures::future::{BoxFuture, select_all};
use tokio::sync::watch;

use super::frame::{Frame, FrameKind, Parsed, parse};
use super::record::{HeadFilter, RecordHead};
use super::recovery::failed;
use super::scan::{Broken, Scanner, Step};
use super::segments::Cursor;
use super::stream::{Ahead, Group, Progress, StreamCore};
use super::tally::Tally;
use crate::feed::{Feeder, ReaderGone};
use crate::log::{Followed, ReadError, ReadFilter, Record};

/// Where a reader stands in one stream.
pub(super) struct StreamReader {
    core: Arc<StreamCore>,
    filter: HeadFilter,
    at: Cursor,
    /// The last sequence of each partition before `at`.
    sequences: Vec<u64>,
    /// What the asker has seen.
    from: Vec<u64>,
    /// What the filter left out since the last record that it let through.
    passed: Position,
}

impl StreamReader {
    pub(super) fn new(core: Arc<StreamCore>, from: &Position, filter: &ReadFilter) -> Self {
        let (at, sequences) = core.seek(from);
        let seen = (0_u16..).zip(&sequences).map(|(partition, _)| from.sequence((core.stream, partition)));
        let from = seen.collect();
        Self { core, filter: HeadFilter::of(filter), at, sequences, from, passed: Position::start() }
    }

    /// Takes the frame at its place; the record, if it is wanted.
    fn take(&mut self, at: Cursor, frame: Frame) -> Result<Option<Record>, ReadError> {
        self.at = at.plus(frame.length());
        self.admit(frame).map_err(|detail| Broken::new(at, detail).error(&self.core.segments))
    }

    fn admit(&mut self, frame: Frame) -> Result<Option<Record>, &'static str> {
        if frame.kind == FrameKind::Checkpoint {
            let partitions = u16::try_from(self.sequences.len()).unwrap_or(u16::MAX);
            let tally = Tally::decode(&frame.payload, partitions).ok_or("malformed checkpoint")?;
            return if tally.sequences() == self.sequences {
                Ok(None)
            } else {
                Err("the checkpoint does not fit the records before it")
            };
        }
        let head = RecordHead::read(&frame).ok_or("malformed head")?;
        let last = self.sequences.get_mut(usize::from(head.partition)).ok_or("no such partition")?;
        if head.sequence != *last + 1 {
            return Err("the sequence is not the next one of its partition");
        }
        *last = head.sequence;
        if self.from.get(usize::from(head.partition)).is_some_and(|seen| head.sequence <= *seen) {
            return Ok(None);
        }
        if !self.filter.wants(&head) {
            self.passed.advance((self.core.stream, head.partition), head.sequence);
            return Ok(None);
        }
        Ok(Some(head.record(self.core.stream, frame.payload)))
    }

    /// Reads the segments up to `end` and feeds each wanted record, wrapped; blocks.
    fn through_segments<T>(
        &mut self,
        end: Cursor,
        to: &mut Feeder<T>,
        wrap: impl Fn(Record) -> T,
    ) -> Result<(), Stop> {
        let segments = Arc::clone(&self.core.segments);
        let mut scanner = Scanner::until(Arc::clone(&segments), self.at, end);
        loop {
            match scanner.next().map_err(failed)? {
                Step::Frame(at, frame) => {
                    if let Some(record) = self.take(at, frame)? {
                        let bytes = record.bytes.len();
                        if to.push(Ok(wrap(record)), bytes) {
                            to.blocking_flush()?;
                        }
                    }
                }
                Step::End => {
                    self.at = self.at.max(end);
                    return Ok(to.blocking_flush()?);
                }
                Step::Broken(broken) => return Err(broken.error(&segments).into()),
            }
        }
    }

    /// The wanted records of a group.
    fn through_group(&mut self, group: &Group) -> Result<Vec<Record>, ReadError> {
        let mut records = Vec::new();
        let mut read = 0;
        while read < group.bytes.len() {
            let at = group.start.plus(read as u64);
            let Parsed::Frame(frame) = parse(&group.bytes, read, self.core.segments.place(at)) else {
                return Err(Broken::new(at, "the group in memory is damaged").error(&self.core.segments));
            };
            read += usize::try_from(frame.length()).unwrap_or(usize::MAX);
            records.extend(self.take(at, frame)?);
        }
        Ok(records)
    }
}

/// Reads each stream to its end; blocks.
pub(super) fn read_all(readers: Vec<(StreamReader, Cursor)>, mut to: Feeder<Record>) {
    for (mut reader, end) in readers {
        match reader.through_segments(end, &mut to, |record| record) {
            Ok(()) => {}
            Err(Stop::ReaderGone) => return,
            Err(Stop::Failed(error)) => {
                to.push(Err(error), 0);
                // Nobody may be left to hear it.
                drop(to.blocking_flush());
                return;
            }
        }
    }
}

/// A follower: its readers, and where its records go.
pub(super) struct Follower {
    pub(super) readers: Vec<StreamReader>,
    pub(super) ends: Vec<Cursor>,
    /// Everything up to the ends.
    pub(super) caught_up: Position,
    pub(super) to: Feeder<Followed>,
}

impl Follower {
    /// Catches up, says so, goes on.
    pub(super) async fn run(mut self) {
        if let Err(Stop::Failed(error)) = self.follow().await {
            self.to.push(Err(error), 0);
            // Nobody may be left to hear it.
            drop(self.to.flush().await);
        }
    }

    async fn follow(&mut self) -> Result<(), Stop> {
        let mut progress: Vec<watch::Receiver<Progress>> =
            self.readers.iter().map(|reader| reader.core.progress()).collect();
        for (index, end) in std::mem::take(&mut self.ends).into_iter().enumerate() {
            self.catch_up(index, end).await?;
        }
        for reader in &mut self.readers {
            reader.passed = Position::start();
        }
        self.to.push(Ok(Followed::CaughtUp(self.caught_up.clone())), 0);
        self.to.flush().await?;
        loop {
            let closed = progress.iter_mut().any(|progress| progress.borrow_and_update().closed);
            for index in 0..self.readers.len() {
                self.drain(index).await?;
            }
            if closed {
                return Ok(());
            }
            let changes: Vec<BoxFuture<'_, _>> = progress
                .iter_mut()
                .map(|progress| -> BoxFuture<'_, _> { Box::pin(progress.changed()) })
                .collect();
            if changes.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                _ = select_all(changes) => {}
                () = self.to.gone() => return Ok(()),
            }
        }
    }

    /// Brings a reader to the stream's end as of now.
    async fn drain(&mut self, index: usize) -> Result<(), Stop> {
        loop {
            let Some(reader) = self.readers.get_mut(index) else { return Ok(()) };
            match reader.core.ahead(reader.at) {
                Ahead::Nothing => break,
                Ahead::Segments(end) => self.catch_up(index, end).await?,
                Ahead::Groups(groups) => {
                    for group in groups {
                        let Some(reader) = self.readers.get_mut(index) else { return Ok(()) };
                        for record in reader.through_group(&group)? {
                            let bytes = record.bytes.len();
                            if self.to.push(Ok(Followed::Record(record)), bytes) {
                                self.to.flush().await?;
                            }
                        }
                    }
                }
            }
        }
        let Some(reader) = self.readers.get_mut(index) else { return Ok(()) };
        let passed = std::mem::take(&mut reader.passed);
        if passed != Position::start() {
            self.to.push(Ok(Followed::Passed(passed)), 0);
        }
        Ok(self.to.flush().await?)
    }

    /// Reads segments on a thread that may block.
    async fn catch_up(&mut self, index: usize, end: Cursor) -> Result<(), Stop> {
        let Some(slot) = self.readers.get_mut(index) else { return Ok(()) };
        if slot.at >= end {
            return Ok(());
        }
        let mut reader = StreamReader {
            core: Arc::clone(&slot.core),
            filter: slot.filter.clone(),
            at: slot.at,
            sequences: std::mem::take(&mut slot.sequences),
            from: slot.from.clone(),
            passed: std::mem::take(&mut slot.passed),
        };
        let mut to = self.to.another().await?;
        let read = tokio::task::spawn_blocking(move || {
            let fed = reader.through_segments(end, &mut to, Followed::Record);
            // What was read before a failure comes before it.
            (reader, fed.or_else(|stop| to.blocking_flush().map_err(Stop::from).and(Err(stop))))
        });
        let (reader, fed) = read.await.map_err(|error| ReadError::Failed { detail: error.to_string() })?;
        if let Some(slot) = self.readers.get_mut(index) {
            *slot = reader;
        }
        fed
    }
}

/// Why reading ends early.
enum Stop {
    /// Whoever read has gone.
    ReaderGone,
    Failed(ReadError),
}

impl From<ReaderGone> for Stop {
    fn from(_: ReaderGone) -> Self {
        Self::ReaderGone
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
}
