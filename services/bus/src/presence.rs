//! Which replicas of a service live, and whose work a thing is.
//!
//! Each replica says every second that it is there, under an id that it made when it started. Work is spread by rendezvous hashing:
//! a thing belongs to the replica whose hash with it is highest, so that a replica that comes or goes moves only its own
//! things. Two that think a thing theirs do no harm: what they decide is checked by the log. While the bus is away nobody is
//! given up, because nothing can be heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use events::id::derived_uuid;
use events::requests::presence::ListReplicas;
use events::subject::Subject;
use events::{Actor, OrganizationId, Refusal, RefusalKind};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;
use world::World;
use world::spawn::TaskHandle;

use crate::context::{context_for_service, within};
use crate::contract::{Bus, BusError, Received, Serving, Subscription};
use crate::typed::{answer_under, ask_under};

/// Between two words that a replica is there.
const BEAT: Duration = Duration::from_secs(1);
/// Who was not heard for so long is gone.
const GONE_AFTER: Duration = Duration::from_millis(3_500);
/// How long who is there already may take to say who else is.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// Under what the replicas of a service tell each other that they live.
pub(crate) fn name(service: &str) -> String {
    format!("presence.{service}")
}

/// A replica's word.
#[derive(Debug, Serialize, Deserialize)]
struct Word {
    replica: Uuid,
    leaves: bool,
}

/// Replicas that live, as one of them sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    me: Uuid,
    replicas: BTreeSet<Uuid>,
}

impl Live {
    /// The replica that a thing belongs to.
    #[must_use]
    pub fn owner(&self, thing: &[u8]) -> Uuid {
        let weight = |replica: &Uuid| derived_uuid(&[thing, replica.as_bytes()]);
        self.replicas.iter().copied().max_by_key(weight).unwrap_or(self.me)
    }

    /// Whether a thing belongs to this replica.
    #[must_use]
    pub fn owns(&self, thing: &[u8]) -> bool {
        self.owner(thing) == self.me
    }

    /// Those that live.
    #[must_use]
    pub const fn replicas(&self) -> &BTreeSet<Uuid> {
        &self.replicas
    }

    /// This replica's id.
    #[must_use]
    pub const fn me(&self) -> Uuid {
        self.me
    }
}

/// Membership among the replicas of a service. Dropping it says goodbye.
pub struct Presence {
    bus: Arc<dyn Bus>,
    world: World,
    words: Subject,
    live: watch::Receiver<Live>,
    task: TaskHandle,
    _serving: Serving,
}

/// What a replica knows of the others.
struct Known {
    me: Uuid,
    /// When each other one was last heard, by the monotonic clock.
    heard: Mutex<BTreeMap<Uuid, Duration>>,
    /// Its own last word came back: the others' would have come as well.
    hears_itself: AtomicBool,
    live: watch::Sender<Live>,
}

impl Known {
    fn tell(&self) {
        let mut replicas: BTreeSet<Uuid> = self.heard.lock().keys().copied().collect();
        replicas.insert(self.me);
        self.live.send_if_modified(|live| {
            let changed = live.replicas != replicas;
            live.replicas = replicas;
            changed
        });
    }

    /// Takes a word; says whether it is of somebody new.
    fn hear(&self, word: &Word, now: Duration) -> bool {
        if word.replica == self.me {
            self.hears_itself.store(true, Ordering::Relaxed);
            return false;
        }
        let new = match word.leaves {
            true => {
                self.heard.lock().remove(&word.replica);
                false
            }
            false => self.heard.lock().insert(word.replica, now).is_none(),
        };
        self.tell();
        new
    }

    fn forget(&self, now: Duration) {
        self.heard.lock().retain(|_, heard| now.saturating_sub(*heard) < GONE_AFTER);
        self.tell();
    }

    /// Nobody could be heard: all are as if heard now.
    fn excuse(&self, now: Duration) {
        for heard in self.heard.lock().values_mut() {
            *heard = now;
        }
    }
}

impl Presence {
    /// Joins the replicas of a service; knows at once who is there.
    ///
    /// # Errors
    /// When the bus is away.
    pub async fn join(bus: &Arc<dyn Bus>, world: &World, service: &str) -> Result<Self, BusError> {
        Self::join_as(bus, world, service, world.new_uuid()).await
    }

    /// The same under an id by which others know this replica.
    ///
    /// # Errors
    /// When the bus is away.
    pub async fn join_as(
        bus: &Arc<dyn Bus>,
        world: &World,
        service: &str,
        me: Uuid,
    ) -> Result<Self, BusError> {
        let name = name(service);
        let (words, question) = (Subject::notice(&name), Subject::request(&name));
        let subscription = bus.subscribe(&words).await?;
        let there = ask(&**bus, world, service, &question).await;
        let now = world.clock.monotonic();
        let heard =
            there.into_iter().filter(|replica| *replica != me).map(|replica| (replica, now)).collect();
        let (live, seen) = watch::channel(Live { me, replicas: BTreeSet::from([me]) });
        let known =
            Arc::new(Known { me, heard: Mutex::new(heard), hears_itself: AtomicBool::new(false), live });
        known.tell();
        let answering = Arc::clone(&known);
        let serving = answer_under::<ListReplicas, _>(&**bus, &question, move |context, _| {
            let replicas = answering.live.borrow().replicas.iter().copied().collect();
            async move {
                match context.actor {
                    Actor::Service(_) => Ok(replicas),
                    _ => {
                        Err(Refusal::new(RefusalKind::Denied, "only services may request the live replicas"))
                    }
                }
            }
            .boxed()
        })
        .await?;
        let beating = beat(Arc::clone(bus), world.clone(), words.clone(), known, subscription);
        let task = world.spawner.spawn("presence", Box::pin(beating));
        let (bus, world) = (Arc::clone(bus), world.clone());
        Ok(Self { bus, world, words, live: seen, task, _serving: serving })
    }

    /// Who lives; changes with each that comes or goes.
    #[must_use]
    pub fn live(&self) -> watch::Receiver<Live> {
        self.live.clone()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
        let (bus, words) = (Arc::clone(&self.bus), self.words.clone());
        let goodbye = Word { replica: self.live.borrow().me, leaves: true };
        let leaving = async move {
            // Whoever does not hear it gives this replica up soon.
            let _unheard = say(&*bus, &words, &goodbye).await;
        };
        self.world.spawner.spawn("goodbye", Box::pin(leaving));
    }
}

async fn say(bus: &dyn Bus, words: &Subject, word: &Word) -> Result<(), BusError> {
    bus.publish(words, Bytes::from(events::encode(word).unwrap_or_default())).await
}

/// Who is there already; nobody where nobody answers.
async fn ask(bus: &dyn Bus, world: &World, service: &str, question: &Subject) -> Vec<Uuid> {
    let context = within(context_for_service(world, service, OrganizationId::SYSTEM), ASKED_WITHIN);
    ask_under(bus, question, &context, &ListReplicas {}).await.unwrap_or_else(|refusal| {
        // Mostly there is nobody.
        tracing::debug!(service, %refusal, "the replicas of a service are unknown");
        Vec::new()
    })
}

/// Says that this replica is there, and hears who else is, for ever.
async fn beat(
    bus: Arc<dyn Bus>,
    world: World,
    words: Subject,
    known: Arc<Known>,
    mut subscription: Subscription,
) {
    let here = Word { replica: known.me, leaves: false };
    loop {
        let now = world.clock.monotonic();
        if known.hears_itself.swap(false, Ordering::Relaxed) {
            known.forget(now);
        } else {
            known.excuse(now);
        }
        // What is not said does not come back.
        let _away = say(&*bus, &words, &here).await;
        let due = world.clock.sleep(BEAT);
        tokio::pin!(due);
        loop {
            let heard = tokio::select! {
                biased;
                heard = subscription.receiver.recv() => heard,
                () = &mut due => break,
            };
            match heard {
                Some(Received::Message(bytes)) => {
                    let word = events::decode::<Word>(&bytes).ok();
                    if word.is_some_and(|word| known.hear(&word, world.clock.monotonic())) {
                        // Who is new is to know of this one before its next word.
                        break;
                    }
                }
                Some(Received::Lost(_)) => known.excuse(world.clock.monotonic()),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::eventually;

    use super::*;
    use crate::{LocalBus, NatsBus, NatsOptions};

    const LIMIT: Duration = Duration::from_secs(60);

    async fn becomes(presence: &Presence, count: usize) {
        let live = presence.live();
        eventually(LIMIT, || async {
            let now = live.borrow().replicas.len();
            if now == count { Ok(()) } else { Err(format!("{now} live, not {count}")) }
        })
        .await;
    }

    fn things() -> impl Iterator<Item = [u8; 8]> {
        (0..1000_u64).map(u64::to_le_bytes)
    }

    #[tokio::test]
    async fn one_replica_owns_everything_from_the_start() {
        let world = World::real();
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new(world.clone()));
        let presence = Presence::join(&bus, &world, "alone").await.unwrap();
        let live = presence.live().borrow().clone();
        assert!(things().all(|thing| live.owns(&thing)));
    }

    #[tokio::test]
    async fn each_thing_belongs_to_one_and_only_those_of_who_went_move() {
        let world = World::real();
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new(world.clone()));
        let one = Presence::join(&bus, &world, "some").await.unwrap();
        let two = Presence::join(&bus, &world, "some").await.unwrap();
        assert_eq!(two.live().borrow().replicas.len(), 2, "a newcomer knows at once who is there");
        let three = Presence::join(&bus, &world, "some").await.unwrap();
        for presence in [&one, &two, &three] {
            becomes(presence, 3).await;
        }
        let live = [&one, &two, &three].map(|presence| presence.live().borrow().clone());
        let owned = live.clone().map(|live| things().filter(|thing| live.owns(thing)).count());
        assert_eq!(owned.iter().sum::<usize>(), 1000);
        assert!(owned.iter().all(|count| (230..440).contains(count)), "{owned:?}");
        drop(three);
        becomes(&one, 2).await;
        let after = one.live().borrow().clone();
        let moved = things().filter(|thing| live[0].owner(thing) != after.owner(thing)).count();
        assert_eq!(moved, owned[2]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_cut_off_is_given_up_and_one_that_hears_nothing_gives_up_nobody() {
        let world = World::real();
        let server = testkit::NatsServer::start().await.unwrap();
        let proxy = testkit::Proxy::start(server.address()).unwrap();
        let connect = async |url: String| {
            let options = NatsOptions {
                servers: vec![url],
                name: "test".to_owned(),
                process: "test".to_owned(),
                ca_file: None,
            };
            let bus: Arc<dyn Bus> = Arc::new(NatsBus::connect(world.clone(), &options).await.unwrap());
            bus
        };
        let here = connect(server.url()).await;
        let there = connect(format!("nats://{}", proxy.address())).await;
        let one = Presence::join(&here, &world, "far").await.unwrap();
        let two = Presence::join(&there, &world, "far").await.unwrap();
        becomes(&one, 2).await;
        becomes(&two, 2).await;
        proxy.shut(true);
        proxy.cut();
        becomes(&one, 1).await;
        assert_eq!(two.live().borrow().replicas.len(), 2);
        proxy.shut(false);
        becomes(&one, 2).await;
    }
}
