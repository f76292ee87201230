//! The log's routes.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use events::aggregate::ParseKindError;
use events::request::RequestContext;
use events::requests::authz::{Action, Decide, ShowUser};
use events::{
    AggregateRef, ChainHash, CloudEvent, CommitId, CorrelationId, Position, Refusal, RefusalKind, Timestamp,
    UserId,
};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::Record;

use super::cursor::{Cursor, Cursors};
use super::exports;
use super::recording::{self, RecordingLine};
use super::tail::{self, Audited, EventSelection, Reader, TailRequest};
use super::trace::{Trace, trace};
use super::verify::{Verified, verify};
use crate::app::App;
use crate::route::{Call, Route, json, visible_agent};

/// Most commits of an aggregate that one answer holds: the newest.
const MAXIMUM_COMMITS: usize = 1000;
/// Most aggregates that one answer holds.
const MAXIMUM_AGGREGATES: usize = 10_000;

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadEvents {
    /// A position that an event came with, or `start`. Where there is none: the beginning, or with `follow` now.
    from: Option<String>,
    /// `true`: go on with what comes later.
    follow: Option<String>,
    /// Only what was recorded at this time (RFC 3339) or later; not with `from`.
    since: Option<String>,
    /// Only this aggregate: `<kind>/<id>`.
    aggregate: Option<String>,
    /// `objects`: the changes of objects that agents saw, and nothing else. They are given only if you ask for them, and without the objects'
    /// content.
    stream: Option<String>,
}

/// Which uses of clusters.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadAudit {
    /// Only of this agent's cluster: its name, `group/project:name`, or id.
    agent: Option<String>,
    /// Only by this user: login name or id.
    user: Option<String>,
    /// Only requests that came at this time (RFC 3339) or later.
    since: Option<String>,
    /// A position that a record came with; the beginning where there is none.
    from: Option<String>,
    /// `true`: go on with what comes later.
    follow: Option<String>,
}

/// Which recording.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadRecording {
    /// The session: the `id` of its audit records.
    session: String,
}

/// Which aggregate.
#[derive(Debug, Deserialize, JsonSchema)]
struct ShowAggregate {
    /// Its kind, such as `source`.
    kind: String,
    /// Its id.
    id: String,
}

/// An aggregate's history.
#[derive(Debug, Serialize, JsonSchema)]
struct AggregateView {
    /// `<kind>/<id>`.
    aggregate: String,
    /// Its version.
    version: u64,
    /// Older commits were left out.
    more: bool,
    /// Its commits, oldest first.
    commits: Vec<CommitView>,
    /// Their events, oldest first.
    events: Vec<CloudEvent>,
}

/// What was decided at once, without its events: those with its version.
#[derive(Debug, Serialize, JsonSchema)]
struct CommitView {
    /// Its id.
    id: CommitId,
    /// The aggregate's version after it.
    version: u64,
    /// SHA-256 over the stored bytes; the next commit names it.
    hash: ChainHash,
    /// What the commit names as the hash of the one before it.
    previous: ChainHash,
    /// When the log took it.
    recordedat: Timestamp,
    /// The command that it was decided for, such as `delivery.suspend-source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// Whether it was recorded with what it was decided on, so that the decision can be made again.
    grounds: bool,
}

impl CommitView {
    fn of(record: &Record) -> Option<Self> {
        let commit = record.commit()?;
        Some(Self {
            id: commit.id,
            version: commit.version,
            hash: ChainHash::of(&record.bytes),
            previous: commit.previous,
            recordedat: record.recorded_at,
            command: commit.command.as_ref().map(|command| command.name.clone()),
            grounds: commit.grounds.is_some(),
        })
    }
}

/// Which aggregates.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListAggregates {
    /// Only of this kind, such as `source`.
    kind: Option<String>,
    /// Only those whose id begins so.
    prefix: Option<String>,
    /// Only those with a commit that was recorded at this time (RFC 3339) or later.
    since: Option<String>,
    /// Only those with a commit that was recorded before this time (RFC 3339).
    until: Option<String>,
}

/// Aggregates.
#[derive(Debug, Serialize, JsonSchema)]
struct AggregateList {
    /// More were left out: ask for fewer.
    more: bool,
    /// By kind and id.
    aggregates: Vec<AggregateHead>,
}

/// An aggregate, as its wanted commits leave it.
#[derive(Debug, Serialize, JsonSchema)]
struct AggregateHead {
    /// `<kind>/<id>`.
    aggregate: String,
    /// Its version.
    version: u64,
    /// When the first commit was recorded.
    first: Timestamp,
    /// When the last commit was recorded.
    last: Timestamp,
    /// Type of the last event.
    event: String,
}

/// Which chain.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadTrace {
    /// Its id, as events carry it: `correlationid`.
    correlation: String,
}

/// Nothing is asked.
#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// The routes.
#[must_use]
pub fn all() -> Vec<Route> {
    vec![
        Route::of::<ReadEvents, CloudEvent>(
            Method::GET,
            "/api/v1/log/events",
            "readEvents",
            "Reads events of your organization, one JSON document per line, or as server-sent events if you accept those",
            |app, call| Box::pin(events(app, call)),
        )
        .answering("application/x-ndjson"),
        exports::route(),
        Route::of::<ReadAudit, CloudEvent>(
            Method::GET,
            "/api/v1/log/audit",
            "readAudit",
            "Reads audit records of requests to clusters' APIs, in the same way as events; the data of each event is a record",
            |app, call| Box::pin(audit(app, call)),
        )
        .answering("application/x-ndjson"),
        Route::of::<ReadRecording, RecordingLine>(
            Method::GET,
            "/api/v1/log/recordings/{session}",
            "readRecording",
            "Reads the recording of a session, one JSON document per line",
            |app, call| Box::pin(recorded(app, call)),
        )
        .answering("application/x-ndjson"),
        Route::of::<ListAggregates, AggregateList>(
            Method::GET,
            "/api/v1/log/aggregates",
            "listAggregates",
            "Lists the aggregates of your organization",
            |app, call| Box::pin(aggregates(app, call)),
        ),
        Route::of::<ReadTrace, Trace>(
            Method::GET,
            "/api/v1/log/traces/{correlation}",
            "readTrace",
            "Reads all consequences of a cause",
            |app, call| Box::pin(traced(app, call)),
        ),
        Route::of::<ShowAggregate, AggregateView>(
            Method::GET,
            "/api/v1/log/aggregates/{kind}/{id}",
            "showAggregate",
            "Shows an aggregate's history",
            |app, call| Box::pin(aggregate(app, call)),
        ),
        Route::of::<Nothing, Verified>(
            Method::POST,
            "/api/v1/log/verify",
            "verifyLog",
            "Checks the chains of your organization's decisions",
            |app, call| -> BoxFuture<'static, Result<Response, Refusal>> { Box::pin(verified(app, call)) },
        ),
    ]
}

async fn events(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadLog).await?;
    let Call { input, context, token, server_sent, .. } = call;
    let request: ReadEvents = input.parse()?;
    let follow = parse_follow(request.follow.as_deref())?;
    let which = selection(&request)?;
    let since = parse_time("since", request.since)?;
    let from = match opened(&app, &context, request.from.as_deref()).await? {
        Some(_) if since.is_some() => {
            return Err(Refusal::invalid("since", "cannot be given together with from"));
        }
        Some(from) => from,
        None => {
            Cursor { position: first_position(&app, &context, &which, since, follow).await?, within: None }
        }
    };
    let reader = Reader { asked: Reader::question(&context), token, context };
    tail::answer(app, TailRequest { from, follow, which, server_sent }, reader).await
}

async fn audit(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadLog).await?;
    let Call { input, context, token, server_sent, .. } = call;
    let request: ReadAudit = input.parse()?;
    let follow = parse_follow(request.follow.as_deref())?;
    let from = opened(&app, &context, request.from.as_deref()).await?.unwrap_or_default();
    let agent = match request.agent {
        Some(agent) => Some(visible_agent(&app, &context, agent).await?),
        None => None,
    };
    let user = match request.user {
        Some(user) => Some(user_of(&app, &context, &user).await?),
        None => None,
    };
    let since = parse_time("since", request.since)?;
    let which = EventSelection::Audit(Audited { agent, user, since });
    let reader = Reader { asked: Reader::question(&context), token, context };
    tail::answer(app, TailRequest { from, follow, which, server_sent }, reader).await
}

async fn recorded(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadRecordings).await?;
    let request: ReadRecording = call.input.parse()?;
    let session = request.session.parse().map_err(|_| {
        Refusal::invalid(
            "session",
            "must be the id of a session, as `kasbah audit` shows it behind `recorded`",
        )
    })?;
    recording::answer(&app, call.context.organization, session).await
}

fn selection(request: &ReadEvents) -> Result<EventSelection, Refusal> {
    match (request.stream.as_deref(), request.aggregate.as_deref()) {
        (None, None) => Ok(EventSelection::All),
        (None, Some(text)) => parse_aggregate("aggregate", text).map(EventSelection::Aggregate),
        (Some("objects"), None) => Ok(EventSelection::Objects),
        (Some("objects"), Some(_)) => Err(Refusal::invalid(
            "aggregate",
            "cannot be given together with stream: objects are no aggregates",
        )),
        (Some(_), _) => Err(Refusal::invalid("stream", "must be objects, or be left out")),
    }
}

/// Where a reader begins who did not leave off anywhere.
async fn first_position(
    app: &App,
    context: &RequestContext,
    which: &EventSelection,
    since: Option<Timestamp>,
    follow: bool,
) -> Result<Position, Refusal> {
    // Of streams that are not read, a position would say what nobody asked about.
    let streams = which.filter(context.organization).streams;
    let position = match since {
        Some(since) => app.log.position_at(&streams, since.plus_millis(-1)).await,
        None if follow => app.log.position(&streams).await,
        None => Ok(Position::start()),
    };
    position.map_err(|error| unavailable(&error))
}

/// Where a reader left off, if it says so.
async fn opened(app: &App, context: &RequestContext, from: Option<&str>) -> Result<Option<Cursor>, Refusal> {
    match from {
        Some(from) => {
            let cursors = Cursors::of(&*app.keys, &*app.log, context.organization).await?;
            cursors.open("from", from).map(Some)
        }
        None => Ok(None),
    }
}

/// The user of that login name, or of that id.
async fn user_of(app: &App, context: &RequestContext, text: &str) -> Result<UserId, Refusal> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    Ok(bus::ask(&*app.bus, context, &ShowUser { user: text.to_owned() }).await?.id)
}

pub(super) fn parse_follow(text: Option<&str>) -> Result<bool, Refusal> {
    match text {
        None | Some("false") => Ok(false),
        Some("true" | "") => Ok(true),
        Some(_) => Err(Refusal::invalid("follow", "must be true or false")),
    }
}

fn parse_time(field: &str, text: Option<String>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    Timestamp::parse(&text).map(Some).map_err(|error| {
        Refusal::invalid(field, format!("must be a time such as 2026-01-31T12:00:00Z: {error}"))
    })
}

async fn aggregate(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadLog).await?;
    let organization = call.context.organization;
    let request: ShowAggregate = call.input.parse()?;
    let aggregate = parse_aggregate("kind", &format!("{}/{}", request.kind, request.id))?;
    let history = app.log.history(organization, &aggregate).await;
    let history = history.map_err(|error| unavailable(&error))?;
    let version = history.iter().filter_map(|record| record.commit()).map(|commit| commit.version).max();
    let version = version.ok_or_else(|| Refusal::not_found(&aggregate))?;
    let skipped = history.len().saturating_sub(MAXIMUM_COMMITS);
    let own = || history.iter().skip(skipped).filter(|record| record.organization == organization);
    let (commits, events) =
        (own().filter_map(CommitView::of).collect(), own().flat_map(Record::cloud_events).collect());
    json(&AggregateView { aggregate: aggregate.to_string(), version, more: skipped > 0, commits, events })
}

async fn aggregates(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadLog).await?;
    let organization = call.context.organization;
    let request: ListAggregates = call.input.parse()?;
    let kinds = match request.kind {
        None => Vec::new(),
        Some(text) => {
            vec![text.parse().map_err(|error: ParseKindError| Refusal::invalid("kind", error.to_string()))?]
        }
    };
    let wanted = store::listing::ListRequest {
        organization: Some(organization),
        kinds,
        prefix: request.prefix.unwrap_or_default(),
        since: parse_time("since", request.since)?,
        until: parse_time("until", request.until)?,
    };
    let found = store::listing::list_aggregates(&*app.log, &wanted).await;
    let mut found = found.map_err(|error| unavailable(&error))?;
    found.retain(|listed| listed.organization == organization);
    let more = found.len() > MAXIMUM_AGGREGATES;
    let heads = found.into_iter().take(MAXIMUM_AGGREGATES).map(|listed| AggregateHead {
        aggregate: listed.aggregate.to_string(),
        version: listed.version,
        first: listed.first,
        last: listed.last,
        event: listed.event,
    });
    json(&AggregateList { more, aggregates: heads.collect() })
}

async fn traced(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::ReadLog).await?;
    let organization = call.context.organization;
    let request: ReadTrace = call.input.parse()?;
    let correlation = request.correlation.parse();
    let correlation: CorrelationId = correlation
        .map_err(|error: events::id::ParseIdError| Refusal::invalid("correlation", error.to_string()))?;
    let traced = trace(&*app.log, organization, correlation).await;
    let traced = traced.map_err(|error| unavailable(&error))?;
    if traced.events.is_empty() {
        return Err(Refusal::not_found(format!("chain {correlation}")));
    }
    json(&traced)
}

async fn verified(app: Arc<App>, call: Call) -> Result<Response, Refusal> {
    may(&app, &call, Action::VerifyLog).await?;
    let organization = call.context.organization;
    let Nothing {} = call.input.parse()?;
    let verified = verify(&*app.log, organization).await;
    json(&verified.map_err(|error| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))?)
}

async fn may(app: &App, call: &Call, action: Action) -> Result<(), Refusal> {
    let question = Decide { action, ..Reader::question(&call.context) };
    let decision = bus::ask(&*app.bus, &call.context, &question).await?;
    match (decision.visible, decision.allowed) {
        (false, _) => Err(Refusal::not_found("log")),
        (true, false) => Err(Refusal::new(RefusalKind::Denied, decision.reason)),
        (true, true) => Ok(()),
    }
}

fn parse_aggregate(field: &str, text: &str) -> Result<AggregateRef, Refusal> {
    text.parse()
        .map_err(|error: events::aggregate::ParseAggregateError| Refusal::invalid(field, error.to_string()))
}

fn unavailable(error: &store::ReadError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}
