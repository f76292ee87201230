//! How many bytes of object changes the agents of one organization may send together. Pure: time is given.

use std::collections::BTreeMap;
use std::time::Duration;

use events::OrganizationId;

use crate::token_bucket::TokenBucket;

/// Organizations are looked through for idle ones when there are more than this, and twice as many as were left.
const MINIMUM_SWEEP: usize = 256;

/// What is left of each organization's bytes. One that sends more than it may waits; the others do not.
#[derive(Debug)]
pub struct Budgets {
    per_second: u32,
    organizations: BTreeMap<OrganizationId, TokenBucket>,
    sweep_at: usize,
}

impl Budgets {
    /// The same for each organization.
    #[must_use]
    pub const fn new(bytes_per_second: u32) -> Self {
        Self { per_second: bytes_per_second, organizations: BTreeMap::new(), sweep_at: MINIMUM_SWEEP }
    }

    /// Takes `bytes` of an organization's; gives how long to wait before the next are taken. `now` never runs backwards.
    pub fn take(&mut self, organization: OrganizationId, bytes: usize, now: Duration) -> Duration {
        if self.organizations.len() >= self.sweep_at {
            self.organizations.retain(|_, bucket| !bucket.is_full(now));
            self.sweep_at = MINIMUM_SWEEP.max(self.organizations.len().saturating_mul(2));
        }
        let bucket = self.organizations.entry(organization);
        bucket.or_insert_with(|| TokenBucket::new(self.per_second, now)).take(bytes, now)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn organization(number: usize) -> OrganizationId {
        OrganizationId(Uuid::from_u128(number as u128))
    }

    #[test]
    fn who_sends_too_much_waits_alone() {
        let mut budgets = Budgets::new(1000);
        assert_eq!(budgets.take(organization(1), 2000, SECOND), Duration::ZERO);
        assert_eq!(budgets.take(organization(1), 3000, SECOND), 3 * SECOND);
        assert_eq!(budgets.take(organization(2), 2000, SECOND), Duration::ZERO);
        assert_eq!(budgets.take(organization(1), 0, 4 * SECOND), Duration::ZERO, "its time is over");
    }

    #[test]
    fn idle_organizations_are_forgotten_and_busy_ones_are_not() {
        let mut budgets = Budgets::new(1000);
        for number in 0..MINIMUM_SWEEP {
            budgets.take(organization(number), 1, Duration::ZERO);
        }
        budgets.take(organization(0), 10_000, SECOND);
        budgets.take(organization(MINIMUM_SWEEP), 1, SECOND);
        assert_eq!(budgets.organizations.len(), 2);
        assert!(budgets.take(organization(0), 0, SECOND) > Duration::ZERO);
    }
}
