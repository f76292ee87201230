//! Objects that were fetched since the cache's last pack, in memory.
//!
//! A push brings a commit, a few trees and the changed files: a pack of its own for that, completed with its bases and indexed,
//! would cost more on disk than all that was said about it. What is lost at a restart is fetched again with the next push.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use gix::objs::{CommitRefIter, Kind, TagRefIter, TreeRefIter};
use gix_pack::data::entry::Header;
use gix_pack::data::input::{BytesToEntriesIter, Entry, EntryDataMode, Mode};

use crate::git::objects::Objects;
use crate::git::{GitError, ObjectId};

/// Most bytes that the objects of one small pack may have.
const UNPACKED_LIMIT: u64 = 32 * 1024 * 1024;

/// Objects by their id.
pub type Unpacked = BTreeMap<ObjectId, (Kind, Bytes)>;

/// Objects in memory. Never changed: a change makes another one.
#[derive(Debug, Default)]
pub struct Overlay {
    objects: Unpacked,
    bytes: usize,
}

impl Overlay {
    /// Kind and content of an object.
    #[must_use]
    pub fn get(&self, id: &ObjectId) -> Option<(Kind, &[u8])> {
        self.objects.get(id).map(|(kind, content)| (*kind, content.as_ref()))
    }

    /// Commits whose id begins with `prefix`.
    pub fn commits<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = ObjectId> + 'a {
        let commits = self.objects.iter().filter(|(_, (kind, _))| *kind == Kind::Commit);
        commits.map(|(id, _)| *id).filter(move |id| id.to_string().starts_with(prefix))
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How many bytes its objects have.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// These objects, too.
    #[must_use]
    pub fn with(&self, more: Unpacked) -> Self {
        let mut objects = self.objects.clone();
        objects.extend(more);
        Self::of(objects)
    }

    /// Only what these commits need. What they need and is not here lies in the packs, with all below it.
    #[must_use]
    pub fn reachable(&self, tips: &[ObjectId]) -> Self {
        let mut objects = Unpacked::new();
        let mut open = tips.to_vec();
        while let Some(id) = open.pop() {
            let Some((kind, content)) = self.objects.get(&id) else { continue };
            if objects.insert(id, (*kind, content.clone())).is_none() {
                open.extend(below(*kind, content));
            }
        }
        Self::of(objects)
    }

    fn of(objects: Unpacked) -> Self {
        let bytes = objects.values().map(|(_, content)| content.len()).sum();
        Self { objects, bytes }
    }
}

/// What an object leads to; history aside.
fn below(kind: Kind, content: &[u8]) -> Vec<ObjectId> {
    let hash = gix::hash::Kind::Sha1;
    match kind {
        Kind::Commit => CommitRefIter::from_bytes(content, hash).tree_id().into_iter().collect(),
        Kind::Tag => TagRefIter::from_bytes(content, hash).target_id().into_iter().collect(),
        Kind::Tree => {
            TreeRefIter::from_bytes(content, hash).flatten().map(|entry| entry.oid.to_owned()).collect()
        }
        Kind::Blob => Vec::new(),
    }
}

/// Takes a pack apart; bases of its deltas that are not in it are looked for in `known`.
///
/// # Errors
/// When the pack is damaged or unpacks to more than a small one should.
pub fn unpack(pack: &[Bytes], known: &Objects) -> Result<Unpacked, GitError> {
    let mut unpacking =
        Unpacking { known, objects: Unpacked::new(), offsets: BTreeMap::new(), left: UNPACKED_LIMIT };
    let all: Bytes = pack.concat().into();
    let entries = BytesToEntriesIter::new_from_header(
        all.reader(),
        Mode::Verify,
        EntryDataMode::Keep,
        gix::hash::Kind::Sha1,
    );
    let mut waiting = Vec::new();
    for entry in entries.map_err(|_| damaged())? {
        waiting.extend(unpacking.entry(entry.map_err(|_| damaged())?)?);
    }
    // A delta may come before its base: goes round until nothing is left, or nothing moves.
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut still = Vec::new();
        for entry in waiting {
            still.extend(unpacking.entry(entry)?);
        }
        if still.len() == before {
            return Err(GitError::broken("the server's pack needs objects that it does not have"));
        }
        waiting = still;
    }
    Ok(unpacking.objects)
}

fn damaged() -> GitError {
    GitError::broken("the server's pack is damaged")
}

struct Unpacking<'a> {
    known: &'a Objects,
    objects: Unpacked,
    /// Where each object of the pack stands in it.
    offsets: BTreeMap<u64, ObjectId>,
    left: u64,
}

impl Unpacking<'_> {
    /// Takes an entry in; gives it back when its base is not there yet.
    fn entry(&mut self, entry: Entry) -> Result<Option<Entry>, GitError> {
        let base = match entry.header {
            Header::RefDelta { base_id } => Some(base_id),
            Header::OfsDelta { base_distance } => {
                let offset = Header::verified_base_pack_offset(entry.pack_offset, base_distance)
                    .ok_or_else(damaged)?;
                match self.offsets.get(&offset) {
                    Some(id) => Some(*id),
                    None => return Ok(Some(entry)),
                }
            }
            _ => None,
        };
        let (kind, content) = match (base, entry.header.as_kind()) {
            (None, Some(kind)) => (kind, self.inflate(&entry)?),
            (Some(id), _) => match self.base(&id)? {
                Some((kind, base)) => {
                    let delta = self.inflate(&entry)?;
                    (kind, self.apply(&base, &delta)?)
                }
                None => return Ok(Some(entry)),
            },
            (None, None) => return Err(damaged()),
        };
        let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, &content).map_err(|_| damaged())?;
        self.offsets.insert(entry.pack_offset, id);
        self.objects.insert(id, (kind, content.into()));
        Ok(None)
    }

    fn base(&self, id: &ObjectId) -> Result<Option<(Kind, Bytes)>, GitError> {
        match self.objects.get(id) {
            Some((kind, content)) => Ok(Some((*kind, content.clone()))),
            None => self
                .known
                .reader()
                .raw(id)
                .map(|found| found.map(|(kind, bytes)| (kind, Bytes::copy_from_slice(bytes)))),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<usize, GitError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            GitError::broken(format!(
                "a small pack of the server unpacks to more than {UNPACKED_LIMIT} bytes"
            ))
        })?;
        usize::try_from(bytes).map_err(|_| damaged())
    }

    fn inflate(&mut self, entry: &Entry) -> Result<Vec<u8>, GitError> {
        let mut content = vec![0; self.take(entry.decompressed_size)?];
        let compressed = entry.compressed.as_deref().ok_or_else(damaged)?;
        let (_, _, written) =
            gix::zlib::Inflate::default().once(compressed, &mut content).map_err(|_| damaged())?;
        if written == content.len() { Ok(content) } else { Err(damaged()) }
    }

    fn apply(&mut self, base: &[u8], delta: &[u8]) -> Result<Vec<u8>, GitError> {
        let mut delta = Delta(delta);
        let (from, to) = (delta.size()?, delta.size()?);
        if usize::try_from(from) != Ok(base.len()) {
            return Err(damaged());
        }
        let length = self.take(to)?;
        let mut content = Vec::with_capacity(length);
        while let Some(part) = delta.part(base)? {
            if content.len() + part.len() > length {
                return Err(damaged());
            }
            content.extend_from_slice(part);
        }
        if content.len() == length { Ok(content) } else { Err(damaged()) }
    }
}

/// The instructions of a delta, as Git writes them.
struct Delta<'d>(&'d [u8]);

impl<'d> Delta<'d> {
    fn byte(&mut self) -> Result<u8, GitError> {
        let (first, rest) = self.0.split_first().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number in groups of seven bits, the lowest first.
    fn size(&mut self) -> Result<u64, GitError> {
        let mut size = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            size |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(size);
            }
        }
        Err(damaged())
    }

    /// What the next instruction appends: a piece of the base, or bytes of its own.
    fn part<'p>(&mut self, base: &'p [u8]) -> Result<Option<&'p [u8]>, GitError>
    where
        'd: 'p,
    {
        let Some((&instruction, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        if instruction & 0x80 == 0 {
            let (own, rest) = self.0.split_at_checked(usize::from(instruction)).ok_or_else(damaged)?;
            self.0 = rest;
            return if own.is_empty() { Err(damaged()) } else { Ok(Some(own)) };
        }
        let mut number = |bits: std::ops::Range<u8>| -> Result<usize, GitError> {
            let mut number = 0_usize;
            for (place, bit) in bits.enumerate() {
                if instruction & (1 << bit) != 0 {
                    number |= usize::from(self.byte()?) << (8 * place);
                }
            }
            Ok(number)
        };
        let (offset, length) = (number(0..4)?, number(4..7)?);
        let length = if length == 0 { 0x10000 } else { length };
        let end = offset.checked_add(length).ok_or_else(damaged)?;
        base.get(offset..end).map(Some).ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests;
