//! Laws of blobs.

use std::sync::Arc;

use bytes::Bytes;
use events::{BlobDigest, Sha256};
use futures::FutureExt as _;
use world::World;

use super::{ORGANIZATION, OTHER, Storage, parallel};
use crate::blobs::BlobError;
use crate::keyring::KeyName;

fn contents() -> Vec<Bytes> {
    vec![
        Bytes::new(),
        Bytes::from_static(b"one"),
        Bytes::from(vec![7; 5 * 1024 * 1024]),
        Bytes::from_static(b"another"),
    ]
}

pub(super) async fn what_was_put_is_got(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let digests = parts.blobs.put(ORGANIZATION, contents()).await.unwrap();
    drop(parts);
    let parts = storage.open().await;
    for (digest, content) in digests.iter().zip(contents()) {
        assert_eq!(parts.blobs.get(ORGANIZATION, *digest).await.unwrap(), content);
        assert_eq!(parts.blobs.address(ORGANIZATION, Sha256::of(&content)).await.unwrap(), *digest);
        assert!(parts.blobs.contains(ORGANIZATION, *digest).await.unwrap());
    }
    assert_eq!(parts.blobs.put(ORGANIZATION, Vec::new()).await.unwrap(), Vec::new());
}

pub(super) async fn addresses_are_keyed_by_organization(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let one = parts.blobs.put(ORGANIZATION, contents()).await.unwrap();
    let other = parts.blobs.put(OTHER, contents()).await.unwrap();
    for (one, other) in one.iter().zip(&other) {
        assert_ne!(one, other);
        let stranger = parts.blobs.get(OTHER, *one).await;
        assert_eq!(stranger, Err(BlobError::Missing { digest: *one }));
    }
    assert_ne!(one[1].0, Sha256::of(b"one").0, "nobody can test for known content");
}

pub(super) async fn equal_content_is_stored_once(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let twice = [contents(), contents()].concat();
    let digests = parts.blobs.put(ORGANIZATION, twice).await.unwrap();
    assert_eq!(digests[..4], digests[4..]);
    assert_eq!(parts.blobs.put(ORGANIZATION, contents()).await.unwrap(), digests[..4]);
    drop(parts);
    let parts = storage.open().await;
    assert_eq!(parts.blobs.put(ORGANIZATION, contents()).await.unwrap(), digests[..4]);
}

pub(super) async fn nothing_is_found_where_nothing_is(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let digest = BlobDigest([9; 32]);
    let no_key = BlobError::NoKey { organization: ORGANIZATION };
    assert_eq!(parts.blobs.address(ORGANIZATION, Sha256::of(b"x")).await, Err(no_key.clone()));
    assert_eq!(parts.blobs.get(ORGANIZATION, digest).await, Err(no_key));
    parts.blobs.put(ORGANIZATION, contents()).await.unwrap();
    assert_eq!(parts.blobs.get(ORGANIZATION, digest).await, Err(BlobError::Missing { digest }));
    assert!(!parts.blobs.contains(ORGANIZATION, digest).await.unwrap());
    let absent = parts.blobs.address(ORGANIZATION, Sha256::of(b"never put")).await.unwrap();
    assert!(!parts.blobs.contains(ORGANIZATION, absent).await.unwrap());
}

pub(super) async fn many_tasks_put_at_once(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let writers = (0..16_u8).map(|writer| {
        let blobs = Arc::clone(&parts.blobs);
        async move {
            let own = (0..20_u8).map(|index| Bytes::from(vec![writer, index]));
            let shared = (0..20_u8).map(|index| Bytes::from(vec![index; 100]));
            let contents: Vec<Bytes> = own.chain(shared).collect();
            let digests = blobs.put(ORGANIZATION, contents.clone()).await.unwrap();
            (contents, digests)
        }
        .boxed()
    });
    let written = parallel(&world, writers).await;
    drop(parts);
    let parts = storage.open().await;
    for (contents, digests) in written {
        for (content, digest) in contents.iter().zip(digests) {
            assert_eq!(parts.blobs.get(ORGANIZATION, digest).await.unwrap(), content);
        }
    }
}

pub(super) async fn without_its_key_a_blob_is_lost(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let digests = parts.blobs.put(ORGANIZATION, contents()).await.unwrap();
    parts.keys.destroy(KeyName::Organization(ORGANIZATION)).await.unwrap();
    let lost = parts.blobs.get(ORGANIZATION, digests[1]).await;
    assert_eq!(lost, Err(BlobError::NoKey { organization: ORGANIZATION }));
    let anew = parts.blobs.put(ORGANIZATION, contents()).await.unwrap();
    assert_ne!(anew[1], digests[1]);
    parts.blobs.get(ORGANIZATION, digests[1]).await.unwrap_err();
    assert_eq!(parts.blobs.get(ORGANIZATION, anew[1]).await.unwrap(), contents()[1]);
}
