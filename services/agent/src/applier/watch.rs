//! One watch: list, follow, and list again where the API server has forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use events::object::ObjectKey;
use events::observation::Observed;
use events::{ObjectIdentity, SourceId, Timestamp};
use objects::ownership::SOURCE_LABEL;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Shared;
use super::context::Context;
use super::health::kind_has_health;
use super::lines::Lines;
use super::prune::listed_identity;
use super::watches::{Forbidden, WatchKey};
use crate::kubernetes::{Accept, ApiError, ApiStatus, Call, path};
use crate::model::backoff::Backoff;
use crate::model::finished::finished;
use crate::model::manifest::version_of;

const PAGE: usize = 200;
/// A watch that lasted for longer did not fail.
const LASTING: Duration = Duration::from_secs(30);
/// A watch without rights is tried again after this long.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(300);

pub(super) struct Watch {
    shared: Arc<Shared>,
    key: WatchKey,
    sources: BTreeSet<SourceId>,
    selector: String,
    lane: usize,
    blocked: bool,
    /// It did not work since its last failure.
    failed: AtomicBool,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    /// An empty list may say null.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Why following ended.
enum End {
    /// Go on from the newest version.
    Resume,
    /// List again.
    Relist,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, key: WatchKey, sources: BTreeSet<SourceId>, lane: usize) -> Self {
        let ids: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let selector = path::escape(&format!("{SOURCE_LABEL} in ({})", ids.join(",")));
        Self { shared, key, sources, selector, lane, blocked: false, failed: AtomicBool::new(false) }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        loop {
            let wait = match self.list().await {
                Ok(version) => {
                    self.blocked = false;
                    match self.follow_from(version, &mut backoff).await {
                        Ok(()) => Duration::ZERO,
                        Err(error) if error.code() == 410 => Duration::ZERO,
                        // What happens meanwhile has to be known before anything is followed again, so that it is listed.
                        Err(error) => self.refused(&error, &mut backoff).await,
                    }
                }
                Err(error) => self.refused(&error, &mut backoff).await,
            };
            self.shared.world.clock.sleep(wait).await;
        }
    }

    /// Follows until a list is needed again.
    async fn follow_from(&self, mut version: String, backoff: &mut Backoff) -> Result<(), ApiError> {
        loop {
            let began = self.shared.now();
            let ended = self.follow(&mut version).await;
            // A watch that breaks again and again costs a list each time.
            if ended.is_ok() || self.shared.now().saturating_sub(began) > LASTING {
                backoff.reset();
            }
            if matches!(ended?, End::Relist) {
                return Ok(());
            }
        }
    }

    async fn refused(&mut self, error: &ApiError, backoff: &mut Backoff) -> Duration {
        let resource = &self.key.resource;
        self.shared.reach.doubts(error);
        // Once is nothing: an API server that restarts ends all watches.
        if self.failed.swap(true, Ordering::Relaxed) || matches!(error.code(), 403 | 404) {
            self.is_broken(error);
        }
        if error.code() == 404 {
            // Its kind, or this version of it, is not served any more.
            if let Err(error) = self.shared.look_up_kinds().await {
                tracing::debug!(error = %error, "cannot discover kinds");
            }
        }
        if error.code() != 403 {
            tracing::debug!(resource = %resource.plural, error = %error, "watch is retried");
            return backoff.next(self.shared.world.random.as_ref());
        }
        if self.key.namespace.is_empty() && resource.namespaced {
            let forbidden = Forbidden { account: self.key.account.clone(), resource: Arc::clone(resource) };
            self.shared.forbidden.lock().insert(forbidden);
            self.shared.relay.notify_one();
        } else if !std::mem::replace(&mut self.blocked, true) {
            for source in &self.sources {
                let reason =
                    format!("drift and health are unknown, the rights list and watch are needed: {error}");
                self.shared.outbox.report(Observed::SourceBlocked { source: *source, reason });
            }
        }
        FORBIDDEN_WAIT
    }

    fn is_broken(&self, error: &ApiError) {
        let now = Timestamp(self.shared.world.clock.now_millis());
        if self.shared.broken.lock().broke(&self.key, &self.sources, error.to_string(), now) {
            self.shared.relay.notify_one();
        }
    }

    fn accept(&self) -> Accept {
        if kind_has_health(&self.key.resource.group, &self.key.resource.kind) {
            Accept::Whole
        } else {
            Accept::MetadataList
        }
    }

    fn collection(&self) -> Result<String, ApiError> {
        path::collection(&self.key.resource, &self.key.namespace)
            .ok_or_else(|| ApiError::Impossible { detail: "no path".to_owned() })
    }

    /// Looks at everything; gives the version from which to follow.
    async fn list(&self) -> Result<String, ApiError> {
        let collection = self.collection()?;
        let mut seen = BTreeSet::new();
        let mut next = String::new();
        loop {
            let query = format!(
                "{collection}?limit={PAGE}&labelSelector={}&continue={}",
                self.selector,
                path::escape(&next)
            );
            let call = Call::get(query).accept(self.accept()).as_account(self.key.account.as_ref());
            let answer = self.shared.kube.read(call).await?;
            let page: Page<'_> = serde_json::from_slice(&answer.body).map_err(|error| {
                ApiError::Unreadable { detail: format!("list of {}: {error}", self.key.resource.plural) }
            })?;
            for item in page.items.into_iter().flatten() {
                let mut live: Value = serde_json::from_str(item.get())
                    .map_err(|error| ApiError::Unreadable { detail: error.to_string() })?;
                let identity = self.complete(&mut live);
                seen.insert(identity.key());
                self.saw(&identity, &live);
            }
            if page.metadata.next.is_empty() {
                let version = page.metadata.resource_version;
                self.find_missing(&seen, version.parse().unwrap_or(0)).await;
                return Ok(version);
            }
            next = page.metadata.next;
        }
    }

    /// Items of lists do not state their kind, and metadata states another.
    fn complete(&self, live: &mut Value) -> ObjectIdentity {
        let identity = listed_identity(&self.key.resource, live);
        if let Some(live) = live.as_object_mut() {
            live.insert("apiVersion".to_owned(), Value::String(identity.api_version()));
            live.insert("kind".to_owned(), Value::String(identity.kind.clone()));
        }
        identity
    }

    fn contexts(&self) -> Vec<Context> {
        let Some(view) = self.shared.desired.view() else { return Vec::new() };
        let sources = self.sources.iter().filter_map(|source| view.source(*source));
        sources.map(|source| Context::new(&self.shared, &view, source)).collect()
    }

    fn saw(&self, identity: &ObjectIdentity, live: &Value) {
        let label = live.pointer("/metadata/labels").and_then(|labels| labels.get(SOURCE_LABEL)?.as_str());
        for context in self.contexts() {
            if label == Some(context.id().to_string().as_str()) {
                context.saw(identity, live);
            }
        }
    }

    /// What is known and was not in the list is gone, if it was known before the list was made.
    async fn find_missing(&self, seen: &BTreeSet<ObjectKey>, version: u64) {
        for context in self.contexts() {
            let resource = &self.key.resource;
            let missing: Vec<ObjectIdentity> = self.shared.with_book(context.id(), |book| {
                book.iter()
                    .filter(|(key, known)| {
                        key.kind == resource.kind
                            && key.group == resource.group
                            && (self.key.namespace.is_empty() || key.namespace == self.key.namespace)
                            && known.identity.version == resource.version
                            && !seen.contains(*key)
                    })
                    .map(|(_, known)| known.identity.clone())
                    .collect()
            });
            for identity in missing {
                context.missed(&identity, version).await;
            }
        }
    }

    async fn follow(&self, version: &mut String) -> Result<End, ApiError> {
        // Half an hour to an hour, so that many watches do not end together.
        let timeout = 1_800 + self.shared.world.random.below(1_800);
        let query = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={}&labelSelector={}",
            self.collection()?,
            path::escape(version),
            self.selector
        );
        let accept = match self.accept() {
            Accept::Whole => Accept::Whole,
            _ => Accept::Metadata,
        };
        let call = Call::get(query).accept(accept).as_account(self.key.account.as_ref());
        let mut lines = Lines::of(self.shared.kube.watch(&call, self.lane).await?.into_body());
        let _followed = self.shared.followed.begin(&self.key);
        self.failed.store(false, Ordering::Relaxed);
        if self.shared.broken.lock().works(&self.key) {
            self.shared.relay.notify_one();
        }
        // A sync may wait for that.
        self.sources.iter().for_each(|source| self.shared.wake(*source));
        while let Some(line) = lines.next().await? {
            if let Some(end) = self.event(&line, version).await? {
                return Ok(end);
            }
        }
        Ok(End::Resume)
    }

    async fn event(&self, line: &[u8], version: &mut String) -> Result<Option<End>, ApiError> {
        let unreadable =
            |error: serde_json::Error| ApiError::Unreadable { detail: format!("event of a watch: {error}") };
        let event: Event<'_> = serde_json::from_slice(line).map_err(unreadable)?;
        if event.r#type == "ERROR" {
            let status: ApiStatus = serde_json::from_str(event.object.get()).map_err(unreadable)?;
            return if status.code == 410 {
                Ok(Some(End::Relist))
            } else {
                Err(ApiError::Refused(Box::new(status)))
            };
        }
        let mut live: Value = serde_json::from_str(event.object.get()).map_err(unreadable)?;
        if let Some(newest) = live.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            newest.clone_into(version);
        }
        match event.r#type {
            "ADDED" | "MODIFIED" => {
                let identity = self.complete(&mut live);
                self.saw(&identity, &live);
            }
            "DELETED" => {
                let identity = self.complete(&mut live);
                if finished(&live).is_some() {
                    // The last that is seen of it may be the first that tells of its end.
                    self.saw(&identity, &live);
                }
                for context in self.contexts() {
                    context.missed(&identity, version_of(&live)).await;
                }
            }
            _ => {}
        }
        Ok(None)
    }
}
