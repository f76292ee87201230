//! What a sync would do, for people.

use events::requests::delivery::RejectedBundle;
use events::requests::diff::{DiffChange, DiffStop, ObjectDiff, ObjectHolder, SourceDiff, SyncExtent};

use super::super::finding;
use crate::client::names::Names;
use crate::client::print::{Paint, Style, one_line, short_commit};

/// Longest value that is shown, in letters.
const LONGEST_VALUE: usize = 100;

pub(super) fn text(diff: &SourceDiff, names: &Names, style: Style) -> String {
    let mut text = String::new();
    if let Some(rejected) = &diff.rejected {
        text.push_str(&rejection(rejected, &diff.commit, style));
    }
    if let Some(failure) = &diff.fetch_failure {
        let line =
            format!("The repository cannot be read, there may be newer commits: {}", one_line(failure));
        text.push_str(&format!("{}\n", Paint::Odd.on(&line, style.colour)));
    }
    if !diff.commit.is_empty() {
        text.push_str(&headline(diff));
    }
    if let Some(pending) = &diff.pending {
        text.push_str(&format!("It is not delivered: {}.\n", one_line(pending)));
    }
    if let Some(stopped) = &diff.stopped {
        text.push_str(&format!("{}\n", Paint::Bad.on(&how_far(stopped), style.colour)));
    }
    for object in &diff.objects {
        text.push_str(&object_text(object, names, style));
    }
    if diff.left_out > 0 {
        text.push_str(&format!("  and {} more that are too many to show\n", diff.left_out));
    }
    if diff.more_kept > 0 {
        text.push_str(&format!("  and {} more that are kept\n", diff.more_kept));
    }
    if !diff.extra.is_empty() {
        text.push_str("Other clients added fields that Git does not state; they stay:\n");
    }
    for object in &diff.extra {
        text.push_str(&format!("  {}\n", one_line(&object.identity.to_string())));
        for (path, manager) in &object.fields {
            text.push_str(&format!("      {} (by {})\n", one_line(path), one_line(manager)));
        }
    }
    text
}

/// How many objects there are of each kind of change.
fn headline(diff: &SourceDiff) -> String {
    let commit = short_commit(&diff.commit);
    let counts: Vec<String> = [
        (DiffChange::Create, "to create"),
        (DiffChange::Change, "to change"),
        (DiffChange::Prune, "to prune"),
        (DiffChange::Wait, "waiting"),
        (DiffChange::Refused, "refused"),
        (DiffChange::Keep, "kept"),
    ]
    .into_iter()
    .map(|(change, words)| (diff.objects.iter().filter(|object| object.change == change).count(), words))
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| format!("{count} {words}"))
    .collect();
    let is_same = diff.left_out == 0 && diff.objects.iter().all(|object| object.change == DiffChange::Keep);
    let same = if is_same && diff.stopped.is_none() { "nothing would change; " } else { "" };
    let counts = if counts.is_empty() { String::new() } else { format!("{}, ", counts.join(", ")) };
    format!("At commit {commit}: {same}{counts}{} unchanged.\n", diff.unchanged)
}

fn rejection(rejected: &RejectedBundle, compared: &str, style: Style) -> String {
    let head = format!("The newest commit, {}, is rejected:", short_commit(&rejected.commit));
    let mut text = format!("{}\n", Paint::Bad.on(&head, style.colour));
    for found in &rejected.findings {
        text.push_str(&format!("  {}\n", one_line(&finding(found))));
    }
    if rejected.more > 0 {
        text.push_str(&format!("  and {} more\n", rejected.more));
    }
    text.push_str(&match compared {
        "" => "There is no good commit yet, so there is nothing to compare.\n".to_owned(),
        good => format!("Compared is the newest good commit, {}.\n", short_commit(good)),
    });
    text
}

fn how_far(stopped: &DiffStop) -> String {
    let what = match stopped.extent {
        SyncExtent::Nothing => "A sync would apply and prune nothing",
        SyncExtent::Foundation => "A sync would apply namespaces and definitions only, and prune nothing",
        SyncExtent::AllButPrunes => "A sync would prune nothing",
    };
    format!("{what}: {}.", one_line(&stopped.message))
}

fn object_text(object: &ObjectDiff, names: &Names, style: Style) -> String {
    let (sign, paint) = match object.change {
        DiffChange::Create => ("+ create ", Paint::Good),
        DiffChange::Change => ("~ change ", Paint::Odd),
        DiffChange::Prune => ("- prune  ", Paint::Bad),
        DiffChange::Keep => ("= keep   ", Paint::Dim),
        DiffChange::Wait => ("… wait   ", Paint::Odd),
        DiffChange::Refused => ("! refused", Paint::Bad),
    };
    let place = match (object.file.as_str(), object.line) {
        ("", _) => String::new(),
        (file, 0) => format!(" ({file})"),
        (file, line) => format!(" ({file}:{line})"),
    };
    let head = format!("{sign} {}{place}", object.identity);
    let mut text = format!("{}\n", paint.on(&one_line_kept(&head), style.colour));
    if let Some(message) = &object.message {
        text.push_str(&format!("      {}\n", one_line(&with_name(message, object.holder.as_ref(), names))));
    }
    for (path, before, after) in &object.fields {
        text.push_str(&format!(
            "      {}: {}\n",
            one_line(path),
            change(before.as_deref(), after.as_deref())
        ));
    }
    text
}

/// The message with an agent's name where it has an id.
fn with_name(message: &str, holder: Option<&ObjectHolder>, names: &Names) -> String {
    let Some(ObjectHolder::Agent { agent, .. }) = holder else { return message.to_owned() };
    match agent.parse() {
        Ok(id) => message.replace(agent.as_str(), &names.agent(id)),
        Err(_) => message.to_owned(),
    }
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
    use events::configuration::FileFinding;
    use events::requests::diff::{DiffReason, ObjectExtra};
    use events::{ObjectIdentity, Timestamp};

    use super::*;

    const STYLE: Style = Style { colour: false, now: Timestamp(0) };

    fn object(change: DiffChange) -> ObjectDiff {
        let [group, version, kind, namespace, name] =
            ["", "v1", "ConfigMap", "shop", "web"].map(str::to_owned);
        ObjectDiff::new(ObjectIdentity { group, version, kind, namespace, name }, change)
    }

    fn with_fields(object: ObjectDiff, fields: &[(&str, Option<&str>, Option<&str>)]) -> ObjectDiff {
        let owned = |text: &Option<&str>| text.map(str::to_owned);
        let fields =
            fields.iter().map(|(path, before, after)| ((*path).to_owned(), owned(before), owned(after)));
        ObjectDiff { fields: fields.collect(), ..object }
    }

    fn shown(diff: &SourceDiff) -> String {
        text(diff, &Names::default(), STYLE)
    }

    #[test]
    fn each_change_has_its_sign_its_place_and_its_fields() {
        let fields = [
            ("data.a", Some("\"1\""), Some("\"2\"")),
            ("data.b", None, Some("\"x\\ny\"")),
            ("data.c", Some("\"z\""), None),
        ];
        let stop = DiffStop { extent: SyncExtent::Nothing, message: "1 object is refused".into() };
        let diff = SourceDiff {
            commit: "4f1a5b10c0ffee00".into(),
            objects: vec![
                object(DiffChange::Create).at("web.yaml", 3),
                with_fields(object(DiffChange::Change).at("web.yaml", 9), &fields),
                object(DiffChange::Prune),
                object(DiffChange::Keep).because(DiffReason::Kept, "source shop still wants it"),
                object(DiffChange::Wait)
                    .at("web.yaml", 12)
                    .because(DiffReason::KindAwaited, "waits for its kind"),
                object(DiffChange::Refused).because(DiffReason::ApiServer, "denied by\nwebhook"),
            ],
            left_out: 4,
            unchanged: 7,
            stopped: Some(stop),
            pending: Some("suspended: freeze; resume it to continue".into()),
            ..SourceDiff::default()
        };
        assert_eq!(
            shown(&diff),
            "At commit 4f1a5b10c0: 1 to create, 1 to change, 1 to prune, 1 waiting, 1 refused, 1 kept, 7 unchanged.\n\
             It is not delivered: suspended: freeze; resume it to continue.\n\
             A sync would apply and prune nothing: 1 object is refused.\n\
             + create  v1 ConfigMap shop/web (web.yaml:3)\n\
             ~ change  v1 ConfigMap shop/web (web.yaml:9)\n      \
             data.a: \"1\" -> \"2\"\n      \
             data.b: set to \"x\\ny\"\n      \
             data.c: removed, was \"z\"\n\
             - prune   v1 ConfigMap shop/web\n\
             = keep    v1 ConfigMap shop/web\n      \
             source shop still wants it\n\
             … wait    v1 ConfigMap shop/web (web.yaml:12)\n      \
             waits for its kind\n\
             ! refused v1 ConfigMap shop/web\n      \
             denied by webhook\n  \
             and 4 more that are too many to show\n"
        );
    }

    #[test]
    fn a_rejected_commit_is_named_with_file_line_and_what_is_compared_instead() {
        let finding = FileFinding {
            file: "manifests/web.yaml".into(),
            line: 3,
            column: 0,
            field: String::new(),
            message: "a key stands twice".into(),
        };
        let rejected = RejectedBundle {
            commit: "bad1bad1bad1bad1".into(),
            findings: vec![finding],
            more: 2,
            warnings: Vec::new(),
        };
        let diff = |commit: &str| SourceDiff {
            commit: commit.into(),
            rejected: Some(rejected.clone()),
            ..SourceDiff::default()
        };
        let head = "The newest commit, bad1bad1ba, is rejected:\n  \
             manifests/web.yaml:3: a key stands twice\n  \
             and 2 more\n";
        assert_eq!(
            shown(&diff("4f1a5b10c0ffee00")),
            format!(
                "{head}Compared is the newest good commit, 4f1a5b10c0.\nAt commit 4f1a5b10c0: nothing would change; 0 unchanged.\n"
            )
        );
        assert_eq!(
            shown(&diff("")),
            format!("{head}There is no good commit yet, so there is nothing to compare.\n")
        );
    }

    #[test]
    fn no_change_is_shown_and_long_values_are_cut() {
        let extra = ObjectExtra {
            identity: object(DiffChange::Change).identity,
            fields: vec![("data.more".into(), "kubectl-edit".into())],
        };
        let added = shown(&SourceDiff { commit: "4f1a".into(), extra: vec![extra], ..SourceDiff::default() });
        assert!(
            added.ends_with("they stay:\n  v1 ConfigMap shop/web\n      data.more (by kubectl-edit)\n"),
            "{added}"
        );
        let nothing = SourceDiff { commit: "4f1a5b10c0ffee00".into(), unchanged: 3, ..SourceDiff::default() };
        assert_eq!(shown(&nothing), "At commit 4f1a5b10c0: nothing would change; 3 unchanged.\n");
        assert_eq!(value(&"ü".repeat(200)), format!("{}…", "ü".repeat(100)));
    }
}
