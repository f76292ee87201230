use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;
use crate::Parts;
use crate::conformance::following::{Running, Touch, start};
use crate::conformance::{ORGANIZATION, agent, decisions};
use crate::embedded::{Options, open};
use crate::layer::LogLayer;

/// What happens to an append.
enum Fault {
    /// It is stored, and nobody hears of it.
    Unheard,
    /// It is lost, and nobody knows.
    Lost,
    /// It is never answered.
    Hangs,
    /// The log cannot be reached.
    Away,
}

/// A log in which appends meet faults, one after the other.
struct FaultyLog {
    log: Arc<dyn EventLog>,
    faults: Mutex<VecDeque<Fault>>,
}

#[async_trait]
impl LogLayer for FaultyLog {
    fn inner(&self) -> &dyn EventLog {
        &*self.log
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        let detail = "by the test".to_owned();
        let fault = self.faults.lock().pop_front();
        match fault {
            None => self.log.append(commit).await,
            Some(Fault::Unheard) => {
                self.log.append(commit).await?;
                Err(AppendError::Unknown { detail })
            }
            Some(Fault::Lost) => Err(AppendError::Unknown { detail }),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Away) => Err(AppendError::Away { detail }),
        }
    }
}

const APPENDS: u32 = 3;
const POLICY: Policy = Policy { appends: APPENDS, patience: Duration::from_millis(200), ..Policy::REQUEST };

struct Faulty {
    world: World,
    log: Arc<FaultyLog>,
    running: Running,
    _folder: tempfile::TempDir,
}

async fn faulty(faults: impl IntoIterator<Item = Fault>) -> Faulty {
    let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
    let parts = open(&world, folder.path(), Options::default()).unwrap().parts();
    let faults = Mutex::new(faults.into_iter().collect());
    let log = Arc::new(FaultyLog { log: Arc::clone(&parts.log), faults });
    let running = start(&world, &Parts { log: Arc::clone(&log) as Arc<dyn EventLog>, ..parts });
    running.following.caught_up().await.unwrap();
    Faulty { world, log, running, _folder: folder }
}

impl Faulty {
    async fn decide(&self) -> Result<Decided, DecideError> {
        let origin = Origin::of_service(&self.world, "test", CorrelationId(self.world.new_uuid()));
        let given = Touch { organization: ORGANIZATION, id: "one".to_owned(), below: 9 };
        self.running.following.decide(&POLICY, &origin, Basis::Newest, &given).await
    }

    async fn stored(&self) -> usize {
        decisions(&*self.log.log).await.len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_resolved_by_the_same_commit() {
    let faulty = faulty([Fault::Unheard, Fault::Lost]).await;
    let decided = faulty.decide().await.unwrap();
    assert_eq!((decided.version, decided.duplicate, decided.folded), (1, true, Ok(())));
    assert_eq!(faulty.stored().await, 1);
    assert_eq!(faulty.decide().await.unwrap().version, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_stays_unknown_is_not_taken_for_a_failure() {
    let unsettled = |faulted: Result<Decided, DecideError>| {
        let error = faulted.unwrap_err();
        assert!(error.is_transient());
        assert!(
            matches!(&error, DecideError::Unsettled { version: 0, aggregate, .. } if *aggregate == agent("one"))
        );
    };
    let faulty = faulty((0..APPENDS).map(|_| Fault::Lost).chain([Fault::Hangs])).await;
    unsettled(faulty.decide().await);
    assert_eq!(faulty.log.faults.lock().len(), 1, "appended as often as the policy has it");
    unsettled(faulty.decide().await);
    assert_eq!(faulty.stored().await, 0);
    assert_eq!(faulty.decide().await.unwrap().version, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_log_has_not_got_is_left_to_the_caller() {
    let faulty = faulty([Fault::Away]).await;
    let away = faulty.decide().await.unwrap_err();
    assert!(matches!(away, DecideError::Append(AppendError::Away { .. })) && away.is_transient());
    assert_eq!(Refusal::from(away).kind, RefusalKind::Unavailable);
    assert_eq!(faulty.decide().await.unwrap().version, 1);
}

#[test]
fn what_stays_wrong_is_final() {
    let refused = |kind| DecideError::Refused(Refusal::new(kind, "no")).is_transient();
    assert!(refused(RefusalKind::Unavailable) && !refused(RefusalKind::Conflict));
    let too_large = DecideError::Append(AppendError::TooLarge { bytes: 2, limit: 1 });
    let read_only = DecideError::Append(AppendError::ReadOnly { reason: "full".to_owned() });
    assert!(!too_large.is_transient() && !read_only.is_transient());
    assert_eq!(Refusal::from(too_large).kind, RefusalKind::Invalid);
    assert_eq!(Refusal::from(read_only).kind, RefusalKind::Unavailable);
}
