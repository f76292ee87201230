//! Commits that cannot be applied are refused with file and line, and the last good bundle stays.

use events::configuration::FileFinding;
use events::repository::{BundleRejected, RepositoryEvent};

use crate::harness::{Harness, config_map, source, without};

impl Harness {
    async fn wait_rejected(&self, commit: &str) -> BundleRejected {
        self.wait_for(|event| match event {
            RepositoryEvent::BundleRejected(rejected) if rejected.commit == commit => Some(rejected.clone()),
            _ => None,
        })
        .await
    }
}

fn places(findings: &[FileFinding]) -> Vec<(&str, u32)> {
    findings.iter().map(|finding| (finding.file.as_str(), finding.line)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_commit_is_told_in_full_and_a_good_one_follows() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure_with(agent, vec![source(agent, "shop", project, &["a"])], without("", "Secret")).await;
    let _running = harness.start().await;
    let good = harness.wait_advanced(&first).await;

    tree.write("a/bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x\n").unwrap();
    tree.write("a/double.yaml", format!("{}---\n{}", config_map("two", "2"), config_map("one", "1")))
        .unwrap();
    tree.write("a/secret.yaml", "\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n").unwrap();
    tree.write("a/k/kustomization.yaml", "resources: [x.yaml]\n").unwrap();
    tree.write("a/k/x.yaml", config_map("x", "1")).unwrap();
    let hook = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  annotations:\n    helm.sh/hook: pre-install\n";
    tree.write("a/hook.yaml", hook).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    let rejected = harness.wait_rejected(&second).await;
    let found = places(&rejected.findings);
    assert_eq!(found[0].0, "a/bad.yaml");
    assert_eq!(
        &found[1..],
        [("a/hook.yaml", 6), ("a/k/kustomization.yaml", 0), ("a/one.yaml", 1), ("a/secret.yaml", 2),]
    );
    let duplicate = &rejected.findings[3];
    assert!(duplicate.message.contains("already in a/double.yaml line 8"), "{}", duplicate.message);

    // Only one of them is mended: the rest is told again, for the new commit.
    tree.remove("a/bad.yaml").unwrap();
    let third = tree.commit_and_push("third").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_rejected(&third).await.findings.len(), 4);

    for path in ["a/double.yaml", "a/secret.yaml", "a/k", "a/hook.yaml"] {
        tree.remove(path).unwrap();
    }
    let fourth = tree.commit_and_push("fourth").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&fourth).await.bundle, good.bundle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_files_beside_a_bad_one_are_there_once_it_is_mended() {
    let harness = Harness::new().await;
    let bad = "apiVersion: v1\nkind: ConfigMap\n";
    let (url, tree, first) =
        harness.repository("shop", &[("a/one.yaml", &config_map("one", "1")), ("a/bad.yaml", bad)]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let running = harness.start().await;
    let rejected = harness.wait_rejected(&first).await;
    assert_eq!(places(&rejected.findings), [("a/bad.yaml", 1)]);
    running.stop().await;
    let _running = harness.start().await;
    tree.write("a/bad.yaml", config_map("two", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    let advanced = harness.wait_advanced(&second).await;
    let files: Vec<_> =
        harness.bundle(advanced.bundle).await.into_iter().map(|(entry, _)| entry.file).collect();
    assert_eq!(files, ["a/bad.yaml", "a/one.yaml"]);
}
