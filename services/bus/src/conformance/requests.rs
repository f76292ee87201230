//! Laws of requests.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use events::requests::authz::{Authenticate, Principal};
use events::subject::Subject;
use events::{Actor, AgentId, EventId, Refusal, RefusalKind, Sha256, TokenId};
use parking_lot::Mutex;
use tokio::sync::{Barrier, mpsc};
use world::World;

use super::{fresh_name, patient_context, patiently};
use crate::contract::{Bus, Handler, MAXIMUM_MESSAGE_BYTES, Opening, RequestError, StreamHandler};

fn echo() -> Handler {
    Arc::new(|_, body| Box::pin(async move { body }))
}

/// Room that a request's headers may take.
const HEADROOM: usize = 4096;

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_reply_comes_back(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "echo"));
    let _serving = bus.serve(&subject, "echo", echo()).await?;
    for body in
        [Bytes::new(), Bytes::from_static(b"hello"), Bytes::from(vec![7; MAXIMUM_MESSAGE_BYTES - HEADROOM])]
    {
        let reply =
            patiently(&world, "a reply", bus.request(&subject, &patient_context(&world), body.clone()))
                .await??;
        ensure!(reply == body, "the reply differs");
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn the_context_arrives_as_it_was_sent(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "context"));
    let handler: Handler = Arc::new(|context, _| {
        Box::pin(async move { Bytes::from(events::encode(&context).unwrap_or_default()) })
    });
    let _serving = bus.serve(&subject, "context", handler).await?;
    let mut context = patient_context(&world);
    context.causation_id = Some(EventId(world.new_uuid()));
    context.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let reply = patiently(&world, "a reply", bus.request(&subject, &context, Bytes::new())).await??;
    let arrived: events::request::RequestContext = events::decode(&reply)?;
    ensure!(arrived == context, "sent {context:?}, arrived {arrived:?}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn nobody_there_is_told_at_once(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "nobody"));
    let context = patient_context(&world);
    let outcome = patiently(
        &world,
        "a refusal long before the deadline",
        bus.request(&subject, &context, Bytes::new()),
    );
    ensure!(matches!(outcome.await?, Err(RequestError::NoResponder { .. })), "not told");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_deadline_ends_a_request(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "silence"));
    let _serving = bus.serve(&subject, "silence", Arc::new(|_, _| Box::pin(std::future::pending()))).await?;
    let context = crate::within(patient_context(&world), Duration::from_millis(20));
    let outcome = patiently(&world, "the deadline", bus.request(&subject, &context, Bytes::new())).await?;
    ensure!(matches!(outcome, Err(RequestError::Deadline { .. })), "{outcome:?}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_handler_that_dies_ends_at_the_deadline(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "death"));
    let handler: Handler = Arc::new(|_, _| {
        Box::pin(async { std::panic::resume_unwind(Box::new("a handler of the conformance suite dies")) })
    });
    let _serving = bus.serve(&subject, "death", handler).await?;
    for _ in 0..2 {
        let context = crate::within(patient_context(&world), Duration::from_millis(20));
        let outcome =
            patiently(&world, "the deadline", bus.request(&subject, &context, Bytes::new())).await?;
        ensure!(matches!(outcome, Err(RequestError::Deadline { .. })), "{outcome:?}");
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_message_over_the_limit_is_refused(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "large"));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler: Handler = Arc::new(move |_, body| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { body })
    });
    let _serving = bus.serve(&subject, "large", handler).await?;
    let body = Bytes::from(vec![0; MAXIMUM_MESSAGE_BYTES + 1]);
    let outcome =
        patiently(&world, "a refusal", bus.request(&subject, &patient_context(&world), body)).await?;
    ensure!(matches!(outcome, Err(RequestError::TooLarge { .. })), "not refused");
    ensure!(calls.load(Ordering::SeqCst) == 0, "it was delivered all the same");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn requests_run_concurrently(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "together"));
    let barrier = Arc::new(Barrier::new(3));
    let handler: Handler = Arc::new(move |_, body| {
        let barrier = Arc::clone(&barrier);
        Box::pin(async move {
            barrier.wait().await;
            body
        })
    });
    let _serving = bus.serve(&subject, "together", handler).await?;
    let context = patient_context(&world);
    let one = || bus.request(&subject, &context, Bytes::new());
    let all = patiently(&world, "three at once", async { tokio::try_join!(one(), one(), one()) }).await?;
    all.map(drop).context("all three")
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn one_member_of_a_group_gets_a_request(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    const REQUESTS: usize = 100;
    let subject = Subject::request(&fresh_name(&world, "group"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut serving = Vec::new();
    for _ in 0..3 {
        let seen = Arc::clone(&seen);
        let handler: Handler = Arc::new(move |_, body| {
            seen.lock().push(body.clone());
            Box::pin(async move { body })
        });
        serving.push(bus.serve(&subject, "group", handler).await?);
    }
    for number in 0..REQUESTS {
        let body = Bytes::from(number.to_string());
        patiently(&world, "a reply", bus.request(&subject, &patient_context(&world), body)).await??;
    }
    let expected: Vec<_> = (0..REQUESTS).map(|number| Bytes::from(number.to_string())).collect();
    ensure!(*seen.lock() == expected, "each request once, in the order of the answers: {:?}", seen.lock());
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_member_that_left_gets_no_more(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "leaving"));
    let named = |name: &'static [u8]| -> Handler {
        Arc::new(move |_, _| Box::pin(async move { Bytes::from_static(name) }))
    };
    let leaving = bus.serve(&subject, "leaving", named(b"left")).await?;
    let _staying = bus.serve(&subject, "leaving", named(b"stayed")).await?;
    drop(leaving);
    for _ in 0..50 {
        let reply =
            patiently(&world, "a reply", bus.request(&subject, &patient_context(&world), Bytes::new()))
                .await??;
        ensure!(reply == b"stayed"[..], "one that left answered");
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_bad_subject_is_refused(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    for name in ["", "a..b", "a.*", "a.>", "a b"] {
        let subject = Subject::request(name);
        let asked =
            patiently(&world, "a refusal", bus.request(&subject, &patient_context(&world), Bytes::new()))
                .await?;
        ensure!(matches!(asked, Err(RequestError::BadSubject { .. })), "asked {name:?}: {asked:?}");
        ensure!(bus.serve(&subject, "group", echo()).await.is_err(), "served {name:?}");
        ensure!(bus.subscribe(&subject).await.is_err(), "subscribed to {name:?}");
        ensure!(bus.publish(&subject, Bytes::new()).await.is_err(), "published to {name:?}");
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn typed_requests_carry_answers_and_refusals(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "typed"));
    let known = Sha256::of(b"known");
    let token = TokenId(world.new_uuid());
    let (contexts, mut seen) = mpsc::unbounded_channel();
    let serving = crate::answer_under::<Authenticate, _>(&*bus, &subject, move |context, request| {
        let organization = context.organization;
        let sent = contexts.send(context);
        Box::pin(async move {
            sent.map_err(|_| Refusal::new(RefusalKind::Internal, "nobody listens"))?;
            let principal =
                Principal { actor: Actor::service("known"), organization, token, expires_at: None };
            if request.hash == known { Ok(principal) } else { Err(Refusal::invalid("hash", "unknown")) }
        })
    })
    .await?;
    let context = patient_context(&world);
    let asked = |hash| {
        let (bus, subject, context) = (&bus, &subject, &context);
        async move { crate::ask_under(&**bus, subject, context, &Authenticate { hash }).await }
    };
    let principal = patiently(&world, "an answer", asked(known)).await?.context("answered")?;
    ensure!(principal.token == token);
    let refusal = patiently(&world, "an answer", asked(Sha256::of(b"other"))).await?.err();
    ensure!(refusal == Some(Refusal::invalid("hash", "unknown")), "{refusal:?}");
    ensure!(seen.recv().await.as_ref() == Some(&context), "the context is the asker's");
    drop(serving);
    let gone = patiently(&world, "an answer", asked(known))
        .await?
        .err()
        .ok_or_else(|| anyhow!("answered by nobody"))?;
    ensure!(gone.kind == RefusalKind::Unavailable, "{gone:?}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn requests_and_streams_are_served_together(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let [asked, also_asked, opened] = ["asked", "also_asked", "opened"].map(|name| fresh_name(&world, name));
    let context = patient_context(&world);
    let mut all = Vec::new();
    for name in ["one", "other"] {
        let agent = AgentId(world.new_uuid());
        let subjects = (
            [&asked, &also_asked].map(|asked| Subject::agent_request(asked, agent)),
            Subject::agent_request(&opened, agent),
        );
        let answers = subjects.0.iter().map(|subject| {
            let said = Bytes::from(format!("{name} {subject}"));
            let answer: Handler = Arc::new(move |_, _| Box::pin(ready(said.clone())));
            (subject.clone(), answer)
        });
        let accept: StreamHandler = Arc::new(move |_, mut stream| {
            Box::pin(async move {
                let _said = stream.writer.0.write(Bytes::from_static(name.as_bytes())).await;
                let _ended = stream.writer.0.finish().await;
            })
        });
        let serving = bus.serve_together("together", answers.collect(), (&subjects.1, accept)).await?;
        all.push((name, subjects, serving));
    }
    for (name, (asked, opened), _) in &all {
        for asked in asked {
            let answer = bus.request(asked, &context, Bytes::new());
            let answer = patiently(&world, "an answer", answer).await??;
            ensure!(answer == format!("{name} {asked}"), "{asked} of {name}: {answer:?}");
        }
        let mut stream =
            patiently(&world, "a stream", bus.open_stream(opened, &context, 1024, Opening::default()))
                .await??;
        let said = patiently(&world, "what it says", stream.reader.0.read()).await??;
        ensure!(said.as_deref() == Some(name.as_bytes()), "{said:?}");
    }
    for (_, (asked, opened), serving) in all {
        drop(serving);
        patiently(&world, "nobody to answer", async {
            for asked in &asked {
                while !matches!(
                    bus.request(asked, &context, Bytes::new()).await,
                    Err(RequestError::NoResponder { .. })
                ) {}
            }
        })
        .await?;
        let refused = patiently(
            &world,
            "nobody to accept",
            bus.open_stream(&opened, &context, 1024, Opening::default()),
        )
        .await?;
        ensure!(matches!(refused, Err(RequestError::NoResponder { .. })), "somebody accepts a stream");
    }
    Ok(())
}
