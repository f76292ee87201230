//! Last use of tokens, to the hour, off the hot path.

use std::time::Duration;

use events::request::RequestContext;
use events::{Actor, CommandRecord, CommitId, CorrelationId, OrganizationId, RefusalKind, TokenId};
use tokio::sync::mpsc;

use super::Driver;
use crate::call::Call;
use crate::model::steps::Step;

/// Between two notes: when thousands of agents come at once, their tokens' uses are to cost them nothing.
const PAUSE: Duration = Duration::from_millis(100);

impl Driver {
    /// Notes uses as they come in, until the last driver is gone or `shutdown`. A note that fails is made by the next use.
    ///
    /// # Errors
    /// None today.
    pub async fn note_uses(
        self,
        mut waiting: mpsc::Receiver<TokenId>,
        shutdown: chassis::Shutdown,
    ) -> anyhow::Result<()> {
        loop {
            let token = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                token = waiting.recv() => token,
            };
            let Some(token) = token else { return Ok(()) };
            let now = self.now();
            if self.directory.read(|directory| directory.use_is_news(token, now)) {
                self.note_use(token).await;
                self.world.clock.sleep(PAUSE).await;
            }
        }
    }

    async fn note_use(&self, token: TokenId) {
        let context = RequestContext {
            actor: Actor::service("authz"),
            organization: OrganizationId::SYSTEM,
            correlation_id: CorrelationId(self.fresh()),
            causation_id: None,
            traceparent: None,
            idempotency_key: CommitId(self.fresh()),
            deadline_millis: 10_000,
        };
        let command =
            CommandRecord { name: "authz.note-use".to_owned(), data: Vec::new(), ids: vec![token.0] };
        let call = Call { context, command };
        match self.commit(&call, call.key(), Step::UseToken { token }).await {
            Ok(_) => {}
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {}
            Err(refusal) => tracing::warn!(%token, error = %refusal, "use of a token was not recorded"),
        }
    }
}
