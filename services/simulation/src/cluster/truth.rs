//! How a cluster's Deployments really were, moment by moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// What one was from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moment {
    from: Duration,
    /// What it is to be; nothing: it is not there.
    value: Option<u64>,
    /// Its controller has seen that, and has all of it available.
    available: bool,
}

/// So long an agent may judge by what it saw before its sight broke: an API server is slow and a process stands still for 25 seconds at most,
/// a list is asked for again within 30, and an answer takes 20.
const LONGEST_BREAK: Duration = Duration::from_secs(75);
/// What happened is on its way for no longer.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// That of all of them; who shares it asks nothing else meanwhile.
pub(crate) type SharedTruth = Arc<Mutex<Truth>>;

/// See [`SharedTruth`].
#[derive(Debug, Default)]
pub(crate) struct Truth {
    moments: BTreeMap<String, Vec<Moment>>,
    /// When the agent's sight of them broke.
    breaks: Vec<Duration>,
}

impl Truth {
    /// It is like this from now on.
    pub(super) fn note(&mut self, name: &str, now: Duration, value: Option<u64>, available: bool) {
        let moments = self.moments.entry(name.to_owned()).or_default();
        if moments.last().is_none_or(|last| (last.value, last.available) != (value, available)) {
            moments.push(Moment { from: now, value, available });
        }
    }

    /// Answers come late, or the agent does not read what comes.
    pub(super) fn breaks(&mut self, now: Duration) {
        self.breaks.push(now);
    }

    /// Since when what somebody sees now may have been so.
    pub(crate) fn seen_since(&self, now: Duration) -> Duration {
        let broken = self.breaks.iter().find(|at| **at <= now && now <= **at + LONGEST_BREAK);
        broken.copied().unwrap_or(now).saturating_sub(ON_THE_WAY)
    }

    /// What one was, for people.
    pub(crate) fn words(&self, name: &str) -> String {
        format!("{:?}, sight broke at {:?}", self.of(name), self.breaks)
    }

    fn of(&self, name: &str) -> &[Moment] {
        self.moments.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// What it is to be now, and whether it is.
    pub(crate) fn now(&self, name: &str) -> Option<(u64, bool)> {
        let last = self.of(name).last()?;
        Some((last.value?, last.available))
    }

    /// The moment that lasted at a time; the first one where there was none yet.
    pub(crate) fn at(&self, name: &str, time: Duration) -> usize {
        self.of(name).partition_point(|moment| moment.from <= time).saturating_sub(1)
    }

    /// The first moment, from one on, in which it was available or was not.
    pub(crate) fn first(&self, name: &str, from: usize, available: bool) -> Option<usize> {
        let moments = self.of(name).iter().enumerate().skip(from);
        moments.filter(|(_, moment)| moment.available == available).map(|(place, _)| place).next()
    }

    /// Whether it was available with this value at some moment of a time.
    pub(crate) fn was_available(&self, name: &str, value: u64, (since, until): (Duration, Duration)) -> bool {
        let moments = self.of(name).iter().skip(self.at(name, since));
        let moments = moments.take_while(|moment| moment.from <= until);
        moments.into_iter().any(|moment| moment.available && moment.value == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_true_since_a_moment_counts_from_what_lasted_then() {
        let second = Duration::from_secs;
        let mut truth = Truth::default();
        truth.note("web", second(1), Some(5), false);
        truth.note("web", second(2), Some(5), true);
        truth.note("web", second(3), Some(5), true);
        truth.note("web", second(4), Some(5), false);
        truth.note("web", second(6), Some(6), true);
        assert_eq!(truth.now("web"), Some((6, true)));
        let was =
            |name, value, since, until| truth.was_available(name, value, (second(since), second(until)));
        assert!(was("web", 5, 3, 9) && !was("web", 5, 4, 9) && !was("web", 5, 0, 1));
        assert!(was("web", 6, 0, 6) && !was("web", 6, 0, 5) && !was("other", 6, 0, 9));
        assert_eq!((truth.at("web", second(0)), truth.at("web", second(5))), (0, 2));
        assert_eq!((truth.first("web", 0, true), truth.first("web", 2, true)), (Some(1), Some(3)));
        truth.breaks(second(10));
        let on_the_way = Duration::from_millis(10);
        assert_eq!(truth.seen_since(second(9)), second(9) - on_the_way);
        assert_eq!(truth.seen_since(second(80)), second(10) - on_the_way);
        assert_eq!(truth.seen_since(second(90)), second(90) - on_the_way);
        truth.note("web", second(7), None, false);
        assert_eq!((truth.now("web"), truth.first("web", 4, true)), (None, None));
    }
}
