//! Time.

use std::time::Duration;

use async_trait::async_trait;

/// Wall clock, monotonic clock and sleeping.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Wall-clock time in milliseconds since the Unix epoch. May jump.
    fn now_millis(&self) -> i64;

    /// Time since some fixed moment; never runs backwards.
    fn monotonic(&self) -> Duration;

    /// Returns after `duration` of this clock's time.
    async fn sleep(&self, duration: Duration);
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: tokio::time::Instant,
}

impl SystemClock {
    /// Starts the monotonic clock at zero.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "reads a clock, which a default should not")]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system clock")]
    fn now_millis(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
