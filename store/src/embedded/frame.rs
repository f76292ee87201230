//! Frames: how bytes lie in segment files, of the log and of the blobs.
//!
//! ```text
//! 0   2  magic 4B 42
//! 2   1  what it is ([`FrameKind`])
//! 3   1  length of the head
//! 4   4  length of the payload
//! 8   4  CRC-32 over the log's salt, the segment's number, the offset, and all else of the frame
//! 12  4  distance to the first frame of its group (all frames of one write and sync), in bytes
//! 16     head, then payload
//! ```
//! Numbers are little-endian. Salt, segment and offset in the checksum make a frame valid at its own place only: bytes that
//! somebody put into a payload, or that a file system put into the wrong place, never pass for a frame.

use bytes::Bytes;

/// Bytes in front of the head.
pub(super) const PRELUDE: usize = 16;

/// The largest payload that a reader believes. A blob is the largest thing that is stored.
pub(super) const LARGEST_PAYLOAD: usize = 64 * 1024 * 1024;

/// The largest head.
const LARGEST_HEAD: usize = 80;

const MAGIC: [u8; 2] = [0x4b, 0x42];

/// What a frame holds. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A record of a stream that is not chained.
    Batch = 1,
    /// A commit.
    Commit = 2,
    /// Counts and running hashes of all partitions.
    Checkpoint = 3,
    /// A blob.
    Blob = 4,
}

impl FrameKind {
    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Batch),
            2 => Some(Self::Commit),
            3 => Some(Self::Checkpoint),
            4 => Some(Self::Blob),
            _ => None,
        }
    }
}

/// Where a frame lies; decides its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) salt: u64,
    pub(super) segment: u32,
    pub(super) offset: u64,
}

/// A frame that was read; the checksum is right.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) group: u32,
    head: [u8; LARGEST_HEAD],
    head_length: u8,
    pub(super) payload: Bytes,
}

impl Frame {
    /// Its head. Copied out of what was read, which is cheaper than to share it between threads.
    pub(super) fn head(&self) -> &[u8] {
        self.head.get(..usize::from(self.head_length)).unwrap_or_default()
    }

    /// Bytes that it takes in the file.
    pub(super) fn length(&self) -> u64 {
        (PRELUDE + usize::from(self.head_length) + self.payload.len()) as u64
    }
}

/// What lies at an offset.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are frames")]
pub(super) enum Parsed {
    /// A whole frame.
    Frame(Frame),
    /// Zeros, or nothing: the end, if nothing but zeros follow.
    Empty,
    /// At least so many bytes are needed.
    More(usize),
    /// No frame.
    Broken(&'static str),
}

/// Appends a frame to `buffer`, which will lie such that the frame is at `place`.
///
/// Heads are no longer than [`LARGEST_HEAD`] and payloads shorter than 4 GiB by their types' limits.
pub(super) fn write(
    buffer: &mut Vec<u8>,
    place: Place,
    kind: FrameKind,
    group: u32,
    head: &[u8],
    payload: &[u8],
) {
    let lengths = Lengths {
        kind: kind as u8,
        head: u8::try_from(head.len()).unwrap_or(u8::MAX),
        payload: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        group,
    };
    let crc = checksum(place, lengths, head, payload);
    buffer.reserve(PRELUDE + head.len() + payload.len());
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&[lengths.kind, lengths.head]);
    buffer.extend_from_slice(&lengths.payload.to_le_bytes());
    buffer.extend_from_slice(&crc.to_le_bytes());
    buffer.extend_from_slice(&group.to_le_bytes());
    buffer.extend_from_slice(head);
    buffer.extend_from_slice(payload);
}

/// Reads the frame that begins `from` bytes into `bytes`, at `place`. Copies no payload.
pub(super) fn parse(bytes: &Bytes, from: usize, place: Place) -> Parsed {
    let rest = bytes.get(from..).unwrap_or_default();
    let Some(prelude) = rest.first_chunk::<PRELUDE>() else {
        return match rest.iter().all(|byte| *byte == 0) {
            true => Parsed::Empty,
            false => Parsed::More(PRELUDE),
        };
    };
    let [m0, m1, kind, head_length, p0, p1, p2, p3, c0, c1, c2, c3, g0, g1, g2, g3] = *prelude;
    if [m0, m1] != MAGIC {
        let empty = prelude.iter().all(|byte| *byte == 0);
        return if empty { Parsed::Empty } else { Parsed::Broken("no frame begins here") };
    }
    let Some(known) = FrameKind::of(kind) else { return Parsed::Broken("unknown kind of frame") };
    let lengths = Lengths {
        kind,
        head: head_length,
        payload: u32::from_le_bytes([p0, p1, p2, p3]),
        group: u32::from_le_bytes([g0, g1, g2, g3]),
    };
    let payload_length = lengths.payload as usize;
    let head_end = PRELUDE + usize::from(head_length);
    let end = head_end + payload_length;
    if payload_length > LARGEST_PAYLOAD || usize::from(head_length) > LARGEST_HEAD {
        return Parsed::Broken("impossible length");
    }
    let (Some(head), Some(payload)) = (rest.get(PRELUDE..head_end), rest.get(head_end..end)) else {
        return Parsed::More(end);
    };
    if checksum(place, lengths, head, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Parsed::Broken("checksum does not fit");
    }
    let mut kept = [0; LARGEST_HEAD];
    if let Some(kept) = kept.get_mut(..head.len()) {
        kept.copy_from_slice(head);
    }
    let payload = bytes.slice(from + head_end..from + end);
    Parsed::Frame(Frame { kind: known, group: lengths.group, head: kept, head_length, payload })
}

#[derive(Clone, Copy)]
struct Lengths {
    kind: u8,
    head: u8,
    payload: u32,
    group: u32,
}

fn checksum(place: Place, lengths: Lengths, head: &[u8], payload: &[u8]) -> u32 {
    let mut first = [0_u8; 30];
    let parts: [&[u8]; 6] = [
        &place.salt.to_le_bytes(),
        &place.segment.to_le_bytes(),
        &place.offset.to_le_bytes(),
        &[lengths.kind, lengths.head],
        &lengths.payload.to_le_bytes(),
        &lengths.group.to_le_bytes(),
    ];
    for (to, from) in first.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&first);
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: Place = Place { salt: 7, segment: 3, offset: 4096 };

    fn written(head: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        write(&mut buffer, PLACE, FrameKind::Commit, 12, head, payload);
        buffer
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            head in proptest::collection::vec(any::<u8>(), 0..LARGEST_HEAD),
            before in 0..50_usize,
            payload in proptest::collection::vec(any::<u8>(), 0..2000),
            behind in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes = written(&head, &payload);
            let length = bytes.len() as u64;
            bytes.extend_from_slice(&behind);
            let bytes = Bytes::from([vec![9; before], bytes].concat());
            let Parsed::Frame(frame) = parse(&bytes, before, PLACE) else { panic!("no frame") };
            prop_assert_eq!(frame.length(), length);
            prop_assert_eq!(frame.head(), &head[..]);
            prop_assert_eq!(&frame.payload[..], &payload[..]);
            prop_assert_eq!((frame.kind, frame.group), (FrameKind::Commit, 12));
        }

        #[test]
        fn every_flipped_bit_is_seen(
            payload in proptest::collection::vec(any::<u8>(), 1..300),
            at in any::<proptest::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let mut bytes = written(b"head", &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let parsed = parse(&Bytes::from(bytes), 0, PLACE);
            prop_assert!(!matches!(parsed, Parsed::Frame(_) | Parsed::Empty), "{:?}", parsed);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(parse(&Bytes::from(bytes), 0, PLACE));
        }
    }

    #[test]
    fn a_cut_frame_asks_for_more_at_each_byte() {
        let whole = written(b"head", b"payload");
        for length in 1..whole.len() {
            let cut = Bytes::copy_from_slice(&whole[..length]);
            assert!(matches!(parse(&cut, 0, PLACE), Parsed::More(_)), "at {length}");
        }
        assert!(matches!(parse(&Bytes::new(), 0, PLACE), Parsed::Empty));
    }

    #[test]
    fn a_frame_is_valid_at_its_own_place_only() {
        let bytes = Bytes::from(written(b"head", b"payload"));
        for elsewhere in
            [Place { salt: 8, ..PLACE }, Place { segment: 4, ..PLACE }, Place { offset: 4097, ..PLACE }]
        {
            assert!(matches!(parse(&bytes, 0, elsewhere), Parsed::Broken("checksum does not fit")));
        }
    }
}
