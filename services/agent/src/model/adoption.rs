//! May an object that is there already be written?

use events::ObjectIdentity;
use events::configuration::Adoption;
use objects::ownership::{ADOPT_ANNOTATION, Adopt, OwnerMark};
use serde_json::Value;

use super::managed::{entries, text as text_of};

/// Whose an existing object is, seen from the source that wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The source's own.
    Own,
    /// Another source's of this agent.
    Sibling {
        /// That source still has the object in its bundle.
        current: bool,
    },
    /// Another agent's.
    Foreign,
    /// Nobody's.
    Nobody,
}

/// Whose an object with this mark is.
#[must_use]
pub fn owner_of(mark: Option<&OwnerMark>, own: &OwnerMark, sibling_has_it: impl Fn(&str) -> bool) -> Owner {
    match mark {
        None => Owner::Nobody,
        Some(mark) if mark == own => Owner::Own,
        Some(mark) if mark.organization == own.organization && mark.agent == own.agent => {
            Owner::Sibling { current: sibling_has_it(&mark.source) }
        }
        Some(_) => Owner::Foreign,
    }
}

/// What may be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Write it.
    Write,
    /// Write it, mark it as adopted, and take over what other tools wrote from manifests.
    Adopt,
    /// Leave it.
    Refuse(String),
}

/// The tool that keeps a live object by its marks, in words: a Helm release, Flux, Argo CD or kapp.
#[must_use]
pub fn keeper_of(live: &Value, identity: &ObjectIdentity) -> Option<String> {
    let text = |kind: &str, key: &str| live.pointer(kind)?.get(key)?.as_str().filter(|text| !text.is_empty());
    let label = |key: &str| text("/metadata/labels", key);
    let annotation = |key: &str| text("/metadata/annotations", key);
    let within = |namespace: Option<&str>, name: &str| match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    for (kind, group) in [("Kustomization", "kustomize"), ("HelmRelease", "helm")] {
        if let Some(name) = label(&format!("{group}.toolkit.fluxcd.io/name")) {
            let namespace = label(&format!("{group}.toolkit.fluxcd.io/namespace"));
            return Some(format!("Flux ({kind} {})", within(namespace, name)));
        }
    }
    if let Some(name) = annotation("meta.helm.sh/release-name") {
        let namespace = annotation("meta.helm.sh/release-namespace");
        return Some(format!("the Helm release {}", within(namespace, name)));
    }
    let tracked = annotation("argocd.argoproj.io/tracking-id").and_then(|mark| tracked_by(mark, identity));
    let instance = || {
        let writes = entries(live).iter().any(|entry| text_of(entry, "manager").starts_with("argocd-"));
        label("app.kubernetes.io/instance").filter(|_| writes)
    };
    if let Some(name) = tracked.or_else(|| label("argocd.argoproj.io/instance")).or_else(instance) {
        return Some(format!("Argo CD (application {name})"));
    }
    label("kapp.k14s.io/app").map(|name| format!("kapp (app {name})"))
}

/// The application in Argo CD's tracking mark `app:group/kind:namespace/name`, where the mark is this object's own and not copied.
fn tracked_by<'a>(mark: &'a str, identity: &ObjectIdentity) -> Option<&'a str> {
    let (rest, place) = mark.rsplit_once(':')?;
    let (application, kind) = rest.rsplit_once(':')?;
    let is_own = kind == format!("{}/{}", identity.group, identity.kind)
        && place.rsplit_once('/').is_some_and(|(_, name)| name == identity.name);
    is_own.then_some(application)
}

/// Decides by the object's own annotation, else by the source's policy. `holder` is who has the object, in words, where that is known.
#[must_use]
pub fn decide(owner: Owner, holder: Option<&str>, policy: Adoption, own: Option<Adopt>) -> Decision {
    let policy = match own {
        Some(Adopt::MustMatch) => Adoption::MustMatch,
        Some(Adopt::IfNoInventory) => Adoption::AdoptIfNoInventory,
        Some(Adopt::All) => Adoption::AdoptAll,
        None => policy,
    };
    match (owner, policy) {
        (Owner::Nobody, Adoption::AdoptIfNoInventory) if let Some(keeper) = holder => {
            Decision::Refuse(format!(
                "the object is managed by {keeper}; stop that tool first, then set policy adopt_all or the annotation {ADOPT_ANNOTATION}: adopt_all"
            ))
        }
        // Moving a file between sources neither deletes nor adopts: the object was ours all along.
        (Owner::Own | Owner::Sibling { current: false }, _) => Decision::Write,
        (Owner::Sibling { current: true }, _) => {
            Decision::Refuse("the object is also in another source of this agent".to_owned())
        }
        (Owner::Nobody, Adoption::AdoptIfNoInventory | Adoption::AdoptAll)
        | (Owner::Foreign, Adoption::AdoptAll) => Decision::Adopt,
        (Owner::Nobody, Adoption::MustMatch) => {
            let (who, way) = match holder {
                Some(keeper) => (format!("is managed by {keeper}"), "adopt_all"),
                None => ("exists and was not created by this source".to_owned(), "adopt_if_no_inventory"),
            };
            Decision::Refuse(format!(
                "the object {who}; policy must_match adopts no object: delete the object, or permit its adoption with policy {way} or the annotation {ADOPT_ANNOTATION}: {way}"
            ))
        }
        (Owner::Foreign, Adoption::MustMatch | Adoption::AdoptIfNoInventory) => {
            let holder = holder.unwrap_or("another agent");
            Decision::Refuse(format!(
                "the object belongs to {holder}; remove it from that source first, or permit its adoption with policy adopt_all or the annotation {ADOPT_ANNOTATION}: adopt_all"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_owner_under_every_policy() {
        use Adoption::{AdoptAll, AdoptIfNoInventory, MustMatch};
        let may = |owner, policy| match decide(owner, None, policy, None) {
            Decision::Write => "write",
            Decision::Adopt => "adopt",
            Decision::Refuse(_) => "refuse",
        };
        let rows = [
            (Owner::Own, ["write", "write", "write"]),
            (Owner::Sibling { current: false }, ["write", "write", "write"]),
            (Owner::Sibling { current: true }, ["refuse", "refuse", "refuse"]),
            (Owner::Nobody, ["refuse", "adopt", "adopt"]),
            (Owner::Foreign, ["refuse", "refuse", "adopt"]),
        ];
        for (owner, expected) in rows {
            assert_eq!(
                [MustMatch, AdoptIfNoInventory, AdoptAll].map(|policy| may(owner, policy)),
                expected,
                "{owner:?}"
            );
        }
    }

    #[test]
    fn the_objects_own_annotation_wins() {
        assert_eq!(decide(Owner::Nobody, None, Adoption::MustMatch, Some(Adopt::All)), Decision::Adopt);
        assert!(matches!(
            decide(Owner::Nobody, None, Adoption::AdoptAll, Some(Adopt::MustMatch)),
            Decision::Refuse(_)
        ));
    }

    #[test]
    fn an_object_that_another_tool_keeps_is_adopted_only_when_all_may_be() {
        let identity = ObjectIdentity {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let keeper = |labels: Value, annotations: Value| {
            let live = json!({"metadata": {"labels": labels, "annotations": annotations,
                "managedFields": [{"manager": "argocd-controller"}]}});
            keeper_of(&live, &identity)
        };
        let rows = [
            (
                json!({"app.kubernetes.io/managed-by": "Helm"}),
                json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}),
                Some("the Helm release shop/web"),
            ),
            (
                json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"}),
                json!({}),
                Some("Flux (Kustomization flux/apps)"),
            ),
            (
                json!({"helm.toolkit.fluxcd.io/name": "web"}),
                json!({"meta.helm.sh/release-name": "web"}),
                Some("Flux (HelmRelease web)"),
            ),
            (
                json!({}),
                json!({"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"}),
                Some("Argo CD (application shop)"),
            ),
            (json!({}), json!({"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/other"}), None),
            (json!({"app.kubernetes.io/instance": "shop"}), json!({}), Some("Argo CD (application shop)")),
            (json!({"kapp.k14s.io/app": "17"}), json!({}), Some("kapp (app 17)")),
            // What was rendered by Helm and applied by somebody else.
            (json!({"app.kubernetes.io/managed-by": "Helm"}), json!({}), None),
        ];
        for (labels, annotations, expected) in rows {
            assert_eq!(keeper(labels, annotations).as_deref(), expected);
        }
        let by = |owner, policy, own| decide(owner, Some("Flux"), policy, own);
        for policy in [Adoption::AdoptIfNoInventory, Adoption::MustMatch] {
            let refused = by(Owner::Nobody, policy, None);
            assert!(
                matches!(&refused, Decision::Refuse(reason) if reason.contains("managed by Flux") && reason.contains("adopt_all")),
                "{refused:?}"
            );
        }
        assert_eq!(by(Owner::Nobody, Adoption::AdoptAll, None), Decision::Adopt);
        assert_eq!(by(Owner::Nobody, Adoption::AdoptIfNoInventory, Some(Adopt::All)), Decision::Adopt);
        assert_eq!(
            by(Owner::Own, Adoption::AdoptIfNoInventory, None),
            Decision::Write,
            "a mark that came later"
        );
    }

    #[test]
    fn owners_are_told_apart() {
        let mark = |organization: &str, agent: &str, source: &str| OwnerMark {
            organization: organization.into(),
            agent: agent.into(),
            source: source.into(),
        };
        let own = mark("o", "a", "s");
        let owner = |mark: Option<&OwnerMark>| owner_of(mark, &own, |source| source == "current");
        assert_eq!(owner(None), Owner::Nobody);
        assert_eq!(owner(Some(&own)), Owner::Own);
        assert_eq!(owner(Some(&mark("o", "a", "current"))), Owner::Sibling { current: true });
        assert_eq!(owner(Some(&mark("o", "a", "former"))), Owner::Sibling { current: false });
        assert_eq!(owner(Some(&mark("o", "b", "s"))), Owner::Foreign);
        assert_eq!(owner(Some(&mark("p", "a", "s"))), Owner::Foreign);
    }
}
