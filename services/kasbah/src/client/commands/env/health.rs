//! How environments are doing by their objects, for people.

use std::collections::BTreeMap;

use events::EnvironmentId;
use events::request::RefusalKind;
use events::requests::environments::EnvironmentView;
use events::requests::index::{EnvironmentHealth, HealthState};
use serde::Serialize;

use crate::client::commands::objects::text::{LISTED, named, paint, word};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Fields, Paint, one_line};
use crate::client::session::Session;

/// How environments are doing, by their ids. Of those into which nothing was deployed nothing is known.
pub(super) type Known = BTreeMap<EnvironmentId, EnvironmentHealth>;

/// An environment with how it is doing.
#[derive(Debug, Serialize)]
pub(super) struct WithHealth {
    #[serde(flatten)]
    pub(super) view: EnvironmentView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) health: Option<EnvironmentHealth>,
}

impl WithHealth {
    pub(super) fn of(view: EnvironmentView, known: &Known) -> Self {
        let health = known.get(&view.id).cloned();
        Self { view, health }
    }
}

/// How the environments are doing that a query means. Where the index cannot be asked, that is said on standard error, and the environments
/// are shown without.
pub(super) async fn of(session: &Session, query: &[(&'static str, String)]) -> Known {
    let listed = session.api.list::<EnvironmentHealth>(&["environment-health"], query).await;
    match listed {
        Ok(all) => all.into_iter().map(|health| (health.environment, health)).collect(),
        Err(Failure::Refused { refusal, .. }) if refusal.kind == RefusalKind::NotFound => Known::new(),
        Err(failure) => {
            eprintln!("warning: how the objects are doing is not known: {}", one_line(&failure.to_string()));
            Known::new()
        }
    }
}

/// How an environment is doing, as far as it is known: one without objects is empty, and what may be out of date never reads as good.
pub(super) fn state(health: Option<&EnvironmentHealth>) -> Cell {
    let Some(health) = health else { return Cell::or_dash(None) };
    let stale = if health.stale.is_some() { ", stale" } else { "" };
    if health.objects == 0 {
        return Cell::painted(&format!("empty{stale}"), Paint::Odd);
    }
    let word = if health.health == HealthState::None { "-" } else { word(health.health) };
    let painted = match paint(health.health) {
        Paint::Good | Paint::Dim if health.stale.is_some() => Paint::Odd,
        painted => painted,
    };
    Cell::painted(&format!("{word}{stale}"), painted)
}

/// Adds how an environment is doing.
pub(super) fn add_to(fields: Fields, health: &EnvironmentHealth) -> Fields {
    let painted = |why: &Option<String>, paint| why.as_deref().map(|why| Cell::painted(why, paint));
    fields
        .with("Health", state(Some(health)))
        .with("Objects", counts(health))
        .with_some("Worst", reason(health))
        .with_some("Out of date", painted(&health.stale, Paint::Bad))
        .with_some("Hidden", painted(&health.hidden, Paint::Odd))
}

/// `2 degraded, 5 healthy`, the worst first, with the number of all objects.
fn counts(health: &EnvironmentHealth) -> String {
    let some = health.counts.iter().rev().filter(|count| count.state != HealthState::None);
    let parts: Vec<String> = some.map(|count| format!("{} {}", count.count, word(count.state))).collect();
    let objects = match health.objects {
        1 => "1 object".to_owned(),
        objects => format!("{objects} objects"),
    };
    match parts.is_empty() {
        true => objects,
        false => format!("{} (of {objects})", parts.join(", ")),
    }
}

/// The worst object and why it is so.
fn reason(health: &EnvironmentHealth) -> Option<String> {
    let worst = health.worst.as_deref()?;
    let called = named(&worst.identity, None);
    match worst.health.message.as_str() {
        "" => Some(called),
        message => Some(format!("{called}: {message}")),
    }
}

/// The same for a table.
pub(super) fn reason_cell(health: Option<&EnvironmentHealth>) -> Cell {
    Cell::or_dash(health.and_then(reason).as_deref()).at_most(LISTED)
}

#[cfg(test)]
pub(super) mod tests {
    use events::ProjectId;
    use events::environment::Tier;
    use events::requests::environments::EnvironmentState;
    use events::requests::index::HealthCount;
    use uuid::Uuid;

    use super::*;
    use crate::client::commands::objects::text::tests::{STYLE, object};
    use crate::client::print::Table;

    pub fn degraded() -> EnvironmentHealth {
        let count = |state, count| HealthCount { state, count };
        EnvironmentHealth {
            environment: EnvironmentId(Uuid::from_u128(1)),
            name: "production".into(),
            project: ProjectId(Uuid::from_u128(2)),
            project_path: "shop/front".into(),
            tier: Tier::Production,
            state: EnvironmentState::Available,
            objects: 9,
            health: HealthState::Degraded,
            counts: vec![
                count(HealthState::None, 2),
                count(HealthState::Healthy, 5),
                count(HealthState::Degraded, 1),
            ],
            worst: Some(Box::new(object(
                "Deployment",
                "web",
                HealthState::Degraded,
                "0 of 1 pods available",
            ))),
            stale: None,
            hidden: None,
        }
    }

    fn shown(health: &EnvironmentHealth) -> String {
        let mut table = Table::new(&["A"]);
        table.row([state(Some(health))]);
        table.render(STYLE, "").lines().nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn an_environment_is_as_its_worst_object_and_never_simply_healthy_when_empty_or_stale() {
        let bad = degraded();
        assert_eq!(shown(&bad), "degraded");
        assert_eq!(counts(&bad), "1 degraded, 5 healthy (of 9 objects)");
        assert_eq!(reason(&bad).unwrap(), "Deployment shop/web: 0 of 1 pods available");
        let stale = EnvironmentHealth {
            health: HealthState::Healthy,
            worst: None,
            stale: Some("not connected".into()),
            ..bad.clone()
        };
        assert_eq!((shown(&stale).as_str(), reason(&stale)), ("healthy, stale", None));
        let empty = EnvironmentHealth { objects: 0, health: HealthState::None, counts: Vec::new(), ..bad };
        assert_eq!((shown(&empty).as_str(), counts(&empty).as_str()), ("empty", "0 objects"));
    }
}
