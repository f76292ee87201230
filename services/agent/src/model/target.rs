//! From a bundle's entries to what they mean in this cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use events::ObjectIdentity;
use events::configuration::{Mode, ResourceRules};
use events::delivery::{ObjectFailure, WantedObject};
use events::digest::Sha256;
use events::object::ObjectKey;
use objects::order::{Stage, apply_key, stage};

use crate::kubernetes::discovery::{Kinds, Resource};

/// An entry of a bundle, with its manifest.
#[derive(Debug, Clone)]
pub struct Entry {
    /// As the manifest states it.
    pub identity: ObjectIdentity,
    /// Digest of the manifest.
    pub digest: Sha256,
    /// File it stands in.
    pub file: Arc<str>,
    /// Line on which it begins.
    pub line: u32,
    /// Canonical JSON.
    pub manifest: Bytes,
}

/// An entry whose kind is known: where it goes.
#[derive(Debug, Clone)]
pub struct Target {
    /// With the namespace that it is really in.
    pub identity: ObjectIdentity,
    /// The same without version.
    pub key: ObjectKey,
    /// Under which path.
    pub resource: Arc<Resource>,
    /// In which stage.
    pub stage: Stage,
    /// The entry.
    pub entry: Arc<Entry>,
}

impl Target {
    /// A failure of this object.
    #[must_use]
    pub fn failure(&self, message: impl Into<String>) -> ObjectFailure {
        failure(&self.identity, &self.entry, message)
    }
}

fn failure(identity: &ObjectIdentity, entry: &Entry, message: impl Into<String>) -> ObjectFailure {
    ObjectFailure {
        identity: identity.clone(),
        file: entry.file.to_string(),
        line: entry.line,
        message: message.into(),
    }
}

/// What decides where an entry goes.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// How far the agent reaches.
    pub mode: Mode,
    /// Kinds that it may manage.
    pub rules: &'a ResourceRules,
    /// For objects that name no namespace.
    pub default_namespace: &'a str,
    /// Entries that other sources hold.
    pub wanted: &'a BTreeMap<ObjectKey, WantedObject>,
}

/// A bundle in this cluster.
#[derive(Debug, Clone, Default)]
pub struct Resolution {
    /// What is to be there, in the order of applying.
    pub targets: Vec<Target>,
    /// Entries whose kind the API server does not serve now.
    pub awaited: Vec<Awaited>,
    /// Entries that cannot be.
    pub failures: Vec<ObjectFailure>,
    /// Entries that other sources hold, and who does: they stop nothing else.
    pub wanted: Vec<ObjectFailure>,
}

impl Resolution {
    /// Whether a definition in this set makes known what is not served yet.
    #[must_use]
    pub fn awaits_its_own(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.why == Unserved::Defined)
    }
}

/// An entry whose kind the API server does not serve now.
#[derive(Debug, Clone)]
pub struct Awaited {
    /// The entry.
    pub entry: Arc<Entry>,
    /// What is known of its kind.
    pub why: Unserved,
    /// The same in words.
    pub reason: String,
}

impl Awaited {
    /// Why this object was not tried.
    #[must_use]
    pub fn failure(&self) -> ObjectFailure {
        failure(&self.entry.identity, &self.entry, ObjectFailure::awaiting_kind(&self.reason))
    }

    /// The key in the cluster; without knowing the kind, an object without namespace may be in the default one.
    #[must_use]
    pub fn is(&self, key: &ObjectKey, default_namespace: &str) -> bool {
        has_key(std::slice::from_ref(&self.entry), default_namespace, key)
    }
}

/// Why a kind is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// A definition in this very set makes it known.
    Defined,
    /// Nothing in this set does; a controller may.
    Undefined,
    /// The API server of its group does not answer: it may be there all the same.
    Silent,
}

/// Resolves entries against what the API server knows.
#[must_use]
pub fn resolve(entries: &[Arc<Entry>], scope: Scope<'_>, kinds: &Kinds) -> Resolution {
    let rules = Rules::of(scope.rules);
    let defined = defined_kinds(entries);
    let mut resolution = Resolution::default();
    let mut seen: BTreeMap<ObjectKey, (Arc<str>, u32)> = BTreeMap::new();
    for entry in entries {
        if let Some(wanted) = scope.wanted.get(&entry.identity.key()) {
            resolution.wanted.push(failure(&entry.identity, entry, wanted.reason()));
            continue;
        }
        match place(entry, scope, &rules, kinds) {
            Ok(target) => {
                if let Some((file, line)) =
                    seen.insert(target.key.clone(), (Arc::clone(&entry.file), entry.line))
                {
                    resolution
                        .failures
                        .push(target.failure(format!("the same object is also at {file}:{line}")));
                } else {
                    resolution.targets.push(target);
                }
            }
            Err(Misplaced::UnknownKind(reason)) if can_be_defined(&entry.identity) => {
                resolution.awaited.push(awaited(entry, reason, &defined, kinds));
            }
            Err(Misplaced::UnknownKind(message) | Misplaced::Forbidden(message)) => {
                resolution.failures.push(failure(&entry.identity, entry, message));
            }
        }
    }
    resolution.targets.sort_by(|left, right| apply_key(&left.identity).cmp(&apply_key(&right.identity)));
    resolution
}

/// Only groups whose names have a dot can be added to an API server: a kind that is unknown in another one is a mistake.
fn can_be_defined(identity: &ObjectIdentity) -> bool {
    identity.group.contains('.')
}

fn awaited(
    entry: &Arc<Entry>,
    reason: String,
    defined: &BTreeSet<(String, String)>,
    kinds: &Kinds,
) -> Awaited {
    let identity = &entry.identity;
    let (why, reason) = if kinds.silent_groups().any(|group| *group == identity.group) {
        (Unserved::Silent, format!("the API server of group {} does not answer", identity.group))
    } else if defined.contains(&(identity.group.clone(), identity.kind.clone())) {
        (
            Unserved::Defined,
            "its kind is defined in this set, but the API server does not serve it yet".to_owned(),
        )
    } else {
        (Unserved::Undefined, reason)
    };
    Awaited { entry: entry.clone(), why, reason }
}

enum Misplaced {
    UnknownKind(String),
    Forbidden(String),
}

fn place(
    entry: &Arc<Entry>,
    scope: Scope<'_>,
    rules: &Rules<'_>,
    kinds: &Kinds,
) -> Result<Target, Misplaced> {
    let mut identity = entry.identity.clone();
    if !rules.allow(&identity) {
        let message =
            format!("the agent's configuration does not let it manage kind {}", kind_text(&identity));
        return Err(Misplaced::Forbidden(message));
    }
    let Some(resource) = kinds.find(&identity) else {
        return Err(Misplaced::UnknownKind(unknown_kind(&identity, kinds)));
    };
    if resource.namespaced {
        if identity.namespace.is_empty() {
            scope.default_namespace.clone_into(&mut identity.namespace);
        }
    } else if scope.mode == Mode::Namespaced {
        let message = format!("{} is cluster-scoped, and the agent's mode is namespaced", identity.kind);
        return Err(Misplaced::Forbidden(message));
    } else {
        identity.namespace.clear();
    }
    Ok(Target { key: identity.key(), stage: stage(&identity), resource, entry: entry.clone(), identity })
}

/// Where an entry that was applied before goes, while its kind is served.
#[must_use]
pub fn target_of(identity: ObjectIdentity, entry: Arc<Entry>, kinds: &Kinds) -> Option<Target> {
    let resource = kinds.find(&identity)?;
    Some(Target { key: identity.key(), stage: stage(&identity), resource, entry, identity })
}

/// Whether the rules let the agent manage this kind.
#[must_use]
pub fn allowed(rules: &ResourceRules, identity: &ObjectIdentity) -> bool {
    Rules::of(rules).allow(identity)
}

/// Rules as patterns of group and kind.
struct Rules<'a> {
    include: Vec<(&'a str, &'a str)>,
    exclude: Vec<(&'a str, &'a str)>,
}

impl<'a> Rules<'a> {
    fn of(rules: &'a ResourceRules) -> Self {
        let pairs = |patterns: &'a [events::configuration::KindPattern]| {
            patterns.iter().map(|pattern| (pattern.group.as_str(), pattern.kind.as_str())).collect()
        };
        Self { include: pairs(&rules.include), exclude: pairs(&rules.exclude) }
    }

    fn allow(&self, identity: &ObjectIdentity) -> bool {
        objects::kinds::kind_allowed(&self.include, &self.exclude, identity)
    }
}

fn kind_text(identity: &ObjectIdentity) -> String {
    if identity.group.is_empty() {
        identity.kind.clone()
    } else {
        format!("{}.{}", identity.kind, identity.group)
    }
}

fn unknown_kind(identity: &ObjectIdentity, kinds: &Kinds) -> String {
    let versions = kinds.versions(identity);
    let wanted =
        format!("no matches for kind \"{}\" in version \"{}\"", identity.kind, identity.api_version());
    if versions.is_empty() { wanted } else { format!("{wanted}; this cluster has: {}", versions.join(", ")) }
}

/// Group and kind that the definitions among the entries define.
fn defined_kinds(entries: &[Arc<Entry>]) -> BTreeSet<(String, String)> {
    entries
        .iter()
        .filter(|entry| {
            entry.identity.kind == "CustomResourceDefinition"
                && entry.identity.group == "apiextensions.k8s.io"
        })
        .filter_map(|entry| {
            let manifest: serde_json::Value = serde_json::from_slice(&entry.manifest).ok()?;
            let text = |path: &str| manifest.pointer(path)?.as_str().map(str::to_owned);
            Some((text("/spec/group")?, text("/spec/names/kind")?))
        })
        .collect()
}

/// Whether a bundle has an object of this key, without asking the API server about its kind.
#[must_use]
pub fn has_key(entries: &[Arc<Entry>], default_namespace: &str, key: &ObjectKey) -> bool {
    entries.iter().any(|entry| {
        let identity = &entry.identity;
        identity.kind == key.kind
            && identity.group == key.group
            && identity.name == key.name
            && (key.namespace.is_empty()
                || identity.namespace == key.namespace
                || (identity.namespace.is_empty() && default_namespace == key.namespace))
    })
}

#[cfg(test)]
mod tests {
    use events::configuration::KindPattern;

    use super::*;

    fn kinds() -> Kinds {
        let text = r#"{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
            {"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","watch"]},
            {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster","verbs":["list","watch"]}]}]},
            {"metadata":{"name":"apiextensions.k8s.io"},"versions":[{"version":"v1","resources":[
            {"resource":"customresourcedefinitions","responseKind":{"kind":"CustomResourceDefinition"},"scope":"Cluster","verbs":["list","watch"]}]}]}]}"#;
        Kinds::read(text.as_bytes()).expect("discovery")
    }

    fn entry(group: &str, kind: &str, namespace: &str, name: &str) -> Arc<Entry> {
        let identity = ObjectIdentity {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let manifest = Bytes::from_static(br#"{"spec":{"group":"shop.io","names":{"kind":"Cart"}}}"#);
        Arc::new(Entry { identity, digest: Sha256::of(&manifest), file: "a.yaml".into(), line: 3, manifest })
    }

    fn resolved(
        entries: &[Arc<Entry>],
        mode: Mode,
        rules: &ResourceRules,
    ) -> (Vec<String>, Vec<String>, Vec<String>) {
        let scope = Scope { mode, rules, default_namespace: "shop", wanted: &BTreeMap::new() };
        let resolution = resolve(entries, scope, &kinds());
        (
            resolution.targets.iter().map(|target| target.identity.to_string()).collect(),
            resolution.awaited.iter().map(|awaited| awaited.entry.identity.to_string()).collect(),
            resolution.failures.iter().map(|failure| failure.message.clone()).collect(),
        )
    }

    #[test]
    fn namespaces_are_filled_in_and_the_order_is_that_of_applying() {
        let entries = [
            entry("", "ConfigMap", "", "b"),
            entry("", "ConfigMap", "z", "a"),
            entry("", "Namespace", "x", "shop"),
        ];
        let (targets, awaited, failures) = resolved(&entries, Mode::Cluster, &ResourceRules::default());
        assert_eq!(targets, ["v1 Namespace shop", "v1 ConfigMap shop/b", "v1 ConfigMap z/a"]);
        assert!(awaited.is_empty() && failures.is_empty());
    }

    #[test]
    fn a_kind_that_somebody_may_define_is_awaited_and_a_mistake_fails() {
        let definition = entry("apiextensions.k8s.io", "CustomResourceDefinition", "", "carts.shop.io");
        let entries = [
            definition,
            entry("shop.io", "Cart", "", "a"),
            entry("shop.io", "Basket", "", "a"),
            entry("", "ConfigMop", "", "a"),
        ];
        let (rules, wanted) = (ResourceRules::default(), BTreeMap::new());
        let scope = Scope { mode: Mode::Cluster, rules: &rules, default_namespace: "shop", wanted: &wanted };
        let Resolution { targets, awaited, failures, .. } = resolve(&entries, scope, &kinds());
        assert_eq!(targets.len(), 1);
        let why: Vec<Unserved> = awaited.iter().map(|awaited| awaited.why).collect();
        assert_eq!(why, [Unserved::Defined, Unserved::Undefined]);
        assert_eq!(awaited[1].reason, "no matches for kind \"Basket\" in version \"shop.io/v1\"");
        let failures: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        assert_eq!(failures, ["no matches for kind \"ConfigMop\" in version \"v1\""]);
    }

    #[test]
    fn a_group_that_does_not_answer_is_not_taken_for_one_that_is_not_there() {
        let text = r#"{"items":[{"metadata":{"name":"shop.io"},"versions":[{"version":"v1","freshness":"Stale","resources":[]}]}]}"#;
        let kinds = Kinds::read(text.as_bytes()).expect("discovery");
        let (rules, wanted) = (ResourceRules::default(), BTreeMap::new());
        let scope = Scope { mode: Mode::Cluster, rules: &rules, default_namespace: "shop", wanted: &wanted };
        let resolution = resolve(&[entry("shop.io", "Cart", "", "a")], scope, &kinds);
        assert_eq!(resolution.awaited[0].why, Unserved::Silent);
    }

    #[test]
    fn the_same_object_twice_names_the_other_place() {
        let entries = [entry("", "ConfigMap", "", "a"), entry("", "ConfigMap", "shop", "a")];
        let (targets, _, failures) = resolved(&entries, Mode::Cluster, &ResourceRules::default());
        assert_eq!(targets.len(), 1);
        assert_eq!(failures, ["the same object is also at a.yaml:3"]);
    }

    #[test]
    fn rules_and_mode_refuse() {
        let rules = ResourceRules {
            include: vec![],
            exclude: vec![KindPattern { group: String::new(), kind: "ConfigMap".into() }],
        };
        let (_, _, failures) = resolved(&[entry("", "ConfigMap", "", "a")], Mode::Cluster, &rules);
        assert_eq!(failures, ["the agent's configuration does not let it manage kind ConfigMap"]);
        let (_, _, failures) =
            resolved(&[entry("", "Namespace", "", "a")], Mode::Namespaced, &ResourceRules::default());
        assert_eq!(failures, ["Namespace is cluster-scoped, and the agent's mode is namespaced"]);
    }

    #[test]
    fn a_key_is_found_with_and_without_namespace() {
        let entries = [entry("", "ConfigMap", "", "a"), entry("", "ConfigMap", "z", "b")];
        let key = |namespace: &str, name: &str| entry("", "ConfigMap", namespace, name).identity.key();
        assert!(has_key(&entries, "shop", &key("shop", "a")));
        assert!(!has_key(&entries, "shop", &key("z", "a")));
        assert!(has_key(&entries, "shop", &key("z", "b")));
        assert!(!has_key(&entries, "shop", &key("shop", "b")));
    }
}
