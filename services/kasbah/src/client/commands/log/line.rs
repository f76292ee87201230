//! One event in one line.

use serde_json::Value;

use super::names::EventNames;
use crate::client::print::{Paint, Style, one_line, short_commit};

/// Longest summary, in letters.
const LONGEST_SUMMARY: usize = 160;

/// Time, type, subject, and what people want to know of the data.
pub(super) fn of_event(event: &Value, names: &EventNames, style: Style) -> String {
    let head = format!("{}  {}", head(event, style), subject(event, names, style));
    with_summary(head, event, names)
}

/// What an event belongs to, by id and by name.
pub(super) fn subject(event: &Value, names: &EventNames, style: Style) -> String {
    let subject = text(event, "subject");
    let id = Paint::Dim.on(&one_line(subject), style.colour);
    match names.subject(subject) {
        Some(name) => format!("{id} {}", one_line(name)),
        None => id,
    }
}

/// Type without what all have in common, and how it is painted.
pub(super) fn short_type(event: &Value) -> (String, Paint) {
    let full = text(event, "type");
    let short = one_line(full.strip_prefix("kasbah.").unwrap_or(full));
    let painted = paint(&short);
    (short, painted)
}

/// What people want to know of an event, in a line: what it is about beside its subject, its data, and who caused it. Empty where there is
/// nothing.
pub(super) fn summary_of(event: &Value, names: &EventNames) -> String {
    let summary = summary(event.get("data").unwrap_or(&Value::Null));
    let parts =
        [names.mentioned(event).map(one_line), Some(summary), names.actor(event).map(|by| one_line(&by))];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The same without the subject, which is known.
pub(super) fn of_aggregate(event: &Value, names: &EventNames, style: Style) -> String {
    with_summary(head(event, style), event, names)
}

fn head(event: &Value, style: Style) -> String {
    format!("{}  {}", one_line(text(event, "time")), event_type(event, style))
}

fn event_type(event: &Value, style: Style) -> String {
    let (short, paint) = short_type(event);
    paint.on(&format!("{short:<23}"), style.colour)
}

fn with_summary(head: String, event: &Value, names: &EventNames) -> String {
    format!("{head}  {}", summary_of(event, names)).trim_end().to_owned()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn paint(event_type: &str) -> Paint {
    let last = event_type.rsplit('.').next().unwrap_or_default();
    match last {
        "rejected" | "failed" | "object-failed" | "source-blocked" | "refused" | "tunnel-refused"
        | "unreadable" => Paint::Bad,
        "held" | "suspended" | "drift-seen" | "gap" | "objects-gap" | "kind-blind" | "sync-waiting" => {
            Paint::Odd
        }
        "recovered" | "finished" | "sync-finished" => Paint::Good,
        _ => Paint::Plain,
    }
}

/// What people want to know of an event's data: names, commits, outcomes, reasons, the first finding.
fn summary(data: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !part.is_empty() {
            parts.push(one_line(&part));
        }
    };
    for name in ["name", "role", "outcome", "status", "write"] {
        add(text(data, name).to_owned());
    }
    add(short(text(data, "commit")));
    add(identity(data));
    add(data.get("of").map(observed_kind).unwrap_or_default());
    for (name, what) in [("objects", "objects"), ("prunes", "to prune"), ("dropped", "dropped")] {
        if let Some(count) = data.get(name).and_then(Value::as_u64).filter(|count| *count > 0) {
            add(format!("{count} {what}"));
        }
    }
    add(counts(data));
    add(reason(data.get("reason").unwrap_or(&Value::Null)));
    for name in ["message", "unreadable"] {
        add(text(data, name).to_owned());
    }
    add(data.get("refusal").map(refusal).unwrap_or_default());
    add(first(data, "findings"));
    add(first(data, "failures"));
    add(match first(data, "warnings") {
        none if none.is_empty() => none,
        first => format!("warning: {first}"),
    });
    add(data.get("failure").map(place_and_message).unwrap_or_default());
    let line = parts.join(", ");
    match line.char_indices().nth(LONGEST_SUMMARY) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn short(commit: &str) -> String {
    if commit.is_empty() { String::new() } else { format!("commit {}", short_commit(commit)) }
}

fn identity(data: &Value) -> String {
    let object = data.get("object").or_else(|| data.get("failure")).unwrap_or(data);
    let Some(identity) = object.get("identity") else { return String::new() };
    let namespace = match text(identity, "namespace") {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    format!("{} {namespace}{}", text(identity, "kind"), text(identity, "name"))
}

/// What a feed of an agent is about.
fn observed_kind(of: &Value) -> String {
    let group = match text(of, "group") {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let namespace = match text(of, "namespace") {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    format!("{}{group}{namespace}", text(of, "plural"))
}

fn counts(data: &Value) -> String {
    let counts = data.get("counts").and_then(Value::as_object);
    let said = counts.into_iter().flatten().filter_map(|(name, count)| {
        count.as_u64().filter(|count| *count > 0).map(|count| format!("{count} {name}"))
    });
    said.collect::<Vec<_>>().join(" ")
}

fn reason(reason: &Value) -> String {
    match reason {
        Value::String(text) => text.clone(),
        Value::Object(fields) => fields
            .iter()
            .map(|(kind, detail)| {
                let of = |name: &str| detail.get(name).and_then(Value::as_u64).unwrap_or_default();
                format!("{kind} ({} of {})", of("prunes"), of("inventory"))
            })
            .collect(),
        _ => String::new(),
    }
}

fn refusal(refusal: &Value) -> String {
    match text(refusal, "field") {
        "" => text(refusal, "message").to_owned(),
        field => format!("{field}: {}", text(refusal, "message")),
    }
}

fn first(data: &Value, name: &str) -> String {
    let Some(all) = data.get(name).and_then(Value::as_array) else { return String::new() };
    let more = if all.len() > 1 { format!(" (and {} more)", all.len() - 1) } else { String::new() };
    all.first().map(|first| format!("{}{more}", place_and_message(first))).unwrap_or_default()
}

fn place_and_message(value: &Value) -> String {
    // A failed fetch names its kind only; its message stands beside.
    if let Some(kind) = value.as_str() {
        return kind.to_owned();
    }
    let place = match (text(value, "file"), value.get("line").and_then(Value::as_u64).unwrap_or_default()) {
        ("", _) => String::new(),
        (file, 0) => format!("{file}: "),
        (file, line) => format!("{file}:{line}: "),
    };
    format!("{place}{}", text(value, "message"))
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use serde_json::json;

    use super::super::names::tests;
    use super::*;

    #[test]
    fn a_line_has_time_type_subject_and_summary() {
        let event = json!({
            "type": "kasbah.bundle.rejected", "subject": "ref/b", "time": "1970-01-01T00:00:01.000Z",
            "data": {"commit": "4f1a5b10c0ffee00", "findings": [
                {"file": "web.yaml", "line": 7, "column": 3, "message": "bad\nindentation"},
                {"file": "b.yaml", "line": 1, "column": 1, "message": "other"},
            ]},
        });
        let style = Style { colour: false, now: Timestamp(0) };
        let none = EventNames::default();
        assert_eq!(
            of_event(&event, &none, style),
            "1970-01-01T00:00:01.000Z  bundle.rejected          ref/b  commit 4f1a5b10c0, web.yaml:7: bad indentation (and 1 more)"
        );
        let coloured = of_event(&event, &none, Style { colour: true, ..style });
        assert!(coloured.contains("\u{1b}[31mbundle.rejected        \u{1b}[0m"), "{coloured:?}");
    }

    #[test]
    fn names_stand_beside_ids() {
        let style = Style { colour: false, now: Timestamp(0) };
        let event = |subject: &str, data: Value| json!({"type": "kasbah.source.advanced", "subject": subject, "time": "t", "actor": "user:u", "data": data});
        let advanced =
            event("ref/b", json!({"source": tests::SOURCE, "agent": tests::AGENT, "commit": "abc"}));
        assert_eq!(
            of_event(&advanced, &tests::names(), style),
            "t  source.advanced          ref/b  demo/staging, commit abc, by user u"
        );
        let suspended =
            event(&format!("source/{}", tests::SOURCE), json!({"source": tests::SOURCE, "reason": "freeze"}));
        assert_eq!(
            of_event(&suspended, &tests::names(), style),
            format!("t  source.advanced          source/{} demo/staging  freeze, by user u", tests::SOURCE)
        );
    }

    #[test]
    fn summaries_say_what_people_want_to_know() {
        let identity = json!({"version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "web"});
        for (data, said) in [
            (
                json!({"outcome": "failed", "counts": {"unchanged": 3, "created": 0, "failed": 1}}),
                "failed, 3 unchanged 1 failed",
            ),
            (json!({"write": "created", "object": {"identity": identity}}), "created, ConfigMap shop/web"),
            (
                json!({"of": {"group": "apps", "plural": "deployments", "namespace": "shop"}, "dropped": 2}),
                "deployments.apps in shop, 2 dropped",
            ),
            (json!({"of": {"plural": "pods"}, "reason": "forbidden"}), "pods, forbidden"),
            (
                json!({"failure": {"identity": identity, "file": "a.yaml", "line": 2, "message": "no"}}),
                "ConfigMap shop/web, a.yaml:2: no",
            ),
            (json!({"reason": {"large-prune": {"prunes": 30, "inventory": 40}}}), "large-prune (30 of 40)"),
            (json!({"reason": "empty", "commit": "abc"}), "commit abc, empty"),
            (
                json!({"request": "authz.create-group", "refusal": {"kind": "denied", "message": "viewers look"}}),
                "viewers look",
            ),
            (json!({"failure": "unreachable", "message": "no route"}), "no route, unreachable"),
            (
                json!({"objects": 2, "warnings": [{"file": "a.yaml", "line": 0, "message": "a link"}]}),
                "2 objects, warning: a.yaml: a link",
            ),
            (json!({"unreadable": "unknown event type x"}), "unknown event type x"),
            (json!(null), ""),
        ] {
            assert_eq!(summary(&data), said);
        }
        assert_eq!(summary(&json!({"message": "é".repeat(300)})).chars().count(), LONGEST_SUMMARY + 1);
    }
}
