//! Gateways that stand still, die or stop, and NATS between them.

use anyhow::ensure;
use rustix::process::Signal;
use testkit::{Balancer, InstallationOptions, NatsServer, Replicas, eventually, wrong_clock};

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, metric, nothing_is_open};
use super::going_on::{Ending, GoingOn};
use super::gone::is_refused_in_time;
use super::stage::Stage;
use crate::scene::{AGENT, LIMIT};

/// The one to which the faulty agent comes first.
pub const GATEWAY: &str = "tunnel-gateway-1";
/// The one at which the calm agent is for good.
pub const OTHER_GATEWAY: &str = "tunnel-gateway-2";

/// Seconds: more than an agent grants the issuer of a pass, and than a pass lives.
const WRONG: i64 = 90;

/// What is particular to two gateways.
#[derive(Default)]
pub struct Pair {
    /// So many connections may stand beside the faulty agent's tunnel, of which the first is at the other gateway.
    pub bulk: usize,
    /// Further settings of all services.
    pub variables: Vec<(String, String)>,
    /// By how many seconds the clock of each is wrong.
    pub clocks: Option<[i64; 2]>,
}

/// Two gateways over NATS: the faulty agent at the first one, from which it comes to the other, the calm one at that for good.
pub async fn on_two_gateways(pair: Pair) -> (NatsServer, Balancer, Stage) {
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let each_service = Some((2, vec![nats.shipped_url("{service}")]));
    let mut variables = pair.variables;
    variables.push(("KASBAH_TUNNEL_BULK_PER_AGENT".to_owned(), pair.bulk.to_string()));
    let options = InstallationOptions { each_service, variables, ..InstallationOptions::default() };
    let mut stage = Stage::prepare(options).await;
    let kasbah = &mut stage.scene.kasbah;
    let gateways = kasbah.replicas().unwrap().gateways();
    kasbah.stop_agent("agent").unwrap();
    for (gateway, off) in [GATEWAY, OTHER_GATEWAY].into_iter().zip(pair.clocks.into_iter().flatten()) {
        has_a_wrong_clock(kasbah.replicas().unwrap(), gateway, off).await;
    }
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

/// From its next start on, and it starts now.
async fn has_a_wrong_clock(replicas: &mut Replicas, gateway: &str, off: i64) {
    for (variable, value) in wrong_clock(off).unwrap() {
        replicas.set_variable(gateway, &variable, &value).unwrap();
    }
    replicas.stop(gateway).unwrap();
    replicas.start_again(gateway).await.unwrap();
}

pub fn at_gateways(stage: &mut Stage) -> Vec<String> {
    let gateways = stage.scene.kasbah.replicas().unwrap().cluster_gateways();
    gateways.iter().map(|gateway| format!("https://{gateway}")).collect()
}

pub fn admin_of(stage: &mut Stage, gateway: &str) -> String {
    stage.scene.kasbah.replicas().unwrap().admin(gateway).unwrap().to_string()
}

/// What was open there ends, as that of others does over a hop; the agent comes to the other gateway, where all goes on.
async fn a_gateway_goes(pair: Pair, go: impl Fn(&mut Replicas)) -> Ending {
    let (_nats, _balancer, mut stage) = on_two_gateways(pair).await;
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
    elsewhere.noticed_nothing().await;
    nothing_is_left(&mut stage, &held, &[OTHER_GATEWAY]).await;
    ending
}

/// What was open is gone everywhere, and what it took is given back.
async fn nothing_is_left(stage: &mut Stage, held: &Held, gateways: &[&str]) {
    stage.open_at_the_front(0).await;
    for gateway in gateways {
        nothing_is_open(&admin_of(stage, gateway)).await;
    }
    held.is_held_again().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_at_a_gateway_that_dies_breaks_off_and_its_agent_comes_to_another() {
    let ending = a_gateway_goes(Pair::default(), |replicas| replicas.kill(GATEWAY).unwrap()).await;
    assert_eq!(ending, Ending::BrokenOff);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_asked_to_stop_ends_watches_in_order() {
    let ending = a_gateway_goes(Pair::default(), |replicas| replicas.stop(GATEWAY).unwrap()).await;
    assert_eq!(ending, Ending::InOrder);
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_whose_clocks_are_wrong_disturb_nobody() {
    if let Err(error) = wrong_clock(0) {
        println!("skipped: {error}");
        return;
    }
    // The first is ahead: by time, what it said of its agent would come before what the second says of it later.
    for clocks in [[WRONG, -WRONG], [-WRONG, WRONG]] {
        let pair = Pair { clocks: Some(clocks), ..Pair::default() };
        let ending = a_gateway_goes(pair, |replicas| replicas.stop(GATEWAY).unwrap()).await;
        assert_eq!(ending, Ending::InOrder, "{clocks:?}");
    }
}

async fn there_is_one_beside_the_tunnel(stage: &mut Stage) {
    let other = admin_of(stage, OTHER_GATEWAY);
    eventually(LIMIT, || async {
        let open = metric(&other, "kasbah_tunnel_gateway_bulk_connections")?;
        ensure!(open == 1, "{open} connections beside tunnels");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_beside_the_tunnel_outlives_the_gateway_that_has_the_tunnel() {
    let (_nats, _balancer, mut stage) = on_two_gateways(Pair { bulk: 1, ..Pair::default() }).await;
    there_is_one_beside_the_tunnel(&mut stage).await;
    let gateways = at_gateways(&mut stage);
    let mut open = GoingOn::begin(&stage, &stage.asker_at(&gateways[1])).await;
    stage.scene.kasbah.replicas().unwrap().kill(GATEWAY).unwrap();
    open.goes_on(&stage, "without-it").await.unwrap();
    stage.scene.kasbah.replicas().unwrap().start_again(GATEWAY).await.unwrap();
    open.goes_on(&stage, "beside-its-return").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_beside_the_tunnel_ends_in_order_with_a_gateway_that_is_asked_to_stop() {
    let (_nats, _balancer, mut stage) = on_two_gateways(Pair { bulk: 1, ..Pair::default() }).await;
    there_is_one_beside_the_tunnel(&mut stage).await;
    let gateways = at_gateways(&mut stage);
    let beside = GoingOn::begin(&stage, &stage.asker_at(&gateways[1])).await;
    let mut over_the_tunnel = GoingOn::begin(&stage, &stage.asker_at(&gateways[0])).await;
    stage.scene.kasbah.replicas().unwrap().stop(OTHER_GATEWAY).unwrap();
    assert_eq!(beside.ends().await, Ending::InOrder);
    over_the_tunnel.goes_on(&stage, "without-it").await.unwrap();
    stage.scene.kasbah.replicas().unwrap().start_again(OTHER_GATEWAY).await.unwrap();
    stage.faulty_answers(&gateways[1]).await;
    over_the_tunnel.goes_on(&stage, "beside-its-return").await.unwrap();
    drop(over_the_tunnel);
    stage.open_at_the_front(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stands_still_is_found_out_and_what_it_knew_misleads_nobody_when_it_goes_on() {
    let (_nats, _balancer, mut stage) = on_two_gateways(Pair::default()).await;
    let gateways = at_gateways(&mut stage);
    let elsewhere = stage.canary_at(&gateways[1], false);
    let elsewhere = Canary::begin(&stage, "elsewhere", elsewhere, Song::Whole).await;
    let (there, here) = (stage.asker_at(&gateways[0]), stage.asker_at(&gateways[1]));
    let over_a_hop = GoingOn::begin(&stage, &here).await;
    let held = Held::now(&mut stage, &[OTHER_GATEWAY], &AGENTS);
    let stands_still = stage.scene.kasbah.replicas().unwrap();
    stands_still.signal(GATEWAY, Signal::STOP).unwrap();
    // It answers nobody, and everybody still believes that it has the tunnel.
    is_refused_in_time(&here, &stage.maps()).await;
    over_a_hop.ends().await;
    stage.faulty_answers(&gateways[1]).await;
    let mut again = GoingOn::begin(&stage, &here).await;
    stage.scene.kasbah.replicas().unwrap().signal(GATEWAY, Signal::CONT).unwrap();
    // It believes so itself now.
    there.reads(&stage.maps()).await.unwrap();
    again.goes_on(&stage, "beside-its-return").await.unwrap();
    drop(again);
    elsewhere.noticed_nothing().await;
    nothing_is_left(&mut stage, &held, &[GATEWAY, OTHER_GATEWAY]).await;
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
    let (mut nats, _balancer, mut stage) = on_two_gateways(Pair::default()).await;
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
