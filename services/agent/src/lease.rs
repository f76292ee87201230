//! The Lease: which instance of an agent may apply. Held for twelve seconds at a time and renewed every five, so that another
//! instance takes over within fifteen seconds of a death, and at once after an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chassis::Shutdown;
use events::{AgentId, InstanceId, Timestamp};
use http::Method;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use world::{Clock, World};

use crate::kubernetes::{ApiError, Call, Kube, path};
use crate::reach::ApiServerReach;

/// Seconds for which a renewal counts.
const DURATION: Duration = Duration::from_secs(12);
/// Time between renewals.
const RENEW: Duration = Duration::from_secs(5);
/// Time between attempts that fail.
const RETRY: Duration = Duration::from_secs(1);
/// No write begins later than this before the Lease could expire.
const MARGIN: Duration = Duration::from_secs(2);

/// Annotation of the Lease with what one holder leaves to the next one.
const NOTE: &str = "kasbah.dev/fights";

/// What one holder of the Lease leaves to the next one: a short text that is written with each renewal. Shared.
#[derive(Debug, Default)]
pub struct Note(Mutex<String>);

impl Note {
    /// The text as it is now.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }

    /// Another text from the next renewal on.
    pub fn set(&self, text: String) {
        *self.0.lock() = text;
    }
}

/// Whether this instance may write. Cheap to clone.
#[derive(Clone)]
pub struct Holding {
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Milliseconds of the monotonic clock, 0 when not held.
    until: AtomicU64,
    named: AtomicBool,
    held: watch::Sender<bool>,
}

impl Holding {
    /// Not held.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            until: AtomicU64::new(0),
            named: AtomicBool::new(false),
            held: watch::Sender::new(false),
        };
        Self { clock, shared: Arc::new(shared) }
    }

    /// The Lease is held for long enough, and the desired state names this instance.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.shared.named.load(Ordering::Acquire) && self.is_held()
    }

    /// The Lease is held for long enough.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let now = self.clock.monotonic() + MARGIN;
        u128::from(self.shared.until.load(Ordering::Acquire)) > now.as_millis()
    }

    /// The desired state names this instance, or does not.
    pub fn set_named(&self, named: bool) {
        self.shared.named.store(named, Ordering::Release);
    }

    /// Wakes when the Lease is won or lost.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.shared.held.subscribe()
    }

    pub(crate) fn hold(&self, until: Duration) {
        self.shared.until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        self.shared.held.send_if_modified(|held| !std::mem::replace(held, true));
    }

    pub(crate) fn lose(&self) {
        self.shared.until.store(0, Ordering::Release);
        self.shared.held.send_if_modified(|held| std::mem::replace(held, false));
    }
}

/// Keeps asking for the Lease, and renewing it.
pub struct LeaseKeeper {
    kube: Kube,
    world: World,
    holding: Holding,
    namespace: String,
    name: String,
    note: Arc<Note>,
    /// The machine's or the pod's name, for people, and the instance.
    holder: String,
    version: Option<String>,
    /// Another holder's record and when it was first seen so.
    seen: Option<(String, Duration)>,
    until: Duration,
    /// Hears whether the API server answers.
    reach: Option<Arc<ApiServerReach>>,
}

/// The name of an agent's Lease; the last part of an id is random, the first is time.
#[must_use]
pub fn lease_name(agent: AgentId) -> String {
    let id = agent.0.simple().to_string();
    format!("kasbah-agent-{}", id.get(20..).unwrap_or(&id))
}

enum Step {
    Held,
    Other { expires_in: Duration },
}

impl LeaseKeeper {
    /// For one agent in one namespace.
    #[must_use]
    pub fn new(
        kube: Kube,
        world: World,
        holding: Holding,
        namespace: String,
        agent: AgentId,
        instance: InstanceId,
        note: Arc<Note>,
    ) -> Self {
        Self {
            note,
            kube,
            world,
            holding,
            namespace,
            name: lease_name(agent),
            holder: format!("{}_{instance}", rustix::system::uname().nodename().to_string_lossy()),
            version: None,
            seen: None,
            until: Duration::ZERO,
            reach: None,
        }
    }

    /// Tells whether the API server answers, and asks it at once where that is doubted.
    #[must_use]
    pub fn telling(mut self, reach: Arc<ApiServerReach>) -> Self {
        self.reach = Some(reach);
        self
    }

    async fn doubted(&self) {
        match &self.reach {
            Some(reach) => reach.doubted().await,
            None => std::future::pending().await,
        }
    }

    /// Until shutdown is asked for; then the Lease is given up, so that another instance need not wait.
    pub async fn keep(mut self, shutdown: Shutdown) {
        let mut told = false;
        loop {
            let clock = Arc::clone(&self.world.clock);
            let step = tokio::select! {
                biased;
                step = self.step() => step,
                () = clock.sleep(RENEW) => Err(ApiError::Unreachable { detail: format!("no answer within {RENEW:?}") }),
            };
            match (&self.reach, &step) {
                (Some(reach), Ok(_)) => reach.found(),
                (Some(reach), Err(error)) => reach.lost(error),
                (None, _) => {}
            }
            let wait = match step {
                Ok(Step::Held) => Wait::For(RENEW),
                Ok(Step::Other { expires_in }) => {
                    self.holding.lose();
                    Wait::Change(expires_in)
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(lease = %self.name, namespace = %self.namespace, error = %error, "cannot acquire or renew the Lease");
                    }
                    self.version = None;
                    Wait::For(RETRY)
                }
            };
            if matches!(wait, Wait::For(RENEW)) {
                told = false;
            }
            if !self.holding.is_held() {
                self.holding.lose();
            }
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                () = self.wait(wait) => {}
            }
        }
        self.release().await;
    }

    async fn wait(&self, wait: Wait) {
        match wait {
            Wait::For(RENEW) => {
                tokio::select! {
                    biased;
                    () = self.world.clock.sleep(RENEW) => {}
                    () = self.doubted() => {}
                }
            }
            Wait::For(time) => self.world.clock.sleep(time).await,
            Wait::Change(limit) => {
                tokio::select! {
                    biased;
                    () = self.world.clock.sleep(limit) => {}
                    () = self.changed() => {}
                }
            }
        }
    }

    /// Returns when the Lease may have changed.
    async fn changed(&self) {
        let query = format!("?watch=1&fieldSelector=metadata.name%3D{}&timeoutSeconds=60", self.name);
        let version =
            self.version.as_ref().map(|version| format!("&resourceVersion={version}")).unwrap_or_default();
        let collection = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases{query}{version}",
            path::escape(&self.namespace)
        );
        let event = match self.kube.watch(&Call::get(collection), 0).await {
            Ok(response) => response.into_body().frame().await,
            Err(_) => None,
        };
        let data = event.and_then(|frame| frame.ok()?.into_data().ok());
        if data.is_none_or(|data| is_error(&data)) {
            // Such as a version that is too old: whoever holds the Lease renews it soon.
            self.world.clock.sleep(RETRY).await;
        }
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", path::escape(&self.namespace))
    }

    async fn step(&mut self) -> Result<Step, ApiError> {
        if self.holding.is_held() && self.version.is_some() {
            return self.put(self.version.clone()).await;
        }
        let found = match self.kube.for_lease(Call::get(format!("{}/{}", self.path(), self.name))).await {
            Ok(answer) => answer.json::<Value>()?,
            Err(error) if error.code() == 404 => return self.put(None).await,
            Err(error) => return Err(error),
        };
        let version = found.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        let spec = found.get("spec").cloned().unwrap_or(Value::Null);
        let holder = spec.get("holderIdentity").and_then(Value::as_str).unwrap_or_default();
        let note =
            found.pointer("/metadata/annotations").and_then(|annotations| annotations.get(NOTE)?.as_str());
        if holder == self.holder {
            return self.put(version).await;
        }
        if holder.is_empty() {
            self.note.set(note.unwrap_or_default().to_owned());
            return self.put(version).await;
        }
        let now = self.world.clock.monotonic();
        let record = spec.to_string();
        let since = match &self.seen {
            Some((seen, since)) if *seen == record => *since,
            _ => {
                self.seen = Some((record, now));
                now
            }
        };
        let duration =
            spec.get("leaseDurationSeconds").and_then(Value::as_u64).map_or(DURATION, Duration::from_secs);
        let expires = since + duration;
        if now >= expires {
            self.note.set(note.unwrap_or_default().to_owned());
            return self.put(version).await;
        }
        self.version = version;
        Ok(Step::Other { expires_in: expires - now })
    }

    /// Creates (`None`) or replaces that version.
    async fn put(&mut self, version: Option<String>) -> Result<Step, ApiError> {
        let begun = self.world.clock.monotonic();
        let now = micro_time(self.world.clock.now_millis());
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": self.annotations()},
            "spec": {"holderIdentity": self.holder, "leaseDurationSeconds": DURATION.as_secs(), "renewTime": now},
        });
        let (method, path) = match &version {
            Some(version) => {
                if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("resourceVersion".to_owned(), Value::String(version.clone()));
                }
                (Method::PUT, format!("{}/{}", self.path(), self.name))
            }
            None => (Method::POST, self.path()),
        };
        let answer = match self.send(method, path, &lease).await {
            Ok(answer) => answer,
            // Somebody was faster: look again.
            Err(error) if error.code() == 409 => {
                self.version = None;
                self.holding.lose();
                return Ok(Step::Other { expires_in: Duration::from_millis(200) });
            }
            Err(error) => return Err(error),
        };
        self.version = answer.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        self.seen = None;
        self.until = begun + DURATION;
        self.holding.hold(self.until);
        Ok(Step::Held)
    }

    fn annotations(&self) -> Value {
        let text = self.note.text();
        if text.is_empty() { json!({}) } else { json!({NOTE: text}) }
    }

    async fn send(&self, method: Method, path: String, lease: &Value) -> Result<Value, ApiError> {
        let call = Call::write(method, path, "application/json", Bytes::from(lease.to_string()));
        self.kube.for_lease(call).await?.json()
    }

    async fn release(mut self) {
        if !self.holding.is_held() {
            return;
        }
        self.holding.lose();
        let Some(version) = self.version.take() else { return };
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace, "resourceVersion": version, "annotations": self.annotations()},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        });
        let path = format!("{}/{}", self.path(), self.name);
        if let Err(error) = self.send(Method::PUT, path, &lease).await {
            tracing::warn!(lease = %self.name, error = %error, "cannot release the Lease; another instance must wait until it expires");
        }
    }
}

/// Whether an event of a watch says that there will be no more.
fn is_error(event: &[u8]) -> bool {
    let event = serde_json::from_slice::<Value>(event).unwrap_or_default();
    event.get("type").and_then(Value::as_str) == Some("ERROR")
}

enum Wait {
    For(Duration),
    Change(Duration),
}

/// The form of time that a Lease has: six digits of a second.
fn micro_time(millis: i64) -> String {
    let text = Timestamp(millis).to_string();
    text.strip_suffix('Z').map_or(text.clone(), |text| format!("{text}000Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits() {
        assert_eq!(micro_time(1_700_000_000_123), "2023-11-14T22:13:20.123000Z");
    }

    #[test]
    fn names_come_from_the_random_part() {
        let agent = AgentId("0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55".parse().expect("an id"));
        assert_eq!(lease_name(agent), "kasbah-agent-6b2f4c8d1e55");
    }
}
