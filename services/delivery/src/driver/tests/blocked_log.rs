//! A log that commits of one organization do not get into, while the test wants it so.

use std::sync::Arc;

use async_trait::async_trait;
use events::OrganizationId;
use store::{AppendError, Appended, EventLog, LogLayer, NewCommit};
use tokio::sync::watch;

/// What becomes of a commit that does not get into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// It is not answered before the log takes commits again.
    Hangs,
    /// It is refused.
    IsAway,
}

pub struct BlockedLog {
    log: Arc<dyn EventLog>,
    blocked: watch::Sender<Option<(OrganizationId, Blocked)>>,
    /// How many commits were blocked.
    met: watch::Sender<usize>,
}

impl BlockedLog {
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, blocked: watch::Sender::new(None), met: watch::Sender::new(0) }
    }

    pub fn block(&self, blocked: Option<(OrganizationId, Blocked)>) {
        self.blocked.send_replace(blocked);
    }

    /// Waits until so many commits were blocked.
    pub async fn met(&self, count: usize) {
        self.met.subscribe().wait_for(|met| *met >= count).await.unwrap();
    }
}

#[async_trait]
impl LogLayer for BlockedLog {
    fn inner(&self) -> &dyn EventLog {
        &*self.log
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        let blocked = *self.blocked.borrow();
        if let Some((organization, blocked)) = blocked
            && organization == commit.organization
        {
            self.met.send_modify(|met| *met += 1);
            if blocked == Blocked::IsAway {
                return Err(AppendError::Away { detail: "by the test".to_owned() });
            }
            self.blocked.subscribe().wait_for(Option::is_none).await.unwrap();
        }
        self.log.append(commit).await
    }
}
