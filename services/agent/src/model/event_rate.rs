//! How many Kubernetes Events of one object are told: a few at once, then one now and then.

use std::collections::BTreeMap;
use std::time::Duration;

/// Events of one object that are told at once.
const BURST: f64 = 10.0;
/// One more after this long.
const REFILL: Duration = Duration::from_secs(30);
/// Objects whose Events are counted; over this, those that are quiet are forgotten, and then all.
const MAXIMUM_OBJECTS: usize = 4_096;

/// Counts Events by the object that they are about.
#[derive(Debug, Default)]
pub struct EventRate {
    buckets: BTreeMap<String, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

impl Bucket {
    fn now(self, now: Duration) -> f64 {
        let refilled = now.saturating_sub(self.at).as_secs_f64() / REFILL.as_secs_f64();
        (self.tokens + refilled).min(BURST)
    }
}

impl EventRate {
    /// Whether one more Event about an object may be told now.
    pub fn admits(&mut self, object: &str, now: Duration) -> bool {
        let tokens = self.buckets.get(object).map_or(BURST, |bucket| bucket.now(now));
        let is_admitted = tokens >= 1.0;
        if !self.buckets.contains_key(object) {
            self.make_room(now);
        }
        let tokens = if is_admitted { tokens - 1.0 } else { tokens };
        self.buckets.insert(object.to_owned(), Bucket { tokens, at: now });
        is_admitted
    }

    fn make_room(&mut self, now: Duration) {
        if self.buckets.len() < MAXIMUM_OBJECTS {
            return;
        }
        self.buckets.retain(|_, bucket| bucket.now(now) < BURST);
        if self.buckets.len() >= MAXIMUM_OBJECTS {
            self.buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_is_limited_and_no_other_one() {
        let mut rate = EventRate::default();
        let second = Duration::from_secs;
        let admitted = (0..50).filter(|_| rate.admits("a", second(1))).count();
        assert_eq!(admitted, 10);
        assert!(rate.admits("b", second(1)));
        assert!(!rate.admits("a", second(30)));
        assert!(rate.admits("a", second(32)) && !rate.admits("a", second(32)));
    }

    #[test]
    fn the_number_of_objects_is_limited() {
        let mut rate = EventRate::default();
        for number in 0..3 * MAXIMUM_OBJECTS {
            assert!(rate.admits(&number.to_string(), Duration::ZERO));
            assert!(rate.buckets.len() <= MAXIMUM_OBJECTS);
        }
    }
}
