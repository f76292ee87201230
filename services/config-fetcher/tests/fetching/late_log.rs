//! A log that commits may reach late.

use std::sync::Arc;

use async_trait::async_trait;
use events::AggregateKind;
use parking_lot::Mutex;
use store::{AppendError, Appended, EventLog, LogLayer, NewCommit};

/// What happens instead of the next commit of a configuration reaching the log, if anything; and the commits that did not.
#[derive(Default)]
pub struct Late {
    pub meanwhile: Option<Box<dyn FnOnce() + Send>>,
    pub commits: Vec<NewCommit>,
}

/// What is said of configurations does not reach it, and nobody knows, when the test wants it so.
pub struct LateLog {
    pub log: Arc<dyn EventLog>,
    pub late: Arc<Mutex<Late>>,
}

#[async_trait]
impl LogLayer for LateLog {
    fn inner(&self) -> &dyn EventLog {
        &*self.log
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        if commit.aggregate.kind == AggregateKind::Configuration {
            let mut late = self.late.lock();
            if let Some(meanwhile) = late.meanwhile.take() {
                meanwhile();
                late.commits.push(commit);
                return Err(AppendError::Unknown { detail: "by the test".to_owned() });
            }
        }
        self.log.append(commit).await
    }
}
