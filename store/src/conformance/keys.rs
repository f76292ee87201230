//! Laws of the key ring.

use std::sync::Arc;

use events::{RootId, UserId};
use futures::FutureExt as _;
use world::World;
use zeroize::Zeroizing;

use super::{ORGANIZATION, OTHER, Storage, parallel};
use crate::keyring::KeyName;
use crate::root::{RootKey, new_root_key, root_key};

const PERSON: KeyName = KeyName::Person(UserId(uuid::Uuid::from_u128(3)));

pub(super) async fn two_callers_get_the_same_key(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    assert_eq!(parts.keys.get(PERSON).await.unwrap(), None);
    let callers = (0..8).map(|_| {
        let keys = Arc::clone(&parts.keys);
        async move { keys.get_or_create(PERSON).await.unwrap() }.boxed()
    });
    let keys = parallel(&world, callers).await;
    assert!(keys.iter().all(|key| *key == keys[0] && key.len() == 32));
    let other = parts.keys.get_or_create(KeyName::Organization(ORGANIZATION)).await.unwrap();
    assert_ne!(other, keys[0]);
    drop(parts);
    let parts = storage.open().await;
    assert_eq!(parts.keys.get(PERSON).await.unwrap().as_ref(), Some(&keys[0]));
}

pub(super) async fn the_first_key_stays(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let name = KeyName::CertificateAuthority;
    let first = Zeroizing::new(b"first".to_vec());
    let second = Zeroizing::new(b"second, and longer".to_vec());
    assert_eq!(parts.keys.put_new(name, first.clone()).await.unwrap(), first);
    assert_eq!(parts.keys.put_new(name, second).await.unwrap(), first);
    drop(parts);
    let parts = storage.open().await;
    assert_eq!(parts.keys.get_or_create(name).await.unwrap(), first);
}

pub(super) async fn a_destroyed_key_is_gone_for_good(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let mine = KeyName::Organization(ORGANIZATION);
    let key = parts.keys.get_or_create(mine).await.unwrap();
    let other = parts.keys.get_or_create(KeyName::Organization(OTHER)).await.unwrap();
    parts.keys.destroy(mine).await.unwrap();
    parts.keys.destroy(mine).await.unwrap();
    assert_eq!(parts.keys.get(mine).await.unwrap(), None);
    drop(parts);
    let parts = storage.open().await;
    assert_eq!(parts.keys.get(mine).await.unwrap(), None);
    assert_eq!(parts.keys.get(KeyName::Organization(OTHER)).await.unwrap(), Some(other));
    assert_ne!(parts.keys.get_or_create(mine).await.unwrap(), key);
}

pub(super) async fn the_root_signs_and_stays(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let later = RootId(uuid::Uuid::from_u128(4));
    let of = |root: Option<RootKey>| root.map(|root| root.public_key_base64());
    assert_eq!(of(root_key(&*parts.keys, Some(later)).await.unwrap()), None);
    assert_eq!(of(root_key(&*parts.keys, Some(later)).await.unwrap()), None, "asking makes none");
    let root = root_key(&*parts.keys, None).await.unwrap().unwrap();
    let next = new_root_key(&*parts.keys, later).await.unwrap();
    assert_ne!(next.public_key_base64(), root.public_key_base64());
    let signature = root.sign(b"pass");
    drop(parts);
    let parts = storage.open().await;
    let again = root_key(&*parts.keys, None).await.unwrap().unwrap();
    assert_eq!(of(root_key(&*parts.keys, Some(later)).await.unwrap()), Some(next.public_key_base64()));
    assert_eq!(again.public_key_base64(), root.public_key_base64());
    let verifier = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, again.public_key());
    verifier.verify(b"pass", &signature).unwrap();
}
