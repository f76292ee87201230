//! Which kinds a configuration lets an agent touch, and which built-in kinds have namespaces.

use crate::Identity;

/// Whether the kind may be touched: no exclude pattern matches, and an include pattern matches or there is none.
///
/// A pattern is a pair of globs over group and kind in which `*` stands for any text, the core group being empty.
/// Letters' case counts.
#[must_use]
pub fn kind_allowed<G: AsRef<str>, K: AsRef<str>>(
    include: &[(G, K)],
    exclude: &[(G, K)],
    identity: &Identity,
) -> bool {
    let matches =
        |(group, kind): &(G, K)| glob(group.as_ref(), &identity.group) && glob(kind.as_ref(), &identity.kind);
    !exclude.iter().any(matches) && (include.is_empty() || include.iter().any(matches))
}

/// Whether a glob, in which `*` stands for any text (none included), matches the whole of `text`.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = tail.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// Groups that Kubernetes itself serves.
const BUILT_IN: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Groups of which every kind is cluster-scoped.
const CLUSTER_SCOPED_GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "node.k8s.io",
    "scheduling.k8s.io",
];

const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceSlice"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// Whether objects of a kind have no namespace. `None` for kinds of groups that Kubernetes does not serve by itself: their definitions
/// decide.
#[must_use]
pub fn is_cluster_scoped(group: &str, kind: &str) -> Option<bool> {
    BUILT_IN
        .contains(&group)
        .then(|| CLUSTER_SCOPED_GROUPS.contains(&group) || CLUSTER_SCOPED.contains(&(group, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_have_a_known_scope() {
        assert_eq!(is_cluster_scoped("", "Namespace"), Some(true));
        assert_eq!(is_cluster_scoped("", "ConfigMap"), Some(false));
        assert_eq!(is_cluster_scoped("rbac.authorization.k8s.io", "ClusterRole"), Some(true));
        assert_eq!(is_cluster_scoped("rbac.authorization.k8s.io", "Role"), Some(false));
        assert_eq!(is_cluster_scoped("apiextensions.k8s.io", "CustomResourceDefinition"), Some(true));
        assert_eq!(is_cluster_scoped("gateway.networking.k8s.io", "GatewayClass"), None);
    }

    #[test]
    fn globs() {
        let rows = [
            ("*", "", true),
            ("*", "apps", true),
            ("", "", true),
            ("", "apps", false),
            ("apps", "apps", true),
            ("app", "apps", false),
            ("*.k8s.io", "rbac.authorization.k8s.io", true),
            ("*.k8s.io", "k8s.io", false),
            ("Cluster*", "ClusterRole", true),
            ("Cluster*", "Role", false),
            ("*Role*", "ClusterRoleBinding", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "a", false),
            ("ab*ba", "aba", false),
            ("", "a", false),
            ("review/*", "review/login", true),
            ("review/*", "review", false),
            ("production", "production", true),
            ("production", "production-eu", false),
            ("*a*a", "a", false),
            ("**", "x", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(glob(pattern, text), expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn exclude_wins_and_no_include_means_all() {
        let of = |group: &str, kind: &str| Identity {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: String::new(),
            name: "x".into(),
        };
        let none: [(&str, &str); 0] = [];
        assert!(kind_allowed(&none, &none, &of("", "Secret")));
        assert!(!kind_allowed(&none, &[("", "Secret")], &of("", "Secret")));
        assert!(kind_allowed(&none, &[("", "Secret")], &of("example.com", "Secret")));
        assert!(kind_allowed(&[("apps", "*")], &none, &of("apps", "Deployment")));
        assert!(!kind_allowed(&[("apps", "*")], &none, &of("batch", "Job")));
        assert!(!kind_allowed(&[("apps", "*")], &[("*", "DaemonSet")], &of("apps", "DaemonSet")));
    }
}
