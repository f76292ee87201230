//! Records of different partitions come in any order, and the state is the same whichever it was: a fold of the log from its start reads
//! one partition after the other, and one that follows takes what comes.

use delivery::model::DeliveryState;
use events::observation::{Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::{InstanceId, Timestamp};
use store::{Projection as _, Record};
use uuid::Uuid;

use crate::given::{AGENT, Given, ORGANIZATION, source};

/// What a gateway says of an agent's tunnel: when it opened, and when it closed if it did.
struct Tunnel {
    gateway: u128,
    instance: u128,
    opened: i64,
    closed: Option<i64>,
}

impl Tunnel {
    fn records(&self) -> Vec<Record> {
        let gateway = InstanceId(Uuid::from_u128(self.gateway));
        let instance = InstanceId(Uuid::from_u128(self.instance));
        let opened = Observed::TunnelOpened { agent: AGENT, instance, version: "0.1.0".to_owned() };
        let closed = |_| Observed::TunnelClosed { agent: AGENT, instance, reason: "ended".to_owned() };
        let said = [(Some(self.opened), Some(opened)), (self.closed, self.closed.map(closed))];
        let said = said.into_iter().filter_map(|(at, what)| Some((at?, what?)));
        let partition = u16::try_from(self.gateway % 16).unwrap();
        (1..)
            .zip(said)
            .map(|(sequence, (at, what))| {
                let batch = ObservationBatch {
                    organization: ORGANIZATION,
                    writer: ObservationBatch::gateway_writer(gateway),
                    epoch: 1,
                    first: sequence,
                    observations: vec![Observation { at: Timestamp(at), what }],
                };
                let bytes = events::encode(&batch).unwrap().into();
                Record::new((Stream::Observations, partition), sequence, Timestamp(at), ORGANIZATION, bytes)
            })
            .collect()
    }
}

fn folded<'a>(before: &DeliveryState, tunnels: impl IntoIterator<Item = &'a Tunnel>) -> Vec<u8> {
    let mut state = DeliveryState::restore(DeliveryState::FOLD_VERSION, &before.snapshot().unwrap()).unwrap();
    for record in tunnels.into_iter().flat_map(Tunnel::records) {
        state.fold(&record);
    }
    state.snapshot().unwrap()
}

#[test]
fn gateways_are_folded_in_any_order() {
    let given = Given::agent_with(vec![source("shop")]);
    let tunnels = [
        Tunnel { gateway: 1, instance: 31, opened: 100, closed: Some(900) },
        Tunnel { gateway: 2, instance: 31, opened: 200, closed: Some(300) },
        Tunnel { gateway: 3, instance: 31, opened: 400, closed: None },
        Tunnel { gateway: 4, instance: 32, opened: 350, closed: None },
    ];
    let first = folded(&given.state, &tunnels);
    for turned in 0..tunnels.len() {
        let (later, sooner) = tunnels.split_at(turned);
        assert!(first == folded(&given.state, sooner.iter().chain(later)), "from {turned} on");
        assert!(first == folded(&given.state, sooner.iter().chain(later).rev()), "back to {turned}");
    }
}

#[test]
fn old_gateways_are_forgotten_in_any_order() {
    let given = Given::agent_with(vec![source("shop")]);
    let tunnel = |gateway: u128| Tunnel {
        gateway,
        instance: 31,
        opened: 100,
        closed: (gateway != 5).then_some(200 + i64::try_from(gateway).unwrap()),
    };
    let tunnels: Vec<Tunnel> = (1..1_100).map(tunnel).collect();
    let first = folded(&given.state, &tunnels);
    assert!(first == folded(&given.state, tunnels.iter().rev()), "backwards");
    assert!(first.len() < folded(&given.state, &tunnels[..1_000]).len() * 2, "it is bounded");
}
