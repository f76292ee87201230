//! Which feeds a configuration asks for: one for each kind in all namespaces, or in each of those that it is limited to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::configuration::{Mode, ObservePattern, ObserveRules};
use objects::kinds::glob;

use crate::kubernetes::Resource;
use crate::kubernetes::discovery::Kinds;

/// What one feed is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedKey {
    /// The kind.
    pub resource: Arc<Resource>,
    /// The namespace; empty for all.
    pub namespace: String,
}

/// Namespaces of whose objects a feed tells, as globs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Empty: all.
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Scope {
    /// Whether objects of a namespace are told.
    #[must_use]
    pub fn takes(&self, namespace: &str) -> bool {
        let matches = |globs: &[String]| globs.iter().any(|pattern| glob(pattern, namespace));
        (self.include.is_empty() || matches(&self.include)) && !matches(&self.exclude)
    }

    /// The namespaces that it is limited to, if it names all of them.
    fn named(&self) -> Option<Vec<&str>> {
        let names = || self.include.iter().filter(|pattern| !pattern.contains('*'));
        let is_named = !self.include.is_empty() && names().count() == self.include.len();
        is_named.then(|| names().map(String::as_str).collect())
    }
}

/// How far the agent sees.
#[derive(Debug)]
pub struct Sight<'a> {
    /// How far it reaches.
    pub mode: Mode,
    /// Kinds that it may not list in all namespaces at once.
    pub forbidden: &'a BTreeSet<Arc<Resource>>,
    /// Namespaces that its sources name.
    pub namespaces: BTreeSet<&'a str>,
}

/// Every feed that the rules ask for, with the namespaces of which it tells.
#[must_use]
pub fn wanted(kinds: &Kinds, rules: &ObserveRules, sight: &Sight<'_>) -> BTreeMap<FeedKey, Scope> {
    let named: BTreeSet<&str> = rules
        .include
        .iter()
        .map(|pattern| pattern.namespace.as_str())
        .filter(|namespace| !namespace.contains('*'))
        .chain(sight.namespaces.iter().copied())
        .collect();
    let mut feeds = BTreeMap::new();
    for resource in kinds.preferred().filter(|resource| resource.watchable) {
        let Some(scope) = scope_of(rules, resource) else { continue };
        let mut add = |namespace: &str| {
            let key = FeedKey { resource: Arc::clone(resource), namespace: namespace.to_owned() };
            feeds.insert(key, scope.clone());
        };
        let is_narrow = sight.mode == Mode::Namespaced;
        match (resource.namespaced, scope.named()) {
            (false, _) if is_narrow => {}
            (false, _) => add(""),
            (true, Some(names)) => names.into_iter().filter(|name| scope.takes(name)).for_each(add),
            (true, None) => {
                // Where all at once is forbidden, that is tried again from time to time.
                if !is_narrow {
                    add("");
                }
                if is_narrow || sight.forbidden.contains(resource) {
                    named.iter().filter(|name| scope.takes(name)).for_each(|name| add(name));
                }
            }
        }
    }
    feeds
}

/// The namespaces in which a kind is observed; `None`: it is not.
fn scope_of(rules: &ObserveRules, resource: &Resource) -> Option<Scope> {
    let of_kind = |patterns: &[ObservePattern]| -> Vec<String> {
        let matching = patterns
            .iter()
            .filter(|pattern| glob(&pattern.group, &resource.group) && glob(&pattern.kind, &resource.kind));
        matching.map(|pattern| pattern.namespace.clone()).collect()
    };
    let is_everything = |namespaces: &[String]| namespaces.iter().any(|namespace| namespace == "*");
    let (include, exclude) = (of_kind(&rules.include), of_kind(&rules.exclude));
    let is_included = !include.is_empty() || (rules.include.is_empty() && !is_left_out(resource));
    let is_named = rules.include.iter().any(|pattern| pattern.kind == resource.kind);
    if !is_included || is_everything(&exclude) || (is_left_out(resource) && !is_named) || is_double(resource)
    {
        return None;
    }
    if include.is_empty() || is_everything(&include) {
        return Some(Scope { include: Vec::new(), exclude });
    }
    resource.namespaced.then_some(Scope { include, exclude })
}

/// Leases change every few seconds and say nothing but that somebody lives.
fn is_left_out(resource: &Resource) -> bool {
    resource.group == "coordination.k8s.io" && resource.kind == "Lease"
}

/// These are the Events of the core group once more.
fn is_double(resource: &Resource) -> bool {
    resource.group == "events.k8s.io" && resource.kind == "Event"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Kinds {
        let text = r#"{"items":[
            {"metadata":{},"versions":[{"version":"v1","resources":[
                {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster","verbs":["list","watch"]},
                {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list","watch"]},
                {"resource":"componentstatuses","responseKind":{"kind":"ComponentStatus"},"scope":"Cluster","verbs":["list"]}]}]},
            {"metadata":{"name":"events.k8s.io"},"versions":[{"version":"v1","resources":[
                {"resource":"events","responseKind":{"kind":"Event"},"scope":"Namespaced","verbs":["list","watch"]}]}]},
            {"metadata":{"name":"coordination.k8s.io"},"versions":[{"version":"v1","resources":[
                {"resource":"leases","responseKind":{"kind":"Lease"},"scope":"Namespaced","verbs":["list","watch"]}]}]}]}"#;
        Kinds::read(text.as_bytes()).unwrap()
    }

    fn pattern(group: &str, kind: &str, namespace: &str) -> ObservePattern {
        let [group, kind, namespace] = [group, kind, namespace].map(str::to_owned);
        ObservePattern { group, kind, namespace }
    }

    fn rules(include: &[ObservePattern], exclude: &[ObservePattern]) -> ObserveRules {
        ObserveRules { include: include.to_vec(), exclude: exclude.to_vec() }
    }

    /// The feeds as `kind` or `kind/namespace`.
    fn feeds(rules: &ObserveRules, mode: Mode, forbidden: &[&str], namespaces: &[&str]) -> Vec<String> {
        let kinds = kinds();
        let forbidden = kinds
            .preferred()
            .filter(|resource| forbidden.contains(&resource.kind.as_str()))
            .cloned()
            .collect();
        let sight = Sight { mode, forbidden: &forbidden, namespaces: namespaces.iter().copied().collect() };
        let wanted = wanted(&kinds, rules, &sight);
        let name = |key: &FeedKey| match key.namespace.as_str() {
            "" => key.resource.kind.clone(),
            namespace => format!("{}/{namespace}", key.resource.kind),
        };
        wanted.keys().map(name).collect()
    }

    #[test]
    fn everything_but_leases_is_observed_where_nothing_is_said() {
        assert_eq!(feeds(&ObserveRules::default(), Mode::Cluster, &[], &["shop"]), ["Namespace", "Pod"]);
        let leases = rules(&[pattern("*", "Lease", "*")], &[]);
        assert_eq!(feeds(&leases, Mode::Cluster, &[], &[]), ["Lease"]);
        let all = rules(&[pattern("*", "*", "*")], &[]);
        assert_eq!(feeds(&all, Mode::Cluster, &[], &[]), ["Namespace", "Pod"]);
        let nothing = rules(&[], &[pattern("*", "*", "*")]);
        assert_eq!(feeds(&nothing, Mode::Cluster, &[], &[]), [""; 0]);
    }

    #[test]
    fn named_namespaces_are_watched_alone() {
        let shop =
            rules(&[pattern("*", "*", "shop"), pattern("", "Pod", "blue")], &[pattern("", "Pod", "shop")]);
        assert_eq!(
            feeds(&shop, Mode::Cluster, &[], &[]),
            ["Pod/blue"],
            "without a namespace only `*` matches"
        );
        let globs = rules(&[pattern("", "Pod", "shop-*"), pattern("", "Pod", "blue")], &[]);
        assert_eq!(feeds(&globs, Mode::Cluster, &[], &[]), ["Pod"]);
    }

    #[test]
    fn who_may_not_see_all_namespaces_sees_those_that_are_named() {
        let none = ObserveRules::default();
        assert_eq!(feeds(&none, Mode::Cluster, &["Pod"], &["shop"]), ["Namespace", "Pod", "Pod/shop"]);
        assert_eq!(feeds(&none, Mode::Namespaced, &[], &["shop", "kube"]), ["Pod/kube", "Pod/shop"]);
        let without = rules(&[], &[pattern("*", "*", "kube*")]);
        assert_eq!(feeds(&without, Mode::Namespaced, &[], &["shop", "kube"]), ["Pod/shop"]);
    }

    #[test]
    fn a_scope_is_asked_for_each_namespace() {
        let scope = Scope { include: vec!["shop-*".to_owned()], exclude: vec!["*-test".to_owned()] };
        for (namespace, expected) in [("shop-a", true), ("shop-test", false), ("other", false), ("", false)] {
            assert_eq!(scope.takes(namespace), expected, "{namespace}");
        }
        assert!(Scope::default().takes("") && Scope::default().takes("shop"));
    }
}
