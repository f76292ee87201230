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

    /// The first moment, not before one, at which it showed this.
    pub(super) fn when(&self, wall_millis: i64, not_before: Duration) -> Option<Duration> {
        let begins = [(Duration::ZERO, 0)];
        let spans = begins.iter().chain(&self.set);
        let ends = self.set.iter().map(|(at, _)| *at).chain([Duration::MAX]);
        spans.zip(ends).find_map(|((from, offset), end)| {
            let millis = wall_millis.checked_sub(BEGIN_MILLIS)?.checked_sub(*offset)?;
            let begins = Duration::from_millis(u64::try_from(millis).ok()?);
            let ends = begins + Duration::from_millis(1);
            let first = begins.max(*from).max(not_before);
            (first < end && first < ends).then_some(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_shows_a_time_twice_and_the_first_one_counts() {
        let millis = Duration::from_millis;
        let mut clock = WallClock::default();
        let shown = |clock: &WallClock, at, not_before| clock.when(BEGIN_MILLIS + at, millis(not_before));
        assert_eq!(shown(&clock, 500, 0), Some(millis(500)));
        clock.shift(millis(1_000), -400);
        clock.shift(millis(2_000), 5_000);
        assert_eq!(clock.offset_millis(), 4_600);
        assert_eq!(shown(&clock, 800, 0), Some(millis(800)));
        assert_eq!(shown(&clock, 800, 900), Some(millis(1_200)));
        assert_eq!(shown(&clock, 1_200, 0), Some(millis(1_600)));
        assert_eq!(shown(&clock, 7_000, 0), Some(millis(2_400)));
        assert_eq!(shown(&clock, 3_000, 0), None);
    }
}
