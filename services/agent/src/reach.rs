//! Whether this instance reaches its API server. The keeper of the Lease finds out every few seconds; other parts of the agent have it
//! checked at once.

use std::sync::Arc;

use chassis::readiness::Finding;
use events::Timestamp;
use events::observation::Observed;
use parking_lot::Mutex;
use tokio::sync::Notify;
use world::Clock;

use crate::kubernetes::ApiError;
use crate::outbox::Outbox;

/// See the module.
pub struct ApiServerReach {
    outbox: Arc<Outbox>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    doubt: Notify,
}

/// What the last answer was.
enum State {
    NotAsked,
    Reached { since: Timestamp },
    Lost { since: Timestamp, error: ApiError },
}

impl ApiServerReach {
    /// Not asked yet; reached, as far as is known.
    #[must_use]
    pub fn new(outbox: Arc<Outbox>, clock: Arc<dyn Clock>) -> Self {
        Self { outbox, clock, state: Mutex::new(State::NotAsked), doubt: Notify::new() }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }

    /// It answered.
    pub fn found(&self) {
        let mut state = self.state.lock();
        let was_lost = matches!(*state, State::Lost { .. });
        if !matches!(*state, State::Reached { .. }) {
            *state = State::Reached { since: self.now() };
        }
        drop(state);
        if was_lost {
            self.outbox.report(Observed::ApiServerReached {});
        }
    }

    /// It did not answer, or not as whoever applies needs it.
    pub fn lost(&self, error: &ApiError) {
        // It answers, and is busy.
        if matches!(error.code(), 409 | 429) {
            return;
        }
        let mut state = self.state.lock();
        if let State::Lost { error: last, .. } = &mut *state {
            last.clone_from(error);
            return;
        }
        *state = State::Lost { since: self.now(), error: error.clone() };
        drop(state);
        self.outbox.report(Observed::ApiServerLost { reason: error.to_string() });
    }

    /// What the readiness page says. An agent that may not keep its Lease cannot apply, although its API server answers.
    #[must_use]
    pub fn finding(&self) -> Finding {
        match &*self.state.lock() {
            State::NotAsked => Finding::passed("not asked yet"),
            State::Reached { since } => Finding::passed("reached").since(*since),
            State::Lost { since, error } => {
                let message = match error {
                    ApiError::Refused(_) => format!("the API server refuses the agent's Lease: {error}"),
                    ApiError::Unreachable { detail } => {
                        format!("the API server cannot be reached: {detail}")
                    }
                    _ => error.to_string(),
                };
                Finding::failed(message).since(*since)
            }
        }
    }

    /// Something did not get through to it.
    pub fn doubts(&self, error: &ApiError) {
        if error.status().is_none() {
            self.doubt.notify_one();
        }
    }

    /// Returns once somebody doubts.
    pub async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use chassis::metrics::Counter;
    use chassis::readiness::Outcome;
    use tunnel::wire::Acknowledged;
    use world::World;

    use super::*;

    fn reach() -> (Arc<Outbox>, ApiServerReach) {
        let world = World::real();
        let outbox = Arc::new(Outbox::new(world.clone(), Counter::default()));
        (Arc::clone(&outbox), ApiServerReach::new(outbox, world.clock))
    }

    #[tokio::test]
    async fn each_change_is_told_once() {
        let (outbox, reach) = reach();
        outbox.begin(1);
        let refused = ApiError::Unreachable { detail: "refused".to_owned() };
        reach.found();
        reach.lost(&refused);
        reach.lost(&refused);
        reach.found();
        reach.found();
        let batch = outbox.next(Acknowledged { epoch: 0, sequence: 0 }).expect("a batch");
        let told: Vec<Observed> = batch.observations.into_iter().map(|one| one.what).collect();
        let lost = Observed::ApiServerLost { reason: refused.to_string() };
        assert_eq!(told, [lost, Observed::ApiServerReached {}]);
    }

    #[tokio::test]
    async fn the_first_moment_and_the_last_reason_are_shown() {
        let (_, reach) = reach();
        assert_eq!(reach.finding(), Finding::passed("not asked yet"));
        reach.lost(&ApiError::Unreachable { detail: "refused".to_owned() });
        let first = reach.finding();
        assert!(first.since.is_some());
        reach.lost(&ApiError::Unreachable { detail: "timed out".to_owned() });
        let last = reach.finding();
        assert_eq!((last.outcome, last.since), (Outcome::Failed, first.since));
        assert!(last.message.contains("cannot be reached") && last.message.contains("timed out"), "{last:?}");
        reach.found();
        assert_eq!(reach.finding().outcome, Outcome::Passed);
    }

    #[tokio::test]
    async fn a_doubt_is_kept_until_somebody_asks() {
        let (_, reach) = reach();
        reach.doubts(&ApiError::Unreachable { detail: "refused".to_owned() });
        reach.doubted().await;
    }
}
