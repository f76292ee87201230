//! Everything for a while: what people open and end again and again leaves nothing behind.

use std::time::{Duration, Instant};

use reqwest::Method;

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, admin, nothing_is_open};
use super::going_on::{GoingOn, TOLD};
use super::stage::Stage;

/// With `KASBAH_LONG_TESTS` set.
const LONG: Duration = Duration::from_secs(30 * 60);
/// Without: enough to see that it works.
const SHORT: Duration = Duration::from_secs(5);
/// Opened by as many at once.
const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_and_goes_for_long_leaves_nothing_behind() {
    let mut stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    // Everything was in use once.
    round(&stage).await;
    let held = Held::now(&mut stage, &[], &AGENTS);
    let lasts = if testkit::tests_are_long() { LONG } else { SHORT };
    let (begun, mut rounds) = (Instant::now(), 0);
    while begun.elapsed() < lasts {
        round(&stage).await;
        rounds += 1;
    }
    println!("{rounds} rounds in {:?}", begun.elapsed());
    held.is_held_again().await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

/// Watches, uploads and sessions that carry something, and then go with those who opened them.
async fn round(stage: &Stage) {
    let open = (0..AT_ONCE).map(|_| async {
        let asker = stage.asker().on_other_connections(&stage.scene.kasbah);
        let mut open = GoingOn::begin(stage, &asker).await;
        open.goes_on(stage, "round").await.unwrap();
        asker.reads(&format!("{}?fieldSelector=metadata.name%3Dnone", stage.maps())).await.unwrap();
    });
    futures::future::join_all(open).await;
    stage.open_at_the_front(0).await;
    let told = format!("{}?labelSelector={TOLD}", stage.maps());
    assert!(stage.scene.cluster.send(Method::DELETE, &told, None).await.unwrap().status.is_success());
}
