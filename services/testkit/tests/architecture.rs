//! The laws of the code base that the compiler does not know: who may depend on whom, who may name what, and how
//! files, logs and errors look.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test from end to end"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Everyone may use these.
const FOUNDATION: &[&str] = &["events", "world"];
/// These stand on the foundation alone.
const BASE: &[&str] = &["store", "bus", "chassis", "tunnel", "objects"];
/// Only ever development dependencies of what ships.
const FOR_TESTS: &[&str] = &["testkit", "unified-features"];
const SERVICES: &[&str] = &[
    "authz",
    "config-fetcher",
    "repo-poller",
    "delivery",
    "tunnel-gateway",
    "resource-indexer",
    "fleet",
    "event-relay",
    "console",
];
/// Crates of others that only some of ours may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("redb", &["store", "resource-indexer"]),
    ("async-nats", &["store", "bus", "loadtest"]),
    ("prometheus-client", &["chassis"]),
    ("kube", &["agent", "testkit", "loadtest"]),
    ("kube-client", &["agent", "testkit", "loadtest"]),
    ("kube-runtime", &["agent", "testkit", "loadtest"]),
    ("kube-core", &["agent", "testkit", "loadtest"]),
];
const LONGEST_FILE: usize = 600;
/// Files that are longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().current_dir(root()).exec().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap().to_owned()
}

/// What a crate of ours may use of ours, besides itself.
fn allowed(package: &str) -> Option<BTreeSet<&'static str>> {
    let sets: Vec<&[&str]> = match package {
        "events" | "world" => vec![],
        name if BASE.contains(&name) => vec![FOUNDATION],
        "tunnel-gateway" => vec![FOUNDATION, &["store", "bus", "chassis", "objects", "tunnel"]],
        name if SERVICES.contains(&name) => vec![FOUNDATION, &["store", "bus", "chassis", "objects"]],
        "agent" => vec![FOUNDATION, &["chassis", "tunnel", "objects"]],
        "kasbah" => vec![FOUNDATION, BASE, SERVICES, &["agent"]],
        "unified-features" | "xtask-launcher" => vec![],
        "testkit" => vec![FOUNDATION, &["unified-features"]],
        "simulation" => vec![FOUNDATION, BASE, SERVICES, &["agent"]],
        "loadtest" | "xtask" => vec![FOUNDATION, BASE, &["testkit"]],
        _ => return None,
    };
    Some(sets.into_iter().flatten().copied().collect())
}

/// Every edge between our crates that the law does not know, in words.
fn forbidden_edges<'a>(
    packages: impl Iterator<Item = (&'a str, &'a str, bool)>,
    ours: &BTreeSet<&str>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (from, to, for_tests) in packages {
        if !ours.contains(to) || from == to {
            continue;
        }
        let Some(allowed) = allowed(from) else {
            found.push(format!("{from} is a crate that the law does not know"));
            continue;
        };
        if !(allowed.contains(to) || for_tests && FOR_TESTS.contains(&to)) {
            found.push(format!("{from} must not depend on {to}"));
        }
    }
    found
}

fn edges(package: &Package) -> impl Iterator<Item = (&str, &str, bool)> {
    let from = package.name.as_str();
    package
        .dependencies
        .iter()
        .map(move |to| (from, to.name.as_str(), to.kind == DependencyKind::Development))
}

#[test]
fn crates_depend_only_on_what_the_law_allows() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    for package in &ours {
        assert!(allowed(package).is_some(), "{package} is a crate that the law does not know");
    }
    let found = forbidden_edges(metadata.packages.iter().flat_map(edges), &ours);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_law_can_be_broken() {
    let ours = BTreeSet::from(["events", "store", "authz", "delivery", "testkit", "agent", "bus"]);
    for edge in [("authz", "delivery", false), ("store", "bus", false), ("agent", "store", false)] {
        assert_eq!(forbidden_edges([edge].into_iter(), &ours).len(), 1, "{edge:?}");
    }
    assert_eq!(forbidden_edges([("authz", "testkit", false)].into_iter(), &ours).len(), 1);
    assert!(
        forbidden_edges([("authz", "testkit", true), ("authz", "store", false)].into_iter(), &ours)
            .is_empty()
    );
}

#[test]
fn only_their_owners_name_the_large_libraries() {
    for package in &metadata().packages {
        for dependency in &package.dependencies {
            let reserved = RESERVED.iter().find(|(name, _)| *name == dependency.name);
            if let Some((name, owners)) = reserved {
                assert!(owners.contains(&package.name.as_str()), "{} must not name {name}", package.name);
            }
        }
    }
}

/// The features with which each package of others is compiled when these crates are selected.
fn features_of_others(selection: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut command = Command::new("cargo");
    command.current_dir(root()).args(["tree", "--locked", "--quiet", "--edges", "normal,build,dev"]);
    command.args(["--prefix", "none", "--format", "{p}|{f}"]).args(selection);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let text = String::from_utf8(output.stdout).unwrap();
    // Empty lines stand between the trees.
    for (package, features) in text.lines().filter_map(|line| line.split_once('|')) {
        if !package.contains(" (/") {
            let name = package.replace(" (proc-macro)", "");
            found.entry(name).or_default().insert(features.trim_end_matches(" (*)").to_owned());
        }
    }
    found
}

/// Otherwise a build of one crate, of the tasks, or of the demo compiles hundreds of packages once more.
#[test]
fn one_set_of_features_serves_every_build() {
    let whole = features_of_others(&["--workspace"]);
    for package in &metadata().packages {
        let name = package.name.as_str();
        for (other, features) in features_of_others(&["--package", name]) {
            let missing = features.difference(whole.get(&other).unwrap()).next();
            let wanted = whole.get(&other).unwrap();
            assert_eq!(
                missing, None,
                "with {name} alone, {other} has other features than with everything, {wanted:?}: name them in deploy/unified-features"
            );
        }
    }
}

#[test]
fn every_crate_inherits_the_lints() {
    for package in &metadata().packages {
        let text = fs::read_to_string(&package.manifest_path).unwrap();
        let lints = text.split("[lints]").nth(1).unwrap_or_default();
        let inherits = lints.lines().any(|line| line.replace(' ', "") == "workspace=true");
        assert!(inherits, "{} does not inherit the workspace's lints", package.manifest_path);
    }
}

/// Every file under version control, or about to be.
fn files(extension: &str) -> Vec<(String, String)> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let output = command.output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let mut files: Vec<(String, String)> = list
        .split('\0')
        .filter(|path| path.ends_with(extension))
        .filter_map(|path| Some((path.to_owned(), fs::read_to_string(root().join(path)).ok()?)))
        .collect();
    files.sort();
    files.dedup();
    assert!(!files.is_empty(), "no {extension} files in this checkout");
    files
}

#[test]
fn files_have_a_size_that_can_be_read() {
    let reasons: BTreeMap<&str, &str> = LONG_FILES.iter().copied().collect();
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        let lines = text.lines().count();
        if lines > LONGEST_FILE && !reasons.contains_key(path.as_str()) {
            found.push(format!("{path} has {lines} lines: cut it, or list it with a reason"));
        }
        if path.ends_with("/mod.rs") {
            found.push(format!("{path}: a module lies in `name.rs` beside the folder `name`"));
        }
    }
    for path in reasons.keys() {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        if text.lines().count() <= LONGEST_FILE {
            found.push(format!("{path} needs no reason any more"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_the_simulation_opens_its_seams() {
    for package in &metadata().packages {
        let opens = package.dependencies.iter().any(|to| to.features.iter().any(|name| name == "simulation"));
        assert!(!opens || package.name.as_str() == "simulation", "{} is not the simulation", package.name);
        let used = package.dependencies.iter().any(|to| to.name == "simulation");
        assert!(!used, "{} must not hold the simulation", package.name);
    }
}

/// What the simulation runs: a branch that is taken by chance would make another run of the same seed.
const SIMULATED: &[&str] = &[
    "store",
    "services/bus",
    "services/chassis",
    "services/tunnel",
    "services/authz",
    "services/config-fetcher",
    "services/repo-poller",
    "services/delivery",
    "services/resource-indexer",
    "services/tunnel-gateway",
    "services/agent",
    "services/simulation",
];

#[test]
fn what_is_simulated_chooses_nothing_by_chance() {
    let choice = concat!("sele", "ct! {");
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        if !SIMULATED.iter().any(|folder| path.starts_with(&format!("{folder}/src/"))) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            if pair[0].contains(choice) && pair[1].trim() != "biased;" {
                found.push(format!(
                    "{path}:{}: begin with `biased;` and put first what must not wait",
                    number + 1
                ));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// A service that appends a commit by itself has retries, idempotency and grounds of its own.
#[test]
fn only_the_store_makes_commits() {
    let of_services: Vec<String> = SERVICES.iter().map(|name| format!("services/{name}/src/")).collect();
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        let ships = of_services.iter().any(|folder| path.starts_with(folder)) && !path.contains("/tests");
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        if ships && shipped.contains("NewCommit") {
            found.push(format!("{path}: decide with `Following::decide` or `Following::record`"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_is_left_open_or_switched_off() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[ign", "ore"), concat!("XX", "X:")];
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        for (number, line) in text.lines().enumerate() {
            found.extend(
                marks
                    .iter()
                    .filter(|mark| line.contains(*mark))
                    .map(|mark| format!("{path}:{}: {mark}", number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn messages_are_fixed_short_and_lower_case() {
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        for (line, message) in log_messages(&text) {
            if message.contains('{') {
                found.push(format!("{path}:{line}: values belong in fields: {message:?}"));
            }
            found.extend(complaint(&message).map(|what| format!("{path}:{line}: {what}: {message:?}")));
        }
        for (line, message) in error_messages(&text) {
            found.extend(complaint(&message).map(|what| format!("{path}:{line}: {what}: {message:?}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_pattern_of_messages_finds_what_it_should() {
    let source = "fn f() { tracing::warn!(agent = %id, \"Lost the tunnel.\"); info!(error = \"Not me\", \"started\"); }\n";
    let messages: Vec<String> = log_messages(source).into_iter().map(|(_, message)| message).collect();
    assert_eq!(messages, ["Lost the tunnel.", "started"]);
    assert!(complaint("Lost the tunnel").is_some() && complaint("lost the tunnel.").is_some());
    assert!(
        complaint("started").is_none()
            && complaint("TLS refused").is_none()
            && complaint("Git refused").is_none()
    );
    assert_eq!(error_messages("#[error(\"Bad thing\")]"), [(1, "Bad thing".to_owned())]);
}

/// Names that are written with a capital wherever they stand.
const NAMES: &[&str] =
    &["Git", "Kubernetes", "Kasbah", "Lease", "JetStream", "Secret", "ConfigMap", "Prometheus"];

fn complaint(message: &str) -> Option<&'static str> {
    if message.ends_with('.') && !message.ends_with("...") {
        return Some("no final dot");
    }
    let word = message.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    let mut letters = word.chars();
    let capital =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_none_or(char::is_lowercase);
    (capital && !NAMES.contains(&word)).then_some("lower case")
}

fn log_messages(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for level in ["error", "warn", "info", "debug", "trace"] {
        let call = format!("{level}!(");
        for (at, _) in source.match_indices(&call) {
            let before = source[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
                continue;
            }
            let line = source[..at].lines().count().max(1);
            let arguments = arguments(&source[at + call.len()..]);
            found.extend(
                arguments.iter().filter_map(|argument| literal(argument)).map(|message| (line, message)),
            );
        }
    }
    found.sort();
    found
}

fn error_messages(source: &str) -> Vec<(usize, String)> {
    let matches = source.match_indices("#[error(\"");
    let message = |at: usize| literal(&source[at + "#[error(".len()..]);
    matches.filter_map(|(at, _)| Some((source[..at].lines().count().max(1), message(at)?))).collect()
}

/// The arguments of a macro call, from behind its opening parenthesis.
fn arguments(source: &str) -> Vec<String> {
    let (mut all, mut current, mut depth, mut text, mut escaped) =
        (Vec::new(), String::new(), 0, false, false);
    for letter in source.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if text => escaped = true,
            '"' => text = !text,
            _ if text => {}
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(std::mem::take(&mut current));
                continue;
            }
            _ => {}
        }
        current.push(letter);
    }
    all.push(current);
    all
}

/// The text of an argument that is a string literal.
fn literal(argument: &str) -> Option<String> {
    let inner = argument.trim().strip_prefix('"')?;
    inner.split('"').next().map(str::to_owned)
}
