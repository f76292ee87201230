//! A bundle: a paged, content-addressed index over the manifests of one source at one Git commit, so that a small change
//! stores and moves little. Root and pages are blobs in MessagePack with named fields; objects are blobs of canonical JSON.

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::object::{ObjectIdentity, ObjectKey};

/// Largest page or object, in bytes: the link to agents carries no larger one.
pub const MAXIMUM_CONTENT_BYTES: usize = 4 << 20;

/// Most that the objects and pages of one source may take, in bytes: so much room an agent has for all of its sources.
pub const MAXIMUM_SOURCE_BYTES: usize = 128 << 20;

/// What an object takes of it beside its JSON.
pub const OBJECT_BYTES: usize = 1 << 10;

/// Objects a page holds on average. A power of two number of pages keeps an object on its page while a source grows.
pub const OBJECTS_PER_PAGE: usize = 32;

/// The first blob of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleRoot {
    /// Digests of the encoded pages, in page order.
    pub pages: Vec<Sha256>,
    /// How many objects all pages have.
    pub objects: u32,
}

/// The objects whose [`page_of`] is this page's number, in identity order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundlePage {
    /// The entries.
    pub entries: Vec<BundleEntry>,
}

/// One object of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEntry {
    /// Which object. The namespace is the manifest's own; the agent fills in the source's default where the kind is namespaced.
    pub identity: ObjectIdentity,
    /// SHA-256 of the object's canonical JSON.
    pub digest: Sha256,
    /// File it stands in.
    pub file: String,
    /// Line on which it begins, from 1.
    pub line: u32,
}

/// How many pages a bundle of `objects` objects has: the next power of two of objects / 32.
#[must_use]
pub fn pages_for(objects: usize) -> usize {
    objects.div_ceil(OBJECTS_PER_PAGE).max(1).next_power_of_two()
}

/// The page of an object among `pages`.
#[must_use]
pub fn page_of(identity: &ObjectIdentity, pages: usize) -> usize {
    page(&[&identity.group, &identity.kind, &identity.namespace, &identity.name], pages)
}

/// The page of an object by its key, with the namespace as the manifest has it.
#[must_use]
pub fn page_of_key(key: &ObjectKey, pages: usize) -> usize {
    page(&[&key.group, &key.kind, &key.namespace, &key.name], pages)
}

fn page(parts: &[&String; 4], pages: usize) -> usize {
    let key = crate::id::derived_uuid(&parts.map(|part| part.as_bytes()));
    usize::try_from(key.as_u128() % (pages.max(1) as u128)).unwrap_or(0)
}
