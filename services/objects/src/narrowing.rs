//! What a narrowed grant leaves of a cluster's API.
//!
//! A narrowing only ever takes away: what it leaves is still for the cluster's own authorization to decide.

use events::attributes::{Attributes, ResourceTarget, Target};
use events::pass::Narrowing;

use crate::kinds::glob;

/// What clients read of any API server before they do anything (Kubernetes: the cluster role `system:discovery`), with all that lies
/// below.
const DISCOVERY: [&str; 8] =
    ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz", "/.well-known"];
/// Questions about oneself, which are asked by creating something that is not kept: kind of the review and its group.
const REVIEWS_OF_ONESELF: [(&str, &str); 3] = [
    ("selfsubjectaccessreviews", "authorization.k8s.io"),
    ("selfsubjectrulesreviews", "authorization.k8s.io"),
    ("selfsubjectreviews", "authentication.k8s.io"),
];

/// Why a narrowing withholds something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NarrowingDenied {
    /// Another namespace.
    #[error("the grant is limited to {}, and this is in namespace {asked}", namespaces(.granted))]
    Namespace {
        /// The one of the request.
        asked: String,
        /// Those of the grant.
        granted: Vec<String>,
    },
    /// Everything in all namespaces, or something in none.
    #[error(
        "the grant is limited to {}, and this request is for all namespaces or for none; name one of them, as with --namespace",
        namespaces(.granted)
    )]
    AllNamespaces {
        /// Those of the grant.
        granted: Vec<String>,
    },
    /// Another verb.
    #[error("the grant is limited to the verbs {}, and this is {asked}", .granted.join(", "))]
    Verb {
        /// The one of the request.
        asked: String,
        /// Those of the grant.
        granted: Vec<String>,
    },
    /// Another resource.
    #[error("the grant is limited to the resources {}, and this is {asked}", .granted.join(", "))]
    Resource {
        /// The one of the request.
        asked: String,
        /// Those of the grant.
        granted: Vec<String>,
    },
    /// A path of the API server itself.
    #[error("the grant is limited to objects, and {asked} is not an object")]
    Path {
        /// The one of the request.
        asked: String,
    },
}

fn namespaces(granted: &[String]) -> String {
    let word = if granted.len() == 1 { "namespace" } else { "the namespaces" };
    format!("{word} {}", granted.join(", "))
}

/// Whether a narrowing leaves what is asked for.
///
/// # Errors
/// What is missing, for the person who asked.
pub fn check(narrowing: &Narrowing, attributes: &Attributes) -> Result<(), NarrowingDenied> {
    if narrowing.is_empty() {
        return Ok(());
    }
    let target = match &attributes.target {
        Target::Resource(target) => target,
        Target::Path(path) if is_discovery(&attributes.verb, path) => return Ok(()),
        Target::Path(path) => return Err(NarrowingDenied::Path { asked: path.clone() }),
    };
    if is_review_of_oneself(&attributes.verb, target) {
        return Ok(());
    }
    check_namespace(&narrowing.namespaces, namespace_of(&attributes.verb, target))?;
    let Narrowing { verbs, resources, .. } = narrowing;
    if !verbs.is_empty() && !verbs.iter().any(|verb| verb == "*" || *verb == attributes.verb) {
        return Err(NarrowingDenied::Verb { asked: attributes.verb.clone(), granted: verbs.clone() });
    }
    if !resources.is_empty() && !resources.iter().any(|pattern| is_of(pattern, target)) {
        return Err(NarrowingDenied::Resource { asked: target.to_string(), granted: resources.clone() });
    }
    Ok(())
}

fn check_namespace(granted: &[String], asked: &str) -> Result<(), NarrowingDenied> {
    if granted.is_empty() || granted.iter().any(|namespace| namespace == asked) {
        return Ok(());
    }
    let granted = granted.to_vec();
    if asked.is_empty() {
        return Err(NarrowingDenied::AllNamespaces { granted });
    }
    Err(NarrowingDenied::Namespace { asked: asked.to_owned(), granted })
}

/// The namespace that something is done in. A namespace itself lies in none, but whoever is let into it may look at it.
fn namespace_of<'a>(verb: &str, target: &'a ResourceTarget) -> &'a str {
    let is_namespace = target.group.is_empty() && target.resource == "namespaces";
    if is_namespace && verb != "get" { "" } else { &target.namespace }
}

/// A pattern without a slash is of objects themselves, as in a Role, and one with a slash only of what is below them.
fn is_of(pattern: &str, target: &ResourceTarget) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    if pattern.contains('/') == target.subresource.is_empty() {
        return false;
    }
    let (resource, group) = match resource.split_once('.') {
        Some((resource, group)) => (resource, group),
        None if resource == "*" => ("*", "*"),
        None => (resource, ""),
    };
    glob(resource, &target.resource) && glob(group, &target.group) && glob(subresource, &target.subresource)
}

fn is_discovery(verb: &str, path: &str) -> bool {
    let is_below =
        |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    matches!(verb, "get" | "head") && (path == "/" || DISCOVERY.iter().any(is_below))
}

fn is_review_of_oneself(verb: &str, target: &ResourceTarget) -> bool {
    verb == "create"
        && target.subresource.is_empty()
        && REVIEWS_OF_ONESELF.contains(&(target.resource.as_str(), target.group.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::attributes;

    fn narrowing(namespaces: &[&str], verbs: &[&str], resources: &[&str]) -> Narrowing {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Narrowing { namespaces: texts(namespaces), verbs: texts(verbs), resources: texts(resources) }
    }

    /// A request as it stands in its first line.
    fn asked(request: &str) -> Attributes {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        attributes(method, path, query, false).unwrap()
    }

    /// Requests, and the part of the message that refuses each; empty where it is let through.
    fn check(narrowing: &Narrowing, rows: &[(&str, &str)]) {
        for (request, expected) in rows {
            let said = super::check(narrowing, &asked(request)).err().map(|error| error.to_string());
            match said {
                None => assert!(expected.is_empty(), "{request} is let through"),
                Some(said) => assert!(!expected.is_empty() && said.contains(expected), "{request}: {said}"),
            }
        }
    }

    #[test]
    fn nothing_is_withheld_where_nothing_is_named() {
        let rows = ["GET /metrics", "DELETE /api/v1/nodes", "POST /api/v1/namespaces/a/pods/web/exec"];
        check(&Narrowing::default(), &rows.map(|request| (request, "")));
    }

    #[test]
    fn namespaces_are_kept() {
        let rows = [
            ("GET /api/v1/namespaces/shop/pods", ""),
            ("DELETE /api/v1/namespaces/test/pods/web", ""),
            ("GET /api/v1/namespaces/shop", ""),
            ("POST /api/v1/namespaces/shop/pods/web/exec", ""),
            (
                "GET /api/v1/namespaces/other/pods",
                "limited to the namespaces shop, test, and this is in namespace other",
            ),
            ("GET /api/v1/namespaces/other", "in namespace other"),
            ("DELETE /api/v1/namespaces/shop", "or for none"),
            ("PUT /api/v1/namespaces/shop/finalize", "or for none"),
            ("GET /api/v1/pods", "name one of them, as with --namespace"),
            ("GET /api/v1/pods?watch=1", "for all namespaces"),
            ("GET /api/v1/namespaces", "for all namespaces"),
            ("GET /api/v1/nodes/n1", "or for none"),
            ("GET /version", ""),
            ("GET /apis/apps/v1", ""),
            ("GET /openapi/v3", ""),
            ("GET /.well-known/openid-configuration", ""),
            ("GET /", ""),
            ("POST /version", "/version is not an object"),
            ("GET /apisecrets", "is not an object"),
            ("GET /metrics", "limited to objects, and /metrics is not an object"),
            ("GET /logs/kubelet.log", "is not an object"),
            ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""),
            ("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", ""),
            ("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "or for none"),
            ("GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "or for none"),
        ];
        check(&narrowing(&["shop", "test"], &[], &[]), &rows);
        let one = super::check(&narrowing(&["shop"], &[], &[]), &asked("GET /api/v1/namespaces/a/pods"));
        assert_eq!(
            one.unwrap_err().to_string(),
            "the grant is limited to namespace shop, and this is in namespace a"
        );
    }

    #[test]
    fn verbs_are_kept_by_what_is_done_and_not_by_the_method() {
        let rows = [
            ("GET /api/v1/namespaces/shop/pods", ""),
            ("GET /api/v1/pods?watch=1", ""),
            ("GET /api/v1/namespaces/shop/pods/web/log", ""),
            (
                "GET /api/v1/namespaces/shop/pods/web/exec?command=sh",
                "verbs get, list, watch, and this is create",
            ),
            ("GET /api/v1/nodes/n1/proxy/run", "this is create"),
            ("DELETE /api/v1/namespaces/shop/pods", "this is deletecollection"),
            ("GET /version", ""),
        ];
        check(&narrowing(&[], &["get", "list", "watch"], &[]), &rows);
        check(&narrowing(&[], &["*"], &[]), &[("DELETE /api/v1/namespaces/shop/pods/web", "")]);
    }

    #[test]
    fn resources_are_kept_with_their_groups_and_subresources() {
        let rows = [
            ("GET /api/v1/pods", ""),
            ("GET /api/v1/namespaces/shop/pods/web/log", ""),
            ("POST /api/v1/namespaces/shop/pods/web/exec", "and this is pods/exec"),
            ("GET /apis/metrics.k8s.io/v1beta1/pods", "and this is pods.metrics.k8s.io"),
            ("GET /apis/apps/v1/deployments", ""),
            ("PATCH /apis/apps/v1/namespaces/shop/deployments/web/scale", ""),
            (
                "GET /apis/apps/v1/daemonsets",
                "resources pods, pods/log, deployments.apps, deployments.apps/*, and this",
            ),
            ("GET /api/v1/secrets", "and this is secrets"),
        ];
        let some = ["pods", "pods/log", "deployments.apps", "deployments.apps/*"];
        check(&narrowing(&[], &[], &some), &rows);
        let any = [
            ("GET /apis/apps/v1/daemonsets", ""),
            ("POST /api/v1/namespaces/shop/pods/web/exec", "and this is pods/exec"),
        ];
        check(
            &narrowing(&[], &[], &["pods/*"]),
            &[("DELETE /api/v1/namespaces/shop/pods/web", "and this is pods")],
        );
        check(&narrowing(&[], &[], &["*"]), &any);
        check(&narrowing(&[], &[], &["*/*"]), &[("POST /api/v1/namespaces/shop/pods/web/exec", "")]);
    }
}
