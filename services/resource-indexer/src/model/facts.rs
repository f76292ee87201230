//! What the index takes from an object's body: labels, and how it is related to others.

use events::{SourceId, Timestamp};
use objects::health::binds_on_first_use;
use objects::ownership::mark_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::list::List;
use super::mesh::{PeerAuthentication, Proxy};
use super::optional::Optional;
use super::record::{Kind, Shared};
use super::relations::{self, Link, Relation, Target};
use super::text::Text;

/// Labels of one object that are kept.
const LABELS: usize = 200;

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// When it was created, by its API server's clock.
    pub created_at: Optional,
    /// Counts the changes of its specification, where its kind has that.
    pub generation: Optional,
    /// Labels, by their keys.
    pub labels: List<(Text, Text)>,
    /// What it points at.
    pub links: List<Link>,
}

/// What objects of some kinds say that matters to others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Special {
    /// A definition of a kind, with the short names of its resource.
    Defines(Kind, Box<[Text]>),
    /// A class of storage that binds a volume only when the first pod that uses it is scheduled.
    BindsOnFirstUse,
    /// An Event: a pod of the object of that UID could not be made.
    RefusedPodOf(Text),
    /// A pod that is in a service mesh.
    Meshed(Proxy),
    /// Which connections Istio lets in.
    PeerAuthentication(PeerAuthentication),
}

/// Short names of one kind that are kept.
const SHORT_NAMES: usize = 20;

impl Special {
    /// What a body says that only objects of its kind do.
    #[must_use]
    pub fn of(body: &Value) -> Option<Self> {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
        match (group, text("/kind")) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let short = body.pointer("/spec/names/shortNames").and_then(Value::as_array);
                let short = short.into_iter().flatten().filter_map(Value::as_str).take(SHORT_NAMES);
                let short: Box<[Text]> = short.map(|name| Text::from(name.to_lowercase().as_str())).collect();
                let kind = Kind::new(text("/spec/group"), text("/spec/names/kind"));
                (!short.is_empty()).then_some(Self::Defines(kind, short))
            }
            ("storage.k8s.io", "StorageClass") => binds_on_first_use(body).then_some(Self::BindsOnFirstUse),
            ("", "Pod") => Proxy::of(body).map(Self::Meshed),
            ("security.istio.io", "PeerAuthentication") => {
                Some(Self::PeerAuthentication(PeerAuthentication::of(body)))
            }
            ("", "Event") if text("/reason") == "FailedCreate" => {
                let uid = text("/involvedObject/uid");
                (!uid.is_empty()).then(|| Self::RefusedPodOf(Text::from(uid)))
            }
            _ => None,
        }
    }
}

impl Facts {
    /// What a body says.
    #[must_use]
    pub fn of(body: &Value) -> Self {
        let created = body.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        Self {
            generation: body.pointer("/metadata/generation").and_then(Value::as_i64).into(),
            created_at: created.and_then(|text| Timestamp::parse(text).ok()).into(),
            labels: labels_at(body, "/metadata/labels").into(),
            links: relations::links_of(body).into(),
        }
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let place = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.labels.get(place).map(|(_, value)| &**value)
    }

    /// Whether it names an owner in its cluster, with which it goes.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        let is_owner = |link: &Link| {
            matches!(link.relation, Relation::Controls | Relation::Owns)
                && matches!(link.target, Target::Uid(..))
        };
        self.links.iter().any(is_owner)
    }

    pub(crate) fn share(&mut self, shared: &mut Shared) {
        shared.share_links(&mut self.links);
        let Shared { strings, labels, .. } = shared;
        labels.share(&mut self.labels, |(key, value)| {
            strings.share(key);
            strings.share(value);
        });
    }
}

/// The source that put an object there, by its mark.
pub(crate) fn source_of(body: &Value) -> Option<SourceId> {
    mark_of(body).and_then(|mark| mark.source.parse().ok())
}

/// The texts of a mapping, by their keys.
pub(crate) fn labels_at(body: &Value, pointer: &str) -> Vec<(Text, Text)> {
    let labels = body.pointer(pointer).and_then(Value::as_object);
    let mut labels: Vec<(Text, Text)> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((Text::from(key.as_str()), Text::from(value.as_str()?))))
        .take(LABELS)
        .collect();
    labels.sort();
    labels
}
