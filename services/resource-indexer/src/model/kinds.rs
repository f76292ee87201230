//! Kinds as people write them: kind, resource or short name, with a group where that is needed.

use std::collections::BTreeSet;

use events::Refusal;

use super::record::Kind;
use super::text::Text;

/// Kind, resource, group and short names of what every cluster has, or many do.
#[rustfmt::skip]
const KNOWN: &[(&str, &str, &str, &[&str])] = &[
    ("ConfigMap", "configmaps", "", &["cm"]),
    ("Endpoints", "endpoints", "", &["ep"]),
    ("Event", "events", "", &["ev"]),
    ("LimitRange", "limitranges", "", &["limits"]),
    ("Namespace", "namespaces", "", &["ns"]),
    ("Node", "nodes", "", &["no"]),
    ("PersistentVolume", "persistentvolumes", "", &["pv"]),
    ("PersistentVolumeClaim", "persistentvolumeclaims", "", &["pvc"]),
    ("Pod", "pods", "", &["po"]),
    ("PodTemplate", "podtemplates", "", &[]),
    ("ReplicationController", "replicationcontrollers", "", &["rc"]),
    ("ResourceQuota", "resourcequotas", "", &["quota"]),
    ("Secret", "secrets", "", &[]),
    ("Service", "services", "", &["svc"]),
    ("ServiceAccount", "serviceaccounts", "", &["sa"]),
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "admissionregistration.k8s.io", &[]),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "admissionregistration.k8s.io", &[]),
    ("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", &["crd", "crds"]),
    ("APIService", "apiservices", "apiregistration.k8s.io", &[]),
    ("ControllerRevision", "controllerrevisions", "apps", &[]),
    ("DaemonSet", "daemonsets", "apps", &["ds"]),
    ("Deployment", "deployments", "apps", &["deploy"]),
    ("ReplicaSet", "replicasets", "apps", &["rs"]),
    ("StatefulSet", "statefulsets", "apps", &["sts"]),
    ("HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling", &["hpa"]),
    ("CronJob", "cronjobs", "batch", &["cj"]),
    ("Job", "jobs", "batch", &[]),
    ("CertificateSigningRequest", "certificatesigningrequests", "certificates.k8s.io", &["csr"]),
    ("Lease", "leases", "coordination.k8s.io", &[]),
    ("EndpointSlice", "endpointslices", "discovery.k8s.io", &[]),
    ("Event", "events", "events.k8s.io", &["ev"]),
    ("Gateway", "gateways", "gateway.networking.k8s.io", &["gtw"]),
    ("GatewayClass", "gatewayclasses", "gateway.networking.k8s.io", &["gc"]),
    ("GRPCRoute", "grpcroutes", "gateway.networking.k8s.io", &[]),
    ("HTTPRoute", "httproutes", "gateway.networking.k8s.io", &[]),
    ("Ingress", "ingresses", "networking.k8s.io", &["ing"]),
    ("IngressClass", "ingressclasses", "networking.k8s.io", &[]),
    ("NetworkPolicy", "networkpolicies", "networking.k8s.io", &["netpol"]),
    ("PodDisruptionBudget", "poddisruptionbudgets", "policy", &["pdb"]),
    ("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", &[]),
    ("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", &[]),
    ("Role", "roles", "rbac.authorization.k8s.io", &[]),
    ("RoleBinding", "rolebindings", "rbac.authorization.k8s.io", &[]),
    ("PriorityClass", "priorityclasses", "scheduling.k8s.io", &["pc"]),
    ("CSIDriver", "csidrivers", "storage.k8s.io", &[]),
    ("CSINode", "csinodes", "storage.k8s.io", &[]),
    ("StorageClass", "storageclasses", "storage.k8s.io", &["sc"]),
    ("VolumeAttachment", "volumeattachments", "storage.k8s.io", &[]),
];

/// Those of them whose objects are in no namespace.
const IN_NO_NAMESPACE: &[&str] = &[
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "GatewayClass",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "StorageClass",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
];

/// Whether objects of a kind that is known without a cluster are in no namespace.
#[must_use]
pub fn is_in_no_namespace(kind: &Kind) -> bool {
    resource_of(&kind.group, &kind.kind).is_some() && IN_NO_NAMESPACE.contains(&&*kind.kind)
}

/// Nearest names that a refusal offers.
const NEAREST: usize = 3;
/// How alike a name must be to be offered.
const LIKENESS: f64 = 0.6;

/// The resource of a kind that is known without a cluster.
#[must_use]
pub fn resource_of(group: &str, kind: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(name, _, of, _)| (*name, *of) == (kind, group));
    known.map(|(_, resource, ..)| *resource)
}

/// A kind that a cluster has, with its other names.
#[derive(Debug, Clone, Copy)]
pub struct SeenKind<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// Its resource, where that is known.
    pub resource: Option<&'a str>,
    /// Its short names, where its definition was seen.
    pub short: &'a [Text],
}

/// The kinds that a text means, among those that are known anyway and those that were seen with their resources.
///
/// # Errors
/// When it means none: with the nearest names.
pub fn kinds_of(text: &str, seen: &[SeenKind<'_>]) -> Result<BTreeSet<Kind>, Refusal> {
    let wanted = text.to_lowercase();
    let mut found = BTreeSet::new();
    for (kind, resource, group, short) in KNOWN {
        let all = short.iter().copied().chain([*resource]);
        if is_named(&wanted, kind, all, group) {
            found.insert(Kind::new(group, kind));
        }
    }
    for SeenKind { kind, resource, short } in seen {
        let others = resource.iter().copied().chain(short.iter().map(|name| &**name));
        if is_named(&wanted, &kind.kind, others, &kind.group) {
            found.insert((*kind).clone());
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let known = KNOWN.iter().map(|(_, resource, ..)| *resource);
    let names = known.chain(seen.iter().filter_map(|seen| seen.resource)).collect();
    Err(unknown(text, &wanted, names))
}

/// Whether `wanted`, in lower case, is a kind or one of its other names, perhaps with its group behind a dot.
fn is_named<'a>(wanted: &str, kind: &str, others: impl Iterator<Item = &'a str>, group: &str) -> bool {
    let is_name = |name: &str| match wanted.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('.').is_some_and(|rest| !group.is_empty() && is_group(rest, group)),
        None => false,
    };
    let mut others = others;
    is_name(&kind.to_lowercase()) || others.any(is_name)
}

/// A group, or its beginning up to a dot, as in `deployments.apps` and `routes.gateway`; or with a version before it as kubectl has it.
fn is_group(text: &str, group: &str) -> bool {
    let begins = |text: &str| {
        group
            .strip_prefix(text)
            .is_some_and(|rest| !text.is_empty() && (rest.is_empty() || rest.starts_with('.')))
    };
    begins(text)
        || text.split_once('.').is_some_and(|(version, rest)| version.starts_with('v') && begins(rest))
}

fn unknown(text: &str, wanted: &str, names: BTreeSet<&str>) -> Refusal {
    let mut alike: Vec<(f64, &str)> =
        names.into_iter().map(|name| (strsim::jaro_winkler(wanted, name), name)).collect();
    alike.retain(|(likeness, _)| *likeness >= LIKENESS);
    alike.sort_by(|left, right| right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1)));
    let nearest: Vec<&str> = alike.into_iter().take(NEAREST).map(|(_, name)| name).collect();
    let hint =
        if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) };
    Refusal::invalid("kind", format!("no kind is called {text:?} in the clusters that you may use{hint}"))
}

/// The resource of a kind: as agents name it, or as every cluster has it.
#[must_use]
pub fn resource_name(kind: &Kind, seen: Option<&str>) -> Option<Text> {
    seen.or_else(|| resource_of(&kind.group, &kind.kind)).map(Text::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let widget = Kind::new("example.com", "Widget");
        let short = [Text::from("wd")];
        let seen = [SeenKind { kind: &widget, resource: Some("widgets"), short: &short }];
        let found = kinds_of(text, &seen);
        found.map_or_else(
            |refusal| vec![refusal.message],
            |kinds| kinds.iter().map(|kind| format!("{}.{}", kind.kind, kind.group)).collect(),
        )
    }

    #[test]
    fn kinds_are_named_as_kubectl_names_them() {
        for name in
            ["deploy", "Deployment", "deployments", "DEPLOYMENTS", "deployments.apps", "deployment.v1.apps"]
        {
            assert_eq!(named(name), ["Deployment.apps"], "{name}");
        }
        assert_eq!(named("po"), ["Pod."]);
        assert_eq!(named("ev"), ["Event.", "Event.events.k8s.io"], "of every group");
        assert_eq!(named("events.events"), ["Event.events.k8s.io"]);
        for name in ["widgets", "widget", "wd", "widgets.example.com", "widgets.example"] {
            assert_eq!(named(name), ["Widget.example.com"], "{name}");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_nearest_names() {
        let refused = &named("deplyoments")[0];
        assert!(refused.contains("did you mean deployments"), "{refused}");
        assert!(named("widgits")[0].contains("widgets"));
        let refusal = kinds_of("qqqq", &[]).unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("kind"));
        assert!(!refusal.message.contains("did you mean"), "{}", refusal.message);
        assert!(named("deployments.batch")[0].contains("no kind"), "another group");
    }
}
