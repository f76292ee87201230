//! Who owns an object: by its own marks, and by those of what has caused it.
//!
//! A source's mark, and those of tools that keep an inventory, say that they put the object there. A managed-by label or a field manager only
//! says who wrote it; that counts where nothing else does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use events::object::ObjectKey;
use events::observation::FieldWriter;
use events::requests::index::{ObjectOwner, Ownership};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts::labels_at;
use super::record::Record;
use super::text::{Strings, Text};
use super::view::{View, key_of};

/// A tool whose marks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// A release of Helm.
    Helm,
    /// A Kustomization or HelmRelease of Flux.
    Flux,
    /// An application of Argo CD.
    ArgoCd,
    /// What the label `app.kubernetes.io/managed-by` says.
    ManagedBy,
}

impl Tool {
    /// As it is answered.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Flux => "flux",
            Self::ArgoCd => "argo-cd",
            Self::ManagedBy => "managed-by",
        }
    }
}

/// What one tool says on an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// Which tool.
    pub tool: Tool,
    /// Its release, Kustomization or application, or what the label says.
    pub name: Text,
}

impl Mark {
    pub(crate) fn share(&mut self, strings: &mut Strings) {
        strings.share(&mut self.name);
    }
}

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The marks of tools on an object.
#[must_use]
pub fn marks_of(body: &Value) -> Vec<Mark> {
    let (labels, annotations) =
        (labels_at(body, "/metadata/labels"), labels_at(body, "/metadata/annotations"));
    let find = |among: &[(Text, Text)], key: &str| {
        among.iter().find(|(known, _)| **known == *key).map(|(_, value)| value.to_string())
    };
    let label = |key: &str| find(&labels, key).filter(|value| !value.is_empty());
    let annotation = |key: &str| find(&annotations, key).filter(|value| !value.is_empty());
    let within = |namespace: Option<String>, name: String| match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    };
    let flux = |controller: &str| {
        let name = label(&format!("{controller}.toolkit.fluxcd.io/name"))?;
        Some(within(label(&format!("{controller}.toolkit.fluxcd.io/namespace")), name))
    };
    let release = || {
        let name = annotation("meta.helm.sh/release-name")?;
        Some(within(annotation("meta.helm.sh/release-namespace"), name))
    };
    let application = || {
        let tracked = annotation("argocd.argoproj.io/tracking-id");
        let tracked = tracked.and_then(|id| id.split(':').next().map(str::to_owned));
        tracked.or_else(|| label("argocd.argoproj.io/instance")).filter(|name| !name.is_empty())
    };
    // Flux puts charts there by releases of Helm, which are its own.
    let by_flux = flux("helm").or_else(|| flux("kustomize"));
    let by_helm = if label("helm.toolkit.fluxcd.io/name").is_some() { None } else { release() };
    let found = [
        (Tool::Flux, by_flux),
        (Tool::Helm, by_helm),
        (Tool::ArgoCd, application()),
        (Tool::ManagedBy, label(MANAGED_BY)),
    ];
    let marks =
        found.into_iter().filter_map(|(tool, name)| Some(Mark { tool, name: Text::from(name?.as_str()) }));
    marks.collect()
}

/// Managers by which people write, and this product's agent, whose mark says more.
fn is_of_nobody(manager: &str) -> bool {
    manager.starts_with("kubectl") || ["kasbah", "before-first-apply", "Mozilla", "curl"].contains(&manager)
}

/// The field managers that may own an object: those that apply it, or else the one that wrote to it first of those known. People's own are
/// left out.
#[must_use]
pub fn managers_of(writers: &[FieldWriter]) -> Vec<Text> {
    let own = || {
        let whole = writers.iter().filter(|writer| writer.subresource.is_empty());
        whole.filter(|writer| !is_of_nobody(&writer.manager))
    };
    let applying: BTreeSet<&str> =
        own().filter(|writer| writer.operation == "Apply").map(|writer| writer.manager.as_str()).collect();
    if !applying.is_empty() {
        return applying.into_iter().map(Text::from).collect();
    }
    // They come with the newest first.
    own().next_back().map(|writer| Text::from(writer.manager.as_str())).into_iter().collect()
}

/// Objects above one that are asked who owns them.
const ASKED: usize = 32;

impl View<'_> {
    /// Who owns an object, as far as the asker may see what says so.
    #[must_use]
    pub fn owners_of(&self, record: &Record) -> Vec<ObjectOwner> {
        let mut owners: BTreeMap<(&'static str, String), Option<ObjectKey>> = BTreeMap::new();
        let (mut others, mut passed) = (BTreeMap::new(), BTreeSet::from([record.uid.clone()]));
        let mut waiting = VecDeque::from([record]);
        while let Some(at) = waiting.pop_front() {
            let through = || (at.uid != record.uid).then(|| key_of(at));
            for (kind, name) in self.marks(at) {
                owners.entry((kind, name)).or_insert_with(through);
            }
            let causes = self.index.causes(at).filter_map(|slot| self.there(slot));
            let mut is_caused = false;
            for cause in causes.take(ASKED.saturating_sub(passed.len())) {
                is_caused = true;
                if passed.insert(cause.uid.clone()) {
                    waiting.push_back(cause);
                }
            }
            if !is_caused {
                for (kind, name) in writers(at) {
                    others.entry((kind, name)).or_insert_with(through);
                }
            }
        }
        let found = if owners.is_empty() { others } else { owners };
        let owner = |((kind, name), through): ((&str, String), _)| ObjectOwner {
            kind: kind.to_owned(),
            name,
            through,
        };
        found.into_iter().map(owner).collect()
    }

    /// Who says on an object itself that they put it there.
    fn marks<'r>(&'r self, record: &'r Record) -> impl Iterator<Item = (&'static str, String)> + 'r {
        let source = record.source.map(|source| ("source", self.directory.source_name(source)));
        let tools = record.marks.iter().filter(|mark| mark.tool != Tool::ManagedBy);
        source.into_iter().chain(tools.map(|mark| (mark.tool.as_str(), mark.name.to_string())))
    }

    /// Whether so many own an object.
    #[must_use]
    pub fn has_ownership(&self, record: &Record, asked: Ownership) -> bool {
        let environments = self.groups_of(record).count();
        match asked {
            Ownership::Unowned => environments == 0 && self.owners_of(record).is_empty(),
            Ownership::DoublyOwned => environments > 1 || self.owners_of(record).len() > 1,
        }
    }
}

/// Who has written an object, where nobody says more.
fn writers(record: &Record) -> Vec<(&'static str, String)> {
    let label = record.marks.iter().find(|mark| mark.tool == Tool::ManagedBy);
    match label {
        Some(mark) => vec![(mark.tool.as_str(), mark.name.to_string())],
        None => record.managers.iter().map(|manager| ("field-manager", manager.to_string())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn marked(labels: Value, annotations: Value) -> Vec<String> {
        let marks = marks_of(&json!({"metadata": {"labels": labels, "annotations": annotations}}));
        marks.iter().map(|mark| format!("{} {}", mark.tool.as_str(), mark.name)).collect()
    }

    #[test]
    fn tools_are_known_by_their_marks() {
        let helm = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"});
        let managed = json!({"app.kubernetes.io/managed-by": "Helm"});
        assert_eq!(marked(managed.clone(), helm.clone()), ["helm shop/web", "managed-by Helm"]);
        let flux = json!({"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "flux"});
        assert_eq!(marked(flux, helm), ["flux flux/web"], "its own release");
        let flux = json!({"kustomize.toolkit.fluxcd.io/name": "apps"});
        assert_eq!(marked(flux, json!({})), ["flux apps"]);
        let tracked = json!({"argocd.argoproj.io/tracking-id": "front:apps/Deployment:shop/web"});
        assert_eq!(marked(json!({}), tracked), ["argo-cd front"]);
        assert_eq!(marked(json!({}), json!({})), Vec::<String>::new());
    }

    fn writer(manager: &str, operation: &str, subresource: &str) -> FieldWriter {
        FieldWriter {
            manager: manager.to_owned(),
            operation: operation.to_owned(),
            subresource: subresource.to_owned(),
            at: None,
        }
    }

    #[test]
    fn who_applies_an_object_or_made_it_owns_it_but_for_people() {
        let managers = |writers: &[FieldWriter]| {
            managers_of(writers).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let controller = writer("kube-controller-manager", "Update", "");
        assert_eq!(
            managers(&[writer("kubelet", "Update", "status"), controller.clone()]),
            ["kube-controller-manager"]
        );
        assert_eq!(
            managers(&[controller.clone(), writer("postgres-operator", "Apply", "")]),
            ["postgres-operator"]
        );
        let people = [writer("kubectl-edit", "Update", ""), writer("kubectl", "Apply", "")];
        assert_eq!(managers(&people), Vec::<String>::new());
    }

    #[test]
    fn an_object_says_who_owns_it_and_what_it_has_caused_says_the_same() {
        use crate::model::given::{
            AGENT, Given, PROJECT, below, config, environment, marked, object, pod, seen,
        };
        let mut given = Given::agents();
        let web = object("apps/v1", "Deployment", "shop/web", json!({}));
        let set =
            below(object("apps/v1", "ReplicaSet", "shop/web-h", json!({})), "apps/v1", "Deployment", "web");
        let helm = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "web"}}});
        let both = marked(object("v1", "Service", "shop/front", helm));
        let managed = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "operator"}}});
        given.says(vec![
            seen(&marked(web)),
            seen(&set),
            seen(&below(pod("shop/web-h-1", json!({})), "apps/v1", "ReplicaSet", "web-h")),
            seen(&both),
            seen(&config("shop/by-operator", managed)),
            seen(&config("shop/by-hand", json!({}))),
            seen(&config("test/grouped", json!({}))),
        ]);
        let rule = || events::environment::Grouping::Namespace;
        given.environments(vec![
            environment(PROJECT, "a", "test", rule()),
            environment(PROJECT, "b", "test", rule()),
        ]);
        given.look(|view| {
            let record = |name: &str| {
                view.index.get(view.index.by_uid(AGENT, &format!("uid-{name}")).unwrap()).unwrap()
            };
            let owners = |name: &str| {
                let told = view.owners_of(record(name)).into_iter().map(|owner| {
                    format!("{} {}", owner.kind, owner.through.map(|key| key.name).unwrap_or_default())
                });
                told.collect::<Vec<_>>()
            };
            assert_eq!(owners("web"), ["source "]);
            assert_eq!(owners("web-h-1"), ["source web"]);
            assert_eq!(owners("front"), ["helm ", "source "]);
            assert_eq!(owners("by-operator"), ["managed-by "]);
            assert_eq!(owners("by-hand"), Vec::<String>::new());
            let of = |asked: Ownership| {
                ["web-h-1", "front", "by-operator", "by-hand", "grouped"]
                    .into_iter()
                    .filter(|name| view.has_ownership(record(name), asked))
                    .collect::<Vec<_>>()
            };
            assert_eq!(of(Ownership::Unowned), ["by-hand"]);
            assert_eq!(of(Ownership::DoublyOwned), ["front", "grouped"]);
        });
    }
}
