//! Which kinds the API server knows, under which path, and whether they live in namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::ObjectIdentity;
use parking_lot::RwLock;
use serde::Deserialize;

use super::call::{Accept, Call};
use super::client::Kube;
use super::status::ApiError;

/// One kind in one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Its name in paths.
    pub plural: String,
    /// Lives in namespaces.
    pub namespaced: bool,
    /// Can be listed.
    pub listable: bool,
    /// Can be listed and watched.
    pub watchable: bool,
}

/// What the API server knows, as of the last look.
#[derive(Debug, Default)]
pub struct Discovery {
    kinds: RwLock<Arc<Kinds>>,
}

/// Kinds by group and kind, versions in the API server's order of preference; and groups of which it does not know now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    served: BTreeMap<(String, String), Vec<Arc<Resource>>>,
    silent: BTreeSet<String>,
}

impl Kinds {
    /// The resource of an identity, in its version.
    #[must_use]
    pub fn find(&self, identity: &ObjectIdentity) -> Option<Arc<Resource>> {
        let versions = self.served.get(&(identity.group.clone(), identity.kind.clone()))?;
        versions.iter().find(|resource| resource.version == identity.version).cloned()
    }

    /// The resource of a kind in any version: the identity's where the API server has it, else the preferred one.
    #[must_use]
    pub fn find_any(&self, identity: &ObjectIdentity) -> Option<Arc<Resource>> {
        self.find(identity)
            .or_else(|| self.served.get(&(identity.group.clone(), identity.kind.clone()))?.first().cloned())
    }

    /// Versions of a kind, for messages.
    #[must_use]
    pub fn versions(&self, identity: &ObjectIdentity) -> Vec<String> {
        let versions = self.served.get(&(identity.group.clone(), identity.kind.clone()));
        versions.into_iter().flatten().map(|resource| resource.version.clone()).collect()
    }

    /// Every kind once, in its preferred version.
    pub fn preferred(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.served.values().filter_map(|versions| versions.first())
    }

    /// Whether a kind is served, in any version.
    #[must_use]
    pub fn serves(&self, group: &str, kind: &str) -> bool {
        self.served.contains_key(&(group.to_owned(), kind.to_owned()))
    }

    /// Groups whose own API server does not answer: what they have is not known.
    pub fn silent_groups(&self) -> impl Iterator<Item = &String> {
        self.silent.iter()
    }

    /// How many kinds there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.served.len()
    }

    /// Nothing was looked up yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// Reads one answer of aggregated discovery.
    ///
    /// # Errors
    /// When it is something else.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut kinds = Self::default();
        kinds.add(body)?;
        Ok(kinds)
    }

    fn add(&mut self, body: &[u8]) -> Result<(), ApiError> {
        let list: GroupList = serde_json::from_slice(body)
            .map_err(|error| ApiError::Unreadable { detail: format!("aggregated discovery: {error}") })?;
        for group in list.items {
            for version in group.versions {
                if version.freshness == "Stale" {
                    self.silent.insert(group.metadata.name.clone());
                    continue;
                }
                for found in version.resources {
                    let Some(kind) = found.response_kind.and_then(|kind| kind.kind) else { continue };
                    let verb = |wanted: &str| found.verbs.iter().any(|verb| verb == wanted);
                    let resource = Resource {
                        group: group.metadata.name.clone(),
                        version: version.version.clone(),
                        kind: kind.clone(),
                        plural: found.resource.clone(),
                        namespaced: found.scope == "Namespaced",
                        listable: verb("list"),
                        watchable: verb("list") && verb("watch"),
                    };
                    let versions = self.served.entry((group.metadata.name.clone(), kind)).or_default();
                    if !versions.iter().any(|known| known.version == resource.version) {
                        versions.push(Arc::new(resource));
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<Found>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Discovery {
    /// What is known now.
    #[must_use]
    pub fn kinds(&self) -> Arc<Kinds> {
        Arc::clone(&self.kinds.read())
    }

    /// Asks the API server again: two requests.
    ///
    /// # Errors
    /// When it does not answer, or does not know aggregated discovery (before 1.27).
    pub async fn refresh(&self, kube: &Kube) -> Result<Arc<Kinds>, ApiError> {
        let mut kinds = Kinds::default();
        for path in ["/api", "/apis"] {
            let answer = kube.read(Call::get(path.to_owned()).accept(Accept::Discovery)).await?;
            kinds.add(&answer.body)?;
        }
        let mut known = self.kinds.write();
        // The same is the same one: what was worked out from it stays true.
        if **known != kinds {
            *known = Arc::new(kinds);
        }
        Ok(Arc::clone(&known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(group: &str, version: &str, kind: &str) -> ObjectIdentity {
        ObjectIdentity {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            namespace: String::new(),
            name: "x".into(),
        }
    }

    #[test]
    fn aggregated_discovery_is_read() {
        let text = r#"{"items":[
            {"metadata":{},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"configmaps","responseKind":{"group":"","version":"","kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","watch","patch"]},
                {"resource":"bindings","responseKind":{"kind":"Binding"},"scope":"Namespaced","verbs":["create"]}]}]},
            {"metadata":{"name":"autoscaling"},"versions":[
                {"version":"v2","resources":[{"resource":"horizontalpodautoscalers","responseKind":{"kind":"HorizontalPodAutoscaler"},"scope":"Namespaced","verbs":["list","watch"]}]},
                {"version":"v1","resources":[{"resource":"horizontalpodautoscalers","responseKind":{"kind":"HorizontalPodAutoscaler"},"scope":"Namespaced","verbs":["list","watch"]}]}]},
            {"metadata":{"name":"gone.io"},"versions":[{"version":"v1","freshness":"Stale","resources":[
                {"resource":"things","responseKind":{"kind":"Thing"},"scope":"Cluster","verbs":["list","watch"]}]}]}]}"#;
        let kinds = Kinds::read(text.as_bytes()).expect("discovery");
        let found = kinds.find(&identity("", "v1", "ConfigMap")).expect("known");
        assert_eq!((found.plural.as_str(), found.namespaced, found.watchable), ("configmaps", true, true));
        assert!(!kinds.find(&identity("", "v1", "Binding")).expect("known").watchable);
        assert!(kinds.find(&identity("autoscaling", "v3", "HorizontalPodAutoscaler")).is_none());
        let any = kinds.find_any(&identity("autoscaling", "v3", "HorizontalPodAutoscaler")).expect("known");
        assert_eq!(any.version, "v2");
        assert_eq!(kinds.versions(&identity("autoscaling", "v3", "HorizontalPodAutoscaler")), ["v2", "v1"]);
        assert!(kinds.find_any(&identity("gone.io", "v1", "Thing")).is_none(), "a stale group is not known");
        assert_eq!(kinds.silent_groups().collect::<Vec<_>>(), ["gone.io"]);
        assert_eq!(kinds.preferred().count(), 3);
    }
}
