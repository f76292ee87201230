//! A slice: records of a log in one compressed file, exactly as they are stored, with hashes.
//!
//! ```text
//! magic                        "kasbah slice 1\n"
//! chunk*                       kind (1 byte), length, packed length (4 bytes each, little endian), hash (32 bytes), packed bytes
//! ```
//! The first chunk is the header, the last one the trailer, each other one holds records. Each is MessagePack under LZ4. A chunk's
//! hash is the SHA-256 of the hash before it, its kind, its lengths and its packed bytes, so that no byte can be changed, left out
//! or moved without being found, with the place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use events::position::Stream;
use events::{AggregateRef, ChainHash, OrganizationId, Position, Sha256, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::log::{EventLog, ReadError, ReadFilter, Record};

const MAGIC: &[u8] = b"kasbah slice 1\n";
/// Bytes of records in one chunk, but for the last of them.
const CHUNK_BYTES: usize = 256 * 1024;
/// No chunk is longer: the largest record fits twice.
const LARGEST_CHUNK: u32 = 2 * 1024 * 1024;
const HEADER: u8 = b'h';
const RECORDS: u8 = b'r';
const TRAILER: u8 = b'e';

/// What a slice is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selection {
    /// Only of these organizations; of all when empty.
    pub organizations: BTreeSet<OrganizationId>,
    /// Only decisions of these aggregates; everything when empty.
    pub aggregates: BTreeSet<AggregateRef>,
    /// Only what was recorded then or later.
    pub since: Option<Timestamp>,
    /// Only what was recorded before.
    pub until: Option<Timestamp>,
    /// Only what lies behind this position.
    pub after: Position,
    /// Only what lies up to this position.
    pub up_to: Option<Position>,
}

impl Selection {
    fn filter(&self) -> ReadFilter {
        let mut kinds: Vec<_> = self.aggregates.iter().map(|aggregate| aggregate.kind).collect();
        kinds.dedup();
        // Recordings are sealed, and a slice holds no keys.
        let opened = || Stream::ALL.iter().copied().filter(|stream| *stream != Stream::Recordings).collect();
        let streams = if kinds.is_empty() { opened() } else { vec![Stream::Decisions] };
        let organization = match self.organizations.len() {
            1 => self.organizations.first().copied(),
            _ => None,
        };
        ReadFilter { streams, organization, kinds }
    }

    fn wants(&self, record: &Record) -> bool {
        let of = |commit: &events::Commit| self.aggregates.contains(&commit.aggregate);
        (self.organizations.is_empty() || self.organizations.contains(&record.organization))
            && self.since.is_none_or(|since| record.recorded_at >= since)
            && self.until.is_none_or(|until| record.recorded_at < until)
            && self.up_to.as_ref().is_none_or(|end| record.sequence <= end.sequence(record.shard))
            && (self.aggregates.is_empty() || record.commit().is_some_and(of))
    }
}

/// What a slice says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Who wrote it, such as `kasbah 0.1.0`; for people.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Partitions of the log that it was taken from.
    pub partitions: u16,
    /// What was wanted.
    pub selection: Selection,
}

/// What a slice holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trailer {
    /// Records of each stream.
    pub records: BTreeMap<Stream, u64>,
    /// SHA-256 over the SHA-256 of each record's bytes, in order.
    pub hash: Sha256,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    stream: Stream,
    partition: u16,
    sequence: u64,
    recorded_at: Timestamp,
    organization: OrganizationId,
    bytes: bytes::Bytes,
}

/// A slice cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// Input or output failed.
    #[error("cannot reach the slice: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a slice does.
    #[error("not a slice of a log, or one of another version")]
    NotASlice,
    /// It ends too early.
    #[error("the slice is cut off at byte {at}: get the whole file")]
    Truncated {
        /// Where a chunk begins that is not whole.
        at: u64,
    },
    /// Bytes are not those that were written.
    #[error("the slice is damaged in the piece at byte {at}: {detail}")]
    Damaged {
        /// Where the chunk begins.
        at: u64,
        /// What does not fit.
        detail: String,
    },
    /// A log cannot be made of it, because it lacks what came before.
    #[error(
        "{aggregate} begins at version {version}: export it without --since and --after, because a log needs whole aggregates"
    )]
    NotFromTheBeginning {
        /// Which aggregate.
        aggregate: AggregateRef,
        /// At which version.
        version: u64,
    },
    /// What was recorded does not fit together.
    #[error("{aggregate} at version {version} does not carry the hash of the commit before it")]
    Chain {
        /// Which aggregate.
        aggregate: AggregateRef,
        /// At which version.
        version: u64,
    },
}

/// Writes a slice of a log; says what it holds.
///
/// # Errors
/// When the log cannot be read, or the slice not written.
pub async fn write_slice(log: &dyn EventLog, header: &Header, to: impl Write) -> Result<Trailer, SliceError> {
    let mut chunks = Chunks { to, hash: Sha256::default() };
    chunks.to.write_all(MAGIC)?;
    chunks.write(HEADER, header)?;
    let selection = &header.selection;
    let mut records = log.read(&selection.after, &selection.filter()).await?;
    let mut trailer = Trailer::default();
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    while let Some(record) = records.recv().await {
        let record = record?;
        if !selection.wants(&record) {
            continue;
        }
        trailer.add(&record);
        bytes += record.bytes.len();
        waiting.push(Stored {
            stream: record.shard.0,
            partition: record.shard.1,
            sequence: record.sequence,
            recorded_at: record.recorded_at,
            organization: record.organization,
            bytes: record.bytes,
        });
        if bytes >= CHUNK_BYTES {
            chunks.write(RECORDS, &std::mem::take(&mut waiting))?;
            bytes = 0;
        }
    }
    if !waiting.is_empty() {
        chunks.write(RECORDS, &waiting)?;
    }
    chunks.write(TRAILER, &trailer)?;
    chunks.to.flush()?;
    Ok(trailer)
}

impl Trailer {
    fn add(&mut self, record: &Record) {
        *self.records.entry(record.shard.0).or_default() += 1;
        let own = Sha256::of(&record.bytes);
        self.hash = Sha256::of(&[self.hash.0, own.0].concat());
    }
}

struct Chunks<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Chunks<W> {
    fn write<T: Serialize>(&mut self, kind: u8, content: &T) -> Result<(), SliceError> {
        let content = events::encode(content).map_err(|error| io::Error::other(error.to_string()))?;
        let packed = lz4_flex::block::compress(&content);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
        let (length, packed_length) = (length(&content)?, length(&packed)?);
        self.hash = chunk_hash(self.hash, kind, length, packed_length, &packed);
        self.to.write_all(&[kind])?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&packed_length.to_le_bytes())?;
        self.to.write_all(&self.hash.0)?;
        self.to.write_all(&packed)?;
        Ok(())
    }
}

fn chunk_hash(before: Sha256, kind: u8, length: u32, packed_length: u32, packed: &[u8]) -> Sha256 {
    let head = [&before.0[..], &[kind], &length.to_le_bytes(), &packed_length.to_le_bytes(), packed];
    Sha256::of(&head.concat())
}

/// Reads a slice, record by record. Nothing is given out that was not checked.
pub struct SliceReader<R> {
    from: R,
    at: u64,
    hash: Sha256,
    header: Header,
    ready: std::vec::IntoIter<Stored>,
    found: Trailer,
    chains: BTreeMap<(OrganizationId, AggregateRef), (u64, ChainHash)>,
    /// Aggregates must be there from their beginning.
    whole: bool,
    ended: bool,
}

impl<R: Read> SliceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is no slice, or its beginning is damaged.
    pub fn open(mut from: R) -> Result<Self, SliceError> {
        let mut magic = [0_u8; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(SliceError::NotASlice),
            read => read?,
        }
        if magic != MAGIC {
            return Err(SliceError::NotASlice);
        }
        let header = Header {
            created_by: String::new(),
            created_at: Timestamp(0),
            partitions: 0,
            selection: Selection::default(),
        };
        let mut reader = Self {
            from,
            at: MAGIC.len() as u64,
            hash: Sha256::default(),
            header,
            ready: Vec::new().into_iter(),
            found: Trailer::default(),
            chains: BTreeMap::new(),
            whole: false,
            ended: false,
        };
        let (at, kind, content) = reader.chunk()?;
        if kind != HEADER {
            return Err(damaged(at, "it is not the header"));
        }
        reader.header = decode(at, &content)?;
        Ok(reader)
    }

    /// Refuses a slice that lacks the beginning of an aggregate.
    #[must_use]
    pub fn of_whole_aggregates(self) -> Self {
        Self { whole: true, ..self }
    }

    /// What the slice says of itself.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What was read so far.
    pub const fn found(&self) -> &Trailer {
        &self.found
    }

    /// The next record; `None` behind the last one, once everything was found to be there.
    ///
    /// # Errors
    /// When something is missing, or is not as it was written.
    pub fn next_record(&mut self) -> Result<Option<Record>, SliceError> {
        loop {
            if let Some(stored) = self.ready.next() {
                return self.checked(stored).map(Some);
            }
            if self.ended {
                return Ok(None);
            }
            let (at, kind, content) = self.chunk()?;
            match kind {
                RECORDS => self.ready = decode::<Vec<Stored>>(at, &content)?.into_iter(),
                TRAILER => self.end(at, &decode(at, &content)?)?,
                _ => return Err(damaged(at, "its kind is unknown")),
            }
        }
    }

    fn checked(&mut self, stored: Stored) -> Result<Record, SliceError> {
        let shard = (stored.stream, stored.partition);
        let record =
            Record::new(shard, stored.sequence, stored.recorded_at, stored.organization, stored.bytes);
        self.found.add(&record);
        if let Some(commit) = record.commit() {
            let key = (commit.organization, commit.aggregate.clone());
            let hash = ChainHash::of(&record.bytes);
            let before = self.chains.insert(key, (commit.version, hash));
            if self.whole
                && before.is_none()
                && (commit.version, commit.previous) != (1, ChainHash::default())
            {
                let (aggregate, version) = (commit.aggregate.clone(), commit.version);
                return Err(SliceError::NotFromTheBeginning { aggregate, version });
            }
            // What came before the slice is not in it.
            if before.is_some_and(|before| before != (commit.version.saturating_sub(1), commit.previous)) {
                return Err(SliceError::Chain {
                    aggregate: commit.aggregate.clone(),
                    version: commit.version,
                });
            }
        }
        Ok(record)
    }

    fn end(&mut self, at: u64, trailer: &Trailer) -> Result<(), SliceError> {
        if *trailer != self.found {
            return Err(damaged(at, "the records are not those that it counts"));
        }
        let mut behind = [0_u8; 1];
        if self.from.read(&mut behind)? > 0 {
            return Err(damaged(self.at, "there is data after the end"));
        }
        self.ended = true;
        Ok(())
    }

    /// The next chunk, with the place where it begins.
    fn chunk(&mut self) -> Result<(u64, u8, Vec<u8>), SliceError> {
        let at = self.at;
        let [kind] = self.bytes(at)?;
        let length = u32::from_le_bytes(self.bytes(at)?);
        let packed_length = u32::from_le_bytes(self.bytes(at)?);
        let hash: [u8; 32] = self.bytes(at)?;
        if length > LARGEST_CHUNK || packed_length > LARGEST_CHUNK {
            return Err(damaged(at, "its length is invalid"));
        }
        let mut packed = vec![0_u8; usize::try_from(packed_length).unwrap_or(0)];
        self.fill(at, &mut packed)?;
        self.hash = chunk_hash(self.hash, kind, length, packed_length, &packed);
        if self.hash.0 != hash {
            return Err(damaged(at, "its hash does not fit"));
        }
        let content = lz4_flex::block::decompress(&packed, usize::try_from(length).unwrap_or(0))
            .map_err(|error| damaged(at, &error.to_string()))?;
        Ok((at, kind, content))
    }

    fn bytes<const N: usize>(&mut self, at: u64) -> Result<[u8; N], SliceError> {
        let mut bytes = [0_u8; N];
        self.fill(at, &mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), SliceError> {
        match self.from.read_exact(bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SliceError::Truncated { at }),
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
        }
    }
}

fn decode<T: DeserializeOwned>(at: u64, content: &[u8]) -> Result<T, SliceError> {
    events::decode(content).map_err(|error| damaged(at, &error.to_string()))
}

fn damaged(at: u64, detail: &str) -> SliceError {
    SliceError::Damaged { at, detail: detail.to_owned() }
}

#[cfg(test)]
mod tests;
