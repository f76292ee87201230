//! Stories of one person at the page: why does it crash, and what is different from before?

use serde_json::json;
use testkit::drive_chromium;

use super::environment::{PRODUCTION, hostile_environment};
use super::{given, script, seen_enough};
use crate::index::Stage;

const CRASH: &str = include_str!("crash.mjs");
const MOMENTS: &str = include_str!("two_moments.mjs");

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_crashes_again_and_again_is_traced_to_the_commit() {
    let stage = Stage::start_with(PRODUCTION).await;
    let environment = hostile_environment(&stage).await;
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "environment": environment }));
    let breaks = async {
        seen_enough(kasbah, "push").await;
        let bad = stage.push_deployment("web:2", "nodeSelector: {kubernetes.io/hostname: no-such-node}");
        let back_off = "back-off 2m40s restarting failed container=web";
        let container = json!({
            "restartCount": 6,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 137}},
        });
        (bad, stage.say_of_pod("web:2", container).await)
    };
    let driven = script(CRASH);
    let (seen, (bad, pod)) = tokio::join!(drive_chromium(&driven, &given), breaks);
    let expected = json!({
        "culprit": pod,
        "why": true,
        "head": bad[..8],
        "restarts": true,
        "commit": bad[..8],
        "chain": pod,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_moments_of_an_environment_are_compared() {
    let stage = Stage::start_with(PRODUCTION).await;
    stage.config_map("changes", "1").await;
    stage.config_map("goes", "1").await;
    let environment = hostile_environment(&stage).await;
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "environment": environment }));
    let changes = async {
        seen_enough(kasbah, "change").await;
        stage.config_map("changes", "2").await;
        stage.config_map("comes", "1").await;
        stage.delete("configmap/goes").await;
    };
    let driven = script(MOMENTS);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), changes);
    let expected = json!({
        "summary": "1 object came, 1 went, 1 changed.",
        "came": ["comes"],
        "went": ["goes"],
        "changed": ["changes"],
        "values": true,
        "same": true,
        "again": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
}
