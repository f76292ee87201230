//! How an object is related to others, read from its body: one file for each family of relations.
//!
//! A link is kept at the object whose body states it. It names the other object by UID, by name, or by its labels, and is resolved
//! against the index when somebody asks: what it names may come later, go, and come back as another object.

mod access;
mod classes;
mod declared;
mod key;
mod mesh;
mod owners;
mod routes;
mod scaling;
mod services;
mod usage;

pub use declared::RelationSet;
pub use key::{Key, Room};
use objects::identity::split_api_version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::list::Copies;
use super::record::{Kind, Record};
use super::selector::Selector;
use super::text::{Strings, Text};

/// Links of one object that are kept.
const LINKS: usize = 1_000;

/// How two objects are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The other object's controlling owner.
    Controls,
    /// An owner that does not control.
    Owns,
    /// Sends traffic to pods by their labels.
    Selects,
    /// Lists the addresses behind a Service.
    HasEndpoints,
    /// Sends traffic to an address of a pod.
    Reaches,
    /// Sends traffic to a Service.
    RoutesTo,
    /// A Gateway and the routes that are attached to it.
    Serves,
    /// Changes the number of replicas.
    Scales,
    /// Limits what may happen to pods.
    Protects,
    /// Mounts a volume of it.
    Mounts,
    /// Takes values from it.
    Reads,
    /// Uses its identity.
    RunsAs,
    /// Runs there.
    RunsOn,
    /// A claim and its volume, or a binding and its role.
    Binds,
    /// A binding and those that it gives a role to.
    GrantsTo,
    /// The API server sends requests there.
    Calls,
    /// Has such a class, or needs such a driver or rule.
    Uses,
    /// Says how it is reached.
    Configures,
    /// As the agent's configuration declares it, by its place there.
    Declared(u16),
}

impl Relation {
    /// As it is answered; of a declared one its name is known to [`RelationSet`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controls => "controls",
            Self::Owns => "owns",
            Self::Selects => "selects",
            Self::HasEndpoints => "has-endpoints",
            Self::Reaches => "reaches",
            Self::RoutesTo => "routes-to",
            Self::Serves => "serves",
            Self::Scales => "scales",
            Self::Protects => "protects",
            Self::Mounts => "mounts",
            Self::Reads => "reads",
            Self::RunsAs => "runs-as",
            Self::RunsOn => "runs-on",
            Self::Binds => "binds",
            Self::GrantsTo => "grants-to",
            Self::Calls => "calls",
            Self::Uses => "uses",
            Self::Configures => "configures",
            Self::Declared(_) => "declared",
        }
    }

    /// The object that the link is kept at is the lower one: it names what is above it.
    #[must_use]
    pub const fn names_upper(self) -> bool {
        matches!(self, Self::Controls | Self::Owns | Self::HasEndpoints | Self::Serves)
    }

    /// Whether the upper object has brought the lower one about.
    #[must_use]
    pub const fn is_cause(self) -> bool {
        matches!(self, Self::Controls | Self::Owns | Self::HasEndpoints)
    }

    /// Whether the lower object is shown below the upper one in a tree. Who only uses or limits something has not brought it about.
    #[must_use]
    pub const fn is_of_trees(self) -> bool {
        matches!(
            self,
            Self::Controls
                | Self::HasEndpoints
                | Self::Selects
                | Self::RoutesTo
                | Self::Serves
                | Self::Scales
                | Self::Binds
                | Self::Declared(_)
        )
    }

    /// Whether the upper object only uses the lower one.
    #[must_use]
    pub const fn is_of_use(self) -> bool {
        matches!(self, Self::Mounts | Self::Reads | Self::RunsAs | Self::RunsOn | Self::Binds | Self::Uses)
    }

    /// Whether the upper object does not do well where the lower one does not.
    #[must_use]
    pub const fn carries_blame(self) -> bool {
        match self {
            Self::Controls | Self::Selects | Self::RoutesTo | Self::Scales | Self::Binds => true,
            Self::Mounts | Self::RunsOn | Self::Uses | Self::Declared(_) => true,
            Self::Owns
            | Self::HasEndpoints
            | Self::Reaches
            | Self::Serves
            | Self::Protects
            | Self::Reads
            | Self::RunsAs
            | Self::GrantsTo
            | Self::Calls
            | Self::Configures => false,
        }
    }
}

/// One relation, as the body of one object states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Link {
    /// How.
    pub relation: Relation,
    /// To what.
    pub target: Target,
}

/// What a link names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// One object: another one of that name is not meant.
    Uid(Text, Key),
    /// Whatever has that name.
    Key(Key),
    /// Every object that is selected.
    Labels(Box<Selected>),
    /// Claims that a StatefulSet made.
    Claims(Box<Claimed>),
}

/// Objects of a kind in a namespace that a selector selects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Selected {
    /// Their kind.
    pub kind: Kind,
    /// Their namespace.
    pub namespace: Text,
    /// What selects them.
    pub selector: Selector,
}

/// Claims in a namespace that have one of these names with an ordinal behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claimed {
    /// Their namespace.
    pub namespace: Text,
    /// What their names begin with.
    pub prefixes: Box<[Text]>,
    /// They have the labels of the pods that use them.
    pub selector: Selector,
}

impl Link {
    fn to_selected(relation: Relation, kind: Kind, namespace: &str, selector: Selector) -> Self {
        let namespace = Text::from(namespace);
        Self { relation, target: Target::Labels(Box::new(Selected { kind, namespace, selector })) }
    }

    fn to_key(relation: Relation, key: Key) -> Self {
        Self { relation, target: Target::Key(key) }
    }

    /// To the pods in the namespace of an object that a selector selects.
    fn to_pods(relation: Relation, body: &Body<'_>, selector: Selector) -> Self {
        Self::to_selected(relation, Kind::new("", "Pod"), body.namespace, selector)
    }

    pub(crate) fn share(&mut self, strings: &mut Strings, rooms: &mut Copies<Room>) {
        match &mut self.target {
            Target::Uid(_, key) | Target::Key(key) => key.share(strings, rooms),
            Target::Labels(selected) => {
                selected.kind.share(strings);
                strings.share(&mut selected.namespace);
                selected.selector.share(strings);
            }
            Target::Claims(claimed) => {
                strings.share(&mut claimed.namespace);
                claimed.selector.share(strings);
            }
        }
    }
}

/// An object's body, with what all rules look at.
struct Body<'a> {
    value: &'a Value,
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Body<'a> {
    fn text(&self, pointer: &str) -> &'a str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(&self, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The group of an `apiVersion`; empty for the core group and for what cannot be read.
fn group_of(api_version: &str) -> &str {
    split_api_version(api_version).map_or("", |(group, _)| group)
}

impl Selected {
    /// Whether an object is selected.
    #[must_use]
    pub fn has(&self, record: &Record) -> bool {
        (&self.kind, &self.namespace) == (&record.kind, &record.namespace)
            && self.selector.selects(&record.facts)
    }
}

impl Claimed {
    /// Whether an object is such a claim.
    #[must_use]
    pub fn has(&self, record: &Record) -> bool {
        record.kind.is("", "PersistentVolumeClaim")
            && self.namespace == record.namespace
            && is_claim_of(&self.prefixes, &record.name)
            && self.selector.selects(&record.facts)
    }
}

/// Whether a claim has one of these names with an ordinal behind it.
fn is_claim_of(prefixes: &[Text], name: &str) -> bool {
    prefixes.iter().any(|prefix| {
        let ordinal = name.strip_prefix(&**prefix);
        ordinal
            .is_some_and(|ordinal| !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// All relations that a body states.
#[must_use]
pub fn links_of(body: &Value) -> Vec<Link> {
    let body = Body {
        value: body,
        group: group_of(text(body, "/apiVersion")),
        kind: text(body, "/kind"),
        namespace: text(body, "/metadata/namespace"),
        name: text(body, "/metadata/name"),
    };
    let mut links = Vec::new();
    owners::add(&body, &mut links);
    match body.group {
        "" => {
            services::add(&body, &mut links);
            usage::add(&body, &mut links);
            classes::add(&body, &mut links);
        }
        "apps" => usage::add_claims(&body, &mut links),
        "storage.k8s.io" | "snapshot.storage.k8s.io" => classes::add(&body, &mut links),
        "operators.coreos.com" => owners::add_operator_group(&body, &mut links),
        "discovery.k8s.io" => services::add(&body, &mut links),
        "networking.k8s.io" | "extensions" | "gateway.networking.k8s.io" => {
            routes::add(&body, &mut links);
            classes::add(&body, &mut links);
            scaling::add(&body, &mut links);
        }
        "autoscaling" | "autoscaling.k8s.io" | "keda.sh" | "policy" => scaling::add(&body, &mut links),
        "rbac.authorization.k8s.io" | "admissionregistration.k8s.io" | "apiregistration.k8s.io" => {
            access::add(&body, &mut links);
        }
        "networking.istio.io"
        | "security.istio.io"
        | "policy.linkerd.io"
        | "linkerd.io"
        | "split.smi-spec.io" => mesh::add(&body, &mut links),
        _ => {}
    }
    let mut distinct: Vec<Link> = Vec::with_capacity(links.len().min(LINKS));
    for link in links.into_iter().take(LINKS) {
        if !distinct.contains(&link) {
            distinct.push(link);
        }
    }
    distinct
}

#[cfg(test)]
mod tests;
