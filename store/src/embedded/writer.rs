//! The writer of one stream, on a thread of its own: takes what waits, writes it at once, syncs once, answers.
//!
//! While one group is synced the next one gathers, so groups grow with the load and nobody waits without need.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use events::{ChainHash, CommitId, Position, Timestamp};
use world::Clock;
use world::disk::DiskFile;

use super::answers::{Answers, Replies, Reply};
use super::frame::{self, FrameKind};
use super::heads::AggregateHeads;
use super::index::{AggregateHead, Entry};
use super::record::{AggregateKey, RecordHead};
use super::recovery::{anchor, mark};
use super::segments::{Cursor, FIRST};
use super::stream::{Group, ReadOnly, StreamCore};
use super::tally::{CheckpointFile, EndFile, Mark, Tally};
use crate::log::{AppendError, Appended};

/// Records between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1024;

/// The file is filled so far ahead at a time: a sync that need not record a new length or new blocks is cheaper.
const EXTEND: u64 = 128 * 1024;

/// Something to be appended.
pub(super) struct Request {
    /// Sequence and time are the writer's to set; a record that another log took has both.
    pub(super) head: RecordHead,
    pub(super) payload: Vec<u8>,
    /// Hash over the payload.
    pub(super) link: ChainHash,
    /// Of commits: the aggregate's newest commit as the payload was made for.
    pub(super) made_on: AggregateHead,
    pub(super) aggregate: Option<events::AggregateRef>,
    pub(super) reply: Reply,
}

/// What all writers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) read_only: Arc<ReadOnly>,
    pub(super) segment_bytes: u64,
    pub(super) answers: Answers,
}

/// One stream's writer.
pub(super) struct Writer {
    pub(super) core: Arc<StreamCore>,
    pub(super) shared: Shared,
    pub(super) heads: Option<Arc<AggregateHeads>>,
    pub(super) file: Arc<dyn DiskFile>,
    /// The stream's end, durable.
    pub(super) end: Cursor,
    /// The file's length.
    pub(super) length: u64,
    pub(super) tally: Tally,
    pub(super) uncounted: u64,
    pub(super) checkpoints: CheckpointFile,
    /// Something was appended since the stream was opened.
    pub(super) grown: bool,
}

/// A group while it is put together.
struct Draft {
    behind: Cursor,
    start: Cursor,
    bytes: Vec<u8>,
    head: Vec<u8>,
    tally: Tally,
    replies: Replies,
    entries: Vec<Entry>,
    heads: HashMap<AggregateKey, AggregateHead>,
    commits: HashMap<(AggregateKey, CommitId), Appended>,
    checkpoint: Option<Cursor>,
    now: Timestamp,
}

impl Writer {
    /// Writes until the stream is closed.
    pub(super) fn run(mut self) {
        while let Some(requests) = self.core.take() {
            if let Some(reason) = self.shared.read_only.get() {
                self.refuse(requests, reason);
                continue;
            }
            self.write_group(requests);
        }
        if self.shared.read_only.get().is_none()
            && let Err(error) = self.finish()
        {
            tracing::error!(stream = self.core.stream.as_str(), %error, "stream was not closed cleanly");
        }
        self.core.ended();
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.file.set_length(self.end.offset)?;
        self.file.sync_data()?;
        self.checkpoints.sync()?;
        if !self.grown {
            return Ok(());
        }
        let segments = &self.core.segments;
        EndFile::write(segments.disk.as_ref(), &segments.folder, segments.salt, self.end, &self.tally)
    }

    fn write_group(&mut self, requests: Vec<Request>) {
        let behind = self.end;
        if self.end.offset >= self.shared.segment_bytes
            && let Err(error) = self.next_segment()
        {
            let reason = self.stop("cannot begin a segment", &error);
            self.refuse(requests, &reason);
            return;
        }
        let mut draft = Draft::new(behind, self.end, &self.tally, Timestamp(self.shared.clock.now_millis()));
        for request in requests {
            self.take(&mut draft, request);
        }
        if draft.bytes.is_empty() {
            self.shared.answers.give(draft.replies);
            return;
        }
        self.add_checkpoint(&mut draft);
        if let Err(error) = self.write(&draft.bytes) {
            self.write_failed(draft, &error);
            return;
        }
        if let Err(error) = self.file.sync_data() {
            let reason = self.stop("cannot sync", &error);
            self.unknown(draft.replies, &reason);
            return;
        }
        self.publish(draft);
    }

    /// Puts a request into the draft, or answers it.
    fn take(&self, draft: &mut Draft, request: Request) {
        if let Some(heads) = &self.heads
            && let Some(chained) = request.head.chained
        {
            let current = match draft.heads.get(&chained.aggregate) {
                Some(head) => Ok(*head),
                None => heads.head(chained.aggregate),
            };
            let outcome = match current {
                Ok(head) if head == request.made_on => None,
                Ok(head) => Some(self.late(draft, heads, &request, head)),
                Err(error) => Some(Err(AppendError::Unknown { detail: error.to_string() })),
            };
            if let Some(outcome) = outcome {
                draft.replies.push((request.reply, outcome));
                return;
            }
        }
        draft.add(&self.core, request);
    }

    /// The aggregate moved on while the request was on its way: it is there already, or it conflicts.
    fn late(
        &self,
        draft: &Draft,
        heads: &AggregateHeads,
        request: &Request,
        head: AggregateHead,
    ) -> Result<Appended, AppendError> {
        let (Some(chained), Some(aggregate)) = (request.head.chained, &request.aggregate) else {
            return Err(AppendError::Invalid { detail: "a commit without aggregate".to_owned() });
        };
        if let Some(appended) = draft.commits.get(&(chained.aggregate, chained.commit)) {
            return Ok(Appended { duplicate: true, ..appended.clone() });
        }
        match heads.duplicate(chained.aggregate, chained.commit) {
            Ok(Some(appended)) => Ok(appended),
            Ok(None) => Err(AppendError::Conflict {
                aggregate: aggregate.clone(),
                expected: request.made_on.version,
                actual: head.version,
            }),
            Err(error) => Err(AppendError::Unknown { detail: error.to_string() }),
        }
    }

    fn add_checkpoint(&self, draft: &mut Draft) {
        if self.uncounted + draft.count() < CHECKPOINT_EVERY {
            return;
        }
        let at = draft.start.plus(draft.bytes.len() as u64);
        let distance = u32::try_from(draft.bytes.len()).unwrap_or(u32::MAX);
        let payload = draft.tally.encode();
        let place = self.core.segments.place(at);
        frame::write(&mut draft.bytes, place, FrameKind::Checkpoint, distance, &[], &payload);
        draft.checkpoint = Some(at);
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, self.end.offset)?;
        let end = self.end.offset + bytes.len() as u64;
        if end > self.length {
            let longer = end.next_multiple_of(EXTEND).min(self.shared.segment_bytes.max(end));
            // Without room for it, what was appended is durable all the same.
            self.length = if self.file.fill(end, longer).is_ok() { longer } else { end };
        }
        Ok(())
    }

    /// Nothing of the group was acknowledged. If what was written of it can be cut, none of it will ever be seen.
    fn write_failed(&self, draft: Draft, error: &std::io::Error) {
        let reason = self.stop("cannot write", error);
        let cut = self.file.set_length(self.end.offset).and_then(|()| self.file.sync_data());
        match cut {
            Ok(()) => {
                let refused = AppendError::ReadOnly { reason };
                self.answer_all(draft.replies.into_iter().map(|(reply, _)| reply), &refused);
            }
            Err(_) => self.unknown(draft.replies, &reason),
        }
    }

    fn publish(&mut self, draft: Draft) {
        let count = draft.count();
        let group = Group { behind: draft.behind, start: draft.start, bytes: Bytes::from(draft.bytes) };
        self.end = group.end();
        let mut marks: Vec<Mark> = Vec::new();
        if draft.start.segment != draft.behind.segment {
            marks.push(mark(Cursor { offset: FIRST, ..draft.start }, &self.tally));
        }
        self.tally = draft.tally;
        self.uncounted += count;
        self.grown = true;
        if let Some(at) = draft.checkpoint {
            marks.push(mark(at, &self.tally));
            self.keep_checkpoint(at);
            self.uncounted = 0;
        }
        if let Some(heads) = &self.heads {
            heads.index.remember(draft.heads.into_iter());
            heads.index.add(&draft.entries, self.end);
        }
        self.core.publish(group, self.tally.sequences(), marks);
        self.shared.answers.give(draft.replies);
    }

    /// A checkpoint beside the stream that fails takes nothing from the stream: the next start writes it anew.
    fn keep_checkpoint(&mut self, at: Cursor) {
        if let Err(error) = self.checkpoints.add(at, &self.tally) {
            tracing::warn!(stream = self.core.stream.as_str(), %error, "checkpoint was not stored beside the stream");
        }
    }

    fn next_segment(&mut self) -> std::io::Result<()> {
        self.file.set_length(self.end.offset)?;
        self.file.sync_data()?;
        let number = self.end.segment + 1;
        let bytes = anchor(&self.core.segments, number, &self.tally);
        self.file = self.core.segments.create(number, &bytes)?;
        let first = Cursor { segment: number, offset: FIRST };
        self.keep_checkpoint(first);
        self.checkpoints.sync()?;
        self.end = first.plus(bytes.len() as u64);
        self.length = self.end.offset;
        self.uncounted = 0;
        Ok(())
    }

    fn unknown(&self, replies: Replies, reason: &str) {
        let outcome = AppendError::Unknown { detail: reason.to_owned() };
        self.answer_all(replies.into_iter().map(|(reply, _)| reply), &outcome);
    }

    fn refuse(&self, requests: Vec<Request>, reason: &str) {
        let outcome = AppendError::ReadOnly { reason: reason.to_owned() };
        self.answer_all(requests.into_iter().map(|request| request.reply), &outcome);
    }

    fn answer_all(&self, replies: impl Iterator<Item = Reply>, outcome: &AppendError) {
        self.shared.answers.give(replies.map(|reply| (reply, Err(outcome.clone()))).collect());
    }

    /// From now on the log takes no writes.
    fn stop(&self, what: &str, error: &std::io::Error) -> String {
        let reason = format!("{what} stream {}: {error}", self.core.stream.as_str());
        tracing::error!(stream = self.core.stream.as_str(), %error, "log is read-only until restart");
        self.shared.read_only.get_or_init(|| reason).clone()
    }
}

impl Draft {
    fn new(behind: Cursor, start: Cursor, tally: &Tally, now: Timestamp) -> Self {
        Self {
            behind,
            start,
            bytes: Vec::new(),
            head: Vec::new(),
            tally: tally.clone(),
            replies: Vec::new(),
            entries: Vec::new(),
            heads: HashMap::new(),
            commits: HashMap::new(),
            checkpoint: None,
            now,
        }
    }

    fn count(&self) -> u64 {
        self.replies
            .iter()
            .filter(|(_, outcome)| outcome.as_ref().is_ok_and(|appended| !appended.duplicate))
            .count() as u64
    }

    fn add(&mut self, core: &StreamCore, request: Request) {
        let partition = request.head.partition;
        let head = match request.head.sequence {
            0 => RecordHead {
                sequence: self.tally.next_sequence(partition),
                recorded_at: self.now.max(self.tally.recorded_at),
                ..request.head
            },
            _ => request.head,
        };
        if let Err(detail) = self.tally.add(&head, request.link) {
            self.replies.push((request.reply, Err(AppendError::Invalid { detail: detail.to_owned() })));
            return;
        }
        let at = self.start.plus(self.bytes.len() as u64);
        let distance = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        head.write(&mut self.head);
        let place = core.segments.place(at);
        frame::write(&mut self.bytes, place, head.frame_kind(), distance, &self.head, &request.payload);
        let position = Position::of(core.stream, partition, head.sequence);
        let mut appended = Appended { version: 0, position, duplicate: false };
        if let Some(chained) = head.chained {
            appended.version = chained.version;
            self.heads
                .insert(chained.aggregate, AggregateHead { version: chained.version, hash: request.link });
            self.commits.insert((chained.aggregate, chained.commit), appended.clone());
            self.entries.push(Entry {
                key: chained.aggregate,
                version: chained.version,
                commit: chained.commit,
                at,
            });
        }
        self.replies.push((request.reply, Ok(appended)));
    }
}
