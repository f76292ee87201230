//! The key `relations`: how objects are related, beyond what is known of their kinds.

use events::configuration::{DeclaredRelation, KindPattern};
use objects::yaml::Node;

use super::fields::{bounded_list, join, label, required, strict_mapping};
use super::health::expression;
use super::kind_pattern;
use super::report::Report;

/// Most relations of one configuration: each is tried on every object that the index takes in.
pub(super) const MAXIMUM_RELATIONS: usize = 100;
const KEYS: [&str; 6] = ["name", "from", "to", "names", "labels", "namespace"];

pub(super) fn relations(report: &mut Report, node: &Node) -> Vec<DeclaredRelation> {
    let items = bounded_list(report, node, "relations", (MAXIMUM_RELATIONS, "relations"));
    let items = items.iter().enumerate();
    items.filter_map(|(place, item)| relation(report, item, &format!("relations[{place}]"))).collect()
}

fn relation(report: &mut Report, node: &Node, path: &str) -> Option<DeclaredRelation> {
    let known = strict_mapping(report, node, path, &KEYS);
    node.as_mapping()?;
    let name = required(report, node, &known, path, "name", "write what it is called, such as uses-database");
    let from =
        required(report, node, &known, path, "from", "write {group, kind} of the objects that name others");
    let to = required(report, node, &known, path, "to", "write {group, kind} of the objects that are named");
    let name = name.and_then(|node| label(report, node, &join(path, "name"), "name of a relation"));
    let from = from.and_then(|node| kind_pattern(report, node, &join(path, "from")));
    let to = to.and_then(|node| exact(report, node, &join(path, "to")));
    let mut optional =
        |field: &str| known.get(field).and_then(|node| expression(report, node, &join(path, field)));
    let (names, labels, namespace) = (optional("names"), optional("labels"), optional("namespace"));
    if known.contains_key("names") == known.contains_key("labels") {
        let message =
            "write either 'names' or 'labels': an expression that gives names, or labels with values";
        report.wrong(node, path, message);
    }
    Some(DeclaredRelation { name: name?, from: from?, to: to?, names, labels, namespace })
}

/// One kind, not many.
fn exact(report: &mut Report, node: &Node, path: &str) -> Option<KindPattern> {
    let kind = kind_pattern(report, node, path)?;
    if kind.group.contains('*') || kind.kind.contains('*') {
        report.wrong(node, path, "a relation leads to one kind; '*' is not allowed here");
    }
    Some(kind)
}
