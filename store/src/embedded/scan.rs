//! Reading a chain from a place on, frame by frame. Nothing is skipped: what does not fit is reported with its place.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use world::disk::DiskFile;

use super::frame::{Frame, PRELUDE, Parsed, parse};
use super::segments::{Cursor, FIRST, Segments, read_full};
use crate::log::ReadError;

/// Bytes read at once.
const CHUNK: usize = 256 * 1024;

/// Bytes read at once for one record.
const ONE: usize = 4096;

/// What lies at a place.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are frames")]
pub(super) enum Step {
    /// A frame, and where it begins.
    Frame(Cursor, Frame),
    /// The end.
    End,
    /// Not a frame.
    Broken(Broken),
}

/// Bytes that do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) at: Cursor,
    pub(super) detail: String,
}

impl Broken {
    pub(super) fn new(at: Cursor, detail: impl Into<String>) -> Self {
        Self { at, detail: detail.into() }
    }

    /// As readers see it.
    pub(super) fn error(self, segments: &Segments) -> ReadError {
        if self.at.segment < segments.first() {
            return ReadError::Left { what: segments.display_name(self.at.segment) };
        }
        ReadError::Damaged {
            segment: segments.display_name(self.at.segment),
            offset: self.at.offset,
            detail: self.detail,
        }
    }
}

/// Reads on from a place.
pub(super) struct Scanner {
    segments: Arc<Segments>,
    at: Cursor,
    /// Where to stop; `None`: where frames end, which is only right while nobody writes.
    end: Option<Cursor>,
    last: u32,
    chunk: Bytes,
    /// Bytes of the chunk that lie before the place.
    read: usize,
    file: Option<(u32, Arc<dyn DiskFile>)>,
    chunk_bytes: usize,
}

impl Scanner {
    /// Reads from `at` to `end`, all of which was written.
    pub(super) fn until(segments: Arc<Segments>, at: Cursor, end: Cursor) -> Self {
        Self {
            segments,
            at,
            end: Some(end),
            last: end.segment,
            chunk: Bytes::new(),
            read: 0,
            file: None,
            chunk_bytes: CHUNK,
        }
    }

    /// Reads from `at` to the end of the segment `last`, wherever that is.
    pub(super) fn to_the_end(segments: Arc<Segments>, at: Cursor, last: u32) -> Self {
        Self { segments, at, end: None, last, chunk: Bytes::new(), read: 0, file: None, chunk_bytes: CHUNK }
    }

    /// Reads fewer bytes at once, for one record.
    pub(super) const fn of_one(mut self) -> Self {
        self.chunk_bytes = ONE;
        self
    }

    /// Where the next frame begins.
    pub(super) const fn at(&self) -> Cursor {
        self.at
    }

    /// The next frame.
    pub(super) fn next(&mut self) -> io::Result<Step> {
        loop {
            if self.end.is_some_and(|end| self.at >= end) {
                return Ok(Step::End);
            }
            if let Some(broken) = self.open_segment()? {
                return Ok(Step::Broken(broken));
            }
            if self.chunk.len() - self.read < PRELUDE {
                self.fill(self.chunk_bytes)?;
            }
            let mut parsed = parse(&self.chunk, self.read, self.segments.place(self.at));
            if let Parsed::More(wanted) = parsed {
                self.fill(wanted.max(self.chunk_bytes))?;
                parsed = parse(&self.chunk, self.read, self.segments.place(self.at));
            }
            match parsed {
                Parsed::Frame(frame) => {
                    let begin = self.at;
                    self.at = begin.plus(frame.length());
                    self.read += usize::try_from(frame.length()).unwrap_or(usize::MAX);
                    return Ok(Step::Frame(begin, frame));
                }
                Parsed::More(_) => return Ok(self.broken("the record is cut off")),
                Parsed::Broken(detail) => return Ok(self.broken(detail)),
                Parsed::Empty => {
                    if let Some(step) = self.empty()? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    fn broken(&self, detail: &str) -> Step {
        Step::Broken(Broken::new(self.at, detail))
    }

    /// No bytes, or zeros: the end of the chain, the end of a segment, or a hole.
    fn empty(&mut self) -> io::Result<Option<Step>> {
        if self.read < self.chunk.len() {
            return self.zeros().map(Some);
        }
        if self.at.segment < self.last {
            self.at = Cursor { segment: self.at.segment + 1, offset: FIRST };
            return Ok(None);
        }
        if self.end.is_some() {
            return Ok(Some(self.broken("the segment ends too early")));
        }
        Ok(Some(Step::End))
    }

    fn zeros(&mut self) -> io::Result<Step> {
        if self.end.is_some() || self.at.segment < self.last {
            return Ok(self.broken("zeros where a record should be"));
        }
        let begin = self.at;
        while let Some(rest) = self.chunk.get(self.read..).filter(|rest| !rest.is_empty()) {
            if rest.iter().any(|byte| *byte != 0) {
                return Ok(Step::Broken(Broken::new(begin, "zeros where a record should be")));
            }
            self.at = self.at.plus(rest.len() as u64);
            self.fill(self.chunk_bytes)?;
        }
        self.at = begin;
        Ok(Step::End)
    }

    /// Opens the segment that is read now, if it is not open.
    fn open_segment(&mut self) -> io::Result<Option<Broken>> {
        let number = self.at.segment;
        if self.file.as_ref().is_some_and(|(open, _)| *open == number) {
            return Ok(None);
        }
        let file = match self.segments.file(number) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Broken::new(self.at, "the segment is missing")));
            }
            Err(error) => return Err(error),
        };
        if !self.segments.header_fits(number, file.as_ref())? {
            let begin = Cursor { segment: number, offset: 0 };
            return Ok(Some(Broken::new(begin, "the segment's header does not fit this log")));
        }
        self.file = Some((number, file));
        self.chunk = Bytes::new();
        self.read = 0;
        Ok(None)
    }

    /// Reads `wanted` bytes at the place, fewer at the end of what there is.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let Some((_, file)) = &self.file else { return Ok(()) };
        let mut buffer = vec![0_u8; wanted];
        let length = read_full(file.as_ref(), &mut buffer, self.at.offset)?;
        buffer.truncate(length);
        self.chunk = Bytes::from(buffer);
        self.read = 0;
        Ok(())
    }
}
