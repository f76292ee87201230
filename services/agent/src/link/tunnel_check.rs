//! What the readiness page says of the tunnel.

use chassis::ReadyHandle;
use chassis::readiness::Finding;
use events::Timestamp;
use tunnel::agent::{LinkEnd, Target};

/// The check of the tunnel: connected since when, or not, since when and why.
pub(super) struct TunnelCheck {
    ready: ReadyHandle,
    /// Since when there is no tunnel.
    closed_at: Option<Timestamp>,
}

impl TunnelCheck {
    pub(super) const fn new(ready: ReadyHandle) -> Self {
        Self { ready, closed_at: None }
    }

    pub(super) fn opened(&mut self, target: &Target, now: Timestamp) {
        self.closed_at = None;
        let message = format!("connected to the server {}:{}", target.host, target.port);
        self.ready.report(Finding::passed(message).since(now));
    }

    /// There is no tunnel, for this reason; the moment of the first reason counts.
    pub(super) fn lost(&mut self, target: &Target, reason: &str, now: Timestamp) {
        let since = *self.closed_at.get_or_insert(now);
        let message = format!("not connected to the server {}:{}: {reason}", target.host, target.port);
        self.ready.report(Finding::failed(message).since(since));
    }
}

/// Why a tunnel ended, for people.
pub(super) fn words(end: &LinkEnd) -> String {
    match end {
        LinkEnd::Farewell(farewell) => format!("the server closed the tunnel: {}", farewell.reason),
        LinkEnd::Closed => "the server closed the tunnel".to_owned(),
        LinkEnd::Drained => "the agent is stopping".to_owned(),
        LinkEnd::Lost { detail } => format!("the connection was lost: {detail}"),
    }
}
