//! Where the server is, whom it is trusted by, and who we are there.

mod target;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use reqwest::Url;
use world::World;
use zeroize::Zeroizing;

use super::print::Format;
use super::stored_login::StoredLogin;
use crate::folder::default_data_folder;

pub use target::Target;

/// The API's port when a server is given without one.
const API_PORT: u16 = 8440;

/// What every command of the client takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Common {
    /// Where the API is and who we are there.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Output format
    #[arg(short, long, value_parser = Format::parser(Format::COMMON), default_value = "table", global = true,
        help_heading = "Output")]
    pub output: Format,
}

/// Each option names its heading: one for all of them would go on over the options of the command itself.
const CONNECTION: &str = "Connection";

/// How to reach the API.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConnectionArgs {
    /// Address of the API, such as https://kasbah.example.org:8440; by default the address of `kasbah login`, or else of client.json
    /// in the data folder
    #[arg(long, env = "KASBAH_SERVER", global = true, help_heading = CONNECTION, value_name = "URL")]
    pub server: Option<String>,

    /// File with the personal token; KASBAH_TOKEN may contain the token itself
    #[arg(long, env = "KASBAH_TOKEN_FILE", global = true, help_heading = CONNECTION, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,

    /// PEM file with the certificate authority of the server; by default the machine's trusted authorities
    #[arg(long, env = "KASBAH_CA_FILE", global = true, help_heading = CONNECTION, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,

    /// Folder with client.json of `kasbah up` and the login of `kasbah login`; by default `kasbah` in the user's data folder
    #[arg(long, env = "KASBAH_DATA", global = true, help_heading = CONNECTION, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
}

/// What is read of the process' environment besides the options.
#[derive(Clone, Default)]
pub struct ProcessEnvironment {
    /// `KASBAH_TOKEN`.
    pub token: Option<Zeroizing<String>>,
    /// Where the data folder is by default.
    pub data: Option<PathBuf>,
}

impl ProcessEnvironment {
    /// Of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let token = std::env::var("KASBAH_TOKEN").ok().filter(|token| !token.is_empty());
        Self { token: token.map(Zeroizing::new), data: default_data_folder() }
    }
}

/// Why it is not known where and as whom to ask.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Nothing says where the API is.
    #[error(
        "no server is set: {} does not exist; give --server, or --data with the folder of `kasbah up`",
        file.display()
    )]
    NoServer {
        /// Where it was looked for.
        file: PathBuf,
    },
    /// There is not even a folder to look in.
    #[error("no server is set: give --server")]
    NoFolder,
    /// No token at all.
    #[error("no token for {server}: run `kasbah login`, give --token-file or set KASBAH_TOKEN")]
    NoToken {
        /// For whom.
        server: Url,
    },
    /// The token of a login is dead.
    #[error("the login of {login} has expired: run `kasbah login`")]
    LoginEnded {
        /// Whose, and where.
        login: String,
    },
    /// A login's token is wanted, and there is none for this server.
    #[error("no user is signed in at {server}: run `kasbah login --server {server}`")]
    NotSignedIn {
        /// Where.
        server: Url,
    },
    /// A file cannot be read.
    #[error("cannot read {} of {setting}: {detail}", file.display())]
    File {
        /// Which setting names it.
        setting: &'static str,
        /// Which.
        file: PathBuf,
        /// What the operating system said.
        detail: std::io::Error,
    },
    /// A file is not what its writer writes.
    #[error("{} is not what `{writer}` writes: {detail}", file.display())]
    BadFile {
        /// Which.
        file: PathBuf,
        /// The command that writes it.
        writer: &'static str,
        /// What is wrong.
        detail: serde_json::Error,
    },
    /// The address makes no sense.
    #[error("--server {given:?} is not an address of an API: {detail}")]
    BadServer {
        /// What was given.
        given: String,
        /// What is wrong, and what is wanted.
        detail: String,
    },
    /// The token cannot stand in a header.
    #[error("{origin} contains no token: expected one line that begins with kasbah_")]
    BadToken {
        /// Where it came from.
        origin: String,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] chassis::tls::TlsError),
}

/// Everything that a connection needs.
#[derive(Clone)]
pub struct Settings {
    /// The API's root.
    pub server: Url,
    /// Whom to trust; the machine's authorities if `None`.
    pub ca_file: Option<PathBuf>,
    /// Address of the gateway for agents, where `kasbah up` says it.
    pub gateway: Option<String>,
    /// URL of clusters' APIs, where `kasbah up` says it.
    pub clusters: Option<String>,
    /// URL of the web page, where `kasbah up` says that it is not that of the API.
    pub page: Option<String>,
    /// Where the token was read, if that was a file.
    pub token_file: Option<PathBuf>,
    /// Who we are.
    pub token: Zeroizing<String>,
    /// Whose token it is and where, if a login keeps it.
    pub login: Option<String>,
}

impl Settings {
    /// Puts together what the options, the environment, a login and client.json say. What a file says of trust and token
    /// counts only for the server that it names, so that no token is sent to another.
    ///
    /// # Errors
    /// When something is missing or cannot be read.
    pub fn resolve(
        args: &ConnectionArgs,
        surroundings: &ProcessEnvironment,
        world: &World,
    ) -> Result<Self, SettingsError> {
        let target = Target::resolve(args, surroundings, world)?;
        let found = token(args, surroundings, &target, world)?;
        let Target { server, ca_file, up, .. } = target;
        let (gateway, clusters, page) =
            up.map_or((None, None, None), |file| (Some(file.gateway), file.clusters, file.page));
        let Found { token, file: token_file, login } = found;
        Ok(Self { server, ca_file, gateway, clusters, page, token, token_file, login })
    }

    /// The host, for messages.
    #[must_use]
    pub fn host(&self) -> String {
        self.server.host_str().unwrap_or_default().to_owned()
    }
}

/// A token and where it comes from.
struct Found {
    token: Zeroizing<String>,
    file: Option<PathBuf>,
    login: Option<String>,
}

fn token(
    args: &ConnectionArgs,
    surroundings: &ProcessEnvironment,
    target: &Target,
    world: &World,
) -> Result<Found, SettingsError> {
    let (token, file, login) = match (&args.token_file, &surroundings.token) {
        (Some(path), _) => match StoredLogin::folder_of(path) {
            Some(folder) => of_login(folder, target.login_in(folder, world)?, target, world)?,
            None => (read_token(path, world)?, Some(path.clone()), None),
        },
        (None, Some(token)) => (token.clone(), None, None),
        (None, None) => match (&target.folder, &target.login, &target.up) {
            (Some(folder), Some(login), _) => of_login(folder, Some(login.clone()), target, world)?,
            (_, None, Some(up)) => (read_token(&up.token_file, world)?, Some(up.token_file.clone()), None),
            _ => return Err(SettingsError::NoToken { server: target.server.clone() }),
        },
    };
    let token = Zeroizing::new(token.trim().to_owned());
    let sound = token.starts_with("kasbah_") && token.bytes().all(|byte| byte.is_ascii_graphic());
    if sound {
        return Ok(Found { token, file, login });
    }
    let origin = file.map_or_else(|| "KASBAH_TOKEN".to_owned(), |file| file.display().to_string());
    Err(SettingsError::BadToken { origin })
}

type TokenOfFile = (Zeroizing<String>, Option<PathBuf>, Option<String>);

fn of_login(
    folder: &Path,
    login: Option<StoredLogin>,
    target: &Target,
    world: &World,
) -> Result<TokenOfFile, SettingsError> {
    let login = login.ok_or_else(|| SettingsError::NotSignedIn { server: target.server.clone() })?;
    if login.has_ended(world) {
        return Err(SettingsError::LoginEnded { login: login.to_string() });
    }
    let path = StoredLogin::token_file(folder);
    Ok((read_token(&path, world)?, Some(path), Some(login.to_string())))
}

pub(super) fn read_token(path: &Path, world: &World) -> Result<Zeroizing<String>, SettingsError> {
    let bytes = world.disk.read(path).map_err(|detail| SettingsError::File {
        setting: "--token-file",
        file: path.to_owned(),
        detail,
    })?;
    let bytes = Zeroizing::new(bytes);
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

pub(super) fn parse_server(given: &str) -> Result<Url, SettingsError> {
    let wrong = |detail: String| SettingsError::BadServer { given: given.to_owned(), detail };
    let text = if given.contains("://") { given.to_owned() } else { format!("https://{given}") };
    let mut url = Url::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it must not contain credentials; give --token-file".to_owned()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it names no host".to_owned()));
    }
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        _ => {
            return Err(wrong(
                "expected https://<host>:<port>; tokens are never sent in plain text".to_owned(),
            ));
        }
    }
    // Url leaves out a port that is the scheme's own, so what was written is what counts.
    if url.port().is_none() && !names_port(&text) {
        url.set_port(Some(API_PORT)).map_err(|()| wrong("it must not have a port".to_owned()))?;
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn names_port(text: &str) -> bool {
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
