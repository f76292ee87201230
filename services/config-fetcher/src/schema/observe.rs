//! The key `observe`: which objects of the cluster the agent tells of.

use events::configuration::{ObservePattern, ObserveRules};
use objects::yaml::Node;

use super::fields::{bounded_list, required, strict_mapping, text};
use super::report::Report;

/// Most patterns in each of the two lists: each is tried on every object that the agent sees.
const MAXIMUM_PATTERNS: usize = 100;

pub(super) fn rules(report: &mut Report, node: &Node) -> ObserveRules {
    let known = strict_mapping(report, node, "observe", &["include", "exclude"]);
    let patterns = |report: &mut Report, key: &str| {
        let path = format!("observe.{key}");
        let Some(node) = known.get(key) else { return Vec::new() };
        let items = bounded_list(report, node, &path, (MAXIMUM_PATTERNS, "patterns"));
        let patterns = items.iter().enumerate();
        patterns.filter_map(|(index, item)| pattern(report, item, &format!("{path}[{index}]"))).collect()
    };
    ObserveRules { include: patterns(report, "include"), exclude: patterns(report, "exclude") }
}

fn pattern(report: &mut Report, node: &Node, path: &str) -> Option<ObservePattern> {
    let known = strict_mapping(report, node, path, &["group", "kind", "namespace"]);
    node.as_mapping()?;
    let group = required(report, node, &known, path, "group", "write '' for the core group, '*' for all");
    let kind = required(report, node, &known, path, "kind", "write '*' for all kinds of the group");
    let group = group.and_then(|node| text(report, node, &format!("{path}.group"), true));
    let kind = kind.and_then(|node| text(report, node, &format!("{path}.kind"), false));
    let namespace = match known.get("namespace") {
        Some(node) => text(report, node, &format!("{path}.namespace"), false),
        None => Some("*".to_owned()),
    };
    Some(ObservePattern { group: group?, kind: kind?, namespace: namespace? })
}
