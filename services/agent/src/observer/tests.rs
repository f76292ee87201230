mod fake_server;
mod feeds;
mod kinds;
mod subscribers;

use std::collections::BTreeMap;
use std::time::Duration;

use chassis::ShutdownTrigger;
use events::configuration::{HealthSettings, Mode, ObservePattern, ObserveRules, ResourceRules};
use events::desired::{Applier, DesiredSource, DesiredState};
use events::observation::{Gone, ObjectBody, Observed, ObservedKind};
use events::{AgentId, InstanceId, OrganizationId, Sha256};
use testkit::{Dice, eventually};
use tunnel::wire::{Acknowledged, Batch};
use uuid::Uuid;
use world::World;

use super::*;
use crate::desired::Desired;
use crate::kubernetes::{Channel, Connections, Kube};
use crate::lease::Holding;
use crate::outbox::{ObservationQueue, Outbox};
use fake_server::{FakeServer, KINDS, Objects};

const DEADLINE: Duration = Duration::from_secs(3_600);
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// An observer before an API server in memory, and what a server makes of what it tells.
struct Stage {
    server: Arc<FakeServer>,
    observer: Arc<Observer>,
    shared: Arc<Shared>,
    revision: u64,
    sources: Vec<DesiredSource>,
    shutdown: Shutdown,
    _trigger: ShutdownTrigger,
}

impl Stage {
    fn start() -> Self {
        let world = World::real();
        let server = FakeServer::new();
        let channel: Arc<dyn Channel> = server.clone();
        let counts = Counts::default();
        let kube = Kube::new(Connections::over(&channel, "shop"), world.clone(), counts.clone());
        let holding = Holding::new(Arc::clone(&world.clock));
        holding.hold(world.clock.monotonic() + YEARS);
        let outbox = Arc::new(Outbox::new(world.clone(), counts.dropped_observations.clone()));
        let instance = InstanceId(Uuid::from_u128(1));
        let desired = Arc::new(Desired::default());
        let shared =
            Arc::new(Shared::new(world.clone(), kube, outbox, holding, desired, instance, counts.clone()));
        let observer = Arc::new(Observer::new(Arc::clone(&shared), counts));
        let (trigger, shutdown) = ShutdownTrigger::new();
        world.spawner.spawn("observer", Box::pin(run(Arc::clone(&observer), shutdown.clone())));
        Self { server, observer, shared, revision: 0, sources: Vec::new(), shutdown, _trigger: trigger }
    }

    fn desire(&mut self, epoch: u64, observe: ObserveRules) {
        self.revision += 1;
        let state = DesiredState {
            revision: self.revision,
            organization: OrganizationId(Uuid::from_u128(2)),
            agent: AgentId(Uuid::from_u128(3)),
            applier: Some(Applier { instance: self.shared.instance, epoch }),
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe,
            health: HealthSettings::default(),
            lockdown: false,
            replaces: Vec::new(),
            rejected: None,
            sources: self.sources.clone(),
        };
        self.shared.desired.put(state, Sha256::of(&self.revision.to_be_bytes())).unwrap();
    }

    async fn catches_up(&self, receiver: &mut Receiver) {
        let is = self.server.objects();
        let mut verdict = receiver.compare(&is);
        eventually(DEADLINE, || {
            if receiver.read(&self.observer.outbox) {
                verdict = receiver.compare(&is);
            }
            std::future::ready(verdict.clone())
        })
        .await;
    }

    async fn shows(&self, expected: Figures) {
        eventually(DEADLINE, || {
            let figures = self.observer.figures();
            std::future::ready(if figures == expected { Ok(()) } else { Err(format!("{figures:?}")) })
        })
        .await;
    }

    async fn hears<T>(
        &self,
        receiver: &mut Receiver,
        what: &str,
        find: impl Fn(&Observed) -> Option<T>,
    ) -> T {
        eventually(DEADLINE, || {
            receiver.read(&self.observer.outbox);
            let found = receiver.heard.iter().find_map(&find);
            std::future::ready(found.ok_or_else(|| format!("no {what} in {:#?}", receiver.heard)))
        })
        .await
    }
}

/// Folds what it is reported, as the index does.
#[derive(Default)]
struct Receiver {
    seen: Acknowledged,
    objects: BTreeMap<(String, String), (u64, Sha256)>,
    heard: Vec<Observed>,
    /// Kinds that were listed, or told as blind, in the epoch.
    kinds: BTreeSet<String>,
    /// How each batch was, by its first sequence, so that the same is heard again.
    batches: BTreeMap<(u64, u64), Batch>,
}

impl Receiver {
    fn objects(&self) -> Objects {
        self.objects.iter().map(|(key, (_, digest))| (key.clone(), digest.to_string())).collect()
    }

    fn compare(&self, is: &Objects) -> Result<(), String> {
        let told = self.objects();
        let differs =
            |(key, digest): &(&(String, String), &String), other: &Objects| other.get(*key) != Some(*digest);
        let too_much: Vec<_> = told.iter().filter(|one| differs(one, is)).collect();
        let missing: Vec<_> = is.iter().filter(|one| differs(one, &told)).collect();
        if too_much.is_empty() && missing.is_empty() {
            return Ok(());
        }
        Err(format!("told and not so: {too_much:#?}; so and not told: {missing:#?}"))
    }

    /// Takes everything there is, and says that it is durable; whether there was anything.
    fn read(&mut self, outbox: &ObjectOutbox) -> bool {
        let before = self.seen;
        while let Some(batch) = outbox.next(self.seen) {
            self.take(batch);
            outbox.acknowledge(self.seen);
        }
        self.seen != before
    }

    /// Takes a batch, and loses it: nothing is durable.
    fn lose(&mut self, outbox: &ObjectOutbox) {
        if let Some(batch) = outbox.next(self.seen) {
            self.batches.insert((batch.epoch, batch.first), batch);
        }
    }

    fn take(&mut self, batch: Batch) {
        let expected = if self.seen.epoch == batch.epoch { self.seen.sequence + 1 } else { 1 };
        assert_eq!(batch.first, expected, "nothing is left out");
        if let Some(before) = self.batches.remove(&(batch.epoch, batch.first)) {
            let length = before.observations.len();
            assert_eq!(batch.observations[..length], before.observations, "what was sent stays");
        }
        if batch.epoch != self.seen.epoch {
            self.objects.values_mut().for_each(|(stated, _)| *stated = 0);
            self.kinds.clear();
        }
        self.seen = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        for (sequence, observation) in (batch.first..).zip(batch.observations) {
            self.apply(sequence, &observation.what);
            self.heard.push(observation.what);
        }
    }

    fn apply(&mut self, sequence: u64, what: &Observed) {
        match what {
            Observed::ObjectSeen { object } => {
                let key = (object.identity.kind.clone(), object.uid.clone());
                if let ObjectBody::Json(body) = &object.body {
                    assert_eq!(Sha256::of(body.as_bytes()), object.digest);
                }
                self.objects.insert(key, (sequence, object.digest));
            }
            Observed::ObjectKept { identity, uid, digest } => {
                let known = self.objects.get_mut(&(identity.kind.clone(), uid.clone())).expect("it was seen");
                assert_eq!(known.1, *digest, "it is as it was");
                known.0 = sequence;
            }
            Observed::ObjectGone { identity, uid, .. } => {
                self.objects.remove(&(identity.kind.clone(), uid.clone()));
            }
            Observed::KindListed { of, since, .. } => {
                self.kinds.insert(of.kind.clone());
                self.objects.retain(|(kind, _), (stated, _)| *kind != of.kind || *stated >= *since);
            }
            Observed::KindDropped { of, .. } => self.objects.retain(|(kind, _), _| *kind != of.kind),
            Observed::KindBlind { of, .. } => drop(self.kinds.insert(of.kind.clone())),
            Observed::KindsSettled { .. } => {
                self.objects.retain(|(kind, _), (stated, _)| *stated > 0 || self.kinds.contains(kind));
            }
            _ => {}
        }
    }
}

fn pattern(kind: &str) -> ObservePattern {
    let [group, kind, namespace] = ["*", kind, "*"].map(str::to_owned);
    ObservePattern { group, kind, namespace }
}

/// One step of whatever may happen.
async fn something_happens(stage: &mut Stage, dice: &mut Dice, receiver: &mut Receiver, epoch: &mut u64) {
    let (plural, _) = KINDS[usize::try_from(dice.roll(3)).unwrap()];
    let name = format!("o{}", dice.roll(40));
    match dice.roll(30) {
        0 => stage.server.cut(true),
        1 => stage.server.cut(false),
        2 => {
            stage.server.cut(false);
            stage.server.forget();
        }
        3 => stage.server.forget(),
        4 => {
            stage.server.cut_off(true);
            tokio::time::sleep(Duration::from_secs(dice.roll(100))).await;
            stage.server.cut_off(false);
        }
        5 => stage.server.serve("widgets", dice.roll(2) == 0),
        6 => stage.server.forbid("secrets", true),
        7 => stage.server.forbid("secrets", false),
        8 => {
            *epoch += dice.roll(2);
            stage.desire(*epoch, ObserveRules::default());
        }
        9 => {
            stage.shared.holding.lose();
            tokio::time::sleep(Duration::from_secs(dice.roll(30))).await;
            stage.shared.holding.hold(stage.shared.now() + YEARS);
        }
        10 if dice.roll(3) == 0 => tokio::time::sleep(Duration::from_secs(dice.roll(13 * 3_600))).await,
        11 | 12 => receiver.lose(&stage.observer.outbox),
        13 | 14 => drop(receiver.read(&stage.observer.outbox)),
        15..=18 => tokio::time::sleep(Duration::from_millis(dice.roll(3_000))).await,
        19..=21 => stage.server.delete(plural, &name),
        22 => {
            stage.server.delete(plural, &name);
            stage.server.write(plural, &name, "again");
        }
        // Some are so large that the queue is soon full, and some travel by themselves.
        23 => stage.server.write(plural, &name, &"x".repeat(usize::try_from(dice.roll(600 << 10)).unwrap())),
        _ => stage.server.write(plural, &name, &dice.roll(5).to_string()),
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_what_is_told_equals_what_is_there() {
    for seed in 1..=6 {
        let (mut dice, mut receiver, mut epoch) = (Dice::new(seed), Receiver::default(), 1);
        let mut stage = Stage::start();
        stage.desire(epoch, ObserveRules::default());
        for _ in 0..150 {
            something_happens(&mut stage, &mut dice, &mut receiver, &mut epoch).await;
        }
        stage.server.forbid("secrets", false);
        stage.server.serve("widgets", true);
        stage.server.write("widgets", "last", "of all");
        eprintln!("seed {seed}");
        stage.catches_up(&mut receiver).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_unchanged_is_told_once_and_again_within_half_of_what_is_kept() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    for number in 0..120 {
        stage.server.write("configmaps", &format!("o{number}"), "v");
    }
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    let of_secrets = |one: &Observed| {
        matches!(one, Observed::KindListed { of, .. } if of.plural == "secrets").then_some(())
    };
    stage.hears(&mut receiver, "list", of_secrets).await;
    let of_maps = |one: &Observed| {
        matches!(one, Observed::KindListed { of, .. } if of.plural == "configmaps").then_some(())
    };
    stage.hears(&mut receiver, "list", of_maps).await;
    let count =
        |receiver: &Receiver, kind: &str| receiver.heard.iter().filter(|one| one.kind() == kind).count();
    assert_eq!((count(&receiver, "object-seen"), count(&receiver, "kind-listed")), (120, 2));
    let lists = stage.server.lists();
    stage.server.cut(false);
    stage.server.forget();
    // A change that changes nothing.
    stage.server.write("configmaps", "o1", "v");
    stage
        .hears(&mut receiver, "second list", |one| match one {
            Observed::ObjectsGap { of, from, to, .. } if of.plural == "configmaps" => {
                assert_eq!((from.as_str(), to.as_str()), ("120", "122"));
                Some(())
            }
            _ => None,
        })
        .await;
    assert!(stage.server.lists() > lists);
    assert_eq!((count(&receiver, "object-seen"), count(&receiver, "object-kept")), (120, 0));
    tokio::time::sleep(Duration::from_secs(12 * 3_600 + 60)).await;
    receiver.read(&stage.observer.outbox);
    let stated = count(&receiver, "object-kept") + count(&receiver, "object-seen") - 120;
    assert!(stated >= 120, "{stated}");
    stage.catches_up(&mut receiver).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_configuration_leaves_out_is_gone_and_comes_back() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("configmaps", "a", "v");
    stage.server.write("secrets", "b", "v");
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    let secrets = ObserveRules { include: Vec::new(), exclude: vec![pattern("Secret")] };
    stage.desire(1, secrets);
    let dropped = |one: &Observed| match one {
        Observed::KindDropped { of, why } => Some((of.clone(), *why)),
        _ => None,
    };
    let (of, why): (ObservedKind, Gone) = stage.hears(&mut receiver, "end", dropped).await;
    assert_eq!((of.plural.as_str(), why), ("secrets", Gone::NotObserved));
    assert_eq!(receiver.objects().len(), 1);
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    assert_eq!(receiver.objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_seen_is_told_with_the_missing_right() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.forbid("secrets", true);
    stage.desire(1, ObserveRules::default());
    let blind = |one: &Observed| match one {
        Observed::KindBlind { of, missing, .. } => Some((of.plural.clone(), missing.clone())),
        _ => None,
    };
    let (plural, missing) = stage.hears(&mut receiver, "blindness", blind).await;
    assert_eq!(plural, "secrets");
    assert_eq!(missing.map(|right| right.verb).as_deref(), Some("list"));
    stage.shows(Figures { objects: 0, feeds: 2, blind: 1 }).await;
    stage.server.forbid("secrets", false);
    stage.server.write("secrets", "a", "v");
    stage.catches_up(&mut receiver).await;
    stage.shows(Figures { objects: 1, feeds: 2, blind: 0 }).await;
}

#[tokio::test(start_paused = true)]
async fn no_value_of_a_secret_is_told() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("secrets", "a", "hunter2");
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    stage.server.write("secrets", "a", "hunter3");
    stage.server.write("configmaps", "a", "v");
    stage.catches_up(&mut receiver).await;
    assert!(!format!("{:?}", receiver.heard).contains("hunter"), "{:?}", receiver.heard);
}

#[tokio::test(start_paused = true)]
async fn over_the_limit_what_is_left_out_is_marked_and_looked_for_later() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.desire(1, ObserveRules::default());
    stage.server.write("configmaps", "first", "v");
    stage.catches_up(&mut receiver).await;
    // Nobody reads.
    for number in 0..100 {
        stage.server.write("configmaps", &format!("o{number}"), &"x".repeat(300 << 10));
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let bytes = stage.observer.outbox.bytes();
    assert!((8 << 20..17 << 20).contains(&bytes), "{bytes}");
    stage.catches_up(&mut receiver).await;
    let gaps = receiver.heard.iter().filter(|one| one.kind() == "objects-gap").count();
    assert!(gaps > 0, "{gaps}");
    assert!(stage.server.version().parse::<u64>().unwrap() > 100);
}
