//! Where symbolic links lead, inside the tree of one commit.

use std::collections::VecDeque;

use gix::objs::tree::EntryKind;

use crate::git::objects::{Content, Reader};
use crate::git::tree::{entries, join};
use crate::git::{GitError, ObjectId};

/// Links on the way to one target, at most, as on Linux.
const MOST_LINKS: usize = 40;
/// Longest content of a link, in bytes, as on Linux.
const LONGEST_LINK: u64 = 4096;

/// What a symbolic link stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file of the repository, by its path.
    File(Vec<u8>),
    /// A folder of the repository: its path and its tree.
    Folder(Vec<u8>, ObjectId),
    /// Something in a submodule.
    Submodule,
    /// A place outside of the repository.
    Outside,
    /// Nothing: the target is missing, or the link leads to itself.
    Nowhere,
}

/// Follows the link at a path of a tree. Never leaves the tree.
///
/// # Errors
/// When an object is missing or damaged.
pub fn follow(reader: &mut Reader, root: ObjectId, path: &str) -> Result<Target, GitError> {
    let mut names: VecDeque<Vec<u8>> = parts(path.as_bytes()).collect();
    let mut folders: Vec<(Vec<u8>, ObjectId)> = Vec::new();
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if name == b".." {
            if folders.pop().is_none() {
                return Ok(Target::Outside);
            }
            continue;
        }
        let (at, tree) = folders.last().map_or((b"".as_slice(), root), |(path, tree)| (path, *tree));
        let Some((kind, id)) = entries(reader, Some(tree))?.get(&name).copied() else {
            return Ok(Target::Nowhere);
        };
        match kind {
            EntryKind::Tree => folders.push((join(at, &name), id)),
            EntryKind::Blob | EntryKind::BlobExecutable if names.is_empty() => {
                return Ok(Target::File(join(at, &name)));
            }
            EntryKind::Blob | EntryKind::BlobExecutable => return Ok(Target::Nowhere),
            EntryKind::Commit => return Ok(Target::Submodule),
            EntryKind::Link => {
                links += 1;
                let content = match reader.file(&id, LONGEST_LINK)? {
                    Content::Bytes(content) if links <= MOST_LINKS => content,
                    Content::Bytes(_) | Content::TooLarge(_) => return Ok(Target::Nowhere),
                };
                if content.starts_with(b"/") {
                    return Ok(Target::Outside);
                }
                for part in parts(&content).rev() {
                    names.push_front(part);
                }
            }
        }
    }
    Ok(folders.pop().map_or(Target::Folder(Vec::new(), root), |(path, tree)| Target::Folder(path, tree)))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    let named = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    named.map(<[u8]>::to_vec)
}
