//! One seed, from the first start to the last check.

mod sending;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use parking_lot::Mutex;

use crate::agent::PORT;
use crate::dice::Dice;
use crate::executor::Step;
use crate::faults::Faults;
use crate::order;
use crate::people::{Facts, Person};
use crate::scene::{Given, Scene};

/// A fault that is built in on purpose, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The log does not look at the expected version.
    ForgetsExpectations,
    /// The log acknowledges what is not stored yet.
    AcknowledgesEarly,
    /// An agent goes on in an epoch that is over: whatever becomes of its Lease, each instance is told that it has it.
    IgnoresEpochs,
    /// Somebody beside authz signs passes for whoever asks, and agents pin their key.
    SignsForAnybody,
    /// Somebody on the way answers for receivers of webhooks, which never hear of it.
    AnswersForReceivers,
    /// While one receiver of webhooks is in trouble, there is no way to the others either.
    SharesTheWay,
}

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Decides everything.
    pub seed: u64,
    /// Steps while things go wrong, at least.
    pub steps: u64,
    /// Faults, at least.
    pub faults: u64,
    /// How long a receiver of webhooks is in trouble while nothing else goes wrong.
    pub outage: Duration,
    /// Built in on purpose.
    pub flaw: Option<Flaw>,
    /// Keeps what happens in words.
    pub words: bool,
}

impl Setting {
    /// What the tests run.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self { seed, steps: 5_000, faults: 20, outage: Duration::ZERO, flaw: None, words: false }
    }
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Steps in all.
    pub steps: u64,
    /// Simulated time.
    pub time: Duration,
    /// How often each fault took effect.
    pub fired: BTreeMap<&'static str, u64>,
    /// Faults in all.
    pub faults: u64,
    /// Records in the log.
    pub stored: u64,
    /// What people did.
    pub done: u64,
    /// Requests of people that came to API servers.
    pub arrived: usize,
    /// Everything that happened, in one number.
    pub trace: u64,
    /// The first thing that did not hold.
    pub failure: Option<String>,
    /// What happened, if words were wanted.
    pub words: Vec<String>,
    /// How long after the last push everything was as it is wanted; nothing if it never was.
    pub settled: Option<Duration>,
    /// Secrets of the tokens that there were.
    pub secrets: Vec<String>,
}

impl Report {
    /// What there was less of than there should be, so that a seed that did not fail shows less than it should.
    #[must_use]
    pub fn short_of(&self) -> Option<String> {
        let wanted = Setting::of(self.seed);
        let counts = [("steps", self.steps, wanted.steps), ("faults", self.faults, wanted.faults)];
        let short = counts.iter().filter(|(_, count, wanted)| count < wanted);
        let short: Vec<String> =
            short.map(|(what, count, wanted)| format!("{count} of {wanted} {what}")).collect();
        (!short.is_empty()).then(|| short.join(", "))
    }
}

/// Replicas of each service.
const REPLICAS: usize = 2;
/// Instances of each agent.
const INSTANCES: [usize; 2] = [2, 1];
/// How long it may take until everything is set up, and until everything is as it is to be.
const SET_UP: Duration = Duration::from_secs(600);
const SETTLED: Duration = Duration::from_secs(1_200);
/// How long after the last push everything is as it is wanted, once nothing goes wrong any more: two looks at the repositories, each a minute
/// and some more after the one before, and what waited longest before its next attempt.
const WANTED: Duration = Duration::from_secs(300);
/// So long nothing changes any more: on the way to what is wanted, a cluster may be so by chance.
const STAYS: Duration = Duration::from_secs(10);
/// So long a gateway uses a pass: one that was signed by another clock is refused by agents.
const PASSES_USED: Duration = Duration::from_secs(31);
/// Steps between two looks.
const LOOK_EVERY: u64 = 64;

/// Whether bytes hold others.
fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

/// Runs a seed.
#[must_use]
pub fn run(setting: Setting) -> Report {
    let mut run = Run::new(setting);
    let failure = run.all().err();
    let report = run.report(failure);
    run.scene.executor.end();
    report
}

struct Run {
    setting: Setting,
    scene: Scene,
    faults: Faults,
    given: Given,
    person: Person,
    facts: Arc<Mutex<Facts>>,
    settled: Option<Duration>,
    /// Since when no clock is wrong.
    clocks_right: Duration,
    /// Since when events have to be exported and sent at once.
    sent_at_once: Option<Duration>,
}

impl Run {
    fn new(setting: Setting) -> Self {
        let mut scene = Scene::new(&setting);
        if setting.words {
            scene.executor.record_steps();
        }
        let faults = Faults::new(Dice::new(setting.seed ^ 0x5EED));
        scene.add_services(REPLICAS);
        scene.add_receivers();
        if setting.flaw == Some(Flaw::SignsForAnybody) {
            crate::forger::start(scene.add_people());
        }
        let given = scene.add_people();
        let person = Person::new(&given, &scene);
        let facts = person.facts();
        Self {
            setting,
            scene,
            faults,
            given,
            person,
            facts,
            settled: None,
            clocks_right: Duration::ZERO,
            sent_at_once: None,
        }
    }

    fn report(&self, failure: Option<String>) -> Report {
        let (executor, facts) = (&self.scene.executor, self.facts.lock());
        Report {
            seed: self.setting.seed,
            steps: executor.steps(),
            time: executor.now(),
            fired: self.faults.fired(&self.scene),
            faults: self.faults.count(&self.scene),
            stored: self.scene.log.audit(|audit| audit.stored()),
            done: facts.done,
            arrived: self.scene.access.arrivals(),
            trace: executor.trace(),
            failure,
            words: executor.take_steps(),
            settled: self.settled,
            secrets: facts.secrets.clone(),
        }
    }

    fn all(&mut self) -> Result<(), String> {
        self.set_up()?;
        self.trouble()?;
        self.settle()?;
        self.check()
    }

    /// What holds at any moment.
    fn look(&mut self) -> Result<(), String> {
        if let Some(panic) = self.scene.executor.panics().first() {
            return Err(format!("a task panicked: {panic}"));
        }
        if let Some(violation) = self.scene.log.audit(|audit| audit.violation().cloned()) {
            return Err(violation);
        }
        if let Some(violation) = self.scene.clusters.iter().find_map(crate::cluster::Cluster::violation) {
            return Err(violation);
        }
        if let Some(violation) = self.scene.access.violation() {
            return Err(violation);
        }
        if let Some(violation) = self.scene.receivers.violation().or_else(|| self.late()) {
            return Err(violation);
        }
        if let Some(violation) = self.facts.lock().violations.first() {
            return Err(violation.clone());
        }
        for node in self.scene.take_ended() {
            self.faults.start_later(&self.scene, node);
        }
        Ok(())
    }

    /// Some steps, until a look says that it is enough.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut enough: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let end = self.scene.executor.now() + limit;
        loop {
            for _ in 0..LOOK_EVERY {
                if self.scene.executor.step() == Step::Idle {
                    return Err(format!("nothing happens any more, before {what}"));
                }
            }
            self.look()?;
            if enough(self)? {
                return Ok(());
            }
            if self.scene.executor.now() > end {
                return Err(format!("not within {limit:?}: {what}"));
            }
        }
    }

    fn set_up(&mut self) -> Result<(), String> {
        self.person.start(INSTANCES.len());
        self.until("everything is set up", SET_UP, |run| {
            for agent in run.facts.lock().agents.iter().skip(run.scene.clusters.len()) {
                let instances = INSTANCES.get(run.scene.clusters.len()).copied().unwrap_or(1);
                run.scene.add_agent(agent, instances);
            }
            run.faults.restart(&mut run.scene);
            let working = run.facts.lock().working;
            Ok(run.scene.clusters.len() == INSTANCES.len() && working > 0)
        })
    }

    fn trouble(&mut self) -> Result<(), String> {
        let began = self.scene.executor.steps();
        self.until("trouble is over", SETTLED, |run| {
            run.faults.go_on(&mut run.scene);
            let steps = run.scene.executor.steps() - began;
            Ok(steps >= run.setting.steps && run.faults.count(&run.scene) >= run.setting.faults)
        })
    }

    /// Nothing goes wrong any more: everything is to be as it is wanted.
    fn settle(&mut self) -> Result<(), String> {
        self.scene.log.heal();
        self.scene.clusters.iter().for_each(crate::cluster::Cluster::heal);
        self.scene.receivers.keep_one_in_trouble();
        for node in self.scene.nodes(|_, _| true) {
            let executor = &self.scene.executor;
            executor.slow(node, 0);
            executor.move_clock(node, -executor.clock_offset_millis(node));
        }
        self.clocks_right = self.scene.executor.now();
        self.facts.lock().tidy = true;
        self.until("people have finished", SETTLED, |run| {
            run.faults.restart(&mut run.scene);
            Ok(run.facts.lock().working == 0)
        })?;
        let person = self.person.clone();
        self.until_done("everything is pushed once more", async move { person.tidy().await })?;
        self.settled = Some(self.becomes_as_wanted()?);
        self.sends_at_once()?;
        let person = self.person.clone();
        self.until_done("what never becomes available is mended", async move { person.mend().await })?;
        self.becomes_as_wanted()?;
        self.outlast()
    }

    /// Waits until everything is as it is wanted and stays so; gives how long it took.
    fn becomes_as_wanted(&mut self) -> Result<Duration, String> {
        let pushed = self.scene.executor.now();
        let (mut same_since, mut took) = (None, Duration::ZERO);
        let settled = self.until("every cluster is as it is wanted", WANTED, |run| {
            run.faults.restart(&mut run.scene);
            let now = run.scene.executor.now();
            if !run.scene.is_ready() || run.difference().or_else(|| run.untruth()).is_some() {
                same_since = None;
                return Ok(false);
            }
            let since = *same_since.get_or_insert(now);
            took = since.saturating_sub(pushed);
            Ok(now >= since + STAYS)
        });
        let why = |run: &Self| run.difference().or_else(|| run.untruth()).unwrap_or_default();
        settled.map_err(|error| format!("{error}: {}", why(self)))?;
        Ok(took)
    }

    /// How a cluster differs from what is wanted of it.
    fn difference(&self) -> Option<String> {
        let facts = self.facts.lock();
        facts.agents.iter().zip(&self.scene.clusters).find_map(|(agent, cluster)| {
            let in_force = self.scene.access.in_force(agent.id);
            let lets_in = (!agent.model.lets_in.is_in(&in_force))
                .then(|| format!("{in_force:?} is in force, not {:?}", agent.model.lets_in));
            let difference = lets_in.or_else(|| cluster.difference(&agent.model.wanted()))?;
            Some(format!("{}: {difference}", agent.name))
        })
    }

    /// How what the log says last of an agent's cluster differs from what is true.
    fn untruth(&self) -> Option<String> {
        self.facts.lock().agents.iter().find_map(|agent| {
            let (wanted, sources) = (agent.model.wanted(), agent.model.configured());
            let told =
                self.scene.log.audit(|audit| audit.told_of(agent.id)?.difference(&wanted, &sources))?;
            Some(format!("{}: {told}", agent.name))
        })
    }

    /// Runs something of the people's to its end.
    fn until_done(
        &mut self,
        what: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let working = self.given.world.spawner.spawn("people", Box::pin(work));
        self.until(what, SETTLED, |run| {
            run.faults.restart(&mut run.scene);
            Ok(working.is_finished())
        })
    }

    fn check(&mut self) -> Result<(), String> {
        let person = self.person.clone();
        self.until_done("tokens are asked for", async move { person.check_tokens().await })?;
        self.check_visits()?;
        self.verify()?;
        if let Some(lost) = self.scene.log.lost() {
            return Err(lost);
        }
        let gap = |run: &mut Self| run.scene.log.audit(|audit| audit.gap());
        let whole = self.until("all that was observed is in the log", SETTLED, |run| Ok(gap(run).is_none()));
        whole.map_err(|error| format!("{error}: {}", gap(self).unwrap_or_default()))?;
        self.until("each agent has a tunnel", SETTLED, |run| {
            let facts = run.facts.lock();
            Ok(run.tunnels_by(&facts.secrets) >= facts.agents.len())
        })?;
        if self.tunnels_by(&self.facts.lock().revoked) > 0 {
            return Err("a tunnel is open whose token was revoked".to_owned());
        }
        self.look()?;
        let facts = self.facts.lock();
        if facts.secrets.iter().any(|secret| self.scene.log.holds(secret.as_bytes())) {
            return Err("the secret of a token is in the log".to_owned());
        }
        let mut holders = BTreeMap::new();
        for (name, ids) in &facts.names {
            for id in ids {
                if *holders.entry(name).or_insert(*id) != *id {
                    return Err(format!("two projects have the name {name}"));
                }
            }
        }
        drop(facts);
        if let Some(difference) = self.difference() {
            return Err(format!("it does not stay as it was wanted: {difference}"));
        }
        // Who was let in changed meanwhile, by commits that bring the same objects once more.
        let said = self.until("what is said is true in the end", WANTED, |run| Ok(run.untruth().is_none()));
        said.map_err(|error| format!("{error}: {}", self.untruth().unwrap_or_default()))
    }

    /// People's requests to clusters.
    fn check_visits(&mut self) -> Result<(), String> {
        self.scene.access.end_faults();
        let (person, right) = (self.person.clone(), self.clocks_right);
        self.until("passes of before clocks were set are used no more", SETTLED, |run| {
            Ok(run.scene.executor.now() > right + PASSES_USED)
        })?;
        self.until_done("clusters are asked", async move {
            person.check_visitors().await;
            person.check_streams().await;
            person.check_withdrawal().await;
        })?;
        let written = self.facts.lock().written.clone();
        for (agent, name, value) in written {
            let agents = self.facts.lock().agents.iter().position(|known| known.id == agent);
            let cluster = agents.and_then(|number| self.scene.clusters.get(number));
            if !cluster.is_some_and(|cluster| cluster.was_written(&name, value)) {
                return Err(format!("{value} was written to {name}, as somebody was told, and never was"));
            }
        }
        let unrecorded = |run: &mut Self| run.scene.access.unrecorded();
        let recorded = self.until("what was asked is recorded", SETTLED, |run| Ok(unrecorded(run).is_none()));
        recorded.map_err(|error| format!("{error}: {}", unrecorded(self).unwrap_or_default()))
    }

    /// Connections that are open, and on which one of these tokens was shown.
    fn tunnels_by(&self, tokens: &[String]) -> usize {
        let shown = |opening: &Vec<u8>| tokens.iter().any(|secret| holds(opening, secret.as_bytes()));
        self.scene.internet.openings(PORT).iter().filter(|opening| shown(opening)).count()
    }

    /// The whole log, read by somebody who has just come.
    fn verify(&mut self) -> Result<(), String> {
        let outcome: Arc<Mutex<Option<String>>> = Arc::default();
        let (told, log) = (Arc::clone(&outcome), self.scene.newcomer(&self.given));
        let reading = async move {
            let Ok(parts) = log.await else {
                *told.lock() = Some("the store does not open".to_owned());
                return;
            };
            let verified = parts.log.verify().await;
            let wrong = match verified {
                Ok(report) => {
                    let decisions = report.streams.iter().find(|stream| stream.stream == Stream::Decisions);
                    decisions.is_none_or(|d| d.records == 0).then(|| "no decisions were read".to_owned())
                }
                Err(error) => Some(error.to_string()),
            };
            *told.lock() = match wrong {
                None => order::matters(&*parts.log).await,
                wrong => wrong,
            };
        };
        self.until_done("the log is read once more", reading)?;
        let wrong = outcome.lock().take();
        wrong.map_or(Ok(()), |wrong| Err(format!("the log does not verify: {wrong}")))
    }
}
