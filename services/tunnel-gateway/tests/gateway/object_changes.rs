//! Changes of objects that agents saw, on their way into their own stream.

use bytes::Bytes;
use events::observation::{Gone, ObjectBody, Observation, Observed, SeenObject};
use events::position::Stream;
use events::{BlobDigest, Sha256};
use testkit::eventually;
use tunnel::wire::Acknowledged;
use tunnel_gateway::Args;

use super::agent::{State, TestAgent};
use super::harness::{
    Gateway, LIMIT, agent_id, args, health, identity, instance, objects, observation, organization, secret,
};

/// An instance that tells of objects.
async fn observer(gateway: &Gateway, agent: u128, instance_number: u128) -> TestAgent {
    let state = State { observes: true, ..State::default() };
    let (target, instance) = (gateway.target(), instance(instance_number));
    let agent = TestAgent::connect_with(&gateway.world, &target, &secret(agent), instance, state).await;
    agent.events().await;
    agent
}

/// The same, once it was named.
async fn applier(gateway: &Gateway, agent: u128) -> TestAgent {
    let applier = observer(gateway, agent, 1).await;
    applier.lease().await;
    applier.changes_opened(1).await;
    applier
}

fn gone(number: u64) -> Observation {
    let (identity, uid) = (identity(&format!("object-{number}")), format!("uid-{number}"));
    observation(
        number,
        Observed::ObjectGone { identity, uid, resource_version: "7".to_owned(), why: Gone::Deleted },
    )
}

fn seen(digest: Sha256, body: ObjectBody) -> Observation {
    let object = SeenObject {
        identity: identity("large"),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        digest,
        body,
        writers: Vec::new(),
    };
    observation(1, Observed::ObjectSeen { object: Box::new(object) })
}

async fn stored(gateway: &Gateway, stream: Stream) -> Vec<Observation> {
    let batches = gateway.batches_of(stream).await.into_iter();
    let batches = batches.filter(|batch| batch.writer.starts_with("agent-"));
    batches.flat_map(|batch| batch.observations).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn they_have_a_stream_a_sequence_and_acknowledgements_of_their_own() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = applier(&gateway, 1).await;
    assert_eq!(agent.changes_opened(1).await, Acknowledged::default());
    agent.report(1, 1, vec![health(1, 1)]).await;
    for first in [1, 11, 21] {
        agent.report_changes(1, first, (first..first + 10).map(gone).collect()).await;
    }
    agent.changes_acknowledged(1, 30).await;
    agent.acknowledged(1, 1).await;
    assert_eq!(stored(&gateway, Stream::Objects).await, (1..=30).map(gone).collect::<Vec<_>>());
    assert_eq!(stored(&gateway, Stream::Observations).await, [health(1, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reconnect_they_go_on_where_the_log_ends() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let first = applier(&gateway, 1).await;
    first.report_changes(1, 1, (1..=10).map(gone).collect()).await;
    first.changes_acknowledged(1, 10).await;
    gateway.desire(1, 1, &objects(1, "wanted"), &[]).await;
    first.revision(1).await;
    first.link.abort();

    let second = observer(&gateway, 1, 1).await;
    assert_eq!(second.changes_opened(1).await, Acknowledged { epoch: 1, sequence: 10 });
    second.report_changes(1, 8, (8..=15).map(gone).collect()).await;
    second.changes_acknowledged(1, 15).await;
    assert_eq!(stored(&gateway, Stream::Objects).await, (1..=15).map(gone).collect::<Vec<_>>());
    second.report_changes(1, 17, vec![gone(17)]).await;
    let resumed = second.changes_opened(2).await;
    assert_eq!(resumed, Acknowledged { epoch: 1, sequence: 15 }, "what leaves a gap is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_instance_that_applies_is_asked() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire_silently(1, 1, &objects(1, "wanted"), &[]).await;
    let first = applier(&gateway, 1).await;
    let second = observer(&gateway, 1, 2).await;
    first.report_changes(1, 1, vec![gone(1)]).await;
    first.changes_acknowledged(1, 1).await;
    assert_eq!(second.state.lock().asked_for_changes, 0);

    second.lease().await;
    assert_eq!(second.changes_opened(1).await, Acknowledged { epoch: 1, sequence: 1 });
    gateway.announce(1, 2).await;
    let events = first.until("no stream", |state| state.changes.events.clone()).await;
    eventually(LIMIT, || async {
        let batch = tunnel::wire::Batch { epoch: 1, first: 2, observations: vec![gone(2)] };
        let sent = events.send(&tunnel::wire::EventFrame::Batch(batch)).await;
        if sent.is_err() { Ok(()) } else { Err("the stream of the former one is open") }
    })
    .await;
    second.report_changes(2, 1, vec![gone(3)]).await;
    second.changes_acknowledged(2, 1).await;
    let newest = stored(&gateway, Stream::Objects).await.pop();
    assert_eq!(newest, Some(gone(3)));
    assert_eq!(gateway.delivery.lock().appliers[&agent_id(1)].epoch, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_in_the_other_stream_becomes_a_gap_in_each() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = applier(&gateway, 1).await;
    agent.report(1, 1, vec![health(1, 1), gone(2), health(1, 3)]).await;
    agent.report_changes(1, 1, vec![gone(1), health(1, 2), gone(3)]).await;
    agent.acknowledged(1, 3).await;
    agent.changes_acknowledged(1, 3).await;
    let gap = observation(2, Observed::Gap { dropped: 0 });
    assert_eq!(stored(&gateway, Stream::Objects).await, [gone(1), gap.clone(), gone(3)]);
    assert_eq!(stored(&gateway, Stream::Observations).await, [health(1, 1), gap, health(1, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_knows_no_changes_of_objects_is_left_in_peace() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    agent.lease().await;
    agent.until("not asked", |state| (state.asked_for_changes > 0).then_some(())).await;
    for sequence in 1..=50 {
        agent.report(1, sequence, vec![health(1, sequence)]).await;
        agent.acknowledged(1, sequence).await;
    }
    assert_eq!(agent.state.lock().asked_for_changes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_is_a_blob_that_is_there_before_the_change_that_names_it() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = applier(&gateway, 1).await;
    let body = Bytes::from(format!("{{\"data\":\"{}\"}}", "x".repeat(700_000)));
    let (digest, absent, wrong) = (Sha256::of(&body), Sha256::of(b"absent"), Sha256::of(b"wrong"));
    agent.state.lock().bodies.extend([(digest, body.clone()), (wrong, body.clone())]);
    let bytes = body.len() as u64;
    let forged = Some(BlobDigest([9; 32]));
    let sent = [(digest, None), (digest, forged), (absent, None), (absent, forged), (wrong, None)];
    let sent = sent.map(|(digest, blob)| seen(digest, ObjectBody::Blob { blob, bytes }));
    agent.report_changes(1, 1, sent.to_vec()).await;
    agent.changes_acknowledged(1, 5).await;

    let address = gateway.store.blobs.address(organization(), digest).await.unwrap();
    let expected =
        [(digest, Some(address)), (digest, Some(address)), (absent, None), (absent, None), (wrong, None)];
    let expected = expected.map(|(digest, blob)| seen(digest, ObjectBody::Blob { blob, bytes }));
    assert_eq!(stored(&gateway, Stream::Objects).await, expected);
    assert_eq!(gateway.store.blobs.get(organization(), address).await.unwrap(), body);

    // What is stored is not asked for again.
    agent.state.lock().bodies.clear();
    agent.report_changes(1, 6, vec![seen(digest, ObjectBody::Blob { blob: None, bytes })]).await;
    agent.changes_acknowledged(1, 6).await;
    assert_eq!(stored(&gateway, Stream::Objects).await[5], expected[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_cannot_be_had_now_is_asked_for_again_with_its_batch() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = applier(&gateway, 1).await;
    let body = Bytes::from("x".repeat(700_000));
    let (digest, bytes) = (Sha256::of(&body), body.len() as u64);
    {
        let mut state = agent.state.lock();
        state.bodies.insert(digest, body);
        state.blind_for_bodies = 1;
    }
    let change = |blob| seen(digest, ObjectBody::Blob { blob, bytes });
    agent.report_changes(1, 1, vec![change(None)]).await;
    assert_eq!(agent.changes_opened(2).await, Acknowledged::default(), "it is not in the log");
    agent.report_changes(1, 1, vec![change(None)]).await;
    agent.changes_acknowledged(1, 1).await;
    let address = gateway.store.blobs.address(organization(), digest).await.unwrap();
    assert_eq!(stored(&gateway, Stream::Objects).await, [change(Some(address))]);
}

/// Agents 1 and 2 flood the gateway with changes of objects, while their observations go on; says which changes came through.
async fn flooded(args: Args) -> Vec<Observation> {
    let gateway = Gateway::start_with(args).await;
    let mut agents = Vec::new();
    for number in [1, 2] {
        gateway.register(number).await;
        agents.push((number, applier(&gateway, number).await));
    }
    let large = ObjectBody::Json("x".repeat(400_000));
    for (number, agent) in &agents {
        let digest = Sha256::of(&number.to_be_bytes());
        agent.report_changes(1, 1, vec![seen(digest, large.clone())]).await;
        agent.report_changes(1, 2, vec![gone(2)]).await;
    }
    for sequence in 1..=100 {
        for (number, agent) in &agents {
            agent.report(1, sequence, vec![health(*number, sequence)]).await;
            agent.acknowledged(1, sequence).await;
        }
    }
    stored(&gateway, Stream::Objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_waits_for_its_rate_and_holds_up_no_observation() {
    let of_one_agent = flooded(Args { tunnel_object_rate: 1, ..args() }).await;
    assert!(of_one_agent.is_empty(), "an agent that is over its rate waits");
    let of_an_organization = flooded(Args { organization_object_rate: 1, ..args() }).await;
    assert!(of_an_organization.is_empty(), "agents of an organization that is over its budget wait");
}
