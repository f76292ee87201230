//! `ShowCoverage`: which clusters the index knows, and how well.

use events::requests::index::{AgentCoverage, BlindKind, Coverage, ShowCoverage};
use events::{AgentId, Refusal, Timestamp};

use crate::model::filter::agent_named;
use crate::model::fold::OBJECTS;
use crate::model::index::OfKind;
use crate::model::observed::{KindPlace, KindState};
use crate::model::view::View;

/// Kinds of one agent that are listed of those that it does not see.
const BLIND: usize = 50;

/// What is known of each cluster that the asker may use.
///
/// # Errors
/// When an agent is named and none is meant, or several are.
pub fn coverage(request: &ShowCoverage, view: &View<'_>) -> Result<Coverage, Refusal> {
    let all: Vec<AgentId> = match &request.agent {
        Some(name) => vec![agent_named(name, view)?],
        None => view.sight.rights().agents().filter(|agent| !view.directory.is_deleted(*agent)).collect(),
    };
    let (mut agents, mut named) = (Vec::new(), if request.brief { 0 } else { ShowCoverage::BLIND });
    for agent in all.iter().take(ShowCoverage::AGENTS) {
        let of_agent = of_agent(view, *agent, named.min(BLIND));
        named = named.saturating_sub(of_agent.blind.len());
        agents.push(of_agent);
    }
    let left_out = u64::try_from(all.len().saturating_sub(agents.len())).unwrap_or(u64::MAX);
    Ok(Coverage { agents, left_out, as_of: view.as_of.clone() })
}

/// What is known of one; of the kinds that it does not see, so many are named.
fn of_agent(view: &View<'_>, agent: AgentId, named: usize) -> AgentCoverage {
    let rights = view.sight.rights();
    let observed = view.observed.get(&agent);
    let heard_at = observed.map_or(Timestamp(0), |observed| observed.heard_at);
    let empty = AgentCoverage {
        agent,
        agent_name: view.directory.name_of(agent),
        objects: 0,
        kinds: 0,
        heard_at,
        stale: None,
        rights_unknown: rights.unknown(agent),
        blind: Vec::new(),
        blind_count: 0,
    };
    if !rights.shows(agent) {
        // Not even a count is reported.
        return AgentCoverage { heard_at: Timestamp(0), stale: view.agent_stale(agent), ..empty };
    }
    let nothing = || observed.is_none().then(|| "its agent has told of no objects yet".to_owned());
    let full = || observed.filter(|observed| observed.is_full).map(|_| too_many());
    let kinds = observed.into_iter().flat_map(|observed| &observed.kinds);
    let seen: Vec<_> = kinds.filter(|(place, state)| view.sees_place(agent, place, state)).collect();
    let blind = || seen.iter().filter_map(|(place, state)| blind_kind(place, state));
    AgentCoverage {
        objects: count(view, agent),
        kinds: number(seen.iter().filter(|(_, kind)| kind.listed_at.is_some()).count()),
        stale: view.agent_stale(agent).or_else(nothing).or_else(full),
        blind_count: number(blind().count()),
        blind: blind().take(named).collect(),
        ..empty
    }
}

fn too_many() -> String {
    format!("its agent told of more than {OBJECTS} objects: the others are not kept")
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn count(view: &View<'_>, agent: AgentId) -> u64 {
    if view.sight.rights().shows_all(agent) {
        return view.index.count(agent);
    }
    let all = view.index.kinds(agent).into_iter().flat_map(|kinds| kinds.values());
    let seen = all.flat_map(OfKind::slots).filter(|slot| view.there(*slot).is_some()).count();
    u64::try_from(seen).unwrap_or(u64::MAX)
}

fn blind_kind(place: &KindPlace, state: &KindState) -> Option<BlindKind> {
    let blind = state.blind.as_ref()?;
    let resource = if place.group.is_empty() {
        state.plural.clone()
    } else {
        format!("{}.{}", state.plural, place.group)
    };
    let (reason, missing) = (blind.reason.clone(), blind.missing.clone());
    Some(BlindKind { resource, namespace: place.namespace.clone(), reason, missing, since: blind.since })
}
