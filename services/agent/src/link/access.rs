//! What lets this agent in: its token, and whom it trusts.

use std::path::PathBuf;

use anyhow::Context as _;
use tunnel::agent::{Target, Transport};
use tunnel::handshake::Token;
use world::World;

use crate::args::{Args, Server};

/// Where token and authorities lie. Read for each dial, so that who rotates them replaces their files and starts nothing anew.
pub struct Access {
    world: World,
    server: Server,
    token_file: Option<PathBuf>,
    token: Option<String>,
    ca_file: Option<PathBuf>,
    insecure_plain_text: bool,
}

impl Access {
    /// As the settings say.
    #[must_use]
    pub fn new(args: &Args, world: &World) -> Self {
        Self {
            world: world.clone(),
            server: args.server.clone(),
            token_file: args.token_file.clone(),
            token: args.token.clone(),
            ca_file: args.tls.ca_file.clone(),
            insecure_plain_text: args.insecure_plain_text,
        }
    }

    /// Reads both.
    ///
    /// # Errors
    /// When a file cannot be read, or does not hold what it should.
    pub fn read(&self) -> anyhow::Result<(Target, Token)> {
        let target =
            Target { host: self.server.host.clone(), port: self.server.port, transport: self.transport()? };
        Ok((target, self.read_token()?))
    }

    fn read_token(&self) -> anyhow::Result<Token> {
        let text = match (&self.token_file, &self.token) {
            (Some(path), _) => {
                let bytes = self.world.disk.read(path);
                let bytes =
                    bytes.with_context(|| format!("cannot read the token from {}", path.display()))?;
                String::from_utf8(bytes).ok().with_context(|| format!("{} holds no token", path.display()))?
            }
            (None, Some(token)) => token.clone(),
            (None, None) => anyhow::bail!("no token: give --token-file or KASBAH_AGENT_TOKEN"),
        };
        anyhow::ensure!(!text.trim().is_empty(), "the token is empty");
        Ok(Token::new(&text))
    }

    fn transport(&self) -> anyhow::Result<Transport> {
        if self.insecure_plain_text {
            return Ok(Transport::PlainText);
        }
        let protocols = [tunnel::settings::ALPN];
        let config = chassis::tls::client_config(&self.world, self.ca_file.as_deref(), &protocols)?;
        Ok(Transport::Tls(config))
    }
}
