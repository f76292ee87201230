//! `ci_access` and `user_access`: who may use the cluster's API. The keys are GitLab's, with a narrowing for each entry.

use std::collections::BTreeMap;

use events::configuration::Mode;
use events::grants::{CiAccessAs, CiGrant, Grants, UserAccessAs, UserGrant};
use events::pass::{Impersonated, Narrowing};
use objects::yaml::Node;

use super::fields::{
    bounded_list, join, list, mapping, namespace, required, strict_mapping, text, texts, truth,
};
use super::report::Report;

/// Most entries of one list, as with GitLab; more are refused instead of dropped.
const MAXIMUM_GRANTS: usize = 500;
/// Kubernetes' verbs for objects.
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"];
const DEFAULT_NAMESPACE: &str = "default";
/// Users and groups that are the cluster's own, and those that stand for people and jobs whom Kasbah knows.
const RESERVED: [&str; 2] = ["system:", "kasbah:"];

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As files are read today.
    Explicit,
    /// As files were read before `allow_agent_identity` was known.
    LegacyReading,
}

/// Whether somebody may be let in as the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// It is what is meant where `access_as` is left out.
    Default,
    /// Where an entry says so.
    Stated,
    /// Never.
    Refused,
}

impl Identity {
    /// As the agent somebody is the whole cluster, where the agent is.
    pub(super) const fn of(reading: Reading, mode: Mode, allowed: bool) -> Self {
        match (reading, mode) {
            (Reading::LegacyReading, _) | (Reading::Explicit, Mode::Namespaced) => Self::Default,
            (Reading::Explicit, Mode::Cluster) if allowed => Self::Stated,
            (Reading::Explicit, Mode::Cluster) => Self::Refused,
        }
    }

    fn of_jobs(self) -> CiAccessAs {
        if self == Self::Default { CiAccessAs::Agent } else { CiAccessAs::CiJob }
    }

    fn of_people(self) -> UserAccessAs {
        if self == Self::Default { UserAccessAs::Agent } else { UserAccessAs::User }
    }

    /// Somebody is to be let in as the agent.
    fn states_agent(self, report: &mut Report, node: &Node, path: &str, instead: &str) {
        if self == Self::Refused {
            let message = format!(
                "requests with the agent's identity can reach the whole cluster: write `allow_agent_identity: true` at the top of the file if that is intended, or `access_as: {{{instead}: {{}}}}`"
            );
            report.wrong(node, &join(path, "agent"), message);
        }
    }
}

/// Reads both sections.
pub(super) fn grants(
    report: &mut Report,
    ci: Option<&Node>,
    user: Option<&Node>,
    identity: Identity,
) -> Grants {
    let mut grants = Grants::default();
    if let Some(node) = ci {
        let known = mapping(report, node, "ci_access", &["projects", "groups"]);
        let ci_grant = |report: &mut Report, node: &Node, path: &str| ci_grant(report, node, path, identity);
        grants.ci_projects = entries(report, &known, "ci_access", "projects", ci_grant);
        grants.ci_groups = entries(report, &known, "ci_access", "groups", ci_grant);
    }
    if let Some(node) = user {
        let known = mapping(report, node, "user_access", &["access_as", "projects", "groups"]);
        grants.user_projects = entries(report, &known, "user_access", "projects", user_grant);
        grants.user_groups = entries(report, &known, "user_access", "groups", user_grant);
        grants.users_access_as = known
            .get("access_as")
            .and_then(|node| users_access_as(report, node, "user_access.access_as", identity))
            .unwrap_or_else(|| identity.of_people());
    }
    grants
}

fn entries<Grant>(
    report: &mut Report,
    known: &BTreeMap<String, &Node>,
    path: &str,
    key: &str,
    read: impl Fn(&mut Report, &Node, &str) -> Option<Grant>,
) -> Vec<Grant> {
    let Some(node) = known.get(key) else { return Vec::new() };
    let path = join(path, key);
    let items = bounded_list(report, node, &path, (MAXIMUM_GRANTS, "entries"));
    let mut lines: BTreeMap<String, u32> = BTreeMap::new();
    let mut grants = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(id) = item.get("id").and_then(Node::as_str)
            && let Some(first) = lines.insert(id.to_lowercase(), item.line)
        {
            let message = format!("'{id}' already has an entry in line {first}; merge the two");
            report.wrong(item, &join(&path, "id"), message);
        }
        grants.extend(read(report, item, &path));
    }
    grants
}

fn ci_grant(report: &mut Report, node: &Node, path: &str, identity: Identity) -> Option<CiGrant> {
    let keys = [
        "id",
        "default_namespace",
        "access_as",
        "environments",
        "protected_branches_only",
        "namespaces",
        "verbs",
        "resources",
    ];
    let known = strict_mapping(report, node, path, &keys);
    let id = id_of(report, node, &known, path);
    let narrowing = narrowing(report, &known, path);
    let default_namespace = known
        .get("default_namespace")
        .and_then(|node| granted_namespace(report, node, &join(path, "default_namespace"), &narrowing));
    let first_granted = || narrowing.namespaces.first().cloned();
    let access_as = known
        .get("access_as")
        .and_then(|node| ci_access_as(report, node, &join(path, "access_as"), identity));
    let environments =
        known.get("environments").map(|node| some_texts(report, node, &join(path, "environments")));
    let protected = known
        .get("protected_branches_only")
        .and_then(|node| truth(report, node, &join(path, "protected_branches_only")));
    Some(CiGrant {
        path: id?,
        default_namespace: default_namespace
            .or_else(first_granted)
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
        access_as: access_as.unwrap_or_else(|| identity.of_jobs()),
        environments: environments.into_iter().flatten().map(|(text, _)| text).collect(),
        protected_branches_only: protected.unwrap_or(false),
        narrowing,
        line: node.line,
    })
}

/// A namespace that a narrowing leaves.
fn granted_namespace(report: &mut Report, node: &Node, path: &str, narrowing: &Narrowing) -> Option<String> {
    let name = namespace(report, node, path)?;
    if !narrowing.namespaces.is_empty() && !narrowing.namespaces.contains(&name) {
        report.wrong(node, path, format!("'{name}' is not among the namespaces of the grant"));
    }
    Some(name)
}

fn user_grant(report: &mut Report, node: &Node, path: &str) -> Option<UserGrant> {
    let known = strict_mapping(report, node, path, &["id", "namespaces", "verbs", "resources"]);
    let id = id_of(report, node, &known, path);
    let narrowing = narrowing(report, &known, path);
    Some(UserGrant { path: id?, narrowing, line: node.line })
}

/// The path of a project or group; letters' case does not count, as with GitLab.
fn id_of(report: &mut Report, node: &Node, known: &BTreeMap<String, &Node>, path: &str) -> Option<String> {
    node.as_mapping()?;
    let field = join(path, "id");
    let node = required(report, node, known, path, "id", "write the path of a project or group")?;
    let value = text(report, node, &field, false)?;
    if value.split('/').any(str::is_empty) || value.contains([' ', ':']) {
        report.wrong(
            node,
            &field,
            format!("'{value}' is not a path; write it as in group/project, never a URL"),
        );
        return None;
    }
    Some(value.to_lowercase())
}

fn narrowing(report: &mut Report, known: &BTreeMap<String, &Node>, path: &str) -> Narrowing {
    let mut read = |key: &str| {
        let node = known.get(key);
        node.map(|node| some_texts(report, node, &join(path, key))).unwrap_or_default()
    };
    let (namespaces, verbs, resources) = (read("namespaces"), read("verbs"), read("resources"));
    for (index, (_, place)) in namespaces.iter().enumerate() {
        namespace(report, place, &format!("{path}.namespaces[{index}]"));
    }
    for (index, (verb, place)) in verbs.iter().enumerate() {
        if !VERBS.contains(&verb.as_str()) {
            let message = format!("'{verb}' is not one of {}", VERBS.join(", "));
            report.wrong(place, &format!("{path}.verbs[{index}]"), message);
        }
    }
    for (index, (resource, place)) in resources.iter().enumerate() {
        let is_fine =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "*.-/".contains(letter);
        if !resource.chars().all(is_fine) || resource.matches('/').count() > 1 {
            let message = format!(
                "'{resource}' is not a resource; write it as in pods, pods/log or deployments.apps, in lower case"
            );
            report.wrong(place, &format!("{path}.resources[{index}]"), message);
        }
    }
    let only_texts = |list: Vec<(String, Node)>| list.into_iter().map(|(text, _)| text).collect();
    Narrowing {
        namespaces: only_texts(namespaces),
        verbs: only_texts(verbs),
        resources: only_texts(resources),
    }
}

/// A list of at least one text.
fn some_texts(report: &mut Report, node: &Node, path: &str) -> Vec<(String, Node)> {
    if node.as_sequence().is_some_and(<[Node]>::is_empty) {
        report.wrong(node, path, "an empty list permits nothing; remove the key to permit everything");
    }
    texts(report, node, path)
}

/// A mapping with one key, such as `agent: {}`.
fn only_key<'n>(
    report: &mut Report,
    node: &'n Node,
    path: &str,
    keys: &[&'static str],
) -> Option<(&'static str, &'n Node)> {
    let known = strict_mapping(report, node, path, keys);
    node.as_mapping()?;
    let mut found = keys.iter().filter_map(|key| Some((*key, *known.get(*key)?)));
    match (found.next(), found.next()) {
        (Some(one), None) => Some(one),
        (None, _) => {
            let example = keys.first().copied().unwrap_or_default();
            report.wrong(node, path, format!("write one of {}, such as '{example}: {{}}'", keys.join(", ")));
            None
        }
        (Some((first, _)), Some((second, place))) => {
            let message = format!("one of {} is meant; {first} is given as well", keys.join(", "));
            report.wrong(place, &join(path, second), message);
            None
        }
    }
}

fn users_access_as(report: &mut Report, node: &Node, path: &str, identity: Identity) -> Option<UserAccessAs> {
    match only_key(report, node, path, &["agent", "user"])? {
        ("user", _) => Some(UserAccessAs::User),
        _ => {
            identity.states_agent(report, node, path, "user");
            Some(UserAccessAs::Agent)
        }
    }
}

fn ci_access_as(report: &mut Report, node: &Node, path: &str, identity: Identity) -> Option<CiAccessAs> {
    match only_key(report, node, path, &["agent", "ci_job", "impersonate"])? {
        ("ci_job", _) => Some(CiAccessAs::CiJob),
        ("impersonate", node) => {
            impersonated(report, node, &join(path, "impersonate")).map(CiAccessAs::Impersonate)
        }
        _ => {
            identity.states_agent(report, node, path, "ci_job");
            Some(CiAccessAs::Agent)
        }
    }
}

fn impersonated(report: &mut Report, node: &Node, path: &str) -> Option<Impersonated> {
    let known = strict_mapping(report, node, path, &["username", "groups", "uid", "extra"]);
    node.as_mapping()?;
    let username = required(report, node, &known, path, "username", "name the user to impersonate");
    let username = username.and_then(|node| anothers(report, node, &join(path, "username")));
    let groups =
        known.get("groups").map(|node| list(report, node, &join(path, "groups"))).unwrap_or_default();
    let groups = groups.iter().enumerate();
    let groups =
        groups.filter_map(|(index, node)| anothers(report, node, &format!("{path}.groups[{index}]")));
    let groups = groups.collect();
    let uid = known.get("uid").and_then(|node| header_text(report, node, &join(path, "uid")));
    let extra = known.get("extra").map(|node| extra(report, node, &join(path, "extra"))).unwrap_or_default();
    Some(Impersonated { username: username?, groups, uid: uid.unwrap_or_default(), extra })
}

/// A text that stays the same in a header.
fn header_text(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    let value = text(report, node, path, false)?;
    let fits = value.trim() == value && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !fits {
        let message = format!("{value:?} must be printable ASCII without spaces at its ends");
        report.wrong(node, path, message);
    }
    fits.then_some(value)
}

/// A name that nobody else has a claim to.
fn anothers(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    let name = header_text(report, node, path)?;
    let is_account =
        name.starts_with("system:serviceaccount:") || name.starts_with("system:serviceaccounts:");
    if RESERVED.iter().any(|reserved| name.starts_with(reserved)) && !is_account {
        let message =
            format!("'{name}' is one of the cluster's own or of Kasbah's; it cannot be impersonated");
        report.wrong(node, path, message);
        return None;
    }
    Some(name)
}

fn extra(report: &mut Report, node: &Node, path: &str) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::new();
    for (index, item) in list(report, node, path).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let known = strict_mapping(report, item, &path, &["key", "val"]);
        if item.as_mapping().is_none() {
            continue;
        }
        let key = required(report, item, &known, &path, "key", "name the field");
        let key = key.and_then(|node| header_text(report, node, &join(&path, "key")));
        let values = required(report, item, &known, &path, "val", "list its values");
        let values = values.map(|node| list(report, node, &join(&path, "val"))).unwrap_or_default();
        let values = values.iter().enumerate();
        let values =
            values.filter_map(|(index, node)| header_text(report, node, &format!("{path}.val[{index}]")));
        let values = values.collect();
        if let Some(key) = key
            && extra.insert(key.to_lowercase(), values).is_some()
        {
            report.wrong(
                item,
                &join(&path, "key"),
                format!("'{key}' is given already; names are not case-sensitive"),
            );
        }
    }
    extra
}
