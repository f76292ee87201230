//! The key ring in a stream: one message per key, each wrapped under the master key.
//!
//! A stream keeps the newest message of each name only, so that a key that is replaced by nothing is destroyed: what a disk may
//! keep of it for a while is of no use without the master key. Keys that were read are kept in memory until somebody changes
//! them, and for a minute at most, in case that nobody heard of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use world::World;
use world::spawn::TaskHandle;
use zeroize::Zeroizing;

use super::records::STORED;
use super::server::{Live, Publish, PublishError, Server, ServerError};
use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::seal::{Keys, MasterKey, Seal, fresh_key, name_text};

/// The stream's name.
pub(super) const STREAM: &str = "kasbah-keys";
/// What stands before a key's name in its subject.
pub(super) const TOKEN: &str = "keys";

const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often a change is tried while others change the same key, or the servers do not answer.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The keys of one installation.
pub(super) struct KeyStream {
    server: Arc<dyn Server>,
    world: World,
    seal: Seal,
    read: Arc<Mutex<Read>>,
    listening: TaskHandle,
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// What was read not long ago.
#[derive(Default)]
struct Read {
    /// Grows with each change that was heard of.
    changes: u64,
    keys: BTreeMap<KeyName, (Duration, Zeroizing<Vec<u8>>)>,
}

/// A name's newest message: its sequence, and the key unless it was destroyed.
struct Newest {
    sequence: u64,
    key: Option<Zeroizing<Vec<u8>>>,
}

fn failed(error: impl std::fmt::Display) -> KeyRingError {
    KeyRingError::Failed { detail: error.to_string() }
}

fn subject(name: KeyName) -> String {
    format!("kasbah.{TOKEN}.{}", name_text(name).replace('/', "."))
}

impl KeyStream {
    pub(super) async fn open(
        server: Arc<dyn Server>,
        world: &World,
        master: &MasterKey,
    ) -> Result<Self, KeyRingError> {
        let mut live = server.stored(&format!("{STORED}.{TOKEN}.>")).await.map_err(failed)?;
        let seal = Seal::of(master)?;
        let read: Arc<Mutex<Read>> = Arc::default();
        let changed = Arc::clone(&read);
        let forget = async move {
            while let Some(heard) = live.recv().await {
                let mut read = changed.lock();
                read.changes += 1;
                match heard {
                    Live::Stored(message) => read.keys.retain(|name, _| subject(*name) != message.subject),
                    Live::Missed => read.keys.clear(),
                }
            }
        };
        let listening = world.spawner.spawn("key changes", Box::pin(forget));
        Ok(Self { server, world: world.clone(), seal, read, listening })
    }

    async fn newest(&self, name: KeyName) -> Result<Newest, KeyRingError> {
        let newest = self.server.newest(STREAM, &subject(name)).await.map_err(failed)?;
        let Some(message) = newest else { return Ok(Newest { sequence: 0, key: None }) };
        let sequence = message.sequence;
        if message.payload.is_empty() {
            return Ok(Newest { sequence, key: None });
        }
        let mut keys = self.seal.open(&message.payload)?;
        // A message under another name would be another's key.
        let key = keys.remove(&name).ok_or(KeyRingError::Damaged)?;
        Ok(Newest { sequence, key: Some(key) })
    }

    async fn known(&self, name: KeyName) -> Result<Option<Zeroizing<Vec<u8>>>, KeyRingError> {
        let now = self.world.clock.monotonic();
        let changes = {
            let mut read = self.read.lock();
            read.keys.retain(|_, (until, _)| *until > now);
            if let Some((_, key)) = read.keys.get(&name) {
                return Ok(Some(key.clone()));
            }
            read.changes
        };
        let newest = self.newest(name).await?;
        if let Some(key) = &newest.key {
            let mut read = self.read.lock();
            if read.changes == changes {
                read.keys.insert(name, (now + KEPT_FOR, key.clone()));
            }
        }
        Ok(newest.key)
    }

    async fn replace(&self, name: KeyName, expected: u64, payload: Bytes) -> Result<(), PublishError> {
        let message = Publish::plain(STREAM, subject(name), Some(expected), payload);
        self.server.publish(&message).await.map(|_| ())
    }

    /// Puts a key where there is none.
    async fn store_new(
        &self,
        name: KeyName,
        key: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        let mut nonce = [0_u8; 12];
        self.world.random.fill(&mut nonce);
        let sealed = Bytes::from(self.seal.close(&Keys::from([(name, key)]), nonce)?);
        self.settle(name, |newest| newest.key.is_none().then(|| sealed.clone())).await?;
        self.newest(name).await?.key.ok_or_else(|| failed("the key was destroyed while it was made"))
    }

    /// Changes a name's message until it needs no change.
    async fn settle(
        &self,
        name: KeyName,
        change: impl Fn(&Newest) -> Option<Bytes>,
    ) -> Result<(), KeyRingError> {
        let mut last = ServerError(String::new());
        for _ in 0..ATTEMPTS {
            let newest = self.newest(name).await?;
            let Some(payload) = change(&newest) else { return Ok(()) };
            match self.replace(name, newest.sequence, payload).await {
                Ok(()) => {
                    let mut read = self.read.lock();
                    read.changes += 1;
                    read.keys.remove(&name);
                    return Ok(());
                }
                Err(PublishError::Refused(detail) | PublishError::Away(detail)) => {
                    return Err(failed(detail));
                }
                Err(error) => last = ServerError(error.to_string()),
            }
            self.world.clock.sleep(PAUSE).await;
        }
        Err(failed(last))
    }
}

#[async_trait]
impl KeyRing for KeyStream {
    async fn get(&self, name: KeyName) -> Result<Option<Zeroizing<Vec<u8>>>, KeyRingError> {
        self.known(name).await
    }

    async fn get_or_create(&self, name: KeyName) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        match self.known(name).await? {
            Some(key) => Ok(key),
            None => self.store_new(name, fresh_key(self.world.random.as_ref(), name)).await,
        }
    }

    async fn put_new(
        &self,
        name: KeyName,
        key: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        self.store_new(name, key).await
    }

    async fn destroy(&self, name: KeyName) -> Result<(), KeyRingError> {
        self.settle(name, |newest| newest.key.as_ref().map(|_| Bytes::new())).await
    }
}
