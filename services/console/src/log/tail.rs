//! Events as they come: lines of JSON, or server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use events::position::{Shard, Stream};
use events::requests::authz::{Action, Decide};
use events::{
    Actor, AgentId, AggregateRef, CloudEvent, OrganizationId, Position, Refusal, RefusalKind, Sha256,
    Timestamp, UserId,
};
use futures::stream;
use store::{FollowReader, Followed, ReadError, ReadFilter, Record, RecordReader};
use tokio::sync::mpsc;

use super::cursor::{Cursor, Cursors};
use super::once::Once;
use crate::app::App;

/// How often a quiet answer shows that it lives, and the caller's token and role are looked at again.
const BEAT: Duration = Duration::from_secs(10);
/// Events that wait for a slow reader; then reading waits.
const WAITING: usize = 64;

/// What a reader wants.
pub struct TailRequest {
    /// From where.
    pub from: Cursor,
    /// Also what comes later.
    pub follow: bool,
    /// Which of them.
    pub which: EventSelection,
    /// Server-sent events instead of lines.
    pub server_sent: bool,
}

/// Which events a reader wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSelection {
    /// Everything that was decided, seen or refused.
    All,
    /// Changes of objects that agents saw: so many that only who asks for them gets them.
    Objects,
    /// What was decided of this aggregate.
    Aggregate(AggregateRef),
    /// What was done in clusters.
    Audit(Audited),
}

/// Which uses of clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audited {
    /// Only of this agent's.
    pub agent: Option<AgentId>,
    /// Only by this user.
    pub user: Option<UserId>,
    /// Only requests that came at this time or later.
    pub since: Option<Timestamp>,
}

impl EventSelection {
    /// What has to be read for them.
    #[must_use]
    pub fn filter(&self, organization: OrganizationId) -> ReadFilter {
        let (streams, kinds) = match self {
            Self::All => (vec![Stream::Decisions, Stream::Observations, Stream::Refusals], Vec::new()),
            Self::Objects => (vec![Stream::Objects], Vec::new()),
            Self::Aggregate(aggregate) => (vec![Stream::Decisions], vec![aggregate.kind]),
            Self::Audit(_) => (vec![Stream::Audit], Vec::new()),
        };
        ReadFilter { streams, organization: Some(organization), kinds }
    }

    fn has(&self, record: &Record) -> bool {
        match self {
            Self::All | Self::Objects | Self::Audit(_) => true,
            Self::Aggregate(wanted) => record.commit().is_some_and(|commit| commit.aggregate == *wanted),
        }
    }

    fn wants(&self, event: &CloudEvent) -> bool {
        let Self::Audit(Audited { agent, user, since }) = self else { return true };
        agent.is_none_or(|agent| event.subject == format!("agent/{agent}"))
            && user.is_none_or(|user| event.actor == Some(Actor::User(user)))
            && since.is_none_or(|since| event.time >= since)
    }
}

/// Who reads.
#[derive(Clone)]
pub struct Reader {
    /// As whom.
    pub asked: Decide,
    /// With which token.
    pub token: Sha256,
    /// Chain and deadline of questions to authz.
    pub context: events::request::RequestContext,
}

impl Reader {
    /// Whether the reader may still read.
    async fn may_go_on(&self, app: &App) -> bool {
        if !app.callers.is_live(&app.world, &*app.bus, self.token).await {
            return false;
        }
        match bus::ask(&*app.bus, &self.context, &self.asked).await {
            Ok(decision) => decision.allowed && decision.visible,
            // While authz is away nothing new is decided: the last decision counts for the moment.
            Err(refusal) => refusal.kind == RefusalKind::Unavailable,
        }
    }

    /// A question to authz about reading an organization's log.
    #[must_use]
    pub fn question(context: &events::request::RequestContext) -> Decide {
        let organization = context.organization;
        let scope = events::directory::Scope::Organization(organization);
        Decide { actor: context.actor.clone(), organization, action: Action::ReadLog, scope }
    }
}

/// Where the records of an answer come from.
pub(super) enum Source {
    Read(RecordReader),
    Follow(FollowReader),
}

impl Source {
    /// Opens the log behind a position. With `follow`, the source has no end.
    pub(super) async fn open(
        app: &App,
        from: &Position,
        filter: &ReadFilter,
        follow: bool,
    ) -> Result<Self, ReadError> {
        match follow {
            true => app.log.follow(from, filter).await.map(Self::Follow),
            false => app.log.read(from, filter).await.map(Self::Read),
        }
    }

    /// The next record or move; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Followed, ReadError>> {
        match self {
            Self::Read(reader) => reader.recv().await.map(|record| record.map(Followed::Record)),
            Self::Follow(reader) => reader.recv().await,
        }
    }
}

/// The answer: a body that goes on while there is something to say and somebody listens.
///
/// # Errors
/// When the log cannot be read.
pub async fn answer(app: Arc<App>, wanted: TailRequest, reader: Reader) -> Result<Response, Refusal> {
    let organization = reader.asked.organization;
    let cursors = Cursors::of(&*app.keys, &*app.log, organization).await?;
    let filter = wanted.which.filter(organization);
    let away = |error: ReadError| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"));
    let source = Source::open(&app, &wanted.from.position, &filter, wanted.follow).await.map_err(away)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let response = streamed(receiver, wanted.server_sent);
    let spawner = Arc::clone(&app.world.spawner);
    let tail = Tail {
        app,
        cursors,
        organization,
        which: wanted.which,
        server_sent: wanted.server_sent,
        position: wanted.from.position,
        within: wanted.from.within,
        once: Once::default(),
        sender,
    };
    spawner.spawn("console-tail", Box::pin(tail.run(source, reader)));
    Ok(response)
}

/// The answer whose body is these pieces as they come.
pub(super) fn streamed(receiver: mpsc::Receiver<Bytes>, server_sent: bool) -> Response {
    let media = if server_sent { "text/event-stream" } else { "application/x-ndjson" };
    let pieces = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|piece: Bytes| (Ok::<_, std::convert::Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a tail does next.
#[allow(clippy::large_enum_variant, reason = "nearly all are reads")]
enum Next {
    /// Look again whether the reader may read: something about users, agents or tokens changed.
    Look,
    /// Look again, and show that the answer lives.
    Beat,
    /// What the log gave.
    Read(Option<Result<Followed, ReadError>>),
}

struct Tail {
    app: Arc<App>,
    cursors: Cursors,
    organization: OrganizationId,
    which: EventSelection,
    server_sent: bool,
    position: Position,
    within: Option<(Shard, u64, usize)>,
    once: Once,
    sender: mpsc::Sender<Bytes>,
}

impl Tail {
    async fn run(mut self, mut source: Source, reader: Reader) {
        let clock = Arc::clone(&self.app.world.clock);
        let mut changes = self.app.changes.subscribe();
        let mut beat = clock.monotonic() + BEAT;
        loop {
            let wait = beat.saturating_sub(clock.monotonic());
            let next = tokio::select! {
                biased;
                () = self.app.shutdown.requested() => return,
                () = self.sender.closed() => return,
                // The sender lives in the app.
                _ = changes.changed() => Next::Look,
                () = clock.sleep(wait) => Next::Beat,
                next = source.next() => Next::Read(next),
            };
            let went_on = match next {
                Next::Look => reader.may_go_on(&self.app).await,
                Next::Beat => {
                    beat = clock.monotonic() + BEAT;
                    reader.may_go_on(&self.app).await && self.say(self.alive()).await
                }
                Next::Read(None) => return,
                Next::Read(Some(Ok(Followed::Record(record)))) => self.record(&record).await,
                Next::Read(Some(Ok(Followed::CaughtUp(position) | Followed::Passed(position)))) => {
                    self.position.merge(&position);
                    true
                }
                Next::Read(Some(Err(error))) => {
                    tracing::error!(%error, "log cannot be read for a tail");
                    return;
                }
            };
            if !went_on {
                return;
            }
        }
    }

    /// Says the events of a record that were not said before. False when nobody listens any more.
    async fn record(&mut self, record: &Record) -> bool {
        // The filter has seen to it; said again because nothing of another organization may ever pass here.
        if record.organization == self.organization && self.which.has(record) {
            let events = record.cloud_events();
            let count = events.len();
            let given = match self.within.take() {
                Some((shard, sequence, given)) if (shard, sequence) == (record.shard, record.sequence) => {
                    given
                }
                kept => {
                    self.within = kept;
                    0
                }
            };
            for (index, event) in events.into_iter().enumerate().skip(given) {
                if !self.which.wants(&event) || !self.once.is_new(&event) {
                    continue;
                }
                let cursor = self.cursor_behind(record, index + 1, count);
                let piece = self.piece(event, &cursor);
                if !self.say(piece).await {
                    return false;
                }
            }
        }
        self.position.advance(record.shard, record.sequence);
        true
    }

    fn cursor_behind(&self, record: &Record, given: usize, count: usize) -> Cursor {
        let mut position = self.position.clone();
        if given < count {
            return Cursor { position, within: Some((record.shard, record.sequence, given)) };
        }
        position.advance(record.shard, record.sequence);
        Cursor { position, within: self.within }
    }

    fn piece(&self, event: CloudEvent, cursor: &Cursor) -> Bytes {
        let position = self.cursors.seal(&*self.app.world.random, cursor);
        let event = CloudEvent { position: Some(position.clone()), ..event };
        let text = serde_json::to_string(&event).unwrap_or_default();
        if self.server_sent {
            return Bytes::from(format!("id: {position}\nevent: {}\ndata: {text}\n\n", event.event_type));
        }
        Bytes::from(text + "\n")
    }

    /// What keeps a quiet connection open: a comment, or an empty line.
    fn alive(&self) -> Bytes {
        Bytes::from_static(if self.server_sent { b":\n\n" } else { b"\n" })
    }

    async fn say(&self, piece: Bytes) -> bool {
        self.sender.send(piece).await.is_ok()
    }
}
