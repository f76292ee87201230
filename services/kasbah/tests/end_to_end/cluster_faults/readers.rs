//! Readers that stand still.

use anyhow::bail;
use futures::future::join_all;
use reqwest::Response;
use testkit::eventually;

use super::canary::{Canary, Song};
use super::flat::{AGENTS, Held, admin, metric, nothing_is_open};
use super::gateways::{GATEWAY, OTHER_GATEWAY, Pair, admin_of, at_gateways, on_two_gateways};
use super::stage::{Asker, FAULTY, Stage, told};
use crate::scene::{LIMIT, Scene};

const SIZES: [usize; 4] = [1, 32, 128, 64 * 1024];
/// Of each size: they fill whatever can be filled.
const STALLED: usize = 8;
/// Rounds before it is compared.
const ROUNDS_AT_FIRST: usize = 2;
/// What a tunnel carries at a time.
const CAP: usize = 800;
/// More than a tunnel and one connection beside it carry together.
const MANY: usize = 2000;
/// Opened at the same time, so that no connection waits long for its handshake.
const TOGETHER: usize = 40;

/// The gateway's own limits would come before those of connections.
const WHOSE_LIMITS: [&str; 3] = ["agent", "user", "organization"];

fn without_limits() -> Vec<String> {
    WHOSE_LIMITS.map(|whose| format!("--clusters-open-per-{whose}=0")).to_vec()
}

/// Readers at a gateway that never read, on connections of both kinds.
async fn stalled(stage: &Stage, gateway: &str, kind: &str, count: usize) -> Vec<Response> {
    let mut opened: Vec<Response> = Vec::new();
    while opened.len() < count {
        // One connection of HTTP/2 for some of them, and one each for the others.
        let asker: Asker = stage.asker_at(gateway);
        let some = TOGETHER.min(count - opened.len());
        let opening = (0..some).map(|number| {
            let (asker, on_http2) = (asker.clone(), number % 2 == 0);
            let size = SIZES[number % SIZES.len()];
            let path = stage.pod(&format!("{kind}-{size}"), "log?follow=true");
            async move { opened_at_last(&asker, &path, on_http2).await }
        });
        opened.extend(join_all(opening).await);
    }
    opened
}

/// A stream that is open. A machine that is busy may not find the other gateway in time, and what was open before may be open there
/// still: both is said, and tried again.
async fn opened_at_last(asker: &Asker, path: &str, on_http2: bool) -> Response {
    let opened = eventually(LIMIT, || async {
        let answer = if on_http2 { asker.open_on_http2(path).await? } else { asker.open(path).await? };
        let status = answer.status();
        match status.as_u16() {
            429 | 503 => bail!("{}", answer.text().await?),
            200 => anyhow::Ok(Ok(answer)),
            _ => Ok(Err(format!("{status}: {}", answer.text().await?))),
        }
    });
    opened.await.unwrap()
}

/// Where readers stand still: at which gateway, and which others hold nothing of it afterwards.
struct Place {
    gateway: String,
    admins: Vec<String>,
    replicas: &'static [&'static str],
}

impl Place {
    fn of_one_process(stage: &Stage) -> Self {
        Self { gateway: stage.scene.kasbah.clusters(), admins: vec![admin(stage)], replicas: &[] }
    }

    /// At the gateway without the tunnel.
    fn over_a_hop(stage: &mut Stage) -> Self {
        let replicas = &[GATEWAY, OTHER_GATEWAY];
        let admins = replicas.iter().map(|gateway| admin_of(stage, gateway)).collect();
        Self { gateway: at_gateways(stage).remove(1), admins, replicas }
    }

    async fn has_nothing_open(&self) {
        for admin in &self.admins {
            nothing_is_open(admin).await;
        }
    }
}

/// What was held after the first rounds, which are what processes keep of having done it at all. How much waits where, and so how much they
/// keep, is chance: the most of them counts.
#[derive(Default)]
struct Rounds {
    ended: usize,
    held: Option<Held>,
}

impl Rounds {
    /// After the last round no more is held than after those before.
    async fn ends_one(&mut self, stage: &mut Stage, place: &Place) {
        self.ended += 1;
        let now = Held::now(stage, place.replicas, &AGENTS);
        match self.held.take() {
            Some(held) if self.ended > ROUNDS_AT_FIRST => held.is_held_again().await,
            Some(before) => self.held = Some(before.or_more(now)),
            None => self.held = Some(now),
        }
    }
}

async fn dust_holds_nobody_up(mut stage: Stage, place: Place) {
    let gateway = &place.gateway;
    let beside = Canary::begin(&stage, "beside", stage.canary_at(gateway, true), Song::Whole).await;
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(gateway, false), Song::Whole).await;
    let mut held = Rounds::default();
    for _ in 0..=ROUNDS_AT_FIRST {
        let readers = stalled(&stage, gateway, "flood", STALLED * SIZES.len()).await;
        stage.everything_is_full().await;
        assert_eq!(stage.front.open(), STALLED * SIZES.len(), "none was ended");
        let read = stage.asker_at(gateway).reads(&stage.maps()).await.unwrap();
        assert_eq!(read["kind"], "ConfigMapList");
        drop(readers);
        stage.open_at_the_front(0).await;
        held.ends_one(&mut stage, &place).await;
    }
    beside.noticed_nothing().await;
    elsewhere.noticed_nothing().await;
    place.has_nothing_open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_dust_that_stand_still_hold_nobody_up() {
    let stage = Stage::start().await;
    let place = Place::of_one_process(&stage);
    dust_holds_nobody_up(stage, place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_dust_that_stand_still_over_a_hop_hold_nobody_up() {
    let (_nats, _balancer, mut stage) = on_two_gateways(Pair::default()).await;
    let place = Place::over_a_hop(&mut stage);
    dust_holds_nobody_up(stage, place).await;
}

async fn a_full_tunnel_says_so(mut stage: Stage, place: Place) {
    let gateway = &place.gateway;
    let beside = Canary::begin(&stage, "beside", stage.canary_at(gateway, true), Song::Watch).await;
    let elsewhere = Canary::begin(&stage, "elsewhere", stage.canary_at(gateway, false), Song::Whole).await;
    let mut held = Rounds::default();
    for round in 0..=ROUNDS_AT_FIRST {
        // The canary's watch is one of them.
        let readers = stalled(&stage, gateway, "drip", CAP - 1).await;
        stage.open_at_the_front(CAP - 1).await;
        for on_http2 in [false, true] {
            let asker = stage.asker_at(gateway);
            let refused = match on_http2 {
                false => asker.open(&stage.maps()).await.unwrap(),
                true => asker.open_on_http2(&stage.maps()).await.unwrap(),
            };
            assert_eq!(refused.headers().get("retry-after").unwrap(), "1");
            told(refused).await.unwrap().is_status(429, "too many requests are open in this cluster");
        }
        let (name, value) = ("desired", round.to_string());
        stage.scene.tree.write(&format!("{FAULTY}/{name}.yaml"), Scene::config_map(name, &value)).unwrap();
        stage.scene.tree.commit_and_push("what the agent is to have").unwrap();
        stage.scene.value_becomes(name, &value).await;
        assert_eq!(stage.front.open(), CAP - 1, "none was ended");
        drop(readers);
        stage.open_at_the_front(0).await;
        stage.faulty_answers(gateway).await;
        held.ends_one(&mut stage, &place).await;
    }
    beside.noticed_nothing().await;
    elsewhere.noticed_nothing().await;
    place.has_nothing_open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_tunnel_says_so_and_still_brings_what_the_agent_is_to_have() {
    let mut options = without_limits();
    options.push("--tunnel-bulk-per-agent=0".to_owned());
    let stage = Stage::start_with(options).await;
    let place = Place::of_one_process(&stage);
    a_full_tunnel_says_so(stage, place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_that_is_full_of_readers_over_a_hop_says_so() {
    let without_limits = WHOSE_LIMITS
        .map(|whose| (format!("KASBAH_CLUSTERS_OPEN_PER_{}", whose.to_uppercase()), "0".to_owned()));
    let (_nats, _balancer, mut stage) =
        on_two_gateways(Pair { variables: without_limits.to_vec(), ..Pair::default() }).await;
    let place = Place::over_a_hop(&mut stage);
    a_full_tunnel_says_so(stage, place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_more_than_a_connection_takes_goes_over_further_ones() {
    let stage = Stage::start_with(without_limits()).await;
    let gateway = stage.scene.kasbah.clusters();
    let beside = Canary::begin(&stage, "beside", stage.canary_at(&gateway, true), Song::Whole).await;
    let readers = stalled(&stage, &gateway, "drip", MANY).await;
    stage.open_at_the_front(MANY).await;
    let connections = metric(&admin(&stage), "kasbah_tunnel_gateway_bulk_connections").unwrap();
    assert!((2..=4).contains(&connections), "{connections} connections beside the tunnel");
    drop(readers);
    stage.open_at_the_front(0).await;
    beside.noticed_nothing().await;
    nothing_is_open(&admin(&stage)).await;
}
