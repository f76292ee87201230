//! Reading everything and checking it.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::{ChainHash, Commit, Timestamp};

use super::frame::{Frame, FrameKind};
use super::index::AggregateHead;
use super::record::{AggregateKey, RecordHead, kind_tag};
use super::recovery::failed;
use super::scan::{Broken, Scanner, Step};
use super::segments::Cursor;
use super::stream::StreamCore;
use super::tally::{CheckpointFile, Tally};
use crate::log::ReadError;
use crate::verify::{StreamReport, VerifyReport};

/// Checks every stream up to its end as of now.
pub(super) fn verify(streams: &[Arc<StreamCore>], partitions: u16) -> Result<VerifyReport, ReadError> {
    let mut reports = Vec::new();
    for core in streams {
        reports.push(Check::new(core, partitions)?.run()?);
    }
    Ok(VerifyReport { streams: reports })
}

struct Check<'a> {
    core: &'a StreamCore,
    partitions: u16,
    tally: Tally,
    /// Checkpoints kept beside the stream, by place.
    beside: BTreeMap<Cursor, Tally>,
    heads: BTreeMap<AggregateKey, AggregateHead>,
    /// The newest time of each partition.
    recorded: BTreeMap<u16, Timestamp>,
    report: StreamReport,
}

impl<'a> Check<'a> {
    fn new(core: &'a StreamCore, partitions: u16) -> Result<Self, ReadError> {
        let segments = &core.segments;
        let kept = CheckpointFile::open(segments.disk.as_ref(), &segments.folder, segments.salt, partitions);
        let (_, kept) = kept.map_err(failed)?;
        let report = StreamReport::empty(core.stream, partitions);
        Ok(Self {
            core,
            partitions,
            tally: Tally::new(partitions),
            beside: kept.into_iter().collect(),
            heads: BTreeMap::new(),
            recorded: BTreeMap::new(),
            report,
        })
    }

    fn run(mut self) -> Result<StreamReport, ReadError> {
        let segments = &self.core.segments;
        let (begin, end) = (segments.begin(), self.core.end());
        self.beside = self.beside.split_off(&begin);
        self.tally = if begin == Cursor::START {
            self.tally
        } else {
            self.beside.get(&begin).cloned().ok_or_else(|| {
                Broken::new(begin, "what lies before the horizon is not counted beside the stream")
                    .error(segments)
            })?
        };
        let mut scanner = Scanner::until(Arc::clone(segments), begin, end);
        loop {
            match scanner.next().map_err(failed)? {
                Step::End => break,
                Step::Broken(broken) => return Err(broken.error(segments)),
                Step::Frame(at, frame) => {
                    self.frame(at, &frame).map_err(|detail| Broken::new(at, detail).error(segments))?;
                }
            }
        }
        if let Some((at, _)) = self.beside.range(..end).next() {
            return Err(Broken::new(*at, "a checkpoint beside the stream is missing in it").error(segments));
        }
        self.report.segments = end.segment + 1 - begin.segment;
        self.report.aggregates = self.heads.len() as u64;
        self.report.partitions = self.tally.shards;
        Ok(self.report)
    }

    fn frame(&mut self, at: Cursor, frame: &Frame) -> Result<(), &'static str> {
        if frame.kind == FrameKind::Checkpoint {
            let tally = Tally::decode(&frame.payload, self.partitions).ok_or("malformed checkpoint")?;
            if tally != self.tally {
                return Err("the checkpoint does not fit the records before it");
            }
            if self.beside.remove(&at).is_some_and(|beside| beside != tally) {
                return Err("the checkpoint beside the stream does not fit the one in it");
            }
            self.report.checkpoints += 1;
            return Ok(());
        }
        let head = RecordHead::read(frame).ok_or("malformed head")?;
        let link = ChainHash::of(&frame.payload);
        self.tally.add(&head, link)?;
        let newest = self.recorded.entry(head.partition).or_insert(head.recorded_at);
        if head.recorded_at < *newest {
            return Err("recorded time runs backwards");
        }
        *newest = head.recorded_at;
        self.report.records += 1;
        self.report.bytes += frame.payload.len() as u64;
        if head.chained.is_some() { self.commit(&head, frame, link) } else { Ok(()) }
    }

    fn commit(&mut self, head: &RecordHead, frame: &Frame, link: ChainHash) -> Result<(), &'static str> {
        let chained = head.chained.ok_or("a commit without its part of the head")?;
        let before = self.heads.get(&chained.aggregate).copied().unwrap_or(AggregateHead::NONE);
        if chained.version != before.version + 1 {
            return Err("the version is not the aggregate's next one");
        }
        match events::decode::<Commit>(&frame.payload) {
            Err(_) => self.report.unreadable += 1,
            Ok(commit) => {
                let same = commit.id == chained.commit
                    && commit.version == chained.version
                    && commit.organization == head.organization
                    && kind_tag(commit.aggregate.kind) == chained.kind
                    && AggregateKey::of(commit.organization, &commit.aggregate) == chained.aggregate;
                if !same {
                    return Err("the head does not fit the commit");
                }
                if commit.previous != before.hash {
                    return Err(
                        "the chain is broken: the hash of the aggregate's previous commit does not fit",
                    );
                }
            }
        }
        self.heads.insert(chained.aggregate, AggregateHead { version: chained.version, hash: link });
        Ok(())
    }
}
