//! The pages of a bundle, kept so that a change encodes only those that it touches.

use std::collections::BTreeMap;

use bytes::Bytes;
use events::bundle::{BundleEntry, BundlePage, BundleRoot, page_of, pages_for};
use events::{ObjectIdentity, Sha256};

/// One object at one place. While a commit is bad, two places may have the same object.
pub type Place = (ObjectIdentity, String, u32);

/// All objects of a source, on their pages.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Vec<Page>,
    objects: usize,
}

#[derive(Debug, Default)]
struct Page {
    entries: BTreeMap<Place, Sha256>,
    /// Digest and length of the encoded page; `None` after a change.
    encoded: Option<(Sha256, usize)>,
}

/// What came of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// Digest of the root.
    pub root: Sha256,
    /// How many pages were encoded anew.
    pub pages: usize,
    /// Bytes of all pages.
    pub bytes: usize,
    /// Bytes of the largest.
    pub largest: usize,
}

impl Pages {
    /// How many objects there are.
    #[must_use]
    pub const fn objects(&self) -> usize {
        self.objects
    }

    /// Adds an object.
    pub fn insert(&mut self, place: Place, digest: Sha256) {
        if self.pages.is_empty() {
            self.pages.push(Page::default());
        }
        if let Some(page) = self.page(&place.0)
            && page.entries.insert(place, digest).is_none()
        {
            page.encoded = None;
            self.objects += 1;
        }
    }

    /// Takes an object away.
    pub fn remove(&mut self, place: &Place) {
        if let Some(page) = self.page(&place.0)
            && page.entries.remove(place).is_some()
        {
            page.encoded = None;
            self.objects -= 1;
        }
    }

    fn page(&mut self, identity: &ObjectIdentity) -> Option<&mut Page> {
        let index = page_of(identity, self.pages.len());
        self.pages.get_mut(index)
    }

    /// Encodes what changed; new bytes go into `contents`.
    pub fn encode(&mut self, contents: &mut Vec<Bytes>) -> Encoded {
        self.spread();
        let (mut pages, mut bytes, mut largest) = (0, 0, 0);
        let mut digests = Vec::with_capacity(self.pages.len());
        for page in &mut self.pages {
            let (digest, length) = page.encoded.unwrap_or_else(|| {
                pages += 1;
                page.encode(contents)
            });
            digests.push(digest);
            bytes += length;
            largest = largest.max(length);
        }
        let root = BundleRoot { pages: digests, objects: u32::try_from(self.objects).unwrap_or(u32::MAX) };
        Encoded { root: encoded_blob(&root, contents).0, pages, bytes, largest }
    }

    /// Puts all objects on new pages when their number asks for another number of pages.
    fn spread(&mut self) {
        let wanted = pages_for(self.objects);
        if self.pages.len() == wanted {
            return;
        }
        let old = std::mem::take(&mut self.pages);
        self.pages.resize_with(wanted, Page::default);
        for (place, digest) in old.into_iter().flat_map(|page| page.entries) {
            if let Some(page) = self.page(&place.0) {
                page.entries.insert(place, digest);
            }
        }
    }
}

impl Page {
    fn encode(&mut self, contents: &mut Vec<Bytes>) -> (Sha256, usize) {
        let entry = |((identity, file, line), digest): (&Place, &Sha256)| BundleEntry {
            identity: identity.clone(),
            digest: *digest,
            file: file.clone(),
            line: *line,
        };
        let page = BundlePage { entries: self.entries.iter().map(entry).collect() };
        let encoded = encoded_blob(&page, contents);
        self.encoded = Some(encoded);
        encoded
    }
}

/// These types always encode: they have no map but those with text keys.
fn encoded_blob<T: serde::Serialize>(value: &T, contents: &mut Vec<Bytes>) -> (Sha256, usize) {
    let bytes = events::encode(value).unwrap_or_default();
    let encoded = (Sha256::of(&bytes), bytes.len());
    contents.push(bytes.into());
    encoded
}
