//! The newest commit of each aggregate, and its history: the index, checked against the segments.
//!
//! What the index says is believed only after the record that it points to was read and fits.

use std::sync::Arc;

use events::{ChainHash, CommitId, Position};

use super::database::IndexError;
use super::frame::{Frame, PRELUDE};
use super::index::{AggregateHead, Index};
use super::record::{AggregateKey, RecordHead};
use super::scan::{Scanner, Step};
use super::segments::Cursor;
use super::stream::StreamCore;
use crate::log::{Appended, ReadError, Record};

/// Looks aggregates up.
pub(super) struct AggregateHeads {
    pub(super) index: Arc<Index>,
    pub(super) core: Arc<StreamCore>,
}

/// A look-up failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookUpError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The index points to something else.
    #[error(
        "the index does not match the segments: delete the folder `index`, it is rebuilt at the next start"
    )]
    Misfit,
}

impl LookUpError {
    pub(super) fn read(self) -> ReadError {
        match self {
            Self::Read(error) => error,
            other => ReadError::Failed { detail: other.to_string() },
        }
    }
}

impl AggregateHeads {
    /// The index said something that the segments do not bear out: it must not be believed again.
    fn misfit(&self) -> LookUpError {
        self.index.distrust();
        LookUpError::Misfit
    }

    /// An aggregate's newest commit.
    pub(super) fn head(&self, key: AggregateKey) -> Result<AggregateHead, LookUpError> {
        if let Some(head) = self.index.head_at_hand(key) {
            return Ok(head);
        }
        let Some((version, at)) = self.index.newest(key)? else { return Ok(AggregateHead::NONE) };
        let (_, frame) = self.commit_at(key, version, at)?;
        Ok(AggregateHead { version, hash: ChainHash::of(&frame.payload) })
    }

    /// What an append answered whose commit is in the aggregate's history.
    pub(super) fn duplicate(
        &self,
        key: AggregateKey,
        commit: CommitId,
    ) -> Result<Option<Appended>, LookUpError> {
        let Some((version, head, _)) = self.stored(key, commit)? else { return Ok(None) };
        let position = Position::of(self.core.stream, head.partition, head.sequence);
        Ok(Some(Appended { version, position, duplicate: true }))
    }

    /// The record of a commit in an aggregate's history.
    pub(super) fn find(&self, key: AggregateKey, commit: CommitId) -> Result<Option<Record>, LookUpError> {
        let stored = self.stored(key, commit)?;
        Ok(stored.map(|(_, head, frame)| head.record(self.core.stream, frame.payload)))
    }

    /// All records of an aggregate, oldest first.
    pub(super) fn history(&self, key: AggregateKey) -> Result<Vec<Record>, LookUpError> {
        let places = self.index.places(key, 1, None)?;
        let mut records = Vec::with_capacity(places.len());
        for ((version, at), expected) in places.into_iter().zip(1_u64..) {
            if version != expected {
                return Err(self.misfit());
            }
            let (head, frame) = self.commit_at(key, version, at)?;
            records.push(head.record(self.core.stream, frame.payload));
        }
        Ok(records)
    }

    fn stored(
        &self,
        key: AggregateKey,
        commit: CommitId,
    ) -> Result<Option<(u64, RecordHead, Frame)>, LookUpError> {
        let Some(version) = self.index.version_of(key, commit)? else { return Ok(None) };
        let at = self.index.place_of(key, version)?.ok_or_else(|| self.misfit())?;
        let (head, frame) = self.commit_at(key, version, at)?;
        if head.chained.is_none_or(|chained| chained.commit != commit) {
            return Err(self.misfit());
        }
        Ok(Some((version, head, frame)))
    }

    fn commit_at(
        &self,
        key: AggregateKey,
        version: u64,
        at: Cursor,
    ) -> Result<(RecordHead, Frame), LookUpError> {
        // What the index knows is durable, though perhaps not published yet: read one frame, wherever the end is.
        let segments = &self.core.segments;
        let mut scanner = Scanner::until(Arc::clone(segments), at, at.plus(PRELUDE as u64)).of_one();
        let step = scanner.next().map_err(|error| ReadError::Failed { detail: error.to_string() })?;
        let frame = match step {
            Step::Frame(_, frame) => frame,
            Step::End => return Err(self.misfit()),
            Step::Broken(broken) => return Err(broken.error(segments).into()),
        };
        let head = RecordHead::read(&frame).ok_or_else(|| self.misfit())?;
        match head.chained {
            Some(chained) if chained.aggregate == key && chained.version == version => Ok((head, frame)),
            _ => Err(self.misfit()),
        }
    }
}
