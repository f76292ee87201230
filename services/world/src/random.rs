//! Randomness.

use parking_lot::Mutex;
use ring::rand::SecureRandom;

/// Random bytes of an id.
pub const ID_BYTES: usize = 10;
/// Ids' bytes that the operating system is asked for at once.
const IDS_AT_ONCE: usize = 100;

/// A source of random bytes, good enough for keys.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);

    /// Random bytes for an id, which may lie in memory for a while before: nothing for keys.
    fn id(&self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        self.fill(&mut bytes);
        bytes
    }

    /// A number below `bound` (0 when `bound` is 0), for jitter.
    fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}

/// The operating system's. It is asked for ids by the hundred: each question is a call of the kernel.
#[derive(Debug)]
pub struct SystemRandom {
    inner: ring::rand::SystemRandom,
    ids: Mutex<Vec<[u8; ID_BYTES]>>,
}

impl SystemRandom {
    /// The operating system's generator.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: ring::rand::SystemRandom::new(), ids: Mutex::default() }
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for SystemRandom {
    #[expect(
        clippy::expect_used,
        reason = "without randomness no key and no id is safe: the process must end"
    )]
    fn fill(&self, bytes: &mut [u8]) {
        self.inner.fill(bytes).expect("the operating system has a random number generator");
    }

    fn id(&self) -> [u8; ID_BYTES] {
        let mut ids = self.ids.lock();
        if let Some(id) = ids.pop() {
            return id;
        }
        let mut fresh = [[0; ID_BYTES]; IDS_AT_ONCE];
        self.fill(fresh.as_flattened_mut());
        let [id, others @ ..] = fresh;
        ids.extend(others);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_ids_are_the_same() {
        let random = SystemRandom::new();
        let ids: BTreeSet<_> = (0..10 * IDS_AT_ONCE).map(|_| random.id()).collect();
        assert_eq!(ids.len(), 10 * IDS_AT_ONCE);
        assert!(!ids.contains(&[0; ID_BYTES]));
    }
}
