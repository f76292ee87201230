//! `kasbah log trace`: a chain as a tree, with durations.

use std::collections::BTreeMap;

use events::{CorrelationId, RefusalKind, Timestamp};
use serde_json::Value;

use super::line;
use super::names::{EventNames, aggregate};
use crate::client::failure::Failure;
use crate::client::feed::Feed;
use crate::client::moment::Moment;
use crate::client::print::{Paint, Style};
use crate::client::session::Session;

/// Shortest beginning of a Git commit's id.
const SHORTEST_COMMIT: usize = 7;

/// Shows a chain.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// A Git commit, a source as AGENT/SOURCE (its newest chain), the id of an event, or the id of a chain (`correlationid` in
    /// `kasbah log tail -o json`)
    #[arg(value_name = "WHAT")]
    what: String,
    /// Only chains with a record since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
}

/// What the chain that is wanted has.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// The id of the chain, or of one of its events.
    Id(&'a str),
    /// The beginning of a Git commit's id.
    Commit(String),
    /// An event of this aggregate, the newest.
    Aggregate(&'a str),
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Self {
        let is_commit = (SHORTEST_COMMIT..=40).contains(&text.len());
        if is_commit && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Self::Commit(text.to_ascii_lowercase());
        }
        // An observation's id is its writer's, an epoch and a sequence.
        let is_observation = text.split('/').count() == 4;
        if text.parse::<CorrelationId>().is_ok() || is_observation {
            Self::Id(text)
        } else {
            Self::Aggregate(text)
        }
    }

    fn has(&self, event: &Value) -> bool {
        match self {
            Self::Id(id) => of(event, "id") == *id,
            Self::Commit(prefix) => {
                event.get("data").is_some_and(|data| of(data, "commit").starts_with(prefix.as_str()))
            }
            Self::Aggregate(_) => true,
        }
    }
}

impl Trace {
    /// Prints it.
    ///
    /// # Errors
    /// When there is no such chain, or the server refuses or cannot be asked.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let wanted = Wanted::parse(&self.what);
        let mut traced = Value::Null;
        if let Wanted::Id(id) = wanted
            && id.parse::<CorrelationId>().is_ok()
        {
            match session.api.get(&["log", "traces", id], &[]).await {
                Err(Failure::Refused { refusal, .. }) if refusal.kind == RefusalKind::NotFound => {}
                found => traced = found?,
            }
        }
        if events(&traced).next().is_none() {
            let chain = self.find(session, &wanted).await?;
            traced = session.api.get(&["log", "traces", &chain], &[]).await?;
        }
        let mut names = EventNames::ask(session).await?;
        events(&traced).for_each(|event| names.learn(event));
        names.put_beside(&mut traced);
        session.printer.show(&traced, |traced, style| text(traced, &names, style))
    }

    /// The newest chain with what is wanted.
    async fn find(&self, session: &Session, wanted: &Wanted<'_>) -> Result<String, Failure> {
        let mut query = Vec::new();
        if let Wanted::Aggregate(named) = wanted {
            query.push(("aggregate", aggregate(session, named).await?.to_string()));
        }
        let since = self.since.map(|since| since.before(Timestamp(session.world.clock.now_millis())));
        let mut chains = Chains::default();
        let feed = Feed { path: &["log", "events"], query, follow: false };
        let everything = feed.each(session, None, |event| {
            let recorded = time(&event, "recordedat");
            if wanted.has(&event) && since.is_none_or(|since| recorded.is_some_and(|at| at >= since)) {
                chains.add(recorded, of(&event, "correlationid"));
            }
            Ok(())
        });
        everything.await?;
        let Some(newest) = chains.newest() else {
            return Err(Failure::not_found(&format!("chain with {}", self.what)));
        };
        if chains.0.len() > 1 && !matches!(wanted, Wanted::Aggregate(_)) {
            eprintln!("note: {} chains have {}; the newest is shown", chains.0.len(), self.what);
        }
        Ok(newest)
    }
}

/// Chains, each with when something of it was recorded last.
#[derive(Debug, Default)]
struct Chains(BTreeMap<String, Option<Timestamp>>);

impl Chains {
    fn add(&mut self, recorded: Option<Timestamp>, chain: &str) {
        if !chain.is_empty() {
            let last = self.0.entry(chain.to_owned()).or_default();
            *last = recorded.max(*last);
        }
    }

    fn newest(&self) -> Option<String> {
        let newest = self.0.iter().max_by_key(|(_, recorded)| **recorded);
        newest.map(|(chain, _)| chain.clone())
    }
}

fn events(traced: &Value) -> impl Iterator<Item = &Value> {
    traced.get("events").and_then(Value::as_array).into_iter().flatten()
}

fn text(traced: &Value, names: &EventNames, style: Style) -> String {
    let events: Vec<&Value> = events(traced).collect();
    let begun = time(traced, "begun");
    let mut text = format!("chain {}", of(traced, "correlationid"));
    if let Some(begun) = begun {
        text.push_str(&format!(", begun {begun}"));
    }
    text.push('\n');
    let mut tree = Tree { below: BTreeMap::new(), events, begun };
    tree.grow();
    let mut rows = Vec::new();
    tree.rows(None, "", &mut rows);
    let widest = rows.iter().map(Row::width).max().unwrap_or(0);
    rows.iter().for_each(|row| text.push_str(&row.line(widest, names, style)));
    if traced.get("more").and_then(Value::as_bool) == Some(true) {
        text.push_str("Later events are omitted.\n");
    }
    text
}

fn of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn time(value: &Value, name: &str) -> Option<Timestamp> {
    value.get(name).and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok())
}

fn sync(event: &Value) -> Option<&str> {
    event.get("data")?.get("sync")?.as_str()
}

struct Tree<'a> {
    events: Vec<&'a Value>,
    /// Effects by their cause; those whose cause is not in the chain under `None`.
    below: BTreeMap<Option<usize>, Vec<usize>>,
    begun: Option<Timestamp>,
}

/// One event of the tree.
struct Row<'a> {
    /// Where it hangs, and how long after its cause it happened.
    branch: String,
    short_type: String,
    paint: Paint,
    event: &'a Value,
}

impl Row<'_> {
    fn width(&self) -> usize {
        self.branch.chars().count() + self.short_type.chars().count()
    }

    fn line(&self, widest: usize, names: &EventNames, style: Style) -> String {
        let Self { branch, short_type, paint, event } = self;
        let space = " ".repeat(widest.saturating_sub(self.width()) + 2);
        let summary = Some(line::summary_of(event, names)).filter(|summary| !summary.is_empty());
        let summary = summary.map(|summary| summary + "  ").unwrap_or_default();
        let subject = line::subject(event, names, style);
        format!("{branch}{}{space}{summary}{subject}\n", paint.on(short_type, style.colour))
    }
}

impl<'a> Tree<'a> {
    fn grow(&mut self) {
        let ids: BTreeMap<&str, usize> =
            self.events.iter().enumerate().map(|(index, event)| (of(event, "id"), index)).collect();
        let mut begins: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, event) in self.events.iter().enumerate() {
            let wants = matches!(
                of(event, "type"),
                "kasbah.bundle.desired" | "kasbah.sync.requested" | "kasbah.source.removed"
            );
            if let (true, Some(sync)) = (wants, sync(event)) {
                begins.entry(sync).or_insert(index);
            }
        }
        let mut at_work: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, event) in self.events.iter().enumerate() {
            let is_begin = of(event, "type") == "kasbah.observed.sync-started";
            let caused = ids.get(of(event, "causationid")).copied();
            let wanted = sync(event).and_then(|sync| {
                let at_work = at_work.get(sync).filter(|_| !is_begin);
                at_work.or_else(|| begins.get(sync)).copied()
            });
            let cause = caused.or(wanted).filter(|cause| *cause != index);
            if let (true, Some(sync)) = (is_begin, sync(event)) {
                at_work.entry(sync).or_insert(index);
            }
            self.below.entry(cause).or_default().push(index);
        }
        let times: Vec<_> = self.events.iter().map(|event| time(event, "time")).collect();
        for effects in self.below.values_mut() {
            effects.sort_by_key(|index| times.get(*index).copied().flatten());
        }
    }

    fn rows(&self, cause: Option<usize>, indent: &str, rows: &mut Vec<Row<'a>>) {
        let Some(effects) = self.below.get(&cause) else { return };
        let before = cause.and_then(|cause| time(self.events.get(cause)?, "time")).or(self.begun);
        for (place, index) in effects.iter().enumerate() {
            let Some(event) = self.events.get(*index) else { continue };
            let last = place + 1 == effects.len();
            let after = match (before, time(event, "time")) {
                (Some(before), Some(then)) => after(then.millis_since(before)),
                _ => String::new(),
            };
            let branch = if last { "└─ " } else { "├─ " };
            let (short_type, paint) = line::short_type(event);
            rows.push(Row { branch: format!("{indent}{branch}{after:>8}  "), short_type, paint, event });
            self.rows(Some(*index), &format!("{indent}{}", if last { "   " } else { "│  " }), rows);
        }
    }
}

/// A duration; clocks of clusters may be behind the server's.
fn after(millis: i64) -> String {
    match millis {
        ..0 => format!("-{}ms", millis.unsigned_abs()),
        0..1000 => format!("+{millis}ms"),
        1000..60_000 => format!("+{}.{:01}s", millis / 1000, millis % 1000 / 100),
        _ => format!("+{}m{:02}s", millis / 60_000, millis % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, id: &str, cause: Option<&str>, millis: i64, data: Value) -> Value {
        let time = Timestamp(1_000_000 + millis).to_string();
        let mut event = json!({ "type": format!("kasbah.{kind}"), "id": id, "time": time, "data": data,
            "subject": "s" });
        if let Some(cause) = cause {
            event["causationid"] = json!(cause);
        }
        event
    }

    #[test]
    fn a_chain_is_found_by_commit_source_or_event() {
        let uuid = "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55";
        let observed = "agent/0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55/3/17";
        for (text, wanted) in [
            ("4F1A5B10C0", Wanted::Commit("4f1a5b10c0".to_owned())),
            (uuid, Wanted::Id(uuid)),
            (observed, Wanted::Id(observed)),
            ("demo/staging", Wanted::Aggregate("demo/staging")),
            ("demo", Wanted::Aggregate("demo")),
            ("facade", Wanted::Aggregate("facade")),
        ] {
            assert_eq!(Wanted::parse(text), wanted);
        }
        let advanced = event("source.advanced", uuid, None, 0, json!({"commit": "4f1a5b10c0ffee"}));
        assert!(Wanted::parse("4f1a5b1").has(&advanced) && Wanted::parse(uuid).has(&advanced));
        assert!(!Wanted::parse("4f1a5b2").has(&advanced) && !Wanted::parse(observed).has(&advanced));
        let mut chains = Chains::default();
        for (at, chain) in [(1, "a"), (3, "b"), (2, "a"), (9, "")] {
            chains.add(Some(Timestamp(at)), chain);
        }
        assert_eq!((chains.newest().as_deref(), chains.0.len()), (Some("b"), 2));
    }

    #[test]
    fn effects_stand_below_their_causes_with_the_time_between() {
        let traced = json!({
            "correlationid": "c", "begun": Timestamp(1_000_000).to_string(), "more": false,
            "events": [
                event("source.advanced", "1", None, 40, json!({"commit": "abc"})),
                event("bundle.desired", "2", Some("1"), 90, json!({"sync": "x"})),
                event("sync.started", "3", Some("2"), 1_200, json!({"sync": "x"})),
                event("sync.finished", "4", Some("2"), 75_090, json!({"sync": "x"})),
                event("observed.sync-started", "a/1/1", None, 1_100, json!({"sync": "x"})),
                event("observed.object-applied", "a/1/2", None, 1_150, json!({"sync": "x"})),
                event("observed.health-changed", "a/1/3", None, 1_090, json!({"sync": "x", "status": "healthy"})),
            ],
        });
        let style = Style { colour: false, now: Timestamp(0) };
        let said = text(&traced, &EventNames::default(), style);
        let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "chain c, begun 1970-01-01T00:16:40.000Z",
                "└─    +40ms  source.advanced                   commit abc  s",
                "   └─    +50ms  bundle.desired                 s",
                "      ├─    +1.0s  observed.sync-started       s",
                "      │  ├─    -10ms  observed.health-changed  healthy  s",
                "      │  └─    +50ms  observed.object-applied  s",
                "      ├─    +1.1s  sync.started                s",
                "      └─   +1m15s  sync.finished               s",
            ]
        );
    }
}
