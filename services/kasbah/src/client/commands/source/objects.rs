//! `kasbah source objects …`: the objects of a source, one a line.

use events::SourceId;
use events::observation::Write;
use events::requests::status::{ObjectCounts, ObjectStatus};

use super::show::state;
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::print::{Cell, Style, Table, age};
use crate::client::session::Session;

/// Letters of a reason; what the API server says of an object may be long.
const LISTED: usize = 100;

pub(super) async fn run(session: &Session, id: SourceId, limit: LimitArgs) -> Result<(), Failure> {
    let id = id.to_string();
    let path = ["sources", id.as_str(), "objects"];
    let mut listing = Listing::<ObjectStatus>::of(&session.api, &path, &[], limit);
    let mut printed = session.printer.list();
    while let Some(objects) = listing.next().await? {
        printed.page(objects, rows)?;
    }
    printed.end("none: no object of this source is known in the cluster")
}

pub(super) fn rows(all: &[ObjectStatus], style: Style) -> Table {
    let mut table = Table::new(&["OBJECT", "STATE", "HEALTH", "WRITTEN", "RETRY", "REASON"]);
    let ago = |moment| format!("{} ago", age(moment, style.now));
    for one in all {
        let health = one.health.as_ref().map(|health| health.status.as_str());
        let written = one.written.map(|(write, moment)| format!("{} {}", written(write), ago(moment)));
        let retry = one.failure.as_ref().and_then(|failure| failure.retry_at);
        table.row([
            one.identity.to_string().into(),
            state(one.state),
            Cell::or_dash(health),
            Cell::or_dash(written.as_deref()),
            Cell::or_dash(retry.map(|moment| crate::client::print::at(moment, style.now)).as_deref()),
            Cell::or_dash(reason(one).as_deref()).at_most(LISTED),
        ]);
    }
    table
}

const fn written(write: Write) -> &'static str {
    match write {
        Write::Created => "created",
        Write::Changed => "changed",
        Write::Unchanged => "found",
        Write::Replaced => "replaced",
    }
}

/// What is worst of it, in words.
fn reason(one: &ObjectStatus) -> Option<String> {
    if let Some(failure) = &one.failure {
        return Some(failure.message.clone());
    }
    if let Some(drift) = &one.drift {
        let fields: Vec<String> =
            drift.fields.iter().map(|field| format!("{} by {}", field.path, field.manager)).collect();
        let what = if drift.deleted { "was deleted" } else { "was changed" };
        return Some(format!("{what}{}{}", if fields.is_empty() { "" } else { ": " }, fields.join(", ")));
    }
    if let Some(health) = &one.health {
        return Some(health.message.clone());
    }
    let added = one.extra.iter().map(|field| format!("{} by {}", field.path, field.manager));
    let added = added.reduce(|all, one| format!("{all}, {one}")).map(|all| format!("added: {all}"));
    one.kept.clone().or(added)
}

/// All in numbers; what is zero is left out.
pub(super) fn counts(counts: &ObjectCounts) -> String {
    let parts = [
        (counts.failed, "failed"),
        (counts.drifted, "drifted"),
        (counts.degraded, "degraded"),
        (counts.progressing, "progressing"),
        (counts.suspended, "suspended"),
    ];
    let said = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    format!("{}{}", counts.owned, said.collect::<String>())
}

#[cfg(test)]
mod tests {
    use events::requests::status::{ObjectDrift, ObjectHealth, ObjectTrouble, State};
    use events::{ObjectIdentity, Timestamp};

    use super::*;

    fn object(name: &str) -> ObjectStatus {
        ObjectStatus {
            identity: ObjectIdentity {
                group: "apps".into(),
                version: "v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: name.into(),
            },
            state: State::InSync,
            health: None,
            drift: None,
            failure: None,
            written: Some((Write::Created, Timestamp(60_000))),
            owned: true,
            adopted: false,
            kept: None,
            extra: Vec::new(),
        }
    }

    #[test]
    fn each_object_says_what_is_worst_of_it() {
        let style = Style { colour: false, now: Timestamp(120_000) };
        let since = Timestamp(90_000);
        let health = ObjectHealth {
            status: "degraded".into(),
            message: "pod web-1: container web is in ErrImagePull".into(),
            since,
            optional: false,
        };
        let failure = ObjectTrouble {
            message: "exceeded quota".into(),
            file: "a.yaml".into(),
            line: 3,
            since,
            retry_at: Some(Timestamp(150_000)),
        };
        let drift = ObjectDrift { since, deleted: true, fields: Vec::new() };
        let all = [
            object("fine"),
            ObjectStatus { state: State::Degraded, health: Some(health), ..object("ill") },
            ObjectStatus { state: State::OutOfSync, drift: Some(drift.clone()), ..object("gone") },
            ObjectStatus {
                state: State::OutOfSync,
                drift: Some(drift),
                failure: Some(failure),
                ..object("stuck")
            },
        ];
        let text = rows(&all, style).render(style, "");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("in sync") && lines[1].contains("created 1m ago"), "{text}");
        assert!(lines[2].contains("degraded") && lines[2].ends_with("ErrImagePull"), "{text}");
        assert!(lines[3].ends_with("was deleted"), "{text}");
        assert!(lines[4].contains("(in 30s)") && lines[4].ends_with("exceeded quota"), "{text}");
    }

    #[test]
    fn numbers_leave_out_what_is_zero() {
        let all = ObjectCounts { owned: 12, failed: 1, degraded: 2, ..ObjectCounts::default() };
        assert_eq!(counts(&all), "12, 1 failed, 2 degraded");
        assert_eq!(counts(&ObjectCounts::default()), "0");
    }
}
