//! What lets this agent in: its token, and whom it trusts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tunnel::agent::{Target, Transport};
use tunnel::handshake::Token;
use world::World;

use super::last_message::LastMessage;
use crate::args::Args;

/// What is agreed on with TLS.
const PROTOCOLS: &[&[u8]] = &[tunnel::settings::ALPN];
/// For so long TLS is resumed with what the same authority vouched for once: each ticket is good for a week, and brings the next one.
const RESUMED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Read again while the agent dials, so that who rotates them replaces their files and starts nothing anew. What was right stays
/// in force until its file holds something else that is.
pub struct Access {
    world: World,
    token_file: Option<PathBuf>,
    ca_file: Option<CaFile>,
    target: Target,
    /// Since when there are tickets in the target's transport, on the monotonic clock.
    resumed_since: Duration,
    token: Token,
    last_message: LastMessage,
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
        let transport = if args.insecure_plain_text {
            Transport::PlainText
        } else {
            transport_trusting(ca_file.as_ref(), world)?
        };
        Ok(Self {
            world: world.clone(),
            token_file: args.token_file.clone(),
            ca_file,
            target: Target { host: args.server.host.clone(), port: args.server.port, transport },
            resumed_since: world.clock.monotonic(),
            token,
            last_message: LastMessage::default(),
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
        if let Err(error) = self.refresh_transport() {
            words.push(format!("{error:#}"));
        }
        match self.last_message.if_changed(words.join("; ")) {
            Some("") | None => {}
            Some(reason) => tracing::warn!(reason, "the last valid token and authority stay in use"),
        }
        renewed
    }

    /// The same authority keeps its tickets, by which TLS is resumed without a look at the gateway's certificate, until it is time for
    /// one; another authority begins without.
    fn refresh_transport(&mut self) -> anyhow::Result<()> {
        if matches!(self.target.transport, Transport::PlainText) {
            return Ok(());
        }
        let ca_file =
            self.ca_file.as_ref().map(|former| CaFile::read(&former.path, &self.world)).transpose()?;
        let now = self.world.clock.monotonic();
        if ca_file == self.ca_file && now.saturating_sub(self.resumed_since) < RESUMED_FOR {
            return Ok(());
        }
        self.target.transport = transport_trusting(ca_file.as_ref(), &self.world)?;
        (self.ca_file, self.resumed_since) = (ca_file, now);
        Ok(())
    }
}

/// The file with the authorities that are trusted.
#[derive(PartialEq, Eq)]
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
}

/// Without a file, the machine's authorities are trusted.
fn transport_trusting(ca_file: Option<&CaFile>, world: &World) -> anyhow::Result<Transport> {
    let config = match ca_file {
        Some(file) => chassis::tls::client_config_trusting(world, &file.pem, PROTOCOLS)
            .with_context(|| file.path.display().to_string())?,
        None => chassis::tls::client_config(world, None, PROTOCOLS)?,
    };
    Ok(Transport::Tls(config))
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_authority_keeps_its_tickets_for_a_week_and_another_one_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let (token, ca) = (folder.path().join("token"), folder.path().join("ca.crt"));
        std::fs::write(&token, "t").unwrap();
        std::fs::write(&ca, authority()).unwrap();
        let [token, path] = [&token, &ca].map(|path| path.to_str().unwrap());
        let args = ["kasbah-agent", "--server", "a:1", "--token-file", token, "--ca-file", path];
        let mut access = Access::read(&Args::try_parse_from(args).unwrap(), &World::real()).unwrap();
        let mut in_force = || {
            access.refresh();
            let Transport::Tls(config) = access.target().transport.clone() else { panic!("plain text") };
            config
        };
        let first = in_force();
        tokio::time::advance(RESUMED_FOR - Duration::from_secs(1)).await;
        assert!(std::sync::Arc::ptr_eq(&first, &in_force()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = in_force();
        assert!(!std::sync::Arc::ptr_eq(&first, &second), "the certificate is looked at again");
        std::fs::write(&ca, "nothing").unwrap();
        assert!(std::sync::Arc::ptr_eq(&second, &in_force()));
        std::fs::write(&ca, authority()).unwrap();
        assert!(!std::sync::Arc::ptr_eq(&second, &in_force()));
    }
}
