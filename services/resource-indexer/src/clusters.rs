//! What clusters' own authorization permits somebody to list: asked through their agents, and remembered for a short time.
//!
//! A question to one cluster about one user is under way once at a time, in a task of its own that goes on when nobody waits any more: a
//! query waits for a moment, and shows nothing of a cluster that has not answered by then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::{ask, ask_of_agent, within};
use events::pass::Narrowing;
use events::request::RequestContext;
use events::requests::authz::{IssuedReview, SignReview};
use events::requests::rights::ReviewRights;
use events::{Actor, AgentId, OrganizationId, Position, Refusal, Sha256};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::driver::Driver;
use crate::model::{
    AsThemselves, ClusterRights, Connection, Kind, Listable, Question, Rights, Text, agent_named,
};

/// How long an answer counts, if nothing that touches it is seen before.
pub(crate) const COUNTS_FOR: Duration = Duration::from_secs(60);
/// How long it counts that there was none: long enough that a dead agent is not asked by each query.
const UNKNOWN_COUNTS_FOR: Duration = Duration::from_secs(5);
/// How long an API server may go by rules that were changed before it told of the change: an answer from this time does not count longer.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// What was asked less than this ago is not asked anew for the wish alone.
const ANEW_AFTER: Duration = Duration::from_secs(1);
/// How long a query waits for clusters.
const WAITED_FOR: Duration = Duration::from_secs(3);
/// How long a cluster is asked.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// How long an answer counts at least when its cluster has got a kind or a namespace that was not asked about.
const GROWN_AFTER: Duration = Duration::from_secs(5);
/// Clusters that are asked at once; the others wait. So many that some which hang leave room for the others.
const AT_ONCE: usize = 256;
/// Questions that are under way or wait; more are not begun.
const UNDER_WAY: usize = 4_000;
/// Answers that are remembered.
const ANSWERS: usize = 20_000;
/// Entries of all answers that are remembered: kinds and namespaces.
const ENTRIES: usize = 2_000_000;

/// API group of the objects that a cluster's rules are made of.
const RULES: &str = "rbac.authorization.k8s.io";

/// Whose rights in which cluster, by the identity that they have there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    agent: AgentId,
    organization: OrganizationId,
    actor: Actor,
    identity: Option<Sha256>,
}

/// Answers, and questions under way.
pub(crate) struct Clusters {
    state: Mutex<State>,
    places: Semaphore,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Key, Answer>,
    /// Of all that are known.
    entries: usize,
    under_way: BTreeMap<Key, UnderWay>,
    asked: u64,
    /// When a change of the rules of an agent's cluster was seen.
    touched: BTreeMap<AgentId, Duration>,
    /// When it got something that was not asked about before.
    grown: BTreeMap<AgentId, Duration>,
    /// What there was to ask about.
    shapes: BTreeMap<AgentId, Shape>,
}

/// The kinds and namespaces of a cluster, those included that are gone.
#[derive(Default)]
struct Shape {
    listed: usize,
    kinds: BTreeSet<Kind>,
    namespaces: BTreeSet<Text>,
}

struct Answer {
    rights: ClusterRights,
    asked: Duration,
    /// Nobody waited for it to its end.
    was_slow: bool,
    until: Duration,
    entries: usize,
}

struct UnderWay {
    number: u64,
    asked: Duration,
    answer: watch::Receiver<Option<ClusterRights>>,
}

/// What is known of a key, or will be.
enum Found {
    Known(ClusterRights),
    UnderWay(Waiting),
    /// It is to be asked, under this number.
    ToAsk(u64, watch::Sender<Option<ClusterRights>>, Waiting),
}

/// An answer that is waited for.
struct Waiting {
    answer: watch::Receiver<Option<ClusterRights>>,
    until: Duration,
    /// What counts where there is none by then.
    otherwise: ClusterRights,
}

impl Default for Clusters {
    fn default() -> Self {
        Self { state: Mutex::default(), places: Semaphore::new(AT_ONCE) }
    }
}

impl Clusters {
    /// Objects of these kinds changed in these namespaces of an agent's cluster, where so many kinds are listed. What the cluster said does
    /// not count any more where its rules are others, and is asked for anew soon where there is more to ask about.
    pub(crate) fn note<'a>(
        &self,
        agent: AgentId,
        listed: usize,
        changed: impl Iterator<Item = (&'a Kind, &'a Text)>,
        now: Duration,
    ) {
        let mut state = self.state.lock();
        let shape = state.shapes.entry(agent).or_default();
        let (mut has_grown, mut has_other_rules) = (listed > shape.listed, false);
        shape.listed = listed;
        for (kind, namespace) in changed {
            has_other_rules |= &*kind.group == RULES;
            if !shape.kinds.contains(kind) || !shape.namespaces.contains(namespace) {
                shape.kinds.insert(kind.clone());
                shape.namespaces.insert(namespace.clone());
                has_grown = true;
            }
        }
        if has_grown {
            state.has_grown(agent, now);
        }
        if has_other_rules {
            state.has_other_rules(agent, now);
        }
    }

    /// An agent was deleted.
    pub(crate) fn remove(&self, agent: AgentId) {
        let mut state = self.state.lock();
        state.forget(|key, _| key.agent == agent);
        state.shapes.remove(&agent);
    }

    /// Somebody wants to know anew.
    fn forget(&self, organization: OrganizationId, actor: &Actor, now: Duration) {
        self.state.lock().forget(|key, asked| {
            let is_theirs = key.organization == organization && key.actor == *actor;
            is_theirs && now.saturating_sub(asked) >= ANEW_AFTER
        });
    }

    fn find(&self, key: &Key, now: Duration) -> Found {
        let mut state = self.state.lock();
        if let Some(answer) = state.known.get(key).filter(|answer| now < answer.until) {
            return Found::Known(answer.rights.clone());
        }
        // A task that broke off has left its entry.
        let goes_on = |under_way: &&UnderWay| under_way.answer.has_changed().is_ok();
        if let Some(under_way) = state.under_way.get(key).filter(goes_on) {
            let (answer, until) = (under_way.answer.clone(), under_way.asked.saturating_add(WAITED_FOR));
            return Found::UnderWay(Waiting { answer, until, otherwise: not_yet() });
        }
        if state.under_way.len() >= UNDER_WAY {
            let reason = "too many clusters are being asked; retry";
            return Found::Known(ClusterRights::Unknown(reason.to_owned()));
        }
        state.asked = state.asked.wrapping_add(1);
        let (number, (sender, answer)) = (state.asked, watch::channel(None));
        state.under_way.insert(key.clone(), UnderWay { number, asked: now, answer: answer.clone() });
        // A cluster that did not answer in time is not waited for again: the next query finds what comes of it.
        let former = state.known.get(key).filter(|former| former.was_slow);
        let waiting = match former.map(|former| former.rights.clone()) {
            Some(otherwise) => Waiting { answer, until: now, otherwise },
            None => Waiting { answer, until: now.saturating_add(WAITED_FOR), otherwise: not_yet() },
        };
        Found::ToAsk(number, sender, waiting)
    }

    /// Remembers an answer to what was asked at `asked` under a number, unless that was forgotten meanwhile.
    fn answered(&self, key: &Key, (number, asked): (u64, Duration), now: Duration, rights: &ClusterRights) {
        let mut state = self.state.lock();
        if state.under_way.get(key).is_none_or(|under_way| under_way.number != number) {
            return;
        }
        state.under_way.remove(key);
        let (counts_from, counts_for, entries) = match rights {
            ClusterRights::Known(listable) => (asked, COUNTS_FOR, listable.entries()),
            ClusterRights::Unknown(_) => (now, UNKNOWN_COUNTS_FOR, 0),
        };
        let mut until = counts_from.saturating_add(counts_for);
        if let Some(touched) = state.touched.get(&key.agent) {
            let settled = touched.saturating_add(SETTLED_AFTER);
            until = if asked < settled { until.min(settled) } else { until };
        }
        if state.grown.get(&key.agent).is_some_and(|grown| asked <= *grown) {
            until = until.min(asked.saturating_add(GROWN_AFTER));
        }
        let was_slow = now.saturating_sub(asked) >= WAITED_FOR && matches!(rights, ClusterRights::Unknown(_));
        let entries = entries.saturating_add(1);
        let answer = Answer { rights: rights.clone(), asked, was_slow, until, entries };
        state.remember(key.clone(), answer);
    }
}

impl State {
    fn has_other_rules(&mut self, agent: AgentId, now: Duration) {
        self.forget(|key, _| key.agent == agent);
        self.touched.retain(|_, at| now.saturating_sub(*at) < SETTLED_AFTER);
        self.touched.insert(agent, now);
    }

    fn has_grown(&mut self, agent: AgentId, now: Duration) {
        let of_agent = self.known.iter_mut().filter(|(key, _)| key.agent == agent);
        for (_, answer) in of_agent {
            answer.until = answer.until.min(answer.asked.saturating_add(GROWN_AFTER));
        }
        // What was asked before is answered by then.
        self.grown.retain(|_, at| now.saturating_sub(*at) < ASKED_FOR);
        self.grown.insert(agent, now);
    }

    /// Forgets what is meant by its key and when it was asked.
    fn forget(&mut self, is_meant: impl Fn(&Key, Duration) -> bool) {
        let mut freed = 0_usize;
        self.known.retain(|key, answer| {
            let stays = !is_meant(key, answer.asked);
            freed = freed.saturating_add(if stays { 0 } else { answer.entries });
            stays
        });
        self.entries = self.entries.saturating_sub(freed);
        // Who waits for these hears the answer; who asks from now on asks anew.
        self.under_way.retain(|key, under_way| !is_meant(key, under_way.asked));
    }

    /// Remembers an answer; the oldest ones make room for it.
    fn remember(&mut self, key: Key, answer: Answer) {
        self.drop_one(&key);
        while self.known.len() >= ANSWERS || self.entries.saturating_add(answer.entries) > ENTRIES {
            let oldest = self.known.iter().min_by_key(|(_, old)| old.asked);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.drop_one(&oldest);
        }
        self.entries = self.entries.saturating_add(answer.entries);
        self.known.insert(key, answer);
    }

    fn drop_one(&mut self, key: &Key) {
        if let Some(former) = self.known.remove(key) {
            self.entries = self.entries.saturating_sub(former.entries);
        }
    }
}

/// As metrics have it.
fn outcome(rights: &ClusterRights) -> &'static str {
    match rights {
        ClusterRights::Known(listable) if listable.unknown().is_empty() => "known",
        ClusterRights::Known(_) => "partly",
        ClusterRights::Unknown(_) => "unknown",
    }
}

fn not_yet() -> ClusterRights {
    ClusterRights::Unknown("its cluster has not answered yet; retry".to_owned())
}

/// What clusters are known to say.
type Said = Vec<(AgentId, ClusterRights)>;

/// A cluster that is to be asked.
struct ToAsk {
    agent: AgentId,
    grants: Vec<Narrowing>,
    identity: Option<Sha256>,
}

impl Driver {
    /// These rights, with what clusters say that see the asker as themselves; only the one that is named, if one is.
    pub(crate) async fn with_clusters(
        self: &Arc<Self>,
        context: &RequestContext,
        (rights, since): (&Arc<Rights>, Position),
        named: Option<&str>,
    ) -> Result<Arc<Rights>, Refusal> {
        if rights.as_themselves().next().is_none() {
            return Ok(Arc::clone(rights));
        }
        self.is_whole()?;
        let (mut said, to_ask) = self.to_ask(rights, named)?;
        let mut waiting = Vec::new();
        for ToAsk { agent, grants, identity } in to_ask {
            let (organization, actor) = (context.organization, context.actor.clone());
            let key = Key { agent, organization, actor, identity };
            let now = self.deps.world.clock.monotonic();
            match self.clusters.find(&key, now) {
                Found::Known(rights) => said.push((agent, rights)),
                Found::UnderWay(answer) => waiting.push((agent, answer)),
                Found::ToAsk(number, sender, answer) => {
                    waiting.push((agent, answer));
                    let (driver, context, since) = (Arc::clone(self), context.clone(), since.clone());
                    let asking = async move {
                        let rights = driver.ask_within(&context, &key, grants, since).await;
                        driver.counts.cluster_reviews.with([outcome(&rights)]).inc();
                        let ended = driver.deps.world.clock.monotonic();
                        driver.clusters.answered(&key, (number, now), ended, &rights);
                        sender.send_replace(Some(rights));
                    };
                    self.deps.world.spawner.spawn("index-cluster-rights", Box::pin(asking));
                }
            }
        }
        said.extend(self.wait_for(waiting).await);
        Ok(Arc::new(rights.with(said)))
    }

    /// The clusters that are to be asked; of those that are known to be away, that.
    fn to_ask(&self, rights: &Rights, named: Option<&str>) -> Result<(Said, Vec<ToAsk>), Refusal> {
        self.look(rights, |view, _| {
            // A name of no agent is refused where the agent is looked up.
            let only = named.map(|text| agent_named(text, view).ok());
            let (mut away, mut to_ask) = (Vec::new(), Vec::new());
            for AsThemselves { agent, grants, identity } in rights.as_themselves() {
                if view.directory.is_deleted(agent) || only.is_some_and(|only| only != Some(agent)) {
                    continue;
                }
                if let Some(Connection::Closed { .. }) = view.connection(agent) {
                    away.push((agent, ClusterRights::Unknown("its agent is not connected".to_owned())));
                } else {
                    to_ask.push(ToAsk { agent, grants: grants.to_vec(), identity });
                }
            }
            Ok((away, to_ask))
        })
    }

    async fn wait_for(&self, waiting: Vec<(AgentId, Waiting)>) -> Vec<(AgentId, ClusterRights)> {
        let clock = &self.deps.world.clock;
        let answers =
            waiting.into_iter().map(|(agent, Waiting { mut answer, until, otherwise })| async move {
                let left = until.saturating_sub(clock.monotonic());
                let rights = tokio::select! {
                    biased;
                    answer = answer.wait_for(Option::is_some) => match answer.as_deref() {
                        Ok(Some(rights)) => rights.clone(),
                        _ => ClusterRights::Unknown("its cluster could not be asked; retry".to_owned()),
                    },
                    () = clock.sleep(left) => otherwise,
                };
                (agent, rights)
            });
        join_all(answers).await
    }

    /// Asks a cluster, for no longer than [`ASKED_FOR`].
    async fn ask_within(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
        grants: Vec<Narrowing>,
        since: Position,
    ) -> ClusterRights {
        tokio::select! {
            biased;
            said = self.ask_cluster(context, key, grants, since) => match said {
                Ok(listable) => ClusterRights::Known(Arc::new(listable)),
                Err(refusal) => ClusterRights::Unknown(refusal.message),
            },
            () = self.deps.world.clock.sleep(ASKED_FOR) => {
                ClusterRights::Unknown("its agent does not answer; retry".to_owned())
            }
        }
    }

    async fn ask_cluster(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
        grants: Vec<Narrowing>,
        since: Position,
    ) -> Result<Listable, Refusal> {
        let _place = self.clusters.places.acquire().await;
        let own = RequestContext { actor: Actor::service("resource-indexer"), ..context.clone() };
        let own = within(own, ASKED_FOR);
        let (bus, agent) = (&*self.deps.bus, key.agent);
        let sign = SignReview { actor: key.actor.clone(), agent, since };
        let IssuedReview { pass, roots } = ask(bus, &own, &sign).await?;
        let question = self.beside(move |driver| {
            driver.look(&Rights::default(), |view, _| Ok(Question::of(view, agent, &grants)))
        });
        let question = question.await?;
        let Question { kinds, namespaces, .. } = question.clone();
        let said = ask_of_agent(bus, agent, &own, &ReviewRights { pass, roots, kinds, namespaces }).await?;
        Ok(Listable::of(&question, said))
    }

    /// The asker wants clusters to be asked anew.
    pub(crate) fn ask_clusters_anew(&self, context: &RequestContext) {
        let now = self.deps.world.clock.monotonic();
        self.clusters.forget(context.organization, &context.actor, now);
    }
}

#[cfg(test)]
mod tests;
