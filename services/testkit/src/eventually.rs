//! Waiting for a condition with a deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// Asks `probe` again and again until it answers `Ok`, and gives its value.
///
/// Panics after `deadline` with the last error that the probe gave, so the error should say what was seen.
pub async fn eventually<T, E, F>(deadline: Duration, mut probe: impl FnMut() -> F) -> T
where
    E: std::fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + deadline;
    let mut ticks = interval(Duration::from_millis(15));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = "the probe never answered".to_owned();
    loop {
        match timeout_at(end, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => panic!("not so within {deadline:?}: {last}"),
        }
        if timeout_at(end, ticks.tick()).await.is_err() {
            panic!("not so within {deadline:?}: {last}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_the_value_of_the_first_success() {
        let mut asked = 0;
        let value = eventually(Duration::from_secs(10), || {
            asked += 1;
            std::future::ready(if asked < 3 { Err("too early") } else { Ok(asked) })
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "still closed")]
    async fn panics_with_the_last_error() {
        eventually::<(), _, _>(Duration::from_secs(1), || async { Err("still closed") }).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the probe never answered")]
    async fn a_probe_that_hangs_does_not_outlive_the_deadline() {
        eventually::<(), String, _>(Duration::from_secs(1), std::future::pending).await;
    }
}
