//! What a command works with.

use std::io::Read as _;
use std::path::Path;

use events::requests::authz::AgentView;
use events::{AgentId, SourceId};
use world::World;
use zeroize::Zeroizing;

use super::api::Api;
use super::failure::Failure;
use super::print::Printer;
use super::settings::{Common, ProcessEnvironment, Settings};

/// The API, where to print, and the world around.
pub struct Session {
    /// The API.
    pub api: Api,
    /// Where to print.
    pub printer: Printer,
    /// What was settled of the connection.
    pub settings: Settings,
    /// Clock and files.
    pub world: World,
}

impl Session {
    /// Makes ready; asks nobody yet.
    ///
    /// # Errors
    /// When a setting is missing or wrong.
    pub fn open(common: &Common, surroundings: &ProcessEnvironment, world: &World) -> Result<Self, Failure> {
        let settings = Settings::resolve(&common.connection, surroundings, world)?;
        let api = Api::new(&settings, world)?;
        Ok(Self { api, printer: Printer::of(common.output, world), settings, world: world.clone() })
    }

    /// Whether people read the output.
    #[must_use]
    pub fn is_for_people(&self) -> bool {
        self.printer.format.is_text()
    }

    /// The agent of that name, `group/project:name`, or id.
    ///
    /// # Errors
    /// When there is none, or the server cannot be asked.
    pub async fn agent(&self, agent: &str) -> Result<AgentView, Failure> {
        self.api.get(&["agents", agent], &[]).await
    }

    /// The id of `agent/source`, or what is an id already. A source's id derives from agent and name.
    ///
    /// # Errors
    /// When it is neither, or there is no such agent.
    pub async fn source(&self, text: &str) -> Result<SourceId, Failure> {
        match SourceName::parse(text)? {
            SourceName::Id(id) => Ok(id),
            SourceName::Of { agent, name } => {
                let id = match agent.parse::<AgentId>() {
                    Ok(id) => id,
                    Err(_) => self.agent(agent).await?.id,
                };
                Ok(SourceId::derive(id, name))
            }
        }
    }

    /// Whom clients of the server are to trust, PEM, if that is known.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn authority(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.settings.ca_file else { return Ok(None) };
        let failure = |detail| Failure::Io { doing: format!("read {} of --ca-file", path.display()), detail };
        let bytes = self.world.disk.read(path).map_err(failure)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// A secret out of a file or, without one, out of what is piped in.
    ///
    /// # Errors
    /// When it cannot be read, is empty, or a person would have to type it in the open.
    pub fn secret(&self, file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
        let wrong = |message: &str| Failure::usage("--secret-file", message);
        let bytes = match file {
            Some(path) => self.world.disk.read(path).map_err(|detail| Failure::Io {
                doing: format!("read {} of --secret-file", path.display()),
                detail,
            })?,
            None if std::io::IsTerminal::is_terminal(&std::io::stdin()) => {
                return Err(wrong(
                    "give a file with the secret, or pipe it in: typed input would be visible",
                ));
            }
            None => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(|detail| Failure::Io {
                    doing: "read the secret from standard input".to_owned(),
                    detail,
                })?;
                bytes
            }
        };
        let bytes = Zeroizing::new(bytes);
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the secret is not UTF-8 text"))?;
        let secret = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
        if secret.is_empty() { Err(wrong("the secret is empty")) } else { Ok(secret) }
    }
}

/// How people name a source.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceName<'a> {
    /// By id.
    Id(SourceId),
    /// By its agent and its name there.
    Of {
        /// Name, `group/project:name`, or id of the agent.
        agent: &'a str,
        /// The source's name.
        name: &'a str,
    },
}

impl<'a> SourceName<'a> {
    /// Reads `agent/source`, `group/project:agent/source`, or an id.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &'a str) -> Result<Self, Failure> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        match text.rsplit_once('/') {
            Some((agent, name)) if !agent.is_empty() && !name.is_empty() => Ok(Self::Of { agent, name }),
            _ => {
                let message = format!(
                    "{text:?} names no source: expected <agent>/<source> or an id; `kasbah source list` shows them"
                );
                Err(Failure::usage("SOURCE", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_by_its_agent_or_by_its_id() {
        let id = SourceId::derive(AgentId(uuid::Uuid::from_u128(7)), "web");
        assert_eq!(SourceName::parse(&id.to_string()).unwrap(), SourceName::Id(id));
        for (text, agent, name) in
            [("edge/web", "edge", "web"), ("shop/config:edge/web", "shop/config:edge", "web")]
        {
            assert_eq!(SourceName::parse(text).unwrap(), SourceName::Of { agent, name });
        }
        for text in ["web", "/web", "edge/", ""] {
            assert_eq!(SourceName::parse(text).unwrap_err().code(), 2, "{text}");
        }
    }
}
