//! Shows as metrics how sources and agents stand.
//!
//! Each replica shows the agents that are its own, with their sources, so that sums over replicas are right. The number of series is
//! bounded whatever the number of tenants: counts by state, and by name only the first [`Ranked::MOST`](chassis::metrics::Ranked::MOST)
//! of those that fail longest.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::Live;
use events::requests::status::{Reason, State};
use events::{AgentId, SourceId, Timestamp};
use tokio::sync::watch;

use crate::driver::Driver;
use crate::metrics::Counts;
use crate::model::{DeliveryState, Failing, Tally};

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(15);
/// Agents that are looked at in one go: the fold waits meanwhile.
const AGENTS: usize = 64;

/// What fails: an agent in one way, or a source in any.
type Key = (AgentId, Option<SourceId>, Option<Reason>);

/// Since when each thing that fails was seen to fail, without a break.
#[derive(Default)]
struct Seen(BTreeMap<Key, Timestamp>);

impl Driver {
    /// Looks again and again.
    pub(crate) async fn measure_for_ever(&self, replicas: watch::Receiver<Live>) -> anyhow::Result<()> {
        let mut seen = Seen::default();
        loop {
            let tally = self.tally(&replicas).await;
            let failing = seen.see(tally.failing.clone(), self.around().now);
            show(&self.counts, &tally, &failing);
            self.deps.world.clock.sleep(EVERY).await;
        }
    }

    async fn tally(&self, replicas: &watch::Receiver<Live>) -> Tally {
        let around = self.around();
        let mut own = self.fold.read(DeliveryState::living_agents);
        own.retain(|agent| replicas.borrow().owns(agent.0.as_bytes()));
        let mut tally = Tally::default();
        for agents in own.chunks(AGENTS) {
            self.fold.read(|state| agents.iter().for_each(|agent| state.tally(*agent, &around, &mut tally)));
            // Sources that are to be settled come first.
            tokio::task::yield_now().await;
        }
        tally
    }
}

impl Seen {
    /// What fails, and since when: as far back as is known, the earliest first.
    fn see(&mut self, failing: Vec<Failing>, now: Timestamp) -> Vec<(Failing, Timestamp)> {
        let mut still = BTreeMap::new();
        let mut all: Vec<(Failing, Timestamp)> = failing
            .into_iter()
            .map(|failing| {
                let source = failing.source.as_ref().map(|(source, _)| *source);
                // A source may fail in one way after the other, and fails all the time.
                let key = (failing.agent, source, source.is_none().then_some(failing.reason));
                let before = self.0.get(&key).copied().unwrap_or(now);
                let since = failing.since.map_or(before, |since| since.min(before));
                still.insert(key, since);
                (failing, since)
            })
            .collect();
        self.0 = still;
        all.sort_by(|(left, left_since), (right, right_since)| {
            let key = |failing: &Failing, since: Timestamp| (since, failing.agent, failing.source.clone());
            key(left, *left_since).cmp(&key(right, *right_since))
        });
        all
    }
}

fn show(counts: &Counts, tally: &Tally, failing: &[(Failing, Timestamp)]) {
    for state in State::ALL {
        let count = |of: &BTreeMap<State, u64>| {
            i64::try_from(of.get(&state).copied().unwrap_or(0)).unwrap_or(i64::MAX)
        };
        counts.sources.with([state.code()]).set(count(&tally.sources));
        if let Some(label) = label_of_agent(state) {
            counts.agents.with([label]).set(count(&tally.agents));
        }
    }
    let rejected = i64::try_from(tally.rejected_configurations).unwrap_or(i64::MAX);
    counts.rejected_configurations.set(rejected);
    counts.failing_sources_since_timestamp_seconds.replace(failing.iter().filter_map(|(failing, since)| {
        let (_, source) = failing.source.as_ref()?;
        let [organization, agent, state, reason] = labels(failing);
        Some(([organization, agent, source.clone(), state, reason], seconds(*since)))
    }));
    let agents = failing.iter().filter(|(failing, _)| failing.source.is_none());
    counts
        .failing_agents_since_timestamp_seconds
        .replace(agents.map(|(failing, since)| (labels(failing), seconds(*since))));
}

fn labels(failing: &Failing) -> [String; 4] {
    let (organization, agent) = (failing.organization.to_string(), failing.agent_name.clone());
    [organization, agent, failing.state.code().to_owned(), failing.reason.code().to_owned()]
}

const fn seconds(since: Timestamp) -> i64 {
    since.0.div_euclid(1000)
}

/// The label of agents in a state; `None`: no agent is ever in it.
const fn label_of_agent(state: State) -> Option<&'static str> {
    match state {
        State::InSync => Some("connected"),
        State::Rejected | State::Stale | State::Unknown => Some(state.code()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use chassis::Metrics;
    use events::OrganizationId;
    use uuid::Uuid;

    use super::*;

    fn failing(source: Option<u128>, reason: Reason, since: Option<i64>) -> Failing {
        Failing {
            organization: OrganizationId(Uuid::from_u128(1)),
            agent: AgentId(Uuid::from_u128(2)),
            agent_name: "edge".to_owned(),
            source: source.map(|id| (SourceId(Uuid::from_u128(id)), format!("source-{id}"))),
            state: State::OutOfSync,
            reason,
            since: since.map(Timestamp),
        }
    }

    #[test]
    fn what_fails_in_one_way_after_the_other_fails_since_the_first() {
        let mut seen = Seen::default();
        let since =
            |all: Vec<(Failing, Timestamp)>| -> Vec<i64> { all.into_iter().map(|(_, at)| at.0).collect() };
        let look = |seen: &mut Seen, all: Vec<Failing>, now| since(seen.see(all, Timestamp(now)));
        assert_eq!(look(&mut seen, vec![failing(Some(3), Reason::Blocked, None)], 10), [10], "seen now");
        assert_eq!(look(&mut seen, vec![failing(Some(3), Reason::Drift, Some(40))], 50), [10]);
        assert_eq!(look(&mut seen, vec![failing(Some(3), Reason::SyncFailed, Some(5))], 60), [5]);
        assert_eq!(look(&mut seen, Vec::new(), 70), [0_i64; 0]);
        assert_eq!(look(&mut seen, vec![failing(Some(3), Reason::Blocked, None)], 80), [80], "it was well");
        // An agent fails in several ways at once, each for itself; the earliest comes first.
        let both = vec![
            failing(None, Reason::AgentGone, Some(90)),
            failing(None, Reason::ConfigurationRejected, Some(85)),
        ];
        assert_eq!(look(&mut seen, both, 100), [85, 90]);
    }

    #[test]
    fn however_many_fail_the_number_of_series_is_bounded() {
        let metrics = Metrics::new();
        let counts = Counts::register(&metrics);
        let all = (0..5_000)
            .map(|id| (failing(Some(id), Reason::Drift, None), Timestamp(7_000)))
            .collect::<Vec<_>>();
        let mut tally = Tally::default();
        tally.sources.insert(State::OutOfSync, 5_000);
        tally.agents.insert(State::InSync, 3);
        show(&counts, &tally, &all);
        let text = metrics.encode();
        let own = text.lines().filter(|line| line.starts_with("kasbah_delivery_")).count();
        assert_eq!(own, State::ALL.len() + 4 + 1 + 20 + 1, "{text}");
        let labels = r#"organization="00000000-0000-0000-0000-000000000001",agent="edge",source="source-0",state="out-of-sync",reason="drift""#;
        for line in [
            "kasbah_delivery_sources{state=\"out-of-sync\"} 5000\n",
            "kasbah_delivery_sources{state=\"stale\"} 0\n",
            "kasbah_delivery_agents{state=\"connected\"} 3\n",
            &format!("kasbah_delivery_failing_sources_since_timestamp_seconds{{{labels}}} 7\n"),
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        show(&counts, &Tally::default(), &[]);
        assert!(!metrics.encode().contains("source-0"), "it is well again");
    }
}
