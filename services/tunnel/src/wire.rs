//! What travels after the roles turned round: bodies and the frames of the event response.
//!
//! A frame is a length of four bytes, big-endian, and that many bytes of MessagePack with named fields. When the length's
//! highest bit is set, the bytes are an LZ4 block behind the length of its content (four bytes, little-endian).

pub mod cluster;

use std::fmt;
use std::str::FromStr;

use bytes::{Buf, Bytes, BytesMut};
use events::observation::Observation;
use events::{AgentId, InstanceId, Text};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Content type of every body.
pub const MESSAGE_PACK: &str = "application/msgpack";
/// Header of a request to an agent that is part of a trace (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

/// Largest content of one frame, in bytes: with its envelope it still fits one record of the log.
pub const MAXIMUM_FRAME_BYTES: usize = 480 * 1024;

/// Most observations in one batch.
pub const MAXIMUM_BATCH: usize = 1000;

/// Largest desired state, in bytes.
pub const MAXIMUM_DESIRED_BYTES: usize = 32 * 1024 * 1024;

/// Largest page or object, in bytes.
pub const MAXIMUM_OBJECT_BYTES: usize = events::bundle::MAXIMUM_CONTENT_BYTES;

/// Largest [`Objects`], in bytes: the largest one alone in its envelope.
pub const MAXIMUM_OBJECTS_BYTES: usize = MAXIMUM_OBJECT_BYTES + 1024;

/// Largest body of an object that a gateway asks an agent for, in bytes: more than etcd takes by default.
pub const MAXIMUM_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Shorter contents are sent as they are.
const COMPRESS_FROM_BYTES: usize = 512;
const COMPRESSED: u32 = 1 << 31;

/// Paths of the agent's HTTP.
pub mod path {
    /// `PUT`: a [`events::desired::DesiredState`]; answers [`events::desired::DesiredReply`], or `409` with
    /// [`super::StaleRevision`].
    pub const DESIRED: &str = "/v1/desired";
    /// `PUT`: [`super::Objects`]; answers `204`.
    pub const OBJECTS: &str = "/v1/objects";
    /// `GET` with `?after=<epoch>,<sequence>`: an endless answer of [`super::EventFrame`]s.
    pub const EVENTS: &str = "/v1/events";
    /// The same of objects: an endless answer of [`super::EventFrame`]s whose batches have observations of the stream of objects, in a
    /// sequence of their own.
    pub const OBJECT_CHANGES: &str = "/v1/object-changes";
    /// `GET` with the hexadecimal digest of an object behind it: its body as JSON, just as the digest counts it
    /// ([`events::observation::SeenObject::digest`]); `404` when the agent has it no longer. Of bodies that are too large for a frame.
    pub const OBJECT_BODIES: &str = "/v1/object-changes/bodies/";
    /// `PUT`: [`super::Acknowledged`] of [`OBJECT_CHANGES`]; answers `204`.
    pub const OBJECT_CHANGES_ACKNOWLEDGED: &str = "/v1/object-changes/acknowledged";
    /// `PUT`: [`super::Acknowledged`]; answers `204`.
    pub const ACKNOWLEDGED: &str = "/v1/acknowledged";
    /// `GET`: [`super::AgentInfo`].
    pub const INFO: &str = "/v1/info";
    /// `POST` of an [`events::desired::DesiredSource`] to `/v1/sources/<id>/diff`: [`events::requests::diff::SourceDiff`], or `409`
    /// with an [`events::desired::DesiredReply`] of what is lacking.
    pub const SOURCES: &str = "/v1/sources/";
    /// `POST` of an [`events::requests::rights::ReviewRights`]: [`events::requests::rights::ReviewedRights`], what the holder of its pass
    /// may list. Older agents answer `404`.
    pub const RIGHTS: &str = "/v1/rights";
    /// Any method: the cluster's API ([`super::cluster`]); what stands behind it is the path there.
    pub const CLUSTER: &str = "/k8s";
    /// `GET`: JSON for people.
    pub const DEBUG_STATE: &str = "/v1/debug/state";
    /// `POST`: asks for one more connection of [`crate::handshake::Role::Bulk`], on which requests to the cluster's API go from then on.
    /// Answers `204` once it is open, wherever it came in; `409` when there are as many as the agent opens; `503` when it cannot be
    /// opened.
    pub const BULK: &str = "/v1/bulk";
    /// `PUT`: [`super::Farewell`]; answered by this crate before the caller's service sees it.
    pub const FAREWELL: &str = "/v1/farewell";
}

/// Body of `PUT /v1/objects`: pages and objects, each known by the SHA-256 of its bytes. Many small ones travel together, and
/// the state that needs them with them. An agent that does not know of states here answers 204, and is put the state by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Objects {
    /// The bytes of each.
    pub contents: Vec<Bytes>,
    /// Body of a `PUT /v1/desired` that comes after them; the answer is the answer to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<Bytes>,
}

/// One frame of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventFrame<S: Text = String> {
    /// Observations without a gap.
    Batch(Batch<S>),
    /// Whether this instance holds its agent's Lease. The first frame of each answer, and again at each change.
    Lease {
        /// It does.
        held: bool,
    },
    /// Nothing to say, but alive.
    Idle,
}

/// See [`EventFrame::Batch`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch<S: Text = String> {
    /// The applier's epoch.
    pub epoch: u64,
    /// Sequence of the first observation; the others follow without gaps. From 1 in each epoch.
    pub first: u64,
    /// At least one.
    pub observations: Vec<Observation<S>>,
}

impl<S: Text> Batch<S> {
    /// Sequence of the last observation.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first.saturating_add(self.observations.len() as u64).saturating_sub(1)
    }
}

/// Body of `PUT /v1/acknowledged`, and the cursor of `GET /v1/events`: durable up to here. `0,0` before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The applier's epoch.
    pub epoch: u64,
    /// The last sequence that is durable.
    pub sequence: u64,
}

impl fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.epoch, self.sequence)
    }
}

/// A text is not `<epoch>,<sequence>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor: expected <epoch>,<sequence>")]
pub struct ParseCursorError;

impl FromStr for Acknowledged {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (epoch, sequence) = text.split_once(',').ok_or(ParseCursorError)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| ParseCursorError);
        Ok(Self { epoch: number(epoch)?, sequence: number(sequence)? })
    }
}

/// Answer to `GET /v1/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Whom the agent takes itself for.
    pub agent: AgentId,
    /// Which process.
    pub instance: InstanceId,
    /// Its version.
    pub version: String,
    /// The epoch under which it applies, 0 if it does not.
    pub epoch: u64,
    /// It holds its agent's Lease.
    pub holds_lease: bool,
    /// Revision of the desired state that it has, 0 if none.
    pub revision: u64,
}

/// Body of the `409` to a desired state that is older than the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleRevision {
    /// Revision that the agent has.
    pub revision: u64,
}

/// The gateway's last word before it closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Why, for people.
    pub reason: String,
    /// When to come back.
    pub again: Again,
}

/// When an agent is to dial again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Again {
    /// At once: this replica goes, others are there.
    AtOnce,
    /// As after a failure.
    Later,
    /// Slowly: the token is no longer good.
    Slowly,
}

/// A frame cannot be sent or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The content is larger than a frame may be.
    #[error("frame of {bytes} bytes is over the limit of {MAXIMUM_FRAME_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A batch is empty or has too many observations.
    #[error("batch of {observations} observations: between 1 and {MAXIMUM_BATCH} are allowed")]
    BatchSize {
        /// How many it has.
        observations: usize,
    },
    /// The bytes are no frame.
    #[error("malformed frame: {detail}")]
    Malformed {
        /// What does not fit.
        detail: String,
    },
}

/// The bytes of a frame, length included.
///
/// # Errors
/// When the content is over [`MAXIMUM_FRAME_BYTES`], or a batch is empty or over [`MAXIMUM_BATCH`].
pub fn encode_frame(frame: &EventFrame) -> Result<Bytes, FrameError> {
    check(frame)?;
    let content =
        events::encode(frame).map_err(|error| FrameError::Malformed { detail: error.to_string() })?;
    if content.len() > MAXIMUM_FRAME_BYTES {
        return Err(FrameError::TooLarge { bytes: content.len() });
    }
    let packed =
        (content.len() >= COMPRESS_FROM_BYTES).then(|| lz4_flex::block::compress_prepend_size(&content));
    let (payload, flag) = match packed {
        Some(packed) if packed.len() < content.len() => (packed, COMPRESSED),
        _ => (content, 0),
    };
    let length = u32::try_from(payload.len()).map_err(|_| FrameError::TooLarge { bytes: payload.len() })?;
    let mut bytes = Vec::with_capacity(payload.len().saturating_add(4));
    bytes.extend_from_slice(&(length | flag).to_be_bytes());
    bytes.extend_from_slice(&payload);
    Ok(Bytes::from(bytes))
}

/// The bytes of a whole frame, not looked into yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    content: Bytes,
}

impl Received {
    /// The frame; its text is borrowed from the bytes or copied out of them, as the caller asks.
    ///
    /// # Errors
    /// When the bytes are no frame.
    pub fn frame<'a, S>(&'a self) -> Result<EventFrame<S>, FrameError>
    where
        S: Text + Deserialize<'a>,
    {
        let frame = decode(&self.content)?;
        check(&frame)?;
        Ok(frame)
    }

    /// Of a batch that was read without fault: its observations exactly as they were encoded, a MessagePack array, so that
    /// they need not be encoded again. `None` when the batch's head is encoded in another way than here.
    ///
    /// # Errors
    /// When the head cannot be encoded.
    pub fn observations<S: Text>(&self, batch: &Batch<S>) -> Result<Option<Bytes>, FrameError> {
        let empty: EventFrame =
            EventFrame::Batch(Batch { epoch: batch.epoch, first: batch.first, observations: Vec::new() });
        let head =
            events::encode(&empty).map_err(|error| FrameError::Malformed { detail: error.to_string() })?;
        // The last byte is the empty array.
        let head = head.split_last().map_or(&[][..], |(_, head)| head);
        Ok(self.content.starts_with(head).then(|| self.content.slice(head.len()..)))
    }
}

/// Takes bytes as they come and gives whole frames.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` until more bytes came.
    ///
    /// # Errors
    /// When the bytes are no frame, or one over the limit: then nothing behind it can be read either.
    pub fn next_frame(&mut self) -> Result<Option<EventFrame>, FrameError> {
        self.next_received()?.map(|received| received.frame()).transpose()
    }

    /// The bytes of the next whole frame; `None` until more bytes came.
    ///
    /// # Errors
    /// When the frame is over the limit, or cannot be unpacked: then nothing behind it can be read either.
    pub fn next_received(&mut self) -> Result<Option<Received>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let header = u32::from_be_bytes(*header);
        let length = usize::try_from(header & !COMPRESSED).unwrap_or(usize::MAX);
        if length > MAXIMUM_FRAME_BYTES {
            return Err(FrameError::TooLarge { bytes: length });
        }
        if self.buffer.len() < length.saturating_add(4) {
            self.buffer.reserve(length.saturating_add(4).saturating_sub(self.buffer.len()));
            return Ok(None);
        }
        self.buffer.advance(4);
        let payload = self.buffer.split_to(length).freeze();
        let content = if header & COMPRESSED == 0 { payload } else { unpack(&payload)? };
        Ok(Some(Received { content }))
    }

    /// Bytes of a frame that is not whole yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

fn check<S: Text>(frame: &EventFrame<S>) -> Result<(), FrameError> {
    match frame {
        EventFrame::Batch(batch)
            if batch.observations.is_empty() || batch.observations.len() > MAXIMUM_BATCH =>
        {
            Err(FrameError::BatchSize { observations: batch.observations.len() })
        }
        _ => Ok(()),
    }
}

fn decode<'a, S>(content: &'a [u8]) -> Result<EventFrame<S>, FrameError>
where
    S: Text + Deserialize<'a>,
{
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(content);
    let frame = EventFrame::deserialize(&mut deserializer)
        .map_err(|error| FrameError::Malformed { detail: error.to_string() })?;
    // Only at the end is there no marker to read.
    match IgnoredAny::deserialize(&mut deserializer) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(frame),
        _ => Err(FrameError::Malformed { detail: "bytes after its end".to_owned() }),
    }
}

fn unpack(payload: &[u8]) -> Result<Bytes, FrameError> {
    let malformed = |detail: &str| FrameError::Malformed { detail: detail.to_owned() };
    let (size, packed) =
        payload.split_first_chunk::<4>().ok_or_else(|| malformed("block without a length"))?;
    let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
    if size > MAXIMUM_FRAME_BYTES {
        return Err(FrameError::TooLarge { bytes: size });
    }
    lz4_flex::block::decompress(packed, size).map(Bytes::from).map_err(|error| malformed(&error.to_string()))
}

#[cfg(test)]
mod tests;
