//! How objects are shown to people.

use events::ObjectIdentity;
use events::requests::index::{HealthState, IndexedObject, ObjectOwner};

use crate::client::print::{Cell, Paint, Style, age};

/// Letters of a reason in a table.
pub(in crate::client::commands) const LISTED: usize = 100;

/// States of health by their words.
pub(super) const STATES: &[(&str, HealthState)] = &[
    ("none", HealthState::None),
    ("healthy", HealthState::Healthy),
    ("suspended", HealthState::Suspended),
    ("progressing", HealthState::Progressing),
    ("missing", HealthState::Missing),
    ("degraded", HealthState::Degraded),
    ("unknown", HealthState::Unknown),
];

/// The word of a state.
pub(in crate::client::commands) fn word(state: HealthState) -> &'static str {
    STATES.iter().find(|(_, known)| *known == state).map_or("unknown", |(word, _)| word)
}

/// How a state is painted.
pub(in crate::client::commands) const fn paint(state: HealthState) -> Paint {
    match state {
        HealthState::None => Paint::Dim,
        HealthState::Healthy => Paint::Good,
        HealthState::Suspended | HealthState::Progressing | HealthState::Unknown => Paint::Odd,
        HealthState::Missing | HealthState::Degraded => Paint::Bad,
    }
}

/// How an object is doing, as far as it is known: what may be out of date never reads as good.
pub(super) fn health(object: &IndexedObject) -> Cell {
    let health = &object.health;
    if object.gone_at.is_some() {
        return Cell::painted("gone", Paint::Dim);
    }
    let word = match health.state {
        HealthState::None if !health.terminating => "-",
        state => word(state),
    };
    let deleting = if health.terminating { ", being deleted" } else { "" };
    let stale = if object.stale.is_some() { ", stale" } else { "" };
    let painted = match paint(health.state) {
        Paint::Good | Paint::Dim if object.stale.is_some() => Paint::Odd,
        painted => painted,
    };
    Cell::painted(&format!("{word}{deleting}{stale}"), painted)
}

/// How old it is.
pub(super) fn age_of(object: &IndexedObject, style: Style) -> Cell {
    Cell::or_dash(object.created_at.map(|created| age(created, style.now)).as_deref())
}

/// Who owns it, as `source edge/shop (by Deployment.apps shop/web)`.
pub(super) fn owner(owner: &ObjectOwner) -> String {
    let ObjectOwner { kind, name, through } = owner;
    match through {
        Some(through) => format!("{kind} {name} (by {through})"),
        None => format!("{kind} {name}"),
    }
}

/// `group/project:name` of its environment.
pub(super) fn environment(object: &IndexedObject) -> Cell {
    let environment = object.environment.as_ref();
    Cell::or_dash(environment.map(|of| format!("{}:{}", of.project_path, of.name)).as_deref())
}

/// Why it is as it is.
pub(super) fn reason(object: &IndexedObject) -> Cell {
    Cell::or_dash(Some(object.health.message.as_str())).at_most(LISTED)
}

/// `Deployment shop/web`; without the namespace where it is `within`.
pub(in crate::client::commands) fn named(identity: &ObjectIdentity, within: Option<&str>) -> String {
    let ObjectIdentity { kind, namespace, name, .. } = identity;
    if namespace.is_empty() || within == Some(namespace) {
        return format!("{kind} {name}");
    }
    format!("{kind} {namespace}/{name}")
}

/// `deployment.apps/web`, as kubectl takes it.
pub(super) fn argument(identity: &ObjectIdentity) -> String {
    let dot = if identity.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}/{}", identity.kind.to_lowercase(), identity.group, identity.name)
}

#[cfg(test)]
pub(in crate::client::commands) mod tests {
    use events::requests::index::ObjectHealth;
    use events::{AgentId, Timestamp};

    use super::*;
    use crate::client::print::Table;

    pub const STYLE: Style = Style { colour: false, now: Timestamp(600_000) };

    /// An object of that kind and name in namespace `shop`.
    pub fn object(kind: &str, name: &str, state: HealthState, message: &str) -> IndexedObject {
        let group = if kind == "Pod" { "" } else { "apps" };
        IndexedObject {
            agent: AgentId(uuid::Uuid::from_u128(1)),
            agent_name: "shop/deploy:production".into(),
            identity: ObjectIdentity {
                group: group.into(),
                version: "v1".into(),
                kind: kind.into(),
                namespace: "shop".into(),
                name: name.into(),
            },
            uid: format!("uid-{name}"),
            health: ObjectHealth {
                state,
                message: message.into(),
                terminating: false,
                optional: false,
                rule: "built-in".into(),
                rule_set: None,
            },
            created_at: Some(Timestamp(300_000)),
            changed_at: Timestamp(540_000),
            gone_at: None,
            stale: None,
            environment: None,
            owners: Vec::new(),
            deployment: None,
        }
    }

    fn shown(cell: Cell, colour: bool) -> String {
        let mut table = Table::new(&["A"]);
        table.row([cell]);
        let text = table.render(Style { colour, ..STYLE }, "");
        text.lines().nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn what_is_stale_never_reads_as_healthy() {
        let fresh = object("Deployment", "web", HealthState::Healthy, "");
        let stale = IndexedObject { stale: Some("agent not connected".into()), ..fresh.clone() };
        assert_eq!(shown(health(&fresh), true), "\u{1b}[32mhealthy\u{1b}[0m");
        assert_eq!(shown(health(&stale), true), "\u{1b}[33mhealthy, stale\u{1b}[0m");
        let none = object("ConfigMap", "web", HealthState::None, "");
        assert_eq!(shown(health(&none), false), "-");
        let gone = IndexedObject { gone_at: Some(Timestamp(1)), ..fresh.clone() };
        assert_eq!(shown(health(&gone), false), "gone");
        let mut deleting = fresh;
        deleting.health.state = HealthState::Progressing;
        deleting.health.terminating = true;
        assert_eq!(shown(health(&deleting), false), "progressing, being deleted");
    }

    #[test]
    fn every_state_has_a_word_which_the_api_takes() {
        for (word, state) in STATES {
            assert_eq!(serde_json::to_value(state).unwrap(), *word);
        }
    }

    #[test]
    fn an_object_is_called_as_people_and_kubectl_call_it() {
        let web = object("Deployment", "web", HealthState::Healthy, "").identity;
        assert_eq!(named(&web, None), "Deployment shop/web");
        assert_eq!(named(&web, Some("shop")), "Deployment web");
        assert_eq!(argument(&web), "deployment.apps/web");
        assert_eq!(argument(&object("Pod", "a", HealthState::Healthy, "").identity), "pod/a");
    }
}
