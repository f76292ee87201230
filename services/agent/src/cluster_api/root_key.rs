//! The root key that this agent pins.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use world::World;

use crate::args::Args;

/// The file is looked at again that often at most.
pub(super) const LOOK_EVERY_MILLIS: i64 = 5000;

/// The public half of the key that signs passes (Ed25519).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootKey(pub(super) [u8; 32]);

/// A text is no root key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a public root key: 32 bytes in base64, as the registration of an agent shows it")]
pub struct NotARootKey;

impl FromStr for RootKey {
    type Err = NotARootKey;

    fn from_str(text: &str) -> Result<Self, NotARootKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| NotARootKey)?;
        bytes.try_into().map(Self).map_err(|_| NotARootKey)
    }
}

impl RootKey {
    /// As the settings say; the file comes first, as with the token.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no key.
    pub fn read(args: &Args, world: &World) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.root_key_file else { return Ok(args.root_key) };
        key_in(path, world).map(Some)
    }
}

/// The file that holds the root key, looked at again while passes come: who replaces a root that was stolen starts no agent anew. What was
/// right stays in force until the file holds another one.
pub(super) struct RootKeyFile {
    world: World,
    path: PathBuf,
    seen: Mutex<Seen>,
}

struct Seen {
    key: RootKey,
    looked_at_millis: i64,
    fault: String,
}

impl RootKeyFile {
    /// It held that key a moment ago.
    pub(super) const fn new(world: World, path: PathBuf, key: RootKey) -> Self {
        let seen = Seen { key, looked_at_millis: 0, fault: String::new() };
        Self { world, path, seen: Mutex::new(seen) }
    }

    /// The key in it, when it is another than the one before.
    pub(super) fn another(&self, now_millis: i64) -> Option<RootKey> {
        let mut seen = self.seen.lock();
        if now_millis.abs_diff(seen.looked_at_millis) < LOOK_EVERY_MILLIS.unsigned_abs() {
            return None;
        }
        seen.looked_at_millis = now_millis;
        let (key, fault) = match key_in(&self.path, &self.world) {
            Ok(key) => (Some(key), String::new()),
            Err(error) => (None, format!("{error:#}")),
        };
        if !fault.is_empty() && fault != seen.fault {
            tracing::warn!(fault, "the last root key stays pinned");
        }
        seen.fault = fault;
        let another = key.filter(|key| *key != seen.key)?;
        seen.key = another;
        Some(another)
    }
}

fn key_in(path: &Path, world: &World) -> anyhow::Result<RootKey> {
    let shown = path.display();
    let bytes = world.disk.read(path).with_context(|| format!("--root-key-file: cannot read {shown}"))?;
    let key = String::from_utf8(bytes).map_err(|_| NotARootKey).and_then(|text| text.parse());
    key.with_context(|| format!("--root-key-file: {shown} holds no root key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_key_is_32_bytes_of_base64() {
        let text = STANDARD.encode([7_u8; 32]);
        assert_eq!(text.parse(), Ok(RootKey([7; 32])));
        assert_eq!(format!("{text}\n").parse(), Ok(RootKey([7; 32])), "as a file ends");
        let (short, long) = (STANDARD.encode([7_u8; 31]), STANDARD.encode([7_u8; 33]));
        for wrong in ["", "root", &short, &long, &text.replace('=', "")] {
            assert_eq!(wrong.parse::<RootKey>(), Err(NotARootKey), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_file_without_a_key_is_refused_by_the_settings_name() {
        let folder = testkit::Folder::temporary().unwrap();
        let (world, path) = (World::real(), folder.path().join("root-key"));
        let server = crate::args::Server { host: "a".to_owned(), port: 1 };
        let mut args = Args::plain_text(server, path.clone());
        assert_eq!(RootKey::read(&args, &world).unwrap(), None);
        args.root_key_file = Some(path.clone());
        let refused = |args: &Args| format!("{:#}", RootKey::read(args, &world).unwrap_err());
        assert!(refused(&args).contains("--root-key-file: cannot read"), "{}", refused(&args));
        std::fs::write(&path, "nothing").unwrap();
        assert!(refused(&args).contains("--root-key-file") && refused(&args).contains("32 bytes"));
        std::fs::write(&path, STANDARD.encode([1_u8; 32])).unwrap();
        assert_eq!(RootKey::read(&args, &world).unwrap(), Some(RootKey([1; 32])));
    }

    #[test]
    fn another_key_is_found_once_and_what_is_none_changes_nothing() {
        let (folder, first) = (testkit::Folder::temporary().unwrap(), RootKey([1; 32]));
        let path = folder.path().join("root-key");
        let file = RootKeyFile::new(World::real(), path.clone(), first);
        let hold = |text: &str| std::fs::write(&path, text).unwrap();
        let mut now = 1_700_000_000_000;
        let mut look = || {
            now += LOOK_EVERY_MILLIS;
            (file.another(now), file.seen.lock().fault.clone())
        };
        let (another, fault) = look();
        assert!(another.is_none() && fault.contains("cannot read"), "{fault}");
        hold("nothing");
        let (another, fault) = look();
        assert!(another.is_none() && fault.contains("holds no root key"), "{fault}");
        hold(&STANDARD.encode([1_u8; 32]));
        assert_eq!(look(), (None, String::new()), "it is the one before");
        hold(&STANDARD.encode([2_u8; 32]));
        assert_eq!(look().0, Some(RootKey([2; 32])));
        assert_eq!(look().0, None);
        hold("");
        assert_eq!(look().0, None);
        hold(&STANDARD.encode([2_u8; 32]));
        assert_eq!(look().0, None, "nothing was taken back");
        hold(&STANDARD.encode([3_u8; 32]));
        assert_eq!(file.another(now + LOOK_EVERY_MILLIS - 1), None);
        assert_eq!(
            file.another(now - LOOK_EVERY_MILLIS),
            Some(RootKey([3; 32])),
            "a clock that was set back"
        );
    }
}
