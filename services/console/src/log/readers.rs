//! Who follows exported events at this replica, and how far they are: event-relay hears it again and again, and compares it with the exports.

use std::collections::BTreeMap;
use std::sync::Arc;

use chassis::Shutdown;
use events::Timestamp;
use events::export::{EventFilter, ExportPosition};
use events::request::RequestContext;
use events::requests::subscriptions::{EventReader, EventReaders};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::app::App;

/// Readers of which event-relay hears. More are served, and not named.
const MOST_READERS: usize = 2_000;

/// The readers of this replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<BTreeMap<Uuid, EventReader>>>);

/// One of them. It reads until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    id: Uuid,
    readers: Readers,
}

impl Readers {
    /// Somebody begins to read.
    pub(crate) fn begin(&self, app: &App, context: &RequestContext, filter: EventFilter) -> Reading {
        let id = app.world.new_uuid();
        let (organization, actor) = (context.organization, context.actor.clone());
        let since = Timestamp(app.world.clock.now_millis());
        let reader = EventReader { id, organization, actor, since, filter, position: None, oldest: None };
        let mut readers = self.0.lock();
        if readers.len() < MOST_READERS {
            readers.insert(id, reader);
        }
        Reading { id, readers: self.clone() }
    }

    /// Says again and again who reads.
    pub(crate) async fn tell_for_ever(self, app: Arc<App>, shutdown: Shutdown) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = app.world.clock.sleep(EventReaders::EVERY) => {}
            }
            let all: Vec<EventReader> = self.0.lock().values().cloned().collect();
            for some in all.chunks(EventReaders::AT_ONCE) {
                let notice = EventReaders { readers: some.to_vec() };
                if let Err(refusal) = bus::announce(&*app.bus, &notice).await {
                    tracing::debug!(%refusal, "nobody hears who reads exported events");
                }
            }
        }
    }
}

impl Reading {
    /// An event was looked at for the reader, and waits for them to read on if they are to get it.
    pub(crate) fn at(&self, position: Option<ExportPosition>, waits: Option<Timestamp>) {
        if let Some(reader) = self.readers.0.lock().get_mut(&self.id) {
            (reader.position, reader.oldest) = (position, waits);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.readers.0.lock().remove(&self.id);
    }
}
