//! When to dial again. Pure: the caller sleeps.

use std::time::Duration;

use http::StatusCode;
use world::Random;

use super::dial::DialError;
use super::serve::LinkEnd;
use crate::wire::Again;

const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(60);
const SLOW: Duration = Duration::from_secs(60);
const AT_ONCE_JITTER: Duration = Duration::from_millis(200);
const LIVED: Duration = Duration::from_secs(10);

/// How the last attempt or link ended, as far as coming back goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The gateway closed in order: another replica is there.
    InOrder,
    /// The connection could not be made, or was lost.
    Failed,
    /// The gateway will not have this token, or this version: nothing changes by asking often.
    Refused,
    /// The gateway is there and asks for time.
    Busy {
        /// How much.
        retry_after: Duration,
    },
}

impl From<&DialError> for Ended {
    fn from(error: &DialError) -> Self {
        match error {
            DialError::Refused { retry_after: Some(retry_after), .. } => {
                Self::Busy { retry_after: *retry_after }
            }
            DialError::Refused { status, .. } if *status != StatusCode::SERVICE_UNAVAILABLE => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl From<&LinkEnd> for Ended {
    fn from(end: &LinkEnd) -> Self {
        match end {
            LinkEnd::Farewell(farewell) => match farewell.again {
                Again::AtOnce => Self::InOrder,
                Again::Later => Self::Failed,
                Again::Slowly => Self::Refused,
            },
            LinkEnd::Closed | LinkEnd::Drained => Self::InOrder,
            LinkEnd::Lost { .. } => Self::Failed,
        }
    }
}

/// Counts failures and says how long to wait: full jitter under an exponential bound with a cap of 60 s, so that agents that
/// lost one gateway together do not come back together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconnect {
    failures: u32,
}

impl Reconnect {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait before the next dial, after an attempt or a link that lived for `lived` (zero for an attempt).
    pub fn wait(&mut self, ended: Ended, lived: Duration, random: &dyn Random) -> Duration {
        if lived >= LIVED {
            self.failures = 0;
        }
        match ended {
            Ended::InOrder if self.failures == 0 => {
                self.failures = 1;
                jitter(AT_ONCE_JITTER, random)
            }
            Ended::InOrder | Ended::Failed => {
                let bound = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(CAP);
                self.failures = self.failures.saturating_add(1).min(16);
                jitter(bound, random)
            }
            Ended::Refused => SLOW.saturating_add(jitter(SLOW, random)),
            Ended::Busy { retry_after } => {
                let least = retry_after.min(CAP);
                least.saturating_add(jitter(least.max(FIRST), random))
            }
        }
    }
}

fn jitter(bound: Duration, random: &dyn Random) -> Duration {
    let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random.below(millis.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Always the largest or always the smallest number.
    struct Fixed(u8);

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }

        fn below(&self, bound: u64) -> u64 {
            if self.0 == 0 { 0 } else { bound - 1 }
        }
    }

    const HIGH: Fixed = Fixed(255);
    const LOW: Fixed = Fixed(0);

    #[test]
    fn failures_double_the_bound_up_to_the_cap() {
        let mut reconnect = Reconnect::new();
        let waits: Vec<u64> = (0..9)
            .map(|_| u64::try_from(reconnect.wait(Ended::Failed, Duration::ZERO, &HIGH).as_millis()).unwrap())
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
    }

    #[test]
    fn jitter_is_full() {
        let mut reconnect = Reconnect::new();
        for _ in 0..5 {
            assert_eq!(reconnect.wait(Ended::Failed, Duration::ZERO, &LOW), Duration::ZERO);
        }
    }

    #[test]
    fn the_first_retry_after_an_orderly_end_is_at_once_and_the_next_is_not() {
        let mut reconnect = Reconnect::new();
        assert!(reconnect.wait(Ended::InOrder, Duration::from_secs(60), &HIGH) <= AT_ONCE_JITTER);
        assert!(reconnect.wait(Ended::InOrder, Duration::from_millis(5), &HIGH) > AT_ONCE_JITTER);
        assert!(reconnect.wait(Ended::InOrder, LIVED, &HIGH) <= AT_ONCE_JITTER, "it lived: counted anew");
    }

    #[test]
    fn a_refused_token_is_tried_slowly_however_often() {
        let mut reconnect = Reconnect::new();
        for _ in 0..20 {
            assert!(reconnect.wait(Ended::Refused, Duration::ZERO, &LOW) >= Duration::from_secs(60));
            assert!(reconnect.wait(Ended::Refused, Duration::ZERO, &HIGH) <= Duration::from_secs(120));
        }
    }

    #[test]
    fn a_busy_gateway_is_given_its_time_but_no_more_than_the_cap() {
        let mut reconnect = Reconnect::new();
        let busy = |seconds| Ended::Busy { retry_after: Duration::from_secs(seconds) };
        assert!(reconnect.wait(busy(5), Duration::ZERO, &LOW) >= Duration::from_secs(5));
        assert!(reconnect.wait(busy(100_000), Duration::ZERO, &HIGH) <= CAP * 2);
    }

    #[test]
    fn refusals_and_farewells_say_how_to_come_back() {
        let refused = |status, retry_after| DialError::Refused {
            status,
            refusal: events::Refusal::new(events::RefusalKind::Denied, "no"),
            retry_after,
        };
        assert_eq!(Ended::from(&refused(StatusCode::UNAUTHORIZED, None)), Ended::Refused);
        assert_eq!(Ended::from(&refused(StatusCode::CONFLICT, None)), Ended::Refused);
        assert_eq!(Ended::from(&refused(StatusCode::SERVICE_UNAVAILABLE, None)), Ended::Failed);
        let after = Some(Duration::from_secs(3));
        let busy = Ended::Busy { retry_after: Duration::from_secs(3) };
        assert_eq!(Ended::from(&refused(StatusCode::SERVICE_UNAVAILABLE, after)), busy);
        let farewell = |again| LinkEnd::Farewell(crate::wire::Farewell { reason: String::new(), again });
        assert_eq!(Ended::from(&farewell(Again::AtOnce)), Ended::InOrder);
        assert_eq!(Ended::from(&farewell(Again::Later)), Ended::Failed);
        assert_eq!(Ended::from(&farewell(Again::Slowly)), Ended::Refused);
        assert_eq!(Ended::from(&LinkEnd::Lost { detail: String::new() }), Ended::Failed);
    }
}
