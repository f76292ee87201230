//! `kasbah source sync --wait`: until the sync ended.

use std::time::Duration;

use events::delivery::SyncOutcome;
use events::requests::delivery::SourceView;

use super::show::{counts, failure_text};
use crate::client::failure::Failure;
use crate::client::print::one_line;
use crate::client::session::Session;

const PAUSE: Duration = Duration::from_millis(300);

/// How far a sync is.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Not at its end, and what it waits for.
    Runs(String),
    /// It succeeded.
    Succeeded,
    /// It ended otherwise, and how.
    Ended(String),
}

/// Waits for the sync that the view names, or the newer one that takes its place.
pub(super) async fn run(session: &Session, asked: SourceView, timeout: Duration) -> Result<(), Failure> {
    let clock = &session.world.clock;
    let deadline = clock.monotonic().saturating_add(timeout);
    let id = asked.id.to_string();
    let (mut view, mut said) = (asked, String::new());
    loop {
        match progress(&view) {
            Progress::Succeeded => return super::print(session, &view).await,
            Progress::Ended(how) => {
                super::print(session, &view).await?;
                return Err(Failure::Unsuccessful(how));
            }
            Progress::Runs(why) if why != said => {
                eprintln!("{}", one_line(&why));
                said = why;
            }
            Progress::Runs(_) => {}
        }
        if clock.monotonic() >= deadline {
            let seconds = timeout.as_secs();
            return Err(Failure::Unsuccessful(format!(
                "the sync did not end in {seconds} s: {said}; it continues"
            )));
        }
        clock.sleep(PAUSE).await;
        match session.api.get(&["sources", &id], &[]).await {
            Ok(newer) => view = newer,
            // A server that restarts goes on with the sync, so the wait does too.
            Err(failure) if failure.is_transient() => {}
            Err(failure) => return Err(failure),
        }
    }
}

fn progress(view: &SourceView) -> Progress {
    if let Some(reason) = &view.suspended {
        return Progress::Ended(format!("the source was suspended: {reason}"));
    }
    let why = || view.why.clone().unwrap_or_else(|| "waiting for the sync to start".to_owned());
    let Some(sync) = &view.sync else { return Progress::Runs(why()) };
    match sync.outcome {
        None | Some(SyncOutcome::Superseded | SyncOutcome::Interrupted) => Progress::Runs(why()),
        Some(SyncOutcome::Succeeded) if view.takes_no_file && view.pinned.is_none() => Progress::Ended(why()),
        Some(SyncOutcome::Succeeded) => Progress::Succeeded,
        Some(SyncOutcome::Unhealthy) => Progress::Ended(format!(
            "the sync applied everything, but not all of it became healthy ({})",
            counts(&sync.counts)
        )),
        Some(SyncOutcome::Failed) => {
            let first = sync.failures.first().map(|failure| format!(": {}", failure_text(failure)));
            Progress::Ended(format!("the sync failed{}", first.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use events::SyncId;
    use events::delivery::SyncCounts;
    use events::requests::delivery::SyncView;
    use uuid::Uuid;

    use super::super::show::tests::view;
    use super::*;

    fn with(outcome: Option<SyncOutcome>) -> SourceView {
        let sync = SyncView {
            id: SyncId(Uuid::from_u128(9)),
            commit: "4f1a5b10c0".into(),
            started_at: None,
            finished_at: None,
            outcome,
            counts: SyncCounts { failed: 1, ..SyncCounts::default() },
            failures: Vec::new(),
            waiting: None,
            retry_at: None,
        };
        SourceView { sync: Some(sync), why: Some("waiting for X".into()), ..view() }
    }

    #[test]
    fn only_what_ended_for_good_ends_the_wait() {
        let runs = Progress::Runs("waiting for X".into());
        for outcome in [None, Some(SyncOutcome::Superseded), Some(SyncOutcome::Interrupted)] {
            assert_eq!(progress(&with(outcome)), runs, "{outcome:?}");
        }
        assert_eq!(progress(&with(Some(SyncOutcome::Succeeded))), Progress::Succeeded);
        assert_eq!(progress(&with(Some(SyncOutcome::Failed))), Progress::Ended("the sync failed".into()));
        assert!(matches!(progress(&with(Some(SyncOutcome::Unhealthy))), Progress::Ended(_)));
    }

    #[test]
    fn a_suspended_source_is_not_waited_for() {
        let suspended = SourceView { suspended: Some("freeze".into()), ..with(None) };
        assert_eq!(progress(&suspended), Progress::Ended("the source was suspended: freeze".into()));
    }
}
