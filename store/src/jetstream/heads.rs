//! What is known of aggregates: their newest commit, and the ids of all.
//!
//! An append needs the newest commit's sequence and hash, and must know whether a commit's id was used before. What this process
//! appended or looked up is kept for a while; whether it is still so, the server says when it takes or refuses an append.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use events::{AggregateRef, ChainHash, CommitId, OrganizationId};
use parking_lot::Mutex;

/// Names an aggregate in all organizations.
pub(super) type Key = (OrganizationId, AggregateRef);

/// Aggregates that are kept at least, and twice as many at most.
const KEPT: usize = 8 * 1024;

/// The newest commit of an aggregate, and what came before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AggregateHead {
    pub(super) version: u64,
    /// The newest commit's sequence in its stream, 0 for none.
    pub(super) sequence: u64,
    pub(super) hash: ChainHash,
    /// Version and sequence of each commit.
    pub(super) commits: BTreeMap<CommitId, (u64, u64)>,
}

impl AggregateHead {
    /// Takes the next commit in.
    pub(super) fn advance(&mut self, commit: CommitId, sequence: u64, hash: ChainHash) {
        self.version += 1;
        self.sequence = sequence;
        self.hash = hash;
        self.commits.insert(commit, (self.version, sequence));
    }

    /// What an append of a commit needs.
    pub(super) fn append_base(&self, commit: CommitId) -> AppendBase {
        let earlier = self.commits.get(&commit).copied();
        AppendBase { version: self.version, sequence: self.sequence, hash: self.hash, earlier }
    }
}

/// A head as an append needs it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AppendBase {
    pub(super) version: u64,
    pub(super) sequence: u64,
    pub(super) hash: ChainHash,
    /// Version and sequence that the same commit got before.
    pub(super) earlier: Option<(u64, u64)>,
}

/// Heads of the aggregates that were used last.
#[derive(Default)]
pub(super) struct AggregateHeads {
    generations: Mutex<Generations>,
}

/// What was used since the last turn, and what was used before it.
#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<AggregateHead>>,
    old: HashMap<Key, Arc<AggregateHead>>,
}

impl AggregateHeads {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<AggregateHead>> {
        let mut generations = self.generations.lock();
        if let Some(head) = generations.young.get(key) {
            return Some(Arc::clone(head));
        }
        let (key, head) = generations.old.remove_entry(key)?;
        generations.put(key, Arc::clone(&head));
        Some(head)
    }

    /// Takes in what was appended behind a version, where that version is known.
    pub(super) fn advance(&self, key: &Key, behind: u64, commit: CommitId, sequence: u64, hash: ChainHash) {
        let mut generations = self.generations.lock();
        if behind == 0 {
            let mut head = AggregateHead::default();
            head.advance(commit, sequence, hash);
            generations.put(key.clone(), Arc::new(head));
            return;
        }
        let Generations { young, old } = &mut *generations;
        let known = young.get_mut(key).or_else(|| old.get_mut(key));
        if let Some(head) = known.filter(|head| head.version == behind) {
            Arc::make_mut(head).advance(commit, sequence, hash);
        }
    }

    /// Keeps a head, unless a newer one is known.
    pub(super) fn keep(&self, key: &Key, head: Arc<AggregateHead>) {
        let mut generations = self.generations.lock();
        let known = generations.young.get(key).or_else(|| generations.old.get(key));
        if known.is_none_or(|known| known.version < head.version) {
            generations.put(key.clone(), head);
        }
    }
}

impl Generations {
    fn put(&mut self, key: Key, head: Arc<AggregateHead>) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, head);
    }
}

#[cfg(test)]
mod tests {
    use events::AggregateKind;

    use super::*;

    fn key(id: usize) -> Key {
        (OrganizationId(uuid::Uuid::from_u128(1)), AggregateRef::new(AggregateKind::Agent, id))
    }

    fn head(version: u64) -> Arc<AggregateHead> {
        Arc::new(AggregateHead { version, ..AggregateHead::default() })
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let heads = AggregateHeads::default();
        heads.keep(&key(0), head(1));
        heads.keep(&key(1), head(1));
        for id in 2..3 * KEPT {
            heads.keep(&key(id), head(1));
            if id % 100 == 0 {
                assert!(heads.get(&key(0)).is_some(), "used, and forgotten at {id}");
            }
        }
        assert!(heads.get(&key(1)).is_none(), "kept for ever");
    }

    #[test]
    fn an_older_head_replaces_no_newer_one() {
        let heads = AggregateHeads::default();
        heads.keep(&key(0), head(3));
        heads.keep(&key(0), head(2));
        assert_eq!(heads.get(&key(0)).unwrap().version, 3);
    }
}
