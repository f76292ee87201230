//! How sources stand, for people.

use events::delivery::{HoldReason, ObjectFailure, SyncCounts, SyncOutcome};
use events::requests::delivery::{RejectedBundle, SourceView, SyncView};
use events::requests::status::{Condition, State, Status};

use super::super::{finding, warnings};
use crate::client::names::Names;
use crate::client::print::{Cell, Fields, Paint, Style, Table, age, at, one_line, short_commit};

/// Letters of a state in a list; what the API server says of an object may be long.
const LISTED: usize = 100;

/// Sources, one a line.
pub(super) fn rows(all: &[SourceView], names: &Names, style: Style) -> Table {
    let mut table = Table::new(&["SOURCE", "COMMIT", "SYNCED", "OBJECTS", "STATE", "WHY"]);
    for one in all {
        let name = format!("{}/{}", names.agent(one.agent), one.configuration.name);
        table.row([
            name.into(),
            Cell::or_dash(one.synced_commit.as_deref().map(short_commit)),
            Cell::or_dash(one.synced_at.map(|moment| format!("{} ago", age(moment, style.now))).as_deref()),
            one.inventory.to_string().into(),
            state(one.status.state),
            why(&one.status).at_most(LISTED),
        ]);
    }
    table
}

/// In a word how a source or an object stands.
pub(in crate::client::commands) fn state(state: State) -> Cell {
    Cell::painted(state.words(), paint_of(state))
}

const fn paint_of(state: State) -> Paint {
    match state {
        State::InSync => Paint::Good,
        State::Progressing | State::Held | State::Suspended => Paint::Odd,
        State::Degraded | State::OutOfSync | State::Rejected | State::Stale | State::Unknown => Paint::Bad,
    }
}

/// In one line, why.
fn why(status: &Status) -> Cell {
    match status.why() {
        Some(why) => Cell::painted(&why, paint_of(status.state)),
        None => Cell::or_dash(None),
    }
}

/// All that is so, one a line.
pub(in crate::client::commands) fn conditions(all: &[Condition], style: Style) -> String {
    let mut table = Table::new(&["STATE", "REASON", "SINCE", "RETRY", "MESSAGE"]);
    for one in all {
        table.row([
            state(one.state),
            one.reason.code().into(),
            Cell::or_dash(one.since.map(|moment| format!("{} ago", age(moment, style.now))).as_deref()),
            Cell::or_dash(one.retry_at.map(|moment| at(moment, style.now)).as_deref()),
            one.message.as_str().into(),
        ]);
    }
    table.render(style, "none\n")
}

/// One source.
pub(super) fn text(view: &SourceView, names: &Names, style: Style) -> String {
    let configuration = &view.configuration;
    let commit = |commit: Option<&String>| Cell::or_dash(commit.map(String::as_str));
    let mut fields = Fields::new()
        .with("Source", format!("{}/{}", names.agent(view.agent), configuration.name))
        .with("Id", view.id.to_string())
        .with("State", state(view.status.state))
        .with_some("Why", view.status.why().is_some().then(|| why(&view.status)))
        .with("Follows", format!("{} of {}", configuration.reference, names.project(configuration.project)))
        .with("Paths", configuration.include.join(", "))
        .with("Newest commit", commit(view.newest_commit.as_ref()))
        .with("Newest good", commit(view.newest_good_commit.as_ref()))
        .with("Desired commit", commit(view.desired_commit.as_ref()))
        .with("Synced commit", synced(view, style))
        .with("Objects", super::objects::counts(&view.status.objects));
    if let Some(reason) = &view.suspended {
        fields = fields
            .with("Suspended", Cell::painted(if reason.is_empty() { "yes" } else { reason }, Paint::Odd));
    }
    fields = fields.with_some("Pinned to", view.pinned.as_deref());
    fields = fields.with_some("Cannot be fetched", view.fetch_failure.as_deref().map(bad));
    fields = fields.with_some("Blocked", view.blocked.as_deref().map(bad));
    if let Some(held) = &view.held {
        let text = format!("commit {}: {}", short_commit(&held.commit), hold(&held.reason));
        fields = fields.with("Held", Cell::painted(&text, Paint::Odd));
    }
    let mut text = fields.render(style);
    text.push_str(&format!("\n{}\n", Paint::Strong.on("Conditions", style.colour)));
    text.push_str(&conditions(&view.status.conditions, style));
    if !view.status.not_well.is_empty() {
        text.push_str(&format!("\n{}\n", Paint::Strong.on("Not well", style.colour)));
        text.push_str(&super::objects::rows(&view.status.not_well, style).render(style, ""));
    }
    text.push_str(&warnings(&view.warnings, style));
    if let Some(rejected) = &view.rejected {
        text.push_str(&rejection(rejected, style));
    }
    if view.wants > 0 {
        text.push_str(&wanted(view, style));
    }
    if view.kept > 0 {
        text.push_str(&kept(view, style));
    }
    if let Some(sync) = &view.sync {
        text.push_str(&sync_text(sync, style));
    }
    text
}

/// Objects that other sources of the agent hold.
fn wanted(view: &SourceView, style: Style) -> String {
    let objects = if view.wants == 1 { "object" } else { "objects" };
    let head = format!("{} {objects} that other sources of the agent hold", view.wants);
    let mut text = Fields::new().with("Wanted", bad(&head)).render(style);
    for wanted in &view.wanted {
        let line = format!("{}: held by source {}", wanted.object, wanted.holder_name);
        text.push_str(&format!("  {}\n", one_line(&line)));
    }
    let more = view.wants.saturating_sub(u32::try_from(view.wanted.len()).unwrap_or(u32::MAX));
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

/// Objects that were to be pruned and stay in place.
fn kept(view: &SourceView, style: Style) -> String {
    let stay = if view.kept == 1 {
        "object that was to be pruned stays"
    } else {
        "objects that were to be pruned stay"
    };
    let head = format!("{} {stay} in place", view.kept);
    let mut text = Fields::new().with("Kept", Cell::painted(&head, Paint::Odd)).render(style);
    for kept in &view.kept_objects {
        text.push_str(&format!("  {}\n", one_line(&format!("{}: {}", kept.identity, kept.reason))));
    }
    let more = view.kept.saturating_sub(u32::try_from(view.kept_objects.len()).unwrap_or(u32::MAX));
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

fn bad(text: &str) -> Cell {
    Cell::painted(text, Paint::Bad)
}

fn synced(view: &SourceView, style: Style) -> Cell {
    match (&view.synced_commit, view.synced_at) {
        (Some(commit), Some(moment)) => format!("{commit}, {}", at(moment, style.now)).into(),
        (commit, _) => Cell::or_dash(commit.as_deref()),
    }
}

fn hold(reason: &HoldReason) -> String {
    match reason {
        HoldReason::Empty => "it has no objects; `kasbah source confirm` prunes them all".to_owned(),
        HoldReason::LargePrune { prunes, inventory } => {
            format!("it would prune {prunes} of {inventory} objects; `kasbah source confirm` lets it")
        }
    }
}

fn rejection(rejected: &RejectedBundle, style: Style) -> String {
    let head = format!("commit {}; the last good one stays", short_commit(&rejected.commit));
    let mut text = Fields::new().with("Rejected", bad(&head)).render(style);
    for found in &rejected.findings {
        text.push_str(&format!("  {}\n", one_line(&finding(found))));
    }
    if rejected.more > 0 {
        text.push_str(&format!("  and {} more\n", rejected.more));
    }
    text.push_str(&warnings(&rejected.warnings, style));
    text
}

fn sync_text(sync: &SyncView, style: Style) -> String {
    let mut text = Fields::new()
        .with("Sync", sync_head(sync, style))
        .with("Counts", counts(&sync.counts))
        .with_some("Waits for", sync.waiting.as_deref())
        .with_some("Retry", sync.retry_at.map(|moment| at(moment, style.now)))
        .render(style);
    text.insert(0, '\n');
    for failure in &sync.failures {
        text.push_str(&format!("  {}\n", one_line(&failure_text(failure))));
    }
    let shown = u32::try_from(sync.failures.len()).unwrap_or(u32::MAX);
    let all = sync.counts.failed.saturating_add(sync.counts.unhealthy).saturating_add(sync.counts.waiting);
    let more = all.saturating_sub(shown);
    if shown > 0 && more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

fn sync_head(sync: &SyncView, style: Style) -> Cell {
    let commit = short_commit(&sync.commit);
    let ended = sync.finished_at.map(|moment| format!(", {}", at(moment, style.now))).unwrap_or_default();
    let (words, paint) = match (sync.outcome, sync.started_at) {
        (Some(outcome), _) => outcome_text(outcome),
        (None, Some(_)) => ("is running", Paint::Plain),
        (None, None) => ("has not begun", Paint::Odd),
    };
    Cell::painted(&format!("of commit {commit} {words}{ended}"), paint)
}

/// How a sync ended.
pub(super) const fn outcome_text(outcome: SyncOutcome) -> (&'static str, Paint) {
    match outcome {
        SyncOutcome::Succeeded => ("succeeded", Paint::Good),
        SyncOutcome::Unhealthy => ("applied everything, but not all of it became healthy", Paint::Odd),
        SyncOutcome::Failed => ("failed", Paint::Bad),
        SyncOutcome::Superseded => ("was superseded by a newer bundle", Paint::Dim),
        SyncOutcome::Interrupted => ("was interrupted", Paint::Odd),
    }
}

/// Counts in words; what is zero is left out.
pub(super) fn counts(counts: &SyncCounts) -> String {
    let parts = [
        (counts.created, "created"),
        (counts.changed, "changed"),
        (counts.pruned, "pruned"),
        (counts.unchanged, "unchanged"),
        (counts.failed, "failed"),
        (counts.unhealthy, "not healthy"),
        (counts.waiting, "waiting for their kinds"),
    ];
    let said: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

/// Where and what: `file:line object: message`.
pub(super) fn failure_text(failure: &ObjectFailure) -> String {
    let place = match (failure.file.as_str(), failure.line) {
        ("", _) => String::new(),
        (file, 0) => format!("{file} "),
        (file, line) => format!("{file}:{line} "),
    };
    format!("{place}{}: {}", failure.identity, failure.message)
}

#[cfg(test)]
pub(super) mod tests;
