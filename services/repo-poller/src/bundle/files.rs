//! One file: parsed once, whoever wants it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use events::{ObjectIdentity, Sha256};
use objects::manifest::{Manifest, Warning, parse_manifests};
use objects::size::{STORED_BYTES, too_large};
use objects::yaml::Limits;

use crate::bundle::Built;
use crate::git::objects::{Content, Reader};
use crate::git::{GitError, ObjectId};

/// What one file may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Largest file, in bytes.
    pub bytes: u64,
    /// Most text of one object, in bytes.
    pub object_bytes: usize,
    /// Deepest nesting.
    pub depth: usize,
    /// Most nodes, counting what every alias repeats.
    pub nodes: usize,
}

impl Default for FileLimits {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            bytes: limits.bytes as u64,
            object_bytes: STORED_BYTES,
            depth: limits.depth,
            nodes: limits.nodes_after_aliases,
        }
    }
}

/// What a file holds. Does not depend on the file's name.
#[derive(Debug, PartialEq)]
pub struct ParsedFile {
    /// Size in bytes.
    pub bytes: u64,
    /// Its objects, or the first thing in it that is wrong: line, column, message.
    pub content: Result<Vec<ParsedObject>, (u32, u32, String)>,
}

/// One object of a file.
#[derive(Debug, PartialEq)]
pub struct ParsedObject {
    /// Which.
    pub identity: ObjectIdentity,
    /// SHA-256 of its canonical JSON.
    pub digest: Sha256,
    /// Bytes of that.
    pub bytes: usize,
    /// Line on which it begins.
    pub line: u32,
    /// What is accepted but surely not meant.
    pub warnings: Vec<Warning>,
}

/// Files that some source has now, by their Git object.
#[derive(Debug, Default)]
pub struct FileCache {
    known: BTreeMap<ObjectId, Weak<ParsedFile>>,
    sweep_at: usize,
}

impl FileCache {
    /// The parsed file, from what is known or from the repository. Contents of objects seen for the first time go into `built`.
    pub(super) fn parse(
        &mut self,
        id: ObjectId,
        path: &str,
        reader: &mut Reader,
        limits: &FileLimits,
        built: &mut Built,
    ) -> Result<Arc<ParsedFile>, GitError> {
        if let Some(known) = self.known.get(&id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let parsed = match reader.file(&id, limits.bytes)? {
            Content::TooLarge(bytes) => {
                let message =
                    format!("the file has {bytes} bytes, more than the maximum of {}", limits.bytes);
                ParsedFile { bytes, content: Err((0, 0, message)) }
            }
            Content::Bytes(bytes) => {
                built.statistics.parsed += 1;
                ParsedFile {
                    bytes: bytes.len() as u64,
                    content: parse(path, bytes, limits, &mut built.contents),
                }
            }
        };
        let parsed = Arc::new(parsed);
        self.known.insert(id, Arc::downgrade(&parsed));
        self.sweep();
        Ok(parsed)
    }

    /// Forgets what no source has any more, each time the map has doubled.
    fn sweep(&mut self) {
        if self.known.len() > self.sweep_at {
            self.known.retain(|_, file| file.strong_count() > 0);
            self.sweep_at = (self.known.len() * 2).max(1024);
        }
    }
}

fn parse(
    path: &str,
    bytes: Vec<u8>,
    limits: &FileLimits,
    contents: &mut Vec<Bytes>,
) -> Result<Vec<ParsedObject>, (u32, u32, String)> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), 0, "the file is not UTF-8".to_owned())
    })?;
    let size = usize::try_from(limits.bytes).unwrap_or(usize::MAX);
    let object_bytes = limits.object_bytes;
    let limits = Limits { bytes: size, depth: limits.depth, nodes_after_aliases: limits.nodes };
    let manifests =
        parse_manifests(path, &text, &limits).map_err(|error| (error.line, error.column, error.message))?;
    let mut objects = Vec::with_capacity(manifests.len());
    for Manifest { identity, object, line, digest, warnings, .. } in manifests {
        let json = objects::digest::canonical_bytes(&object);
        if let Some(reason) = too_large(&object, json.len(), object_bytes) {
            return Err((line, 0, format!("{} {} is too large: {reason}", identity.kind, identity.name)));
        }
        objects.push(ParsedObject { identity, digest, bytes: json.len(), line, warnings });
        contents.push(json.into());
    }
    Ok(objects)
}
