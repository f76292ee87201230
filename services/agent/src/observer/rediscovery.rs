//! When the API server is asked again which kinds it serves.

use std::time::Duration;

/// At least this often.
const INTERVAL: Duration = Duration::from_secs(300);
/// So long after something changed: a definition is served a moment later, and an API server behind another one later still.
const AFTER_CHANGE: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];
/// Until somebody looks whether it still is so.
const AGAIN: Duration = Duration::from_secs(2);
/// After a question that was not answered.
const RETRY: Duration = Duration::from_secs(5);

/// The moments at which it is asked.
#[derive(Debug, Default)]
pub(super) struct Rediscovery {
    due: Vec<Duration>,
}

impl Rediscovery {
    /// Now, first of all.
    pub(super) fn begin(&mut self, now: Duration) {
        self.due = vec![now];
    }

    /// Something changed. What goes on changing is not waited for to end.
    pub(super) fn moved(&mut self, now: Duration) {
        let next = self.due.iter().copied().min();
        self.due = AFTER_CHANGE.map(|after| now + after).to_vec();
        self.due.extend(next.filter(|next| *next < now + INTERVAL));
    }

    /// What was answered is asked once more soon.
    pub(super) fn again(&mut self, now: Duration) {
        if self.due.iter().all(|moment| *moment > now + AGAIN) {
            self.due.push(now + AGAIN);
        }
    }

    /// Whether it is to be asked now.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let before = self.due.len();
        self.due.retain(|moment| *moment > now);
        self.due.len() < before
    }

    /// It was asked.
    pub(super) fn asked(&mut self, now: Duration, is_answered: bool) {
        self.due.push(now + if is_answered { INTERVAL } else { RETRY });
    }

    /// How long until it is asked next.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        self.due.iter().min().map_or(INTERVAL, |next| next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_looked_at_soon_and_again_later() {
        let second = Duration::from_secs;
        let mut rediscovery = Rediscovery::default();
        rediscovery.begin(second(10));
        assert!(rediscovery.take(second(10)) && !rediscovery.take(second(10)));
        rediscovery.asked(second(10), true);
        assert_eq!(rediscovery.wait(second(10)), INTERVAL);
        rediscovery.moved(second(20));
        let mut asked = Vec::new();
        for tenth in 200..400 {
            let now = Duration::from_millis(tenth * 100);
            if rediscovery.take(now) {
                asked.push(tenth);
                rediscovery.asked(now, true);
            }
        }
        assert_eq!(asked, [205, 220, 280]);
    }

    #[test]
    fn what_changes_all_the_time_is_looked_at_all_the_same() {
        let mut rediscovery = Rediscovery::default();
        let mut asked = 0;
        for tenth in 0..100 {
            let now = Duration::from_millis(tenth * 100);
            rediscovery.moved(now);
            if rediscovery.take(now) {
                asked += 1;
                rediscovery.asked(now, true);
            }
        }
        assert!((10..30).contains(&asked), "{asked}");
    }

    #[test]
    fn no_answer_is_asked_for_again() {
        let mut rediscovery = Rediscovery::default();
        rediscovery.asked(Duration::ZERO, false);
        assert_eq!(rediscovery.wait(Duration::from_secs(1)), Duration::from_secs(4));
    }
}
