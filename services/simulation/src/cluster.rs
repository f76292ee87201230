//! A cluster's API server, as far as an agent needs it: objects with UID and owner, and a Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use events::object::ObjectKey;
use events::observation::{OwnedObject, Write};
use events::{InstanceId, ObjectIdentity, Sha256, SourceId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::executor::Executor;

/// An object in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its identity.
    pub identity: ObjectIdentity,
    /// Given when it was created.
    pub uid: String,
    /// The mark of its owner; none for what is not ours.
    pub owner: Option<SourceId>,
    /// Of what was applied last.
    pub digest: Sha256,
    /// What was applied last.
    pub content: Arc<str>,
}

/// A Lease: whoever holds it renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// Who holds it.
    pub holder: Option<InstanceId>,
    /// Grows with each renewal.
    pub renewals: u64,
}

/// The API server answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiError;

#[derive(Default)]
struct State {
    objects: BTreeMap<ObjectKey, Object>,
    lease: Lease,
    uids: u64,
    newest_epoch: u64,
    /// How far each source has come, as its commit's place in the history.
    reached: BTreeMap<SourceId, u64>,
    /// Names of objects that left their source once.
    left: BTreeSet<String>,
    failing_until: Duration,
    failed: u64,
    violations: Vec<String>,
}

/// A cluster; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

impl Cluster {
    /// A cluster in which somebody else has an object already.
    #[must_use]
    pub fn new(executor: &Executor, foreign: ObjectIdentity) -> Self {
        let mut state = State::default();
        let object = Object {
            identity: foreign,
            uid: "foreign".to_owned(),
            owner: None,
            digest: Sha256::of(b""),
            content: Arc::from(""),
        };
        state.objects.insert(object.identity.key(), object);
        Self { executor: executor.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// All objects.
    #[must_use]
    pub fn objects(&self) -> Vec<Object> {
        self.state.lock().objects.values().cloned().collect()
    }

    /// The first thing that should not have happened.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.state.lock().violations.first().cloned()
    }

    /// Every request fails for a while.
    pub fn fail(&self, time: Duration) {
        self.state.lock().failing_until = self.executor.now() + time;
    }

    /// How many requests failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// A request on its way there and back, which goes on although whoever asked stands still.
    fn request<T: Send + 'static>(
        &self,
        serve: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ApiError>> + Send + 'static {
        let (give, answer) = oneshot::channel();
        let (there, back) = self.executor.roll(|dice| (dice.between(200, 3_000), dice.between(200, 3_000)));
        let cluster = self.clone();
        self.executor.after(Duration::from_micros(there), move || {
            let served = {
                let mut state = cluster.state.lock();
                if state.failing_until > cluster.executor.now() {
                    state.failed += 1;
                    Err(ApiError)
                } else {
                    Ok(serve(&mut state))
                }
            };
            cluster.executor.after(Duration::from_micros(back), move || {
                let _unheard = give.send(served);
            });
        });
        async move { answer.await.unwrap_or(Err(ApiError)) }
    }

    /// These objects may be deleted from now on: they left their source.
    pub fn may_go(&self, names: impl Iterator<Item = String>) {
        self.state.lock().left.extend(names);
    }

    /// Applies an object of a commit as the applier of an epoch; its UID, and what was done.
    pub fn apply(
        &self,
        epoch: u64,
        source: SourceId,
        place: Option<u64>,
        identity: ObjectIdentity,
        digest: Sha256,
        content: Arc<str>,
    ) -> impl Future<Output = Result<(String, Write), ApiError>> + Send + 'static {
        self.request(move |state| {
            state.written(epoch, &identity);
            state.comes_to(source, place);
            let key = identity.key();
            if let Some(object) = state.objects.get_mut(&key) {
                let same = object.digest == digest && object.owner == Some(source);
                object.digest = digest;
                object.content = content;
                object.owner = Some(source);
                return (object.uid.clone(), if same { Write::Unchanged } else { Write::Changed });
            }
            state.uids += 1;
            let uid = format!("uid-{}", state.uids);
            let object = Object { identity, uid: uid.clone(), owner: Some(source), digest, content };
            state.objects.insert(key, object);
            (uid, Write::Created)
        })
    }

    /// Deletes an object, if it is that one.
    pub fn delete(
        &self,
        epoch: u64,
        source: SourceId,
        identity: ObjectIdentity,
        uid: String,
    ) -> impl Future<Output = Result<(), ApiError>> + Send + 'static {
        self.request(move |state| {
            state.written(epoch, &identity);
            let key = identity.key();
            let found = state.objects.get(&key).map(|object| (object.uid == uid, object.owner));
            match found {
                Some((true, Some(owner))) if owner == source => {
                    state.objects.remove(&key);
                    if !state.left.contains(&identity.name) {
                        state.violations.push(format!("{identity} is deleted and never left its source"));
                    }
                }
                Some((true, None)) => {
                    state.violations.push(format!("{identity} is on a prune list, and none of ours"));
                }
                _ => {}
            }
        })
    }

    /// What these agents own.
    pub fn owned(&self) -> impl Future<Output = Result<Vec<OwnedObject>, ApiError>> + Send + 'static {
        self.request(|state| {
            let owned = state.objects.values().filter_map(|object| {
                Some(OwnedObject {
                    source: object.owner?,
                    identity: object.identity.clone(),
                    uid: object.uid.clone(),
                    digest: Some(object.digest),
                    adopted: false,
                })
            });
            owned.collect()
        })
    }

    /// The Lease as it is.
    pub fn lease(&self) -> impl Future<Output = Result<Lease, ApiError>> + Send + 'static {
        self.request(|state| state.lease)
    }

    /// Takes or renews the Lease, if it is still as it was seen.
    pub fn hold(
        &self,
        instance: InstanceId,
        seen: Lease,
    ) -> impl Future<Output = Result<bool, ApiError>> + Send + 'static {
        self.request(move |state| {
            let same = state.lease == seen;
            if same {
                state.lease = Lease { holder: Some(instance), renewals: seen.renewals + 1 };
            }
            same
        })
    }
}

impl State {
    /// Nothing older is applied after something newer.
    fn comes_to(&mut self, source: SourceId, place: Option<u64>) {
        let Some(place) = place else { return };
        let reached = self.reached.entry(source).or_default();
        if place < *reached {
            self.violations.push(format!("source {source} goes back to commit {place}, from {reached}"));
        }
        *reached = (*reached).max(place);
    }

    fn written(&mut self, epoch: u64, identity: &ObjectIdentity) {
        if epoch < self.newest_epoch {
            let newest = self.newest_epoch;
            self.violations.push(format!("{identity} is written in epoch {epoch}, after one of {newest}"));
        }
        self.newest_epoch = self.newest_epoch.max(epoch);
    }
}
