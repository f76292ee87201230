//! Which crates a change since `main` can affect: those that hold a changed file, and all that depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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

/// A crate of the workspace: its folder, relative to the root, those of ours that it depends on, for tests too, and the documents that its
/// code names, as paths from the root; a folder stands for all that is in it.
struct Member {
    folder: String,
    uses: BTreeSet<String>,
    documents: BTreeSet<String>,
}

impl Member {
    fn reads(&self, file: &str) -> bool {
        self.documents.iter().any(|document| Path::new(file).starts_with(document))
    }
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

/// Where the documentation is; no test reads the documents at the root.
const DOCUMENTATION: &str = "docs";

/// The documents, or folders of them, that code names in text of its own, such as `"../../docs/access.md"`.
fn documents(code: &str) -> BTreeSet<String> {
    let of_text = |text: &str| {
        let (before, _) = text.split_once(DOCUMENTATION)?;
        let path = text.strip_prefix(before)?;
        let is_below = Path::new(path).starts_with(DOCUMENTATION) && Path::new(path).components().count() > 1;
        let is_path = is_below && !path.contains(char::is_whitespace);
        (is_path && (before.is_empty() || before.ends_with('/'))).then(|| path.to_owned())
    };
    code.split('"').filter_map(of_text).collect()
}

/// The documents that a crate's code names.
fn documents_of(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            // A crate within a crate's folder is one of its own.
            if !path.join("Cargo.toml").exists() {
                found.extend(documents_of(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.extend(documents(&code));
        }
    }
    Ok(found)
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
        let documents = documents_of(&root.join(&folder))?;
        members.insert(name, Member { folder, uses, documents });
    }
    Ok(members)
}

/// A document affects what reads it, and nothing that stands on that. Any other file of no crate affects all.
fn select(members: &BTreeMap<String, Member>, files: &BTreeSet<String>) -> Crates {
    let mut found = BTreeSet::new();
    let mut readers = BTreeSet::new();
    for file in files {
        let holder = members
            .iter()
            .filter(|(_, member)| Path::new(file).starts_with(&member.folder))
            .max_by_key(|(_, member)| member.folder.len());
        match holder {
            Some((name, _)) => {
                found.insert(name.clone());
            }
            None if Path::new(file).starts_with(DOCUMENTATION) || file.ends_with(".md") => {
                let read = members.iter().filter(|(_, member)| member.reads(file));
                readers.extend(read.map(|(name, _)| name.clone()));
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
            found.extend(readers);
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
            ("events", "events", &[][..], &[][..]),
            ("store", "store", &["events", "testkit"], &[]),
            ("objects", "services/objects", &["events"], &[]),
            ("kasbah", "services/kasbah", &["store", "testkit"], &["docs/one.md"]),
            ("testkit", "services/testkit", &[], &["docs/two.md"]),
            ("console", "services/console", &["store"], &["docs/lists"]),
        ]
        .map(|(name, folder, uses, documents)| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let (uses, documents) = (owned(uses), owned(documents));
            (name.to_owned(), Member { folder: folder.to_owned(), uses, documents })
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
    fn documentation_affects_what_reads_it_and_what_no_crate_holds_affects_all() {
        assert_eq!(affected_by(&["docs/two.md"]), these(&["testkit"]), "and nothing that stands on it");
        assert_eq!(affected_by(&["docs/lists/of.md"]), these(&["console"]));
        assert_eq!(affected_by(&["docs/one.md", "store/src/log.rs"]), these(&["store", "kasbah", "console"]));
        assert_eq!(affected_by(&["README.md", "docs/lists.md"]), these(&[]));
        assert_eq!(affected_by(&["Cargo.lock"]), Crates::All);
        assert_eq!(affected_by(&["deploy/testbed/node-init.sh"]), Crates::All);
    }

    #[test]
    fn documents_are_what_code_names_in_its_texts() {
        let code = r#"const PAGE: &str = include_str!("../../docs/one.md"); // not docs/two.md
            root.join("docs/lists").join(file); format!("see docs/two.md for {all}"); "https://docs.rs/x";"#;
        let found: Vec<_> = documents(code).into_iter().collect();
        assert_eq!(found, ["docs/lists", "docs/one.md"]);
    }

    #[test]
    fn tests_of_this_repository_read_some_of_its_documents() {
        let members = members(&report::root().expect("a checkout")).expect("its crates");
        let readers = |file: &str| {
            let file = format!("{DOCUMENTATION}/{file}");
            let readers = members.iter().filter(|(_, member)| member.reads(&file));
            readers.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(readers("agent-configuration.md"), ["config-fetcher"]);
        assert_eq!(readers("applying.md"), [""; 0]);
        assert!(readers("reference/authorization.md").contains(&"authz"));
        assert!(readers("reference/metrics.md").contains(&"kasbah"));
    }

    #[test]
    fn crates_are_named_for_cargo() {
        assert_eq!(these(&["a", "b"]).selection(), ["--package", "a", "--package", "b"]);
        assert_eq!(Crates::All.selection(), ["--workspace"]);
    }
}
