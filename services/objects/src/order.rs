//! In which order objects are applied, and in which they are deleted.
//!
//! The order is total: by rank of the kind, group taken into account, then group, kind, namespace and name, so
//! that two agents on two days do the same. Deletion is the reverse, but for objects whose end needs a controller:
//! those go first.

use crate::Identity;

/// Which part of a sync an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Namespaces and definitions of custom resources: applied, and waited for, before anything else is even
    /// dry-run.
    Foundation,
    /// All other objects.
    Rest,
}

/// The stage of an object.
#[must_use]
pub fn stage(identity: &Identity) -> Stage {
    match (identity.group.as_str(), identity.kind.as_str()) {
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => Stage::Foundation,
        _ => Stage::Rest,
    }
}

/// Sorts an object among others for applying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplyKey<'a> {
    rank: u16,
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    version: &'a str,
}

/// The place of an object in the order of applying.
#[must_use]
pub fn apply_key(identity: &Identity) -> ApplyKey<'_> {
    ApplyKey {
        rank: rank(&identity.group, &identity.kind),
        group: &identity.group,
        kind: &identity.kind,
        namespace: &identity.namespace,
        name: &identity.name,
        version: &identity.version,
    }
}

/// Sorts an object among others for deleting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeleteKey<'a> {
    ends_by_itself: bool,
    rest: std::cmp::Reverse<ApplyKey<'a>>,
}

/// The place of an object in the order of deleting: first those that [`needs_controller_to_end`], and among both
/// the reverse of [`apply_key`].
#[must_use]
pub fn delete_key(identity: &Identity) -> DeleteKey<'_> {
    DeleteKey {
        ends_by_itself: !needs_controller_to_end(identity),
        rest: std::cmp::Reverse(apply_key(identity)),
    }
}

/// Whether a controller that people install puts finalizers on objects of this kind: custom resources, and what load
/// balancers are made for. Such an object goes before its controller, and before the rights, the definition and the
/// namespace that the controller needs.
#[must_use]
pub fn needs_controller_to_end(identity: &Identity) -> bool {
    !is_built_in(&identity.group)
        || matches!(
            (identity.group.as_str(), identity.kind.as_str()),
            ("", "Service") | (NETWORKING, "Ingress")
        )
}

const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Kinds before all others, in this order: what others are put into, limited, permitted, stored and configured by,
/// then what runs, then what points at what runs.
const EARLY: &[(&str, &str)] = &[
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
    (STORAGE, "CSIDriver"),
    (STORAGE, "StorageClass"),
    (STORAGE, "VolumeAttributesClass"),
    (NETWORKING, "IngressClass"),
    ("resource.k8s.io", "DeviceClass"),
    ("", "ResourceQuota"),
    ("", "LimitRange"),
    (NETWORKING, "NetworkPolicy"),
    ("", "ServiceAccount"),
    (RBAC, "ClusterRole"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "ConfigMap"),
    ("", "Service"),
    ("", "Endpoints"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("policy", "PodDisruptionBudget"),
    ("apps", "DaemonSet"),
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "ReplicaSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    (NETWORKING, "Ingress"),
];

/// Kinds after all others, in this order: what intercepts requests, so that it does so only once what answers is
/// there.
const LATE: &[(&str, &str)] = &[
    ("apiregistration.k8s.io", "APIService"),
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (ADMISSION, "MutatingAdmissionPolicy"),
    (ADMISSION, "MutatingAdmissionPolicyBinding"),
    (ADMISSION, "MutatingWebhookConfiguration"),
    (ADMISSION, "ValidatingWebhookConfiguration"),
];

const OTHER_BUILT_IN: u16 = 1_000;
const CUSTOM_CLASS: u16 = 1_001;
const CUSTOM: u16 = 1_002;
const LAST: u16 = 2_000;

fn rank(group: &str, kind: &str) -> u16 {
    if let Some(place) = place(EARLY, group, kind) {
        return place;
    }
    if let Some(place) = place(LATE, group, kind) {
        return LAST + place;
    }
    if is_built_in(group) {
        OTHER_BUILT_IN
    } else if kind.ends_with("Class") {
        CUSTOM_CLASS
    } else {
        CUSTOM
    }
}

fn place(kinds: &[(&str, &str)], group: &str, kind: &str) -> Option<u16> {
    kinds.iter().zip(0..).find(|((g, k), _)| *g == group && *k == kind).map(|(_, place)| place)
}

/// Groups that an API server serves by itself. Not every group below `k8s.io` is: the gateway API's is not.
pub(crate) fn is_built_in(group: &str) -> bool {
    matches!(
        group,
        "" | "apps"
            | "autoscaling"
            | "batch"
            | "extensions"
            | "policy"
            | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "authentication.k8s.io"
            | "authorization.k8s.io"
            | "certificates.k8s.io"
            | "coordination.k8s.io"
            | "discovery.k8s.io"
            | "events.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "internal.apiserver.k8s.io"
            | "networking.k8s.io"
            | "node.k8s.io"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
            | "storagemigration.k8s.io"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(group: &str, kind: &str, namespace: &str, name: &str) -> Identity {
        Identity {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn kinds_come_in_their_order() {
        let expected = [
            ("", "Namespace"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            (STORAGE, "StorageClass"),
            ("", "ResourceQuota"),
            ("", "ServiceAccount"),
            (RBAC, "ClusterRole"),
            (RBAC, "RoleBinding"),
            ("", "PersistentVolumeClaim"),
            ("", "Secret"),
            ("", "ConfigMap"),
            ("", "Service"),
            ("apps", "Deployment"),
            ("batch", "CronJob"),
            (NETWORKING, "Ingress"),
            ("coordination.k8s.io", "Lease"),
            ("gateway.networking.k8s.io", "GatewayClass"),
            ("cert-manager.io", "Issuer"),
            // Named like built-in ones, in groups of somebody else.
            ("example.com", "Deployment"),
            ("example.com", "Namespace"),
            ("apiregistration.k8s.io", "APIService"),
            (ADMISSION, "MutatingWebhookConfiguration"),
            (ADMISSION, "ValidatingWebhookConfiguration"),
        ];
        let expected: Vec<Identity> =
            expected.iter().map(|(group, kind)| identity(group, kind, "", "x")).collect();
        let mut sorted = expected.clone();
        sorted.reverse();
        sorted.sort_by(|left, right| apply_key(left).cmp(&apply_key(right)));
        assert_eq!(sorted, expected);
        sorted.sort_by(|left, right| delete_key(left).cmp(&delete_key(right)));
        let (first, rest): (Vec<_>, Vec<_>) =
            expected.iter().rev().partition(|identity| needs_controller_to_end(identity));
        assert!(sorted.iter().eq(first.iter().chain(&rest).copied()));
        let first: Vec<&str> = first.iter().map(|identity| identity.kind.as_str()).collect();
        let expected = ["Namespace", "Deployment", "Issuer", "GatewayClass", "Ingress", "Service"];
        assert_eq!(first, expected, "custom resources, and what load balancers are made for");
    }

    #[test]
    fn equal_kinds_go_by_namespace_then_name() {
        let mut sorted =
            [identity("", "Pod", "b", "a"), identity("", "Pod", "a", "z"), identity("", "Pod", "a", "b")];
        sorted.sort_by(|left, right| apply_key(left).cmp(&apply_key(right)));
        let names: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["v1 Pod a/b", "v1 Pod a/z", "v1 Pod b/a"]);
    }

    #[test]
    fn only_namespaces_and_definitions_are_the_foundation() {
        assert_eq!(stage(&identity("", "Namespace", "", "x")), Stage::Foundation);
        assert_eq!(
            stage(&identity("apiextensions.k8s.io", "CustomResourceDefinition", "", "x")),
            Stage::Foundation
        );
        assert_eq!(stage(&identity("example.com", "Namespace", "", "x")), Stage::Rest);
        assert_eq!(stage(&identity("", "ConfigMap", "", "x")), Stage::Rest);
        assert!(Stage::Foundation < Stage::Rest);
    }
}
