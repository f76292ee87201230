//! What opening a stream finds: where it ends, and whether its tail was torn.
//!
//! A frame that does not fit is a torn tail if nothing that was written by a later group lies behind it: then it was never
//! acknowledged, is kept aside, and cut. Else it is damage, and the log does not open.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use events::ChainHash;

use super::frame::{self, FrameKind, Parsed};
use super::horizon;
use super::record::RecordHead;
use super::scan::{Broken, Scanner, Step};
use super::segments::{Cursor, FIRST, Segments, read_full};
use super::tally::{CheckpointFile, EndFile, Mark, Tally};
use crate::log::ReadError;

/// A tail that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's name, with its folder's.
    pub segment: String,
    /// Where it began, in bytes.
    pub offset: u64,
    /// How many bytes were cut.
    pub bytes: u64,
    /// The file, beside the segment, that keeps them.
    pub kept_in: String,
}

/// A stream as it was found.
pub(super) struct Recovered {
    pub(super) end: Cursor,
    pub(super) tally: Tally,
    pub(super) marks: Vec<Mark>,
    pub(super) checkpoints: CheckpointFile,
    pub(super) torn: Option<TornTail>,
    /// Records behind the last checkpoint.
    pub(super) uncounted: u64,
}

/// Finds the end of a stream, cuts a torn tail, makes the first segment of a new one.
pub(super) fn recover(segments: &Arc<Segments>, partitions: u16) -> Result<Recovered, ReadError> {
    let opened = CheckpointFile::open(segments.disk.as_ref(), &segments.folder, segments.salt, partitions);
    let (checkpoints, mut known) = opened.map_err(failed)?;
    let first = horizon::read(segments).map_err(failed)?;
    segments.remove_before(first).map_err(failed)?;
    known.retain(|(at, _)| at.segment >= first);
    let begin = segments.begin();
    let closed = EndFile::read(segments.disk.as_ref(), &segments.folder, segments.salt, partitions);
    let closed = closed.map_err(failed)?;
    let numbers = segments.numbers().map_err(failed)?;
    let last = match contiguous(&numbers, first) {
        Ok(Some(last)) => last,
        Ok(None) if known.is_empty() && closed.is_none() && begin == Cursor::START => {
            return fresh(segments, partitions, checkpoints);
        }
        Ok(None) => return Err(Broken::new(begin, "the segment is missing").error(segments)),
        Err(number) => {
            let at = Cursor { segment: number, offset: 0 };
            return Err(Broken::new(at, "the segment is missing").error(segments));
        }
    };
    let mut walk = Walk { tally: Tally::new(partitions), marks: Vec::new(), uncounted: 0, partitions };
    let begin = walk.start_at(&known, begin);
    let mut recovered = Recovered {
        end: begin,
        tally: Tally::new(partitions),
        marks: Vec::new(),
        checkpoints,
        torn: None,
        uncounted: 0,
    };
    let (end, broken) = walk.go(segments, begin, last)?;
    recovered.end = end;
    if let Some((closed_at, held)) = closed {
        if end < closed_at {
            let what = broken.map_or("the end is lost".to_owned(), |broken| broken.detail);
            return Err(Broken::new(end, format!("{what}: the stream was closed behind it")).error(segments));
        }
        if end == closed_at && held != walk.tally {
            let other = "the stream does not hold what it held when it was closed";
            return Err(Broken::new(end, other).error(segments));
        }
    }
    if let Some(broken) = broken {
        recovered.torn = Some(cut(segments, broken, last, known.last().map(|(at, _)| *at))?);
    }
    if walk.marks.len() != known.len() {
        rewrite(segments, &mut recovered.checkpoints, &known, &walk).map_err(failed)?;
    }
    recovered.tally = walk.tally;
    recovered.marks = walk.marks.into_iter().map(|(at, tally)| mark(at, &tally)).collect();
    recovered.uncounted = walk.uncounted;
    Ok(recovered)
}

pub(super) fn failed(error: io::Error) -> ReadError {
    ReadError::Failed { detail: error.to_string() }
}

pub(super) fn mark(at: Cursor, tally: &Tally) -> Mark {
    Mark { at, sequences: tally.sequences().into_boxed_slice() }
}

/// The bytes of a segment behind its header, before its first record.
pub(super) fn anchor(segments: &Segments, number: u32, tally: &Tally) -> Vec<u8> {
    let mut bytes = Vec::new();
    let at = Cursor { segment: number, offset: FIRST };
    frame::write(&mut bytes, segments.place(at), FrameKind::Checkpoint, 0, &[], &tally.encode());
    bytes
}

/// The last number, or the first one that is missing.
fn contiguous(numbers: &[u32], first: u32) -> Result<Option<u32>, u32> {
    for (number, expected) in numbers.iter().zip(first..) {
        if *number != expected {
            return Err(expected);
        }
    }
    Ok(numbers.last().copied())
}

fn fresh(
    segments: &Arc<Segments>,
    partitions: u16,
    mut checkpoints: CheckpointFile,
) -> Result<Recovered, ReadError> {
    let tally = Tally::new(partitions);
    let bytes = anchor(segments, 1, &tally);
    segments.create(1, &bytes).map_err(failed)?;
    checkpoints.add(Cursor::START, &tally).and_then(|()| checkpoints.sync()).map_err(failed)?;
    Ok(Recovered {
        end: Cursor::START.plus(bytes.len() as u64),
        marks: vec![mark(Cursor::START, &tally)],
        tally,
        checkpoints,
        torn: None,
        uncounted: 0,
    })
}

/// A walk over the frames behind the last known checkpoint.
struct Walk {
    tally: Tally,
    marks: Vec<(Cursor, Tally)>,
    uncounted: u64,
    partitions: u16,
}

impl Walk {
    fn start_at(&mut self, known: &[(Cursor, Tally)], begin: Cursor) -> Cursor {
        let Some(((at, tally), before)) = known.split_last() else { return begin };
        self.marks = before.to_vec();
        self.tally = tally.clone();
        *at
    }

    fn go(
        &mut self,
        segments: &Arc<Segments>,
        begin: Cursor,
        last: u32,
    ) -> Result<(Cursor, Option<Broken>), ReadError> {
        if begin.segment > last {
            return Err(Broken::new(begin, "the segment is missing").error(segments));
        }
        let mut scanner = Scanner::to_the_end(Arc::clone(segments), begin, last);
        loop {
            match scanner.next().map_err(failed)? {
                Step::End if scanner.at() <= begin => {
                    let lost = "the stream ends before its last checkpoint";
                    return Err(Broken::new(begin, lost).error(segments));
                }
                Step::End => return Ok((scanner.at(), None)),
                Step::Broken(broken) => return Ok((broken.at, Some(broken))),
                Step::Frame(at, frame) => {
                    self.take(at, &frame).map_err(|detail| Broken::new(at, detail).error(segments))?;
                }
            }
        }
    }

    fn take(&mut self, at: Cursor, frame: &frame::Frame) -> Result<(), &'static str> {
        if frame.kind == FrameKind::Checkpoint {
            let tally = Tally::decode(&frame.payload, self.partitions).ok_or("malformed checkpoint")?;
            if tally != self.tally && !begins_behind_a_horizon(at, &self.marks) {
                return Err("the checkpoint does not fit the records before it");
            }
            self.tally.clone_from(&tally);
            self.marks.push((at, tally));
            self.uncounted = 0;
            return Ok(());
        }
        let head = RecordHead::read(frame).ok_or("malformed head")?;
        self.tally.add(&head, ChainHash::of(&frame.payload))?;
        self.uncounted += 1;
        Ok(())
    }
}

/// Whether a checkpoint is the first thing of a stream whose older segments have left: there is nothing that it could not fit.
fn begins_behind_a_horizon(at: Cursor, before: &[(Cursor, Tally)]) -> bool {
    before.is_empty() && at.offset == FIRST && at.segment > Cursor::START.segment
}

/// The file beside the stream had lost its end, or all of itself.
fn rewrite(
    segments: &Segments,
    file: &mut CheckpointFile,
    known: &[(Cursor, Tally)],
    walk: &Walk,
) -> io::Result<()> {
    if known.is_empty() {
        tracing::warn!(folder = %segments.folder.display(), "missing checkpoints are written again");
        file.clear()?;
    }
    for (at, tally) in walk.marks.iter().skip(known.len()) {
        file.add(*at, tally)?;
    }
    file.sync()
}

/// Keeps a torn tail aside and cuts it, or says that it is none.
pub(super) fn cut(
    segments: &Arc<Segments>,
    broken: Broken,
    last: u32,
    checkpoint: Option<Cursor>,
) -> Result<TornTail, ReadError> {
    let at = broken.at;
    if at.segment != last || at.offset <= FIRST || checkpoint == Some(at) {
        return Err(broken.error(segments));
    }
    let file = segments.file(last).map_err(failed)?;
    let length = file.length().map_err(failed)?;
    let mut rest = vec![0_u8; usize::try_from(length.saturating_sub(at.offset)).unwrap_or(0)];
    let read = read_full(file.as_ref(), &mut rest, at.offset).map_err(failed)?;
    rest.truncate(read);
    let used = rest.iter().rposition(|byte| *byte != 0).map_or(0, |position| position + 1);
    rest.truncate(used);
    let rest = Bytes::from(rest);
    if later_group_follows(segments, at, &rest) {
        return Err(broken.error(segments));
    }
    let kept_in = format!("torn-{:010}-{}", at.segment, at.offset);
    segments.disk.replace(&segments.folder.join(&kept_in), &rest, true).map_err(failed)?;
    file.set_length(at.offset).and_then(|()| file.sync_data()).map_err(failed)?;
    let torn = TornTail {
        segment: segments.display_name(at.segment),
        offset: at.offset,
        bytes: rest.len() as u64,
        kept_in,
    };
    tracing::warn!(
        segment = torn.segment,
        offset = torn.offset,
        bytes = torn.bytes,
        kept_in = torn.kept_in,
        "an incomplete record was removed from the end and kept aside"
    );
    Ok(torn)
}

/// Whether a frame behind `at` was written by a group that began behind `at`, that is after what lies there had been synced.
fn later_group_follows(segments: &Segments, at: Cursor, rest: &Bytes) -> bool {
    (1..rest.len()).any(|distance| {
        let here = at.plus(distance as u64);
        match frame::parse(rest, distance, segments.place(here)) {
            Parsed::Frame(frame) => here.offset.saturating_sub(u64::from(frame.group)) > at.offset,
            _ => false,
        }
    })
}
