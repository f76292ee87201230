//! Paths of the API. Names come from manifests, which anybody may have written, so each segment is escaped.

use super::discovery::Resource;

/// One segment, escaped; `None` for the names that would change the meaning of a path.
#[must_use]
pub fn segment(text: &str) -> Option<String> {
    if matches!(text, "" | "." | "..") {
        return None;
    }
    Some(escape(text))
}

/// A value in a query, escaped.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b':') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The collection of a resource, in a namespace or in all.
#[must_use]
pub fn collection(resource: &Resource, namespace: &str) -> Option<String> {
    let root = if resource.group.is_empty() {
        format!("/api/{}", segment(&resource.version)?)
    } else {
        format!("/apis/{}/{}", segment(&resource.group)?, segment(&resource.version)?)
    };
    let plural = segment(&resource.plural)?;
    if namespace.is_empty() {
        Some(format!("{root}/{plural}"))
    } else {
        Some(format!("{root}/namespaces/{}/{plural}", segment(namespace)?))
    }
}

/// One object.
#[must_use]
pub fn object(resource: &Resource, namespace: &str, name: &str) -> Option<String> {
    if resource.namespaced && namespace.is_empty() {
        return None;
    }
    let namespace = if resource.namespaced { namespace } else { "" };
    Some(format!("{}/{}", collection(resource, namespace)?, segment(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, namespaced: bool) -> Resource {
        Resource {
            group: group.into(),
            version: "v1".into(),
            kind: "Thing".into(),
            plural: "things".into(),
            namespaced,
            listable: true,
            watchable: true,
        }
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        let rows = [
            ("a", Some("/api/v1/namespaces/ns/things/a")),
            ("system:node", Some("/api/v1/namespaces/ns/things/system:node")),
            ("../../secrets/x", Some("/api/v1/namespaces/ns/things/..%2F..%2Fsecrets%2Fx")),
            ("a?b#c%", Some("/api/v1/namespaces/ns/things/a%3Fb%23c%25")),
            ("..", None),
            (".", None),
            ("", None),
        ];
        for (name, expected) in rows {
            assert_eq!(object(&resource("", true), "ns", name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn scope_decides_the_path() {
        assert_eq!(object(&resource("g.io", false), "ns", "a").as_deref(), Some("/apis/g.io/v1/things/a"));
        assert_eq!(object(&resource("g.io", true), "", "a"), None);
        assert_eq!(collection(&resource("g.io", true), "").as_deref(), Some("/apis/g.io/v1/things"));
    }
}
