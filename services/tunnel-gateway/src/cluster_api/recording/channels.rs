//! What is said in a session, whichever protocol carries it.

use bytes::Bytes;
use events::recording::SessionChannel;
use http::header::{HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL};

use super::spdy::Spdy;
use super::websocket::WebSocket;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const BASE64: [&str; 2] = ["base64.channel.k8s.io", "v4.base64.channel.k8s.io"];
/// No name means the first of them.
const CHANNELS: [&str; 6] = [
    "",
    "channel.k8s.io",
    "v2.channel.k8s.io",
    "v3.channel.k8s.io",
    "v4.channel.k8s.io",
    "v5.channel.k8s.io",
];
const UNSUPPORTED: Unreadable = Unreadable("the protocol is not one of exec and attach");

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Side {
    Client,
    Cluster,
}

/// What there is of each side.
#[derive(Default)]
pub(super) struct PerSide<T> {
    client: T,
    cluster: T,
}

impl<T> PerSide<T> {
    pub(super) const fn of(&mut self, side: Side) -> &mut T {
        match side {
            Side::Client => &mut self.client,
            Side::Cluster => &mut self.cluster,
        }
    }
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChannelData {
    pub(super) channel: SessionChannel,
    pub(super) bytes: Bytes,
}

/// What goes through cannot be understood, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in super::super) struct Unreadable(pub(super) &'static str);

/// Reads what goes through a session.
pub(super) enum Channels {
    WebSocket(WebSocket),
    Spdy(Box<Spdy>),
}

impl Channels {
    /// For the protocol that a connection becomes, by the head of its answer.
    pub(super) fn of(protocol: &HeaderValue, answer: &HeaderMap) -> Result<Self, Unreadable> {
        let is = |name: &str| protocol.as_bytes().eq_ignore_ascii_case(name.as_bytes());
        let chosen = |name: &HeaderName| {
            answer.get(name).map(|value| value.to_str().unwrap_or("?")).unwrap_or_default()
        };
        if is("websocket") && !answer.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
            let subprotocol = chosen(&SEC_WEBSOCKET_PROTOCOL);
            let is_base64 = BASE64.contains(&subprotocol);
            if is_base64 || CHANNELS.contains(&subprotocol) {
                return Ok(Self::WebSocket(WebSocket::new(is_base64)));
            }
        }
        if is("SPDY/3.1") && CHANNELS.contains(&chosen(&STREAM_PROTOCOL)) {
            return Ok(Self::Spdy(Box::default()));
        }
        Err(UNSUPPORTED)
    }

    /// Whether it will be understood, whichever of the protocols is chosen that a request offers: a command runs as soon as it is asked for.
    pub(super) fn check_offered(protocol: &HeaderValue, request: &HeaderMap) -> Result<(), Unreadable> {
        for name in [SEC_WEBSOCKET_PROTOCOL, STREAM_PROTOCOL] {
            let values = request.get_all(&name).iter().map(|value| value.to_str().unwrap_or("?"));
            for offered in values.flat_map(|value| value.split(',')).map(str::trim) {
                let chosen = HeaderValue::from_str(offered).map_err(|_| UNSUPPORTED)?;
                Self::of(protocol, &HeaderMap::from_iter([(name.clone(), chosen)]))?;
            }
        }
        Ok(())
    }

    /// Reads the next bytes of one side. What it says where only the other side is heard is left out, as nobody listens to it.
    pub(super) fn read(&mut self, side: Side, bytes: &[u8]) -> Result<Vec<ChannelData>, Unreadable> {
        let mut heard = Vec::new();
        match self {
            Self::WebSocket(socket) => socket.read(side, bytes, &mut heard)?,
            Self::Spdy(spdy) => spdy.read(side, bytes, &mut heard)?,
        }
        heard.retain(|heard| sender_of(heard.channel) == Some(side));
        Ok(heard)
    }
}

const fn sender_of(channel: SessionChannel) -> Option<Side> {
    match channel {
        SessionChannel::Request => None,
        SessionChannel::Input | SessionChannel::Resize => Some(Side::Client),
        SessionChannel::Output | SessionChannel::ErrorOutput | SessionChannel::Outcome => Some(Side::Cluster),
    }
}

#[cfg(test)]
mod tests;
