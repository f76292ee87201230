use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use events::observation::ObservationBatch;
use events::recording::RecordingBatch;
use events::{AggregateKind, AggregateRef, RootId, Sha256, Timestamp, UserId};
use testkit::{NatsCluster, NatsServer, eventually};
use uuid::Uuid;
use world::World;

use super::*;
use crate::conformance::{ORGANIZATION, OTHER, batch, commit_on, retention};
use crate::embedded::{self, EmbeddedStore};
use crate::jetstream::{self, JetStreamStore};
use crate::slice::{Header, Selection, write_slice};

const GONE: OrganizationId = OrganizationId(Uuid::from_u128(0xc3));
const PERSON: KeyName = KeyName::Person(UserId(Uuid::from_u128(0xd4)));
const LATER_ROOT: KeyName = KeyName::LaterRoot(RootId(Uuid::from_u128(0xe5)));

fn everything() -> ReadFilter {
    ReadFilter::streams(Stream::ALL)
}

/// Aggregates of two organizations, large observations, a refusal; keys, one of them destroyed; blobs.
async fn fill(world: &World, parts: &Parts) {
    for organization in [ORGANIZATION, OTHER] {
        for name in ["a", "b"] {
            let aggregate = AggregateRef::new(AggregateKind::Source, name);
            for version in 0..40 {
                parts.log.append(commit_on(world, organization, aggregate.clone(), version)).await.unwrap();
            }
        }
    }
    for number in 0..30_u8 {
        let data = vec![number; 300 * 1024];
        let unreadable = batch(Stream::Observations, &format!("agent-{}", number % 3), &data);
        parts.log.append_batch(unreadable).await.unwrap();
    }
    let writer = "gateway-one".to_owned();
    let readable = ObservationBatch::<String> {
        organization: ORGANIZATION,
        writer: writer.clone(),
        epoch: 1,
        first: 1,
        observations: Vec::new(),
    };
    let data = events::encode(&readable).unwrap();
    parts.log.append_batch(batch(Stream::Observations, &writer, &data)).await.unwrap();
    let writer = ObservationBatch::agent_writer(events::AgentId(Uuid::from_u128(9)));
    let data = events::encode(&ObservationBatch { writer: writer.clone(), ..readable }).unwrap();
    for data in [&data[..], b"not readable"] {
        parts.log.append_batch(batch(Stream::Objects, &writer, data)).await.unwrap();
    }
    parts.log.append_batch(batch(Stream::Refusals, "authz", b"refused")).await.unwrap();
    let session = Uuid::from_u128(7);
    let recorded = RecordingBatch {
        session,
        agent: events::AgentId(session),
        gateway: events::InstanceId(session),
        number: 0,
        is_last: true,
        sealed: b"sealed".to_vec(),
    };
    let recorded = events::encode(&recorded).unwrap();
    parts.log.append_batch(batch(Stream::Recordings, &session.to_string(), &recorded)).await.unwrap();
    parts.keys.get_or_create(PERSON).await.unwrap();
    parts.keys.get_or_create(LATER_ROOT).await.unwrap();
    for organization in [ORGANIZATION, GONE] {
        let contents = vec![Bytes::from_static(b"small"), Bytes::from(vec![7; 700 * 1024])];
        parts.blobs.put(organization, contents).await.unwrap();
    }
    parts.keys.destroy(KeyName::Organization(GONE)).await.unwrap();
}

async fn all(log: &dyn EventLog) -> BTreeMap<(Shard, u64), (Timestamp, OrganizationId, Bytes)> {
    let mut records = log.read(&Position::start(), &everything()).await.unwrap();
    let mut found = BTreeMap::new();
    while let Some(record) = records.recv().await {
        let record = record.unwrap();
        let what = (record.recorded_at, record.organization, record.bytes.clone());
        assert!(found.insert((record.shard, record.sequence), what).is_none());
    }
    found
}

fn folder_options() -> embedded::Options {
    embedded::Options { partitions: Some(3), ..embedded::Options::default() }
}

fn folder(world: &World, path: &std::path::Path) -> EmbeddedStore {
    embedded::open(world, path, folder_options()).unwrap()
}

async fn copy_in(world: &World, path: &std::path::Path, of: &Parts) -> EmbeddedStore {
    let copy_of = CopyOf::log(of).await.unwrap();
    embedded::open_copy(world, path, folder_options(), &copy_of).unwrap()
}

async fn copy_on(world: &World, server: &NatsServer, account: usize, of: &Parts) -> JetStreamStore {
    let options = jetstream::options_of_tests(vec![server.account_url(account)]);
    jetstream::open_copy(world, options, &CopyOf::log(of).await.unwrap()).await.unwrap()
}

async fn is_the_same(original: &Parts, copy: &Parts) {
    let records = all(&*original.log).await;
    assert_eq!(records, all(&*copy.log).await);
    // A copy may have one partition behind the other: positions at moments are the same.
    for (time, _, _) in records.values().step_by(20) {
        let (here, there) =
            (original.log.position_at(Stream::ALL, *time), copy.log.position_at(Stream::ALL, *time));
        assert_eq!(here.await.unwrap(), there.await.unwrap(), "at {time}");
    }
    assert_ne!(original.log.id(), copy.log.id(), "a copy is a log of its own");
    for name in
        [KeyName::Root, LATER_ROOT, PERSON, KeyName::Organization(ORGANIZATION), KeyName::Organization(GONE)]
    {
        assert_eq!(original.keys.get(name).await, copy.keys.get(name).await, "{name:?}");
    }
    assert!(copy.keys.get(LATER_ROOT).await.unwrap().is_some(), "roots that sign now go along");
    for content in [Bytes::from_static(b"small"), Bytes::from(vec![7; 700 * 1024])] {
        let address = original.blobs.address(ORGANIZATION, Sha256::of(&content)).await.unwrap();
        assert_eq!(copy.blobs.get(ORGANIZATION, address).await.unwrap(), content);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_nats_and_back_is_the_same_and_a_log_of_its_own() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = folder(&world, folders[0].path());
    fill(&world, &first.parts()).await;
    let second = copy_on(&world, &server, 0, &first.parts()).await;
    let there = copy(&first, &second).await.unwrap();
    assert_eq!((there.records(Stream::Decisions), there.written), (160, 160 + 31 + 2 + 1 + 1));
    assert_eq!((there.blobs, there.sealed_for_good), (2, 2), "nobody can read what is sealed for good");
    is_the_same(&first.parts(), &second.parts).await;
    let checkpoints = second.parts.log.checkpoints(Stream::Decisions).await.unwrap();
    assert_eq!(checkpoints.values().map(|checkpoint| checkpoint.tally.count).sum::<u64>(), 160);

    let third = copy_in(&world, folders[1].path(), &second.parts).await;
    let back = copy(&second, &third).await.unwrap();
    assert_eq!(back.partitions, there.partitions, "hashes are those of the first log");
    is_the_same(&first.parts(), &third.parts()).await;
    drop(third);
    let third = folder(&world, folders[1].path());
    for log in [&*second.parts.log, &*third.log] {
        let aggregate = AggregateRef::new(AggregateKind::Source, "a");
        let next = commit_on(&world, ORGANIZATION, aggregate.clone(), 40);
        assert_eq!(log.append(next).await.unwrap().version, 41, "a copy goes on");
        log.verify().await.unwrap();
        let history = log.history(ORGANIZATION, &aggregate).await.unwrap();
        let again = history[7].commit().unwrap();
        let mut again_new = commit_on(&world, ORGANIZATION, aggregate, 7);
        again_new.id = again.id;
        assert!(log.append(again_new).await.unwrap().duplicate, "ids are known");
    }
}

/// A store that breaks off after some writes.
struct Breaks<'a> {
    store: &'a dyn Copies,
    left: AtomicUsize,
}

#[async_trait]
impl Copies for Breaks<'_> {
    fn parts(&self) -> Parts {
        self.store.parts()
    }

    async fn key_names(&self) -> Result<Vec<KeyName>, CopyError> {
        self.store.key_names().await
    }

    async fn blob_names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, CopyError> {
        self.store.blob_names().await
    }

    async fn take(&self, mut records: Vec<Record>) -> Result<(), CopyError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            records.truncate(records.len() / 2);
            self.store.take(records).await?;
            return Err(CopyError::Failed { detail: "broke off".to_owned() });
        }
        self.store.take(records).await
    }

    async fn finish(&self) -> Result<(), CopyError> {
        self.store.finish().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_broke_off_is_opened_by_nobody_and_gone_on_with() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = folder(&world, folders[0].path());
    fill(&world, &first.parts()).await;
    let whole = all(&*first.log).await;
    for breaks in [1, 3] {
        let second = copy_on(&world, &server, breaks, &first.parts()).await;
        let broke = copy(&first, &Breaks { store: &second, left: breaks.into() }).await;
        assert!(broke.unwrap_err().to_string().contains("broke off"));
        drop(second);
        let options = jetstream::options_of_tests(vec![server.account_url(breaks)]);
        let refused = jetstream::open(&world, options.clone()).await.err().unwrap().to_string();
        assert!(refused.contains("unfinished copy"), "{refused}");
        let second = copy_on(&world, &server, breaks, &first.parts()).await;
        let rest = copy(&first, &second).await.unwrap();
        assert!(rest.written > 0 && rest.written < whole.len() as u64, "{rest:?}");
        assert_eq!(all(&*second.parts.log).await, whole);
        drop(second);
        jetstream::open(&world, options).await.unwrap();
    }
    let back = folders[1].path();
    let third = copy_in(&world, back, &first.parts()).await;
    copy(&first, &Breaks { store: &third, left: 2.into() }).await.unwrap_err();
    drop(third);
    let refused = embedded::open(&world, back, folder_options()).err().unwrap().to_string();
    assert!(refused.contains("unfinished copy"), "{refused}");
    let third = copy_in(&world, back, &first.parts()).await;
    let rest = copy(&first, &third).await.unwrap();
    assert!(rest.written > 0 && rest.written < whole.len() as u64, "{rest:?}");
    assert_eq!(all(&*third.log).await, whole);
}

/// A store on servers of which one is killed after the first write and comes back before the third.
struct Killed {
    store: JetStreamStore,
    cluster: tokio::sync::Mutex<NatsCluster>,
    writes: AtomicUsize,
}

#[async_trait]
impl Copies for Killed {
    fn parts(&self) -> Parts {
        self.store.parts.clone()
    }

    async fn key_names(&self) -> Result<Vec<KeyName>, CopyError> {
        self.store.key_names().await
    }

    async fn blob_names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, CopyError> {
        self.store.blob_names().await
    }

    async fn take(&self, records: Vec<Record>) -> Result<(), CopyError> {
        match self.writes.fetch_add(1, Ordering::Relaxed) {
            1 => self.cluster.lock().await.servers[0].kill(),
            3 => self.cluster.lock().await.servers[0].start_again().await.unwrap(),
            _ => {}
        }
        self.store.take(records).await
    }

    async fn finish(&self) -> Result<(), CopyError> {
        self.store.finish().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_meanwhile_costs_another_run_at_most() {
    let (world, cluster) = (World::real(), NatsCluster::start().await.unwrap());
    let path = tempfile::tempdir().unwrap();
    let first = folder(&world, path.path());
    fill(&world, &first.parts()).await;
    let options = jetstream::options_of_tests(cluster.account_urls(0));
    let of = CopyOf::log(&first.parts()).await.unwrap();
    let store = jetstream::open_copy(&world, options, &of).await.unwrap();
    let cluster = tokio::sync::Mutex::new(cluster);
    let second = Killed { store, cluster, writes: AtomicUsize::new(0) };
    // Writing outlasts an election; reading while nobody leads fails, and is gone on with.
    eventually(Duration::from_secs(120), || copy(&first, &second)).await;
    assert!(second.writes.load(Ordering::Relaxed) > 3, "the server came back");
    is_the_same(&first.parts(), &second.parts()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_named_and_left_as_it_is() {
    let world = World::real();
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let first = folder(&world, folders[0].path());
    fill(&world, &first.parts()).await;
    let other = folder(&world, folders[1].path());
    drop(other);
    let copy_of = CopyOf::log(&first.parts()).await.unwrap();
    let refused = embedded::open_copy(&world, folders[1].path(), folder_options(), &copy_of).err().unwrap();
    assert!(refused.to_string().starts_with("it holds a log, and not a copy of log "), "{refused}");

    let second = copy_in(&world, folders[2].path(), &first.parts()).await;
    copy(&first, &second).await.unwrap();
    // Both go on by themselves.
    let source = AggregateRef::new(AggregateKind::Source, "a");
    second.log.append(commit_on(&world, OTHER, source.clone(), 40)).await.unwrap();
    let differs = copy(&first, &second).await.unwrap_err().to_string();
    assert!(differs.contains("the original has no such record"), "{differs}");
    first.log.append(commit_on(&world, OTHER, source.clone(), 40)).await.unwrap();
    let differs = copy(&first, &second).await.unwrap_err().to_string();
    assert!(differs.contains("the records up to here are not the original's"), "{differs}");
    first.keys.destroy(PERSON).await.unwrap();
    let differs = copy(&first, &second).await.unwrap_err().to_string();
    assert!(differs.starts_with("the key person/"), "{differs}");

    // Nothing but what follows is taken, whoever asks for it.
    let end = second.log.position(Stream::ALL).await.unwrap();
    let records = first.log.history(OTHER, &source).await.unwrap();
    let newest = records.last().unwrap();
    let there = end.sequence(newest.shard);
    for sequence in [there, there + 2] {
        let wrong = Record::new(newest.shard, sequence, Timestamp(1), OTHER, newest.bytes.clone());
        second.take(vec![wrong]).await.unwrap_err();
    }
    assert_eq!(second.log.position(Stream::ALL).await.unwrap(), end);
    second.log.verify().await.unwrap();
}

async fn slice_of(log: &dyn EventLog, selection: Selection) -> Vec<u8> {
    let (created_by, created_at, partitions) = ("test".to_owned(), Timestamp(1), log.partitions());
    let mut bytes = Vec::new();
    let header = Header { created_by, created_at, partitions, selection };
    write_slice(log, &header, &mut bytes).await.unwrap();
    bytes
}

fn read_whole(bytes: &[u8]) -> Result<CopyOf, SliceError> {
    let mut read = SliceReader::open(bytes)?.of_whole_aggregates();
    while read.next_record()?.is_some() {}
    Ok(CopyOf::slice(&read))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_becomes_a_log_if_nothing_of_it_is_missing_or_changed() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = folder(&world, folders[0].path());
    fill(&world, &first.parts()).await;
    let whole = slice_of(&*first.log, Selection::default()).await;
    let of = read_whole(&whole).unwrap();
    let second = embedded::open_copy(&world, folders[1].path(), folder_options(), &of).unwrap();
    let broke = Breaks { store: &second, left: 2.into() };
    import(SliceReader::open(&whole[..]).unwrap(), &broke).await.unwrap_err();
    let imported = import(SliceReader::open(&whole[..]).unwrap(), &second).await.unwrap();
    assert_eq!(imported.records(Stream::Decisions), 160);
    let mut without_recordings = all(&*first.log).await;
    without_recordings.retain(|((stream, _), _), _| *stream != Stream::Recordings);
    assert_eq!(all(&*second.log).await, without_recordings);
    assert_ne!(second.root_public_key, first.root_public_key, "a slice holds no keys");

    // One organization: the numbers are the log's own.
    let part = Selection { organizations: [OTHER].into(), ..Selection::default() };
    let part = slice_of(&*first.log, part).await;
    let options = jetstream::options_of_tests(vec![server.account_url(0)]);
    let third = jetstream::open_copy(&world, options, &read_whole(&part).unwrap()).await.unwrap();
    let imported = import(SliceReader::open(&part[..]).unwrap(), &third).await.unwrap();
    assert_eq!((imported.records(Stream::Decisions), imported.written), (80, 80));
    let another = import(SliceReader::open(&part[..]).unwrap(), &second).await.unwrap_err().to_string();
    assert!(another.contains("the original has no such record"), "{another}");

    let since =
        first.log.history(ORGANIZATION, &AggregateRef::new(AggregateKind::Source, "a")).await.unwrap();
    let after = Position::of(since[9].shard.0, since[9].shard.1, since[9].sequence);
    let late = slice_of(&*first.log, Selection { after, ..Selection::default() }).await;
    assert!(matches!(read_whole(&late), Err(SliceError::NotFromTheBeginning { version: 11, .. })));
    for at in [20, whole.len() / 2, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(read_whole(&changed).is_err(), "byte {at} was changed");
    }
}

#[test]
fn only_a_finished_copy_is_a_log_and_only_the_same_is_gone_on_with() {
    let of = |name: &str| CopyOf { of: name.to_owned(), root: None };
    let (begun, done) = (of("log a").mark(), of("log a").mark().finished());
    for (mark, copy, fine) in [
        (None, None, true),
        (Some(&done), None, true),
        (Some(&begun), None, false),
        (None, Some(of("log a")), false),
        (Some(&begun), Some(of("log a")), true),
        (Some(&done), Some(of("log a")), true),
        (Some(&begun), Some(of("log b")), false),
    ] {
        assert_eq!(CopyMark::check(mark, copy.as_ref()).is_ok(), fine, "{mark:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_left_the_original_stays_in_the_anchors_of_each_copy() {
    let (world, server) = (World::real(), NatsServer::start().await.unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let small = embedded::Options { segment_bytes: 16 * 1024, ..folder_options() };
    let first = embedded::open(&world, folders[0].path(), small).unwrap();
    let whole = retention::lets_go_and_goes_on(&world, &first.parts()).await;
    let left = first.log.retained(Stream::Observations).await.unwrap().horizon;
    assert_ne!(left, Position::start());
    let second = copy_on(&world, &server, 0, &first.parts()).await;
    copy(&first, &second).await.unwrap();
    let third = copy_in(&world, folders[1].path(), &second.parts).await;
    copy(&second, &third).await.unwrap();
    drop(third);
    let third = folder(&world, folders[1].path());
    for parts in [&second.parts, &third.parts()] {
        assert_eq!(retention::fold_and_save(&world, parts).await, whole);
        parts.log.verify().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anchors_of_each_stream_stay_those_of_their_stream() {
    let world = World::real();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = folder(&world, folders[0].path());
    let anchor = |name: &str| Snapshot {
        name: format!("{name}-anchor"),
        fold_version: 1,
        position: Position::start(),
        heads: None,
        reading: None,
        state: vec![7],
    };
    let anchors = vec![(Stream::Observations, anchor("one")), (Stream::Objects, anchor("two"))];
    keep_anchors(&*first.snapshots, anchors.clone()).await.unwrap();
    let second = copy_in(&world, folders[1].path(), &first.parts()).await;
    copy(&first, &second).await.unwrap();
    assert_eq!(anchors_of(&*second.snapshots).await.unwrap(), anchors);
}
