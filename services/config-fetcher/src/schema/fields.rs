//! Reading values of a type, saying what is wrong and what is allowed.

use std::collections::BTreeMap;

use objects::yaml::{Node, Value};

use super::report::Report;

/// Keys that keep an agent in its bounds. One that looks like them was meant as a bound, wherever it stands, so that a file
/// which says it wrongly is refused.
const SAFETY_KEYS: [&str; 7] =
    ["lockdown", "service_account", "mode", "resources", "observe", "policies", "namespace"];
/// So many letters may be wrong, missing, too many or changed places.
const MOST_EDITS: usize = 2;

/// How alike two keys must be for one to be offered instead of the other, from 0 to 1.
const LIKENESS: f64 = 0.5;
/// Longest name of what is called by a label.
const LABEL_LENGTH: usize = 63;

/// The values of the known keys of a mapping; other keys are warned of, and refused where they look like one of
/// [`SAFETY_KEYS`].
pub(super) fn mapping<'n>(
    report: &mut Report,
    node: &'n Node,
    path: &str,
    keys: &[&str],
) -> BTreeMap<String, &'n Node> {
    known_keys(report, node, path, keys, false)
}

/// As [`mapping`], where what is not understood would say less than was meant: other keys are refused.
pub(super) fn strict_mapping<'n>(
    report: &mut Report,
    node: &'n Node,
    path: &str,
    keys: &[&str],
) -> BTreeMap<String, &'n Node> {
    known_keys(report, node, path, keys, true)
}

fn known_keys<'n>(
    report: &mut Report,
    node: &'n Node,
    path: &str,
    keys: &[&str],
    is_strict: bool,
) -> BTreeMap<String, &'n Node> {
    let mut known = BTreeMap::new();
    let Some(entries) = node.as_mapping() else {
        report.wrong(
            node,
            path,
            format!("{} where a mapping is expected; its keys are {}", node.kind(), keys.join(", ")),
        );
        return known;
    };
    for (key, value) in entries {
        let name = key.as_str().unwrap_or_default();
        if keys.contains(&name) {
            known.insert(name.to_owned(), value);
        } else {
            let advice = match nearest(name, keys) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("known keys are {}", keys.join(", ")),
            };
            let field = join(path, name);
            if is_strict {
                report.wrong(key, &field, format!("unknown key '{name}'; {advice}"));
            } else if let Some(meant) = safety_key(name) {
                let advice = if keys.contains(&meant) {
                    format!("write '{meant}', or another key if that is not meant")
                } else {
                    format!("it looks like '{meant}', which has no meaning here; {advice}")
                };
                report.wrong(key, &field, format!("unknown key '{name}'; {advice}"));
            } else {
                report.odd(key, &field, format!("unknown key '{name}' is ignored; {advice}"));
            }
        }
    }
    known
}

/// As a key is written here.
fn normalized(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// The safety key that a key looks like.
fn safety_key(name: &str) -> Option<&'static str> {
    let name = normalized(name);
    let edits = SAFETY_KEYS.iter().map(|key| (strsim::damerau_levenshtein(&name, key), *key));
    edits.filter(|(edits, _)| *edits <= MOST_EDITS).min().map(|(_, key)| key)
}

fn nearest<'k>(name: &str, keys: &[&'k str]) -> Option<&'k str> {
    let name = normalized(name);
    let likeness = keys.iter().map(|key| (strsim::normalized_damerau_levenshtein(&name, key), *key));
    let best = likeness.max_by(|left, right| left.0.total_cmp(&right.0));
    best.filter(|(likeness, _)| *likeness >= LIKENESS).map(|(_, key)| key)
}

/// The value of a key that must be there.
pub(super) fn required<'n>(
    report: &mut Report,
    node: &Node,
    known: &BTreeMap<String, &'n Node>,
    path: &str,
    key: &str,
    advice: &str,
) -> Option<&'n Node> {
    let found = known.get(key).copied();
    if found.is_none() {
        report.wrong(node, &join(path, key), format!("{key} is missing; {advice}"));
    }
    found
}

/// Text; empty text only where it is allowed.
pub(super) fn text(report: &mut Report, node: &Node, path: &str, empty_allowed: bool) -> Option<String> {
    match &node.value {
        Value::String(text) if empty_allowed || !text.is_empty() => Some(text.clone()),
        Value::String(_) => {
            report.wrong(node, path, "empty text where text is expected");
            None
        }
        _ => {
            let quotes = if matches!(node.value, Value::Null) { "" } else { "; write it in quotes" };
            report.wrong(node, path, format!("{} where text is expected{quotes}", node.kind()));
            None
        }
    }
}

/// Whether a text is a name of Kubernetes (RFC 1123, label).
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_LENGTH).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Such a name; `what` it is the name of.
pub(super) fn label(report: &mut Report, node: &Node, path: &str, what: &str) -> Option<String> {
    let value = text(report, node, path, false)?;
    if !is_label(&value) {
        report.wrong(
            node,
            path,
            format!("'{value}' is no {what}: 1 to {LABEL_LENGTH} lower-case letters, digits and '-', with a letter or digit at both ends"),
        );
        return None;
    }
    Some(value)
}

/// The name of a namespace.
pub(super) fn namespace(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    label(report, node, path, "namespace")
}

/// A boolean.
pub(super) fn truth(report: &mut Report, node: &Node, path: &str) -> Option<bool> {
    let value = node.as_bool();
    if value.is_none() {
        report.wrong(node, path, format!("{} where true or false is expected", node.kind()));
    }
    value
}

/// One of a few words.
pub(super) fn choice<T: Copy>(
    report: &mut Report,
    node: &Node,
    path: &str,
    words: &[(&str, T)],
) -> Option<T> {
    let found =
        node.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text)).map(|(_, value)| *value);
    if found.is_none() {
        let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let given = node.as_str().map_or_else(|| node.kind().to_owned(), |text| format!("'{text}'"));
        report.wrong(node, path, format!("{given} is not one of {}", allowed.join(", ")));
    }
    found
}

/// The items of a list.
pub(super) fn list<'n>(report: &mut Report, node: &'n Node, path: &str) -> &'n [Node] {
    node.as_sequence().unwrap_or_else(|| {
        report.wrong(node, path, format!("{} where a list is expected", node.kind()));
        &[]
    })
}

/// The first items of a list of `what`, of which at most so many are allowed.
pub(super) fn bounded_list<'n>(
    report: &mut Report,
    node: &'n Node,
    path: &str,
    (most, what): (usize, &str),
) -> &'n [Node] {
    let items = list(report, node, path);
    if items.len() > most {
        report.wrong(node, path, format!("{} {what}; at most {most} are allowed", items.len()));
    }
    items.get(..most).unwrap_or(items)
}

/// The same, read; `twice` says of two items whether they are for the same, and what is wrong then.
pub(super) fn distinct_items<T>(
    report: &mut Report,
    node: &Node,
    path: &str,
    bound: (usize, &str),
    read: impl Fn(&mut Report, &Node, &str) -> Option<T>,
    (is_same, twice): (impl Fn(&T, &T) -> bool, &str),
) -> Vec<T> {
    let mut read_items: Vec<T> = Vec::new();
    for (place, node) in bounded_list(report, node, path, bound).iter().enumerate() {
        let path = format!("{path}[{place}]");
        let Some(item) = read(report, node, &path) else { continue };
        if read_items.iter().any(|known| is_same(known, &item)) {
            report.wrong(node, &path, twice);
        }
        read_items.push(item);
    }
    read_items
}

/// A list of texts.
pub(super) fn texts(report: &mut Report, node: &Node, path: &str) -> Vec<(String, Node)> {
    let items = list(report, node, path).iter().enumerate();
    items
        .filter_map(|(index, item)| {
            Some((text(report, item, &format!("{path}[{index}]"), false)?, item.clone()))
        })
        .collect()
}

/// Seconds, out of `90`, `60s`, `5m`, `2h`.
pub(super) fn seconds(report: &mut Report, node: &Node, path: &str, from: u32, to: u32) -> Option<u32> {
    let value = match &node.value {
        Value::Int(value) => u32::try_from(*value).ok(),
        Value::String(text) => parse_seconds(text),
        _ => None,
    };
    let value = value.filter(|value| (from..=to).contains(value));
    if value.is_none() {
        let given = node.as_str().map_or_else(|| node.kind().to_owned(), |text| format!("'{text}'"));
        let (from, to) = (words(from), words(to));
        report.wrong(node, path, format!("{given} is not a time from {from} to {to}, such as 90s, 5m or 1h"));
    }
    value
}

fn parse_seconds(text: &str) -> Option<u32> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| number.parse::<u32>().ok()?.checked_mul(factor))?
}

fn words(seconds: u32) -> String {
    match seconds {
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// The path of a key below a path.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
