//! Names that may be impersonated, and the rules that say so.

use std::collections::{BTreeMap, BTreeSet};

use events::pass::Impersonated;
use serde_json::{Value, json};

const AUTHENTICATION: &str = "authentication.k8s.io";
/// How the names of service accounts begin; they are no users to Kubernetes' authorization.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Longest name of a namespace.
const MAXIMUM_LABEL: usize = 63;
/// Longest name of a service account.
const MAXIMUM_NAME: usize = 253;

/// Names that may be impersonated.
#[derive(Default)]
pub(super) struct Names {
    /// Any, beside those that are listed.
    any: bool,
    listed: BTreeSet<String>,
}

/// All that may be impersonated.
#[derive(Default)]
pub(super) struct Allowed {
    pub(super) users: Names,
    pub(super) groups: BTreeSet<String>,
    pub(super) uids: Names,
    pub(super) extras: BTreeMap<String, Names>,
    /// By their namespaces: a rule for the whole cluster would open accounts of that name everywhere.
    service_accounts: BTreeMap<String, Names>,
}

impl Names {
    pub(super) fn all() -> Self {
        Self { any: true, listed: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.any |= other.any;
        self.listed.extend(other.listed);
    }

    /// The rule for them; none without names.
    fn rule(&self, group: &str, resource: &str) -> Option<Value> {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]});
        match (self.any, self.listed.is_empty()) {
            (false, true) => return None,
            (false, false) => rule.as_object_mut()?.insert("resourceNames".to_owned(), json!(self.listed)),
            (true, _) => None,
        };
        Some(rule)
    }
}

impl From<BTreeSet<String>> for Names {
    fn from(listed: BTreeSet<String>) -> Self {
        Self { any: false, listed }
    }
}

impl Allowed {
    /// Somebody whom the configuration names.
    pub(super) fn add(&mut self, whom: &Impersonated) {
        let (names, name) = match service_account(&whom.username) {
            Some((namespace, name)) => (self.service_accounts.entry(namespace.to_owned()).or_default(), name),
            None => (&mut self.users, whom.username.as_str()),
        };
        names.listed.insert(name.to_owned());
        self.groups.extend(whom.groups.iter().cloned());
        if !whom.uid.is_empty() {
            self.uids.listed.insert(whom.uid.clone());
        }
        for (key, values) in &whom.extra {
            let names: BTreeSet<String> = values.iter().cloned().collect();
            self.extras.entry(key.to_lowercase()).or_default().add(names.into());
        }
    }

    /// What holds in the whole cluster.
    pub(super) fn rules(&self) -> Vec<Value> {
        let groups: Names = self.groups.clone().into();
        let mut rules = vec![
            self.users.rule("", "users"),
            groups.rule("", "groups"),
            self.uids.rule(AUTHENTICATION, "uids"),
        ];
        let of_extra =
            |(key, names): (&String, &Names)| names.rule(AUTHENTICATION, &format!("userextras/{key}"));
        rules.extend(self.extras.iter().map(of_extra));
        rules.into_iter().flatten().collect()
    }

    /// What holds in one namespace each.
    pub(super) fn rules_of_namespaces(&self) -> impl Iterator<Item = (&str, Vec<Value>)> {
        let rules = |names: &Names| names.rule("", "serviceaccounts").into_iter().collect();
        self.service_accounts.iter().map(move |(namespace, names)| (namespace.as_str(), rules(names)))
    }
}

/// Namespace and name of a service account; whatever else begins like one is a user to Kubernetes.
fn service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_account = is_label(namespace) && name.len() <= MAXIMUM_NAME && name.split('.').all(is_part);
    is_account.then_some((namespace, name))
}

fn is_label(text: &str) -> bool {
    text.len() <= MAXIMUM_LABEL && is_part(text)
}

/// A part of a DNS name, of any length.
fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}
