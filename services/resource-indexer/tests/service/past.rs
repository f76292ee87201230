//! Moments of the past that are asked for again and again, while the present goes on.

use std::time::Duration;

use events::observation::Observed;
use events::requests::index::{EnvironmentTree, FindObjects, HealthState, Moment, ShowEnvironmentTree};
use events::{EnvironmentId, Position, Timestamp};
use serde_json::{Value, json};

use super::running::{DEADLINE, Indexer, Installation, gone, map, seen, workload};

const ENVIRONMENT: &str = "production";

fn environment(installation: &Installation) -> EnvironmentId {
    EnvironmentId::derive(installation.project, ENVIRONMENT)
}

/// The tree at a moment, without what it says of now.
async fn tree(indexer: &Indexer, environment: EnvironmentId, at: Option<Moment>) -> Value {
    let request = ShowEnvironmentTree { environment, at, todays_rules: false };
    let EnvironmentTree { health, nodes, left_out, as_of } = indexer.ask(&request).await.unwrap();
    json!({"health": health, "nodes": nodes, "left_out": left_out, "judged_at": as_of.judged_at})
}

/// An index that was made anew from the log, and has judged no moment yet.
async fn made_anew(installation: &Installation, covers: &Position) -> Indexer {
    let indexer = Indexer::start(installation, None).await;
    indexer.covers(covers).await;
    let environment = environment(installation);
    testkit::eventually(DEADLINE, || async {
        let request = ShowEnvironmentTree { environment, at: None, todays_rules: false };
        indexer.ask(&request).await.map(|_| ()).map_err(|refusal| refusal.message)
    })
    .await;
    indexer
}

#[tokio::test]
async fn a_moment_is_answered_alike_how_often_it_is_asked_and_whatever_changes_meanwhile() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    installation.deploys(ENVIRONMENT, &["shop"]).await;
    let say = |waits_for| workload(waits_for).iter().map(seen).collect::<Vec<Observed>>();
    let mut words = say(Some("ImagePullBackOff"));
    words.extend((0..20).map(|number| seen(&map(&format!("c{number}"), json!({"data": {"n": "1"}})))));
    let then = installation.says(words).await;
    let at = || Some(Moment::Position(then.clone()));
    indexer.stop().await;
    let indexer = made_anew(&installation, &then).await;
    let environment = environment(&installation);
    let first = tree(&indexer, environment, at()).await;
    assert_eq!(first["health"]["health"], "degraded", "{first:#}");
    assert_eq!(tree(&indexer, environment, at()).await, first, "asked again");

    let elsewhere = json!({"metadata": {"name": "z", "namespace": "other", "uid": "uid-z"}});
    let end = installation.says(vec![seen(&map("z", elsewhere))]).await;
    indexer.covers(&end).await;
    assert_eq!(tree(&indexer, environment, at()).await, first, "something changed elsewhere");

    let mut words = say(None);
    words.extend([seen(&map("c3", json!({"data": {"n": "2"}}))), gone(&map("c4", json!({})))]);
    words.push(seen(&map("late", json!({}))));
    let end = installation.says(words).await;
    indexer.covers(&end).await;
    let again = tree(&indexer, environment, at()).await;
    assert_eq!(again, first, "objects of it changed");
    let last = || Some(Moment::Position(end.clone()));
    let now = tree(&indexer, environment, last()).await;
    assert_eq!(now["health"]["health"], "healthy", "{now:#}");
    indexer.stop().await;
    let other = made_anew(&installation, &end).await;
    assert_eq!(tree(&other, environment, at()).await, first, "from the log");
    assert_eq!(tree(&other, environment, last()).await, now, "from the log");
    other.stop().await;
}

#[tokio::test]
async fn a_pod_that_has_waited_too_long_by_now_still_waited_at_the_moment() {
    let mut installation = Installation::new();
    let indexer = Indexer::start(&installation, None).await;
    // Pods may be unschedulable for five minutes.
    let since = Timestamp(installation.world.clock.now_millis()).plus_millis(-300_000 + 1_500);
    let mut pod = workload(Some("ContainerCreating"))[1].clone();
    pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "no room", "lastTransitionTime": since.to_string()}]});
    let then = installation.says(vec![seen(&pod)]).await;
    indexer.covers(&then).await;
    let state = |at: Option<Moment>| {
        let indexer = indexer.clone();
        async move {
            let found = indexer.ask(&FindObjects { at, ..super::find("web-1") }).await.unwrap();
            found.items[0].health.state
        }
    };
    testkit::eventually(Duration::from_secs(20), || async {
        let state = state(None).await;
        anyhow::ensure!(state == HealthState::Degraded, "{state:?}");
        Ok(())
    })
    .await;
    assert_eq!(state(Some(Moment::Position(then))).await, HealthState::Progressing);
    let now = Moment::Time(installation.now_later().await);
    assert_eq!(state(Some(now)).await, HealthState::Degraded);
    indexer.stop().await;
}
