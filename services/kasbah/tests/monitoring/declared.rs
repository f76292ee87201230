//! What is declared, as the reference shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use chassis::metrics::{Declared, Kind};

use crate::root;

const REFERENCE: &str = "docs/reference/metrics.md";

/// Who shows which.
const PROGRAMS: [(&str, &str, &[&[Declared]]); 2] = [
    (
        "The server",
        "`kasbah up` shows these under `/metrics` of its admin listener (`--admin-listen`).",
        kasbah::server::metrics::DECLARED,
    ),
    (
        "The agent",
        "`kasbah-agent` shows these under `/metrics` of its admin listener (`--admin-listen`, in the pods that `kasbah agent register --manifests` makes: port 8442).",
        agent::metrics::DECLARED,
    ),
];

/// Every series that can be asked for, with its labels. A histogram has three, of which one has `le`.
pub fn series() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut all = BTreeMap::new();
    for declared in PROGRAMS.iter().flat_map(|(.., sets)| sets.iter().copied().flatten()) {
        let labels: BTreeSet<_> = declared.labels().iter().map(|label| label.name).collect();
        match declared.kind() {
            Kind::Counter | Kind::Gauge => {
                all.insert(declared.series(), labels);
            }
            Kind::Histogram => {
                for part in ["sum", "count"] {
                    all.insert(format!("{}_{part}", declared.series()), labels.clone());
                }
                let labels = labels.into_iter().chain(["le"]).collect();
                all.insert(format!("{}_bucket", declared.series()), labels);
            }
        }
    }
    all
}

fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         Made of the declarations in the code; a test fails when this page is stale. What to do with them: [monitoring](../monitoring.md).\n\n\
         Each process counts for itself, from its start: sum over instances. A histogram `x` has `x_bucket`, `x_sum` and `x_count`. Values of\n\
         labels are texts of the program, so that each metric has a bounded number of series: no label holds an agent, a repository, an\n\
         organization or an address. The exception are metrics of the few that fail longest: each process shows 20 series of each at most,\n\
         however many agents and sources there are.\n",
    );
    for (program, shown, sets) in PROGRAMS {
        write!(text, "\n## {program}\n\n{shown}\n\n| Metric | Type | Tells | Labels |\n|---|---|---|---|\n")
            .unwrap();
        for declared in sets.iter().copied().flatten() {
            let kind = match declared.kind() {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<_> =
                declared.labels().iter().map(|label| format!("`{}`: {}", label.name, label.values)).collect();
            writeln!(
                text,
                "| `{}` | {kind} | {} | {} |",
                declared.series(),
                declared.help(),
                labels.join("<br>")
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn the_reference_is_what_is_declared() {
    let path = root().join(REFERENCE);
    let now = reference();
    if std::env::var_os("KASBAH_WRITE_REFERENCE").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let advice = "docs/reference/metrics.md is stale: run KASBAH_WRITE_REFERENCE=1 cargo test -p kasbah --test monitoring";
    assert!(written == now, "{advice}");
}

#[test]
fn names_and_texts_are_as_prometheus_users_expect() {
    for (program, _, sets) in PROGRAMS {
        let mut names = BTreeSet::new();
        for declared in sets.iter().copied().flatten() {
            let (name, help) = (declared.name(), declared.help());
            assert!(names.insert(name), "{program} declares {name} twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(name.starts_with("kasbah_") || name.starts_with("process_"), "{name}");
            assert!(!name.ends_with("_total"), "{name}: the ending is added");
            if declared.kind() == Kind::Histogram {
                assert!(name.ends_with("_seconds"), "{name} has no unit");
            }
            for wrong in ["_ms", "_millis", "_minutes", "_kb", "_mb", "_percent"] {
                assert!(!name.ends_with(wrong), "{name}: base units only");
            }
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}: {help}");
            assert!(help.chars().next().unwrap().is_uppercase(), "{name}: {help}");
            for label in declared.labels() {
                assert!(!["le", "job", "instance"].contains(&label.name), "{name}: {}", label.name);
                assert!(!label.values.contains('|'), "{name}: the table breaks");
            }
            assert!(!help.contains('|'), "{name}: the table breaks");
        }
    }
}

/// What the names of a set begin with, for each set in a source.
fn prefixes(source: &str) -> Vec<String> {
    let sets = source.match_indices("metrics! {").map(|(at, _)| &source[at..]);
    let prefixes = sets.filter_map(|set| set.split_once(" in \"")?.1.split('"').next().map(str::to_owned));
    prefixes.collect()
}

#[test]
fn every_declaration_of_the_source_is_in_the_reference() {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]);
    let output = command.output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let all: BTreeSet<String> = PROGRAMS
        .iter()
        .flat_map(|(.., sets)| sets.iter().copied().flatten())
        .map(|declared| declared.name().to_owned())
        .collect();
    let mut found = 0;
    for path in files.lines().filter(|path| path.contains("/src/")) {
        let Ok(source) = fs::read_to_string(root().join(Path::new(path))) else { continue };
        let source = source.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        for prefix in prefixes(&source) {
            found += 1;
            let shown = all.iter().any(|name| name.starts_with(&format!("{prefix}_")));
            assert!(shown, "{path} declares {prefix}_…, which no program lists: add it to its DECLARED");
        }
    }
    assert!(found > 8, "only {found} declarations were found");
    assert_eq!(prefixes("chassis::metrics! {\n  pub struct A in \"kasbah_a\" {"), ["kasbah_a"]);
}
