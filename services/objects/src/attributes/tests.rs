use proptest::prelude::*;

use super::*;

fn of(method: &str, target: &str) -> Result<Attributes, PathError> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    attributes(method, path, query, false)
}

/// Verb, group, namespace, resource with its subresource, name.
fn shown(attributes: &Attributes) -> String {
    let Attributes { verb, target } = attributes;
    match target {
        Target::Path(path) => format!("{verb} {path}"),
        Target::Resource(target) => {
            format!("{verb} {target} in {:?} named {:?}", target.namespace, target.name)
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn requests_are_read_as_the_api_server_reads_them() {
    let rows = [
        ("GET", "/", "get /"),
        ("GET", "/version", "get /version"),
        ("GET", "/version/", "get /version"),
        ("POST", "/healthz/ping", "post /healthz/ping"),
        ("GET", "/api", "get /api"),
        ("GET", "/api/v1", "get /api/v1"),
        ("GET", "/apis/apps", "get /apis/apps"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("GET", "/openapi/v3/apis/apps/v1?hash=1", "get /openapi/v3/apis/apps/v1"),
        ("GET", "/api/v1/pods", r#"list pods in "" named """#),
        ("GET", "/api/v1/pods?limit=500", r#"list pods in "" named """#),
        ("HEAD", "/api/v1/nodes/n1", r#"get nodes in "" named "n1""#),
        ("GET", "/api/v1/nodes/n1/proxy/metrics//a%2fb", r#"create nodes/proxy in "" named "n1""#),
        ("GET", "/api/v1/namespaces", r#"list namespaces in "" named """#),
        ("GET", "/api/v1/namespaces/shop", r#"get namespaces in "shop" named "shop""#),
        ("PUT", "/api/v1/namespaces/shop/finalize", r#"update namespaces/finalize in "shop" named "shop""#),
        ("PATCH", "/api/v1/namespaces/shop/status", r#"patch namespaces/status in "shop" named "shop""#),
        ("GET", "/api/v1/namespaces/shop/pods", r#"list pods in "shop" named """#),
        ("GET", "/api/v1/namespaces/shop/pods?watch=true", r#"watch pods in "shop" named """#),
        ("GET", "/api/v1/namespaces/shop/pods?watch", r#"watch pods in "shop" named """#),
        ("GET", "/api/v1/namespaces/shop/pods?watch=False&watch=1", r#"list pods in "shop" named """#),
        ("GET", "/api/v1/namespaces/shop/pods?watch=0", r#"list pods in "shop" named """#),
        (
            "GET",
            "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb&watch=1",
            r#"watch pods in "shop" named "web""#,
        ),
        (
            "GET",
            "/api/v1/namespaces/shop/pods?fieldSelector=status.phase%3DRunning,metadata.name%3D%3Dweb",
            r#"list pods in "shop" named "web""#,
        ),
        (
            "GET",
            "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name!%3Dweb",
            r#"list pods in "shop" named """#,
        ),
        ("DELETE", "/api/v1/namespaces/shop/pods", r#"deletecollection pods in "shop" named """#),
        ("DELETE", "/api/v1/namespaces/shop/pods/web", r#"delete pods in "shop" named "web""#),
        ("POST", "/api/v1/namespaces/shop/pods", r#"create pods in "shop" named """#),
        ("GET", "/api/v1/namespaces/shop/pods/web/log?follow=1", r#"get pods/log in "shop" named "web""#),
        (
            "GET",
            "/api/v1/namespaces/shop/pods/web/exec?command=ls",
            r#"create pods/exec in "shop" named "web""#,
        ),
        ("POST", "/api/v1/namespaces/shop/pods/web/exec", r#"create pods/exec in "shop" named "web""#),
        (
            "GET",
            "/api/v1/namespaces/shop/pods/web/portforward",
            r#"create pods/portforward in "shop" named "web""#,
        ),
        (
            "GET",
            "/api/v1/namespaces/shop/services/http:web:80/proxy/a/b",
            r#"create services/proxy in "shop" named "http:web:80""#,
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
            r#"patch deployments.apps/scale in "shop" named "web""#,
        ),
        ("GET", "/api/v1/watch/namespaces/shop/pods", r#"watch pods in "shop" named """#),
        ("GET", "/api/v1/watch/pods", r#"watch pods in "" named """#),
        ("OPTIONS", "/api/v1/pods", r#" pods in "" named """#),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            r#"get clusterroles.rbac.authorization.k8s.io in "" named "system:node""#,
        ),
    ];
    for (method, target, expected) in rows {
        assert_eq!(
            of(method, target).map(|found| shown(&found)),
            Ok(expected.to_owned()),
            "{method} {target}"
        );
    }
}

#[test]
fn what_two_readers_may_understand_differently_is_refused() {
    let rows = [
        ("", PathError::Relative),
        ("api/v1/pods", PathError::Relative),
        ("https://elsewhere/api/v1/pods", PathError::Relative),
        ("//api/v1/pods", PathError::Empty),
        ("/api//v1/pods", PathError::Empty),
        ("/api/v1/pods//", PathError::Empty),
        ("/api/v1/namespaces//pods", PathError::Empty),
        ("/api/v1/namespaces/shop/../other/secrets", PathError::Dots),
        ("/api/v1/./secrets", PathError::Dots),
        ("/api/v1/namespaces/shop/%2e%2E/secrets", PathError::Dots),
        ("/api/v1/namespaces/shop%2f..%2fother/secrets", PathError::Dots),
        ("/api/v1/namespaces/shop%2Fpods/secrets", PathError::Separator),
        ("/api/v1/namespaces/shop%5cpods/secrets", PathError::Separator),
        ("/api/v1/namespaces/shop/proxy/a%2fb", PathError::Separator),
        ("/api/v1/namespaces/shop/configmaps/proxy/a%2fb", PathError::Separator),
        ("/proxy/a/b/c/proxy/a%2fb", PathError::Separator),
        ("/api/v1/namespaces/shop/services/web/proxy/../../../secrets", PathError::Dots),
        ("/api/v1/namespaces/shop/services/web/proxy/..%5c..%5csecrets", PathError::Dots),
        ("/apis/cert-manager.io/v1/namespaces/shop/challenges.acme", PathError::Resource),
        ("/api/v1/proxy/nodes/n1/metrics", PathError::LegacyProxy),
        ("/api/v1/watch", PathError::NothingToWatch),
        ("/api/v1/pods/%", PathError::Encoding),
        ("/api/v1/pods/%4", PathError::Encoding),
        ("/api/v1/pods/%zz", PathError::Encoding),
        ("/api/v1/pods/%00", PathError::Encoding),
        ("/api/v1/pods/%0d%0a", PathError::Encoding),
        ("/api/v1/pods/%ff", PathError::Encoding),
        ("/api/v1/pods?watch=true;limit=1", PathError::Query),
        ("/api/v1/pods?watch=%", PathError::Query),
    ];
    for (target, expected) in rows {
        assert_eq!(of("GET", target), Err(expected), "{target}");
    }
}

#[test]
fn who_asks_for_another_protocol_asks_for_a_connection() {
    let deleting = attributes("DELETE", "/api/v1/namespaces/a/services/web/proxy/orders/1", None, false);
    assert_eq!(deleting.unwrap().verb, "delete", "the method of who opens nothing is kept");
    let rows = [
        ("/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/vm/console", "create"),
        ("/api/v1/namespaces/a/pods/web/attach", "create"),
        ("/api/v1/namespaces/a/pods/web/log", "get"),
        ("/api/v1/namespaces/a/pods", "list"),
    ];
    for (path, expected) in rows {
        assert_eq!(attributes("GET", path, None, true).unwrap().verb, expected, "{path}");
    }
    let watch = attributes("GET", "/api/v1/pods", Some("watch=1"), true).unwrap();
    assert_eq!(watch.verb, "watch", "a browser watches over a WebSocket");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However a path is written: what is understood of it has no segment that could mean another place.
    #[test]
    fn nothing_understood_holds_a_separator_or_dots(path in "/(api|apis|%61pi)/[a-z./%0-9-]{0,60}") {
        if let Ok(Attributes { target: Target::Resource(target), .. }) = attributes("GET", &path, None, false) {
            let ResourceTarget { group, version, namespace, resource, name, subresource } = &target;
            for part in [group, version, namespace, resource, name, subresource] {
                prop_assert!(!part.contains(['/', '\\']) && part != "." && part != "..", "{part:?} of {path}");
            }
        }
    }

    /// An encoded character means what it means by itself.
    #[test]
    fn encoding_changes_nothing(name in "[a-z][a-z0-9.:-]{0,20}") {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = |name: &str| format!("/api/v1/namespaces/shop/configmaps/{name}");
        prop_assert_eq!(
            attributes("GET", &path(&name), None, false),
            attributes("GET", &path(&encoded), None, false)
        );
    }
}

#[test]
fn what_goes_on_as_long_as_it_likes_is_known() {
    let is_long =
        |path: &str, query: Option<&str>| is_long_running(&attributes("GET", path, query, false).unwrap());
    assert!(is_long("/api/v1/pods", Some("watch=1")));
    assert!(is_long("/api/v1/namespaces/a/pods/b/log", Some("follow=true")));
    assert!(is_long("/api/v1/namespaces/a/services/b/proxy/log", None));
    for path in [
        "/api/v1/pods",
        "/version",
        "/api/v1/namespaces/a/pods/b",
        "/logs/log",
        "/api/v1/namespaces/a/pods/log",
    ] {
        assert!(!is_long(path, None), "{path}");
    }
}
