mod cluster;

use std::net::SocketAddr;

use events::OrganizationId;
use testkit::{NatsServer, Proxy, eventually};
use tokio::sync::mpsc;

use super::*;
use crate::conformance::{fresh_name, patient_context, patiently};
use crate::contract::Received;

const LIMIT: Duration = Duration::from_secs(60);

async fn bus_of(world: &World, process: &str, url: String) -> NatsBus {
    let options = NatsOptions {
        servers: vec![url],
        name: process.to_owned(),
        process: process.to_owned(),
        ca_file: None,
    };
    NatsBus::connect(world.clone(), &options).await.unwrap()
}

async fn bus(world: &World, server: &NatsServer) -> NatsBus {
    bus_of(world, "test", server.url()).await
}

async fn bus_through_proxy(world: &World, server: &NatsServer) -> (Proxy, NatsBus) {
    let upstream: SocketAddr = server.url().trim_start_matches("nats://").parse().unwrap();
    let proxy = Proxy::start(upstream).unwrap();
    let bus = bus_of(world, "test", format!("nats://{}", proxy.address())).await;
    (proxy, bus)
}

/// A handler that hands each accepted stream over.
fn accepting() -> (StreamHandler, mpsc::UnboundedReceiver<ByteStream>) {
    let (streams, accepted) = mpsc::unbounded_channel();
    let accept: StreamHandler = Arc::new(move |_, stream| {
        let sent = streams.send(stream);
        async move { sent.unwrap_or_else(|_| panic!("the test is gone")) }.boxed()
    });
    (accept, accepted)
}

fn saying(word: &'static str) -> Handler {
    Arc::new(move |_, _| async move { Bytes::from_static(word.as_bytes()) }.boxed())
}

crate::conformance_suite!(one_server, async |world: &World| {
    let server = NatsServer::start().await.unwrap();
    (Arc::new(bus(world, &server).await), server)
});

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_all_end_at_once_and_then_go_on() {
    let world = World::real();
    let mut server = NatsServer::start().await.unwrap();
    let (here, there) = (bus(&world, &server).await, bus(&world, &server).await);
    let subject = Subject::request(&fresh_name(&world, "away"));
    let _serving = there.serve(&subject, "away", saying("answered")).await.unwrap();
    let noticed = Subject::notice(&fresh_name(&world, "away"));
    let mut heard = there.subscribe(&noticed).await.unwrap();
    let (accept, mut accepted) = accepting();
    let lines = Subject::request(&fresh_name(&world, "line"));
    let _accepting = there.serve_streams(&lines, "away", accept).await.unwrap();
    let context = patient_context(&world);
    let mut near = here.open_stream(&lines, &context, 1024, Opening::default()).await.unwrap();
    let mut far = accepted.recv().await.unwrap();

    server.kill();
    let asked = here.request(&subject, &context, Bytes::new());
    let refused = patiently(&world, "a refusal", asked).await.unwrap();
    assert!(matches!(refused, Err(RequestError::Away { .. })), "{refused:?}");
    eventually(LIMIT, || async {
        let published = here.publish(&noticed, Bytes::new()).await;
        published.err().ok_or("a notice was taken while nobody carries it")
    })
    .await;
    assert!(patiently(&world, "a reset", near.reader.0.read()).await.unwrap().is_err());
    assert!(patiently(&world, "a reset", far.reader.0.read()).await.unwrap().is_err());
    let lost = patiently(&world, "a word about it", heard.receiver.recv()).await.unwrap();
    assert!(matches!(lost, Some(Received::Lost(_))), "{lost:?}");

    server.start_again().await.unwrap();
    let answer = eventually(LIMIT, || here.request(&subject, &context, Bytes::new())).await;
    assert_eq!(answer, "answered");
    here.publish(&noticed, Bytes::from_static(b"back")).await.unwrap();
    loop {
        match patiently(&world, "a notice", heard.receiver.recv()).await.unwrap() {
            Some(Received::Lost(_)) => {}
            // Taken in the moment before the loss was noticed, and sent once there was a connection.
            Some(Received::Message(body)) if body.is_empty() => {}
            other => break assert_eq!(other, Some(Received::Message(Bytes::from_static(b"back")))),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_ends_requests_by_their_deadline() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let (proxy, here) = bus_through_proxy(&world, &server).await;
    let subject = Subject::request(&fresh_name(&world, "silent"));
    let _serving = here.serve(&subject, "silent", saying("answered")).await.unwrap();
    proxy.silence(true);
    let context = crate::context_for_service(&world, "test", OrganizationId::SYSTEM);
    let context = crate::within(context, Duration::from_millis(200));
    let asked = patiently(&world, "an end", here.request(&subject, &context, Bytes::new())).await.unwrap();
    assert!(matches!(asked, Err(RequestError::Deadline { .. } | RequestError::Away { .. })), "{asked:?}");
    proxy.silence(false);
    let context = patient_context(&world);
    let answer = eventually(LIMIT, || here.request(&subject, &context, Bytes::new())).await;
    assert_eq!(answer, "answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_other_side_died_is_reset() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let (proxy, there) = bus_through_proxy(&world, &server).await;
    let here = bus(&world, &server).await;
    let subject = Subject::request(&fresh_name(&world, "dies"));
    let (accept, mut accepted) = accepting();
    let _accepting = there.serve_streams(&subject, "dies", accept).await.unwrap();
    let mut near =
        here.open_stream(&subject, &patient_context(&world), 1024, Opening::default()).await.unwrap();
    let _far = accepted.recv().await.unwrap();
    proxy.shut(true);
    proxy.cut();
    let read = patiently(&world, "a reset", near.reader.0.read()).await.unwrap();
    assert!(read.is_err(), "{read:?}");
    let written =
        patiently(&world, "a reset", near.writer.0.write(Bytes::from(vec![0; 4096]))).await.unwrap();
    assert!(written.is_err(), "{written:?}");
}

/// As [`saying`], but only after a while.
fn saying_later(world: &World, after: Duration, word: &'static str) -> Handler {
    let world = world.clone();
    Arc::new(move |_, _| {
        let world = world.clone();
        async move {
            world.clock.sleep(after).await;
            Bytes::from_static(word.as_bytes())
        }
        .boxed()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_when_a_member_leaves() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let (asking, staying, leaving) =
        (bus(&world, &server).await, bus(&world, &server).await, bus(&world, &server).await);
    let subject = Subject::request(&fresh_name(&world, "leaves"));
    leaves_again_and_again(&world, &subject, &asking, &staying, &leaving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_leaves_without_more_rights_than_it_is_shipped_with() {
    let world = World::real();
    let server = NatsServer::start_as_shipped().await.unwrap();
    let [asking, staying, leaving] =
        ["repo-poller", "authz", "authz"].map(|process| bus_of(&world, process, server.shipped_url(process)));
    let (asking, staying, leaving) = tokio::join!(asking, staying, leaving);
    let subject = Subject::request(<events::requests::authz::DecideFetch as events::Request>::NAME);
    leaves_again_and_again(&world, &subject, &asking, &staying, &leaving).await;
    let log = server.log().unwrap();
    assert!(!log.contains("Violation"), "{log}");
}

async fn leaves_again_and_again(
    world: &World,
    subject: &Subject,
    asking: &NatsBus,
    staying: &NatsBus,
    leaving: &NatsBus,
) {
    let _stays = staying.serve(subject, "leaves", saying("answered")).await.unwrap();
    for _ in 0..20 {
        let leaves = leaving.serve(subject, "leaves", saying("answered")).await.unwrap();
        let context = patient_context(world);
        let asked = (0..200).map(|_| asking.request(subject, &context, Bytes::new()));
        let all = futures::future::join_all(asked);
        let (answers, ()) = tokio::join!(all, async { drop(leaves) });
        assert!(answers.iter().all(|answer| answer.as_deref() == Ok(b"answered".as_slice())), "{answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_long_is_done_once_and_answered() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let (here, there) = (bus(&world, &server).await, bus(&world, &server).await);
    let subject = Subject::request(&fresh_name(&world, "long"));
    let (done, mut seen) = mpsc::unbounded_channel();
    let slowly = saying_later(&world, FIRST_SILENCE * 3, "answered");
    let counting: Handler = Arc::new(move |context, body| {
        let counted = done.send(());
        let answer = slowly(context, body);
        async move {
            counted.unwrap();
            answer.await
        }
        .boxed()
    });
    let _serving = there.serve(&subject, "long", counting).await.unwrap();
    let answer = here.request(&subject, &patient_context(&world), Bytes::new()).await.unwrap();
    assert_eq!(answer, "answered");
    assert!(seen.try_recv().is_ok() && seen.try_recv().is_err(), "done more than once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_died_with_is_done_by_another() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let here = bus(&world, &server).await;
    let subject = Subject::request(&fresh_name(&world, "dies"));
    let (proxy, dying) = bus_through_proxy(&world, &server).await;
    let (taken, mut seen) = mpsc::unbounded_channel();
    let never: Handler = Arc::new(move |_, _| {
        let sent = taken.send(());
        async move {
            sent.unwrap();
            std::future::pending().await
        }
        .boxed()
    });
    let _dies = dying.serve(&subject, "dies", never).await.unwrap();
    let asked = {
        let (here, subject, context) = (here.clone(), subject.clone(), patient_context(&world));
        async move { here.request(&subject, &context, Bytes::new()).await }
    };
    let dies = async {
        seen.recv().await.unwrap();
        let other = here.serve(&subject, "dies", saying("answered")).await.unwrap();
        proxy.shut(true);
        proxy.cut();
        other
    };
    let (answer, _other) = patiently(&world, "an answer", async { tokio::join!(asked, dies) }).await.unwrap();
    assert_eq!(answer.unwrap(), "answered");
}
