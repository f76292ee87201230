//! The Git server with the real git as its client.

#![allow(clippy::disallowed_methods, reason = "the hook tells the machine's time")]

use std::time::{Duration, SystemTime};

use testkit::{Fault, GitServer, GitServerOptions, WorkTree, eventually};

#[test]
fn what_is_pushed_can_be_cloned() {
    let server = GitServer::start().unwrap();
    let url = server.create("shop").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    tree.write("a/b.yaml", "kind: ConfigMap\n").unwrap();
    let commit = tree.commit_and_push("first").unwrap();

    let other = WorkTree::clone(&url).unwrap();
    assert_eq!(other.git(&["rev-parse", "HEAD"]).unwrap(), commit);
    assert_eq!(std::fs::read_to_string(other.path().join("a/b.yaml")).unwrap(), "kind: ConfigMap\n");
    let requests = server.requests();
    assert!(
        requests.iter().any(|request| request.path.contains("git-receive-pack") && request.status == 200)
    );
    assert!(requests.iter().any(|request| request.protocol.as_deref() == Some("version=2")), "{requests:?}");
}

#[test]
fn a_large_push_goes_through() {
    let server = GitServer::start().unwrap();
    let tree = WorkTree::clone(&server.create("shop").unwrap()).unwrap();
    for file in 0..300 {
        let text: String =
            (0..200).map(|line| format!("{}\n", (file * 7919 + line * 104_729) % 1_000_003)).collect();
        tree.write(&format!("{file}.txt"), text).unwrap();
    }
    let commit = tree.commit_and_push("many").unwrap();
    let other = WorkTree::clone(&server.url("shop")).unwrap();
    assert_eq!(other.git(&["rev-parse", "HEAD"]).unwrap(), commit);
}

#[tokio::test]
async fn a_push_is_noted_with_the_time_of_its_hook() {
    let server = GitServer::start().unwrap();
    let tree = WorkTree::clone(&server.create("shop").unwrap()).unwrap();
    let before = SystemTime::now();
    let commit = tree.commit_and_push("first").unwrap();
    let push = eventually(Duration::from_secs(20), || async {
        server.pushes().first().cloned().ok_or("no push was noted")
    })
    .await;
    assert_eq!((push.reference.as_str(), push.after.as_str()), ("refs/heads/main", commit.as_str()));
    assert!(push.hook_started >= before - Duration::from_millis(1) && push.hook_started <= SystemTime::now());
}

#[test]
fn a_login_is_wanted_and_taken() {
    let server = GitServer::start().unwrap();
    let url = server.create("shop").unwrap();
    WorkTree::clone(&url).unwrap().commit_and_push("first").unwrap();
    server.require_login("shop", "reader", "s3cret").unwrap();
    assert!(WorkTree::clone(&url).is_err());
    let (wrong, right) = (url.replace("//", "//reader:guess@"), url.replace("//", "//reader:s3cret@"));
    assert!(WorkTree::clone(&wrong).is_err());
    WorkTree::clone(&right).unwrap();
    assert!(server.requests().iter().any(|request| request.user.as_deref() == Some("reader")));
}

#[test]
fn faults_come_and_go() {
    let server = GitServer::start().unwrap();
    let url = server.create("shop").unwrap();
    server.set_fault("shop", Some(Fault::Status(503))).unwrap();
    let refused = WorkTree::clone(&url).unwrap_err().to_string();
    assert!(refused.contains("503"), "{refused}");
    server.create("other").unwrap();
    server.set_fault("shop", Some(Fault::Redirect(server.url("other")))).unwrap();
    WorkTree::clone(&url).unwrap();
    server.set_fault("shop", None).unwrap();
    WorkTree::clone(&url).unwrap();
    assert!(WorkTree::clone(&server.url("missing")).is_err());
}

#[test]
fn a_kept_folder_is_served_again_under_the_same_url() {
    let folder = testkit::Folder::temporary().unwrap();
    let port = Some(testkit::free_port().unwrap());
    let options = GitServerOptions { directory: Some(folder.path().join("git")), port };
    let server = GitServer::start_with(options.clone()).unwrap();
    let url = server.create("shop").unwrap();
    let commit = WorkTree::clone(&url).unwrap().commit_and_push("first").unwrap();
    drop(server);
    let server = GitServer::start_with(options).unwrap();
    assert_eq!(server.url("shop"), url);
    assert_eq!(WorkTree::clone(&url).unwrap().git(&["rev-parse", "HEAD"]).unwrap(), commit);
}
