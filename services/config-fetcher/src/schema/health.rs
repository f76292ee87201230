//! The key `health`: rules that judge kinds instead of the built-in ones.

use std::collections::BTreeMap;

use events::configuration::{HealthRule, HealthSettings, ImportedRule};
use objects::expression::Expression;
use objects::health::{MAXIMUM_RULES, is_known_by_metadata};
use objects::yaml::Node;

use super::fields::{distinct_items, join, required, strict_mapping, text};
use super::report::Report;

/// Longest script of an imported rule, in bytes.
const MAXIMUM_SCRIPT: usize = 20_000;
const KEYS: [&str; 7] = ["group", "kind", "healthy", "progressing", "degraded", "suspended", "message"];

pub(super) fn settings(report: &mut Report, node: &Node) -> HealthSettings {
    let known = strict_mapping(report, node, "health", &["rules", "imported"]);
    let rules = known.get("rules").map(|node| rules(report, node, "health.rules")).unwrap_or_default();
    let imported = known.get("imported").map(|node| imported(report, node, "health.imported"));
    HealthSettings { rules, imported: imported.unwrap_or_default() }
}

/// A list of rules under a path.
pub(super) fn rules(report: &mut Report, node: &Node, path: &str) -> Vec<HealthRule> {
    one_for_each_kind(report, node, path, rule, |rule| (&rule.group, &rule.kind))
}

/// A list of imported rules under a path.
pub(super) fn imported(report: &mut Report, node: &Node, path: &str) -> Vec<ImportedRule> {
    one_for_each_kind(report, node, path, imported_rule, |rule| (&rule.group, &rule.kind))
}

fn one_for_each_kind<T>(
    report: &mut Report,
    node: &Node,
    path: &str,
    read: impl Fn(&mut Report, &Node, &str) -> Option<T>,
    kind_of: impl Fn(&T) -> (&String, &String),
) -> Vec<T> {
    let is_same = |known: &T, rule: &T| kind_of(known) == kind_of(rule);
    let twice = "another rule has this group and kind; a kind has one rule";
    distinct_items(report, node, path, (MAXIMUM_RULES, "rules"), read, (is_same, twice))
}

fn rule(report: &mut Report, node: &Node, path: &str) -> Option<HealthRule> {
    let known = strict_mapping(report, node, path, &KEYS);
    node.as_mapping()?;
    let kinds = kinds(report, (node, &known), path);
    let healthy = required(report, node, &known, path, "healthy", "write when such an object is healthy");
    let healthy = healthy.and_then(|node| expression(report, node, &join(path, "healthy")));
    let mut optional =
        |field: &str| known.get(field).and_then(|node| expression(report, node, &join(path, field)));
    let (progressing, degraded) = (optional("progressing"), optional("degraded"));
    let (suspended, message) = (optional("suspended"), optional("message"));
    let ((group, kind), healthy) = (kinds?, healthy?);
    Some(HealthRule { group, kind, healthy, progressing, degraded, suspended, message })
}

fn imported_rule(report: &mut Report, node: &Node, path: &str) -> Option<ImportedRule> {
    let known = strict_mapping(report, node, path, &["group", "kind", "lua"]);
    node.as_mapping()?;
    let kinds = kinds(report, (node, &known), path);
    let lua = required(report, node, &known, path, "lua", "write the script, such as that of a health.lua");
    let script = lua.and_then(|node| text(report, node, &join(path, "lua"), false));
    if let (Some(node), Some(length)) = (lua, script.as_ref().map(String::len))
        && length > MAXIMUM_SCRIPT
    {
        let message = format!("a script of {length} bytes; at most {MAXIMUM_SCRIPT} are allowed");
        report.wrong(node, &join(path, "lua"), message);
    }
    let ((group, kind), lua) = (kinds?, script?);
    Some(ImportedRule { group, kind, lua })
}

/// The group and kind that a rule is for.
fn kinds(
    report: &mut Report,
    (node, known): (&Node, &BTreeMap<String, &Node>),
    path: &str,
) -> Option<(String, String)> {
    let group = required(report, node, known, path, "group", "write '' for the core group, '*' for all");
    let kind_node = required(report, node, known, path, "kind", "write '*' for all kinds of the group");
    let group = group.and_then(|node| text(report, node, &join(path, "group"), true));
    let kind = kind_node.and_then(|node| text(report, node, &join(path, "kind"), false));
    let (group, kind) = (group?, kind?);
    if is_known_by_metadata(&group, &kind) {
        let message = "objects of this kind are known by their metadata alone, so no rule can judge them";
        report.wrong(kind_node.unwrap_or(node), &join(path, "kind"), message);
    }
    Some((group, kind))
}

/// An expression, checked to be one.
pub(super) fn expression(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    let text = text(report, node, path, false)?;
    match Expression::compile(&text) {
        Ok(_) => Some(text),
        Err(error) => {
            report.wrong(node, path, format!("no usable expression: {error}"));
            None
        }
    }
}
