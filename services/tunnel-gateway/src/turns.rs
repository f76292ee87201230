//! Doing together what costs the same for one and for a thousand: whoever comes first goes at once, and who comes soon after it waits for the
//! next turn.

use std::time::Duration;

use parking_lot::Mutex;
use world::Clock;

/// Between two turns.
const EVERY: Duration = Duration::from_millis(100);

/// When the next turn begins, on the monotonic clock.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Duration>);

impl Turns {
    /// Returns at the caller's turn.
    pub(crate) async fn turn(&self, clock: &dyn Clock) {
        let wait = {
            let (mut next, now) = (self.0.lock(), clock.monotonic());
            let wait = next.saturating_sub(now);
            if wait.is_zero() {
                *next = now + EVERY;
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
        let (turns, clock) = (Turns::default(), World::real().clock);
        let began = clock.monotonic();
        turns.turn(&*clock).await;
        assert_eq!(clock.monotonic(), began, "the first one need not wait");
        let crowd = (0..100_u64).map(|number| {
            let (turns, clock) = (&turns, &clock);
            async move {
                clock.sleep(EVERY * 3 / 100 * u32::try_from(number).unwrap()).await;
                turns.turn(&**clock).await;
                clock.monotonic().saturating_sub(began)
            }
        });
        let moments: BTreeSet<Duration> = join_all(crowd).await.into_iter().collect();
        assert!(moments.len() <= 6, "{moments:?}");
        clock.sleep(EVERY).await;
        let later = clock.monotonic();
        turns.turn(&*clock).await;
        assert_eq!(clock.monotonic(), later, "nobody came before");
    }
}
