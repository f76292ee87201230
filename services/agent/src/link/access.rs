//! What lets this agent in: its token, and whom it trusts.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tunnel::agent::{Target, Transport};
use tunnel::handshake::Token;
use world::World;

use super::last_words::LastWords;
use crate::args::Args;

/// What is agreed on with TLS.
const PROTOCOLS: &[&[u8]] = &[tunnel::settings::ALPN];

/// Read again while the agent dials, so that who rotates them replaces their files and starts nothing anew. What was right stays
/// in force until its file holds something else that is.
pub struct Access {
    world: World,
    token_file: Option<PathBuf>,
    ca_file: Option<CaFile>,
    target: Target,
    token: Token,
    last_words: LastWords,
}

impl Access {
    /// As the settings say.
    ///
    /// # Errors
    /// When a file cannot be read, or does not hold what it should.
    pub fn read(args: &Args, world: &World) -> anyhow::Result<Self> {
        let token = match (&args.token_file, &args.token) {
            (Some(path), _) => token_in(path, world)?,
            (None, Some(token)) => token_of(token)?,
            (None, None) => anyhow::bail!("no token: give --token-file or KASBAH_AGENT_TOKEN"),
        };
        let ca_file = args.tls.ca_file.as_deref().filter(|_| !args.insecure_plain_text);
        let ca_file = ca_file.map(|path| CaFile::read(path, world)).transpose()?;
        let transport = match &ca_file {
            _ if args.insecure_plain_text => Transport::PlainText,
            Some(ca_file) => ca_file.transport(world)?,
            None => Transport::Tls(chassis::tls::client_config(world, None, PROTOCOLS)?),
        };
        Ok(Self {
            world: world.clone(),
            token_file: args.token_file.clone(),
            ca_file,
            target: Target { host: args.server.host.clone(), port: args.server.port, transport },
            token,
            last_words: LastWords::default(),
        })
    }

    /// Where the server is.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Who this agent is.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Reads the files again; true when there is another token.
    pub fn refresh(&mut self) -> bool {
        let (mut renewed, mut words) = (false, Vec::new());
        match self.token_file.as_ref().map(|path| token_in(path, &self.world)) {
            Some(Ok(token)) => {
                renewed = token.secret() != self.token.secret();
                self.token = token;
            }
            Some(Err(error)) => words.push(format!("{error:#}")),
            None => {}
        }
        match self.newer_ca_file() {
            Ok(Some((ca_file, transport))) => {
                (self.ca_file, self.target.transport) = (Some(ca_file), transport);
            }
            Ok(None) => {}
            Err(error) => words.push(format!("{error:#}")),
        }
        match self.last_words.news(words.join("; ")) {
            Some("") | None => {}
            Some(reason) => tracing::warn!(reason, "the last token or authority stays in force"),
        }
        renewed
    }

    /// Another authority than the one in force, if the file holds one. The same keeps its tickets, by which TLS is resumed; another one
    /// begins without.
    fn newer_ca_file(&self) -> anyhow::Result<Option<(CaFile, Transport)>> {
        let Some(former) = &self.ca_file else { return Ok(None) };
        let now = CaFile::read(&former.path, &self.world)?;
        if now.pem == former.pem {
            return Ok(None);
        }
        let transport = now.transport(&self.world)?;
        Ok(Some((now, transport)))
    }
}

/// The file with the authorities that are trusted.
struct CaFile {
    path: PathBuf,
    /// What it held.
    pem: Vec<u8>,
}

impl CaFile {
    fn read(path: &Path, world: &World) -> anyhow::Result<Self> {
        let pem = world.disk.read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path: path.to_owned(), pem })
    }

    fn transport(&self, world: &World) -> anyhow::Result<Transport> {
        let config = chassis::tls::client_config_trusting(world, &self.pem, PROTOCOLS);
        Ok(Transport::Tls(config.with_context(|| self.path.display().to_string())?))
    }
}

fn token_in(path: &Path, world: &World) -> anyhow::Result<Token> {
    let bytes = world.disk.read(path);
    let bytes = bytes.with_context(|| format!("cannot read the token from {}", path.display()))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{} holds no token", path.display()))?;
    token_of(&text)
}

fn token_of(text: &str) -> anyhow::Result<Token> {
    anyhow::ensure!(!text.trim().is_empty(), "the token is empty");
    Ok(Token::new(text))
}
