//! Exported events for programs outside, as they come. What a caller may not see is left out, event by event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use axum::response::Response;
use bytes::Bytes;
use events::directory::Scope;
use events::export::{
    EventFilter, ExportPosition, GAP, MOST_PATTERNS, Resume, Resumed, TypePattern, gap_before,
    is_administrative,
};
use events::requests::authz::{Action, Decide, ShowProject};
use events::{CloudEvent, Position, Refusal, RefusalKind, Stream, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{Followed, ReadError, ReadFilter, Record};
use tokio::sync::mpsc;

use super::readers::Reading;
use super::routes::parse_follow;
use super::tail::{Reader, Source, streamed};
use crate::app::App;
use crate::route::{Call, Route};

/// How often a quiet answer shows that it lives, and the caller's rights are looked at again.
const BEAT: Duration = Duration::from_secs(10);
/// Events that wait for a slow reader; then reading waits.
const WAITING: usize = 64;
/// Answers of authz that are remembered between two beats.
const MOST_ANSWERS: usize = 4096;

/// Which exported events.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadExports {
    /// Their types, separated by commas: one such as `kasbah.sync.finished`, or all that begin so, such as `kasbah.sync.*`.
    types: Option<String>,
    /// Only about this project: `group/name` or id.
    project: Option<String>,
    /// Only about this environment: its id, or its name together with `project`.
    environment: Option<String>,
    /// The id of the last event that was received, or `start`; `Last-Event-ID` says the same. Where there is none: from now on.
    from: Option<String>,
    /// `true`: go on with what comes later, as server-sent events always do.
    follow: Option<String>,
}

/// The route.
pub(super) fn route() -> Route {
    Route::of::<ReadExports, CloudEvent>(
        Method::GET,
        "/api/events",
        "followEvents",
        "Follows exported events of what you may see, as server-sent events if you accept those; goes on behind `Last-Event-ID`",
        |app, call| Box::pin(follow(app, call)),
    )
    .answering("application/x-ndjson")
}

/// Answers with events while somebody listens.
async fn follow(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    let Call { input, context, token, server_sent, last_event, .. } = call;
    let request: ReadExports = input.parse()?;
    let follow = server_sent || parse_follow(request.follow.as_deref())?;
    let reader = Reader { asked: Reader::question(&context), token, context };
    let filter = filter(&app, &reader, &request).await?;
    let decision = bus::ask(&*app.bus, &reader.context, &reader.asked).await?;
    let from = last_event.or(request.from);
    let position = match from.as_deref() {
        None | Some("start") => None,
        Some(from) => {
            let position = from.parse::<ExportPosition>();
            Some(position.map_err(|error| Refusal::invalid("from", error.to_string()))?)
        }
    };
    let streams = [Stream::Exports];
    let begin = match (&position, from.as_deref()) {
        (Some(position), _) => app.log.position_at(&streams, position.read_since()).await,
        (None, None) if follow => app.log.position(&streams).await,
        (None, _) => Ok(Position::start()),
    };
    let away = |error: ReadError| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"));
    let (begin, organization) = (begin.map_err(away)?, reader.context.organization);
    let records = ReadFilter { organization: Some(organization), ..ReadFilter::streams(&streams) };
    let source = Source::open(&app, &begin, &records, follow).await.map_err(away)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let (spawner, resume) = (Arc::clone(&app.world.spawner), Resume::new(position, app.log.id()));
    let (reads_log, answers) = (decision.allowed, BTreeMap::new());
    let reading = follow.then(|| app.readers.begin(&app, &reader.context, filter.clone()));
    let tail =
        Exports { app, reader, filter, server_sent, resume, position, reading, reads_log, answers, sender };
    spawner.spawn("console-events", Box::pin(tail.run(source)));
    Ok(streamed(receiver, server_sent))
}

/// What the request names, as ids. A project that the caller may not see is not found.
async fn filter(app: &App, reader: &Reader, request: &ReadExports) -> Result<EventFilter, Refusal> {
    let named = request.types.as_deref().unwrap_or_default();
    let types =
        named.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse::<TypePattern>);
    let types: Result<Vec<_>, _> = types.take(MOST_PATTERNS + 1).collect();
    let types = types.map_err(|error| Refusal::invalid("types", error.to_string()))?;
    if let Some(useless) = types.iter().find(|types| !types.is_of_use()) {
        return Err(Refusal::invalid(
            "types",
            format!("no exported event is of {useless}; /docs/events lists them"),
        ));
    }
    if types.len() > MOST_PATTERNS {
        return Err(Refusal::invalid("types", format!("names more than {MOST_PATTERNS}")));
    }
    let project = match &request.project {
        Some(project) => {
            let asked = ShowProject { project: project.clone() };
            Some(bus::ask(&*app.bus, &reader.context, &asked).await?.id)
        }
        None => None,
    };
    let environment = request.environment.as_deref();
    let environment = environment.map(|text| EventFilter::parse_environment(text, project)).transpose()?;
    Ok(EventFilter { types, project, environment })
}

struct Exports {
    app: Arc<App>,
    reader: Reader,
    filter: EventFilter,
    server_sent: bool,
    resume: Resume,
    /// Behind the last event that was looked at.
    position: Option<ExportPosition>,
    /// So that others see how far the reader is; of one who reads up to the end only, nobody does.
    reading: Option<Reading>,
    /// The caller may read the whole log, and so gets all events.
    reads_log: bool,
    /// What the caller may see, as authz said since the last beat.
    answers: BTreeMap<(Action, Scope), bool>,
    sender: mpsc::Sender<Bytes>,
}

/// What happens next.
#[allow(clippy::large_enum_variant, reason = "nearly all are reads")]
enum Next {
    /// Rights may have changed.
    Look,
    /// Rights are looked at again, and the answer shows that it lives.
    Beat,
    /// What the log gave.
    Read(Option<Result<Followed, ReadError>>),
}

impl Exports {
    async fn run(mut self, mut source: Source) {
        let clock = Arc::clone(&self.app.world.clock);
        let mut changes = self.app.changes.subscribe();
        let mut beat = clock.monotonic() + BEAT;
        if !self.say(Bytes::from_static(if self.server_sent { b"retry: 1000\n\n" } else { b"\n" })).await {
            return;
        }
        loop {
            let wait = beat.saturating_sub(clock.monotonic());
            let next = tokio::select! {
                biased;
                () = self.app.shutdown.requested() => return,
                () = self.sender.closed() => return,
                _ = changes.changed() => Next::Look,
                () = clock.sleep(wait) => Next::Beat,
                next = source.next() => Next::Read(next),
            };
            let went_on = match next {
                Next::Look => self.look().await,
                Next::Beat => {
                    beat = clock.monotonic() + BEAT;
                    self.look().await && self.say(self.alive()).await
                }
                Next::Read(None) => return,
                Next::Read(Some(Ok(Followed::Record(record)))) => self.record(&record).await,
                Next::Read(Some(Ok(_))) => true,
                Next::Read(Some(Err(error))) => {
                    tracing::error!(%error, "exports cannot be read for a reader");
                    return;
                }
            };
            if !went_on {
                return;
            }
        }
    }

    /// Looks again at what the caller may see. False when the token is gone.
    async fn look(&mut self) -> bool {
        self.answers.clear();
        if !self.app.callers.is_live(&self.app.world, &*self.app.bus, self.reader.token).await {
            return false;
        }
        // While authz is away nothing new is decided: the last decision counts for the moment.
        if let Ok(decision) = bus::ask(&*self.app.bus, &self.reader.context, &self.reader.asked).await {
            self.reads_log = decision.allowed;
        }
        true
    }

    /// Says the event of a record, if it is for this reader. False when nobody listens any more.
    async fn record(&mut self, record: &Record) -> bool {
        // The filter has seen to it; said again because nothing of another organization may ever pass here.
        if record.organization != self.reader.context.organization {
            return true;
        }
        let Ok(event) = CloudEvent::from_json(&record.bytes) else { return true };
        let missed = match self.resume.take(&event) {
            Resumed::Skip => return true,
            Resumed::Give => None,
            Resumed::GiveBehindGap(missed) => Some(gap_before(&event, missed)),
        };
        for event in missed.into_iter().chain([event]) {
            // Until it is sent, the reader is at the event in front of it.
            let wants = self.filter.wants(&event);
            self.note(wants.then_some(event.recordedat));
            self.position = ExportPosition::of(&event);
            if !wants {
                continue;
            }
            match self.may_see(&event).await {
                Some(true) if self.say(self.piece(event)).await => {}
                Some(false) => {}
                // The client is gone, or authz is away: the client reconnects, and authz is asked again.
                Some(true) | None => return false,
            }
        }
        self.note(None);
        true
    }

    /// Has others see how far the reader is, and since when an event was recorded that waits for them.
    fn note(&self, waits: Option<Timestamp>) {
        if let Some(reading) = &self.reading {
            reading.at(self.position, waits);
        }
    }

    /// Whether the reader may see an event; `None` when authz does not say.
    async fn may_see(&mut self, event: &CloudEvent) -> Option<bool> {
        if self.reads_log || event.event_type == GAP {
            return Some(true);
        }
        if is_administrative(&event.event_type) {
            return Some(false);
        }
        let (action, scope) = match (event.environment, event.agent, event.project) {
            (Some(_), _, Some(project)) => (Action::ReadEnvironment, Scope::Project(project)),
            (_, Some(agent), _) => (Action::ReadSource, Scope::Agent(agent)),
            (_, None, Some(project)) => (Action::ReadProject, Scope::Project(project)),
            (_, None, None) => return Some(false),
        };
        if let Some(known) = self.answers.get(&(action, scope)) {
            return Some(*known);
        }
        let question = Decide { action, scope, ..self.reader.asked.clone() };
        let allowed = match bus::ask(&*self.app.bus, &self.reader.context, &question).await {
            Ok(decision) => decision.allowed,
            Err(refusal) if refusal.kind == RefusalKind::Unavailable => return None,
            Err(_) => false,
        };
        if self.answers.len() >= MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert((action, scope), allowed);
        Some(allowed)
    }

    fn piece(&self, event: CloudEvent) -> Bytes {
        let position = ExportPosition::of(&event).map(|position| position.to_string());
        let id = position.clone().unwrap_or_default();
        let event = CloudEvent { position, exportrun: None, ..event };
        let text = serde_json::to_string(&event).unwrap_or_default();
        if self.server_sent {
            return Bytes::from(format!("id: {id}\nevent: {}\ndata: {text}\n\n", event.event_type));
        }
        Bytes::from(text + "\n")
    }

    /// What keeps a quiet connection open. It also says how far the reader is, though it got no event up to there.
    fn alive(&self) -> Bytes {
        match self.position {
            _ if !self.server_sent => Bytes::from_static(b"\n"),
            Some(position) => Bytes::from(format!("id: {position}\n\n")),
            None => Bytes::from_static(b":\n\n"),
        }
    }

    async fn say(&self, piece: Bytes) -> bool {
        self.sender.send(piece).await.is_ok()
    }
}
