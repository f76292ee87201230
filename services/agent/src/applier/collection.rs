//! One collection of the API server: listed page by page, and followed event by event.

use std::sync::Arc;

use events::configuration::ServiceAccount;
use serde_json::Value;

use super::Shared;
use crate::kubernetes::{Accept, ApiError, Call, Page, Resource, path};
pub(super) use crate::kubernetes::{WatchEvent as Event, WatchEvents as Events};

/// Objects of one page.
const PAGE: usize = 200;

/// What is listed and followed, and as whom.
pub(super) struct Collection {
    pub(super) shared: Arc<Shared>,
    pub(super) resource: Arc<Resource>,
    /// Empty: all namespaces.
    pub(super) namespace: String,
    pub(super) account: Option<ServiceAccount>,
    /// A label selector, escaped; empty: all objects.
    pub(super) selector: String,
    /// Whole objects, not only their metadata.
    pub(super) whole: bool,
    /// The connections of watches on which it is followed.
    pub(super) lane: usize,
}

impl Collection {
    fn path(&self) -> Result<String, ApiError> {
        path::collection(&self.resource, &self.namespace)
            .ok_or_else(|| ApiError::Impossible { detail: "no path".to_owned() })
    }

    fn call(&self, query: String, accept: Accept) -> Call {
        let query =
            if self.selector.is_empty() { query } else { format!("{query}&labelSelector={}", self.selector) };
        let accept = if self.whole { Accept::Whole } else { accept };
        Call::get(query).accept(accept).as_account(self.account.as_ref())
    }

    /// Gives every object to `each`; the version from which to follow.
    pub(super) async fn list(&self, mut each: impl FnMut(Value) + Send) -> Result<String, ApiError> {
        let path = self.path()?;
        let mut next = String::new();
        loop {
            let query = format!("{path}?limit={PAGE}&continue={}", path::escape(&next));
            let answer = self.shared.kube.read(self.call(query, Accept::MetadataList)).await?;
            let page = Page::read(&answer.body)?;
            for item in page.items {
                each(
                    serde_json::from_str(item.get())
                        .map_err(|error| ApiError::Unreadable { detail: error.to_string() })?,
                );
            }
            if page.next.is_empty() {
                return Ok(page.resource_version);
            }
            next = page.next;
        }
    }

    /// Begins to follow behind a version.
    pub(super) async fn follow(&self, version: &str) -> Result<Events, ApiError> {
        // Half an hour to an hour, so that many watches do not end together.
        let timeout = 1_800 + self.shared.world.random.below(1_800);
        let query = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={}",
            self.path()?,
            path::escape(version)
        );
        let answer = self.shared.kube.watch(&self.call(query, Accept::Metadata), self.lane).await?;
        Ok(Events::of(answer.into_body()))
    }
}
