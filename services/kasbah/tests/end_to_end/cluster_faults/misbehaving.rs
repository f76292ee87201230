//! API servers that do not do what they should.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, admin, nothing_is_open};
use super::stage::{FAULTY, Stage};
use crate::scene::LIMIT;

/// More than every buffer on the way together.
const MUCH: usize = 64 * 1024 * 1024;

/// Whoever asked goes, and the API server hears of it.
async fn nobody_waits_any_more(stage: &Stage) {
    stage.open_at_the_front(0).await;
    nothing_is_open_but_watches(stage).await;
}

/// The two canaries' watches go on.
async fn nothing_is_open_but_watches(stage: &Stage) {
    testkit::eventually(LIMIT, || async {
        let open = super::flat::metric(&admin(stage), "kasbah_tunnel_gateway_cluster_requests_open")?;
        // A canary's request may be open as well.
        anyhow::ensure!((2..=4).contains(&open), "{open} requests are open");
        Ok(())
    })
    .await;
}

async fn everything_goes_wrong(stage: &Stage) {
    let asker = stage.asker();
    // Never answers: somebody who waits long enough is told after a minute and a half, see the agent's tests; somebody who does not,
    // leaves nothing behind.
    let silent = stage.fault("silent");
    let asking = (0..10).map(|_| {
        let (asker, silent) = (asker.clone(), silent.clone());
        tokio::spawn(async move { asker.ask(&silent).await })
    });
    let asking: Vec<_> = asking.collect();
    stage.open_at_the_front(10).await;
    for one in asking {
        one.abort();
    }
    nobody_waits_any_more(stage).await;

    // An upgrade that is answered with something else: said on as it is.
    let refused = asker.request(reqwest::Method::POST, &stage.pod("other", "exec?command=true"));
    let refused = refused.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
    let refused = super::stage::told(super::stage::answered(refused).await.unwrap()).await.unwrap();
    assert_eq!((refused.code.as_u16(), refused.body.as_str()), (200, Some("not what was asked for")));

    // A head without its body.
    let mut headless = asker.open(&stage.fault("headless")).await.unwrap();
    assert_eq!(headless.headers().get("content-length").unwrap(), "1000");
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(300), headless.chunk()).await;
    assert!(waiting.is_err(), "there is no body: {waiting:?}");
    drop(headless);
    nobody_waits_any_more(stage).await;

    // A body without an end.
    let mut endless = asker.open(&stage.fault("flood-65536")).await.unwrap();
    let mut read = 0;
    while read < MUCH {
        read += endless.chunk().await.unwrap().expect("it has no end").len();
    }
    drop(endless);
    nobody_waits_any_more(stage).await;

    // More headers than the link carries.
    let oversized = asker.ask(&stage.fault("headers")).await.unwrap();
    oversized.is_status(502, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_answers_wrongly_harms_only_who_asked_for_that() {
    let mut stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(&gateway, false), Song::Whole).await;
    everything_goes_wrong(&stage).await;
    let held = Held::now(&mut stage, &[], &AGENTS);
    for _ in 0..3 {
        everything_goes_wrong(&stage).await;
    }
    held.is_held_again().await;
    beside.noticed_nothing().await;
    elsewhere.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_takes_connections_and_says_nothing_is_named_as_the_one_at_fault() {
    let mut stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(&gateway, false), Song::Whole).await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = format!("https://{}", silent.local_addr().unwrap());
    let text = std::fs::read_to_string(stage.front.kubeconfig()).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = address.into();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    testkit::write_private(&kubeconfig, &config.to_string()).unwrap();
    stage.scene.kasbah.stop_agent(FAULTY).unwrap();
    let namespace = stage.scene.namespace.clone();
    stage.scene.kasbah.start_agent(FAULTY, FAULTY, &kubeconfig, &namespace).unwrap();
    let asker = stage.asker();
    // The agent may not be back yet.
    testkit::eventually(LIMIT, || async {
        let told = asker.ask(&stage.maps()).await?;
        let said = told.body["message"].as_str().unwrap_or_default();
        anyhow::ensure!(said.contains("the agent cannot reach the API server"), "{told:?}");
        Ok(())
    })
    .await;
    let held = Held::now(&mut stage, &[], &AGENTS);
    let any = stage.fault("any");
    let asked = (0..20).map(|_| asker.ask(&any));
    for told in futures::future::join_all(asked).await {
        told.unwrap().is_status(502, "the agent cannot reach the API server");
    }
    let session = asker.session(&stage.pod("echo", "exec?command=cat")).await;
    assert!(format!("{:#}", session.unwrap_err()).contains("502"), "a session is refused");
    held.is_held_again().await;
    elsewhere.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
    drop(silent);
}
