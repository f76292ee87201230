//! What was reported of the objects of one feed: about a hundred bytes for each, and no body.
//!
//! A *statement* is a list after which everything is reported: what was not stated in it is gone. What a list finds unchanged is reported only
//! if it was not stated yet.

use std::collections::BTreeMap;

use events::Sha256;
use uuid::Uuid;

/// An object as it tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its UID.
    pub uid: String,
    /// Its namespace, empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its `metadata.resourceVersion`.
    pub version: String,
}

/// What is to be told of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing: it is as it was stated.
    Nothing,
    /// That it is as it was.
    Kept,
    /// Its body.
    Changed,
}

/// The objects of a feed.
#[derive(Debug, Default)]
pub struct Known {
    objects: BTreeMap<Key, Entry>,
    /// UIDs that are no UUIDs: of these the key is only a hash.
    odd: BTreeMap<Key, Box<str>>,
    statement: u16,
    list: u16,
}

type Key = [u8; 16];

#[derive(Debug)]
struct Entry {
    /// Of the digest of its body: two bodies that share it are taken for the same.
    digest: u64,
    /// 0 where it is no number.
    version: u64,
    /// Its namespace and its name, a slash between them: one allocation, and no pointer to a namespace that others share.
    place: Box<str>,
    /// When its body was reported last, in minutes of the monotonic clock.
    told: u32,
    /// The statement in which it was stated last.
    stated: u16,
    /// The list in which it was seen last.
    listed: u16,
}

impl Known {
    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Nothing was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// From now on everything counts as not stated.
    pub const fn begin_statement(&mut self) {
        self.statement = self.statement.wrapping_add(1);
    }

    /// From now on everything counts as not listed.
    pub const fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Whether an object is stated in exactly this version, so that nobody needs to look at it. It counts as listed then.
    pub fn is_current(&mut self, head: &Head) -> bool {
        let (statement, list) = (self.statement, self.list);
        let Some(entry) = self.objects.get_mut(&key(&head.uid)) else { return false };
        let is_current =
            entry.stated == statement && entry.version != 0 && entry.version == number(&head.version);
        if is_current {
            entry.listed = list;
        }
        is_current
    }

    /// What is to be told of an object of this digest. A body that was reported before `long_ago` (in minutes) is reported again where the object
    /// is stated anew, so that it is never only in what the server has forgotten.
    #[must_use]
    pub fn news(&self, uid: &str, digest: &Sha256, long_ago: u32) -> News {
        match self.objects.get(&key(uid)) {
            Some(entry) if entry.digest == prefix(digest) => {
                if entry.stated == self.statement {
                    News::Nothing
                } else if entry.told >= long_ago {
                    News::Kept
                } else {
                    News::Changed
                }
            }
            _ => News::Changed,
        }
    }

    /// Whether anything was reported of an object.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.objects.contains_key(&key(uid))
    }

    /// This was reported, at `now` (in minutes).
    pub fn told(&mut self, head: Head, digest: &Sha256, news: News, now: u32) {
        let key = key(&head.uid);
        let told = match (news, self.objects.get(&key)) {
            (News::Nothing | News::Kept, Some(entry)) => entry.told,
            _ => now,
        };
        let entry = Entry {
            digest: prefix(digest),
            version: number(&head.version),
            place: [head.namespace.as_str(), head.name.as_str()].join("/").into_boxed_str(),
            told,
            stated: self.statement,
            listed: self.list,
        };
        self.objects.insert(key, entry);
        if uid_of(&key) != head.uid {
            self.odd.insert(key, head.uid.into_boxed_str());
        }
    }

    /// It is gone; whether anything was reported of it.
    pub fn forget(&mut self, uid: &str) -> bool {
        let key = key(uid);
        self.odd.remove(&key);
        self.objects.remove(&key).is_some()
    }

    /// At most so many of those that were not in the list that ends now: all of a large kind may be gone at once.
    #[must_use]
    pub fn unlisted(&self, most: usize) -> Vec<Head> {
        let unlisted = self.objects.iter().filter(|(_, entry)| entry.listed != self.list);
        unlisted.take(most).map(|(key, entry)| self.head(key, entry)).collect()
    }

    /// Everything.
    pub fn all(&self) -> impl Iterator<Item = Head> {
        self.objects.iter().map(|(key, entry)| self.head(key, entry))
    }

    fn head(&self, key: &Key, entry: &Entry) -> Head {
        // No namespace has a slash in its name.
        let (namespace, name) = entry.place.split_once('/').unwrap_or_default();
        Head {
            uid: self.odd.get(key).map_or_else(|| uid_of(key), |uid| uid.to_string()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            version: if entry.version == 0 { String::new() } else { entry.version.to_string() },
        }
    }
}

/// The UID itself if it is a UUID, as the API server makes them; else the beginning of its hash.
fn key(uid: &str) -> Key {
    let mut buffer = Uuid::encode_buffer();
    match Uuid::try_parse(uid) {
        Ok(uuid) if uuid.hyphenated().encode_lower(&mut buffer) == uid => uuid.into_bytes(),
        _ => {
            let mut key = Key::default();
            key.iter_mut().zip(Sha256::of(uid.as_bytes()).0).for_each(|(to, from)| *to = from);
            key
        }
    }
}

fn uid_of(key: &Key) -> String {
    Uuid::from_bytes(*key).to_string()
}

fn prefix(digest: &Sha256) -> u64 {
    digest.0.iter().take(8).fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
}

fn number(version: &str) -> u64 {
    // Written otherwise it could not be given back.
    if version.starts_with(|first: char| matches!(first, '1'..='9')) {
        version.parse().unwrap_or(0)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55";

    fn head(uid: &str, version: &str) -> Head {
        let [uid, namespace, name, version] = [uid, "shop", "a", version].map(str::to_owned);
        Head { uid, namespace, name, version }
    }

    fn digest(content: &str) -> Sha256 {
        Sha256::of(content.as_bytes())
    }

    #[test]
    fn what_is_unchanged_is_told_once_a_statement() {
        let mut known = Known::default();
        known.begin_statement();
        known.begin_list();
        assert_eq!(known.news(UUID, &digest("a"), 0), News::Changed);
        known.told(head(UUID, "5"), &digest("a"), News::Changed, 10);
        assert_eq!(known.news(UUID, &digest("a"), 0), News::Nothing);
        assert_eq!(known.news(UUID, &digest("b"), 0), News::Changed);
        assert!(known.is_current(&head(UUID, "5")) && !known.is_current(&head(UUID, "6")));
        known.begin_statement();
        assert!(!known.is_current(&head(UUID, "5")), "it has to be stated again");
        assert_eq!(known.news(UUID, &digest("a"), 10), News::Kept);
        assert_eq!(known.news(UUID, &digest("a"), 11), News::Changed, "its body was told too long ago");
        known.told(head(UUID, "5"), &digest("a"), News::Kept, 20);
        known.begin_statement();
        assert_eq!(known.news(UUID, &digest("a"), 11), News::Changed, "no body was told since");
    }

    #[test]
    fn what_a_list_does_not_have_is_named_in_full() {
        let mut known = Known::default();
        for uid in [UUID, "mirror-of-a-file", "0190B6A2-7c1e-7d3a-9f10-6b2f4c8d1e55"] {
            known.told(head(uid, "5"), &digest("a"), News::Changed, 0);
        }
        assert_eq!(known.len(), 3, "the same number written otherwise is another UID");
        known.begin_list();
        assert!(known.is_current(&head(UUID, "5")));
        assert_eq!(known.unlisted(1).len(), 1);
        let mut unlisted = known.unlisted(10);
        unlisted.sort_by(|left, right| left.uid.cmp(&right.uid));
        assert_eq!(
            unlisted,
            [head("0190B6A2-7c1e-7d3a-9f10-6b2f4c8d1e55", "5"), head("mirror-of-a-file", "5")]
        );
        assert!(known.forget("mirror-of-a-file") && !known.forget("mirror-of-a-file"));
        assert_eq!(known.all().count(), 2);
    }

    #[test]
    fn a_version_that_is_no_number_is_never_taken_for_the_same() {
        let mut known = Known::default();
        for version in ["", "x1", "007"] {
            known.told(head(UUID, version), &digest("a"), News::Changed, 0);
            assert!(!known.is_current(&head(UUID, version)), "{version}");
            assert_eq!(known.all().next().unwrap().version, "");
        }
    }

    #[test]
    fn a_name_may_have_slashes() {
        let mut known = Known::default();
        for namespace in ["", "shop"] {
            let [namespace, name] = [namespace, "/a/b/"].map(str::to_owned);
            let told = Head { namespace, name, ..head(UUID, "5") };
            known.told(told.clone(), &digest("a"), News::Changed, 0);
            assert_eq!(known.all().next(), Some(told));
        }
    }

    #[test]
    fn an_object_takes_about_a_hundred_bytes() {
        assert!(size_of::<Key>() + size_of::<Entry>() <= 56);
    }
}
