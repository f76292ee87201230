//! What lets this agent in: its token, and whom it trusts.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tunnel::agent::{Target, Transport};
use tunnel::handshake::Token;
use world::World;

use super::last_words::LastWords;
use crate::args::Args;

/// Read again while the agent dials, so that who rotates them replaces their files and starts nothing anew. What was right stays
/// in force until its file holds something else that is.
pub struct Access {
    world: World,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// What the file held when it was last taken over.
    authority: Vec<u8>,
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
        let ca_file = args.tls.ca_file.clone().filter(|_| !args.insecure_plain_text);
        let token = match (&args.token_file, &args.token) {
            (Some(path), _) => token_in(path, world)?,
            (None, Some(token)) => token_of(token)?,
            (None, None) => anyhow::bail!("no token: give --token-file or KASBAH_AGENT_TOKEN"),
        };
        let authority = ca_file.as_deref().map(|path| bytes_in(path, world)).transpose()?.unwrap_or_default();
        let transport =
            if args.insecure_plain_text { Transport::PlainText } else { tls(ca_file.as_deref(), world)? };
        Ok(Self {
            world: world.clone(),
            token_file: args.token_file.clone(),
            ca_file,
            authority,
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
        match self.newer_authority() {
            Ok(Some((authority, transport))) => {
                (self.authority, self.target.transport) = (authority, transport);
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
    fn newer_authority(&self) -> anyhow::Result<Option<(Vec<u8>, Transport)>> {
        let Some(path) = &self.ca_file else { return Ok(None) };
        let authority = bytes_in(path, &self.world)?;
        if authority == self.authority {
            return Ok(None);
        }
        Ok(Some((authority, tls(Some(path), &self.world)?)))
    }
}

fn bytes_in(path: &Path, world: &World) -> anyhow::Result<Vec<u8>> {
    world.disk.read(path).with_context(|| format!("cannot read {}", path.display()))
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

fn tls(ca_file: Option<&Path>, world: &World) -> anyhow::Result<Transport> {
    let protocols = [tunnel::settings::ALPN];
    Ok(Transport::Tls(chassis::tls::client_config(world, ca_file, &protocols)?))
}
