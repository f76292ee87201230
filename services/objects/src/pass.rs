//! What a pass lets through.

use events::attributes::{Attributes, ResourceTarget, Target};
use events::pass::{AccessAs, Pass};

use crate::narrowing;

/// A request that a pass lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassGranted<'a> {
    /// As whom the cluster sees it: with the groups of the grants that let it through, and of no other.
    pub access_as: AccessAs,
    /// Which entry of which file lets it through.
    pub place: &'a str,
}

/// No grant of a pass lets a request through: each says why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct PassDenied(Vec<String>);

/// Whether a pass lets a request through. Whether it is signed and lives is another question.
///
/// # Errors
/// What is missing, for the person who asked.
pub fn check_pass<'a>(pass: &'a Pass, attributes: &Attributes) -> Result<PassGranted<'a>, PassDenied> {
    let (mut granting, mut missing) = (Vec::new(), Vec::new());
    for grant in &pass.grants {
        match narrowing::check(&grant.narrowing, attributes) {
            Ok(()) => granting.push(grant),
            Err(error) => missing.push(format!("{}: {error}", grant.place)),
        }
    }
    let Some(first) = granting.first() else { return Err(PassDenied(missing)) };
    let access_as = match &pass.access_as {
        AccessAs::Agent => AccessAs::Agent,
        AccessAs::Impersonated(whom) => {
            let mut whom = whom.clone();
            for group in granting.iter().flat_map(|grant| &grant.groups) {
                if !whom.groups.contains(group) {
                    whom.groups.push(group.clone());
                }
            }
            AccessAs::Impersonated(whom)
        }
    };
    Ok(PassGranted { access_as, place: &first.place })
}

/// A request as the agent would reach into the agent's own namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "requests with the agent's identity may not touch the agent's own namespace {home}, where its token is stored, and this {}: a grant with {home} among its `namespaces` permits it",
    if *.names_it { "is in that namespace" } else { "reads Secrets of all namespaces" }
)]
pub struct InOwnNamespace {
    home: String,
    names_it: bool,
}

/// Whether a request that a pass lets through leaves the agent's own namespace alone, or a grant names that namespace. The agent has
/// rights there that nobody else is to have by it: its token lies there, and Secrets of all namespaces hold it, too.
///
/// # Errors
/// When it does not, and no grant does.
pub fn spares_own_namespace(pass: &Pass, attributes: &Attributes, home: &str) -> Result<(), InOwnNamespace> {
    let Target::Resource(target) = &attributes.target else { return Ok(()) };
    let names_it = target.namespace == home;
    let reads_all_secrets =
        target.namespace.is_empty() && target.group.is_empty() && target.resource == "secrets";
    if pass.access_as != AccessAs::Agent || !(names_it || reads_all_secrets) {
        return Ok(());
    }
    let there = Attributes {
        target: Target::Resource(ResourceTarget { namespace: home.to_owned(), ..target.clone() }),
        ..attributes.clone()
    };
    let mut named =
        pass.grants.iter().filter(|grant| grant.narrowing.namespaces.iter().any(|name| name == home));
    if named.any(|grant| narrowing::check(&grant.narrowing, &there).is_ok()) {
        return Ok(());
    }
    Err(InOwnNamespace { home: home.to_owned(), names_it })
}

#[cfg(test)]
mod tests {
    use events::pass::{Impersonated, Narrowing, PassGrant};
    use events::{Actor, Timestamp};

    use super::*;
    use crate::attributes::attributes;

    fn grant(place: &str, verbs: &[&str], groups: &[&str]) -> PassGrant {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let narrowing = Narrowing { verbs: texts(verbs), ..Narrowing::default() };
        PassGrant { narrowing, groups: texts(groups), place: place.to_owned() }
    }

    fn pass(access_as: AccessAs, grants: Vec<PassGrant>) -> Pass {
        let none = "00000000-0000-0000-0000-000000000000";
        Pass {
            organization: none.parse().unwrap(),
            agent: none.parse().unwrap(),
            holder: Actor::service("test"),
            access_as,
            grants,
            audit: events::audit::AuditMode::default(),
            record_sessions: events::recording::RecordSessions::default(),
            issued_at: Timestamp(0),
            expires_at: Timestamp(1),
        }
    }

    #[test]
    fn only_the_grants_that_let_a_request_through_lend_groups_to_it() {
        let whom =
            Impersonated { username: "ann".to_owned(), groups: vec!["all".to_owned()], ..Default::default() };
        let grants = vec![
            grant("a:1", &["get"], &["readers", "all"]),
            grant("a:2", &[], &["writers"]),
            grant("a:3", &["get"], &["readers"]),
        ];
        let pass = pass(AccessAs::Impersonated(whom), grants);
        let groups = |method: &str| {
            let asked = attributes(method, "/api/v1/namespaces/a/pods/b", None, false).unwrap();
            let through = check_pass(&pass, &asked).unwrap();
            let AccessAs::Impersonated(whom) = through.access_as else { panic!("the agent") };
            (whom.groups.join(" "), through.place.to_owned())
        };
        assert_eq!(groups("GET"), ("all readers writers".to_owned(), "a:1".to_owned()));
        assert_eq!(groups("DELETE"), ("all writers".to_owned(), "a:2".to_owned()));
    }

    #[test]
    fn what_no_grant_lets_through_says_why_of_each() {
        let pass = pass(AccessAs::Agent, vec![grant("a:1", &["get"], &[]), grant("a:2", &["list"], &[])]);
        let asked = attributes("DELETE", "/api/v1/namespaces/a/pods/b", None, false).unwrap();
        let said = check_pass(&pass, &asked).unwrap_err().to_string();
        assert!(said.contains("a:1: ") && said.contains("; a:2: "), "{said}");
        assert!(check_pass(&Pass { grants: Vec::new(), ..pass }, &asked).is_err());
    }

    #[test]
    fn whoever_is_let_in_as_the_agent_leaves_its_own_namespace_alone_unless_a_grant_names_it() {
        let anywhere = grant("a:1", &[], &[]);
        let mut looks = grant("a:2", &["get", "list"], &[]);
        looks.narrowing.namespaces = vec!["kasbah-agent".to_owned(), "shop".to_owned()];
        let rows = [
            ("GET", "/api/v1/namespaces/shop/secrets/token", true, true),
            ("GET", "/api/v1/pods", true, true),
            ("GET", "/apis/apps/v1/namespaces/kasbah-agent/deployments", false, true),
            ("GET", "/api/v1/namespaces/kasbah-agent/secrets/token", false, true),
            ("GET", "/api/v1/namespaces/kasbah-agent", false, true),
            ("GET", "/api/v1/secrets", false, true),
            ("GET", "/api/v1/watch/secrets", false, false),
            ("DELETE", "/api/v1/namespaces/kasbah-agent/secrets/token", false, false),
            ("DELETE", "/api/v1/namespaces/kasbah-agent", false, false),
            ("POST", "/api/v1/namespaces/kasbah-agent/serviceaccounts/kasbah-agent/token", false, false),
            ("POST", "/api/v1/namespaces/kasbah-agent/pods/a/exec", false, false),
            ("GET", "/version", true, true),
        ];
        for (method, path, without, with) in rows {
            let asked = attributes(method, path, None, false).unwrap();
            let spares =
                |grants| spares_own_namespace(&pass(AccessAs::Agent, grants), &asked, "kasbah-agent");
            assert_eq!(spares(vec![anywhere.clone()]).is_ok(), without, "{method} {path}");
            assert_eq!(spares(vec![anywhere.clone(), looks.clone()]).is_ok(), with, "{method} {path}");
            let impersonated = pass(AccessAs::Impersonated(Impersonated::default()), vec![anywhere.clone()]);
            assert!(
                spares_own_namespace(&impersonated, &asked, "kasbah-agent").is_ok(),
                "the cluster decides"
            );
        }
        let asked = attributes("GET", "/api/v1/secrets", None, false).unwrap();
        let said = spares_own_namespace(&pass(AccessAs::Agent, vec![anywhere]), &asked, "kasbah-agent");
        assert!(said.unwrap_err().to_string().contains("reads Secrets of all namespaces"));
    }
}
