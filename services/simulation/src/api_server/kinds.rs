//! Kinds that are served.

use serde_json::{Value, json};

/// A kind in its one version.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) namespaced: bool,
}

pub(super) static NAMESPACE: Kind = core("Namespace", "namespaces", false);
pub(super) static CONFIG_MAP: Kind = core("ConfigMap", "configmaps", true);
static SECRET: Kind = core("Secret", "secrets", true);
pub(super) static LEASE: Kind =
    Kind { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases", namespaced: true };
pub(super) static DEPLOYMENT: Kind =
    Kind { group: "apps", version: "v1", kind: "Deployment", plural: "deployments", namespaced: true };
static ALL: [&Kind; 5] = [&NAMESPACE, &CONFIG_MAP, &SECRET, &LEASE, &DEPLOYMENT];

const fn core(kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { group: "", version: "v1", kind, plural, namespaced }
}

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

impl Kind {
    /// The kind of a path.
    pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        let fits = |kind: &&Self| (kind.group, kind.version, kind.plural) == (group, version, plural);
        ALL.iter().copied().find(fits)
    }

    /// It has a spec and a status, which are written apart.
    pub(super) fn has_status(&self) -> bool {
        *self == DEPLOYMENT
    }

    /// As messages name it.
    pub(super) fn resource(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub(super) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub(super) fn details(&self, name: &str) -> Value {
        json!({"name": name, "group": self.group, "kind": self.plural})
    }

    fn discovered(&self) -> Value {
        let scope = if self.namespaced { "Namespaced" } else { "Cluster" };
        json!({
            "resource": self.plural, "scope": scope, "verbs": VERBS,
            "responseKind": {"group": self.group, "version": self.version, "kind": self.kind},
        })
    }
}

/// The answer of aggregated discovery: of the core, or of the groups.
pub(super) fn discovery(core: bool) -> Value {
    let those: Vec<&&Kind> = ALL.iter().filter(|kind| kind.group.is_empty() == core).collect();
    let groups = those.chunk_by(|left, right| left.group == right.group).map(|group| {
        let name = group.first().map_or("", |kind| kind.group);
        let resources: Vec<Value> = group.iter().map(|kind| kind.discovered()).collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        json!({"metadata": metadata, "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]})
    });
    let items: Vec<Value> = groups.collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}
