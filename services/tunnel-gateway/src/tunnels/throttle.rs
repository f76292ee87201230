//! Throttles work that costs the same for one caller and for a thousand: the first caller passes at once, and those that come soon after
//! it pass together when the window ends.

use std::time::Duration;

use parking_lot::Mutex;
use world::Clock;

/// Callers within this time of the first one share the next turn.
const WINDOW: Duration = Duration::from_millis(100);

/// When the window ends, on the monotonic clock.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<Duration>);

impl Throttle {
    /// Returns when the caller may pass.
    pub(crate) async fn wait(&self, clock: &dyn Clock) {
        let wait = {
            let (mut next, now) = (self.0.lock(), clock.monotonic());
            let wait = next.saturating_sub(now);
            if wait.is_zero() {
                *next = now + WINDOW;
            }
            wait
        };
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::future::join_all;
    use world::World;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_soon_after_another_one_goes_with_all_who_do() {
        let (throttle, clock) = (Throttle::default(), World::real().clock);
        let began = clock.monotonic();
        throttle.wait(&*clock).await;
        assert_eq!(clock.monotonic(), began, "the first one need not wait");
        let crowd = (0..100_u64).map(|number| {
            let (throttle, clock) = (&throttle, &clock);
            async move {
                clock.sleep(WINDOW * 3 / 100 * u32::try_from(number).unwrap()).await;
                throttle.wait(&**clock).await;
                clock.monotonic().saturating_sub(began)
            }
        });
        let moments: BTreeSet<Duration> = join_all(crowd).await.into_iter().collect();
        assert!(moments.len() <= 6, "{moments:?}");
        clock.sleep(WINDOW).await;
        let later = clock.monotonic();
        throttle.wait(&*clock).await;
        assert_eq!(clock.monotonic(), later, "nobody came before");
    }
}
