//! What a feed tells of single objects.

use std::time::Duration;

use events::observation::{Gone, ObjectBody, Observed, SeenObject};
use events::{ObjectIdentity, Sha256};
use objects::observed::observe_text;
use serde::Deserialize;

use super::{Feed, RESTATED};
use crate::kubernetes::{ApiError, LiveObject};
use crate::model::event_rate::EventRate;
use crate::model::known::{Head, News};
use crate::model::object_queue::{LARGEST_BODY, gone};

/// Something to tell of an object.
struct Told {
    head: Head,
    digest: Sha256,
    news: News,
    what: Observed,
}

impl Feed {
    pub(super) async fn listed(&mut self, object: &LiveObject) -> Result<(), ApiError> {
        let head = self.head(object)?;
        {
            let mut state = self.state.lock();
            if !state.scope.takes(&head.namespace) || state.known.is_current(&head) {
                return Ok(());
            }
        }
        // A known Event that a list has is reported, however often it changed: one that is not would count as gone.
        let is_limited = !self.state.lock().known.has(&head.uid);
        if let Some(told) = self.examine(head, &object.text, is_limited)? {
            self.tell_patiently(told).await;
        }
        Ok(())
    }

    /// Whether there was room to tell of it.
    pub(super) fn seen(&mut self, object: &LiveObject) -> Result<bool, ApiError> {
        let head = self.head(object)?;
        if !self.state.lock().scope.takes(&head.namespace) {
            return Ok(true);
        }
        Ok(self.examine(head, &object.text, true)?.is_none_or(|told| self.tell(told).is_ok()))
    }

    /// Whether there was room to tell of it.
    pub(super) fn deleted(&self, object: &LiveObject) -> Result<bool, ApiError> {
        let head = self.head(object)?;
        let uid = head.uid.clone();
        // The expiry of an Event is no news.
        let is_silent = self.rate.is_some() || !self.state.lock().known.has(&uid);
        let is_told = is_silent
            || self.observer.outbox.put(&self.of, &uid, gone(&self.of, head, Gone::Deleted)).is_ok();
        if is_told {
            self.state.lock().known.forget(&uid);
            self.observer.noticed(&self.key.resource);
        }
        Ok(is_told)
    }

    /// What is to be told of an object; `is_limited`: an Event only as far as its rate allows.
    fn examine(&mut self, head: Head, text: &[u8], is_limited: bool) -> Result<Option<Told>, ApiError> {
        let resource = &self.key.resource;
        let observed = observe_text(text, &self.api_version, &resource.kind).map_err(unreadable)?;
        let (now, digest) = (self.now(), observed.digest);
        let news =
            self.state.lock().known.news(&head.uid, &digest, minutes(now.saturating_sub(RESTATED / 2)));
        let what = match news {
            News::Nothing => {
                self.state.lock().known.told(head, &digest, news, minutes(now));
                return Ok(None);
            }
            News::Kept => {
                Observed::ObjectKept { identity: self.identity(&head), uid: head.uid.clone(), digest }
            }
            News::Changed => {
                let admits = |rate: &mut EventRate| !is_limited || rate.admits(&involved(text), now);
                if !self.rate.as_mut().is_none_or(admits) {
                    self.observer.outbox.gap(&self.of, &head.version, &head.version, 1);
                    return Ok(None);
                }
                self.seen_object(&head, observed)
            }
        };
        Ok(Some(Told { head, digest, news, what }))
    }

    fn seen_object(&self, head: &Head, observed: objects::observed::Observed) -> Observed {
        let objects::observed::Observed { mut body, digest, writers } = observed;
        // It had room for what was pruned, and may wait for long.
        body.shrink_to_fit();
        let body = if body.len() > LARGEST_BODY {
            ObjectBody::Blob { blob: None, bytes: body.len() as u64 }
        } else {
            ObjectBody::Json(body)
        };
        let object = SeenObject {
            identity: self.identity(head),
            uid: head.uid.clone(),
            resource_version: head.version.clone(),
            digest,
            body,
            writers,
        };
        Observed::ObjectSeen { object: Box::new(object) }
    }

    /// Tells it; gives it back where there is no room.
    fn tell(&self, told: Told) -> Result<(), Box<Told>> {
        let Told { head, digest, news, what } = told;
        match self.observer.outbox.put(&self.of, &head.uid, what) {
            Ok(()) => {
                self.state.lock().known.told(head, &digest, news, minutes(self.now()));
                self.observer.noticed(&self.key.resource);
                Ok(())
            }
            Err(what) => Err(Box::new(Told { head, digest, news, what: *what })),
        }
    }

    /// As a list tells: it waits while half of what may wait does, so that there is room for what changes meanwhile.
    async fn tell_patiently(&self, mut told: Told) {
        loop {
            self.observer.outbox.room().await;
            match self.tell(told) {
                Ok(()) => return,
                Err(again) => told = *again,
            }
        }
    }

    /// Some API servers behind others give their objects no UID: it is distinguished from the others by its name.
    fn head(&self, object: &LiveObject) -> Result<Head, ApiError> {
        let mut head = object.head.clone();
        if head.name.is_empty() {
            return Err(ApiError::Unreadable { detail: "an object: it has no name".to_owned() });
        }
        if head.uid.is_empty() {
            head.uid = format!("{}/{}/{}", self.of, head.namespace, head.name);
        }
        Ok(head)
    }

    fn identity(&self, head: &Head) -> ObjectIdentity {
        ObjectIdentity {
            group: self.key.resource.group.clone(),
            version: self.key.resource.version.clone(),
            kind: self.key.resource.kind.clone(),
            namespace: head.namespace.clone(),
            name: head.name.clone(),
        }
    }
}

fn minutes(time: Duration) -> u32 {
    u32::try_from(time.as_secs() / 60).unwrap_or(u32::MAX)
}

fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::Unreadable { detail: format!("an object: {error}") }
}

/// The object that an Event is about, by its UID or its name.
fn involved(text: &[u8]) -> String {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Event {
        involved_object: Involved,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Involved {
        uid: Option<String>,
        name: String,
    }
    let event: Event = serde_json::from_slice(text).unwrap_or_default();
    event.involved_object.uid.unwrap_or(event.involved_object.name)
}
