//! What would change, for people.

use events::requests::gateway::{DiffChange, ObjectDiff, SourceDiff};

use crate::client::print::{Paint, Style, one_line, short_commit};

/// Longest value that is shown, in letters.
const LONGEST_VALUE: usize = 100;

pub(super) fn text(diff: &SourceDiff, style: Style) -> String {
    let commit = short_commit(&diff.commit);
    let mut text = match diff.objects.len() {
        0 => {
            format!("Nothing would change: all {} objects are as commit {commit} has them.\n", diff.unchanged)
        }
        count => format!("{count} would change, {} stay as they are, at commit {commit}:\n", diff.unchanged),
    };
    if let Some(pending) = &diff.pending {
        text.push_str(&format!("It is not delivered yet: {}.\n", one_line(pending)));
    }
    for object in &diff.objects {
        text.push_str(&object_text(object, style));
    }
    if !diff.extra.is_empty() {
        text.push_str("Others added fields that Git does not state; they stay:\n");
    }
    for object in &diff.extra {
        text.push_str(&format!("  {}\n", one_line(&object.identity.to_string())));
        for (path, manager) in &object.fields {
            text.push_str(&format!("      {} (by {})\n", one_line(path), one_line(manager)));
        }
    }
    text
}

fn object_text(object: &ObjectDiff, style: Style) -> String {
    let (sign, paint) = match object.change {
        DiffChange::Create => ("+ create ", Paint::Good),
        DiffChange::Change => ("~ change ", Paint::Odd),
        DiffChange::Prune => ("- prune  ", Paint::Bad),
        DiffChange::Refused => ("! refused", Paint::Bad),
    };
    let head = format!("{sign} {}", object.identity);
    let mut text = format!("{}\n", paint.on(&one_line_kept(&head), style.colour));
    for (path, before, after) in &object.fields {
        text.push_str(&format!(
            "      {}: {}\n",
            one_line(path),
            change(before.as_deref(), after.as_deref())
        ));
    }
    if let Some(error) = &object.error {
        text.push_str(&format!("      {}\n", one_line(error)));
    }
    text
}

fn change(before: Option<&str>, after: Option<&str>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("{} -> {}", value(before), value(after)),
        (None, Some(after)) => format!("set to {}", value(after)),
        (Some(before), None) => format!("removed, was {}", value(before)),
        (None, None) => "changed".to_owned(),
    }
}

fn value(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Without anything that a terminal would obey, spaces kept.
fn one_line_kept(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use events::requests::gateway::ObjectExtra;
    use events::{ObjectIdentity, Timestamp};

    use super::*;

    const STYLE: Style = Style { colour: false, now: Timestamp(0) };

    fn object(
        change: DiffChange,
        error: Option<&str>,
        fields: &[(&str, Option<&str>, Option<&str>)],
    ) -> ObjectDiff {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let owned = |text: &Option<&str>| text.map(str::to_owned);
        let fields =
            fields.iter().map(|(path, before, after)| ((*path).to_owned(), owned(before), owned(after)));
        ObjectDiff { identity, change, fields: fields.collect(), error: error.map(str::to_owned) }
    }

    #[test]
    fn each_change_has_its_sign_and_fields() {
        let diff = SourceDiff {
            commit: "4f1a5b10c0ffee00".into(),
            objects: vec![
                object(DiffChange::Create, None, &[]),
                object(
                    DiffChange::Change,
                    None,
                    &[
                        ("data.a", Some("\"1\""), Some("\"2\"")),
                        ("data.b", None, Some("\"x\\ny\"")),
                        ("data.c", Some("\"z\""), None),
                    ],
                ),
                object(DiffChange::Prune, None, &[]),
                object(DiffChange::Refused, Some("denied by\nwebhook"), &[]),
            ],
            unchanged: 7,
            extra: Vec::new(),
            pending: Some("suspended: freeze; resume it to go on".into()),
        };
        assert_eq!(
            text(&diff, STYLE),
            "4 would change, 7 stay as they are, at commit 4f1a5b10c0:\n\
             It is not delivered yet: suspended: freeze; resume it to go on.\n\
             + create  v1 ConfigMap shop/web\n\
             ~ change  v1 ConfigMap shop/web\n      \
             data.a: \"1\" -> \"2\"\n      \
             data.b: set to \"x\\ny\"\n      \
             data.c: removed, was \"z\"\n\
             - prune   v1 ConfigMap shop/web\n\
             ! refused v1 ConfigMap shop/web\n      \
             denied by webhook\n"
        );
    }

    #[test]
    fn no_change_is_said_and_long_values_are_cut() {
        let extra = ObjectExtra {
            identity: object(DiffChange::Change, None, &[]).identity,
            fields: vec![("data.more".into(), "kubectl-edit".into())],
        };
        let added =
            text(&SourceDiff { commit: "4f1a".into(), extra: vec![extra], ..SourceDiff::default() }, STYLE);
        assert!(
            added.ends_with("they stay:\n  v1 ConfigMap shop/web\n      data.more (by kubectl-edit)\n"),
            "{added}"
        );
        let nothing = SourceDiff { commit: "4f1a5b10c0ffee00".into(), unchanged: 3, ..SourceDiff::default() };
        assert_eq!(
            text(&nothing, STYLE),
            "Nothing would change: all 3 objects are as commit 4f1a5b10c0 has them.\n"
        );
        assert_eq!(value(&"ü".repeat(200)), format!("{}…", "ü".repeat(100)));
    }
}
