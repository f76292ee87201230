//! The data folder of a server on this machine, and what `kasbah up` leaves in it for people and the client.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The certificate authority, PEM.
pub const AUTHORITY_FILE: &str = "ca.crt";
/// The first owner's token; only its user may read it.
pub const TOKEN_FILE: &str = "owner-token";
/// See [`ClientFile`].
pub const CLIENT_FILE: &str = "client.json";

/// What the client needs to reach the server of this folder. Paths are relative to the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFile {
    /// URL of the API.
    pub server: String,
    /// The certificate authority, if clients need to be told whom to trust.
    pub ca_file: Option<PathBuf>,
    /// The owner's token.
    pub token_file: PathBuf,
    /// `host:port` that agents dial.
    pub gateway: String,
    /// URL under which people and jobs reach clusters' APIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<String>,
    /// URL of the web page, where it is not that of the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// `kasbah` in the user's data folder: `$XDG_DATA_HOME`, else `~/.local/share`; `None` for a user without a home.
#[must_use]
pub fn default_data_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data =
        absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("kasbah"))
}

impl ClientFile {
    /// The file of a server that is reached so.
    #[must_use]
    pub fn new(server: String, gateway: String, clusters: Option<String>, has_authority: bool) -> Self {
        let path = |name: &str| Path::new(name).to_owned();
        let ca_file = has_authority.then(|| path(AUTHORITY_FILE));
        Self { server, ca_file, token_file: path(TOKEN_FILE), gateway, clusters, page: None }
    }

    /// The same with a web page at another URL.
    #[must_use]
    pub fn with_page(mut self, page: Option<String>) -> Self {
        self.page = page.filter(|page| *page != self.server);
        self
    }
}
