//! What cannot be read is said once, and nothing that was right before is lost.

use events::directory::ProjectSettings;
use events::repository::{FetchFailed, FetchFailure, RepositoryEvent};
use events::{CredentialId, ProjectId};
use store::KeyName;
use testkit::{Fault, eventually};
use zeroize::Zeroizing;

use crate::harness::{DEADLINE, Harness, config_map, source};

impl Harness {
    async fn wait_failed(&self, failure: FetchFailure) -> FetchFailed {
        self.wait_for(|event| match event {
            RepositoryEvent::FetchFailed(failed) if failed.failure == failure => Some(failed.clone()),
            _ => None,
        })
        .await
    }

    /// One look more than before, of which nothing is said.
    async fn look_without_a_word(&self, project: ProjectId, posts: impl Fn() -> usize) {
        let (said, looked) = (self.said().await.len(), posts());
        self.push(project).await;
        eventually(DEADLINE, || async { if posts() > looked { Ok(()) } else { Err("no look yet") } }).await;
        assert_eq!(self.said().await.len(), said);
    }

    async fn shop(&self, url: &str) -> ProjectId {
        let project = self.project(url).await;
        let agent = self.agent(project).await;
        self.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
        project
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_refused_unless_allowed() {
    let mut harness = Harness::new().await;
    harness.args.allow_private_addresses = false;
    let (url, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let requests = harness.git.requests().len();
    harness.shop(&url).await;
    let by_name = url.replace("127.0.0.1", "localhost");
    harness.shop(&by_name).await;
    let _running = harness.start().await;
    let said = harness.wait_said(2).await;
    for (_, event) in said {
        let RepositoryEvent::FetchFailed(failed) = event else { panic!("{event:?}") };
        assert_eq!(failed.failure, FetchFailure::Refused);
        assert!(failed.message.contains("--allow-private-addresses"), "{}", failed.message);
        assert_eq!(failed.sources.len(), 1);
    }
    assert_eq!(harness.git.requests().len(), requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_is_refused_unless_allowed_wherever_the_server_is() {
    let mut harness = Harness::new().await;
    harness.args.allow_plain_http = false;
    let (url, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let requests = harness.git.requests().len();
    harness.shop(&url).await;
    let _running = harness.start().await;
    let failed = harness.wait_failed(FetchFailure::Refused).await;
    assert!(failed.message.contains("--allow-plain-http"), "{}", failed.message);
    assert_eq!(harness.git.requests().len(), requests, "nothing is sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_paths_are_refused_unless_allowed() {
    let harness = Harness::new().await;
    let (_, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    harness.shop(&harness.git.path("shop").display().to_string()).await;
    let _running = harness.start().await;
    let failed = harness.wait_failed(FetchFailure::Refused).await;
    assert!(failed.message.contains("--allow-local-paths"), "{}", failed.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_authz_refuses_is_not_touched_until_it_changes() {
    let harness = Harness::new().await;
    let (url, _tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let requests = harness.git.requests().len();
    harness.answers.lock().refused = Some("project shop is not granted; ask an owner".into());
    let project = harness.shop(&url).await;
    let _running = harness.start().await;
    let failed = harness.wait_failed(FetchFailure::Refused).await;
    assert_eq!(failed.message, "project shop is not granted; ask an owner");
    harness.look_without_a_word(project, || harness.answers.lock().asked).await;
    assert_eq!(harness.git.requests().len(), requests);
    harness.answers.lock().refused = None;
    harness.push(project).await;
    harness.wait_advanced(&first).await;
    let said = harness.said().await;
    assert!(
        matches!(&said[1].1, RepositoryEvent::FetchRecovered(recovered) if recovered.sources == failed.sources)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_is_said_once_and_then_its_recovery() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.shop(&url).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    harness.git.set_fault("shop", Some(Fault::Status(503))).unwrap();
    harness.push(project).await;
    let failed = harness.wait_failed(FetchFailure::Unreachable).await;
    assert!(failed.message.contains("503"), "{}", failed.message);
    harness.look_without_a_word(project, || harness.git_requests("POST")).await;
    harness.git.set_fault("shop", Some(Fault::Status(404))).unwrap();
    harness.push(project).await;
    harness.wait_failed(FetchFailure::NotFound).await;
    harness.git.set_fault("shop", None).unwrap();
    tree.write("a/two.yaml", config_map("two", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&second).await.objects, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_to_another_host_is_refused() {
    let harness = Harness::new().await;
    let other = testkit::GitServer::start().unwrap();
    let (url, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    harness.git.set_fault("shop", Some(Fault::Redirect(format!("http://{}", other.address())))).unwrap();
    harness.shop(&url).await;
    let _running = harness.start().await;
    let failed = harness.wait_failed(FetchFailure::Refused).await;
    assert!(failed.message.contains("redirects to"), "{}", failed.message);
    assert_eq!(other.requests(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_branch_empties_nothing() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.shop(&url).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    tree.git(&["push", "--quiet", "origin", "HEAD:refs/heads/kept"]).unwrap();
    let bare = harness.git.path("shop");
    std::fs::remove_file(bare.join("refs/heads/main")).unwrap();
    harness.push(project).await;
    let failed = harness.wait_failed(FetchFailure::NotFound).await;
    assert!(failed.message.contains("refs/heads/main"), "{}", failed.message);
    tree.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"]).unwrap();
    harness.push(project).await;
    harness.wait_for(|event| matches!(event, RepositoryEvent::FetchRecovered(_)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_opens_its_own_host_only() {
    let harness = Harness::new().await;
    let (url, _tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    harness.git.require_login("shop", "git", "s3cret").unwrap();
    let project = harness.shop(&url).await;
    let _running = harness.start().await;
    let failed = harness.wait_failed(FetchFailure::Unauthorized).await;
    assert!(failed.message.contains("requires a credential"), "{}", failed.message);

    let credential = CredentialId(harness.world.new_uuid());
    let secret = Zeroizing::new(b"git:s3cret".to_vec());
    harness.store.keys.put_new(KeyName::Credential(credential), secret).await.unwrap();
    let settings = ProjectSettings {
        repository: url.clone(),
        default_branch: "main".into(),
        credential: Some(credential),
        external_id: None,
    };
    harness.answers.lock().credential_host = Some("git.example.com".into());
    harness.change_project(project, settings.clone()).await;
    let failed = harness.wait_failed(FetchFailure::Refused).await;
    assert!(failed.message.contains("git.example.com"), "{}", failed.message);

    harness.answers.lock().credential_host = Some(harness.git.address().to_string());
    harness.push(project).await;
    harness.wait_advanced(&first).await;
    let users: Vec<_> = harness.git.requests().into_iter().filter_map(|request| request.user).collect();
    assert!(users.iter().any(|user| user == "git"));

    let wrong = CredentialId(harness.world.new_uuid());
    let secret = Zeroizing::new(b"git:wrong".to_vec());
    harness.store.keys.put_new(KeyName::Credential(wrong), secret).await.unwrap();
    harness.change_project(project, ProjectSettings { credential: Some(wrong), ..settings }).await;
    let failed = harness.wait_failed(FetchFailure::Unauthorized).await;
    assert!(
        failed.message.contains("refuses the credential") && !failed.message.contains("wrong"),
        "{}",
        failed.message
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_lost_cache_is_fetched_again() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.shop(&url).await;
    let running = harness.start().await;
    harness.wait_advanced(&first).await;
    running.stop().await;
    let mut damaged = 0;
    for repository in std::fs::read_dir(harness.folder().join("repositories")).unwrap() {
        for file in std::fs::read_dir(repository.unwrap().path().join("pack")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|end| end == "pack") {
                let length = std::fs::metadata(&path).unwrap().len();
                std::fs::write(&path, vec![0_u8; usize::try_from(length).unwrap()]).unwrap();
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 1);
    let _running = harness.start().await;
    tree.write("a/two.yaml", config_map("two", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    assert_eq!(harness.wait_advanced(&second).await.objects, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_silent_server_holds_up_no_other() {
    let harness = Harness::new().await;
    let (silent, _tree, _) = harness.repository("silent", &[("a/one.yaml", &config_map("one", "1"))]);
    harness.git.set_fault("silent", Some(Fault::Hang)).unwrap();
    harness.shop(&silent).await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.shop(&url).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    tree.write("a/one.yaml", config_map("one", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    harness.wait_advanced(&second).await;
}
