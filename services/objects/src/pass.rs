//! What a pass lets through.

use events::attributes::Attributes;
use events::pass::{AccessAs, Pass};

use crate::narrowing;

/// A request that a pass lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetThrough<'a> {
    /// As whom the cluster sees it: with the groups of the grants that let it through, and of no other.
    pub access_as: AccessAs,
    /// Which entry of which file lets it through.
    pub place: &'a str,
}

/// No grant of a pass lets a request through: each says why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct NotLetThrough(Vec<String>);

/// Whether a pass lets a request through. Whether it is signed and lives is another question.
///
/// # Errors
/// What is missing, for the person who asked.
pub fn lets_through<'a>(pass: &'a Pass, attributes: &Attributes) -> Result<LetThrough<'a>, NotLetThrough> {
    let (mut granting, mut missing) = (Vec::new(), Vec::new());
    for grant in &pass.grants {
        match narrowing::leaves(&grant.narrowing, attributes) {
            Ok(()) => granting.push(grant),
            Err(error) => missing.push(format!("{}: {error}", grant.place)),
        }
    }
    let Some(first) = granting.first() else { return Err(NotLetThrough(missing)) };
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
    Ok(LetThrough { access_as, place: &first.place })
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
            let through = lets_through(&pass, &asked).unwrap();
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
        let said = lets_through(&pass, &asked).unwrap_err().to_string();
        assert!(said.contains("a:1: ") && said.contains("; a:2: "), "{said}");
        assert!(lets_through(&Pass { grants: Vec::new(), ..pass }, &asked).is_err());
    }
}
