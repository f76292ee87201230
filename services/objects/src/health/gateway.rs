//! The gateway API.

use super::Health;
use super::view::View;

/// What a list of conditions says: refused, not yet programmed, or nothing against it.
fn listener(view: View<'_>, path: &str) -> Option<Health> {
    for kind in ["Accepted", "ResolvedRefs"] {
        if let Some(condition) = view.condition_in(path, kind).filter(|condition| condition.is_false()) {
            return Some(Health::degraded(condition.explain()));
        }
    }
    let open = ["Accepted", "Programmed"]
        .into_iter()
        .find_map(|kind| view.condition_in(path, kind).filter(|condition| !condition.is_true()))?;
    Some(Health::progressing(open.explain()))
}

pub(super) fn gateway(view: View<'_>) -> Health {
    if view.list("status.conditions").is_empty() {
        return Health::progressing("no controller has taken it up yet");
    }
    if let Some(health) = listener(view, "status.conditions") {
        return health;
    }
    let listeners = view.list("status.listeners");
    let mut verdicts: Vec<Health> =
        listeners.into_iter().filter_map(|entry| listener(entry, "conditions")).collect();
    verdicts.sort_by_key(|health| std::cmp::Reverse(health.status));
    verdicts.into_iter().next().unwrap_or_else(Health::healthy)
}

pub(super) fn gateway_class(view: View<'_>) -> Health {
    match view.condition("Accepted").filter(|condition| !condition.is_stale()) {
        Some(condition) if condition.is_true() => Health::healthy(),
        Some(condition) if condition.is_false() => Health::degraded(condition.explain()),
        Some(condition) => Health::progressing(condition.explain()),
        None => Health::progressing("no controller has taken it up yet"),
    }
}

/// HTTP and gRPC routes: what each parent says, where it speaks of the latest generation.
pub(super) fn route(view: View<'_>) -> Health {
    let current = |parent: &View<'_>| {
        ["Accepted", "ResolvedRefs", "Programmed"]
            .into_iter()
            .filter_map(|kind| parent.condition_in("conditions", kind))
            .all(|condition| !condition.is_stale())
    };
    let parents: Vec<View<'_>> = view
        .list("status.parents")
        .into_iter()
        .filter(|parent| !parent.list("conditions").is_empty())
        .filter(current)
        .collect();
    if parents.is_empty() {
        return Health::progressing("no parent has taken it up yet");
    }
    let mut verdicts: Vec<Health> =
        parents.into_iter().filter_map(|parent| listener(parent, "conditions")).collect();
    verdicts.sort_by_key(|health| std::cmp::Reverse(health.status));
    verdicts.into_iter().next().unwrap_or_else(Health::healthy)
}

pub(super) fn backend_tls_policy(view: View<'_>) -> Health {
    let ancestors = view.list("status.ancestors");
    let mut accepted = false;
    for ancestor in ancestors {
        for kind in ["Accepted", "ResolvedRefs"] {
            let Some(condition) = ancestor.condition_in("conditions", kind) else { continue };
            if condition.is_stale() {
                return Health::progressing("a gateway has not seen the latest change");
            }
            if !condition.is_true() {
                return Health::degraded(condition.explain());
            }
            accepted |= kind == "Accepted";
        }
    }
    if accepted { Health::healthy() } else { Health::progressing("no gateway has taken it up yet") }
}
