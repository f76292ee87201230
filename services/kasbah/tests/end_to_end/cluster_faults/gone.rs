//! Gateways, agents and people that stand still, die or go, and ways between them that fall silent.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::Signal;
use testkit::{Balancer, InstallationOptions, NatsServer, Process, Proxy, Tools, eventually};

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, admin, metric, nothing_is_open};
use super::going_on::{Ending, GoingOn};
use super::stage::{Asker, FAULTY, Stage};
use crate::scene::{AGENT, LIMIT};

const GATEWAY: &str = "tunnel-gateway-1";
const OTHER_GATEWAY: &str = "tunnel-gateway-2";
/// Each way, and so twice as much for each request.
const SLOW: Duration = Duration::from_millis(40);
/// One of so many pieces is lost on a lossy way.
const LOST: usize = 5;
/// Long enough to open everything with it.
const TOKEN_LIVES: &str = "20s";

/// Asks until there is an answer that is no success, and gives it.
async fn is_refused_in_time(asker: &Asker, path: &str) {
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
    asker.ask(&stage.maps()).await.unwrap().is_status(401, "");
    stage.open_at_the_front(0).await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}

/// Two gateways over NATS: the faulty agent at the first one, from which it comes to the other, the calm one at that for good. So
/// many connections may stand beside its tunnel, of which the first is at the other gateway.
async fn on_two_gateways(bulk: usize) -> (NatsServer, Balancer, Stage) {
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let each_service = Some((2, vec![nats.shipped_url("{service}")]));
    let variables = vec![("KASBAH_TUNNEL_BULK_PER_AGENT".to_owned(), bulk.to_string())];
    let options = InstallationOptions { each_service, variables, ..InstallationOptions::default() };
    let mut stage = Stage::prepare(options).await;
    let kasbah = &mut stage.scene.kasbah;
    let gateways = kasbah.replicas().unwrap().gateways();
    kasbah.stop_agent("agent").unwrap();
    kasbah.let_agents_dial(gateways[1].to_string());
    let namespace = stage.scene.namespace.clone();
    kasbah.start_agent("agent", AGENT, stage.scene.cluster.kubeconfig(), &namespace).unwrap();
    // The second one is first in turn.
    let to_the_first = Balancer::start(vec![gateways[1], gateways[0]]).unwrap();
    kasbah.let_agents_dial(to_the_first.address().to_string());
    stage.start_faulty();
    for gateway in at_gateways(&mut stage) {
        stage.faulty_answers(&gateway).await;
    }
    (nats, to_the_first, stage)
}

fn at_gateways(stage: &mut Stage) -> Vec<String> {
    let gateways = stage.scene.kasbah.replicas().unwrap().cluster_gateways();
    gateways.iter().map(|gateway| format!("https://{gateway}")).collect()
}

fn admin_of(stage: &mut Stage, gateway: &str) -> String {
    stage.scene.kasbah.replicas().unwrap().admin(gateway).unwrap().to_string()
}

/// What was open there ends, as that of others does over a hop; the agent comes to the other gateway, where all goes on.
async fn a_gateway_goes(go: impl Fn(&mut testkit::Replicas)) -> Ending {
    let (_nats, _balancer, mut stage) = on_two_gateways(0).await;
    let gateways = at_gateways(&mut stage);
    let elsewhere = stage.canary_at(&gateways[1], false);
    let elsewhere = Canary::begin(&stage, "elsewhere", elsewhere, Song::Whole).await;
    let (there, here) = (stage.asker_at(&gateways[0]), stage.asker_at(&gateways[1]));
    let at_it = GoingOn::begin(&stage, &there).await;
    let over_a_hop = GoingOn::begin(&stage, &here).await;
    let held = Held::now(&mut stage, &[OTHER_GATEWAY], &AGENTS);
    go(stage.scene.kasbah.replicas().unwrap());
    let ending = at_it.ends().await;
    over_a_hop.ends().await;
    stage.faulty_answers(&gateways[1]).await;
    let mut again = GoingOn::begin(&stage, &here).await;
    stage.scene.kasbah.replicas().unwrap().start_again(GATEWAY).await.unwrap();
    again.goes_on(&stage, "beside-its-return").await.unwrap();
    drop(again);
    stage.open_at_the_front(0).await;
    elsewhere.noticed_nothing().await;
    let admin = admin_of(&mut stage, OTHER_GATEWAY);
    nothing_is_open(&admin).await;
    held.is_held_again().await;
    ending
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_at_a_gateway_that_dies_breaks_off_and_its_agent_comes_to_another() {
    let ending = a_gateway_goes(|replicas| replicas.kill(GATEWAY).unwrap()).await;
    assert_eq!(ending, Ending::BrokenOff);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_asked_to_stop_ends_watches_in_order() {
    let ending = a_gateway_goes(|replicas| replicas.stop(GATEWAY).unwrap()).await;
    assert_eq!(ending, Ending::InOrder);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_beside_the_tunnel_outlives_the_gateway_that_has_the_tunnel() {
    let (_nats, _balancer, mut stage) = on_two_gateways(1).await;
    let other = admin_of(&mut stage, OTHER_GATEWAY);
    eventually(LIMIT, || async {
        let open = metric(&other, "kasbah_tunnel_gateway_bulk_connections")?;
        ensure!(open == 1, "{open} connections beside tunnels");
        Ok(())
    })
    .await;
    let gateways = at_gateways(&mut stage);
    let mut open = GoingOn::begin(&stage, &stage.asker_at(&gateways[1])).await;
    stage.scene.kasbah.replicas().unwrap().kill(GATEWAY).unwrap();
    open.goes_on(&stage, "without-it").await.unwrap();
    stage.scene.kasbah.replicas().unwrap().start_again(GATEWAY).await.unwrap();
    open.goes_on(&stage, "beside-its-return").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nats_is_away_those_whom_the_gateway_knows_go_on() {
    nats_goes(NatsServer::kill, async |nats| nats.start_again().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nats_is_cut_off_those_whom_the_gateway_knows_go_on() {
    let signal = |nats: &mut NatsServer, signal| nats.process().unwrap().signal(signal);
    nats_goes(|nats| signal(nats, Signal::STOP), async |nats| signal(nats, Signal::CONT)).await;
}

async fn nats_goes(goes: impl FnOnce(&mut NatsServer), comes_back: impl AsyncFnOnce(&mut NatsServer)) {
    let (mut nats, _balancer, mut stage) = on_two_gateways(0).await;
    let gateways = at_gateways(&mut stage);
    let known = stage.asker_at(&gateways[0]);
    let mut open = GoingOn::begin(&stage, &known).await;
    let mut over_a_hop = GoingOn::begin(&stage, &stage.asker_at(&gateways[1])).await;
    // Somebody whom the gateway has just come to know.
    let (_, known) = stage.with_another_token_at(&gateways[0]);
    known.reads(&stage.maps()).await.unwrap();
    goes(&mut nats);
    for number in 0..50 {
        known.reads(&stage.maps()).await.unwrap_or_else(|error| panic!("request {number}: {error:#}"));
    }
    open.goes_on(&stage, "nats-is-away").await.unwrap();
    over_a_hop.goes_on(&stage, "nats-is-away").await.unwrap_err();
    over_a_hop.ends().await;
    // Whom nobody knows nobody can look up now, and a way to another gateway cannot be found either.
    let stranger = stage.canary_at(&gateways[0], true);
    for asker in [&stranger, &stage.asker_at(&gateways[1])] {
        asker.ask(&stage.maps()).await.unwrap().is_status(503, "");
    }
    comes_back(&mut nats).await;
    for gateway in &gateways {
        stage.faulty_answers(gateway).await;
    }
    let maps = stage.maps();
    eventually(LIMIT, || stranger.reads(&maps)).await;
    open.goes_on(&stage, "nats-is-back").await.unwrap();
    let path = format!("{}?fieldSelector=metadata.name%3Dx", stage.maps());
    known.reads(&path).await.unwrap();
    stage.scene.kasbah.replicas().unwrap().must_run().unwrap();
}
