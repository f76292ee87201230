//! Sizes and times of the link, the same at both ends.

use std::time::Duration;

/// ALPN protocol under which both ends speak TLS: the upgrade is HTTP/1.1.
pub const ALPN: &[u8] = b"http/1.1";

/// Flow-control window of one stream, in bytes: how much a stalled reader leaves unread in memory.
pub const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// Flow-control window of the connection, the largest that HTTP/2 has: stalled streams never exhaust it.
pub const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Streams at once. Streams times [`STREAM_WINDOW_BYTES`] stays below [`CONNECTION_WINDOW_BYTES`].
pub const MAXIMUM_STREAMS: u32 = 1000;

/// For how long it is known that a stream was reset here, of as many as there may be: what the other side still sent is nobody's fault. h2
/// counts what comes later, and closes the connection after a thousand.
pub const RESET_STREAM_DURATION: Duration = Duration::from_secs(30);

/// Bytes that either end holds per stream before its writer waits.
pub const SEND_BUFFER_BYTES: usize = 512 * 1024;

/// DATA frames with fewer bytes are small.
pub const SMALL_FRAME_BYTES: usize = 256;

/// Small frames of a stream that are sent a second, each as it comes: more than a session has whose ends answer each other as fast as they
/// can. Those beyond wait for each other.
pub const SMALL_FRAMES_SENT: u32 = 5000;

/// Small frames of a stream that are taken a second: no end sends as many.
pub const SMALL_FRAMES_TAKEN: u32 = 2 * SMALL_FRAMES_SENT;

/// Small frames of a stream that are taken at once: a connection that stood still brings those of half a minute together.
pub const SMALL_FRAMES_AT_ONCE: u32 = 30 * SMALL_FRAMES_SENT;

/// Largest list of headers of a request or an answer inside the tunnel, in bytes: what a client may send beside the largest pass.
pub const MAXIMUM_HEADER_LIST_BYTES: u32 = 160 * 1024;

/// The gateway sends a PING each time that this has passed, an agent when it heard no request for this long: well below the 25 to 30
/// seconds after which some NATs forget a connection. It is most of what an idle agent costs a gateway.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A peer that did not answer a PING for this long is dead: half a minute after it was last heard.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(15);

/// Keepalive of one end, so that tests need not wait as long as a NAT would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// A PING after this long.
    pub interval: Duration,
    /// Dead after this long without an answer to a PING.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: KEEPALIVE_INTERVAL, timeout: KEEPALIVE_TIMEOUT }
    }
}
