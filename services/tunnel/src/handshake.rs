//! What is said before the roles turn round.

use std::fmt;
use std::str::FromStr;

use events::{AgentId, InstanceId, Sha256};
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Path of the upgrade request.
pub const TUNNEL_PATH: &str = "/v1/tunnel";
/// The protocol that the connection is upgraded to.
pub const UPGRADE_PROTOCOL: &str = "kasbah-tunnel";
/// The one version of the link that is spoken here.
pub const PROTOCOL_VERSION: u16 = 1;
/// Longest version text and capability, in bytes, and most capabilities that a gateway reads.
const MAXIMUM_TEXT_BYTES: usize = 128;
const MAXIMUM_CAPABILITIES: usize = 32;

const PROTOCOL: HeaderName = HeaderName::from_static("kasbah-protocol");
const ROLE: HeaderName = HeaderName::from_static("kasbah-role");
const INSTANCE: HeaderName = HeaderName::from_static("kasbah-instance");
const EPOCH: HeaderName = HeaderName::from_static("kasbah-epoch");
const VERSION: HeaderName = HeaderName::from_static("kasbah-version");
const CAPABILITIES: HeaderName = HeaderName::from_static("kasbah-capabilities");
const DESIRED: HeaderName = HeaderName::from_static("kasbah-desired");
const AGENT: HeaderName = HeaderName::from_static("kasbah-agent");
const TIME: HeaderName = HeaderName::from_static("kasbah-time");

/// An agent's token. Shown by nothing but [`Token::secret`].
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Takes a token's text; surrounding white space, as a file ends with, is cut.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.trim().to_owned()))
    }

    /// The secret itself, to be hashed or sent.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Desired state and events: the tunnel itself.
    Control,
    /// Requests to the cluster's API, beside the tunnel.
    Bulk,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Bulk => "bulk",
        }
    }
}

/// What an agent says of itself besides its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Version of the link that it speaks: [`PROTOCOL_VERSION`].
    pub protocol: u16,
    /// What the connection is for.
    pub role: Role,
    /// Which process.
    pub instance: InstanceId,
    /// The last applier epoch that this process had, 0 if none.
    pub epoch: u64,
    /// The agent's own version.
    pub version: String,
    /// What it can do beyond the protocol's version.
    pub capabilities: Vec<String>,
    /// The digest of the desired state that this process has whole, as it was sent: it need not be sent again.
    pub desired: Option<Sha256>,
}

/// What the gateway answers beside `101`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// Whom the token belongs to.
    pub agent: AgentId,
    /// Version of the link that is spoken from now on.
    pub protocol: u16,
    /// The server's clock, milliseconds since the Unix epoch.
    pub time_millis: i64,
}

/// A header of the handshake is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header {header} {problem}")]
pub struct HandshakeError {
    /// Which header.
    pub header: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl HandshakeError {
    const fn new(header: &'static str, problem: &'static str) -> Self {
        Self { header, problem }
    }
}

impl Hello {
    /// Says hello with this version of the link.
    #[must_use]
    pub fn control(instance: InstanceId, epoch: u64, version: &str) -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            role: Role::Control,
            instance,
            epoch,
            version: version.to_owned(),
            capabilities: Vec::new(),
            desired: None,
        }
    }

    /// Says hello for a connection beside the tunnel.
    #[must_use]
    pub fn bulk(instance: InstanceId, version: &str) -> Self {
        Self { role: Role::Bulk, ..Self::control(instance, 0, version) }
    }

    /// The headers of the upgrade request.
    ///
    /// # Errors
    /// When token, version or a capability cannot stand in a header.
    pub fn to_headers(&self, token: &Token) -> Result<HeaderMap, HandshakeError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(UPGRADE_PROTOCOL));
        let bearer = Zeroizing::new(format!("Bearer {}", token.secret()));
        let mut authorization = HeaderValue::from_str(&bearer).map_err(|_| {
            HandshakeError::new(
                "Authorization",
                "cannot hold this token: it has characters that no token has",
            )
        })?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        headers.insert(PROTOCOL, HeaderValue::from(self.protocol));
        headers.insert(ROLE, HeaderValue::from_static(self.role.as_str()));
        headers.insert(INSTANCE, text("Kasbah-Instance", &self.instance.to_string())?);
        headers.insert(EPOCH, HeaderValue::from(self.epoch));
        headers.insert(VERSION, text("Kasbah-Version", &self.version)?);
        headers.insert(CAPABILITIES, text("Kasbah-Capabilities", &self.capabilities.join(","))?);
        if let Some(desired) = self.desired {
            headers.insert(DESIRED, text("Kasbah-Desired", &desired.to_string())?);
        }
        Ok(headers)
    }

    /// Reads what an agent said. The protocol's version is read, not judged.
    ///
    /// # Errors
    /// When a header is missing or has no value of its kind.
    pub fn from_headers(headers: &HeaderMap) -> Result<(Self, Token), HandshakeError> {
        let upgrade = required(headers, &UPGRADE, "Upgrade")?;
        if !upgrade.eq_ignore_ascii_case(UPGRADE_PROTOCOL) {
            return Err(HandshakeError::new("Upgrade", "must be kasbah-tunnel"));
        }
        let authorization = required(headers, &AUTHORIZATION, "Authorization")?;
        let secret = authorization
            .strip_prefix("Bearer ")
            .filter(|secret| !secret.trim().is_empty())
            .ok_or_else(|| HandshakeError::new("Authorization", "must be Bearer and a token"))?;
        let role = match required(headers, &ROLE, "Kasbah-Role")? {
            "control" => Role::Control,
            "bulk" => Role::Bulk,
            _ => return Err(HandshakeError::new("Kasbah-Role", "must be control or bulk")),
        };
        let version = required(headers, &VERSION, "Kasbah-Version")?;
        if version.len() > MAXIMUM_TEXT_BYTES {
            return Err(HandshakeError::new("Kasbah-Version", "is too long"));
        }
        let hello = Self {
            protocol: parsed(headers, &PROTOCOL, "Kasbah-Protocol")?,
            role,
            instance: parsed(headers, &INSTANCE, "Kasbah-Instance")?,
            epoch: parsed(headers, &EPOCH, "Kasbah-Epoch")?,
            version: version.to_owned(),
            capabilities: capabilities(headers)?,
            desired: match headers.contains_key(&DESIRED) {
                true => Some(parsed(headers, &DESIRED, "Kasbah-Desired")?),
                false => None,
            },
        };
        Ok((hello, Token::new(secret)))
    }
}

impl Welcome {
    /// The headers of the `101`.
    ///
    /// # Errors
    /// Never with an agent's id; the header type wants to be asked.
    pub fn to_headers(&self) -> Result<HeaderMap, HandshakeError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(UPGRADE_PROTOCOL));
        headers.insert(AGENT, text("Kasbah-Agent", &self.agent.to_string())?);
        headers.insert(PROTOCOL, HeaderValue::from(self.protocol));
        headers.insert(TIME, HeaderValue::from(self.time_millis));
        Ok(headers)
    }

    /// Reads the headers of a `101`.
    ///
    /// # Errors
    /// When a header is missing or has no value of its kind: then it was no gateway that answered.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, HandshakeError> {
        if !required(headers, &UPGRADE, "Upgrade")?.eq_ignore_ascii_case(UPGRADE_PROTOCOL) {
            return Err(HandshakeError::new("Upgrade", "must be kasbah-tunnel"));
        }
        Ok(Self {
            agent: parsed(headers, &AGENT, "Kasbah-Agent")?,
            protocol: parsed(headers, &PROTOCOL, "Kasbah-Protocol")?,
            time_millis: parsed(headers, &TIME, "Kasbah-Time")?,
        })
    }
}

fn text(header: &'static str, value: &str) -> Result<HeaderValue, HandshakeError> {
    HeaderValue::from_str(value)
        .map_err(|_| HandshakeError::new(header, "has characters that no header may have"))
}

fn required<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<&'a str, HandshakeError> {
    let value = headers.get(name).ok_or_else(|| HandshakeError::new(shown, "is missing"))?;
    value.to_str().map_err(|_| HandshakeError::new(shown, "is not plain text"))
}

fn parsed<T: FromStr>(
    headers: &HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<T, HandshakeError> {
    required(headers, name, shown)?
        .parse()
        .map_err(|_| HandshakeError::new(shown, "has a value of another kind"))
}

fn capabilities(headers: &HeaderMap) -> Result<Vec<String>, HandshakeError> {
    let Some(value) = headers.get(CAPABILITIES) else { return Ok(Vec::new()) };
    let value =
        value.to_str().map_err(|_| HandshakeError::new("Kasbah-Capabilities", "is not plain text"))?;
    let listed: Vec<String> =
        value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if listed.len() > MAXIMUM_CAPABILITIES || listed.iter().any(|name| name.len() > MAXIMUM_TEXT_BYTES) {
        return Err(HandshakeError::new("Kasbah-Capabilities", "has too many or too long entries"));
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            capabilities: vec!["diff".to_owned(), "proxy".to_owned()],
            desired: Some(Sha256::of(b"state")),
            ..Hello::control(InstanceId(uuid::Uuid::from_u128(7)), 3, "0.1.0")
        }
    }

    #[test]
    fn a_hello_survives_its_headers() {
        let headers = hello().to_headers(&Token::new("kasbah_a_x\n")).unwrap();
        let (read, token) = Hello::from_headers(&headers).unwrap();
        assert_eq!(read, hello());
        assert_eq!(token.secret(), "kasbah_a_x");
    }

    #[test]
    fn a_welcome_survives_its_headers() {
        let welcome = Welcome { agent: AgentId(uuid::Uuid::from_u128(9)), protocol: 1, time_millis: -5 };
        assert_eq!(Welcome::from_headers(&welcome.to_headers().unwrap()).unwrap(), welcome);
    }

    #[test]
    fn each_missing_or_wrong_header_is_named() {
        let good = hello().to_headers(&Token::new("t")).unwrap();
        for name in [
            "upgrade",
            "authorization",
            "kasbah-protocol",
            "kasbah-role",
            "kasbah-instance",
            "kasbah-epoch",
            "kasbah-version",
            "kasbah-desired",
        ] {
            let mut headers = good.clone();
            headers.remove(name);
            if name == "kasbah-desired" {
                assert_eq!(Hello::from_headers(&headers).unwrap().0.desired, None);
            } else {
                let error = Hello::from_headers(&headers).unwrap_err();
                assert!(error.header.eq_ignore_ascii_case(name) && error.problem == "is missing", "{error}");
            }
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(""));
            if name != "kasbah-version" {
                assert!(Hello::from_headers(&headers).unwrap_err().header.eq_ignore_ascii_case(name));
            }
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new("kasbah_a_secret");
        let headers = hello().to_headers(&token).unwrap();
        assert!(!format!("{token:?} {headers:?}").contains("kasbah_a_secret"));
        assert!(
            hello().to_headers(&Token::new("a\u{7}b")).unwrap_err().to_string().contains("Authorization")
        );
    }
}
