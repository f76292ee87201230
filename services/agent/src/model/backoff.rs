//! Waiting longer each time, with jitter.

use std::time::Duration;

use world::Random;

/// Doubles from `first` to `cap`; each wait is drawn from its upper half.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Starts at the first wait.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempt: 0 }
    }

    /// The next wait.
    pub fn next(&mut self, random: &dyn Random) -> Duration {
        let whole =
            self.first.saturating_mul(1_u32.checked_shl(self.attempt).unwrap_or(u32::MAX)).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        let half = whole / 2;
        let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(random.below(spread.saturating_add(1)))
    }

    /// Starts again.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Highest;
    impl Random for Highest {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0xff);
        }
        fn below(&self, bound: u64) -> u64 {
            bound.saturating_sub(1)
        }
    }

    #[test]
    fn doubles_up_to_its_cap_and_never_overflows() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let waits: Vec<u128> = (0..6).map(|_| backoff.next(&Highest).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        for _ in 0..100 {
            assert!(backoff.next(&Highest) <= Duration::from_secs(1));
        }
        backoff.reset();
        assert_eq!(backoff.next(&Highest).as_millis(), 100);
    }
}
