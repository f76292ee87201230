//! What the index says, for messages about environments.

use std::time::Duration;

use bus::{ask, context_for};
use events::requests::index::{EnvironmentHealth, ExplainHealth, ListEnvironmentHealth};
use events::requests::page::{PageLimit, Paged as _};
use events::{Refusal, SubscriptionId};

use super::Deliverer;
use crate::alerts::{Alert, described};
use crate::cursors::Group;
use crate::model::Subscription;

/// Bounds of the pause between two looks.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Pages of one look: as many environments as are remembered.
const MOST_PAGES: usize = 4;
/// Objects of a chain of reasons that a message names, besides the first.
const LONGEST_CHAIN: usize = 3;

impl Deliverer {
    /// Several looks fall into the time for which trouble has to last.
    pub(super) fn look_every(&self) -> Duration {
        let after = Duration::from_millis(u64::try_from(self.alerts_after).unwrap_or(u64::MAX));
        (after / 4).clamp(LOOK_EVERY.0, LOOK_EVERY.1)
    }

    /// Asks the index how the environments are that a subscription is about, and notes it.
    pub(super) async fn look_at_index(&self, id: SubscriptionId, group: Group, known: &Subscription) {
        let found = self.environments(known).await;
        let now = self.now();
        let before = self.progress(group, id).alerts;
        let mut alerts = before.clone();
        match found {
            Ok(found) => alerts.hear(&found, now),
            Err(refusal) => {
                tracing::debug!(subscription = %id, %refusal, "the index says nothing of environments");
                alerts.lose_index(now);
            }
        }
        // What does not change is not saved again.
        if alerts != before {
            self.update(group, id, |progress| progress.alerts = alerts);
        }
    }

    /// The environments' health, as far as the subscription's creator may see it.
    async fn environments(&self, known: &Subscription) -> Result<Vec<EnvironmentHealth>, Refusal> {
        let mut request = ListEnvironmentHealth {
            env: known.filter.environment.map(|environment| environment.to_string()),
            project: known.filter.project.map(|project| project.to_string()),
            limit: Some(PageLimit::MAXIMUM),
            ..ListEnvironmentHealth::default()
        };
        let mut found = Vec::new();
        for _ in 0..MOST_PAGES {
            let context = context_for(&self.deps.world, known.created_by.clone(), known.organization);
            let page = ask(&*self.deps.bus, &context, &request).await?;
            found.extend(page.items);
            let Some(next) = page.next else { break };
            request = request.at(next);
        }
        Ok(found)
    }

    /// Adds the chain of reasons below the object that the index blames, as far as the index knows it.
    pub(super) async fn with_chain(&self, known: &Subscription, alert: Alert) -> Alert {
        let Some(object) = &alert.object else { return alert };
        let request = ExplainHealth { filter: object.filter(), ..ExplainHealth::default() };
        let context = context_for(&self.deps.world, known.created_by.clone(), known.organization);
        let explained = ask(&*self.deps.bus, &context, &request).await;
        let chain = explained.ok().and_then(|explained| explained.chains.into_iter().next());
        let below = chain.into_iter().flatten().skip(1);
        // The last one is to blame; of a long chain the middle is left out.
        let mut below: Vec<String> = below.map(|object| described(&object)).collect();
        below.drain(..below.len().saturating_sub(LONGEST_CHAIN));
        let reason =
            below.into_iter().fold(alert.reason.clone(), |reason, next| format!("{reason}, because {next}"));
        Alert { reason, ..alert }
    }
}
