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

/// That of all of them; who shares it asks nothing else meanwhile.
pub(crate) type SharedTruth = Arc<Mutex<Truth>>;

/// See [`SharedTruth`].
#[derive(Debug, Default)]
pub(crate) struct Truth(BTreeMap<String, Vec<Moment>>);

impl Truth {
    /// It is like this from now on.
    pub(super) fn note(&mut self, name: &str, now: Duration, value: Option<u64>, available: bool) {
        let moments = self.0.entry(name.to_owned()).or_default();
        if moments.last().is_none_or(|last| (last.value, last.available) != (value, available)) {
            moments.push(Moment { from: now, value, available });
        }
    }

    fn of(&self, name: &str) -> &[Moment] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
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

    /// Whether it was available with this value at some moment since then.
    pub(crate) fn was_available(&self, name: &str, value: u64, since: Duration) -> bool {
        let moments = self.of(name).iter().skip(self.at(name, since));
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
        assert!(truth.was_available("web", 5, second(3)) && !truth.was_available("web", 5, second(4)));
        assert!(truth.was_available("web", 6, second(0)) && !truth.was_available("other", 6, second(0)));
        assert_eq!((truth.at("web", second(0)), truth.at("web", second(5))), (0, 2));
        assert_eq!((truth.first("web", 0, true), truth.first("web", 2, true)), (Some(1), Some(3)));
        truth.note("web", second(7), None, false);
        assert_eq!((truth.now("web"), truth.first("web", 4, true)), (None, None));
    }
}
