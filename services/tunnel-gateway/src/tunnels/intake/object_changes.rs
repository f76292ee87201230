//! Changes of objects that an agent saw. They come from the instance that applies, in a task of their own, and a flood of them waits for
//! nobody but itself: what an agent cannot send, it replaces by the latest, and says how much it left out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::observation::{ObjectBody, Observed};
use events::position::Stream;
use events::{BlobDigest, Sha256};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use store::{BlobError, Blobs, CatchUpError, Following};
use tunnel::gateway::AgentReply;
use tunnel::wire::{Acknowledged, Batch, MAXIMUM_BODY_BYTES, path};

use super::{FOLD_TIME, Feed, IntakeError, run};
use crate::gateway::Gateway;
use crate::token_bucket::TokenBucket;
use crate::tunnels::Throttle;
use crate::tunnels::model::{Budgets, ObjectCursors, remove_misplaced};
use crate::tunnels::session::Session;

/// How long an agent may take for one body: longer than it waits for its API server, so that it can still say how that went.
const BODY_TIME: Duration = Duration::from_secs(75);

/// What all readers of object changes share.
pub(crate) struct ObjectIntake {
    pub(crate) cursors: Following<ObjectCursors>,
    /// For reading the stream's end.
    catch_up_throttle: Throttle,
    /// Bytes of each organization.
    budgets: Mutex<Budgets>,
    /// For large bodies.
    blobs: Arc<dyn Blobs>,
}

impl ObjectIntake {
    pub(crate) fn new(
        cursors: Following<ObjectCursors>,
        blobs: Arc<dyn Blobs>,
        organization_rate: u32,
    ) -> Self {
        let budgets = Mutex::new(Budgets::new(organization_rate));
        Self { cursors, catch_up_throttle: Throttle::default(), budgets, blobs }
    }
}

/// Reads while this instance applies, until the tunnel is dismissed; then what is under way is brought to its end.
pub(crate) async fn read_object_changes(gateway: &Gateway, session: &Session) {
    loop {
        tokio::select! {
            biased;
            _farewell = session.dismissed() => return,
            () = session.applies(true) => {}
        }
        let now = gateway.world.clock.monotonic();
        let rate = TokenBucket::new(gateway.args.tunnel_object_rate, now);
        let mut feed = ObjectChanges { gateway, session, rate, fetched: 0 };
        tokio::select! {
            biased;
            () = run(gateway, session, &mut feed) => return,
            () = session.applies(false) => {}
        }
    }
}

struct ObjectChanges<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    rate: TokenBucket,
    /// Bytes of bodies that were fetched and not charged yet.
    fetched: usize,
}

impl Feed for ObjectChanges<'_> {
    const STREAM: Stream = Stream::Objects;
    const PATH: &'static str = path::OBJECT_CHANGES;
    const ACKNOWLEDGED: &'static str = path::OBJECT_CHANGES_ACKNOWLEDGED;
    const IS_OPTIONAL: bool = true;
    const MAXIMUM_BYTES_UNDER_WAY: usize = 2 * 1024 * 1024;
    // What is over a rate may wait for long.
    const STALL: Duration = Duration::from_secs(3600);

    async fn durable(&mut self) -> Result<Acknowledged, CatchUpError> {
        let (gateway, session) = (self.gateway, self.session);
        let ObjectIntake { cursors, catch_up_throttle, .. } = &gateway.object_changes;
        catch_up_throttle.wait(&*gateway.world.clock).await;
        cursors.catch_up(FOLD_TIME).await?;
        Ok(cursors.read(|cursors| cursors.of(session.agent)))
    }

    /// Who applies is settled elsewhere.
    async fn heard(&mut self, _lease: Option<bool>) {}

    async fn admit(&mut self, batch: &mut Batch<&str>) -> Result<bool, IntakeError> {
        let misplaced = remove_misplaced(&mut batch.observations);
        if misplaced > 0 {
            self.gateway.counts.observations_removed.with([Self::STREAM.as_str()]).inc_by(misplaced);
            let (agent, instance) = (self.session.agent, self.session.instance);
            tracing::warn!(%agent, %instance, misplaced, "observations that belong elsewhere are removed");
        }
        let mut is_changed = misplaced > 0;
        for observation in &mut batch.observations {
            if let Observed::ObjectSeen { object } = &mut observation.what
                && let ObjectBody::Blob { blob, bytes } = &mut object.body
            {
                // Whatever the agent says: it stores no blobs.
                *blob = self.body(object.digest, *bytes).await?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    fn charge(&mut self, bytes: usize, observations: usize) -> Duration {
        self.gateway.counts.object_changes.inc_by(observations as u64);
        let (bytes, now) = (bytes.saturating_add(std::mem::take(&mut self.fetched)), self.now());
        let organization = self.session.organization;
        let of_organization = self.gateway.object_changes.budgets.lock().take(organization, bytes, now);
        self.rate.take(bytes, now).max(of_organization)
    }
}

impl ObjectChanges<'_> {
    fn now(&self) -> Duration {
        self.gateway.world.clock.monotonic()
    }

    /// The blob of a body that is too large for a frame; nothing where the agent does not have it any more.
    async fn body(&mut self, digest: Sha256, bytes: u64) -> Result<Option<BlobDigest>, IntakeError> {
        let (outcome, blob) = self.stored_body(digest, bytes).await?;
        self.gateway.counts.object_bodies.with([outcome]).inc();
        Ok(blob)
    }

    async fn stored_body(
        &mut self,
        digest: Sha256,
        bytes: u64,
    ) -> Result<(&'static str, Option<BlobDigest>), IntakeError> {
        if usize::try_from(bytes).map_or(true, |bytes| bytes > MAXIMUM_BODY_BYTES) {
            return Ok(("too_large", None));
        }
        let (blobs, organization) = (&self.gateway.object_changes.blobs, self.session.organization);
        let known = async {
            let address = blobs.address(organization, digest).await?;
            Ok::<_, BlobError>(blobs.contains(organization, address).await?.then_some(address))
        };
        match known.await {
            Ok(Some(address)) => return Ok(("known", Some(address))),
            Ok(None) => {}
            Err(error) => return without_key(error),
        }
        let Some(content) = self.fetch(digest).await? else { return Ok(("missing", None)) };
        self.fetched = self.fetched.saturating_add(content.len());
        match blobs.put(organization, vec![content]).await {
            Ok(stored) => Ok(("stored", stored.first().copied())),
            Err(error) => without_key(error),
        }
    }

    /// Asks the agent for a body. It has none where it says so, or gives another one. Whatever else happens says nothing of the body, and
    /// nobody asks for it later: so the whole batch is tried again.
    async fn fetch(&self, digest: Sha256) -> Result<Option<Bytes>, IntakeError> {
        let path = format!("{}{digest}", path::OBJECT_BODIES);
        let connection = &self.session.connection;
        let asked = connection.ask(Method::GET, &path, Bytes::new(), MAXIMUM_BODY_BYTES, BODY_TIME).await;
        let AgentReply { status, body } = asked.map_err(IntakeError::Fetch)?;
        match status {
            StatusCode::OK if Sha256::of(&body) == digest => Ok(Some(body)),
            StatusCode::OK | StatusCode::NOT_FOUND => {
                tracing::debug!(agent = %self.session.agent, %digest, %status, "the agent does not have a body any more");
                Ok(None)
            }
            status => Err(IntakeError::BodyStatus(status)),
        }
    }
}

/// An organization whose key is gone stores nothing. What fails otherwise is tried again with the whole batch.
fn without_key(error: BlobError) -> Result<(&'static str, Option<BlobDigest>), IntakeError> {
    match error {
        BlobError::NoKey { .. } => Ok(("missing", None)),
        error => Err(IntakeError::Blob(error)),
    }
}
