//! What runs in the clusters, how it is, and why: requests to the index.
//!
//! A query is text, and the types that cross the bus are not: a moment may be a time, how long ago it was, or a position, and states of health
//! stand in one text with commas. Positions leave the console sealed ([`crate::log::cursor`]), and come back so.

use axum::http::Method;
use axum::response::Response;
use chassis::args::parse_duration;
use events::request::RequestContext;
use events::requests::index::{
    DiffEnvironment, ExplainHealth, FindObjects, HealthState, ListChanges, ListEnvironmentHealth, Moment,
    ShowCoverage, ShowEnvironmentTree, ShowIndexed, ShowTiers, ShowTree,
};
use events::{Position, Refusal, RefusalKind, Request, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::input::Input;
use crate::log::cursor::{Cursor, Cursors};
use crate::route::{Call, Route, json};

/// Where an answer says what it covers.
const POSITION: &str = "/as_of/position";

/// What of a change is for the console alone.
const SEQUENCE: &str = "sequence";

/// The routes.
#[must_use]
pub fn all() -> Vec<Route> {
    vec![
        ask::<FindObjects>(
            "/api/v1/objects",
            "findObjects",
            "Finds objects in all clusters that you may use, with their health, now or at a moment of the past",
        ),
        ask::<ShowTree>(
            "/api/v1/objects/tree",
            "showObjectTree",
            "Shows the objects below those that match: what they own, select and use",
        ),
        ask::<ExplainHealth>(
            "/api/v1/objects/health",
            "explainHealth",
            "Shows why objects are as they are: from each that matches down to the one that is to blame",
        ),
        ask::<ShowIndexed>(
            "/api/v1/objects/detail",
            "showObject",
            "Shows one object: its body, who wrote it last, and what it is related to",
        ),
        ask::<ListChanges>(
            "/api/v1/objects/changes",
            "listObjectChanges",
            "Lists the changes of objects that match, the newest first; also of deleted ones",
        ),
        ask::<ShowCoverage>(
            "/api/v1/objects/coverage",
            "showCoverage",
            "Shows which clusters the index knows, how fresh each is, and which kinds an agent cannot see",
        ),
        Route::ask::<ListEnvironmentHealth>(
            Method::GET,
            "/api/v1/environment-health",
            "listEnvironmentHealth",
            "Lists environments with the health of their objects; those into which nothing was deployed are left out",
        ),
        ask::<ShowEnvironmentTree>(
            "/api/v1/environments/{environment}/tree",
            "showEnvironmentTree",
            "Shows the objects of an environment with their health, each below the one that has caused it",
        ),
        ask::<DiffEnvironment>(
            "/api/v1/environments/{environment}/diff",
            "diffEnvironment",
            "Shows which objects of an environment came, went and changed between two moments, with the changed fields",
        ),
        ask::<ShowTiers>("/api/v1/tiers", "showTiers", "Shows each tier with the health of its environments"),
    ]
}

fn ask<R>(path: &'static str, operation: &'static str, summary: &'static str) -> Route
where
    R: Request + JsonSchema,
    R::Reply: JsonSchema,
{
    Route::of::<R, R::Reply>(Method::GET, path, operation, summary, |app, call| {
        Box::pin(async move {
            let Call { mut input, context, .. } = call;
            translate(&app, &context, &mut input).await?;
            let request: R = input.parse()?;
            let reply = value(&bus::ask(&*app.bus, &context, &request).await?)?;
            answer(&app, &context, reply).await
        })
    })
}

/// Puts what a query says as text into the form that it has on the bus.
async fn translate(app: &App, context: &RequestContext, input: &mut Input) -> Result<(), Refusal> {
    for field in ["at", "from", "to"] {
        let Some(text) = input.text(field).map(str::to_owned) else { continue };
        let now = Timestamp(app.world.clock.now_millis());
        let moment = match parse_time(&text, now) {
            Some(time) => Moment::Time(time),
            None => Moment::Position(opened(app, context, field, &text).await?),
        };
        input.set_value(field, value(&moment)?);
    }
    if let Some(text) = input.text("at_least").map(str::to_owned) {
        input.set("at_least", opened(app, context, "at_least", &text).await?.to_string());
    }
    for flag in ["brief", "fresh", "status", "todays_rules"] {
        if let Some(text) = input.text(flag).map(str::to_owned) {
            input.set_value(flag, Value::Bool(parse_flag(flag, &text)?));
        }
    }
    if let Some(text) = input.text("health").map(str::to_owned) {
        input.set_value("health", value(&parse_states(&text)?)?);
    }
    Ok(())
}

/// A time, or one so long before now; `None` for what must be a position.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let ago = |text: &str| {
        let ago = parse_duration(text.strip_prefix('-')?).ok()?;
        Some(now.plus_millis(i64::try_from(ago.as_millis()).ok()?.saturating_neg()))
    };
    ago(text).or_else(|| Timestamp::parse(text).ok())
}

async fn opened(app: &App, context: &RequestContext, field: &str, text: &str) -> Result<Position, Refusal> {
    let cursors = Cursors::of(&*app.keys, &*app.log, context.organization).await?;
    let opened = cursors.open(field, text).map_err(|refusal| match field {
        "at" | "from" | "to" => Refusal::invalid(
            field,
            "must be a time such as 2026-01-31T12:00:00Z, how long ago such as -15m, or the position of an answer about objects or of an event of the stream objects",
        ),
        _ => refusal,
    })?;
    Ok(if field == "at_least" { opened.covering() } else { opened.position })
}

fn parse_flag(field: &str, text: &str) -> Result<bool, Refusal> {
    match text {
        "true" | "" => Ok(true),
        "false" => Ok(false),
        _ => Err(Refusal::invalid(field, "must be true or false")),
    }
}

fn parse_states(text: &str) -> Result<Vec<HealthState>, Refusal> {
    let state = |name: &str| {
        serde_json::from_value(Value::String(name.trim().to_owned()))
            .map_err(|error| Refusal::invalid("health", error.to_string()))
    };
    text.split(',').filter(|name| !name.trim().is_empty()).map(state).collect()
}

async fn answer(app: &App, context: &RequestContext, mut reply: Value) -> Result<Response, Refusal> {
    if let Some(position) = reply.pointer_mut(POSITION) {
        let cursors = Cursors::of(&*app.keys, &*app.log, context.organization).await?;
        let clear: Position = serde_json::from_value(position.take()).map_err(|error| internal(&error))?;
        let cursor = Cursor { position: clear, within: None };
        *position = Value::String(cursors.seal(&*app.world.random, &cursor));
    }
    // Where a change stands in the log tells how much others do.
    for item in reply.pointer_mut("/items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = item.as_object_mut() {
            fields.remove(SEQUENCE);
        }
    }
    json(&reply)
}

fn value<T: Serialize>(of: &T) -> Result<Value, Refusal> {
    serde_json::to_value(of).map_err(|error| internal(&error))
}

fn internal(error: &serde_json::Error) -> Refusal {
    Refusal::new(RefusalKind::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_may_be_a_time_or_how_long_ago_it_was() {
        let now = Timestamp(3_600_000);
        assert_eq!(parse_time("-15m", now), Some(Timestamp(2_700_000)));
        assert_eq!(parse_time("-1h30m", now), Some(Timestamp(-1_800_000)));
        assert_eq!(parse_time("1970-01-01T00:00:01Z", now), Some(Timestamp(1_000)));
        for position in ["start", "p_AAAA", "-", "-15", "15m", ""] {
            assert_eq!(parse_time(position, now), None, "{position}");
        }
    }

    #[test]
    fn a_flag_is_true_or_false() {
        assert_eq!((parse_flag("brief", ""), parse_flag("brief", "false")), (Ok(true), Ok(false)));
        assert_eq!(parse_flag("brief", "yes").unwrap_err().field.as_deref(), Some("brief"));
    }

    #[test]
    fn states_of_health_stand_in_one_text() {
        let states = vec![HealthState::Degraded, HealthState::Unknown];
        assert_eq!(parse_states("degraded, unknown,"), Ok(states));
        assert_eq!(parse_states(""), Ok(Vec::new()));
        let wrong = parse_states("degraded,ill").unwrap_err();
        assert_eq!(wrong.field.as_deref(), Some("health"));
        assert!(wrong.message.contains("ill") && wrong.message.contains("progressing"), "{wrong}");
    }
}
