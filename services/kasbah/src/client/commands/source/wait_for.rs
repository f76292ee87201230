//! `kasbah source wait …`: until a source is as a pipeline needs it.

use std::time::Duration;

use events::SourceId;
use events::delivery::SyncOutcome;
use events::requests::delivery::SourceView;
use events::requests::status::State;

use crate::client::failure::Failure;
use crate::client::print::one_line;
use crate::client::session::Session;

const PAUSE: Duration = Duration::from_millis(500);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// The commit is applied; its objects may still be progressing
    Synced,
    /// The commit is applied, and all objects that a sync waits for are healthy
    Healthy,
}

/// How far a source is.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Reached,
    /// Not yet, and why.
    Open(String),
    /// Somebody has to do something first.
    Stopped(String),
}

/// Waits until the source is at the commit, or at the newest one if none is given.
pub(super) async fn run(
    session: &Session,
    id: SourceId,
    goal: Goal,
    commit: Option<&str>,
    timeout: Duration,
) -> Result<(), Failure> {
    let clock = &session.world.clock;
    let deadline = clock.monotonic().saturating_add(timeout);
    let (id, mut said) = (id.to_string(), String::new());
    loop {
        let asked = session.api.get::<SourceView>(&["sources", &id], &[]).await;
        match asked.map(|view| (progress(&view, goal, commit), view)) {
            Ok((Progress::Reached, view)) => return super::print(session, &view).await,
            Ok((Progress::Stopped(how), view)) => {
                super::print(session, &view).await?;
                return Err(Failure::Unsuccessful(how));
            }
            Ok((Progress::Open(why), _)) => {
                if why != said {
                    eprintln!("{}", one_line(&why));
                    said = why;
                }
            }
            // A server that restarts knows as much as before.
            Err(failure) if failure.is_transient() => {}
            Err(failure) => return Err(failure),
        }
        if clock.monotonic() >= deadline {
            let seconds = timeout.as_secs();
            return Err(Failure::Unsuccessful(format!("not reached within {seconds} s: {said}")));
        }
        clock.sleep(PAUSE).await;
    }
}

fn progress(view: &SourceView, goal: Goal, commit: Option<&str>) -> Progress {
    // Whoever names a commit waits for that one, whatever came after it.
    let status = if commit.is_some() { view.status.of_cluster() } else { view.status.clone() };
    let why = || format!("{}: {}", view.status.state.words(), view.status.message);
    let is_it = |of: &str| commit.is_none_or(|commit| of.starts_with(commit));
    if view.rejected.as_ref().is_some_and(|rejected| is_it(&rejected.commit)) && view.pinned.is_none() {
        return Progress::Stopped(why());
    }
    let synced = view.synced_commit.as_deref().filter(|synced| is_it(synced));
    let is_newest =
        commit.is_some() || view.newest_good_commit == view.synced_commit || view.pinned.is_some();
    let ended = view.sync.as_ref().and_then(|sync| sync.outcome);
    let is_applied = matches!(ended, Some(SyncOutcome::Succeeded | SyncOutcome::Unhealthy));
    let is_synced = synced.is_some() && is_newest && is_applied && status.state <= State::Degraded;
    match goal {
        Goal::Synced if is_synced => Progress::Reached,
        Goal::Healthy if is_synced && status.is_healthy() => Progress::Reached,
        _ if matches!(view.status.state, State::Held | State::Suspended) => Progress::Stopped(why()),
        _ => Progress::Open(why()),
    }
}

#[cfg(test)]
mod tests {
    use events::SyncId;
    use events::delivery::SyncCounts;
    use events::requests::delivery::{RejectedBundle, SyncView};
    use events::requests::status::{Condition, ObjectCounts, Reason, Status};
    use uuid::Uuid;

    use super::super::show::tests::view;
    use super::*;

    fn standing(state: State, reason: Reason, objects: ObjectCounts) -> SourceView {
        let condition = Condition { state, reason, message: "so".to_owned(), since: None, retry_at: None };
        let sync = SyncView {
            id: SyncId(Uuid::from_u128(9)),
            commit: "aaa".into(),
            started_at: None,
            finished_at: None,
            outcome: Some(SyncOutcome::Succeeded),
            counts: SyncCounts::default(),
            failures: Vec::new(),
            waiting: None,
            retry_at: None,
        };
        let commit = Some("aaaa".to_owned());
        SourceView {
            status: Status::of(vec![condition], objects, Vec::new()),
            newest_commit: commit.clone(),
            newest_good_commit: commit.clone(),
            synced_commit: commit,
            sync: Some(sync),
            ..view()
        }
    }

    #[test]
    fn a_pipeline_waits_for_what_its_push_brings() {
        let none = ObjectCounts::default();
        let done = standing(State::InSync, Reason::InSync, none);
        for goal in [Goal::Synced, Goal::Healthy] {
            assert_eq!(progress(&done, goal, None), Progress::Reached);
            assert_eq!(progress(&done, goal, Some("aa")), Progress::Reached);
            assert!(matches!(progress(&done, goal, Some("bb")), Progress::Open(_)));
            let newer = SourceView { newest_good_commit: Some("bbbb".into()), ..done.clone() };
            assert!(matches!(progress(&newer, goal, None), Progress::Open(_)));
            for state in [State::OutOfSync, State::Stale, State::Unknown] {
                assert!(matches!(
                    progress(&standing(state, Reason::Drift, none), goal, None),
                    Progress::Open(_)
                ));
            }
            for state in [State::Held, State::Suspended] {
                assert!(matches!(
                    progress(&standing(state, Reason::Held, none), goal, None),
                    Progress::Stopped(_)
                ));
            }
        }
        let holding = ObjectCounts { degraded: 1, holding: 1, ..none };
        let ill = standing(State::Degraded, Reason::ObjectDegraded, holding);
        assert_eq!(progress(&ill, Goal::Synced, None), Progress::Reached);
        assert!(matches!(progress(&ill, Goal::Healthy, None), Progress::Open(_)));
        let cron_job =
            standing(State::Degraded, Reason::ObjectDegraded, ObjectCounts { degraded: 1, ..none });
        assert_eq!(progress(&cron_job, Goal::Healthy, None), Progress::Reached, "a failed run holds nothing");
    }

    #[test]
    fn a_rejected_commit_ends_the_wait_for_it() {
        let mut view = standing(State::Rejected, Reason::CommitRejected, ObjectCounts::default());
        let (findings, warnings) = (Vec::new(), Vec::new());
        view.rejected = Some(RejectedBundle { commit: "bbbb".into(), findings, more: 0, warnings });
        assert!(matches!(progress(&view, Goal::Synced, Some("bb")), Progress::Stopped(_)));
        assert!(matches!(progress(&view, Goal::Synced, None), Progress::Stopped(_)));
        assert!(matches!(progress(&view, Goal::Synced, Some("aa")), Progress::Open(_)));
    }
}
