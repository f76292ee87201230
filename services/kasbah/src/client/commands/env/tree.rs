//! `kasbah env tree`: the objects of an environment with their health.

use events::environment::Grouping;
use events::requests::environments::EnvironmentView;
use events::requests::index::{EnvironmentHealth, TreeNode};
use serde::{Deserialize, Serialize};

use super::{EnvironmentArg, health, resolve};
use crate::client::commands::objects::AsOf;
use crate::client::commands::objects::selection::AtArg;
use crate::client::commands::objects::tree::table;
use crate::client::failure::Failure;
use crate::client::print::{Fields, Style};
use crate::client::session::Session;

/// Which environment, and when.
#[derive(Debug, clap::Args)]
pub struct Tree {
    #[command(flatten)]
    environment: EnvironmentArg,
    #[command(flatten)]
    at: AtArg,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    health: EnvironmentHealth,
    nodes: Vec<TreeNode>,
    left_out: u64,
    as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When there is no such environment, or the server refuses or cannot be asked.
pub(super) async fn run(wanted: Tree, session: &Session) -> Result<(), Failure> {
    let id = resolve(session, &wanted.environment).await?.to_string();
    let mut query = Vec::new();
    wanted.at.add_to(&mut query, session);
    let tree: Answer = session.api.get(&["environments", &id, "tree"], &query).await?;
    session.printer.show(&tree, text)?;
    if tree.health.objects == 0 && session.is_for_people() {
        let view: EnvironmentView = session.api.get(&["environments", &id], &[]).await?;
        eprintln!("{}", nothing_found(&tree.health, &view));
    }
    Ok(())
}

/// What to look at where an environment has no object.
fn nothing_found(health: &EnvironmentHealth, view: &EnvironmentView) -> String {
    if health.hidden.is_some() {
        return "no object of this environment is shown to you".to_owned();
    }
    match &view.grouping {
        Grouping::Labels { project, environment } => {
            format!("no object was found: are the labels {project} and {environment}={} set?", view.slug)
        }
        Grouping::Namespace => "no object was found in the namespace of the last deployment".to_owned(),
        Grouping::Inventory => "no object of the source that deploys was found".to_owned(),
    }
}

fn text(tree: &Answer, style: Style) -> String {
    let health = &tree.health;
    let head = Fields::new()
        .with("Environment", format!("{}:{}", health.project_path, health.name))
        .with("Tier", health.tier.as_str());
    let mut text = health::add_to(head, health).render(style);
    if !tree.nodes.is_empty() {
        text.push('\n');
        text.push_str(&table(&tree.nodes, tree.left_out, style));
    }
    text
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use events::requests::index::HealthState;

    use super::*;
    use crate::client::commands::objects::text::tests::{STYLE, object};

    #[test]
    fn the_roll_up_stands_above_the_tree() {
        let node = |parent, kind, name| TreeNode {
            parent,
            relation: parent.map(|_| "controls".to_owned()),
            object: object(kind, name, HealthState::Degraded, ""),
        };
        let nodes = vec![node(None, "Deployment", "web"), node(Some(0), "ReplicaSet", "web-1")];
        let as_of = AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None };
        let shown = text(&Answer { health: health::tests::degraded(), nodes, left_out: 3, as_of }, STYLE);
        for part in [
            "shop/front:production",
            "1 degraded, 5 healthy (of 9 objects)",
            "Deployment shop/web (production)",
            "└── ReplicaSet web-1",
            "and 3 more",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
