//! Answers to requests, made of a [`View`].

mod actions;
mod coverage;
mod detail;
mod environments;
mod explain;
mod find;
mod mesh;
mod network;
mod planting;
mod tree;

pub use actions::{Actions, actions};
pub use coverage::coverage;
pub use detail::{one, related};
pub use environments::{list_health, tiers};
pub use explain::explain;
pub use find::{Finding, find};
pub use mesh::{is_mesh_wide, mesh_wide_policies, security};
pub use network::network;
pub use planting::{Planting, environment_tree};
pub use tree::tree;

use events::requests::index::ShowTree;
use events::{Refusal, RefusalKind};

use super::filter::Matcher;
use super::record::Record;
use super::view::{View, described};

/// Objects that a refusal names.
const NAMED: usize = 10;

/// The objects that a filter means: none, or so many at most.
fn roots<'v>(matcher: &'v Matcher, view: &'v View<'_>) -> Result<Vec<&'v Record>, Refusal> {
    let found: Vec<&Record> = matcher.walk(view, None).take(ShowTree::ROOTS.saturating_add(1)).collect();
    if found.len() > ShowTree::ROOTS {
        let message = format!(
            "more than {} objects match, such as {}: name them more closely, by kind, name, namespace or agent",
            ShowTree::ROOTS,
            names(view, &found)
        );
        return Err(Refusal::new(RefusalKind::Conflict, message));
    }
    Ok(found)
}

fn names(view: &View<'_>, found: &[&Record]) -> String {
    let names: Vec<String> = found.iter().take(NAMED).map(|record| described(view, record)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
