//! Heads of the log's frames: what filters and the index need, readable without decoding the commit.

use bytes::Bytes;
use events::position::Stream;
use events::{AggregateKind, AggregateRef, CommitId, OrganizationId, Timestamp};

use super::frame::{Frame, FrameKind};
use crate::log::{ReadFilter, Record};

/// Names an aggregate in heads and in the index: the first half of a SHA-256 over organization, kind and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AggregateKey(pub(super) [u8; 16]);

impl AggregateKey {
    pub(super) fn of(organization: OrganizationId, aggregate: &AggregateRef) -> Self {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(organization.0.as_bytes());
        context.update(aggregate.kind.as_str().as_bytes());
        context.update(b"/");
        context.update(aggregate.id.as_bytes());
        let mut key = [0_u8; 16];
        for (to, from) in key.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self(key)
    }
}

/// A kind of aggregates as it stands in heads: a checksum of its name, so that the order of the kinds in code means nothing.
pub(super) fn kind_tag(kind: AggregateKind) -> u32 {
    crc32fast::hash(kind.as_str().as_bytes())
}

/// The part of a head that every record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) partition: u16,
    pub(super) sequence: u64,
    pub(super) recorded_at: Timestamp,
    pub(super) organization: OrganizationId,
    /// Of commits only.
    pub(super) chained: Option<ChainedHead>,
}

/// The part of a head that only commits have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChainedHead {
    pub(super) kind: u32,
    pub(super) aggregate: AggregateKey,
    pub(super) version: u64,
    pub(super) commit: CommitId,
}

impl RecordHead {
    pub(super) fn frame_kind(&self) -> FrameKind {
        if self.chained.is_some() { FrameKind::Commit } else { FrameKind::Batch }
    }

    /// Its bytes, replacing what `buffer` holds.
    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.partition.to_le_bytes());
        buffer.extend_from_slice(&self.sequence.to_le_bytes());
        buffer.extend_from_slice(&self.recorded_at.0.to_le_bytes());
        buffer.extend_from_slice(self.organization.0.as_bytes());
        if let Some(chained) = &self.chained {
            buffer.extend_from_slice(&chained.kind.to_le_bytes());
            buffer.extend_from_slice(&chained.aggregate.0);
            buffer.extend_from_slice(&chained.version.to_le_bytes());
            buffer.extend_from_slice(chained.commit.0.as_bytes());
        }
    }

    /// The head of a frame; `None` when it holds no record or its head has another length.
    pub(super) fn read(frame: &Frame) -> Option<Self> {
        let mut rest = frame.head();
        let partition = u16::from_le_bytes(take(&mut rest)?);
        let sequence = u64::from_le_bytes(take(&mut rest)?);
        let recorded_at = Timestamp(i64::from_le_bytes(take(&mut rest)?));
        let organization = OrganizationId(uuid::Uuid::from_bytes(take(&mut rest)?));
        let chained = match frame.kind {
            FrameKind::Batch => None,
            FrameKind::Commit => Some(ChainedHead {
                kind: u32::from_le_bytes(take(&mut rest)?),
                aggregate: AggregateKey(take(&mut rest)?),
                version: u64::from_le_bytes(take(&mut rest)?),
                commit: CommitId(uuid::Uuid::from_bytes(take(&mut rest)?)),
            }),
            FrameKind::Checkpoint | FrameKind::Blob => return None,
        };
        rest.is_empty().then_some(Self { partition, sequence, recorded_at, organization, chained })
    }

    /// The record as readers get it.
    pub(super) fn record(&self, stream: Stream, payload: Bytes) -> Record {
        let shard = (stream, self.partition);
        Record::new(shard, self.sequence, self.recorded_at, self.organization, payload)
    }
}

/// Takes the next bytes off the front.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

/// A filter made ready for heads of one stream.
#[derive(Debug, Clone)]
pub(super) struct HeadFilter {
    organization: Option<OrganizationId>,
    kinds: Vec<u32>,
}

impl HeadFilter {
    pub(super) fn of(filter: &ReadFilter) -> Self {
        Self {
            organization: filter.organization,
            kinds: filter.kinds.iter().map(|kind| kind_tag(*kind)).collect(),
        }
    }

    pub(super) fn wants(&self, head: &RecordHead) -> bool {
        let organization = self.organization.is_none_or(|wanted| wanted == head.organization);
        let kind = match &head.chained {
            Some(chained) => self.kinds.is_empty() || self.kinds.contains(&chained.kind),
            None => true,
        };
        organization && kind
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::frame::{self, Parsed, Place};
    use super::*;

    fn round_trip(head: &RecordHead) -> Option<RecordHead> {
        let mut bytes = vec![1, 2, 3];
        head.write(&mut bytes);
        let place = Place { salt: 1, segment: 2, offset: 3 };
        let mut frame = Vec::new();
        frame::write(&mut frame, place, head.frame_kind(), 0, &bytes, b"payload");
        let Parsed::Frame(frame) = frame::parse(&Bytes::from(frame), 0, place) else { return None };
        RecordHead::read(&frame)
    }

    proptest! {
        #[test]
        fn heads_are_read_as_written(
            numbers in any::<(u16, u64, i64, u128)>(),
            chained in proptest::option::of(any::<(u32, [u8; 16], u64, u128)>()),
        ) {
            let head = RecordHead {
                partition: numbers.0,
                sequence: numbers.1,
                recorded_at: Timestamp(numbers.2),
                organization: OrganizationId(uuid::Uuid::from_u128(numbers.3)),
                chained: chained.map(|(kind, aggregate, version, commit)| ChainedHead {
                    kind,
                    aggregate: AggregateKey(aggregate),
                    version,
                    commit: CommitId(uuid::Uuid::from_u128(commit)),
                }),
            };
            prop_assert_eq!(round_trip(&head), Some(head));
        }
    }

    #[test]
    fn no_two_kinds_share_a_tag() {
        let tags: BTreeSet<u32> = AggregateKind::ALL.iter().map(|kind| kind_tag(*kind)).collect();
        assert_eq!(tags.len(), AggregateKind::ALL.len());
    }

    #[test]
    fn aggregates_of_two_organizations_have_two_keys() {
        let aggregate = AggregateRef::new(AggregateKind::Source, "one");
        let other = OrganizationId(uuid::Uuid::from_u128(1));
        assert_ne!(AggregateKey::of(OrganizationId::SYSTEM, &aggregate), AggregateKey::of(other, &aggregate));
    }
}
