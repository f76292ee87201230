use events::AggregateKind;
use world::World;

use super::*;
use crate::conformance::{ORGANIZATION, OTHER, batch, commit_on};
use crate::embedded::{EmbeddedStore, Options, open};
use crate::log::NewBatch;

async fn filled(world: &World, folder: &std::path::Path) -> EmbeddedStore {
    let store = open(world, folder, Options::default()).unwrap();
    let source = AggregateRef::new(AggregateKind::Source, "s");
    for version in 0..40 {
        store.log.append(commit_on(world, ORGANIZATION, source.clone(), version)).await.unwrap();
    }
    let agent = AggregateRef::new(AggregateKind::Agent, "a");
    for version in 0..3 {
        store.log.append(commit_on(world, OTHER, agent.clone(), version)).await.unwrap();
    }
    let (stream, organization, writer) = (Stream::Observations, ORGANIZATION, "agent-a".to_owned());
    let large = NewBatch { stream, organization, writer, data: vec![7; 300 * 1024] };
    store.log.append_batch(large).await.unwrap();
    store.log.append_batch(batch(Stream::Objects, "agent-a", b"an object changed")).await.unwrap();
    store
}

fn header(selection: Selection) -> Header {
    Header { created_by: "test".to_owned(), created_at: Timestamp(1), partitions: 16, selection }
}

async fn slice(log: &dyn EventLog, selection: Selection) -> (Vec<u8>, Trailer) {
    let mut bytes = Vec::new();
    let written = write_slice(log, &header(selection), &mut bytes).await.unwrap();
    (bytes, written)
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, Trailer), SliceError> {
    let mut reader = SliceReader::open(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok((records, reader.found().clone()))
}

#[tokio::test]
async fn a_slice_holds_the_records_as_they_are_stored() {
    let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
    let store = filled(&world, folder.path()).await;
    let sealed = batch(Stream::Recordings, "session", b"sealed, and so of no use");
    store.log.append_batch(sealed).await.unwrap();
    let (bytes, written) = slice(&*store.log, Selection::default()).await;
    let (records, found) = read(&bytes).unwrap();
    let opened: Vec<Stream> =
        Stream::ALL.iter().copied().filter(|stream| *stream != Stream::Recordings).collect();
    let filter = ReadFilter::streams(&opened);
    let mut stored = store.log.read(&Position::start(), &filter).await.unwrap();
    for record in &records {
        assert_eq!(*record, stored.recv().await.unwrap().unwrap());
    }
    assert!(stored.recv().await.is_none());
    assert_eq!(found, written);
    assert_eq!(
        written.records,
        [(Stream::Decisions, 43), (Stream::Observations, 1), (Stream::Objects, 1)].into()
    );
    assert!(bytes.len() < 60 * 1024, "{} bytes are not compressed", bytes.len());
    assert_eq!(SliceReader::open(&bytes[..]).unwrap().header(), &header(Selection::default()));
}

#[tokio::test]
async fn a_slice_holds_what_was_selected_and_nothing_else() {
    let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
    let store = filled(&world, folder.path()).await;
    let all = read(&slice(&*store.log, Selection::default()).await.0).unwrap().0;
    let tenth = all.iter().filter(|record| record.organization == ORGANIZATION).nth(9).unwrap();
    let behind = Position::of(tenth.shard.0, tenth.shard.1, tenth.sequence);
    let agent = AggregateRef::new(AggregateKind::Agent, "a");
    let source = AggregateRef::new(AggregateKind::Source, "s");
    let later = all.iter().map(|record| record.recorded_at).max().unwrap().plus_millis(1);
    let only = Selection::default();
    for (selection, count) in [
        (Selection { organizations: [OTHER].into(), ..only.clone() }, 3),
        (Selection { organizations: [OTHER, ORGANIZATION].into(), ..only.clone() }, 45),
        (Selection { aggregates: [agent].into(), ..only.clone() }, 3),
        (Selection { aggregates: [source].into(), after: behind.clone(), ..only.clone() }, 30),
        (Selection { organizations: [ORGANIZATION].into(), up_to: Some(behind), ..only.clone() }, 10),
        (Selection { since: Some(later), ..only.clone() }, 0),
        (Selection { until: Some(later), ..only.clone() }, 45),
    ] {
        let (bytes, _) = slice(&*store.log, selection.clone()).await;
        assert_eq!(read(&bytes).unwrap().0.len(), count, "{selection:?}");
    }
}

#[tokio::test]
async fn no_byte_can_be_changed_left_out_or_added() {
    let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
    let store = filled(&world, folder.path()).await;
    let (bytes, _) = slice(&*store.log, Selection::default()).await;
    for at in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        let error = read(&changed).expect_err(&format!("byte {at} was changed"));
        match error {
            SliceError::NotASlice => assert!(at < MAGIC.len()),
            SliceError::Damaged { at: place, .. } | SliceError::Truncated { at: place } => {
                assert!(place <= at as u64, "byte {at} was changed, not one behind {place}");
            }
            other => panic!("{other}"),
        }
        let error = read(&bytes[..at]).expect_err(&format!("cut off at {at}"));
        assert!(matches!(error, SliceError::Truncated { .. } | SliceError::NotASlice), "{error}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(read(&longer), Err(SliceError::Damaged { at, .. }) if at == bytes.len() as u64));
}
