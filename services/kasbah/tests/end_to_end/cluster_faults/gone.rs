//! Agents and people that stand still, die or go, and ways between them that fall silent.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::Signal;
use testkit::{InstallationOptions, Process, Proxy, Tools, eventually};

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, admin, nothing_is_open};
use super::going_on::{Ending, GoingOn};
use super::stage::{Asker, FAULTY, Stage};
use crate::scene::LIMIT;

/// Each way, and so twice as much for each request.
const SLOW: Duration = Duration::from_millis(40);
/// One of so many pieces is lost on a lossy way.
const LOST: usize = 5;
/// Long enough to open everything with it.
const TOKEN_LIVES: &str = "20s";

/// Asks, and is told that it cannot be.
pub async fn is_refused_in_time(asker: &Asker, path: &str) {
    let told = asker.ask(path).await.unwrap();
    assert!((502..=504).contains(&told.code.as_u16()), "{told:?}");
    told.is_status(told.code.as_u16(), "Kasbah's");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stands_still_is_missed_by_none_but_its_own() {
    let mut stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let asker = stage.asker();
    // Everything was in use once.
    drop(GoingOn::begin(&stage, &asker).await);
    stage.open_at_the_front(0).await;
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(&gateway, false), Song::Whole).await;
    let held = Held::now(&mut stage, &[], &AGENTS);
    let open = GoingOn::begin(&stage, &asker).await;
    stage.scene.kasbah.agent(FAULTY).unwrap().signal(Signal::STOP);
    // Who asked before anybody can know that it stands still is told once that is known.
    is_refused_in_time(&asker, &stage.maps()).await;
    assert_eq!(open.ends().await, Ending::BrokenOff);
    // And who asks then, at once or after the time that agents get to come back.
    is_refused_in_time(&asker, &stage.maps()).await;
    stage.scene.kasbah.agent(FAULTY).unwrap().signal(Signal::CONT);
    stage.faulty_answers(&gateway).await;
    stage.open_at_the_front(0).await;
    held.is_held_again().await;
    elsewhere.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_or_lossy_way_is_only_slow_and_a_silent_one_is_given_up() {
    let mut stage = Stage::prepare(InstallationOptions::default()).await;
    let way = Proxy::start(([127, 0, 0, 1], stage.scene.kasbah.tunnel_port()).into()).unwrap();
    stage.scene.kasbah.let_agents_dial(way.address().to_string());
    stage.start_faulty();
    let gateway = stage.scene.kasbah.clusters();
    stage.faulty_answers(&gateway).await;
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(&gateway, false), Song::Whole).await;
    let asker = stage.asker();
    let mut open = GoingOn::begin(&stage, &asker).await;
    way.delay(SLOW);
    open.goes_on(&stage, "slow").await.unwrap();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    beside.noticed_nothing().await;
    way.delay(Duration::ZERO);
    way.lose(LOST);
    open.goes_on(&stage, "lossy").await.unwrap();
    let beside = Canary::begin(&stage, "beside-losses", stage.canary_at(&gateway, true), Song::Whole).await;
    open.goes_on(&stage, "still-lossy").await.unwrap();
    beside.noticed_nothing().await;
    way.lose(0);
    way.silence(true);
    is_refused_in_time(&asker, &stage.maps()).await;
    assert_eq!(open.ends().await, Ending::BrokenOff);
    way.silence(false);
    stage.faulty_answers(&gateway).await;
    let mut again = GoingOn::begin(&stage, &asker).await;
    // What a balancer cuts is dialled again at once.
    way.cut();
    again.goes_on(&stage, "cut").await.unwrap_err();
    again.ends().await;
    stage.faulty_answers(&gateway).await;
    stage.open_at_the_front(0).await;
    elsewhere.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubectl_that_stands_still_holds_nobody_up_and_goes_on_where_it_stood() {
    let mut stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    let held = Held::now(&mut stage, &[], &AGENTS);
    let kubeconfig = stage.scene.tree.path().join("../kubeconfig-of-the-faulty");
    let printed = stage.scene.kasbah.cli(["kubeconfig", "--agent", FAULTY, "--print"]).unwrap();
    testkit::write_private(&kubeconfig, &printed).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"exec "$0" "$@" > /dev/null"#])
        .arg(Tools::find().unwrap().path("kubectl").unwrap());
    let variables = stage.scene.kasbah.cli_command().unwrap();
    command.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg("--kubeconfig").arg(&kubeconfig).args(["get", "--raw"]).arg(stage.fault("flood-4096"));
    let mut kubectl = Process::spawn("kubectl", command, &kubeconfig.with_extension("log")).unwrap();
    let flows = async |than: u64| {
        eventually(LIMIT, || async {
            let sent = stage.front.sent();
            ensure!(sent > than + 10_000_000, "{sent} bytes after {than}");
            Ok(())
        })
        .await;
    };
    flows(0).await;
    kubectl.signal(Signal::STOP);
    stage.everything_is_full().await;
    stage.asker().reads(&stage.maps()).await.unwrap();
    kubectl.signal(Signal::CONT);
    flows(stage.front.sent()).await;
    kubectl.signal(Signal::STOP);
    stage.everything_is_full().await;
    kubectl.kill();
    stage.open_at_the_front(0).await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
    held.is_held_again().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_revoked_takes_what_is_open_with_it_and_nothing_of_others() {
    let stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    let (token, asker) = stage.with_another_token();
    let open = GoingOn::begin(&stage, &asker).await;
    stage.scene.kasbah.cli(["token", "revoke", &token]).unwrap();
    let revoked = Instant::now();
    assert_eq!(open.ends().await, Ending::BrokenOff);
    println!("ended {:?} after the revocation was answered", revoked.elapsed());
    // An upload that broke off takes its connection with it, a moment after the answer.
    let asker = asker.on_other_connections(&stage.scene.kasbah);
    asker.ask(&stage.maps()).await.unwrap().is_status(401, "");
    stage.open_at_the_front(0).await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_by_itself_takes_what_is_open_with_it_and_nothing_of_others() {
    let stage = Stage::start().await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    let asker = stage.with_a_token_for(TOKEN_LIVES);
    let open = GoingOn::begin(&stage, &asker).await;
    assert_eq!(open.ends().await, Ending::BrokenOff);
    // An upload that broke off takes its connection with it, a moment after the answer.
    let asker = asker.on_other_connections(&stage.scene.kasbah);
    asker.ask(&stage.maps()).await.unwrap().is_status(401, "");
    stage.open_at_the_front(0).await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}
