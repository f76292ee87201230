//! How many bytes an agent may send.

use std::time::Duration;

/// So many bytes a second for long, twice as many at once. What is over is waited for, never dropped.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    left: f64,
    refilled: Duration,
}

impl TokenBucket {
    /// A full allowance at `now`.
    #[must_use]
    pub fn new(bytes_per_second: u32, now: Duration) -> Self {
        let per_second = f64::from(bytes_per_second.max(1));
        Self { per_second, left: per_second * 2.0, refilled: now }
    }

    /// Whether nothing of the allowance is taken.
    pub fn is_full(&mut self, now: Duration) -> bool {
        self.take(0, now);
        self.left >= self.per_second * 2.0
    }

    /// Takes `bytes`; gives how long to wait before the next are taken. `now` never runs backwards.
    pub fn take(&mut self, bytes: usize, now: Duration) -> Duration {
        let since = now.saturating_sub(self.refilled).as_secs_f64();
        self.refilled = now;
        self.left = since.mul_add(self.per_second, self.left).min(self.per_second * 2.0);
        self.left -= f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.left / self.per_second) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_waited_for() {
        let mut bucket = TokenBucket::new(1000, Duration::ZERO);
        assert_eq!(bucket.take(2000, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take(500, Duration::ZERO), Duration::from_millis(500));
        assert_eq!(bucket.take(500, Duration::from_millis(500)), Duration::from_millis(500));
        assert_eq!(
            bucket.take(2000, Duration::from_secs(60)),
            Duration::ZERO,
            "a long silence saves up twice a second's"
        );
        assert!(bucket.take(1, Duration::from_secs(60)) > Duration::ZERO);
    }
}
