//! What is kept of a repository: its objects once, and little for a small push.

use std::path::PathBuf;

use events::configuration::GitReference;
use testkit::WorkTree;

use crate::harness::{Harness, config_map, source};

impl Harness {
    fn packs(&self) -> Vec<PathBuf> {
        let mut packs = Vec::new();
        for repository in std::fs::read_dir(self.folder().join("repositories")).unwrap() {
            for file in std::fs::read_dir(repository.unwrap().path().join("pack")).unwrap() {
                packs.push(file.unwrap().path());
            }
        }
        packs.retain(|path| path.extension().is_some_and(|end| end == "pack"));
        packs
    }
}

fn change(tree: &WorkTree, value: &str) -> String {
    tree.write("a/one.yaml", config_map("one", value)).unwrap();
    tree.commit_and_push(value).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_push_writes_no_pack_and_a_restart_fetches_little() {
    let harness = Harness::new().await;
    let files: Vec<(String, String)> =
        (0..200).map(|index| (format!("a/{index}.yaml"), config_map(&format!("m{index}"), "1"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (url, tree, first) = harness.repository("shop", &files);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let running = harness.start().await;
    harness.wait_advanced(&first).await;
    let packs = harness.packs();
    assert_eq!(packs.len(), 1);
    for value in ["1", "2", "3"] {
        let commit = change(&tree, value);
        harness.push(project).await;
        harness.wait_advanced(&commit).await;
    }
    // A file that changed earlier is still there, though its commit is not.
    tree.write("a/two.yaml", config_map("two", "2")).unwrap();
    let commit = tree.commit_and_push("two").unwrap();
    harness.push(project).await;
    let bundle = harness.wait_advanced(&commit).await.bundle;
    harness
        .configure(
            agent,
            vec![source(agent, "shop", project, &["a"]), source(agent, "again", project, &["a"])],
        )
        .await;
    let said = harness.wait_said(6).await;
    let events::repository::RepositoryEvent::SourceAdvanced(again) = &said[5].1 else { panic!("{said:?}") };
    assert_eq!(again.bundle, bundle);
    assert_eq!(harness.packs(), packs);
    running.stop().await;

    let _running = harness.start().await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let commit = change(&tree, "4");
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&commit).await.objects, 202);
    assert_eq!(harness.packs(), packs, "what was there already was not fetched again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_push_goes_to_disk_with_what_was_in_memory() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    let second = change(&tree, "2");
    harness.push(project).await;
    harness.wait_advanced(&second).await;
    assert_eq!(harness.packs().len(), 1);
    let mut noise = vec![0_u8; 600_000];
    harness.world.random.fill(&mut noise);
    tree.write("noise.bin", &noise).unwrap();
    tree.write("a/two.yaml", config_map("two", "2")).unwrap();
    let third = tree.commit_and_push("third").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&third).await.objects, 2);
    assert_eq!(harness.packs().len(), 2);
    let fourth = change(&tree, "4");
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&fourth).await.objects, 2);
    assert_eq!(harness.packs().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refs_that_move_together_are_all_built() {
    let harness = Harness::new().await;
    let (url, tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    tree.git(&["push", "--quiet", "origin", "HEAD:refs/heads/other"]).unwrap();
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let mut other = source(agent, "other", project, &["a"]);
    other.reference = GitReference::Branch("other".into());
    harness.configure(agent, vec![source(agent, "main", project, &["a"]), other]).await;
    let _running = harness.start().await;
    harness.wait_said(2).await;
    for (round, value) in ["2", "3", "4"].iter().enumerate() {
        tree.git(&["checkout", "--quiet", "-B", "other", "origin/other"]).unwrap();
        tree.write("a/one.yaml", config_map("one", &format!("other {value}"))).unwrap();
        tree.commit(value).unwrap();
        tree.git(&["push", "--quiet", "origin", "HEAD:refs/heads/other"]).unwrap();
        tree.git(&["checkout", "--quiet", "main"]).unwrap();
        change(&tree, value);
        harness.push(project).await;
        harness.wait_said(2 + 2 * (round + 1)).await;
    }
    // Everything was brought on top of the first fetch.
    assert_eq!(harness.packs().len(), 1);
}
