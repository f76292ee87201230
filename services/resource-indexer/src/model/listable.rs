//! What a cluster's own authorization permits somebody to list: what is asked of it, and what it said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::AgentId;
use events::pass::Narrowing;
use events::requests::rights::{ReviewRights, ReviewedKind, ReviewedRights};

use super::index::OfKind;
use super::kinds::resource_name;
use super::record::Kind;
use super::rights::{leave_in_none, leave_somewhere};
use super::text::Text;
use super::view::View;

/// API group and resource.
type Resource = (Text, Text);

/// What a cluster is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// Which kinds.
    pub kinds: Vec<ReviewedKind>,
    /// In which namespaces.
    pub namespaces: Vec<String>,
    /// What was left out, for people; empty where nothing was.
    left_out: Vec<String>,
}

/// What may be listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listable {
    everywhere: BTreeSet<Resource>,
    /// By namespace; where the same may be listed in many, they share it.
    somewhere: BTreeMap<Text, Arc<BTreeSet<Resource>>>,
    unknown: Vec<String>,
}

impl Question {
    /// About what the index has of an agent's cluster, as far as its configuration leaves it to the asker.
    #[must_use]
    pub fn of(view: &View<'_>, agent: AgentId, grants: &[Narrowing]) -> Self {
        let mut left_out = Vec::new();
        let mut kinds = kinds(view, agent);
        kinds.retain(|ReviewedKind { group, resource, namespaced }| {
            // A Namespace is in none, and is shown to those who may list what is in it.
            let is_in_some = *namespaced || resource == "namespaces";
            let leaves = if is_in_some { leave_somewhere } else { leave_in_none };
            leaves(grants, group, resource)
        });
        if kinds.len() > ReviewRights::KINDS {
            left_out.push(format!("its cluster has more than {} kinds", ReviewRights::KINDS));
            kinds.truncate(ReviewRights::KINDS);
        }
        let in_all = grants.iter().any(|grant| grant.namespaces.is_empty());
        let is_named =
            |namespace: &str| grants.iter().any(|grant| grant.namespaces.iter().any(|one| one == namespace));
        let mut namespaces = namespaces(view, agent);
        namespaces.retain(|namespace| in_all || is_named(namespace));
        if namespaces.len() > ReviewRights::NAMESPACES {
            let most = ReviewRights::NAMESPACES;
            left_out.push(format!(
                "its cluster has more than {most} namespaces; those with rights in all see all"
            ));
            namespaces.truncate(most);
        }
        Self { kinds, namespaces, left_out }
    }
}

/// The kinds of a cluster: those with objects first, then others that its agent lists or would list.
fn kinds(view: &View<'_>, agent: AgentId) -> Vec<ReviewedKind> {
    let with_objects = view.now.kinds(agent).into_iter().flat_map(|kinds| kinds.keys()).filter_map(|kind| {
        let resource = resource_name(kind, view.resource(agent, kind))?;
        let namespaced = !view.is_in_no_namespace(agent, kind);
        Some(ReviewedKind { group: kind.group.to_string(), resource: resource.to_string(), namespaced })
    });
    let observed = view.observed.get(&agent).into_iter().flat_map(|observed| &observed.kinds);
    let observed = observed.filter_map(|(place, state)| {
        let kind = Kind::new(&place.group, &place.kind);
        let resource = resource_name(&kind, Some(&state.plural))?;
        let (group, namespaced) = (place.group.clone(), state.namespaced);
        Some(ReviewedKind { group, resource: resource.to_string(), namespaced })
    });
    let mut seen = BTreeSet::new();
    with_objects
        .chain(observed)
        .filter(|kind| seen.insert((kind.group.clone(), kind.resource.clone())))
        .collect()
}

/// The namespaces of a cluster: those that are there first, then those that its objects name.
fn namespaces(view: &View<'_>, agent: AgentId) -> Vec<String> {
    let of_kinds = view.now.kinds(agent);
    let there = of_kinds.and_then(|kinds| kinds.get(&Kind::new("", "Namespace")));
    let there = there.into_iter().flat_map(OfKind::slots).filter_map(|slot| view.now.get(slot));
    let there = there.filter(|namespace| namespace.is_there()).map(|namespace| namespace.name.clone());
    let named = of_kinds.into_iter().flat_map(|kinds| kinds.values()).flat_map(OfKind::namespaces).cloned();
    let mut seen = BTreeSet::new();
    let all = there.chain(named).filter(|namespace| !namespace.is_empty() && seen.insert(namespace.clone()));
    all.map(|namespace| namespace.to_string()).collect()
}

impl Listable {
    /// What a cluster said to a question.
    #[must_use]
    pub fn of(question: &Question, said: ReviewedRights) -> Self {
        let resources = |places: &[u32]| -> BTreeSet<Resource> {
            let places = places.iter().filter_map(|place| usize::try_from(*place).ok());
            let kinds = places.filter_map(|place| question.kinds.get(place));
            kinds.map(|kind| (Text::from(kind.group.as_str()), Text::from(kind.resource.as_str()))).collect()
        };
        let mut somewhere = BTreeMap::new();
        for same in &said.somewhere {
            let kinds = Arc::new(resources(&same.kinds));
            let namespaces = same.namespaces.iter().map(|namespace| Text::from(namespace.as_str()));
            somewhere.extend(namespaces.map(|namespace| (namespace, Arc::clone(&kinds))));
        }
        let unknown = question.left_out.iter().cloned().chain(said.unknown).take(ReviewRights::REASONS);
        Self { everywhere: resources(&said.everywhere), somewhere, unknown: unknown.collect() }
    }

    /// Why it is not known of some kinds or namespaces.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// About how much memory it takes, in entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        // Each set that is shared counts once.
        let sets = self.somewhere.values().map(|set| (Arc::as_ptr(set), set.len()));
        let of_sets: usize = sets.collect::<BTreeMap<_, _>>().into_values().sum();
        self.everywhere.len().saturating_add(self.somewhere.len()).saturating_add(of_sets)
    }

    /// Whether objects of a resource may be listed in a namespace; with none, of those that are in none.
    #[must_use]
    pub fn lists(&self, group: &str, resource: &str, namespace: &str) -> bool {
        let wanted = (Text::from(group), Text::from(resource));
        let there = || self.somewhere.get(namespace).is_some_and(|resources| resources.contains(&wanted));
        self.everywhere.contains(&wanted) || there()
    }

    /// Whether objects of a resource may be listed anywhere.
    #[must_use]
    pub fn lists_somewhere(&self, group: &str, resource: &str) -> bool {
        let wanted = (Text::from(group), Text::from(resource));
        self.everywhere.contains(&wanted)
            || self.somewhere.values().any(|resources| resources.contains(&wanted))
    }
}

#[cfg(test)]
mod tests;
