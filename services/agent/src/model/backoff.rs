//! Waiting longer each time, with jitter.

use std::time::Duration;

use world::Random;

/// Doubles from `first` to `cap`; each wait is drawn from its upper half.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Starts at the first wait.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempt: 0 }
    }

    /// The next wait.
    pub fn next(&mut self, random: &dyn Random) -> Duration {
        let whole =
            self.first.saturating_mul(1_u32.checked_shl(self.attempt).unwrap_or(u32::MAX)).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        let half = whole / 2;
        let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(random.below(spread.saturating_add(1)))
    }

    /// Starts again.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// A first correction is immediate; the next ones wait from here on twice as long each.
const CORRECTION_FIRST: Duration = Duration::from_secs(1);
const CORRECTION_CAP: Duration = Duration::from_secs(600);
/// Quiet for this long: the next correction is immediate again.
const CORRECTION_FORGET: Duration = Duration::from_secs(900);

/// Somebody changes an object back again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fight {
    /// How often it was corrected.
    pub corrections: u32,
    /// When last, by the monotonic clock; below zero: before this process' clock began.
    pub last: SignedTime,
}

impl Fight {
    /// It was quiet for so long that the next correction is immediate again.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        signed(now).saturating_sub(self.last) > signed(CORRECTION_FORGET)
    }
}

/// A moment of the monotonic clock in milliseconds, which may lie before the clock's begin.
pub type SignedTime = i64;

fn signed(time: Duration) -> SignedTime {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// How long the correction of one object waits: longer with each time that it was undone, and with each time that it failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pauses {
    fight: Option<Fight>,
    failures: u32,
}

fn doubled(times: u32) -> Duration {
    CORRECTION_FIRST.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(CORRECTION_CAP)
}

impl Pauses {
    /// Goes on with a fight.
    #[must_use]
    pub const fn after(fight: Option<Fight>) -> Self {
        Self { fight, failures: 0 }
    }

    /// The fight, if there is one.
    #[must_use]
    pub const fn fight(&self) -> Option<Fight> {
        self.fight
    }

    /// The object was corrected, and is not at peace since.
    #[must_use]
    pub const fn is_fight(&self) -> bool {
        self.fight.is_some() && self.failures == 0
    }

    /// The last corrections failed.
    #[must_use]
    pub const fn has_failures(&self) -> bool {
        self.failures > 0
    }

    /// The object drifted: how long its correction waits. After a long quiet the fight is over.
    pub fn before_correction(&mut self, now: Duration) -> Duration {
        self.failures = 0;
        self.fight = self.fight.filter(|fight| !fight.is_over(now));
        self.fight.map_or(Duration::ZERO, |fight| doubled(fight.corrections.saturating_sub(1)))
    }

    /// What made corrections fail is over: how long the next one still waits for the fight's sake.
    pub fn without_failures(&mut self, now: Duration) -> Duration {
        self.failures = 0;
        let Some(fight) = self.fight else { return Duration::ZERO };
        let since = u64::try_from(signed(now).saturating_sub(fight.last)).unwrap_or(0);
        doubled(fight.corrections.saturating_sub(1)).saturating_sub(Duration::from_millis(since))
    }

    /// A correction took effect.
    pub fn corrected(&mut self, now: Duration) {
        self.failures = 0;
        let corrections = self.fight.map_or(0, |fight| fight.corrections).saturating_add(1);
        self.fight = Some(Fight { corrections, last: signed(now) });
    }

    /// A correction failed: how long the next one waits.
    pub fn after_failure(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let undone = self.fight.map_or(0, |fight| fight.corrections);
        doubled(self.failures.max(undone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_made_corrections_fail_is_forgotten_and_the_fight_is_not() {
        let mut pauses = Pauses::default();
        let second = Duration::from_secs;
        assert_eq!(pauses.before_correction(second(0)), Duration::ZERO);
        let failed: Vec<u64> = (0..10).map(|_| pauses.after_failure().as_secs()).collect();
        assert_eq!(failed, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600]);
        assert!(pauses.has_failures() && !pauses.is_fight());
        assert_eq!(pauses.without_failures(second(100)), Duration::ZERO);
        for _ in 0..4 {
            pauses.corrected(second(100));
        }
        assert!(pauses.is_fight());
        assert_eq!(pauses.before_correction(second(101)), second(8));
        pauses.after_failure();
        assert_eq!(pauses.without_failures(second(105)), second(3), "eight seconds since the last one");
        assert_eq!(pauses.before_correction(second(2_000)), Duration::ZERO);
        assert_eq!(pauses.fight(), None);
    }

    #[test]
    fn a_fight_from_before_this_process_goes_on() {
        let fight = Fight { corrections: 5, last: -60_000 };
        let mut pauses = Pauses::after(Some(fight));
        assert_eq!(pauses.before_correction(Duration::from_secs(1)), Duration::from_secs(16));
        let mut pauses = Pauses::after(Some(Fight { last: -900_000, ..fight }));
        assert_eq!(pauses.before_correction(Duration::from_secs(1)), Duration::ZERO);
    }

    struct Highest;
    impl Random for Highest {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0xff);
        }
        fn below(&self, bound: u64) -> u64 {
            bound.saturating_sub(1)
        }
    }

    #[test]
    fn doubles_up_to_its_cap_and_never_overflows() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let waits: Vec<u128> = (0..6).map(|_| backoff.next(&Highest).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        for _ in 0..100 {
            assert!(backoff.next(&Highest) <= Duration::from_secs(1));
        }
        backoff.reset();
        assert_eq!(backoff.next(&Highest).as_millis(), 100);
    }
}
