//! What breaks off under an open page: an agent, a session, and the network on the way to the server.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{Folder, Proxy, drive_chromium, free_port};

use super::environment::{PRODUCTION, hostile_environment};
use super::{ENOUGH, given, is_live_session, link, place, script, seen_enough, written};
use crate::index::Stage;
use crate::scene::AGENT;

const CUT_OFF: &str = include_str!("cut_off.mjs");
const REVOKED: &str = include_str!("revoked.mjs");
const LOSSY: &str = include_str!("lossy.mjs");
/// What happens in the cluster while its agent is cut off, or the page cannot reach the server.
const UNSEEN: &str = "made-unseen";
/// ConfigMaps that are made over a network that breaks, and how many of them one connection lives through.
const MADE: usize = 9;
const EACH: usize = 3;

/// A proxy before a port of this machine.
fn proxy_before(port: u16) -> Proxy {
    Proxy::start(SocketAddr::from(([127, 0, 0, 1], port))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_cut_off_is_told_as_such_and_nothing_is_missed_when_it_is_back() {
    let mut stage = Stage::start_with(PRODUCTION).await;
    let proxy = proxy_before(stage.scene.kasbah.tunnel_port());
    stage.scene.kasbah.stop_agent("agent").unwrap();
    stage.scene.kasbah.let_agents_dial(proxy.address().to_string());
    stage.start_agent();
    let environment = hostile_environment(&stage).await;
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "environment": environment, "unseen": UNSEEN }));
    let happens = async {
        seen_enough(kasbah, "cut").await;
        // As when a router on the way has no power: neither end gets a notice.
        proxy.silence(true);
        stage.config_map(UNSEEN, "1").await;
        seen_enough(kasbah, "join").await;
        proxy.silence(false);
    };
    let driven = script(CUT_OFF);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), happens);
    let mut seen = seen.unwrap();
    let after = seen.as_object_mut().unwrap().remove("staleAfter");
    println!("stale after {} ms", after.unwrap_or_default());
    let expected = json!({
        "head": true,
        "hatched": true,
        "keeps": true,
        "overview": true,
        "agents": "Gone",
        "back": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_session_that_is_revoked_elsewhere_nothing_stays_readable() {
    let stage = Stage::start_with(PRODUCTION).await;
    let environment = hostile_environment(&stage).await;
    let kasbah = &stage.scene.kasbah;
    let secrets = json!([stage.namespace(), AGENT, "web-", "hostile"]);
    let more = json!({ "environment": environment, "enough": ENOUGH, "secrets": secrets });
    let given = given(kasbah, &more);
    let revokes = async {
        seen_enough(kasbah, ENOUGH).await;
        let tokens = stage.json(&["token", "list"]).unwrap();
        let live = tokens.as_array().unwrap().iter().find(|token| is_live_session(token)).unwrap();
        stage.cli(&["token", "revoke", live["id"].as_str().unwrap()]).unwrap();
    };
    let driven = script(REVOKED);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), revokes);
    let expected = json!({
        "before": true,
        "heading": "Sign in to Kasbah",
        "says": true,
        "title": "Kasbah",
        "readable": [],
        "kept": [],
        "afterBack": [],
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
}

/// The link, with another port.
fn through(kasbah_link: &str, from: u16, to: u16) -> String {
    kasbah_link.replace(&format!(":{from}/"), &format!(":{to}/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_slow_network_that_breaks_the_page_goes_on_and_misses_nothing() {
    let stage = Stage::start().await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let kasbah = &stage.scene.kasbah;
    let port: u16 = kasbah.api().rsplit(':').next().unwrap().parse().unwrap();
    let proxy = proxy_before(port);
    let names: Vec<String> = (0..MADE).map(|number| format!("lossy-{number}")).collect();
    let mut expected: Vec<&str> = names.iter().skip(1).map(String::as_str).collect();
    expected.push(UNSEEN);
    let folder = Folder::temporary().unwrap();
    let noticed = folder.path().join("noticed");
    let given = json!({
        "port": free_port().unwrap(),
        "link": through(&link(kasbah), port, proxy.address().port()),
        "path": place(&stage.scene),
        "enough": ENOUGH,
        "noticed": noticed,
        "expected": expected,
        "gone": names[0],
    });
    let breaks = async {
        seen_enough(kasbah, ENOUGH).await;
        proxy.delay(std::time::Duration::from_millis(100));
        proxy.lose(7);
        for (number, name) in names.iter().enumerate() {
            stage.config_map(name, "1").await;
            if number % EACH == EACH - 1 {
                proxy.cut();
            }
        }
        proxy.shut(true);
        proxy.cut();
        written(&noticed).await;
        stage.config_map(UNSEEN, "1").await;
        stage.delete(&format!("configmap/{}", names[0])).await;
        proxy.shut(false);
    };
    let driven = script(LOSSY);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), breaks);
    let seen: Value = seen.unwrap();
    assert_eq!(
        seen,
        json!({ "isTheSame": true, "saysSince": true, "keeps": true, "all": true, "isLive": true })
    );
}
