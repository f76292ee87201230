//! The resource indexer with the embedded log and the bus of one process; what authz answers comes from a table.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test from end to end")]

#[path = "service/past.rs"]
mod past;
#[path = "service/running.rs"]
mod running;
#[path = "service/start.rs"]
mod start;
#[path = "service/timing.rs"]
mod timing;
#[path = "service/viewers.rs"]
mod viewers;

use std::time::Duration;

use events::configuration::{HealthRule, HealthSettings};
use events::grants::UserAccessAs;
use events::observation::{ObjectBody, Observed};
use events::pass::Narrowing;
use events::position::Stream;
use events::requests::authz::UsableAgent;
use events::requests::index::{
    ExplainHealth, FindObjects, HealthState, ListChanges, Moment, ObjectFilter, ObjectHealth, ShowCoverage,
    ShowEnvironmentTree, ShowIndexed, ShowTree,
};
use events::requests::page::{PageLimit, Paged as _};
use events::{Position, RefusalKind, Timestamp};
use serde_json::json;
use store::embedded::Options;

use running::{Indexer, Installation, gone, listed, map, seen, workload};

fn named(name: &str) -> ObjectFilter {
    ObjectFilter { name: Some(name.to_owned()), ..ObjectFilter::default() }
}

fn find(name: &str) -> FindObjects {
    FindObjects { filter: named(name), ..FindObjects::default() }
}

#[tokio::test]
async fn an_object_is_found_once_it_is_recorded_and_its_past_stays() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let first = installation.says(vec![seen(&map("a", json!({"data": {"n": "1"}})))]).await;
    let at_least = Some(first.clone());
    let found = indexer.ask(&FindObjects { at_least, ..find("a") }).await.unwrap();
    assert_eq!((found.items.len(), found.items[0].agent_name.as_str()), (1, "shop/front:edge"));
    let then = installation.now_later().await;
    let last = installation.says(vec![seen(&map("a", json!({"data": {"n": "2", "m": "x"}})))]).await;
    indexer.covers(&last).await;
    let body = |at: Option<Moment>| {
        let show = ShowIndexed { filter: named("a"), at, todays_rules: false };
        let indexer = indexer.clone();
        async move { indexer.ask(&show).await.unwrap().body.unwrap() }
    };
    assert!(body(None).await.contains("\"2\""));
    assert!(body(Some(Moment::Time(then))).await.contains("\"1\""));
    assert!(body(Some(Moment::Position(first))).await.contains("\"1\""));
    let changes = indexer.ask(&ListChanges { filter: named("a"), ..ListChanges::default() }).await.unwrap();
    let whats: Vec<&str> = changes.items.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(whats, ["changed", "first-seen"]);
    assert_eq!(
        (&changes.items[0].fields[..], changes.items[0].field_count),
        (&["data.n".to_owned(), "data.m".to_owned()][..], 2)
    );
    assert_eq!(changes.items[0].writer.as_ref().unwrap().manager, "kubectl");
    indexer.stop().await;
}

#[tokio::test]
async fn what_was_deleted_is_there_in_the_past_and_its_history_is_told() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let there = installation.says(vec![seen(&map("a", json!({})))]).await;
    let end = installation.says(vec![gone(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    assert!(indexer.ask(&find("a")).await.unwrap().items.is_empty());
    let past = FindObjects { at: Some(Moment::Position(there)), ..find("a") };
    assert_eq!(indexer.ask(&past).await.unwrap().items.len(), 1);
    let changes = indexer.ask(&ListChanges { filter: named("a"), ..ListChanges::default() }).await.unwrap();
    assert_eq!((changes.items[0].what.as_str(), changes.items[0].not_before), ("deleted", None));
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}]);
    let mut owned = map("b", json!({}));
    owned["metadata"]["ownerReferences"] = owner;
    installation.says(vec![seen(&owned), listed(1)]).await;
    let unstated = installation.says(vec![listed(99)]).await;
    indexer.covers(&unstated).await;
    let changes = indexer.ask(&ListChanges { filter: named("b"), ..ListChanges::default() }).await.unwrap();
    let [vanished, first] = &changes.items[..] else { panic!("{changes:?}") };
    assert_eq!(
        (vanished.what.as_str(), first.what.as_str(), vanished.owned),
        ("vanished", "first-seen", true)
    );
    let since = vanished.not_before.unwrap();
    assert!(first.seen_at <= since && since <= vanished.recorded_at, "{vanished:?}");
    let future = FindObjects { at: Some(Moment::Time(Timestamp(i64::MAX))), ..find("a") };
    assert_eq!(indexer.ask(&future).await.unwrap_err().field.as_deref(), Some("at"));
    indexer.stop().await;
}

#[tokio::test]
async fn an_index_goes_on_from_its_folder_and_one_that_was_lost_is_made_anew_and_answers_alike() {
    let mut installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    for number in 0..20 {
        let name = format!("c{}", number % 5);
        installation.says(vec![seen(&map(&name, json!({"data": {"n": number}})))]).await;
    }
    let end = installation.says(vec![listed(1), gone(&map("c1", json!({})))]).await;
    indexer.covers(&end).await;
    let answers = |indexer: &Indexer| {
        let indexer = indexer.clone();
        async move {
            let everything = indexer.ask(&FindObjects::default()).await.unwrap();
            let changes = indexer.ask(&ListChanges::default()).await.unwrap();
            let shown = indexer
                .ask(&ShowIndexed { filter: named("c2"), at: None, todays_rules: false })
                .await
                .unwrap();
            (everything, changes, shown.body, shown.related)
        }
    };
    let before = answers(&indexer).await;
    assert_eq!((before.0.items.len(), before.1.items.len()), (4, 21), "one of them was deleted");
    indexer.stop().await;
    let again = Indexer::start(&installation, Some(folder.path())).await;
    assert_eq!(answers(&again).await, before, "from its folder");
    again.stop().await;
    let rebuilt = Indexer::start(&installation, None).await;
    assert_eq!(answers(&rebuilt).await, before, "from the log");
    rebuilt.stop().await;
}

#[tokio::test]
async fn an_index_that_is_made_anew_behind_the_horizon_shows_what_is_told_since_and_says_where_it_begins() {
    let mut installation = Installation::with(Options { segment_bytes: 4096, ..Options::default() });
    let mut middle = Position::start();
    for number in 0..80 {
        let name = format!("c{}", number % 4);
        let end = installation.says(vec![seen(&map(&name, json!({"data": {"n": number}})))]).await;
        if number < 40 {
            middle = end;
        }
    }
    installation.store.log.forget(&middle).await.unwrap();
    let horizon = installation.store.log.retained(Stream::Objects).await.unwrap().horizon;
    assert_ne!(horizon, Position::start(), "something has left");
    let indexer = Indexer::start(&installation, None).await;
    assert_eq!(indexer.ask(&FindObjects::default()).await.unwrap().items.len(), 4);
    let begins = indexer.ask(&ShowCoverage::default()).await.unwrap().as_of.horizon.unwrap();
    let at = |moment| FindObjects { at: Some(moment), ..FindObjects::default() };
    let early = indexer.ask(&at(Moment::Time(Timestamp(begins.0 - 1)))).await.unwrap_err();
    assert!(early.message.contains(&begins.to_string()), "{}", early.message);
    let (shard, sequence) = horizon.0.first_key_value().unwrap();
    let before = Position::of(shard.0, shard.1, sequence - 1);
    let early = indexer.ask(&at(Moment::Position(before))).await.unwrap_err();
    assert_eq!(early.field.as_deref(), Some("at"));
    let decided = Position::of(Stream::Decisions, 0, 1);
    let silent = indexer.ask(&at(Moment::Position(decided))).await.unwrap_err();
    assert!(silent.message.contains("says nothing of objects"), "{}", silent.message);
    assert!(!indexer.ask(&at(Moment::Time(begins))).await.unwrap().items.is_empty());
    indexer.stop().await;
}

#[tokio::test]
async fn a_database_that_is_damaged_is_made_anew_at_the_start_and_while_it_runs() {
    let mut installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    for number in 0..3 {
        installation.says(vec![seen(&map("a", json!({"data": {"n": number}})))]).await;
    }
    let end = installation.says(vec![seen(&map("b", json!({})))]).await;
    indexer.covers(&end).await;
    let before = indexer.ask(&ListChanges::default()).await.unwrap();
    indexer.stop().await;

    damage(folder.path(), "objects");
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    assert_eq!(indexer.ask(&ListChanges::default()).await.unwrap(), before, "at the start");
    indexer.stop().await;

    damage(folder.path(), "recent");
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    assert_eq!(indexer.ask(&ListChanges::default()).await.unwrap_err().kind, RefusalKind::Internal);
    testkit::eventually(running::DEADLINE, || async {
        match indexer.ask(&ListChanges::default()).await {
            Ok(changes) if changes == before => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(indexer.metrics().contains("kasbah_resource_indexer_rebuilt_total 1"), "{}", indexer.metrics());
    indexer.stop().await;
}

/// Makes every row of a table unreadable.
fn damage(folder: &std::path::Path, table: &str) {
    let rows = redb::TableDefinition::<&[u8], &[u8]>::new(table);
    let database = redb::Database::open(folder.join("objects.redb")).unwrap();
    let writing = database.begin_write().unwrap();
    {
        let mut table = writing.open_table(rows).unwrap();
        let keys: Vec<Vec<u8>> =
            redb::ReadableTable::iter(&table).unwrap().map(|row| row.unwrap().0.value().to_vec()).collect();
        for key in keys {
            table.insert(key.as_slice(), b"nonsense".as_slice()).unwrap();
        }
    }
    writing.commit().unwrap();
}

#[tokio::test]
async fn a_large_body_is_asked_for_until_the_store_answers() {
    let mut installation = Installation::new();
    let body = map("a", json!({"data": {"n": "large"}}));
    let content = body.to_string().into_bytes();
    let bytes = content.len() as u64;
    let stored = installation.store.blobs.put(installation.organization, vec![content.into()]).await.unwrap();
    let failing = running::Failing::times(&installation.store.blobs, 3);
    installation.store.blobs = failing.clone();
    let indexer = Indexer::start(&installation, None).await;
    let Observed::ObjectSeen { mut object } = seen(&body) else { panic!("it is seen") };
    object.body = ObjectBody::Blob { blob: Some(stored[0]), bytes };
    let end = installation.says(vec![Observed::ObjectSeen { object }]).await;
    indexer.covers(&end).await;
    let shown =
        indexer.ask(&ShowIndexed { filter: named("a"), at: None, todays_rules: false }).await.unwrap();
    assert!(shown.body.unwrap().contains("large"));
    assert_eq!(failing.left(), 0);
    indexer.stop().await;
}

#[tokio::test]
async fn a_deployment_groups_objects_and_another_one_moves_them_also_after_a_restart_and_in_the_past() {
    let mut installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    let first = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&first).await;
    let of = |name: &str| ObjectFilter { env: Some(name.to_owned()), ..ObjectFilter::default() };
    let refused = indexer.ask(&FindObjects { filter: of("production"), ..FindObjects::default() }).await;
    assert_eq!(refused.unwrap_err().kind, RefusalKind::NotFound);

    // The answer waits for what delivery says of the decision.
    let at_least = Some(installation.deploys("production", &["shop"]).await);
    let request = FindObjects { filter: of("production"), at_least, ..FindObjects::default() };
    let found = indexer.ask(&request).await.unwrap().items;
    let environment = found[0].environment.clone().unwrap();
    assert_eq!((environment.name.as_str(), environment.project_path.as_str()), ("production", "shop/front"));
    let tree = ShowEnvironmentTree { environment: environment.id, at: None, todays_rules: false };
    assert_eq!(indexer.ask(&tree).await.unwrap().nodes.len(), 1);
    indexer.stop().await;

    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    testkit::eventually(running::DEADLINE, || async {
        indexer.ask(&request).await.map(|_| ()).map_err(|refusal| refusal.message)
    })
    .await;
    assert_eq!(indexer.ask(&request).await.unwrap().items, found, "from its folder");
    let end = installation.says(vec![gone(&map("a", json!({}))), seen(&map("b", json!({})))]).await;
    indexer.covers(&end).await;
    let names = |at: Option<Moment>| {
        let (indexer, request) = (indexer.clone(), FindObjects { at, ..request.clone() });
        async move {
            let items = indexer.ask(&request).await.unwrap().items;
            items.into_iter().map(|item| item.identity.name).collect::<Vec<_>>()
        }
    };
    assert_eq!(names(None).await, ["b"]);
    assert_eq!(names(Some(Moment::Position(first.clone()))).await, ["a"]);
    let past = ShowEnvironmentTree { at: Some(Moment::Position(first)), ..tree };
    assert_eq!(indexer.ask(&past).await.unwrap().nodes[0].object.identity.name, "a");
    let changes = indexer.ask(&ListChanges { filter: of("production"), ..ListChanges::default() }).await;
    assert_eq!(changes.unwrap().items.len(), 3, "with what is gone");

    let at_least = Some(installation.deploys("production", &["elsewhere"]).await);
    let request = FindObjects { filter: of("production"), at_least, ..FindObjects::default() };
    assert!(indexer.ask(&request).await.unwrap().items.is_empty());
    assert_eq!(indexer.ask(&find("b")).await.unwrap().items[0].environment, None);
    indexer.stop().await;
}

#[tokio::test]
async fn rights_are_asked_anew_once_something_that_touches_them_is_decided() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    assert_eq!(indexer.ask(&find("a")).await.unwrap().items.len(), 1);
    installation.usable.lock().clear();
    assert_eq!(indexer.ask(&find("a")).await.unwrap().items.len(), 1, "an answer counts for a while");
    let decided = installation.decides_something().await;
    indexer.covers(&decided).await;
    assert!(indexer.ask(&find("a")).await.unwrap().items.is_empty());
    indexer.stop().await;
}

#[tokio::test]
async fn rights_are_those_behind_what_the_question_waits_for() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    assert_eq!(indexer.ask(&find("a")).await.unwrap().items.len(), 1);
    // An asker from before the fold of the decision would still get what was remembered.
    installation.usable.lock().clear();
    let at_least = Some(installation.decides_something().await);
    assert!(indexer.ask(&FindObjects { at_least, ..find("a") }).await.unwrap().items.is_empty());
    indexer.stop().await;
}

#[tokio::test]
async fn a_stranger_finds_nothing_with_any_request() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("secret-name", json!({})))]).await;
    indexer.covers(&end).await;
    let past = Some(Moment::Position(end));
    let filter = named("secret-name");
    for usable in [
        Vec::new(),
        vec![UsableAgent {
            agent: installation.agent,
            access_as: UserAccessAs::User,
            grants: vec![Narrowing::default()],
            identity: None,
        }],
    ] {
        *installation.usable.lock() = usable;
        let decided = installation.decides_something().await;
        indexer.covers(&decided).await;
        let mut said = String::new();
        for at in [None, past.clone()] {
            let filter = filter.clone();
            said += &format!(
                "{:?}",
                indexer.ask(&FindObjects { at: at.clone(), ..FindObjects::default() }).await
            );
            said += &format!(
                "{:?}",
                indexer.ask(&ShowTree { filter: filter.clone(), at: at.clone(), todays_rules: false }).await
            );
            said += &format!(
                "{:?}",
                indexer
                    .ask(&ExplainHealth { filter: filter.clone(), at: at.clone(), todays_rules: false })
                    .await
            );
            said += &format!("{:?}", indexer.ask(&ShowIndexed { filter, at, todays_rules: false }).await);
        }
        said += &format!("{:?}", indexer.ask(&ListChanges::default()).await);
        let coverage = indexer.ask(&ShowCoverage::default()).await.unwrap();
        assert!(coverage.agents.iter().all(|agent| (agent.objects, agent.kinds) == (0, 0)));
        said += &format!("{coverage:?}");
        assert!(!said.contains("secret-name") && !said.contains("uid-secret"), "{said}");
    }
    let refused = indexer.ask_as_service(&FindObjects::default()).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Denied);
    indexer.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_deleted_takes_its_objects_out_of_view() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    let deleted = installation.deletes_the_agent().await;
    let late = installation.says(vec![seen(&map("b", json!({})))]).await;
    indexer.covers(&deleted).await;
    indexer.covers(&late).await;
    assert!(indexer.ask(&FindObjects::default()).await.unwrap().items.is_empty());
    assert!(indexer.ask(&ListChanges::default()).await.unwrap().items.is_empty());
    assert!(indexer.ask(&ShowCoverage::default()).await.unwrap().agents.is_empty());
    indexer.stop().await;
}

#[tokio::test]
async fn changes_are_listed_page_by_page_the_newest_first_over_many_objects() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let mut end = Position::start();
    for chunk in 0..5 {
        let words: Vec<Observed> =
            (0..50).map(|number| seen(&map(&format!("c{chunk}-{number}"), json!({})))).collect();
        end = installation.says(words).await;
    }
    indexer.covers(&end).await;
    let (mut names, mut request) =
        (Vec::new(), ListChanges { limit: PageLimit::new(60), ..ListChanges::default() });
    loop {
        let page = indexer.ask(&request).await.unwrap();
        names.extend(page.items.iter().map(|change| (change.recorded_at, change.uid.clone())));
        let Some(next) = page.next else { break };
        request = request.at(next);
    }
    assert_eq!(names.len(), 250);
    let times: Vec<Timestamp> = names.iter().map(|(at, _)| *at).collect();
    assert!(times.is_sorted_by(|left, right| left >= right));
    let since = times[70];
    let of_some = [ObjectFilter::default(), named("c4-7")].map(|filter| ListChanges {
        filter,
        since: Some(since),
        limit: Some(PageLimit::MAXIMUM),
        ..ListChanges::default()
    });
    let [of_all, of_one] = of_some.each_ref().map(|request| indexer.ask(request));
    let (of_all, of_one) = (of_all.await.unwrap(), of_one.await.unwrap());
    assert_eq!(
        of_all.items.len(),
        times.iter().filter(|at| **at >= since).count(),
        "of that very moment, too"
    );
    assert_eq!((of_all.next, of_one.items.len()), (None, 1));
    let none = ListChanges { since: Some(Timestamp(times[0].0 + 1)), ..of_some[1].clone() };
    assert!(indexer.ask(&none).await.unwrap().items.is_empty(), "of one object, too");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 250, "none twice");
    indexer.stop().await;
}

#[tokio::test]
async fn a_connection_makes_the_word_of_an_agent_fresh() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    assert!(indexer.ask(&find("a")).await.unwrap().items[0].stale.is_some());
    let opened = installation.connects().await;
    indexer.covers(&opened).await;
    testkit::eventually(running::DEADLINE, || async {
        match indexer.ask(&find("a")).await.unwrap().items[0].stale.clone() {
            None => Ok(()),
            Some(stale) => Err(stale),
        }
    })
    .await;
    indexer.stop().await;
}

#[tokio::test]
async fn a_workload_is_judged_with_its_pod_now_and_in_the_past_and_after_a_restart() {
    let mut installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    let says = |waits_for| workload(waits_for).iter().map(seen).collect::<Vec<_>>();
    let failing = installation.says(says(Some("ImagePullBackOff"))).await;
    indexer.covers(&failing).await;
    let chain = |indexer: &Indexer, at: Option<Moment>| {
        let (indexer, request) =
            (indexer.clone(), ExplainHealth { filter: named("web"), at, todays_rules: false });
        async move {
            let explained = indexer.ask(&request).await.unwrap();
            let line = |object: &events::requests::index::IndexedObject| {
                format!("{} {:?} {}", object.identity.name, object.health.state, object.health.message)
            };
            explained.chains[0].iter().map(line).collect::<Vec<_>>()
        }
    };
    let expected = [
        "web Degraded pod web-1: container web is in ImagePullBackOff",
        "web-1 Degraded container web is in ImagePullBackOff",
    ];
    assert_eq!(chain(&indexer, None).await, expected);
    indexer.stop().await;
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    assert_eq!(chain(&indexer, None).await, expected, "from its folder");
    let mended = installation.says(says(None)).await;
    indexer.covers(&mended).await;
    assert_eq!(chain(&indexer, None).await, ["web Healthy "]);
    assert_eq!(chain(&indexer, Some(Moment::Position(failing.clone()))).await, expected, "in the past");
    let tree = ShowTree { filter: named("web"), at: Some(Moment::Position(failing)), todays_rules: false };
    assert_eq!(indexer.ask(&tree).await.unwrap().nodes.len(), 2);
    indexer.stop().await;
}

/// A dock that says in which phase it is.
fn dock(phase: &str) -> serde_json::Value {
    json!({"apiVersion": "example.com/v1", "kind": "Dock",
        "metadata": {"name": "dry", "namespace": "shop", "uid": "uid-dry"}, "status": {"phase": phase}})
}

fn dock_rule(healthy: &str) -> HealthSettings {
    let rule = HealthRule {
        group: "example.com".to_owned(),
        kind: "Dock".to_owned(),
        healthy: format!("status.phase == '{healthy}'"),
        progressing: None,
        degraded: Some("status.phase == 'Broken'".to_owned()),
        suspended: None,
        message: None,
    };
    HealthSettings { rules: vec![rule], ..HealthSettings::default() }
}

/// How the object that was declared on is, at a moment.
async fn judged(indexer: Indexer, at: Option<Moment>, todays_rules: bool) -> ObjectHealth {
    let request = FindObjects { at, todays_rules, ..find("dry") };
    indexer.ask(&request).await.unwrap().items[0].health.clone()
}

/// Waits until it is so now.
async fn becomes(indexer: &Indexer, state: HealthState) -> ObjectHealth {
    testkit::eventually(Duration::from_secs(20), || async {
        let now = judged(indexer.clone(), None, false).await;
        anyhow::ensure!(now.state == state, "{now:?}");
        Ok(now)
    })
    .await
}

#[tokio::test]
async fn a_declared_rule_judges_now_and_the_past_and_after_a_restart_and_names_its_version() {
    let mut installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let indexer = Indexer::start(&installation, Some(folder.path())).await;
    installation.says(vec![seen(&dock("Filling"))]).await;
    let broken = installation.says(vec![seen(&dock("Broken"))]).await;
    let last = installation.says(vec![seen(&dock("Dry"))]).await;
    indexer.covers(&last).await;
    let health = |indexer: &Indexer, at: Option<Moment>| judged(indexer.clone(), at, false);
    let none = health(&indexer, None).await;
    assert_eq!((none.state, none.rule.as_str(), &none.rule_set), (HealthState::None, "none", &None));
    let configured = installation.configures(0, dock_rule("Dry")).await;
    let ruled = becomes(&indexer, HealthState::Healthy).await;
    let version = ruled.rule_set.clone().unwrap();
    assert_eq!((ruled.rule.as_str(), version.len()), ("declared", 12));
    let before = Some(Moment::Position(broken.clone()));
    assert_eq!(health(&indexer, before.clone()).await, none, "nothing was declared then");
    let by_today = judged(indexer.clone(), before, true).await;
    assert_eq!((by_today.state, &by_today.rule_set), (HealthState::Degraded, &ruled.rule_set));
    let history = ListChanges { filter: named("dry"), ..ListChanges::default() };
    let by_then = indexer.ask(&history).await.unwrap();
    assert!(by_then.items.iter().all(|change| change.health == HealthState::None), "{by_then:#?}");
    let changes = indexer.ask(&ListChanges { todays_rules: true, ..history }).await.unwrap();
    let past = changes.items.iter().map(|change| (change.health, change.health_before));
    let (healthy, degraded, progressing) =
        (HealthState::Healthy, HealthState::Degraded, HealthState::Progressing);
    assert_eq!(
        past.collect::<Vec<_>>(),
        [(healthy, Some(degraded)), (degraded, Some(progressing)), (progressing, None)]
    );
    indexer.stop().await;
    let again = Indexer::start(&installation, Some(folder.path())).await;
    assert_eq!(health(&again, None).await, ruled, "from its folder");
    installation.configures(1, dock_rule("Elsewhere")).await;
    let other = becomes(&again, HealthState::Progressing).await;
    assert_ne!(other.rule_set, Some(version));
    installation.configures(2, HealthSettings::default()).await;
    becomes(&again, HealthState::None).await;
    let mut then = last.clone();
    then.merge(&configured);
    let then = Some(Moment::Position(then));
    assert_eq!(health(&again, then.clone()).await, ruled, "by the rules of then");
    assert_eq!(judged(again.clone(), then.clone(), true).await.state, HealthState::None);
    again.stop().await;
    let rebuilt = Indexer::start(&installation, None).await;
    assert_eq!(health(&rebuilt, None).await.rule, "none", "from the log");
    assert_eq!(health(&rebuilt, then).await, ruled, "from the log, by the rules of then");
    rebuilt.stop().await;
}
