//! What an agent does when its cluster leaves it alone for a while.

use std::time::Duration;

use agent::Agent;
use agent::kubernetes::Connections;
use agent::metrics::Counts;
use agent::outbox::Outbox;
use bytes::Bytes;
use chassis::ShutdownTrigger;
use events::configuration::{HealthSettings, Mode, ObserveRules, ResourceRules, SyncPolicies};
use events::desired::{Applier, DesiredSource, DesiredState, SourceHead};
use events::observation::Observed;
use events::{AgentId, CorrelationId, InstanceId, OrganizationId, SourceId, SyncId};
use http::Request;
use http_body_util::Full;
use tunnel::wire::{Acknowledged, path};
use world::World;

use crate::api_server::ApiServer;
use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{Executor, NodeId, Step, is_ended};
use crate::network::Internet;
use crate::process::world_of;

const SOON: Duration = Duration::from_millis(100);

/// A state with one source that has no objects.
fn desired(agent: AgentId, instance: InstanceId) -> DesiredState {
    let source = SourceId::derive(agent, "shop");
    let head = SourceHead {
        source,
        name: "shop".to_owned(),
        sync: SyncId(source.0),
        check_all: false,
        commit: "0123456789abcdef".to_owned(),
        correlation_id: CorrelationId(source.0),
        traceparent: None,
        suspended: false,
        removed: false,
        default_namespace: "default".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        finished: Vec::new(),
    };
    DesiredState {
        revision: 1,
        organization: OrganizationId(source.0),
        agent,
        applier: Some(Applier { instance, epoch: 1 }),
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        lockdown: false,
        replaces: Vec::new(),
        rejected: None,
        sources: vec![DesiredSource {
            pages: Some(Vec::new()),
            prune: Vec::new(),
            wanted: Vec::new(),
            head,
            refused: None,
        }],
    }
}

/// How often the inventory was stated.
fn statements(outbox: &Outbox) -> usize {
    let told = outbox.next(Acknowledged { epoch: 0, sequence: 0 });
    let told = told.into_iter().flat_map(|batch| batch.observations);
    told.filter(|one| matches!(one.what, Observed::InventoryStated { .. })).count()
}

async fn loses_its_lease(world: World, server: ApiServer, connections: Connections) {
    let (id, instance) = (AgentId(world.new_uuid()), InstanceId(world.new_uuid()));
    let agent = Agent::new(world.clone(), connections, None, Counts::default(), instance);
    let (service, outbox) = (agent.service(), agent.outbox());
    let (_trigger, shutdown) = ShutdownTrigger::new();
    world.spawner.spawn("agent", Box::pin(async move { agent.apply(shutdown).await }));
    let body = Full::new(Bytes::from(events::encode(&desired(id, instance)).unwrap()));
    service.answer(Request::put(path::DESIRED).body(body).unwrap()).await.unwrap();
    while statements(&outbox) == 0 {
        world.clock.sleep(SOON).await;
    }
    server.fail(Duration::from_secs(20));
    world.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!((outbox.epoch(), statements(&outbox)), (1, 2));
}

#[test]
fn who_gets_its_lease_back_states_what_is_there_again() {
    for seed in 1..=3 {
        let executor = Executor::new(Dice::new(seed));
        let life = executor.start(NodeId(0));
        let world = world_of(&executor, &Internet::new(&executor), life, &MemoryDisk::default());
        let server = ApiServer::new(&executor, Box::new(|_, _| {}));
        let connections = Connections::over(&server.door(life, false), "default");
        let working = loses_its_lease(world, server, connections);
        let (outcome, _) = executor.spawn(life, "test", Box::pin(working));
        while !is_ended(&outcome) {
            assert_ne!(executor.step(), Step::Idle, "nothing happens any more");
        }
        assert_eq!(executor.panics(), Vec::<String>::new());
    }
}
