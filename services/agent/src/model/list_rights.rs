//! What somebody may list in the cluster: as whom that is asked of the API server, and what its answers mean.
//!
//! Which groups somebody has depends on what they do, as each grant of a pass lends its own. So each kind and namespace is asked about as
//! the one whom a request to list it would be sent as.

use std::collections::{BTreeMap, BTreeSet};

use events::attributes::{Attributes, ResourceTarget, Target};
use events::pass::{AccessAs, Impersonated, Pass};
use events::requests::rights::{ReviewRights, ReviewedKind, ReviewedNamespaces, ReviewedRights};
use objects::pass::check_pass;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest reason, in letters.
const REASON: usize = 300;

/// Kinds that are asked about together: their places in the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// As whom.
    pub whom: Impersonated,
    /// In which namespace; empty for all.
    pub namespace: String,
    /// Which kinds.
    pub kinds: Vec<usize>,
}

/// A question is larger than any that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the question is about more than {} kinds or {} namespaces",
    ReviewRights::KINDS,
    ReviewRights::NAMESPACES
)]
pub struct TooMuch;

/// Whether a question is within its limits.
///
/// # Errors
/// When it is not.
pub const fn check(question: &ReviewRights) -> Result<(), TooMuch> {
    let fits =
        question.kinds.len() <= ReviewRights::KINDS && question.namespaces.len() <= ReviewRights::NAMESPACES;
    if fits { Ok(()) } else { Err(TooMuch) }
}

/// What is asked first: each kind in all namespaces, unless the pass withholds it.
#[must_use]
pub fn in_all_namespaces(pass: &Pass, question: &ReviewRights) -> Vec<Asking> {
    let kinds = question.kinds.iter().enumerate();
    let asked = kinds.filter_map(|(place, kind)| {
        let whom = whom(pass, kind, "")?;
        Some(Asking { whom, namespace: String::new(), kinds: vec![place] })
    });
    asked.collect()
}

/// What is asked of a namespace then: the kinds of `rest` that are in namespaces and that the pass does not withhold there, those
/// together that are asked about as the same one.
#[must_use]
pub fn in_namespace(pass: &Pass, question: &ReviewRights, rest: &[usize], namespace: &str) -> Vec<Asking> {
    let mut asked: Vec<Asking> = Vec::new();
    for place in rest {
        let Some(kind) = question.kinds.get(*place) else { continue };
        if !kind.namespaced && !is_namespaces(kind) {
            continue;
        }
        let Some(whom) = whom(pass, kind, namespace) else { continue };
        match asked.iter_mut().find(|asking| asking.whom == whom) {
            Some(asking) => asking.kinds.push(*place),
            None => asked.push(Asking { whom, namespace: namespace.to_owned(), kinds: vec![*place] }),
        }
    }
    asked
}

/// As whom a kind would be listed; nobody where the pass withholds it, or names nobody but the agent.
fn whom(pass: &Pass, kind: &ReviewedKind, namespace: &str) -> Option<Impersonated> {
    let by_name = is_namespaces(kind) && !namespace.is_empty();
    let target = ResourceTarget {
        group: kind.group.clone(),
        resource: kind.resource.clone(),
        namespace: namespace.to_owned(),
        name: if by_name { namespace.to_owned() } else { String::new() },
        ..ResourceTarget::default()
    };
    let attributes = Attributes { verb: verb(by_name).to_owned(), target: Target::Resource(target) };
    match check_pass(pass, &attributes).ok()?.access_as {
        AccessAs::Impersonated(whom) => Some(whom),
        AccessAs::Agent => None,
    }
}

/// Namespaces are in none, but who may read one by its name may see it.
fn is_namespaces(kind: &ReviewedKind) -> bool {
    kind.group.is_empty() && kind.resource == "namespaces"
}

const fn verb(by_name: bool) -> &'static str {
    if by_name { "get" } else { "list" }
}

/// A `SelfSubjectAccessReview`: may they list this, in one namespace or, where none is named, in all?
#[must_use]
pub fn access_review(kind: &ReviewedKind, namespace: &str) -> Value {
    let by_name = is_namespaces(kind) && !namespace.is_empty();
    // An empty text is as good as none.
    let attributes = json!({
        "verb": verb(by_name),
        "group": kind.group,
        "resource": kind.resource,
        "namespace": namespace,
        "name": if by_name { namespace } else { "" },
    });
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    })
}

/// Whether the answer to [`access_review`] allows it. That it could not be evaluated in full denies it, as it would deny the request.
///
/// # Errors
/// When it is no such answer.
pub fn is_allowed(body: &[u8]) -> Result<bool, serde_json::Error> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
        #[serde(default)]
        denied: bool,
    }
    let Status { allowed, denied } = serde_json::from_slice::<Review>(body)?.status;
    Ok(allowed && !denied)
}

/// A `SelfSubjectRulesReview`: what may they do in this namespace?
#[must_use]
pub fn rules_review(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    })
}

/// The answer to [`rules_review`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    #[serde(default)]
    resource_rules: Vec<Rule>,
    /// Something decides in this cluster that does not say what it would decide, such as a webhook.
    #[serde(default)]
    pub incomplete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl Rules {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Review {
            status: Rules,
        }
        serde_json::from_slice::<Review>(body).map(|review| review.status)
    }

    /// Whether any of them permits to list a kind in the namespace that was asked about, or to read the Namespace itself.
    #[must_use]
    pub fn permit(&self, kind: &ReviewedKind, namespace: &str) -> bool {
        let by_name = is_namespaces(kind);
        let has = |list: &[String], text: &str| list.iter().any(|one| one == "*" || one == text);
        self.resource_rules.iter().any(|rule| {
            // Names never permit a list.
            let names = &rule.resource_names;
            let of_all = names.is_empty() || (by_name && names.iter().any(|name| name == namespace));
            of_all
                && has(&rule.verbs, verb(by_name))
                && has(&rule.api_groups, &kind.group)
                && has(&rule.resources, &kind.resource)
        })
    }
}

/// What came out so far.
#[derive(Debug, Default)]
pub struct Reviewed {
    everywhere: BTreeSet<usize>,
    somewhere: BTreeMap<String, BTreeSet<usize>>,
    unknown: BTreeSet<String>,
}

impl Reviewed {
    /// These may be listed in a namespace, or, where none is named, in all.
    pub fn permit(&mut self, namespace: &str, kinds: impl IntoIterator<Item = usize>) {
        if namespace.is_empty() {
            self.everywhere.extend(kinds);
            return;
        }
        let mut kinds = kinds.into_iter().peekable();
        if kinds.peek().is_some() {
            self.somewhere.entry(namespace.to_owned()).or_default().extend(kinds);
        }
    }

    /// Something of it is not known.
    pub fn unknown(&mut self, reason: &str) {
        if self.unknown.len() < ReviewRights::REASONS {
            self.unknown.insert(reason.chars().take(REASON).collect());
        }
    }

    /// The kinds that may not be listed in all namespaces.
    #[must_use]
    pub fn rest(&self, question: &ReviewRights) -> Vec<usize> {
        (0..question.kinds.len()).filter(|place| !self.everywhere.contains(place)).collect()
    }

    /// The answer; namespaces in which the same may be listed stand together.
    #[must_use]
    pub fn answer(self) -> ReviewedRights {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let mut together: BTreeMap<BTreeSet<usize>, Vec<String>> = BTreeMap::new();
        for (namespace, kinds) in self.somewhere {
            together.entry(kinds).or_default().push(namespace);
        }
        let somewhere = together.into_iter().map(|(kinds, namespaces)| ReviewedNamespaces {
            namespaces,
            kinds: kinds.into_iter().map(number).collect(),
        });
        ReviewedRights {
            everywhere: self.everywhere.into_iter().map(number).collect(),
            somewhere: somewhere.collect(),
            unknown: self.unknown.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
