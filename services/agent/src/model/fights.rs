//! Fights over objects, as text that outlives the process.

use std::collections::BTreeMap;

use events::SourceId;
use events::object::ObjectKey;
use serde::{Deserialize, Serialize};

use super::backoff::Fight;

/// Of more fights only the newest are kept.
const MAXIMUM: usize = 300;

/// Fights by source and object.
pub type Fights = BTreeMap<SourceId, BTreeMap<ObjectKey, Fight>>;

/// One fight: source, group, kind, namespace, name, corrections, and when the last one was, in milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Line(SourceId, String, String, String, String, u32, i64);

/// Writes fights; `offset`: what the wall clock is ahead of the monotonic one, in milliseconds. Nothing: an empty text.
#[must_use]
pub fn write<'a>(fights: impl Iterator<Item = (SourceId, &'a ObjectKey, Fight)>, offset: i64) -> String {
    let mut lines: Vec<Line> = fights
        .map(|(source, key, fight)| {
            let [group, kind, namespace, name] =
                [&key.group, &key.kind, &key.namespace, &key.name].map(Clone::clone);
            Line(source, group, kind, namespace, name, fight.corrections, fight.last.saturating_add(offset))
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.6));
    lines.truncate(MAXIMUM);
    if lines.is_empty() { String::new() } else { serde_json::to_string(&lines).unwrap_or_default() }
}

/// Reads what [`write()`] wrote; of a text that means nothing there are none.
#[must_use]
pub fn read(text: &str, offset: i64) -> Fights {
    let lines: Vec<Line> = serde_json::from_str(text).unwrap_or_default();
    let mut fights = Fights::new();
    for Line(source, group, kind, namespace, name, corrections, last) in lines.into_iter().take(MAXIMUM) {
        let key = ObjectKey { group, kind, namespace, name };
        let fight = Fight { corrections, last: last.saturating_sub(offset) };
        fights.entry(source).or_default().insert(key, fight);
    }
    fights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_by_a_process_with_another_clock() {
        let source = SourceId(uuid::Uuid::from_u128(1));
        let key = |name: &str| ObjectKey {
            group: String::new(),
            kind: "ConfigMap".into(),
            namespace: "shop".into(),
            name: name.into(),
        };
        let fight = Fight { corrections: 3, last: 5_000 };
        let text = write([(source, &key("a"), fight)].into_iter(), 1_000_000);
        let read_back = read(&text, 1_003_000);
        assert_eq!(read_back[&source][&key("a")], Fight { corrections: 3, last: 2_000 });
        assert_eq!(write(std::iter::empty(), 0), "");
        assert!(read("", 0).is_empty() && read("[1]", 0).is_empty());
        let many: Vec<ObjectKey> = (0..400).map(|n| key(&n.to_string())).collect();
        let text =
            write(many.iter().zip(0..).map(|(key, n)| (source, key, Fight { corrections: 1, last: n })), 0);
        let kept = &read(&text, 0)[&source];
        assert_eq!(kept.len(), 300);
        assert!(kept.contains_key(&key("399")) && !kept.contains_key(&key("0")), "the newest");
    }
}
