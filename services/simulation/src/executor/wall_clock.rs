//! What the wall clock of a process showed, and when.

use std::time::Duration;

use crate::process::BEGIN_MILLIS;

/// A clock that somebody sets now and then.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// How far it is off from each of these moments on; not at all before.
    set: Vec<(Duration, i64)>,
}

impl WallClock {
    pub(super) fn shift(&mut self, now: Duration, millis: i64) {
        self.set.push((now, self.offset_millis() + millis));
    }

    pub(super) fn offset_millis(&self) -> i64 {
        self.set.last().map_or(0, |(_, offset)| *offset)
    }

    /// From when to when it showed this, not before a moment: the first and the last time that it may have been.
    pub(super) fn when(&self, wall_millis: i64, not_before: Duration) -> Option<(Duration, Duration)> {
        let begins = [(Duration::ZERO, 0)];
        let spans = begins.iter().chain(&self.set);
        let ends = self.set.iter().map(|(at, _)| *at).chain([Duration::MAX]);
        let shown = spans.zip(ends).filter_map(|((from, offset), end)| {
            let millis = wall_millis.checked_sub(BEGIN_MILLIS)?.checked_sub(*offset)?;
            let begins = Duration::from_millis(u64::try_from(millis).ok()?);
            let ends = begins + Duration::from_millis(1);
            let first = begins.max(*from).max(not_before);
            let last = ends.min(end);
            (first < last).then_some((first, last))
        });
        shown.reduce(|(first, _), (_, last)| (first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_shows_a_time_twice_and_the_first_one_counts() {
        let millis = Duration::from_millis;
        let mut clock = WallClock::default();
        let shown = |clock: &WallClock, at, not_before| {
            let when = clock.when(BEGIN_MILLIS + at, millis(not_before));
            when.map(|(first, last)| (first.as_millis(), last.as_millis()))
        };
        assert_eq!(shown(&clock, 500, 0), Some((500, 501)));
        clock.shift(millis(1_000), -400);
        clock.shift(millis(2_000), 5_000);
        assert_eq!(clock.offset_millis(), 4_600);
        assert_eq!(shown(&clock, 800, 0), Some((800, 1_201)));
        assert_eq!(shown(&clock, 800, 900), Some((1_200, 1_201)));
        assert_eq!(shown(&clock, 1_200, 0), Some((1_600, 1_601)));
        assert_eq!(shown(&clock, 7_000, 0), Some((2_400, 2_401)));
        assert_eq!(shown(&clock, 3_000, 0), None);
    }
}
