//! The key `actions`: what can be done with objects of kinds that have no built-in actions.

use events::configuration::{DeclaredAction, ObjectPatch};
use objects::action::{ActionError, MAXIMUM_ACTIONS, MAXIMUM_TEXT, SUBRESOURCES, check_kind, check_patch};
use objects::yaml::Node;

use super::fields::{choice, distinct_items, join, label, list, required, strict_mapping, text};
use super::health::expression;
use super::report::Report;

const KEYS: [&str; 8] = ["name", "group", "kind", "text", "when", "merge", "json", "subresource"];

/// A list of actions under a path.
pub(super) fn actions(report: &mut Report, node: &Node, path: &str) -> Vec<DeclaredAction> {
    let is_same = |known: &DeclaredAction, action: &DeclaredAction| {
        (&known.group, &known.kind, &known.name) == (&action.group, &action.kind, &action.name)
    };
    let twice = "another action of this kind has this name";
    distinct_items(report, node, path, (MAXIMUM_ACTIONS, "actions"), action, (is_same, twice))
}

fn action(report: &mut Report, node: &Node, path: &str) -> Option<DeclaredAction> {
    let known = strict_mapping(report, node, path, &KEYS);
    node.as_mapping()?;
    let mut needed = |key: &str, advice: &str| required(report, node, &known, path, key, advice);
    let name = needed("name", "write what it is called, such as pause");
    let group = needed("group", "write '' for the core group");
    let kind_node = needed("kind", "write the kind of the objects");
    let words = needed("text", "write what it does, in a sentence");
    let name = name.and_then(|node| label(report, node, &join(path, "name"), "name of an action"));
    let group = group.and_then(|node| text(report, node, &join(path, "group"), true));
    let kind = kind_node.and_then(|node| text(report, node, &join(path, "kind"), false));
    let words = words.and_then(|node| bounded_text(report, node, &join(path, "text")));
    let when = known.get("when").and_then(|node| expression(report, node, &join(path, "when")));
    let subresource = known.get("subresource").and_then(|node| {
        choice(report, node, &join(path, "subresource"), &SUBRESOURCES.map(|name| (name, name)))
    });
    let patch = match (known.get("merge"), known.get("json")) {
        (Some(merge), None) => Some((merge, "merge", ObjectPatch::Merge(merge.to_json()))),
        (None, Some(json)) => {
            let operations = list(report, json, &join(path, "json"));
            Some((json, "json", ObjectPatch::Json(operations.iter().map(Node::to_json).collect())))
        }
        _ => {
            report.wrong(
                node,
                path,
                "write either 'merge', a merge patch, or 'json', operations of a JSON patch",
            );
            None
        }
    };
    if let Some((node, key, patch)) = &patch
        && let Err(error) = check_patch(patch)
    {
        report.wrong(node, &join(path, key), error.to_string());
    }
    let (group, kind) = (group?, kind?);
    if let Err(error) = exact(&group, &kind) {
        report.wrong(kind_node.unwrap_or(node), &join(path, "kind"), error);
    }
    let (_, _, patch) = patch?;
    let subresource = subresource.map(str::to_owned);
    Some(DeclaredAction { name: name?, group, kind, text: words?, when, patch, subresource })
}

/// One kind, not many, of which objects are changed by actions.
fn exact(group: &str, kind: &str) -> Result<(), String> {
    if group.contains('*') || kind.contains('*') {
        return Err("an action is for one kind; '*' is not allowed here".to_owned());
    }
    check_kind(group, kind).map_err(|error: ActionError| error.to_string())
}

fn bounded_text(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    let words = text(report, node, path, false)?;
    if words.len() > MAXIMUM_TEXT {
        report.wrong(node, path, format!("{} bytes; at most {MAXIMUM_TEXT} are allowed", words.len()));
    }
    Some(words)
}
