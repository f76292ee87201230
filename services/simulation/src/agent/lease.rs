//! Who applies: one instance holds the cluster's Lease, and stops before another one may take it.

use std::time::Duration;

use super::Instance;

const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Who could not renew for so long writes no more.
const STOPS_AFTER: Duration = Duration::from_secs(2);
/// Who was not renewed for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(4);

impl Instance {
    pub(super) async fn lease(&self) {
        let clock = &self.world.clock;
        let mut seen = (crate::cluster::Lease::default(), clock.monotonic());
        let mut renewed = Duration::ZERO;
        loop {
            let asked = clock.monotonic();
            if let Ok(lease) = self.cluster.lease().await {
                if lease != seen.0 {
                    seen = (lease, clock.monotonic());
                }
                let mine = lease.holder == Some(self.id);
                let free = lease.holder.is_none() || clock.monotonic().saturating_sub(seen.1) > GONE_AFTER;
                if (mine || free) && self.cluster.hold(self.id, lease).await == Ok(true) {
                    renewed = asked;
                    self.hold(true);
                } else if !mine {
                    self.hold(false);
                }
            }
            let end = renewed + STOPS_AFTER;
            let pause =
                RENEW_EVERY.min(end.saturating_sub(clock.monotonic()).max(Duration::from_millis(100)));
            clock.sleep(pause).await;
            if clock.monotonic() >= end {
                self.hold(false);
            }
        }
    }

    fn hold(&self, held: bool) {
        self.state.holding.send_if_modified(|holding| std::mem::replace(holding, held) != held);
    }
}
