//! Files that test health rules and actions: rules, objects, and how these are to be judged or what is to be offered for them.

use std::collections::BTreeMap;

use events::configuration::{DeclaredAction, FileFinding, HealthSettings};
use objects::yaml::{Limits, Node};
use serde_json::Value;

use super::fields::{bounded_list, choice, join, required, strict_mapping, text, truth};
use super::{Report, actions, configuration, health, relations, root, root_within};
use crate::schema::grants::Reading;

/// Most tests of one file.
const MAXIMUM_TESTS: usize = 1_000;
/// States that a test may expect.
const STATES: [(&str, &str); 7] = [
    ("healthy", "healthy"),
    ("suspended", "suspended"),
    ("progressing", "progressing"),
    ("missing", "missing"),
    ("degraded", "degraded"),
    ("unknown", "unknown"),
    ("none", "none"),
];

/// What a file of tests says.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleTests {
    /// The rules that are tested.
    pub rules: RuleFrom,
    /// The tests.
    pub tests: Vec<RuleTest>,
}

/// What can be tested of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestedRules {
    /// How objects are judged.
    pub health: HealthSettings,
    /// What can be done with them.
    pub actions: Vec<DeclaredAction>,
}

/// Where the rules stand that are tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleFrom {
    /// In the file itself.
    Here(TestedRules),
    /// In an agent's configuration file, by its path from the folder of the file.
    Configuration(String),
}

/// One object, and what is expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleTest {
    /// Its name.
    pub name: String,
    /// The object.
    pub object: Value,
    /// What is expected.
    pub expected: Expected,
    /// Where it stands.
    pub line: u32,
}

/// What is expected of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// How it is judged.
    Health {
        /// The state, in a word; `none` where the object has no health.
        state: &'static str,
        /// The message; `None`: any.
        message: Option<String>,
    },
    /// What can be done with it.
    Action {
        /// The action's name.
        name: String,
        /// Whether it is offered.
        offered: bool,
        /// The patch; `None`: any.
        patch: Option<Value>,
    },
}

/// Reads a file of tests.
///
/// # Errors
/// Everything that is wrong with it.
pub fn rule_tests(file: &str, content: &[u8]) -> Result<RuleTests, Vec<FileFinding>> {
    let mut report = Report::new(file);
    let advice = "the file is empty; write rules or actions, and 'tests'";
    let root = root_within(&mut report, content, &Limits::default(), advice);
    let read = root.map(|root| tests_of(&mut report, &root));
    let (findings, _) = report.finish();
    read.filter(|_| findings.is_empty()).ok_or(findings)
}

/// What can be tested of an agent's configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn declared_rules(file: &str, content: &[u8]) -> Result<TestedRules, Vec<FileFinding>> {
    let mut report = Report::new(file);
    let draft = root(&mut report, content).map(|root| configuration(&mut report, &root, Reading::Explicit));
    let (findings, _) = report.finish();
    let tested = |draft: super::Draft| TestedRules { health: draft.health, actions: draft.actions };
    draft.filter(|_| findings.is_empty()).map(tested).ok_or(findings)
}

/// Keys of a file of definitions, which has its tests beside them.
const OF_DEFINITIONS: [&str; 2] = ["health", "relations"];

fn tests_of(report: &mut Report, root: &Node) -> RuleTests {
    let keys = ["rules", "imported", "actions", "config", "tests", "health", "relations"];
    let known = strict_mapping(report, root, "", &keys);
    let has = |keys: &[&str]| keys.iter().any(|key| known.contains_key(*key));
    let rules = match (
        has(&["actions"]),
        has(&["rules", "imported"]),
        has(&OF_DEFINITIONS),
        known.get("config"),
    ) {
        (false, false, false, Some(node)) => {
            RuleFrom::Configuration(text(report, node, "config", false).unwrap_or_default())
        }
        (true, false, false, None) | (_, true, false, None) => RuleFrom::Here(rules_here(report, &known)),
        (_, false, true, None) => RuleFrom::Here(rules_of_definitions(report, &known)),
        _ => {
            let advice = "write either 'rules', 'imported' and 'actions', or 'config' with the path of an agent's configuration file, or 'health', 'relations' and 'actions' as in a file of definitions";
            report.wrong(root, "rules", advice);
            RuleFrom::Here(TestedRules::default())
        }
    };
    let advice = "write objects and how they are to be judged";
    let node = required(report, root, &known, "", "tests", advice);
    RuleTests { rules, tests: node.map(|node| tests(report, node)).unwrap_or_default() }
}

/// A list of tests.
pub(super) fn tests(report: &mut Report, node: &Node) -> Vec<RuleTest> {
    let items = bounded_list(report, node, "tests", (MAXIMUM_TESTS, "tests")).iter().enumerate();
    items.filter_map(|(place, item)| test(report, item, &format!("tests[{place}]"))).collect()
}

fn rules_here(report: &mut Report, known: &BTreeMap<String, &Node>) -> TestedRules {
    let rules = known.get("rules").map(|node| health::rules(report, node, "rules"));
    let imported = known.get("imported").map(|node| health::imported(report, node, "imported"));
    let actions = known.get("actions").map(|node| actions::actions(report, node, "actions"));
    let health = HealthSettings { rules: rules.unwrap_or_default(), imported: imported.unwrap_or_default() };
    TestedRules { health, actions: actions.unwrap_or_default() }
}

/// As in a file of definitions. Of its relations nothing is tested but that they can be read.
fn rules_of_definitions(report: &mut Report, known: &BTreeMap<String, &Node>) -> TestedRules {
    let health = known.get("health").map(|node| health::settings(report, node));
    let actions = known.get("actions").map(|node| actions::actions(report, node, "actions"));
    if let Some(node) = known.get("relations") {
        relations::relations(report, node);
    }
    TestedRules { health: health.unwrap_or_default(), actions: actions.unwrap_or_default() }
}

fn test(report: &mut Report, node: &Node, path: &str) -> Option<RuleTest> {
    let keys = ["name", "object", "state", "message", "action", "offered", "patch"];
    let known = strict_mapping(report, node, path, &keys);
    node.as_mapping()?;
    let object = required(report, node, &known, path, "object", "write the object as in a manifest");
    let object = object.and_then(|node| {
        if node.as_mapping().is_none() {
            let message = format!("{} where an object is expected", node.kind());
            report.wrong(node, &join(path, "object"), message);
        }
        node.as_mapping().map(|_| node.to_json())
    });
    let expected = match known.get("action") {
        Some(action) => expected_action(report, (action, &known), path),
        None => expected_health(report, (node, &known), path),
    };
    let object = object?;
    let place = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let default = format!("{} {}", place("/kind"), place("/metadata/name"));
    let name = match known.get("name") {
        Some(node) => text(report, node, &join(path, "name"), false)?,
        None => default.trim().to_owned(),
    };
    Some(RuleTest { name, expected: expected?, line: node.line, object })
}

/// Refuses what only the other kind of test has.
fn others(report: &mut Report, known: &BTreeMap<String, &Node>, path: &str, keys: &[&str], why: &str) {
    for key in keys {
        if let Some(node) = known.get(*key) {
            report.wrong(node, &join(path, key), why);
        }
    }
}

fn expected_health(
    report: &mut Report,
    (node, known): (&Node, &BTreeMap<String, &Node>),
    path: &str,
) -> Option<Expected> {
    others(report, known, path, &["offered", "patch"], "is for a test of an 'action'");
    let advice = "write how the object is to be judged, or an 'action'";
    let state = required(report, node, known, path, "state", advice);
    let state = state.and_then(|node| choice(report, node, &join(path, "state"), &STATES));
    let message = match known.get("message") {
        Some(node) => Some(text(report, node, &join(path, "message"), true)?),
        None => None,
    };
    Some(Expected::Health { state: state?, message })
}

fn expected_action(
    report: &mut Report,
    (action, known): (&Node, &BTreeMap<String, &Node>),
    path: &str,
) -> Option<Expected> {
    others(report, known, path, &["state", "message"], "a test is of an 'action' or of a 'state'");
    let name = text(report, action, &join(path, "action"), false)?;
    let patch = known.get("patch").map(|node| node.to_json());
    let offered = match known.get("offered") {
        Some(node) => truth(report, node, &join(path, "offered"))?,
        None => true,
    };
    if let (false, Some(node)) = (offered, known.get("patch")) {
        report.wrong(node, &join(path, "patch"), "what is not offered has no patch");
    }
    Some(Expected::Action { name, offered, patch })
}
