//! From a push to an event.

use std::collections::BTreeSet;

use events::configuration::GitReference;
use events::repository::RepositoryEvent;
use events::requests::repository::{RepositoryPushed, ShowFetch};
use events::{CorrelationId, SourceId, Timestamp};
use testkit::eventually;

use crate::harness::{DEADLINE, Harness, config_map, source};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_becomes_a_bundle_in_the_chain_of_its_cause() {
    let harness = Harness::new().await;
    let one = config_map("one", "1");
    let (url, tree, first) =
        harness.repository("shop", &[("staging/one.yaml", &one), ("other/two.yaml", "not: ours\n")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["staging/**"])]).await;
    let _running = harness.start().await;
    let advanced = harness.wait_advanced(&first).await;
    assert_eq!(
        (advanced.source, advanced.agent, advanced.objects),
        (SourceId::derive(agent, "shop"), agent, 1)
    );
    let bundle = harness.bundle(advanced.bundle).await;
    assert_eq!(bundle[0].0.file, "staging/one.yaml");
    assert_eq!(bundle[0].0.identity.to_string(), "v1 ConfigMap one");
    assert!(bundle[0].1.contains(r#""data":{"value":"1"}"#), "{}", bundle[0].1);

    tree.write("staging/two.yaml", config_map("two", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    let cause = harness.push(project).await;
    let advanced = harness.wait_advanced(&second).await;
    assert_eq!(advanced.objects, 2);
    let said = harness.said().await;
    assert_eq!(said.last().unwrap().0.correlation_id, cause);
    let notice = harness.notices().into_iter().next_back().unwrap();
    assert_eq!((notice.commit, notice.correlation_id), (second, cause));
    assert_eq!(notice.reference, GitReference::Default);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_changes_no_bundle_is_announced_with_the_same_bundle() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    let before = harness.wait_advanced(&first).await;
    tree.write("README.md", "nothing").unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    let after = harness.wait_advanced(&second).await;
    assert_eq!(before.bundle, after.bundle);
    // The same commit again says nothing.
    let requests = harness.git_requests("POST");
    harness.push(project).await;
    eventually(DEADLINE, || async {
        if harness.git_requests("POST") > requests { Ok(()) } else { Err("no look yet") }
    })
    .await;
    assert_eq!(harness.said().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_watcher_serves_all_sources_of_all_agents_in_one_commit() {
    let harness = Harness::new().await;
    let files = [("a/one.yaml", config_map("one", "1")), ("b/two.yaml", config_map("two", "2"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (url, tree, first) = harness.repository("shop", &files);
    let project = harness.project(&url).await;
    for _ in 0..3 {
        let agent = harness.agent(project).await;
        let sources = vec![source(agent, "a", project, &["a/**"]), source(agent, "b", project, &["b/**"])];
        harness.configure(agent, sources).await;
    }
    let (gets, posts) = (harness.git_requests("GET"), harness.git_requests("POST"));
    let _running = harness.start().await;
    let said = harness.wait_said(6).await;
    let commits: BTreeSet<_> = said.iter().map(|(commit, _)| commit.id).collect();
    assert_eq!(commits.len(), 1, "{said:#?}");
    assert!(
        said.iter()
            .all(|(_, event)| matches!(event, RepositoryEvent::SourceAdvanced(at) if at.commit == first))
    );
    // What the server can do, its refs, and one pack.
    assert_eq!((harness.git_requests("GET") - gets, harness.git_requests("POST") - posts), (1, 2));

    tree.write("a/one.yaml", config_map("one", "changed")).unwrap();
    tree.commit_and_push("second").unwrap();
    let (gets, posts) = (harness.git_requests("GET"), harness.git_requests("POST"));
    harness.push(project).await;
    let said = harness.wait_said(12).await;
    // One question for refs and one pack, on a connection that is open already.
    assert_eq!((harness.git_requests("GET") - gets, harness.git_requests("POST") - posts), (0, 2));
    assert_eq!(said.iter().map(|(commit, _)| commit.id).collect::<BTreeSet<_>>().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_asked_without_a_live_token() {
    let harness = Harness::new().await;
    let (url, _tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let requests = harness.git.requests().len();
    let project = harness.project(&url).await;
    let agent = harness.agent_without_token(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    harness.issue(agent, Some(Timestamp(1))).await;
    let running = harness.start().await;
    harness.push(project).await;
    let token = harness.issue(agent, None).await;
    harness.wait_advanced(&first).await;
    let looked = harness.git.requests().len();
    assert!(looked > requests);
    running.stop().await;

    harness.revoke(agent, token).await;
    let _running = harness.start().await;
    harness.push(project).await;
    // Another repository shows that the poller runs and heard the notices.
    let (other_url, _other, other_first) =
        harness.repository("other", &[("a/one.yaml", &config_map("one", "1"))]);
    let other = harness.project(&other_url).await;
    let agent = harness.agent(other).await;
    harness.configure(agent, vec![source(agent, "shop", other, &["a"])]).await;
    harness.wait_advanced(&other_first).await;
    let shop = harness.git.requests().iter().filter(|request| request.path.contains("/shop.git")).count();
    assert_eq!(shop, looked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watching_ends_with_the_last_token_while_other_things_happen() {
    let harness = Harness::new().await;
    let (url, _tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent_without_token(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    harness.issue(agent, Some(Timestamp(harness.world.clock.now_millis() + 3_000))).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    let show = ShowFetch { source: SourceId::derive(agent, "shop") };
    assert_eq!(harness.ask(&show).await.unwrap().failure, None);
    eventually(DEADLINE, || async {
        harness.push(project).await;
        let failure = harness.ask(&show).await.unwrap().failure;
        if failure.as_deref() == Some("no agent with a valid token reads it") {
            Ok(())
        } else {
            Err(format!("{failure:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_tags_and_commits_are_followed() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    tree.git(&["tag", "-a", "v1", "-m", "one"]).unwrap();
    tree.git(&["push", "--quiet", "origin", "v1"]).unwrap();
    tree.write("a/one.yaml", config_map("one", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    tree.git(&["checkout", "--quiet", "-b", "next"]).unwrap();
    tree.write("a/one.yaml", config_map("one", "3")).unwrap();
    let third = tree.commit_and_push("third").unwrap();
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let on = |name: &str, reference: GitReference| {
        let mut source = source(agent, name, project, &["a"]);
        source.reference = reference;
        source
    };
    let sources = vec![
        on("default", GitReference::Default),
        on("branch", GitReference::Branch("next".into())),
        on("tag", GitReference::Tag("v1".into())),
        on("commit", GitReference::Commit(first.clone())),
    ];
    harness.configure(agent, sources).await;
    let _running = harness.start().await;
    let said = harness.wait_said(4).await;
    let found: BTreeSet<(SourceId, String)> = said
        .iter()
        .filter_map(|(_, event)| match event {
            RepositoryEvent::SourceAdvanced(advanced) => Some((advanced.source, advanced.commit.clone())),
            _ => None,
        })
        .collect();
    let expected = [("default", &second), ("branch", &third), ("tag", &first), ("commit", &first)];
    let expected: BTreeSet<(SourceId, String)> =
        expected.iter().map(|(name, commit)| (SourceId::derive(agent, name), (*commit).clone())).collect();
    assert_eq!(found, expected);

    // The tag moves, by force.
    tree.git(&["tag", "-f", "-a", "v1", "-m", "three"]).unwrap();
    tree.git(&["push", "--quiet", "--force", "origin", "v1"]).unwrap();
    let correlation_id = CorrelationId(harness.world.new_uuid());
    let reference = Some("refs/tags/v1".to_owned());
    harness.publish(&RepositoryPushed { project, reference, correlation_id, traceparent: None }).await;
    let advanced = harness.wait_advanced(&third).await;
    assert_eq!(advanced.source, SourceId::derive(agent, "tag"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_push_goes_back_and_a_restart_says_nothing_new() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let running = harness.start().await;
    let before = harness.wait_advanced(&first).await;
    tree.write("a/two.yaml", config_map("two", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    harness.wait_advanced(&second).await;
    tree.git(&["reset", "--quiet", "--hard", &first]).unwrap();
    tree.git(&["push", "--quiet", "--force", "origin", "main"]).unwrap();
    harness.push(project).await;
    let after = harness.wait_advanced(&first).await;
    assert_eq!(before.bundle, after.bundle);
    running.stop().await;

    let notices = harness.notices().len();
    let _running = harness.start().await;
    eventually(DEADLINE, || async {
        if harness.notices().len() > notices { Ok(()) } else { Err("not looked yet") }
    })
    .await;
    tree.write("a/one.yaml", config_map("one", "3")).unwrap();
    let third = tree.commit_and_push("third").unwrap();
    harness.push(project).await;
    let last = harness.wait_advanced(&third).await;
    assert_eq!(last.objects, 1);
    assert_eq!(harness.said().await.len(), 4);
    // A change that goes back to earlier content is complete as well, though the cache holds no history.
    tree.write("a/one.yaml", config_map("one", "1")).unwrap();
    let fourth = tree.commit_and_push("fourth").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&fourth).await.bundle, before.bundle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_is_built_at_once_and_a_returning_source_is_told_again() {
    let harness = Harness::new().await;
    let files = [("a/one.yaml", config_map("one", "1")), ("b/two.yaml", config_map("two", "2"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (url, _tree, first) = harness.repository("shop", &files);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    assert_eq!(harness.wait_advanced(&first).await.objects, 1);
    harness.configure(agent, vec![source(agent, "shop", project, &["a", "b"])]).await;
    harness.wait_said(2).await;
    assert_eq!(harness.wait_advanced(&first).await.objects, 2);
    harness.configure(agent, vec![]).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a", "b"])]).await;
    harness.wait_said(3).await;
    assert_eq!(harness.wait_advanced(&first).await.objects, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_repository_is_read_in_place() {
    let mut harness = Harness::new().await;
    harness.args.allow_local_paths = true;
    harness.args.allow_private_addresses = false;
    let (_, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let path = harness.git.path("shop");
    let project = harness.project(&format!("file://{}", path.display())).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    tree.write("a/one.yaml", config_map("one", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    let advanced = harness.wait_advanced(&second).await;
    assert!(harness.bundle(advanced.bundle).await[0].1.contains(r#""value":"2""#));
}
