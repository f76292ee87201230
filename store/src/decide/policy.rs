//! How decisions come into the log, as data.

use std::time::Duration;

use world::Random;

/// Pauses between attempts: each lasts a random part of a bound that doubles up to a longest one. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Bound of the first pause.
    pub first: Duration,
    /// Bound of the longest.
    pub longest: Duration,
}

impl Backoff {
    /// How long the pause after this attempt lasts at most; the first attempt is 0.
    #[must_use]
    pub fn bound(&self, attempt: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// The pause after this attempt.
    pub fn pause(&self, attempt: u32, random: &dyn Random) -> Duration {
        let bound = u64::try_from(self.bound(attempt).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(random.below(bound).saturating_add(1))
    }
}

/// What a service does when a decision does not come into the log at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How often a decision on [`Basis::Newest`] is made while others change its aggregate.
    pub decisions: u32,
    /// How often the same commit is appended while nobody knows whether the log has it.
    pub appends: u32,
    /// How long the log may take for all of these. Afterwards the outcome is unknown.
    pub patience: Duration,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// How long the projection may take to fold what was appended, by this decision or by others.
    pub fold_within: Duration,
}

impl Policy {
    /// For what somebody waits for: decided on the state alone, again when others were faster.
    pub const REQUEST: Self = Self {
        decisions: 8,
        appends: 6,
        patience: Duration::from_secs(30),
        backoff: Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(1280) },
        fold_within: Duration::from_secs(5),
    };

    /// For what a service decides by itself, and looks at again when it does not come into the log.
    pub const BACKGROUND: Self = Self { fold_within: Duration::from_secs(10), ..Self::REQUEST };
}

/// What a decision was made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The state alone: when others were faster, the same decision is made again on what they left.
    Newest,
    /// Something outside the log, looked at after the aggregate was read at this version. Others who appended since may have seen
    /// something newer, so the decision is given up.
    Version(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the largest number that it may.
    struct Largest;

    impl Random for Largest {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }

        fn below(&self, bound: u64) -> u64 {
            bound.saturating_sub(1)
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
        let pauses = [0, 1, 2, 4, 5, 31, 32, u32::MAX].map(|attempt| backoff.pause(attempt, &Largest));
        assert_eq!(pauses.map(|pause| pause.as_millis()), [50, 100, 200, 800, 1000, 1000, 1000, 1000]);
        let none = Backoff { first: Duration::ZERO, longest: Duration::ZERO };
        assert_eq!(none.pause(3, &Largest), Duration::from_millis(1), "never at once");
    }
}
