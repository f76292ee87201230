//! Which kinds a configuration lets an agent touch.

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

#[cfg(test)]
mod tests {
    use super::*;

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
            ("ab*ba", "aba", false),
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
