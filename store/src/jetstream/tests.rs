//! What a real server, or three of them, do beside keeping the laws: they die, part from each other, and are not what they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::position::Stream;
use events::{CommitId, Position};
use futures::FutureExt as _;
use serde_json::{Value, json};
use testkit::{NatsCluster, NatsServer, eventually};
use tokio::sync::mpsc;
use world::World;
use zeroize::Zeroizing;

use super::checkpoints::Checkpoints;
use super::conforms::options;
use super::keyring::KeyStream;
use super::meta::Meta;
use super::nats::{Link, ensure};
use super::records::stream_name;
use super::server::{Ack, Extent, Live, Page, Piece, Publish, PublishError, Server, ServerError, Stored};
use super::{OpenError, Options, open, parts};
use crate::conformance::{agent, commit, decisions, fill, parallel};
use crate::log::{AppendError, EventLog, Followed, ReadFilter};

/// A few, each of whose commits goes alone, and as many as go together where there is one server.
const FEW: usize = 6;
const MANY: usize = 64;
const SOON: Duration = Duration::from_secs(120);

/// Appends to an aggregate of its own, each commit until it is acknowledged, until it is told to stop.
async fn write(
    world: World,
    log: Arc<dyn EventLog>,
    writer: usize,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
) -> Vec<CommitId> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let commit = commit(&world, format!("writer-{writer}"), acknowledged.len() as u64);
        loop {
            match log.append(commit.clone()).await {
                Ok(appended) => {
                    assert_eq!(appended.version, acknowledged.len() as u64 + 1);
                    break;
                }
                Err(error @ (AppendError::Unknown { .. } | AppendError::Away { .. })) => {
                    *progress.hindered.lock() = error.to_string();
                }
                Err(error) => panic!("writer {writer}: {error}"),
            }
        }
        acknowledged.push(commit.id);
        progress.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

/// How far the writers are.
#[derive(Default)]
struct Progress {
    acknowledged: AtomicUsize,
    /// What was last in the way of one.
    hindered: parking_lot::Mutex<String>,
}

impl Progress {
    /// Waits until more was acknowledged: the servers work again.
    async fn more(&self, commits: usize) {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + commits;
        eventually(SOON, || async {
            let now = self.acknowledged.load(Ordering::Relaxed);
            let hindered = self.hindered.lock();
            anyhow::ensure!(now >= wanted, "{now} of {wanted} commits are acknowledged: {hindered}");
            Ok(())
        })
        .await;
    }
}

/// Writers append and a follower reads while something happens to the servers. What was acknowledged is there once, in order.
async fn nothing_is_lost_while(servers: Vec<String>, writers: usize, happens: impl AsyncFnOnce(&Progress)) {
    let world = World::real();
    let store = open(&world, options(servers.clone())).await.unwrap();
    let log = Arc::clone(&store.parts.log);
    let (stop, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
    let writers = (0..writers).map(|writer| {
        write(world.clone(), Arc::clone(&log), writer, Arc::clone(&stop), Arc::clone(&progress)).boxed()
    });
    let writing = parallel(&world, writers.collect::<Vec<_>>());
    let mut follow = log.follow(&Position::start(), &ReadFilter::decisions(&[])).await.unwrap();
    let happening = async {
        progress.more(50).await;
        happens(&progress).await;
        progress.more(50).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (acknowledged, ()) = tokio::join!(writing, happening);
    let total: usize = acknowledged.iter().map(Vec::len).sum();
    println!("{total} commits acknowledged");
    // As another process finds it.
    let log = open(&world, options(servers)).await.unwrap().parts.log;
    // Who was parted from the others comes back with an election, and reading fails while nobody leads.
    let records = eventually(SOON, || async {
        let mut reading = log.read(&Position::start(), &ReadFilter::decisions(&[])).await?;
        let mut records = Vec::new();
        while let Some(record) = reading.recv().await {
            records.push(record?);
        }
        anyhow::Ok(records)
    })
    .await;
    for (writer, commits) in acknowledged.iter().enumerate() {
        let aggregate = agent(format!("writer-{writer}"));
        let of_writer = records.iter().filter_map(|record| record.commit());
        let of_writer = of_writer.filter(|commit| commit.aggregate == aggregate);
        let found: Vec<CommitId> = of_writer.map(|commit| commit.id).collect();
        assert_eq!(found, *commits, "writer {writer}");
    }
    let verified = eventually(SOON, || async { anyhow::Ok(log.verify().await?) }).await;
    assert_eq!(verified.streams[0].records, total as u64);
    let mut followed = BTreeMap::new();
    while followed.values().sum::<u64>() < total as u64 {
        if let Followed::Record(record) = follow.recv().await.unwrap().unwrap() {
            let commit = record.commit().unwrap();
            let version: &mut u64 = followed.entry(commit.aggregate.clone()).or_default();
            *version += 1;
            assert_eq!(commit.version, *version, "followed with a gap, or twice");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_only_server_is_killed_and_started_again() {
    let mut server = NatsServer::start().await.unwrap();
    nothing_is_lost_while(vec![server.account_url(0)], MANY, async |progress| {
        for _ in 0..3 {
            server.kill();
            server.start_again().await.unwrap();
            progress.more(50).await;
        }
    })
    .await;
}

/// How many messages of a stream were stored together with others.
async fn stored_together(link: &Link, stream: &str) -> usize {
    let end = link.end(stream).await.unwrap();
    let mut together = 0;
    for sequence in 1..=end {
        let question = json!({ "seq": sequence });
        let answer: Value = link.api(&format!("STREAM.MSG.GET.{stream}"), &question).await.unwrap();
        let headers = STANDARD.decode(answer["message"]["hdrs"].as_str().unwrap()).unwrap();
        together += usize::from(String::from_utf8(headers).unwrap().contains("Nats-Batch-Id"));
    }
    together
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commits_at_once_are_stored_together_and_each_has_an_outcome_of_its_own() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let options = options(vec![server.account_url(0)]);
    let log = open(&world, options.clone()).await.unwrap().parts.log;
    let (first, repeated) = (commit(&world, "stale", 0), commit(&world, "repeated", 0));
    log.append(first).await.unwrap();
    let others = open(&world, options.clone()).await.unwrap().parts.log;
    others.append(commit(&world, "stale", 1)).await.unwrap();
    others.append(repeated.clone()).await.unwrap();
    // This one knows neither of what the other one did.
    let mut commits = vec![commit(&world, "stale", 1), repeated];
    commits.extend((0..150).map(|number| commit(&world, format!("new-{number}"), 0)));
    let append = |commit| {
        let log = Arc::clone(&log);
        async move { log.append(commit).await }.boxed()
    };
    let mut appended = parallel(&world, commits.into_iter().map(append).collect::<Vec<_>>()).await;
    let new = appended.split_off(2);
    let stale = appended.remove(0).unwrap_err();
    assert!(matches!(stale, AppendError::Conflict { expected: 1, actual: 2, .. }), "{stale}");
    let repeated = appended.remove(0).unwrap();
    assert!(repeated.duplicate && repeated.version == 1, "{repeated:?}");
    let positions: BTreeSet<String> =
        new.into_iter().map(|appended| appended.unwrap().position.to_string()).collect();
    assert_eq!(positions.len(), 150, "each has its own place");
    // Whatever was in one batch with the conflict went one by one; of these none is refused.
    let more = (0..150).map(|number| append(commit(&world, format!("more-{number}"), 0)));
    let more = parallel(&world, more.collect::<Vec<_>>()).await;
    assert!(more.iter().all(Result::is_ok), "{more:?}");
    let known = log.position(&[Stream::Decisions]).await.unwrap();
    let link = Link::connect(&world, &options).await.unwrap();
    let (shard, end) = known.0.first_key_value().unwrap();
    assert_eq!(*end, 303);
    let together = stored_together(&link, &stream_name(*shard)).await;
    assert!(together >= 24, "{together} went with others");
    assert_eq!(decisions(&*others).await.len(), 303);
}

const STREAMS: [&str; 3] = ["kasbah-decisions-0", "kasbah-decisions-1", "kasbah-decisions-2"];

/// Who leads the stream that the writers write to.
async fn leader(cluster: &NatsCluster) -> usize {
    let leader = AtomicUsize::new(0);
    eventually(SOON, || async {
        for stream in STREAMS {
            leader.store(cluster.leader(0, stream)?, Ordering::Relaxed);
        }
        anyhow::Ok(())
    })
    .await;
    leader.into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_leaders_are_killed_and_parted_from_the_others() {
    let mut cluster = NatsCluster::start().await.unwrap();
    nothing_is_lost_while(cluster.account_urls(0), FEW, async |progress| {
        for _ in 0..2 {
            let killed = leader(&cluster).await;
            println!("server {killed} is killed");
            cluster.servers[killed].kill();
            progress.more(50).await;
            cluster.servers[killed].start_again().await.unwrap();
            progress.more(50).await;
            // Until then the next one is one too many: a server that has yet to catch up leads nothing.
            eventually(SOON, || async { cluster.is_current() }).await;
        }
        let parted = leader(&cluster).await;
        println!("server {parted} is parted from the others");
        cluster.isolate(parted, true);
        progress.more(50).await;
        cluster.isolate(parted, false);
        progress.more(50).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_syncs_later_is_refused_unless_that_is_accepted() {
    let world = World::real();
    let server = NatsServer::start_that_syncs_later().await.unwrap();
    let refused = open(&world, options(vec![server.account_url(0)])).await.err().unwrap();
    assert!(matches!(refused, OpenError::WeakDurability { .. }), "{refused}");
    assert!(refused.to_string().contains("nats syncs every 120 s"), "{refused}");
    let accepting = Options { accept_weak_durability: true, ..options(vec![server.account_url(0)]) };
    assert_eq!(open(&world, accepting).await.unwrap().replicas, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_servers_all_is_kept_three_times_and_nobody_begins_before() {
    let cluster = NatsCluster::start().await.unwrap();
    let store = open(&World::real(), options(cluster.account_urls(0))).await.unwrap();
    assert_eq!(store.replicas, 3);
    let (link, streams) = (&store.connection.0, super::further_streams(store.parts.log.partitions()));
    let as_another = |stream| ensure(link, stream, 3, false);
    for stream in &streams {
        assert!(as_another(stream).await.unwrap().is_none());
    }
    let once = json!({"num_replicas": 1});
    let stream = &streams[0];
    link.change_stream(&stream.name, &once).await.unwrap();
    let refused = as_another(stream).await.unwrap_err().to_string();
    assert!(refused.contains("has 1 replicas instead of 3"), "{refused}");
    assert!(ensure(link, stream, 3, true).await.unwrap().is_none(), "whoever makes the log widens it");
    assert!(as_another(stream).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_not_this_log_is_refused_and_left_as_it_is() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let wanted = options(vec![server.account_url(0)]);
    let store = open(&world, wanted.clone()).await.unwrap();
    fill(&world, &*store.parts.log, "one", 0..3).await;
    let other = Options { partitions: Some(5), ..wanted.clone() };
    let refused = open(&world, other).await.err().unwrap();
    assert_eq!(refused.to_string(), "the log was created with 3 partitions, which cannot change to 5");
    let other = Options { master_key: Zeroizing::new([8; 32]), ..wanted.clone() };
    let refused = open(&world, other).await.err().unwrap();
    assert!(refused.to_string().starts_with("the master key does not open the key ring"), "{refused}");
    let link = Link::connect(&world, &wanted).await.unwrap();
    let aged =
        json!({ "name": "kasbah-audit-1", "subjects": ["kasbah.audit.1.>"], "max_age": 600_000_000_000_u64 });
    link.change_stream("kasbah-audit-1", &aged).await.unwrap();
    let refused = open(&world, wanted.clone()).await.err().unwrap().to_string();
    assert!(refused.contains("kasbah-audit-1: max_age is 600000000000, not 0"), "{refused}");
    assert_eq!(decisions(&*store.parts.log).await.len(), 3);
}

#[tokio::test]
async fn without_a_connection_appends_and_reads_end_soon() {
    let world = World::real();
    let mut server = NatsServer::start().await.unwrap();
    let log = open(&world, options(vec![server.account_url(0)])).await.unwrap().parts.log;
    fill(&world, &*log, "one", 0..3).await;
    server.kill();
    let next = commit(&world, "one", 3);
    let mut outcome = log.append(next.clone()).await;
    // Killed in the middle of it, what became of it is not known; then it is not sent any more.
    if matches!(outcome, Err(AppendError::Unknown { .. })) {
        outcome = log.append(next.clone()).await;
    }
    assert!(matches!(outcome, Err(AppendError::Away { .. })), "{outcome:?}");
    log.history(crate::conformance::ORGANIZATION, &agent("one")).await.unwrap_err();
    server.start_again().await.unwrap();
    eventually(SOON, || async { anyhow::Ok(log.append(next.clone()).await?) }).await;
    assert_eq!(decisions(&*log).await.len(), 4);
}

/// A server whose copies of what was stored never come.
struct Deaf {
    link: Link,
    silent: parking_lot::Mutex<Vec<mpsc::Sender<Live>>>,
}

#[async_trait]
impl Server for Deaf {
    async fn publish(&self, message: &Publish) -> Result<Ack, PublishError> {
        self.link.publish(message).await
    }

    async fn newest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        self.link.newest(stream, subject).await
    }

    async fn nearest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        self.link.nearest(stream, subject).await
    }

    async fn page(&self, page: &Page) -> Piece {
        self.link.page(page).await
    }

    async fn replay(&self, stream: &str, from: u64, to: u64) -> Result<mpsc::Receiver<Piece>, ServerError> {
        self.link.replay(stream, from, to).await
    }

    async fn extent(&self, stream: &str) -> Result<Extent, ServerError> {
        self.link.extent(stream).await
    }

    async fn purge(&self, stream: &str, filter: &str, before: u64) -> Result<(), ServerError> {
        self.link.purge(stream, filter, before).await
    }

    async fn stored(&self, _filter: &str) -> Result<mpsc::Receiver<Live>, ServerError> {
        let (silent, live) = mpsc::channel(1);
        self.silent.lock().push(silent);
        Ok(live)
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_gets_what_no_copy_told_of() {
    let world = World::real();
    let server = NatsServer::start().await.unwrap();
    let options = options(vec![server.account_url(0)]);
    let hearing = open(&world, options.clone()).await.unwrap().parts.log;
    let link = Link::connect(&world, &options).await.unwrap();
    let deaf: Arc<dyn Server> = Arc::new(Deaf { link, silent: parking_lot::Mutex::default() });
    let keys = KeyStream::open(Arc::clone(&deaf), &world, &options.master_key).await.unwrap();
    let meta = Meta::read(&deaf).await.unwrap().unwrap();
    let checkpoints = Checkpoints::new(Arc::clone(&deaf), world.clone(), meta.partitions);
    let log = parts(&world, &deaf, keys, &meta, &checkpoints).log;
    let mut follow = log.follow(&Position::start(), &ReadFilter::decisions(&[])).await.unwrap();
    assert!(matches!(follow.recv().await.unwrap().unwrap(), Followed::CaughtUp(_)));
    fill(&world, &*hearing, "one", 0..3).await;
    for version in 1..=3 {
        let Followed::Record(record) = follow.recv().await.unwrap().unwrap() else { panic!("no record") };
        assert_eq!(record.commit().unwrap().version, version);
    }
}

/// Appends to three aggregates and counts them in.
async fn counted(world: &World, options: &Options) -> Arc<dyn EventLog> {
    let store = open(world, options.clone()).await.unwrap();
    for name in ["one", "two", "three"] {
        fill(world, &*store.parts.log, name, 0..4).await;
    }
    store.checkpoints.round().await.unwrap();
    store.parts.log
}

/// Takes a partition away and puts some of its messages into a new one: what a server that lost something looks like.
async fn put_back(link: &Link, stream: &str, kept: &[Stored]) {
    link.delete_stream(stream).await.unwrap();
    let all = super::further_streams(3);
    let wanted = all.iter().find(|wanted| wanted.name == stream).unwrap();
    ensure(link, wanted, 1, true).await.unwrap();
    for message in kept {
        let Stored { subject, payload, id, .. } = message.clone();
        let message = Publish { id, ..Publish::plain(stream, subject, None, payload) };
        link.publish(&message).await.unwrap();
    }
}

#[tokio::test]
async fn a_partition_that_lost_its_end_or_was_exchanged_does_not_verify() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let options = options(vec![server.account_url(0)]);
    let log = counted(&world, &options).await;
    let whole = log.verify().await.unwrap();
    assert_eq!((whole.streams[0].checkpoints, whole.streams[0].records), (1, 12));
    fill(&world, &*log, "four", 0..2).await;
    assert_eq!(log.verify().await.unwrap().streams[0].records, 14, "a checkpoint may lag");
    let shard = decisions(&*log).await[0].shard;
    let stream = stream_name(shard);
    let link = Link::connect(&world, &options).await.unwrap();
    let page = Page { stream: stream.clone(), from: 1, most: 100, subject: None };
    let all = link.page(&page).await.unwrap();
    assert_eq!(all.len(), 14);
    drop(log);
    let broken = async || {
        let log = open(&world, options.clone()).await.unwrap().parts.log;
        log.verify().await.unwrap_err().to_string()
    };
    // Each aggregate's chain is whole: only the partition knows.
    put_back(&link, &stream, &all[..11]).await;
    let lost = broken().await;
    assert!(lost.contains("at offset 12") && lost.contains("the end is lost"), "{lost}");
    let mut exchanged = all.clone();
    exchanged[..8].rotate_left(4);
    put_back(&link, &stream, &exchanged).await;
    let other = broken().await;
    assert!(
        other.contains("at offset 12") && other.contains("are not those that the partition's"),
        "{other}"
    );
    put_back(&link, &stream, &all).await;
    let log = open(&world, options.clone()).await.unwrap().parts.log;
    assert_eq!(log.verify().await.unwrap().streams[0].checkpoints, 1);
}

#[tokio::test]
async fn checkpoints_only_move_forward_and_count_what_is_there() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let options = options(vec![server.account_url(0)]);
    let stores = [open(&world, options.clone()).await.unwrap(), open(&world, options.clone()).await.unwrap()];
    for round in 1..=3 {
        fill(&world, &*stores[0].parts.log, "one", (round - 1) * 300..round * 300).await;
        // Both count at the same time, the second from an older one than is there.
        let (one, two) = tokio::join!(stores[0].checkpoints.round(), stores[1].checkpoints.round());
        one.and(two).unwrap();
        for store in &stores {
            let counted = store.parts.log.checkpoints(Stream::Decisions).await.unwrap();
            let counts: Vec<u64> = counted.values().map(|checkpoint| checkpoint.tally.count).collect();
            assert_eq!(counts, [round * 300]);
        }
    }
    // What was lost is not counted over.
    let log = &stores[0].parts.log;
    let counted = log.checkpoints(Stream::Decisions).await.unwrap();
    let stream = stream_name(decisions(&**log).await[0].shard);
    let link = Link::connect(&world, &options).await.unwrap();
    let page = Page { stream: stream.clone(), from: 1, most: 10, subject: None };
    let few = link.page(&page).await.unwrap();
    put_back(&link, &stream, &few).await;
    let newcomer = open(&world, options).await.unwrap();
    newcomer.checkpoints.round().await.unwrap();
    assert_eq!(newcomer.parts.log.checkpoints(Stream::Decisions).await.unwrap(), counted);
}
