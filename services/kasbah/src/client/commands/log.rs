//! `kasbah log …`.

mod copy;
mod export;
mod import;
mod line;
mod list;
mod names;
mod place;
mod replay;
mod tail;
mod trace;
mod verify;

use events::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::failure::Failure;
use crate::client::moment::Moment;
use crate::client::print::{Cell, Fields, Paint, Printer, Style, one_line};
use crate::client::session::Session;
use crate::client::settings::Common;
use names::EventNames;
use world::World;

/// What to do with the event log.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the newest events of your organization; follow new ones with -f
    Tail(tail::Tail),
    /// Show the history of a source, an agent or another aggregate
    Show {
        /// A source as AGENT/SOURCE, an agent, KIND/NAME, or KIND/ID such as source/0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55
        #[arg(value_name = "AGGREGATE")]
        aggregate: String,
        /// Only records since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
        since: Option<Moment>,
    },
    /// List the aggregates of your organization
    #[command(visible_alias = "list")]
    Ls(list::List),
    /// Show all consequences of a cause as a tree, from a push to the health of the last object
    Trace(trace::Trace),
    /// Verify the hash chains of your organization's decisions and the end of their partition. With --from, verify all partitions of
    /// a log, and in a folder also its blobs (on NATS, blobs are not checked). Fails if anything is damaged
    Verify(verify::Verify),
    /// Write a slice of a log into one compressed file
    Export(export::Export),
    /// Make a log from a slice, in a place without a log
    Import(import::Import),
    /// Copy a log with its keys and blobs to a place without a log, and verify the copy; continues an interrupted copy
    Copy(copy::Copy),
    /// Fold a slice with the services' models and show what each commit changed; needs no server
    Replay(replay::Replay),
}

/// Of a hash, for people.
const HASH_LETTERS: usize = 12;

/// Runs it. Commands that name a log, or a file, ask no server.
///
/// # Errors
/// When the server refuses or cannot be asked, a file or log cannot be read, or what was checked does not fit.
pub async fn run_with(
    command: Command,
    common: &Common,
    open: impl FnOnce(&Common) -> Result<Session, Failure>,
    world: &World,
) -> Result<(), Failure> {
    let style = Style::of_process(Timestamp(world.clock.now_millis()));
    let printer = Printer { format: common.output, style };
    match command {
        Command::Export(export) => export.run(printer, world).await,
        Command::Replay(replay) => replay.run(printer),
        Command::Import(import) => import.run(printer, world).await,
        Command::Copy(copy) => copy.run(printer, world).await,
        Command::Verify(verify) if verify.from.from.is_some() => {
            verify::everything(&verify.from, printer, world).await
        }
        Command::Ls(list) if list.from.from.is_some() => list.run_on_place(printer, world).await,
        command => run(command, &open(common)?).await,
    }
}

async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Tail(tail) => tail.run(session).await,
        Command::Ls(list) => list.run(session).await,
        Command::Trace(trace) => trace.run(session).await,
        Command::Show { aggregate, since } => show(session, &aggregate, since).await,
        Command::Export(_) | Command::Import(_) | Command::Copy(_) | Command::Replay(_) => Ok(()),
        Command::Verify(_) => {
            let verified: Value = session.api.send(Method::POST, &["log", "verify"], &json!({})).await?;
            session.printer.show(&verified, verified_text)?;
            match verified.get("ok").and_then(Value::as_bool) {
                Some(true) => Ok(()),
                _ => Err(Failure::Unsuccessful(
                    "the log does not verify; keep its files, and restore from a copy".to_owned(),
                )),
            }
        }
    }
}

async fn show(session: &Session, aggregate: &str, since: Option<Moment>) -> Result<(), Failure> {
    let aggregate = names::aggregate(session, aggregate).await?;
    let path = ["log", "aggregates", aggregate.kind.as_str(), &aggregate.id];
    let mut history: Value = session.api.get(&path, &[]).await?;
    if let Some(since) = since {
        keep_since(&mut history, since.before(Timestamp(session.world.clock.now_millis())));
    }
    let mut names = EventNames::ask(session).await?;
    for event in history.get("events").and_then(Value::as_array).into_iter().flatten() {
        names.learn(event);
    }
    names.put_beside(&mut history);
    session.printer.show(&history, |history, style| history_text(history, &names, style))
}

/// Leaves out what was recorded before a moment.
fn keep_since(history: &mut Value, since: Timestamp) {
    let recorded = |event: &Value| event.get("recordedat").and_then(Value::as_str).map(Timestamp::parse);
    if let Some(events) = history.get_mut("events").and_then(Value::as_array_mut) {
        events.retain(|event| matches!(recorded(event), Some(Ok(recorded)) if recorded >= since));
    }
    let mut versions = std::collections::BTreeSet::new();
    if let Some(events) = history.get("events").and_then(Value::as_array) {
        versions.extend(events.iter().map(|event| version_of(event, "aggregateversion")));
    }
    if let Some(commits) = history.get_mut("commits").and_then(Value::as_array_mut) {
        commits.retain(|commit| versions.contains(&version_of(commit, "version")));
    }
}

fn history_text(history: &Value, names: &EventNames, style: Style) -> String {
    let mut text = String::new();
    let subject = history.get("aggregate").and_then(Value::as_str).unwrap_or_default();
    if let Some(name) = names.subject(subject) {
        text.push_str(&format!("{subject} {}\n", one_line(name)));
    }
    if history.get("more").and_then(Value::as_bool) == Some(true) {
        text.push_str("Older events are omitted.\n");
    }
    let list = |name: &str| history.get(name).and_then(Value::as_array).into_iter().flatten();
    for commit in list("commits") {
        let version = version_of(commit, "version");
        for event in list("events").filter(|event| version_of(event, "aggregateversion") == version) {
            text.push_str(&format!("{version:>5}  {}\n", line::of_aggregate(event, names, style)));
        }
        text.push_str(&format!("       {}\n", Paint::Dim.on(&commit_text(commit), style.colour)));
    }
    text
}

fn version_of(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// What a commit was made for, and how it is known again.
fn commit_text(commit: &Value) -> String {
    let text = |name: &str| commit.get(name).and_then(Value::as_str).map(one_line);
    let command = text("command").unwrap_or_else(|| "no command".to_owned());
    let hash: String = text("hash").unwrap_or_default().chars().take(HASH_LETTERS).collect();
    format!("{command}, commit {}, sha256 {hash}", text("id").unwrap_or_default())
}

fn verified_text(verified: &Value, style: Style) -> String {
    let count = |name: &str| verified.get(name).and_then(Value::as_u64).unwrap_or_default().to_string();
    let ok = verified.get("ok").and_then(Value::as_bool) == Some(true);
    let result = if ok { Cell::painted("intact", Paint::Good) } else { Cell::painted("BROKEN", Paint::Bad) };
    let checkpoint = verified.get("checkpoint").and_then(Value::as_bool) == Some(true);
    let mut fields = Fields::new()
        .with("Chains", result)
        .with("Checkpoint", if checkpoint { "the partition's matches" } else { "none yet" })
        .with("Aggregates", count("aggregates"))
        .with("Commits", count("commits"))
        .with("Events", count("events"));
    if verified.get("unknown").and_then(Value::as_u64).is_some_and(|unknown| unknown > 0) {
        let text = format!("{} of a newer server", count("unknown"));
        fields = fields.with("Unknown", Cell::painted(&text, Paint::Odd));
    }
    if let Some(broken) = verified.get("broken") {
        let text = |name: &str| broken.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = broken.get("version").and_then(Value::as_u64).unwrap_or_default();
        let said = format!("{} at version {version}: {}", text("aggregate"), text("detail"));
        fields = fields.with("First broken", Cell::painted(&said, Paint::Bad));
    }
    fields.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style { colour: false, now: Timestamp(0) };

    #[test]
    fn a_broken_chain_is_named() {
        let verified = json!({
            "ok": false, "aggregates": 2, "commits": 5, "events": 6, "unknown": 1,
            "broken": {"aggregate": "source/a", "version": 4, "detail": "a version is missing or out of order"},
        });
        assert_eq!(
            verified_text(&verified, STYLE),
            "Chains        BROKEN\n\
             Checkpoint    none yet\n\
             Aggregates    2\n\
             Commits       5\n\
             Events        6\n\
             Unknown       1 of a newer server\n\
             First broken  source/a at version 4: a version is missing or out of order\n"
        );
    }

    #[test]
    fn a_history_counts_versions() {
        let event = json!({
            "type": "kasbah.source.suspended", "subject": "source/a", "time": "1970-01-01T00:00:01.000Z",
            "aggregateversion": 7, "data": {"source": "a", "reason": "freeze"},
        });
        let commit = json!({
            "id": "0190b6a2", "version": 7, "hash": "abcdefabcdefabcdef", "command": "delivery.suspend-source",
        });
        let history = json!({
            "aggregate": "source/a", "version": 7, "more": true, "commits": [commit], "events": [event],
        });
        assert_eq!(
            history_text(&history, &EventNames::default(), STYLE),
            "Older events are omitted.\n    7  1970-01-01T00:00:01.000Z  source.suspended         freeze\n       \
             delivery.suspend-source, commit 0190b6a2, sha256 abcdefabcdef\n"
        );
    }
}
