//! Which traces a push is part of.

use events::Timestamp;
use events::desired::{DesiredPlan, SourceHead};

/// Causes of one push that are told, beside the newest.
const LINKS: usize = 16;

/// Why a plan is pushed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Causes {
    /// Trace context of the newest decision that the agent has not got yet.
    pub newest: Option<String>,
    /// How long ago that was.
    pub age_millis: u64,
    /// Those of others.
    pub others: Vec<String>,
}

impl Causes {
    /// What led from the plan that an agent took to this one. What it took on an earlier connection is not known; then it is the
    /// newest of all.
    #[must_use]
    pub fn of(taken: Option<&DesiredPlan>, plan: &DesiredPlan, now: Timestamp) -> Self {
        let had = |head: &SourceHead| {
            let taken = taken.iter().flat_map(|taken| &taken.sources);
            taken.map(|source| &source.head).any(|old| (old.source, old.sync) == (head.source, head.sync))
        };
        let age = |head: &SourceHead| head.sync.age_millis(now).unwrap_or(0);
        let heads = plan.sources.iter().map(|source| &source.head);
        let mut news: Vec<&SourceHead> =
            heads.filter(|head| head.traceparent.is_some() && !had(head)).collect();
        news.sort_by_key(|head| age(head));
        if taken.is_none() {
            news.truncate(1);
        }
        let mut contexts = news.iter().filter_map(|head| head.traceparent.clone());
        let newest = contexts.next();
        let mut others: Vec<String> = contexts.filter(|other| Some(other) != newest.as_ref()).collect();
        others.sort();
        others.dedup();
        others.truncate(LINKS);
        Self { newest, age_millis: news.first().map_or(0, |head| age(head)), others }
    }
}

#[cfg(test)]
mod tests {
    use events::configuration::{HealthSettings, Mode, ObserveRules, ResourceRules, SyncPolicies};
    use events::desired::{Desired, PlannedSource};
    use events::{AgentId, CorrelationId, OrganizationId, SourceId, SyncId};
    use uuid::Uuid;

    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    /// A source whose sync was decided so many milliseconds ago, in a trace of this name.
    fn source(number: u128, age: i64, trace: Option<&str>) -> PlannedSource {
        let millis = u64::try_from(NOW - age).unwrap();
        let sync = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid();
        let head = SourceHead {
            source: SourceId(Uuid::from_u128(number)),
            name: "shop".to_owned(),
            sync: SyncId(sync),
            check_all: false,
            commit: String::new(),
            correlation_id: CorrelationId(Uuid::nil()),
            traceparent: trace.map(str::to_owned),
            suspended: false,
            removed: false,
            default_namespace: "shop".to_owned(),
            service_account: None,
            policies: SyncPolicies::default(),
            finished: Vec::new(),
        };
        PlannedSource { bundle: None, prune: None, wanted: None, head }
    }

    fn plan(sources: Vec<PlannedSource>) -> DesiredPlan {
        Desired {
            revision: 1,
            organization: OrganizationId(Uuid::nil()),
            agent: AgentId(Uuid::nil()),
            applier: None,
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            lockdown: false,
            replaces: Vec::new(),
            rejected: None,
            sources,
        }
    }

    #[test]
    fn the_newest_news_are_the_cause_and_the_others_are_told_too() {
        let taken = plan(vec![source(1, 900, Some("old")), source(2, 900, Some("b0"))]);
        let next = plan(vec![
            source(1, 900, Some("old")),
            source(2, 300, Some("b")),
            source(3, 100, Some("c")),
            source(4, 50, None),
            source(5, 200, Some("c")),
        ]);
        let causes = Causes::of(Some(&taken), &next, Timestamp(NOW));
        let expected = Causes { newest: Some("c".to_owned()), age_millis: 100, others: vec!["b".to_owned()] };
        assert_eq!(causes, expected);
        assert_eq!(Causes::of(Some(&next), &next, Timestamp(NOW)), Causes::default());
    }

    #[test]
    fn what_an_earlier_connection_brought_is_no_news() {
        let next = plan(vec![source(1, 900, Some("a")), source(2, 300, Some("b"))]);
        let causes = Causes::of(None, &next, Timestamp(NOW));
        assert_eq!(causes, Causes { newest: Some("b".to_owned()), age_millis: 300, others: Vec::new() });
    }
}
