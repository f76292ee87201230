//! The root key that this agent pins.

use std::str::FromStr;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use world::World;

use crate::args::Args;

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
        let shown = path.display();
        let bytes = world.disk.read(path).with_context(|| format!("--root-key-file: cannot read {shown}"))?;
        let key = String::from_utf8(bytes).map_err(|_| NotARootKey).and_then(|text| text.parse());
        key.map(Some).with_context(|| format!("--root-key-file: {shown} holds no root key"))
    }
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
}
