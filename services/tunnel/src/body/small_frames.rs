//! A bucket of small frames.

use std::time::Duration;

/// So many at once, so many a second for long.
#[derive(Debug)]
pub(super) struct SmallFrames {
    burst: f64,
    per_second: f64,
    left: f64,
    refilled: Duration,
}

impl SmallFrames {
    pub(super) fn new(burst: u32, per_second: u32, now: Duration) -> Self {
        Self {
            burst: f64::from(burst),
            per_second: f64::from(per_second),
            left: f64::from(burst),
            refilled: now,
        }
    }

    /// Takes one out, if one is in. `now` never runs backwards.
    pub(super) fn allow(&mut self, now: Duration) -> bool {
        if self.left < 1.0 {
            let since = now.saturating_sub(self.refilled).as_secs_f64();
            self.left = (self.left + since * self.per_second).min(self.burst);
            self.refilled = now;
        }
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dust_is_allowed_in_bursts_and_at_its_rate() {
        let mut small_frames = SmallFrames::new(3, 10, Duration::ZERO);
        assert!((0..3).all(|_| small_frames.allow(Duration::ZERO)));
        assert!(!small_frames.allow(Duration::ZERO));
        assert!(small_frames.allow(Duration::from_millis(100)));
        assert!(!small_frames.allow(Duration::from_millis(150)));
        assert!((0..3).all(|_| small_frames.allow(Duration::from_secs(60))));
        assert!(!small_frames.allow(Duration::from_secs(60)), "a long silence saves up one burst, not more");
    }
}
