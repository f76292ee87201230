//! Requests of other services.

use events::configuration::{GitReference, SourceConfiguration};
use events::request::RequestContext;
use events::requests::authz::{Decide, Decision};
use events::requests::repository::{BundleAt, ReadFile, ShowFetch};
use events::{Actor, CorrelationId, RefusalKind, Request, SourceId, UserId};
use futures::FutureExt;

use crate::harness::{Harness, config_map, source};

impl Harness {
    async fn ask_as<R: Request>(&self, actor: Actor, request: &R) -> Result<R::Reply, events::Refusal> {
        let context: RequestContext = bus::context_for(&self.world, actor, self.organization);
        bus::ask(&*self.bus, &context, request).await
    }

    pub async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, events::Refusal> {
        self.ask_as(Actor::service("test"), request).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_at_the_newest_commit() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", "one"), ("link", "x")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let _running = harness.start().await;
    let read = |path: &str, limit: u32| ReadFile {
        agent,
        project,
        reference: GitReference::Default,
        path: path.to_owned(),
        limit,
        fresh: false,
        watch_seconds: None,
    };
    let file = harness.ask(&read("a/one.yaml", 100)).await.unwrap();
    assert_eq!((file.commit.as_str(), file.content.as_deref()), (first.as_str(), Some(b"one".as_slice())));
    let file = harness.ask(&read("a/one.yaml", 2)).await.unwrap();
    assert_eq!((file.content, file.too_large), (None, Some(3)));
    for missing in ["a/two.yaml", "a", "a/one.yaml/x", ""] {
        assert_eq!(harness.ask(&read(missing, 100)).await.unwrap().content, None, "{missing:?}");
    }
    tree.write("a/one.yaml", "two").unwrap();
    let second = tree.commit_and_push("second").unwrap();
    harness.push(project).await;
    testkit::eventually(crate::harness::DEADLINE, || async {
        if harness.notices().iter().any(|notice| notice.commit == second) { Ok(()) } else { Err("no notice") }
    })
    .await;
    assert_eq!(
        harness.ask(&read("a/one.yaml", 100)).await.unwrap().content.as_deref(),
        Some(b"two".as_slice())
    );

    harness.answers.lock().refused = Some("not granted".into());
    let refusal = harness.ask(&read("a/one.yaml", 100)).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.message.as_str()), (RefusalKind::Denied, "not granted"));
    let user = Actor::User(UserId(harness.world.new_uuid()));
    assert_eq!(harness.ask_as(user, &read("a/one.yaml", 100)).await.unwrap_err().kind, RefusalKind::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_of_configuration_files_is_told_apart_from_all_others() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", "one")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let _running = harness.start().await;
    let told = async |commit: &str| {
        let notice = testkit::eventually(crate::harness::DEADLINE, || async {
            harness.notices().into_iter().find(|notice| notice.commit == commit).ok_or("no notice")
        });
        notice.await.configuration.expect("it can be read")
    };
    let path = ".kasbah/agents/one/config.yaml".to_owned();
    let read = ReadFile {
        agent,
        project,
        reference: GitReference::Default,
        path,
        limit: 100,
        fresh: false,
        watch_seconds: None,
    };
    let none = told(&first).await;
    assert_eq!((none.as_str(), harness.ask(&read).await.unwrap().folder.as_str()), ("", ""));
    let mut folders = Vec::new();
    let files = [(".kasbah/agents/one/config.yaml", "1"), ("a/one.yaml", "two"), (".kasbah/other", "2")];
    for (file, text) in files {
        tree.write(file, text).unwrap();
        let commit = tree.commit_and_push(file).unwrap();
        harness.push(project).await;
        folders.push(told(&commit).await);
        let found = harness.ask(&read).await.unwrap();
        assert_eq!((Some(&found.folder), found.content.as_deref()), (folders.last(), Some(b"1".as_slice())));
    }
    assert!(!folders[0].is_empty() && folders[0] == folders[1] && folders[1] != folders[2], "{folders:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_has_to_be_fresh_is_read_from_no_older_look() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", "one")]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    let _running = harness.start().await;
    let read = |fresh: bool| {
        let path = "a/one.yaml".to_owned();
        ReadFile {
            agent,
            project,
            reference: GitReference::Default,
            path,
            limit: 100,
            fresh,
            watch_seconds: None,
        }
    };
    assert_eq!(harness.ask(&read(true)).await.unwrap().commit, first);
    tree.write("a/one.yaml", "two").unwrap();
    let second = tree.commit_and_push("second").unwrap();
    // Nobody tells of the push. What was looked at a moment ago may still be answered.
    testkit::eventually(crate::harness::DEADLINE, || async {
        let read = harness.ask(&read(true)).await.unwrap();
        if read.commit == second { Ok(()) } else { Err("not looked at again") }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_of_which_only_files_are_read_is_watched_as_long_as_they_are() {
    let harness = Harness::new().await;
    let (url, _, _) = harness.repository("deploy", &[("a/one.yaml", &config_map("one", "1"))]);
    let agent = harness.agent(harness.project(&url).await).await;
    let (url, tree, first) = harness.repository("charts", &[("kasbah.yaml", "one")]);
    let charts = harness.project(&url).await;
    let (url, _, _) = harness.repository("branches", &[("a/one.yaml", &config_map("two", "2"))]);
    let branches = harness.project(&url).await;
    let of_branch = SourceConfiguration {
        reference: GitReference::Branch("main".into()),
        ..source(agent, "shop", branches, &["a"])
    };
    harness.configure(agent, vec![of_branch]).await;
    let _running = harness.start().await;
    let read = |project, path: &str, watch_seconds| {
        let (reference, path) = (GitReference::Default, path.to_owned());
        ReadFile { agent, project, reference, path, limit: 1000, fresh: true, watch_seconds }
    };
    let refusal = harness.ask(&read(charts, "kasbah.yaml", None)).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal:?}");
    let becomes = async |project, path: &str, text: &str| {
        testkit::eventually(crate::harness::DEADLINE, || async {
            match harness.ask(&read(project, path, Some(600))).await {
                Ok(file) if file.content.as_deref() == Some(text.as_bytes()) => Ok(file.commit),
                Err(refusal) if refusal.kind != RefusalKind::Unavailable => panic!("{refusal:?}"),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    };
    assert_eq!(becomes(charts, "kasbah.yaml", "one").await, first);
    // A watcher that knew the project for another ref.
    becomes(branches, "a/one.yaml", &config_map("two", "2")).await;
    tree.write("kasbah.yaml", "two").unwrap();
    let second = tree.commit_and_push("second").unwrap();
    let cause = harness.push(charts).await;
    testkit::eventually(crate::harness::DEADLINE, || async {
        let found = harness.notices().into_iter().find(|notice| notice.commit == second);
        found.filter(|notice| notice.correlation_id == cause).ok_or("no notice in the push's chain")
    })
    .await;
    assert_eq!(becomes(charts, "kasbah.yaml", "two").await, second);

    // Nobody reads it any more: the watch ends with the time that was asked for.
    let (url, _, _) = harness.repository("once", &[("kasbah.yaml", "once")]);
    let once = harness.project(&url).await;
    testkit::eventually(crate::harness::DEADLINE, || async {
        harness.ask(&read(once, "kasbah.yaml", Some(2))).await.map(|_| ())
    })
    .await;
    testkit::eventually(crate::harness::DEADLINE, || async {
        match harness.ask(&read(once, "kasbah.yaml", None)).await {
            Err(refusal) if refusal.kind == RefusalKind::Unavailable => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_an_agent_may_read_files_no_more_is_told_to_it_alone() {
    let harness = Harness::new().await;
    let (url, _, _) = harness.repository("deploy", &[("a/one.yaml", "one")]);
    let deploy = harness.project(&url).await;
    let (one, other) = (harness.agent(deploy).await, harness.agent(deploy).await);
    let (url, tree, _) = harness.repository("charts", &[("kasbah.yaml", "one")]);
    let charts = harness.project(&url).await;
    let _running = harness.start().await;
    let read = |agent| {
        let (reference, path) = (GitReference::Default, "kasbah.yaml".to_owned());
        let watch_seconds = Some(600);
        ReadFile { agent, project: charts, reference, path, limit: 1000, fresh: true, watch_seconds }
    };
    for agent in [one, other] {
        testkit::eventually(crate::harness::DEADLINE, || async {
            harness.ask(&read(agent)).await.map(|_| ())
        })
        .await;
    }
    harness.answers.lock().refused_agent = Some(other);
    for text in ["two", "three"] {
        tree.write("kasbah.yaml", text).unwrap();
        let commit = tree.commit_and_push(text).unwrap();
        harness.push(charts).await;
        testkit::eventually(crate::harness::DEADLINE, || async {
            let told = harness.notices().iter().any(|notice| notice.commit == commit);
            told.then_some(()).ok_or("no notice")
        })
        .await;
    }
    assert_eq!(harness.ask(&read(other)).await.unwrap_err().kind, RefusalKind::Denied);
    let said = harness.said().await;
    assert!(said.is_empty(), "the ref can be read: {said:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_can_be_built_at_an_earlier_commit() {
    let harness = Harness::new().await;
    let (url, tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    tree.write("a/one.yaml", config_map("one", "2")).unwrap();
    let second = tree.commit_and_push("second").unwrap();
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    let newest = harness.wait_advanced(&second).await;
    let id = SourceId::derive(agent, "shop");
    let at = |commit: &str| BundleAt { source: id, commit: commit.to_owned() };
    // Found in the history, which is not kept here.
    let pinned = harness.ask(&at(&first[..10])).await.unwrap();
    assert_eq!((pinned.commit.as_str(), pinned.objects), (first.as_str(), 1));
    assert_ne!(pinned.bundle, newest.bundle);
    assert!(harness.bundle(pinned.bundle).await[0].1.contains(r#""value":"1""#));
    assert_eq!(harness.ask(&at(&first)).await.unwrap(), pinned);
    assert_eq!(harness.ask(&at(&first[..10])).await.unwrap(), pinned);
    let unknown = harness.ask(&at("12345678")).await.unwrap_err();
    assert_eq!((unknown.kind, unknown.field.as_deref()), (RefusalKind::Invalid, Some("commit")));
    assert_eq!(harness.ask(&at(&second)).await.unwrap().bundle, newest.bundle);
    let nowhere = harness.ask(&at(&"1".repeat(40))).await.unwrap_err();
    assert_eq!(nowhere.kind, RefusalKind::Conflict);
    assert!(harness.ask(&at("nonsense")).await.is_err());
    // Nothing of it is said: pinning is delivery's to decide.
    assert_eq!(harness.said().await.len(), 1);
    // Others may still read the repository; this agent gets nothing of it.
    harness.answers.lock().refused = Some("the grant was withdrawn".to_owned());
    let refused = harness.ask(&at(&first)).await.unwrap_err();
    assert_eq!((refused.kind, refused.message.as_str()), (RefusalKind::Denied, "the grant was withdrawn"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_what_authz_lets_them_see() {
    let harness = Harness::new().await;
    let (url, _tree, first) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    harness.wait_advanced(&first).await;
    let (friend, stranger) = (UserId(harness.world.new_uuid()), UserId(harness.world.new_uuid()));
    let _serving = bus::answer::<Decide, _>(&*harness.bus, move |_, request| {
        let known = request.actor == Actor::User(friend);
        async move { Ok(Decision { allowed: known, visible: known, reason: "a test".into() }) }.boxed()
    })
    .await
    .unwrap();
    let show = ShowFetch { source: SourceId::derive(agent, "shop") };
    let view = harness.ask_as(Actor::User(friend), &show).await.unwrap();
    assert_eq!(view.commit, Some(first));
    assert_eq!((view.failure, view.rejected), (None, vec![]));
    let refusal = harness.ask_as(Actor::User(stranger), &show).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    // A stranger's organization sees nothing, whoever asks.
    let other = events::OrganizationId(harness.world.new_uuid());
    let context = RequestContext {
        correlation_id: CorrelationId(harness.world.new_uuid()),
        ..bus::context_for(&harness.world, Actor::User(friend), other)
    };
    assert_eq!(bus::ask(&*harness.bus, &context, &show).await.unwrap_err().kind, RefusalKind::NotFound);
}
