//! Where a stream begins once records have left it: whole segments, oldest first.
//!
//! The file `horizon` beside the segments names the first one that is kept. It is durable before any segment is removed, so
//! that one that is missing behind it is damage, and one that is left before it is removed when the stream is opened next.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::segments::Segments;

/// The file's content, as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Horizon {
    first_segment: u32,
}

fn path(segments: &Segments) -> PathBuf {
    segments.folder.join("horizon")
}

/// The number of the first segment that is kept.
pub(super) fn read(segments: &Segments) -> io::Result<u32> {
    match segments.disk.read(&path(segments)) {
        Ok(bytes) => Ok(serde_json::from_slice::<Horizon>(&bytes)?.first_segment),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(1),
        Err(error) => Err(error),
    }
}

/// From now on the stream begins with this segment.
pub(super) fn write(segments: &Segments, first_segment: u32) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Horizon { first_segment })?;
    segments.disk.replace(&path(segments), &bytes, true)
}
