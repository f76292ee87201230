//! The conventions that most controllers follow, for kinds without a rule of their own.

use super::view::View;
use super::{Health, RuleSource};

/// The controller has not looked at the latest change; known only when it says which one it looked at.
pub(super) fn stale(view: View<'_>) -> Option<Health> {
    let generation = view.int("metadata.generation")?;
    let observed = view.int("status.observedGeneration")?;
    (observed != generation).then(|| {
        Health::progressing(format!(
            "the controller has seen generation {observed}, the latest is {generation}"
        ))
    })
}

/// `None`: the object says nothing of itself, neither conditions nor which generation its controller has seen.
pub(super) fn rule(view: View<'_>) -> Option<Health> {
    let tells = !view.list("status.conditions").is_empty() || view.int("status.observedGeneration").is_some();
    tells.then(|| Health { source: RuleSource::Generic, ..judge(view) })
}

fn judge(view: View<'_>) -> Health {
    if let Some(health) = stale(view) {
        return health;
    }
    if let Some(condition) = view.condition("Reconciling").filter(|condition| condition.is_true()) {
        return Health::progressing(condition.explain());
    }
    if let Some(condition) = view.condition("Stalled").filter(|condition| condition.is_true()) {
        return Health::degraded(condition.explain());
    }
    match view.condition("Ready") {
        Some(ready) if !ready.is_true() => Health::progressing(ready.explain()),
        _ => Health::healthy(),
    }
}
