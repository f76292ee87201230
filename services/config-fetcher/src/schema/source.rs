//! One entry of `sources`.

use std::collections::BTreeMap;

use events::configuration::{Adoption, Conflicts, GitReference, OnRemoval, ServiceAccount, SyncPolicies};
use events::environment::{Tier, check_name};
use objects::yaml::Node;

use super::fields::{
    choice, is_label, label, mapping, namespace, required, seconds, strict_mapping, text, texts, truth,
};
use super::report::Report;

const KEYS: [&str; 12] = [
    "name",
    "project",
    "branch",
    "tag",
    "commit",
    "include",
    "exclude",
    "interval",
    "namespace",
    "service_account",
    "policies",
    "environment",
];
/// Seconds between polls when nothing is said.
const DEFAULT_INTERVAL: u32 = 60;

/// A source, its project still by name.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftSource {
    /// Its name.
    pub name: String,
    /// `group/name` of the project and where that stands (line, column); `None` for the agent's own.
    pub project: Option<(String, u32, u32)>,
    /// Which ref.
    pub reference: GitReference,
    /// Globs of files to take.
    pub include: Vec<String>,
    /// Globs of files to leave out.
    pub exclude: Vec<String>,
    /// Seconds between polls.
    pub interval_seconds: u32,
    /// Namespace for objects that name none.
    pub namespace: String,
    /// The service account to impersonate.
    pub service_account: Option<ServiceAccount>,
    /// What to do in the cases that people want differently.
    pub policies: SyncPolicies,
    /// The environment that its syncs are deployments into.
    pub environment: Option<DraftEnvironment>,
    /// Line of the entry.
    pub line: u32,
}

/// The environment of a source, its project still by name.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftEnvironment {
    /// Its name.
    pub name: String,
    /// Its tier, if one is given.
    pub tier: Option<Tier>,
    /// `group/name` of the project that it belongs to and where that stands (line, column); `None` for the agent's own.
    pub project: Option<(String, u32, u32)>,
}

/// Reads one entry. `None` when it has no name to be known by.
pub(super) fn source(report: &mut Report, node: &Node, path: &str, lockdown: bool) -> Option<DraftSource> {
    let known = mapping(report, node, path, &KEYS);
    node.as_mapping()?;
    let of = |key: &str| format!("{path}.{key}");
    let name = required(report, node, &known, path, "name", "each source needs a unique name");
    let name = name.and_then(|node| name_of(report, node, &of("name")));
    let project = known.get("project").and_then(|node| project_of(report, node, &of("project")));
    let reference = reference_of(report, &known, path);
    let include =
        required(report, node, &known, path, "include", "name the files to take, such as ['staging/**']");
    let include = include.map(|node| globs(report, node, &of("include"), true)).unwrap_or_default();
    let exclude =
        known.get("exclude").map(|node| globs(report, node, &of("exclude"), false)).unwrap_or_default();
    let interval = known.get("interval").and_then(|node| seconds(report, node, &of("interval"), 10, 86_400));
    let namespace = known.get("namespace").and_then(|node| namespace(report, node, &of("namespace")));
    let account =
        known.get("service_account").and_then(|node| account_of(report, node, &of("service_account")));
    if lockdown && !known.contains_key("service_account") {
        report.wrong(
            node,
            &of("service_account"),
            "service_account is missing; with 'lockdown: true' each source needs one",
        );
    }
    let policies =
        known.get("policies").map(|node| policies_of(report, node, &of("policies"))).unwrap_or_default();
    let environment =
        known.get("environment").and_then(|node| environment_of(report, node, &of("environment")));
    Some(DraftSource {
        name: name?,
        project,
        reference,
        include,
        exclude,
        interval_seconds: interval.unwrap_or(DEFAULT_INTERVAL),
        namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        service_account: account,
        policies,
        environment,
        line: node.line,
    })
}

/// A key that is not understood would say less than was meant: a deployment into another environment.
fn environment_of(report: &mut Report, node: &Node, path: &str) -> Option<DraftEnvironment> {
    let known = strict_mapping(report, node, path, &["name", "tier", "project"]);
    node.as_mapping()?;
    let of = |key: &str| format!("{path}.{key}");
    let name =
        required(report, node, &known, path, "name", "each environment has a name, such as production");
    let name = name.and_then(|node| {
        let value = text(report, node, &of("name"), false)?;
        if let Err(message) = check_name(&value) {
            report.wrong(node, &of("name"), message);
        }
        Some(value)
    });
    let tiers = Tier::ALL.iter().map(|tier| (tier.as_str(), *tier)).collect::<Vec<_>>();
    let tier = known.get("tier").and_then(|node| choice(report, node, &of("tier"), &tiers));
    let project = known.get("project").and_then(|node| project_of(report, node, &of("project")));
    Some(DraftEnvironment { name: name?, tier, project })
}

fn name_of(report: &mut Report, node: &Node, path: &str) -> Option<String> {
    label(report, node, path, "name of a source")
}

/// `group/name` of a project, and where that stands.
pub(super) fn project_of(report: &mut Report, node: &Node, path: &str) -> Option<(String, u32, u32)> {
    let value = text(report, node, path, false)?;
    let parts: Vec<&str> = value.split('/').collect();
    let [group, name] = parts.as_slice() else {
        let message = format!("'{value}' is not a project; write group/name (a project, never a URL)");
        report.wrong(node, path, message);
        return None;
    };
    if group.is_empty() || name.is_empty() {
        report.wrong(node, path, format!("'{value}' is not a project; write group/name"));
        return None;
    }
    Some((value, node.line, node.column))
}

fn reference_of(report: &mut Report, known: &BTreeMap<String, &Node>, path: &str) -> GitReference {
    let named: Vec<(&str, &Node)> =
        ["branch", "tag", "commit"].iter().filter_map(|key| Some((*key, *known.get(*key)?))).collect();
    if let [(first, _), (second, node), ..] = named.as_slice() {
        let message = format!("a source has one of branch, tag and commit; {first} is given as well");
        report.wrong(node, &format!("{path}.{second}"), message);
    }
    let Some((key, node)) = named.first() else { return GitReference::Default };
    let field = format!("{path}.{key}");
    let Some(value) = text(report, node, &field, false) else { return GitReference::Default };
    if *key == "commit" {
        if value.len() != 40 || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            report.wrong(node, &field, format!("'{value}' is not a commit; write all 40 hexadecimal digits"));
        }
        return GitReference::Commit(value.to_ascii_lowercase());
    }
    if !is_ref_name(&value) {
        report.wrong(
            node,
            &field,
            format!("'{value}' cannot be the name of a {key}; write it without refs/ in front"),
        );
    }
    if *key == "tag" { GitReference::Tag(value) } else { GitReference::Branch(value) }
}

/// What Git allows in the name of a branch or tag.
fn is_ref_name(name: &str) -> bool {
    let forbidden =
        |letter: char| letter.is_control() || letter.is_whitespace() || "~^:?*[\\".contains(letter);
    let part_fits = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.contains(forbidden)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.starts_with("refs/")
        && !name.ends_with('.')
        && name.len() <= 200
        && name.split('/').all(part_fits)
}

fn globs(report: &mut Report, node: &Node, path: &str, needed: bool) -> Vec<String> {
    let values = texts(report, node, path);
    if needed && node.as_sequence().is_some_and(<[Node]>::is_empty) {
        report.wrong(
            node,
            path,
            "an empty list selects no file; name at least one glob, such as 'staging/**'",
        );
    }
    for (index, (value, place)) in values.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if value.starts_with('/') || value.split('/').any(|part| part == ".." || part == ".") {
            let message = format!(
                "'{value}' is not a glob from the repository's root; write it without '/' in front, '.' and '..'"
            );
            report.wrong(place, &field, message);
        } else if let Err(error) = globset::Glob::new(value) {
            report.wrong(place, &field, format!("'{value}' is not a valid glob: {}", error.kind()));
        }
    }
    values.into_iter().map(|(value, _)| value).collect()
}

fn account_of(report: &mut Report, node: &Node, path: &str) -> Option<ServiceAccount> {
    let value = text(report, node, path, false)?;
    let parts = value.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_account(name));
    if parts.is_none() {
        report.wrong(node, path, format!("'{value}' is not a service account; write namespace/name"));
    }
    parts.map(|(namespace, name)| ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn is_account(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn policies_of(report: &mut Report, node: &Node, path: &str) -> SyncPolicies {
    let keys = [
        "adoption",
        "conflicts",
        "prune",
        "prune_adopted",
        "on_removal",
        "correct_drift",
        "strict_managers",
        "health_timeout",
    ];
    let known = strict_mapping(report, node, path, &keys);
    let of = |key: &str| format!("{path}.{key}");
    let adoptions = [
        ("must_match", Adoption::MustMatch),
        ("adopt_if_no_inventory", Adoption::AdoptIfNoInventory),
        ("adopt_all", Adoption::AdoptAll),
    ];
    let conflicts = [("force", Conflicts::Force), ("refuse", Conflicts::Refuse)];
    let removals = [("keep", OnRemoval::Keep), ("prune", OnRemoval::Prune)];
    let defaults = SyncPolicies::default();
    let mut flag = |key: &str, default: bool| {
        known.get(key).and_then(|node| truth(report, node, &of(key))).unwrap_or(default)
    };
    let prune = flag("prune", defaults.prune);
    let prune_adopted = flag("prune_adopted", defaults.prune_adopted);
    let drift = known.get("correct_drift").and_then(|node| drift_of(report, node, &of("correct_drift")));
    let (correct_drift, strict) = drift.unwrap_or((defaults.correct_drift, defaults.strict));
    let strict_managers = known.get("strict_managers").map(|node| {
        if !strict {
            report.wrong(
                node,
                &of("strict_managers"),
                "strict_managers has a meaning only with 'correct_drift: strict'",
            );
        }
        managers_of(report, node, &of("strict_managers"))
    });
    let adoption = known.get("adoption").and_then(|node| choice(report, node, &of("adoption"), &adoptions));
    let conflicts =
        known.get("conflicts").and_then(|node| choice(report, node, &of("conflicts"), &conflicts));
    let on_removal =
        known.get("on_removal").and_then(|node| choice(report, node, &of("on_removal"), &removals));
    let timeout =
        known.get("health_timeout").and_then(|node| seconds(report, node, &of("health_timeout"), 1, 86_400));
    SyncPolicies {
        adoption: adoption.unwrap_or(defaults.adoption),
        conflicts: conflicts.unwrap_or(defaults.conflicts),
        prune_adopted,
        prune,
        on_removal: on_removal.unwrap_or(defaults.on_removal),
        correct_drift,
        strict,
        strict_managers: strict_managers.unwrap_or_default(),
        health_timeout_seconds: timeout.unwrap_or(defaults.health_timeout_seconds),
    }
}

/// Whether drift is corrected, and whether what others added is removed.
fn drift_of(report: &mut Report, node: &Node, path: &str) -> Option<(bool, bool)> {
    if node.as_str() == Some("strict") {
        return Some((true, true));
    }
    let value = node.as_bool();
    if value.is_none() {
        report.wrong(node, path, format!("{} where true, false or strict is expected", node.kind()));
    }
    value.map(|value| (value, false))
}

/// Names of field managers; Kubernetes has at most 128 characters for each.
fn managers_of(report: &mut Report, node: &Node, path: &str) -> Vec<String> {
    const MANAGERS: usize = 20;
    let values = texts(report, node, path);
    if values.len() > MANAGERS {
        report.wrong(node, path, format!("{} managers, while at most {MANAGERS} may be named", values.len()));
    }
    for (index, (value, place)) in values.iter().enumerate() {
        if value.is_empty() || value.len() > 128 || value == "kasbah" {
            let message = format!("'{value}' cannot be the name of another field manager");
            report.wrong(place, &format!("{path}[{index}]"), message);
        }
    }
    values.into_iter().map(|(value, _)| value).collect()
}
