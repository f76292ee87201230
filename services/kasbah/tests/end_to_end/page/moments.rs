//! Every page at another moment: what was wrong then, played until now, and compared.

use serde_json::json;
use testkit::drive_chromium;

use super::environment::PRODUCTION;
use super::{ENOUGH, HOSTILE, given, script, seen_enough};
use crate::index::Stage;

const MOMENTS: &str = include_str!("moments.mjs");

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_seen_again_on_every_page_played_and_compared() {
    let stage = Stage::start_with(PRODUCTION).await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let kasbah = &stage.scene.kasbah;
    let first = stage.scene.source().unwrap()["synced_commit"].as_str().unwrap().to_owned();
    let given = given(kasbah, &json!({ "hostile": HOSTILE, "enough": ENOUGH, "first": first[..8] }));
    let breaks = async {
        seen_enough(kasbah, ENOUGH).await;
        stage.push_deployment(HOSTILE, "nodeSelector: {kubernetes.io/hostname: no-such-node}");
        stage.fail_to_pull(HOSTILE).await;
    };
    let driven = script(MOMENTS);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), breaks);
    let expected = json!({
        "then": "Nothing was wrong",
        "keeps": true,
        "source": first[..8],
        "agent": "Connected",
        "noPast": true,
        "played": true,
        "most": 1,
        "differs": ["What differs", "Went wrong"],
        "environment": true,
        "back": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
}
