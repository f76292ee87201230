//! Which server is meant, and what the files of the data folder say of it.

use std::path::{Path, PathBuf};

use reqwest::Url;
use world::World;

use super::{ConnectionArgs, ProcessEnvironment, SettingsError, parse_server};
use crate::client::stored_login::StoredLogin;
use crate::folder::{CLIENT_FILE, ClientFile};

/// A server, before it is known who asks.
#[derive(Debug, Clone)]
pub struct Target {
    /// The API's root.
    pub server: Url,
    /// Whom to trust; the machine's authorities if `None`.
    pub ca_file: Option<PathBuf>,
    /// The data folder.
    pub folder: Option<PathBuf>,
    /// What `kasbah up` left, if it is this server's.
    pub up: Option<ClientFile>,
    /// The login, if it is at this server.
    pub login: Option<StoredLogin>,
}

impl Target {
    /// The server that is given, or else that of the login, or else that of `kasbah up`.
    ///
    /// # Errors
    /// When none is known, or a file cannot be read.
    pub fn resolve(
        args: &ConnectionArgs,
        surroundings: &ProcessEnvironment,
        world: &World,
    ) -> Result<Self, SettingsError> {
        let given = args.server.as_deref().map(parse_server).transpose()?;
        let folder = args.data.clone().or_else(|| surroundings.data.clone());
        let (up, login) = match &folder {
            Some(folder) => (read_client_file(folder, world)?, StoredLogin::read(folder, world)?),
            None => (None, None),
        };
        let of_up = up.as_ref().map(|file| parse_server(&file.server)).transpose()?;
        let of_login = login.as_ref().map(|login| parse_server(&login.server)).transpose()?;
        let known = given.or_else(|| of_login.clone()).or_else(|| of_up.clone());
        let server = known.ok_or_else(|| match &folder {
            Some(folder) => SettingsError::NoServer { file: folder.join(CLIENT_FILE) },
            None => SettingsError::NoFolder,
        })?;
        let up = up.filter(|_| of_up.as_ref() == Some(&server));
        let login = login.filter(|_| of_login.as_ref() == Some(&server));
        let kept = login.as_ref().and_then(|login| login.ca_file.clone());
        let left = up.as_ref().and_then(|file| file.ca_file.clone());
        let ca_file = args.ca_file.clone().or(kept).or(left);
        Ok(Self { server, ca_file, folder, up, login })
    }

    /// The login of another folder, if it is at this server.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn login_in(&self, folder: &Path, world: &World) -> Result<Option<StoredLogin>, SettingsError> {
        let Some(login) = StoredLogin::read(folder, world)? else { return Ok(None) };
        let at = parse_server(&login.server)?;
        Ok(Some(login).filter(|_| at == self.server))
    }
}

fn read_client_file(folder: &Path, world: &World) -> Result<Option<ClientFile>, SettingsError> {
    let path = folder.join(CLIENT_FILE);
    let bytes = match world.disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(detail) => return Err(SettingsError::File { setting: "--data", file: path, detail }),
    };
    let mut file: ClientFile = serde_json::from_slice(&bytes).map_err(|detail| SettingsError::BadFile {
        file: path.clone(),
        writer: "kasbah up",
        detail,
    })?;
    file.ca_file = file.ca_file.map(|path| folder.join(path));
    file.token_file = folder.join(&file.token_file);
    Ok(Some(file))
}
