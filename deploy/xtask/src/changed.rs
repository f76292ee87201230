//! Which crates a change since `main` can affect: those that hold a changed file, and all that depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::report;

/// The crates that a run is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Crates {
    /// The whole workspace.
    All,
    /// These and no others.
    These(BTreeSet<String>),
}

impl Crates {
    /// Arguments that select them for cargo.
    pub fn selection(&self) -> Vec<String> {
        match self {
            Self::All => vec!["--workspace".to_owned()],
            Self::These(names) => {
                names.iter().flat_map(|name| ["--package".to_owned(), name.clone()]).collect()
            }
        }
    }
}

/// A crate of the workspace: its folder, relative to the root, and those of ours that it depends on, for tests too.
struct Member {
    folder: String,
    uses: BTreeSet<String>,
}

/// Those that commits since the fork from `main` and the work tree can affect.
pub fn affected(root: &Path) -> Result<Crates> {
    let git = |arguments: &[&str]| report::output(Command::new("git").current_dir(root).args(arguments));
    let fork = git(&["merge-base", "HEAD", "main"]).context("there is no branch `main` to compare with")?;
    let mut files: BTreeSet<String> = BTreeSet::new();
    for arguments in
        [&["diff", "--name-only", fork.trim()][..], &["ls-files", "--others", "--exclude-standard"][..]]
    {
        files.extend(git(arguments)?.lines().map(str::to_owned));
    }
    Ok(select(&members(root)?, &files))
}

fn members(root: &Path) -> Result<BTreeMap<String, Member>> {
    let mut command = testkit::cargo();
    command.current_dir(root).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&report::output(&mut command)?)?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo names no packages")?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut members = BTreeMap::new();
    for package in packages {
        let name = text(package, "name").context("a package has no name")?;
        let manifest = text(package, "manifest_path").context("a package has no manifest")?;
        let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.context("a package lies outside of the checkout")?.to_string_lossy().into_owned();
        let uses = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        let uses = uses.filter(|to| to.get("path").is_some_and(Value::is_string));
        let uses = uses.filter_map(|to| text(to, "name")).collect();
        members.insert(name, Member { folder, uses });
    }
    Ok(members)
}

/// A file of no crate, but for documentation and the like that no test reads, affects all.
fn select(members: &BTreeMap<String, Member>, files: &BTreeSet<String>) -> Crates {
    let mut found = BTreeSet::new();
    for file in files {
        let holder = members
            .iter()
            .filter(|(_, member)| Path::new(file).starts_with(&member.folder))
            .max_by_key(|(_, member)| member.folder.len());
        match holder {
            Some((name, _)) => {
                found.insert(name.clone());
            }
            // Tests compare these with what the programs say.
            None if file.starts_with("docs/") || file.ends_with(".md") => {
                found.extend(["testkit", "console", "kasbah"].map(str::to_owned));
            }
            None => return Crates::All,
        }
    }
    loop {
        let more: Vec<String> = members
            .iter()
            .filter(|(name, member)| !found.contains(*name) && !member.uses.is_disjoint(&found))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return Crates::These(found);
        }
        found.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> BTreeMap<String, Member> {
        [
            ("events", "events", &[][..]),
            ("store", "store", &["events", "testkit"]),
            ("objects", "services/objects", &["events"]),
            ("kasbah", "services/kasbah", &["store", "testkit"]),
            ("testkit", "services/testkit", &[]),
            ("console", "services/console", &["store"]),
        ]
        .map(|(name, folder, uses)| {
            let uses = uses.iter().map(|&name| name.to_owned()).collect();
            (name.to_owned(), Member { folder: folder.to_owned(), uses })
        })
        .into()
    }

    fn affected_by(files: &[&str]) -> Crates {
        select(&workspace(), &files.iter().map(|&file| file.to_owned()).collect())
    }

    fn these(names: &[&str]) -> Crates {
        Crates::These(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn a_change_affects_its_crate_and_all_that_stands_on_it() {
        assert_eq!(affected_by(&[]), these(&[]));
        assert_eq!(affected_by(&["services/objects/src/lib.rs"]), these(&["objects"]));
        assert_eq!(affected_by(&["store/src/log.rs"]), these(&["store", "kasbah", "console"]));
        assert_eq!(
            affected_by(&["services/testkit/src/lib.rs"]),
            these(&["testkit", "store", "kasbah", "console"])
        );
    }

    #[test]
    fn documentation_affects_what_compares_it_and_what_no_crate_holds_affects_all() {
        assert_eq!(affected_by(&["docs/log.md"]), these(&["testkit", "store", "kasbah", "console"]));
        assert_eq!(affected_by(&["Cargo.lock"]), Crates::All);
        assert_eq!(affected_by(&["deploy/testbed/node-init.sh"]), Crates::All);
    }

    #[test]
    fn crates_are_named_for_cargo() {
        assert_eq!(these(&["a", "b"]).selection(), ["--package", "a", "--package", "b"]);
        assert_eq!(Crates::All.selection(), ["--workspace"]);
    }
}
