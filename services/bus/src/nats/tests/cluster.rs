//! Three servers: each may die, and what was served through it goes on through the others.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use testkit::NatsCluster;

use super::*;

const NAMES: [&str; 3] = ["one", "two", "three"];

struct Member {
    bus: NatsBus,
    heard: Mutex<Subscription>,
    _serving: Vec<Serving>,
}

/// What the members serve and hear.
struct Subjects {
    words: Subject,
    lines: Subject,
    notices: Subject,
}

impl Member {
    async fn join(world: &World, cluster: &NatsCluster, subjects: &Subjects, name: &'static str) -> Self {
        let options = NatsOptions {
            servers: cluster.account_urls(0),
            name: name.to_owned(),
            process: "test".to_owned(),
            ca_file: None,
        };
        let bus = NatsBus::connect(world.clone(), &options).await.unwrap();
        let echo: StreamHandler = Arc::new(move |_, stream| echo(stream).boxed());
        let serving = vec![
            bus.serve(&subjects.words, "words", saying(name)).await.unwrap(),
            bus.serve_streams(&subjects.lines, "lines", echo).await.unwrap(),
        ];
        let heard = Mutex::new(bus.subscribe(&subjects.notices).await.unwrap());
        Self { bus, heard, _serving: serving }
    }

    /// Everything that was said since the last look.
    fn said(&self) -> Vec<Bytes> {
        let mut heard = self.heard.lock();
        let mut said = Vec::new();
        while let Ok(word) = heard.receiver.try_recv() {
            said.extend(match word {
                Received::Message(body) => Some(body),
                Received::Lost(_) => None,
            });
        }
        said
    }
}

async fn echo(mut stream: ByteStream) {
    while let Ok(Some(piece)) = stream.reader.0.read().await {
        if stream.writer.0.write(piece).await.is_err() {
            return;
        }
    }
    let _heard = stream.writer.0.finish().await;
}

/// A member gets answers from all three, its notices reach all three, and its bytes come back.
async fn all_works(world: &World, asking: &Member, members: &[Member], subjects: &Subjects) {
    let context = patient_context(world);
    let answered = Mutex::new(BTreeSet::new());
    eventually(LIMIT, || async {
        let answer = asking.bus.request(&subjects.words, &context, Bytes::new()).await?;
        answered.lock().insert(answer);
        let answered = answered.lock();
        anyhow::ensure!(answered.len() == members.len(), "only {answered:?} answer");
        Ok(())
    })
    .await;
    let mark = Bytes::from(world.new_uuid().to_string());
    let unheard = Mutex::new((0..members.len()).collect::<BTreeSet<_>>());
    eventually(LIMIT, || async {
        asking.bus.publish(&subjects.notices, mark.clone()).await?;
        let mut unheard = unheard.lock();
        unheard.retain(|member| !members[*member].said().contains(&mark));
        anyhow::ensure!(unheard.is_empty(), "not heard by {unheard:?}");
        Ok(())
    })
    .await;
    eventually(LIMIT, || async { echoed(world, asking, subjects).await }).await;
}

async fn echoed(world: &World, asking: &Member, subjects: &Subjects) -> anyhow::Result<()> {
    let stream = asking
        .bus
        .open_stream(&subjects.lines, &patient_context(world), 16 * 1024, Opening::default())
        .await?;
    let content = Bytes::from(vec![7; 200_000]);
    let (mut reader, mut writer) = (stream.reader, stream.writer);
    let write = async {
        writer.0.write(content.clone()).await?;
        writer.0.finish().await
    };
    let read = async {
        let mut all = Vec::new();
        while let Some(piece) = reader.0.read().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    };
    let ((), read) = patiently(world, "an echo", async { tokio::try_join!(write, read) }).await??;
    anyhow::ensure!(read == content, "other bytes come back");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_three_servers_may_die_and_nothing_that_was_served_is_lost() {
    let world = World::real();
    let mut cluster = NatsCluster::start().await.unwrap();
    let subject = |name: &str| Subject::request(&fresh_name(&world, name));
    let subjects = Subjects {
        words: subject("words"),
        lines: subject("lines"),
        notices: Subject::notice(&fresh_name(&world, "notices")),
    };
    let mut members = Vec::new();
    for name in NAMES {
        members.push(Member::join(&world, &cluster, &subjects, name).await);
    }
    for number in 0..NAMES.len() {
        cluster.servers[number].kill();
        // Whoever was connected there finds another server by itself.
        for asking in &members {
            all_works(&world, asking, &members, &subjects).await;
        }
        cluster.servers[number].start_again().await.unwrap();
        eventually(LIMIT, || async { cluster.is_current() }).await;
    }
}
