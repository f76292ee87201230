//! `kasbah tree`: what an object owns, selects and uses, down to the pods.

use events::requests::index::TreeNode;
use serde::{Deserialize, Serialize};

use super::selection::{AtArg, Likeness, Named, agent_of};
use super::text::{age_of, health, named, reason};
use super::{AsOf, coverage};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Style, Table};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah tree deploy/web                       its ReplicaSets and their pods
  kasbah tree svc -n shop                      each Service of a namespace
  kasbah tree deploy/web --at 2026-01-31T12:00:00Z
";

/// Relations that need no word: what stands below its owner.
const OWNING: &[&str] = &["controls", "owns"];

/// Which objects stand at the top.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct Tree {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    likeness: Likeness,
    #[command(flatten)]
    at: AtArg,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    nodes: Vec<TreeNode>,
    left_out: u64,
    as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When there is no such object, or the server refuses or cannot be asked.
pub async fn run(wanted: Tree, session: &Session) -> Result<(), Failure> {
    let mut query = wanted.named.fields()?;
    wanted.likeness.add_to(&mut query);
    wanted.at.add_to(&mut query, session);
    let tree: Answer = session.api.get(&["objects", "tree"], &query).await?;
    if !tree.nodes.is_empty() {
        session.printer.show(&tree, text)?;
    }
    coverage::warn(session, &wanted.named.place).await;
    if tree.nodes.is_empty() { Err(Failure::not_found(&wanted.named.called())) } else { Ok(()) }
}

fn text(tree: &Answer, style: Style) -> String {
    table(&tree.nodes, tree.left_out, style)
}

/// Nodes of a tree, and how many are not among them.
pub(in crate::client::commands) fn table(nodes: &[TreeNode], left_out: u64, style: Style) -> String {
    let mut table = Table::new(&["OBJECT", "HEALTH", "AGE", "REASON"]);
    let roots = nodes.iter().enumerate().filter(|(_, node)| node.parent.is_none());
    for (place, _) in roots {
        Branch { nodes, style }.add(&mut table, place, "", "");
    }
    let mut text = table.render(style, "");
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more that are too many to show\n"));
    }
    text
}

struct Branch<'a> {
    nodes: &'a [TreeNode],
    style: Style,
}

impl Branch<'_> {
    /// Adds a node and what is below it: `own` stands before the node, `below` before each of its children. Parents come before children, so
    /// this ends.
    fn add(&self, table: &mut Table, place: usize, own: &str, below: &str) {
        let Some(node) = self.nodes.get(place) else { return };
        let object = &node.object;
        let cells =
            [self.called(node).behind(own), health(object), age_of(object, self.style), reason(object)];
        table.row(cells);
        let is_child = |node: &TreeNode| node.parent.is_some_and(|parent| parent as usize == place);
        let later = self.nodes.iter().enumerate().skip(place.saturating_add(1));
        let mut children = later.filter(|(_, node)| is_child(node)).map(|(place, _)| place).peekable();
        while let Some(child) = children.next() {
            let (own, further) =
                if children.peek().is_some() { ("├── ", "│   ") } else { ("└── ", "    ") };
            self.add(table, child, &format!("{below}{own}"), &format!("{below}{further}"));
        }
    }

    fn called(&self, node: &TreeNode) -> Cell {
        let identity = &node.object.identity;
        let parent = node.parent.and_then(|parent| self.nodes.get(parent as usize));
        let Some(parent) = parent else {
            return format!("{} ({})", named(identity, None), agent_of(&node.object)).into();
        };
        let name = named(identity, Some(&parent.object.identity.namespace));
        match node.relation.as_deref().filter(|relation| !OWNING.contains(relation)) {
            Some(relation) => format!("{name} ({relation})").into(),
            None => name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use events::requests::index::HealthState;

    use super::super::text::tests::{STYLE, object};
    use super::*;

    fn node(parent: Option<u32>, relation: Option<&str>, kind: &str, name: &str) -> TreeNode {
        let object = object(kind, name, HealthState::Healthy, "");
        TreeNode { parent, relation: relation.map(str::to_owned), object }
    }

    #[test]
    fn children_stand_below_their_parents_behind_lines() {
        let controls = Some("controls");
        let nodes = vec![
            node(None, None, "Deployment", "web"),
            node(Some(0), controls, "ReplicaSet", "web-1"),
            node(Some(0), controls, "ReplicaSet", "web-2"),
            node(Some(1), controls, "Pod", "web-1-a"),
            node(Some(2), controls, "Pod", "web-2-a"),
            node(Some(2), Some("selects"), "Pod", "web-2-b"),
        ];
        let as_of = AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None };
        let shown = text(&Answer { nodes, left_out: 7, as_of }, STYLE);
        let lines: Vec<&str> =
            shown.lines().map(|line| line.split("  healthy").next().unwrap().trim_end()).collect();
        assert_eq!(
            lines,
            [
                "OBJECT                            HEALTH   AGE  REASON",
                "Deployment shop/web (production)",
                "├── ReplicaSet web-1",
                "│   └── Pod web-1-a",
                "└── ReplicaSet web-2",
                "    ├── Pod web-2-a",
                "    └── Pod web-2-b (selects)",
                "and 7 more that are too many to show",
            ],
            "{shown}"
        );
    }
}
