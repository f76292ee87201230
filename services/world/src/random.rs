//! Randomness.

use ring::rand::SecureRandom;

/// A source of random bytes, good enough for keys.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);

    /// A number below `bound` (0 when `bound` is 0), for jitter.
    fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}

/// The operating system's.
#[derive(Debug, Clone)]
pub struct SystemRandom {
    inner: ring::rand::SystemRandom,
}

impl SystemRandom {
    /// The operating system's generator.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: ring::rand::SystemRandom::new() }
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
}
