//! What cannot be read rejects the commit: the inputs of reports where it led to objects that were deleted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use events::configuration::FileFinding;
use events::repository::{BundleRejected, RepositoryEvent, SourceAdvanced};
use events::{BlobDigest, SourceId};
use testkit::{WorkTree, eventually};

use crate::harness::{DEADLINE, Harness, config_map, source};

/// The folder of a case, where the cases are.
fn case(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases").join(name);
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return None;
    }
    Some(folder)
}

/// Runs the case's script for a step, which pushes a commit; gives its id.
fn step(case: &std::path::Path, tree: &WorkTree, number: usize) -> String {
    let script = Command::new("bash")
        .arg(case.join("commit.sh"))
        .arg(tree.path())
        .arg(number.to_string())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    let head = Command::new("git").current_dir(tree.path()).args(["rev-parse", "HEAD"]).output().unwrap();
    String::from_utf8(head.stdout).unwrap().trim().to_owned()
}

type Said = BTreeMap<SourceId, Result<SourceAdvanced, BundleRejected>>;

impl Harness {
    /// What was said of each of so many sources at a commit.
    async fn said_at(&self, commit: &str, sources: usize) -> Said {
        eventually(DEADLINE, || async {
            let said = self.said().await.into_iter().filter_map(|(_, event)| match event {
                RepositoryEvent::SourceAdvanced(advanced) if advanced.commit == commit => {
                    Some((advanced.source, Ok(advanced)))
                }
                RepositoryEvent::BundleRejected(rejected) if rejected.commit == commit => {
                    Some((rejected.source, Err(rejected)))
                }
                _ => None,
            });
            let said: Said = said.collect();
            if said.len() == sources { Ok(said) } else { Err(format!("{said:#?}")) }
        })
        .await
    }

    async fn names(&self, bundle: BlobDigest) -> Vec<String> {
        let entries = self.bundle(bundle).await;
        let mut names: Vec<_> = entries.into_iter().map(|(entry, _)| entry.identity.name).collect();
        names.sort();
        names
    }
}

fn files(findings: &[FileFinding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.file.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_becomes_a_link_rejects_the_commit() {
    let Some(case) = case("18-manifest-becomes-symlink") else { return };
    let harness = Harness::new().await;
    let (url, tree, _) = harness.repository("shop", &[("README.md", "case 18")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let first = step(&case, &tree, 1);
    let (main, pair) = (
        source(agent, "case18", project, &["case18/production/**"]),
        source(agent, "case18-pair", project, &["case18/pair/**"]),
    );
    let ids = (main.id, pair.id);
    harness.configure(agent, vec![main, pair]).await;
    let _running = harness.start().await;

    let said = harness.said_at(&first, 2).await;
    let (good, good_pair) = (said[&ids.0].clone().unwrap(), said[&ids.1].clone().unwrap());
    assert_eq!(harness.names(good.bundle).await, ["buoys", "case18", "channel", "lights"]);
    assert_eq!(harness.names(good_pair.bundle).await, ["pair-target"]);
    assert_eq!(files(&good_pair.warnings), ["case18/pair/alias.yaml"]);
    let rejected: [(usize, &[&str]); 3] = [
        (2, &["case18/production/channel.yaml"]),
        (3, &["case18/production/buoys", "case18/production/channel.yaml"]),
        (4, &["case18/production/buoys", "case18/production/channel.yaml"]),
    ];
    for (number, expected) in rejected {
        let commit = step(&case, &tree, number);
        harness.push(project).await;
        let said = harness.said_at(&commit, 2).await;
        assert_eq!(files(&said[&ids.0].clone().unwrap_err().findings), expected, "step {number}");
        let pair = said[&ids.1].clone().unwrap();
        assert_eq!(
            (pair.bundle, pair.warnings.len()),
            (good_pair.bundle, usize::from(number < 4)),
            "step {number}"
        );
    }
    let commit = step(&case, &tree, 5);
    harness.push(project).await;
    assert_eq!(harness.said_at(&commit, 2).await[&ids.0].clone().unwrap().bundle, good.bundle);
    let commit = step(&case, &tree, 6);
    harness.push(project).await;
    let rejected = harness.said_at(&commit, 2).await[&ids.0].clone().unwrap_err();
    let named =
        ["dangling.yaml", "passwd.yaml", "self.yaml", "up"].map(|name| format!("case18/production/{name}"));
    assert_eq!(files(&rejected.findings), named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_utf8_reject_the_commit_each_by_its_own_name() {
    let Some(case) = case("19-latin1-file-names") else { return };
    let harness = Harness::new().await;
    let (url, tree, _) = harness.repository("shop", &[("case19/plain.yaml", &config_map("plain", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "case19", project, &["case19/**"])]).await;
    let running = harness.start().await;
    let (menu, hours) = (r"case19/caf\xE9.yaml", r"case19/caf\xE8.yaml");
    let nested = ["case19/d\\xE8p\u{e9}t/\\xE9tat.yaml", "case19/d\\xE9p\u{e9}t/\\xE9tat.yaml"];
    let steps = [vec![menu], vec![hours, menu], vec![hours, menu], vec![hours, menu, nested[0], nested[1]]];
    let mut running = Some(running);
    for (index, expected) in steps.into_iter().enumerate() {
        if index == 2 {
            // Another replica, which has no cache.
            running.take().unwrap().stop().await;
            running = Some(harness.start_in("anew").await);
        }
        let commit = step(&case, &tree, index + 1);
        harness.push(project).await;
        let said = harness.said_at(&commit, 1).await;
        let rejected = said.into_values().next().unwrap().unwrap_err();
        assert_eq!(files(&rejected.findings), expected, "step {}", index + 1);
    }
}

/// The link leads to what the source reads anyway, so that it would be left out, and with it what its file had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_takes_no_object_of_the_last_good_bundle_away() {
    let harness = Harness::new().await;
    let (one, two) = (config_map("one", "1"), config_map("two", "2"));
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &one), ("a/two.yaml", &two)]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let running = harness.start().await;
    let good = harness.wait_advanced(&first).await;

    tree.remove("a/one.yaml").unwrap();
    std::os::unix::fs::symlink("two.yaml", tree.path().join("a/one.yaml")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    let rejected = harness.said_at(&second, 1).await.into_values().next().unwrap().unwrap_err();
    assert_eq!(files(&rejected.findings), ["a/one.yaml"]);
    assert!(rejected.findings[0].message.contains("ConfigMap one"), "{}", rejected.findings[0].message);
    running.stop().await;

    // Nothing but the log tells another replica what the last good bundle was.
    let _running = harness.start_in("anew").await;
    tree.write("a/three.yaml", config_map("three", "3")).unwrap();
    let third = tree.commit_and_push("third").unwrap();
    harness.push(project).await;
    let rejected = harness.said_at(&third, 1).await.into_values().next().unwrap().unwrap_err();
    assert_eq!(files(&rejected.findings), ["a/one.yaml"]);

    // It moved, or it goes for good: the link itself does no harm.
    tree.write("a/moved.yaml", &one).unwrap();
    let fourth = tree.commit_and_push("fourth").unwrap();
    harness.push(project).await;
    let advanced = harness.said_at(&fourth, 1).await.into_values().next().unwrap().unwrap();
    assert_eq!(harness.names(advanced.bundle).await, ["one", "three", "two"]);
    assert_eq!(files(&advanced.warnings), ["a/one.yaml"]);
    assert_ne!(advanced.bundle, good.bundle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_separator_that_sticks_to_the_line_before_it_rejects_the_commit() {
    let Some(case) = case("01-glued-separator") else { return };
    let harness = Harness::new().await;
    let (url, tree, _) = harness.repository("shop", &[("README.md", "case 01")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    tree.copy_from(&case.join("commits/1"), "case01").unwrap();
    let first = tree.commit_and_push("six objects").unwrap();
    harness.configure(agent, vec![source(agent, "case01", project, &["case01/**"])]).await;
    let _running = harness.start().await;
    let good = harness.said_at(&first, 1).await.into_values().next().unwrap().unwrap();
    let names = ["case01", "packer", "packer", "packer", "packer-settings", "sorter-settings"];
    assert_eq!(harness.names(good.bundle).await, names);

    tree.copy_from(&case.join("commits/2"), "case01").unwrap();
    let second = tree.commit_and_push("one newline too few").unwrap();
    harness.push(project).await;
    let rejected = harness.said_at(&second, 1).await.into_values().next().unwrap().unwrap_err();
    let found: Vec<_> =
        rejected.findings.iter().map(|finding| (finding.file.as_str(), finding.line)).collect();
    assert_eq!(found, [("case01/rbac.yaml", 7), ("case01/settings.yaml", 7)], "{:?}", rejected.findings);
}
