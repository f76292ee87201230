//! What `kasbah login` keeps in the data folder: of one server, beside what `kasbah up` may have left there.

use std::path::{Path, PathBuf};

use events::{Timestamp, TokenId};
use serde::{Deserialize, Serialize};
use world::World;
use zeroize::Zeroizing;

use super::settings::SettingsError;

/// See [`StoredLogin`].
const FILE: &str = "login.json";
/// The token, alone, as every `--token-file` is. It counts only with [`FILE`], which says whose it is.
const TOKEN_FILE: &str = "login-token";

/// A login: where, as whom, and until when. The token itself lies in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLogin {
    /// URL of the API.
    pub server: String,
    /// The certificate authority that the login was made with, as an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Name of the organization.
    pub organization: String,
    /// Name of the identity provider.
    pub provider: String,
    /// What the person is called there, if the provider said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The token's id.
    pub token: TokenId,
    /// When the token ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl StoredLogin {
    /// The one of a folder, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(folder: &Path, world: &World) -> Result<Option<Self>, SettingsError> {
        let path = folder.join(FILE);
        match world.disk.read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|detail| SettingsError::BadFile {
                file: path,
                writer: "kasbah login",
                detail,
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(detail) => Err(SettingsError::File { setting: "--data", file: path, detail }),
        }
    }

    /// Keeps it in a folder, in the place of a former one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, secret: &str, folder: &Path, world: &World) -> std::io::Result<()> {
        world.disk.create_folder(folder)?;
        // At no moment does a token lie beside a file that says another server: it would be sent there.
        Self::remove(folder, world)?;
        let line = Zeroizing::new(format!("{secret}\n"));
        world.disk.replace(&folder.join(TOKEN_FILE), line.as_bytes(), true)?;
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?;
        world.disk.replace(&folder.join(FILE), &text, true)
    }

    /// Removes what is kept in a folder, the token last.
    ///
    /// # Errors
    /// When a file is there and cannot be removed.
    pub fn remove(folder: &Path, world: &World) -> std::io::Result<()> {
        for name in [FILE, TOKEN_FILE] {
            match world.disk.remove(&folder.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The file with the token of a folder's login.
    #[must_use]
    pub fn token_file(folder: &Path) -> PathBuf {
        folder.join(TOKEN_FILE)
    }

    /// The folder of the login whose token lies in a file, if it is a login's.
    #[must_use]
    pub fn folder_of(token_file: &Path) -> Option<&Path> {
        token_file.parent().filter(|_| token_file.file_name().is_some_and(|name| name == TOKEN_FILE))
    }

    /// Whether the token ended by itself.
    #[must_use]
    pub fn has_ended(&self, world: &World) -> bool {
        self.expires_at.is_some_and(|end| end <= Timestamp(world.clock.now_millis()))
    }
}

/// `ada@example.org at https://kasbah.example.org:8440`.
impl std::fmt::Display for StoredLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(login) = &self.login {
            write!(f, "{login} ")?;
        }
        write!(f, "at {}", self.server.trim_end_matches('/'))
    }
}
