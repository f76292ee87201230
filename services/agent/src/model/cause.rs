//! Why a dry run may fail now and not once the set is applied: what it lacks is something that this very set creates.
//!
//! Only a reason that says so counts, in the forms in which the API server says it. That a refusal happens to quote the name of something
//! that is created explains nothing.

use events::ObjectIdentity;

use crate::kubernetes::{ApiError, ApiStatus};

/// Something that this set creates before the object that failed.
#[derive(Debug, Clone, Copy)]
pub struct Created<'a> {
    /// What.
    pub identity: &'a ObjectIdentity,
    /// Its kind in paths.
    pub plural: &'a str,
}

/// Whether the creation explains the failure of another object's dry run.
#[must_use]
pub fn explains(created: Created<'_>, of: &ObjectIdentity, error: &ApiError) -> bool {
    let Some(status) = error.status() else { return false };
    if objects::order::apply_key(created.identity) >= objects::order::apply_key(of) {
        return false;
    }
    match status.code {
        400 | 403 | 404 | 422 => {
            is_what_was_not_found(created, of, status)
                || is_its_definition(created, of, status)
                || is_its_priority(created, of, status)
                || is_its_limit(created, of, status)
        }
        500 => is_service_of_webhook(created, status),
        _ => false,
    }
}

/// `namespaces "shop" not found`, `serviceaccount "runner" not found`, `role.rbac.authorization.k8s.io "reader" not found`.
fn is_what_was_not_found(created: Created<'_>, of: &ObjectIdentity, status: &ApiStatus) -> bool {
    let identity = created.identity;
    let in_reach = identity.namespace.is_empty() || identity.namespace == of.namespace;
    let by_details = status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| {
            details.name == identity.name
                && is_kind(created, &details.kind)
                && (details.group.is_empty() || details.group == identity.group)
        });
    in_reach
        && (by_details
            || not_found(&status.message).any(|(kind, name)| name == identity.name && is_kind(created, kind)))
}

/// The kinds and names of all that a text says is not found.
fn not_found(message: &str) -> impl Iterator<Item = (&str, &str)> {
    message.match_indices("\" not found").filter_map(|(end, _)| {
        let (before, _) = message.split_at_checked(end)?;
        let (before, name) = before.rsplit_once('"')?;
        let kind = before.trim_end().rsplit([' ', ':', '(']).next()?;
        Some((kind, name))
    })
}

/// Whether a word, such as `roles.rbac.authorization.k8s.io`, names the kind.
fn is_kind(created: Created<'_>, word: &str) -> bool {
    let (kind, group) = word.split_once('.').unwrap_or((word, ""));
    let is_kind = kind.eq_ignore_ascii_case(&created.identity.kind) || kind == created.plural;
    is_kind && (group.is_empty() || group == created.identity.group)
}

/// The API server does not serve a path yet whose definition was applied a moment ago.
fn is_its_definition(created: Created<'_>, of: &ObjectIdentity, status: &ApiStatus) -> bool {
    let defines = || created.identity.name.split_once('.').is_some_and(|(_, group)| group == of.group);
    status.code == 404
        && status.message.starts_with("the server could not find the requested resource")
        && created.identity.kind == "CustomResourceDefinition"
        && defines()
}

/// `no PriorityClass with name high was found`.
fn is_its_priority(created: Created<'_>, of: &ObjectIdentity, status: &ApiStatus) -> bool {
    let identity = created.identity;
    of.kind == "Pod"
        && (identity.group.as_str(), identity.kind.as_str()) == ("scheduling.k8s.io", "PriorityClass")
        && status.message.contains(&format!("no PriorityClass with name {} was found", identity.name))
}

/// `failed quota: compute: must specify limits.cpu for: web`: a LimitRange fills that in.
fn is_its_limit(created: Created<'_>, of: &ObjectIdentity, status: &ApiStatus) -> bool {
    created.identity.kind == "LimitRange"
        && created.identity.namespace == of.namespace
        && status.message.contains("failed quota: ")
        && status.message.contains(": must specify ")
}

/// `failed calling webhook "a.example.com": … https://checks.shop.svc:443/…: service "checks" not found`.
fn is_service_of_webhook(created: Created<'_>, status: &ApiStatus) -> bool {
    let ObjectIdentity { group, kind, namespace, name, .. } = created.identity;
    (group.as_str(), kind.as_str()) == ("", "Service")
        && status.message.contains("failed calling webhook")
        && status.message.contains(&format!("//{name}.{namespace}.svc:"))
        && not_found(&status.message).any(|(word, missing)| word == "service" && missing == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn id(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectIdentity {
        ObjectIdentity {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn refused(code: u16, message: &str, more: &Value) -> ApiError {
        let mut body = json!({"kind": "Status", "message": message});
        body.as_object_mut().expect("map").extend(more.as_object().cloned().unwrap_or_default());
        ApiError::Refused(Box::new(ApiStatus::read(code, body.to_string().as_bytes())))
    }

    fn excused(code: u16, message: &str, of: &ObjectIdentity, created: &ObjectIdentity) -> bool {
        let plural = format!("{}s", created.kind.to_lowercase());
        explains(Created { identity: created, plural: &plural }, of, &refused(code, message, &json!({})))
    }

    const RBAC: &str = "rbac.authorization.k8s.io";

    #[test]
    fn what_is_missing_and_created_explains_a_failure() {
        let pod = id("", "Pod", "shop", "web");
        let account = "pods \"web\" is forbidden: error looking up service account shop/runner: serviceaccount \"runner\" not found";
        assert!(excused(403, account, &pod, &id("", "ServiceAccount", "shop", "runner")));
        let class = "pods \"web\" is forbidden: pod rejected: RuntimeClass \"fast\" not found";
        assert!(excused(403, class, &pod, &id("node.k8s.io", "RuntimeClass", "", "fast")));
        let priority = "pods \"web\" is forbidden: no PriorityClass with name high was found";
        assert!(excused(403, priority, &pod, &id("scheduling.k8s.io", "PriorityClass", "", "high")));
        let binding = id(RBAC, "RoleBinding", "shop", "reads");
        let role = "roles.rbac.authorization.k8s.io \"reader\" not found";
        assert!(excused(404, role, &binding, &id(RBAC, "Role", "shop", "reader")));
        assert!(excused(
            404,
            "clusterrole.rbac.authorization.k8s.io \"reader\" not found",
            &binding,
            &id(RBAC, "ClusterRole", "", "reader")
        ));
        assert!(excused(404, "namespaces \"shop\" not found", &pod, &id("", "Namespace", "", "shop")));
        let quota = "pods \"web\" is forbidden: failed quota: compute: must specify limits.cpu for: web";
        assert!(excused(403, quota, &pod, &id("", "LimitRange", "shop", "defaults")));
        let webhook = "Internal error occurred: failed calling webhook \"a.b\": failed to call webhook: Post \"https://checks.shop.svc:443/a?timeout=10s\": service \"checks\" not found";
        assert!(excused(500, webhook, &pod, &id("", "Service", "shop", "checks")));
        let cart = id("shop.io", "Cart", "shop", "a");
        let definition = id("apiextensions.k8s.io", "CustomResourceDefinition", "", "carts.shop.io");
        assert!(excused(404, "the server could not find the requested resource", &cart, &definition));
    }

    #[test]
    fn details_of_what_was_not_found_explain_it_as_well() {
        let details = json!({"reason": "NotFound", "details": {"name": "shop", "kind": "namespaces"}});
        let error = refused(404, "gone", &details);
        let pod = id("", "Pod", "shop", "web");
        let namespace = id("", "Namespace", "", "shop");
        assert!(explains(Created { identity: &namespace, plural: "namespaces" }, &pod, &error));
        let settings = id("", "Secret", "shop", "shop");
        assert!(!explains(Created { identity: &settings, plural: "secrets" }, &pod, &error));
    }

    #[test]
    fn a_name_that_happens_to_be_quoted_explains_nothing() {
        let pod = id("", "Pod", "shop", "web");
        let account = "error looking up service account shop/runner: serviceaccount \"runner\" not found";
        for created in [
            id("", "ServiceAccount", "other", "runner"),
            id("", "ServiceAccount", "shop", "run"),
            id("", "Secret", "shop", "runner"),
            id("example.com", "Runner", "shop", "runner"),
            id("networking.k8s.io", "Ingress", "shop", "runner"),
        ] {
            assert!(!excused(403, account, &pod, &created), "{created}");
        }
        let deployment = id("apps", "Deployment", "shop", "web");
        let invalid = "Deployment.apps \"web\" is invalid: spec.template.spec.containers[0].name: Invalid value: \"settings\": must not be so";
        for created in [
            id("", "ConfigMap", "shop", "settings"),
            id("", "Service", "shop", "web"),
            id("", "Namespace", "", "shop"),
        ] {
            assert!(!excused(422, invalid, &deployment, &created), "{created}");
        }
        let denied = "admission webhook \"checks\" denied the request: \"checks\" says no";
        assert!(!excused(403, denied, &pod, &id("", "ConfigMap", "shop", "checks")));
        let exceeded = "pods \"web\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=0, limited: pods=0";
        assert!(!excused(403, exceeded, &pod, &id("", "LimitRange", "shop", "compute")));
        let webhook = "failed calling webhook \"a.b\": Post \"https://checks.other.svc:443/\": service \"checks\" not found";
        assert!(!excused(500, webhook, &pod, &id("", "Service", "shop", "checks")), "another namespace's");
        assert!(!excused(
            500,
            "serviceaccount \"runner\" not found",
            &pod,
            &id("", "ServiceAccount", "shop", "runner")
        ));
        let cart = id("shop.io", "Cart", "shop", "a");
        let other = id("apiextensions.k8s.io", "CustomResourceDefinition", "", "carts.other.io");
        assert!(!excused(404, "the server could not find the requested resource", &cart, &other));
    }
}
